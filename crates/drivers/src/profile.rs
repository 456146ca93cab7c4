//! What is known about an infrastructure without asking it. Pure data; the only place besides [`crate::connect`] that
//! tells infrastructures apart.

use butler_api::{Provider, ProviderConfigSpec};
use serde_json::Value;
use std::collections::BTreeMap;

/// Properties of an infrastructure that plans need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Which one.
    pub provider: Provider,
    /// Whether the control plane needs a virtual IP, since there is no load balancer.
    pub on_prem: bool,
    /// Network interface that carries the virtual IP when the user names none.
    pub vip_interface: &'static str,
    /// Longest machine name.
    pub name_limit: usize,
    /// Talos platform of the boot image.
    pub image_platform: &'static str,
    /// File format of the boot image.
    pub image_format: &'static str,
    /// Device names of further disks, without their letter: `/dev/sd` gives `/dev/sdb` for the first.
    pub extra_disk_prefix: &'static str,
    /// Whether a passthrough load balancer needs its address on the nodes' loopback.
    pub loopback_endpoint: bool,
    /// Kubernetes' cloud controller manager for it, in a cloud.
    pub cloud_controller: Option<Component>,
    /// Whether the cloud controller leaves it to us to put nodes into the backend pools of its load balancers.
    pub fills_backend_pools: bool,
    /// Whether something that was asked for may not be seen for a while, and nothing else tells that it is being made.
    pub lists_lag: bool,
    /// Cluster API's provider for it.
    pub capi: Component,
}

/// A published piece of software that belongs to an infrastructure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Component {
    /// Its name.
    pub name: &'static str,
    /// The version that is used when nobody asks for another.
    pub version: &'static str,
    /// Namespace that it is installed into.
    pub namespace: &'static str,
}

impl Profile {
    /// The profile of an infrastructure.
    pub fn of(provider: Provider) -> Profile {
        let on_prem = Profile {
            provider,
            on_prem: true,
            vip_interface: "eth0",
            name_limit: 63,
            image_platform: "nocloud",
            image_format: "qcow2",
            extra_disk_prefix: "/dev/vd",
            loopback_endpoint: false,
            cloud_controller: None,
            fills_backend_pools: false,
            lists_lag: false,
            capi: capi(provider),
        };
        let cloud = Profile { on_prem: false, ..on_prem };
        match provider {
            Provider::Harvester => Profile { vip_interface: "enp1s0", ..on_prem },
            Provider::Nutanix => Profile { vip_interface: "ens3", extra_disk_prefix: "/dev/sd", ..on_prem },
            Provider::Proxmox => Profile { extra_disk_prefix: "/dev/sd", ..on_prem },
            Provider::Gcp => Profile {
                image_platform: "gcp",
                image_format: "raw.tar.gz",
                extra_disk_prefix: "/dev/sd",
                loopback_endpoint: true,
                cloud_controller: Some(cloud_controller("gcp-cloud-controller-manager", "v30.0.0")),
                ..cloud
            },
            Provider::Aws => Profile {
                image_platform: "aws",
                image_format: "raw.xz",
                extra_disk_prefix: "/dev/nvme",
                cloud_controller: Some(cloud_controller("aws-cloud-controller-manager", "v1.32.1")),
                lists_lag: true,
                ..cloud
            },
            Provider::Azure => Profile {
                image_platform: "azure",
                image_format: "vhd.xz",
                extra_disk_prefix: "/dev/sd",
                name_limit: 64,
                cloud_controller: Some(cloud_controller("azure-cloud-controller-manager", "v1.31.0")),
                fills_backend_pools: true,
                ..cloud
            },
        }
    }
}

impl Profile {
    /// The objects of the cloud controller manager on a new cluster, where we make them ourselves. `None` where a source gives
    /// them, or there is none.
    pub fn cloud_controller_objects(
        &self,
        cluster: &str,
        config: &ProviderConfigSpec,
        credentials: &BTreeMap<String, Vec<u8>>,
    ) -> Option<Vec<Value>> {
        match self.provider {
            Provider::Gcp => {
                crate::gcp::controller_manager(self.cloud_controller.as_ref()?, cluster, config, credentials)
            }
            Provider::Aws => {
                crate::aws::controller_manager(self.cloud_controller.as_ref()?, cluster, config, credentials)
            }
            _ => None,
        }
    }
}

fn cloud_controller(name: &'static str, version: &'static str) -> Component {
    Component { name, version, namespace: "kube-system" }
}

fn capi(provider: Provider) -> Component {
    let (name, version, namespace) = match provider {
        Provider::Harvester => ("capk", "v0.1.9", "capk-system"),
        Provider::Nutanix => ("capx", "v1.4.0", "capx-system"),
        Provider::Proxmox => ("capmox", "v0.6.0", "capmox-system"),
        Provider::Gcp => ("capg", "v1.8.0", "capg-system"),
        Provider::Aws => ("capa", "v2.7.0", "capa-system"),
        Provider::Azure => ("capz", "v1.17.0", "capz-system"),
    };
    Component { name, version, namespace }
}
