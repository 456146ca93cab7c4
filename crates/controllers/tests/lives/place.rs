//! Where a life is lived: which simulated infrastructure there is, and what its user has to say.

use super::ask::merge;
use butler_sim::aws::AwsSite;
use butler_sim::gce::GceSite;
use butler_sim::proxmox::ProxmoxSite;
use butler_sim::{DataCentre, DataCentreOptions};
use serde_json::{Value, json};

/// The one that the simulated image factory has.
const SCHEMATIC: &str = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba";

/// An infrastructure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Place {
    #[default]
    Proxmox,
    /// The same without a template: the image is brought from a factory to every host, and machines have fixed addresses.
    ProxmoxImage,
    Gcp,
    Aws,
}

impl Place {
    pub fn parse(text: &str) -> Place {
        match text {
            "" | "proxmox" => Place::Proxmox,
            "proxmox-image" => Place::ProxmoxImage,
            "gcp" => Place::Gcp,
            "aws" => Place::Aws,
            other => panic!("there is no place {other:?}"),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Place::Proxmox => "proxmox",
            Place::ProxmoxImage => "proxmox-image",
            Place::Gcp => "gcp",
            Place::Aws => "aws",
        }
    }

    /// As fast as possible, without faults.
    pub fn options(self) -> DataCentreOptions {
        match self {
            Place::Proxmox => DataCentreOptions::default(),
            Place::ProxmoxImage => {
                let mut site = ProxmoxSite::example();
                // Each host has its own files: the image is fetched as often as there are hosts.
                for storage in site.storages.iter_mut().filter(|storage| storage.name == "local") {
                    (storage.shared, storage.kind) = (false, "dir".to_owned());
                }
                site.templates.clear();
                DataCentreOptions::for_site(site)
            }
            Place::Gcp => DataCentreOptions::for_gce(GceSite::example()),
            Place::Aws => DataCentreOptions::for_aws(AwsSite::example()),
        }
    }

    /// What is in the Secret.
    pub fn credentials(self, data_centre: &DataCentre) -> Value {
        match self {
            Place::Proxmox | Place::ProxmoxImage => {
                json!({"token": "root@pam!butler", "tokenSecret": "7f0c2a5e-3c43-4d5b-9c0f-2f6f0e0d9a11"})
            }
            Place::Gcp => {
                let site = data_centre.gce_site().unwrap();
                json!({"serviceAccountKey": site.service_account_key().unwrap()})
            }
            Place::Aws => {
                let key = &data_centre.aws_site().unwrap().keys[0];
                json!({"accessKeyID": key.id, "secretAccessKey": "rehearsal/secret+of+nobody/0123456789abc"})
            }
        }
    }

    /// The ProviderConfig.
    pub fn provider(self, data_centre: &DataCentre) -> Value {
        let block = match self {
            Place::Proxmox => return super::provider(),
            Place::ProxmoxImage => {
                let mut config = super::provider();
                config["spec"]["proxmox"]["templateID"].take();
                config["spec"]["network"]["nodeAddresses"] =
                    json!({"start": "10.40.0.61", "end": "10.40.0.66"});
                return config;
            }
            Place::Gcp => {
                let project = &data_centre.gce_site().unwrap().project;
                json!({"projectID": project, "region": "us-central1", "imageFamily": "talos"})
            }
            Place::Aws => {
                let site = data_centre.aws_site().unwrap();
                let subnets: Vec<&str> = site.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
                json!({
                    "region": site.region, "vpcID": site.vpcs[0].id, "subnetIDs": subnets,
                    "securityGroupIDs": [site.groups[0].id], "ami": site.images[0].id,
                })
            }
        };
        let mut config = json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ProviderConfig",
            "metadata": {"name": "site"},
            "spec": {"provider": self.provider_name(), "credentialsRef": {"name": "creds"}},
        });
        config["spec"][self.provider_name()] = block;
        config
    }

    /// A highly available cluster with so many workers; `extra` is laid over its spec.
    pub fn cluster(self, workers: u32, extra: Value) -> Value {
        let mut object = super::cluster(workers, json!({"provider": self.provider_name()}));
        if self == Place::ProxmoxImage {
            object["spec"]["talos"]["schematic"] = json!(SCHEMATIC);
        } else if self != Place::Proxmox {
            object["spec"]["network"] = json!({"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12"});
        }
        merge(&mut object["spec"], extra);
        object
    }

    /// What `spec.provider` says.
    fn provider_name(self) -> &'static str {
        match self {
            Place::ProxmoxImage => Place::Proxmox.name(),
            other => other.name(),
        }
    }

    /// The ButlerConfig, where there is one.
    pub fn settings(self) -> Option<Value> {
        (self == Place::ProxmoxImage).then(|| {
            json!({
                "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ButlerConfig",
                "metadata": {"name": "butler"},
                "spec": {"imageFactory": {"url": "https://factory.talos.dev", "autoSync": true}},
            })
        })
    }

    /// Everything that a user can have made in a cloud, by kind, without ids. Nothing on-prem.
    pub fn resources(data_centre: &DataCentre) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        if let Some(gce) = data_centre.gce() {
            // Names of parts hold a hash of who asked; the collection says what it is.
            let kind = |path: &String| path.rsplit('/').nth(1).unwrap_or_default().to_owned();
            all.extend(gce.state().paths().iter().map(kind));
        }
        if let Some(aws) = data_centre.aws() {
            let kind = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
            all.extend(aws.state().inventory().iter().map(kind));
        }
        all.sort();
        all
    }
}
