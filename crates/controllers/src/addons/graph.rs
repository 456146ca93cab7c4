//! Every addon as one row: when it is installed, what has to be ready before, what it is made of, when it is ready.
//!
//! ```text
//!   kube-vip                      gateway-api --(exposure by Gateway)--> cilium
//!   butler-crds --> provider-config, butler-addons, butler, butler-config-exposure
//!   cilium -+-> cloud-controller-manager --> cloud-lb-backend-pool
//!           +-> cert-manager -+-> steward
//!           |                 +-> capi
//!           +-> longhorn, flux
//!           +-> metallb --> metallb-pool --> traefik
//!           +-> butler-controller (also: butler-crds) --> butler-console (also: traefik, with an Ingress)
//! ```
//!
//! Only what really has to be there first is a need: what two rows merely share (a namespace) both bring. A need that is
//! skipped counts as met.

use super::site::Site;
use super::source::Part;
use super::{butler, exposure, gateway_api, kube_vip, metallb, nodes, provider_config, values};
use butler_api::{
    CniType, ControlPlaneHaType, ControlPlaneProviderType, ExposureMode, GitOpsType, IngressType, StorageType,
};
use butler_drivers::Failure;
use serde_json::Value;

/// One addon.
pub(crate) struct Row {
    /// Key in `status.addonsInstalled`.
    pub(crate) name: &'static str,
    /// Number of the step in the documentation.
    pub(crate) step: &'static str,
    /// Whether it is installed.
    pub(crate) gate: fn(&Site<'_>) -> Gate,
    /// What has to be ready before.
    pub(crate) needs: &'static [Need],
    /// What is installed.
    pub(crate) version: fn(&Site<'_>) -> String,
    /// What it is made of.
    pub(crate) content: Content,
    /// When it is ready.
    pub(crate) judged: Judged,
    /// A change that a node needs, as a merge patch; nothing when the node is as it should be.
    pub(crate) edit_node: Option<fn(&Site<'_>, &Value) -> Option<Value>>,
    /// Who owns the fields. Rows that write to the same object have different managers.
    pub(crate) manager: &'static str,
}

/// Whether a row is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gate {
    /// It is.
    Install,
    /// It is not, for this reason.
    Skip(String),
    /// It stands for another row of the same step, which is installed or skipped in its place.
    NotChosen,
}

/// Something that has to be ready before.
pub(crate) struct Need {
    pub(crate) on: &'static str,
    pub(crate) when: fn(&Site<'_>) -> bool,
}

/// What an addon is made of.
pub(crate) enum Content {
    /// Objects that we make.
    BuiltIn(fn(&Site<'_>) -> Result<Vec<Value>, Failure>),
    /// Objects that a source gives.
    Sourced(fn(&Site<'_>) -> Vec<Part>),
    /// Objects that we make for some infrastructures, and that a source gives for the others.
    BuiltInOr(fn(&Site<'_>) -> Option<Vec<Value>>, fn(&Site<'_>) -> Vec<Part>),
    /// Changes to nodes alone.
    NodeEdits,
    /// Something that the infrastructure's driver does.
    Infrastructure,
}

/// When an addon is ready, beside all of it being applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Judged {
    /// At once.
    Applied,
    /// When its CRDs are established.
    Established,
    /// When its workloads run, its CRDs are established, and its load-balanced Services have addresses.
    Running,
    /// When all nodes have been changed.
    Nodes,
}

/// The field manager of everything but rows that write to another row's object.
pub(crate) const MANAGER: &str = "butler";

const ALWAYS: fn(&Site<'_>) -> Gate = |_| Gate::Install;
const CILIUM: Need = need("cilium");
const CERT_MANAGER: Need = need("cert-manager");
const BUTLER_CRDS: Need = need("butler-crds");

const fn need(on: &'static str) -> Need {
    Need { on, when: |_| true }
}

const fn row(name: &'static str, step: &'static str, content: Content, judged: Judged) -> Row {
    Row {
        name,
        step,
        gate: ALWAYS,
        needs: &[],
        version: |_| env!("CARGO_PKG_VERSION").to_owned(),
        content,
        judged,
        edit_node: None,
        manager: MANAGER,
    }
}

fn cloud_controller(site: &Site<'_>) -> Option<Vec<Value>> {
    site.profile.cloud_controller_objects(
        &site.spec.cluster.name,
        &site.provider_config.spec,
        site.credentials,
    )
}

/// All rows, in the order of the documentation.
pub(crate) static ROWS: [Row; 23] = [
    Row {
        gate: kube_vip_gate,
        version: |site| pinned(site.spec.addons.control_plane_ha.version.as_deref(), kube_vip::VERSION),
        ..row("kube-vip", "1", Content::BuiltIn(kube_vip::objects), Judged::Running)
    },
    Row {
        gate: |site| chosen(site.spec.addons.cni.type_ == CniType::Cilium, "addons.cni.type is none"),
        // Cilium's operator looks for the Gateway API once, when it starts.
        needs: &[Need { on: "gateway-api", when: by_gateway }],
        version: |site| pinned(site.spec.addons.cni.version.as_deref(), values::CILIUM),
        ..row("cilium", "2", Content::Sourced(values::cilium), Judged::Running)
    },
    Row {
        gate: cloud_gate,
        needs: &[CILIUM],
        version: |site| site.profile.cloud_controller.map(|c| c.version).unwrap_or_default().to_owned(),
        ..row(
            "cloud-controller-manager",
            "2.5",
            Content::BuiltInOr(cloud_controller, values::cloud_controller),
            Judged::Running,
        )
    },
    Row {
        gate: cloud_gate,
        edit_node: Some(nodes::of_cloud),
        ..row("node-provider-ids", "2.6", Content::NodeEdits, Judged::Nodes)
    },
    Row {
        gate: |site| enabled(site.spec.addons.cert_manager.enabled, "certManager"),
        needs: &[CILIUM],
        version: |site| pinned(site.spec.addons.cert_manager.version.as_deref(), values::CERT_MANAGER),
        ..row("cert-manager", "3", Content::Sourced(values::cert_manager), Judged::Running)
    },
    Row {
        gate: |site| {
            chosen(site.spec.addons.storage.type_ == StorageType::Longhorn, "addons.storage.type is none")
        },
        needs: &[CILIUM],
        version: |site| pinned(site.spec.addons.storage.version.as_deref(), values::LONGHORN),
        ..row("longhorn", "4", Content::Sourced(values::longhorn), Judged::Running)
    },
    Row {
        gate: metallb_gate,
        needs: &[CILIUM],
        version: metallb_version,
        ..row("metallb", "5", Content::Sourced(values::metallb), Judged::Running)
    },
    Row {
        gate: metallb_gate,
        // MetalLB checks its pools by a webhook, so its controller has to run.
        needs: &[need("metallb")],
        edit_node: Some(nodes::take_traffic),
        ..row("metallb-pool", "5", Content::BuiltIn(metallb::objects), Judged::Nodes)
    },
    Row {
        gate: |site| ingress_gate(site, IngressType::Traefik),
        needs: &[CILIUM, Need { on: "metallb-pool", when: |site| site.has_metallb() }],
        version: |site| pinned(site.spec.addons.ingress.version.as_deref(), values::TRAEFIK),
        ..row("traefik", "6", Content::Sourced(values::traefik), Judged::Running)
    },
    Row {
        gate: |site| ingress_gate(site, IngressType::Nginx),
        needs: &[CILIUM, Need { on: "metallb-pool", when: |site| site.has_metallb() }],
        version: |site| pinned(site.spec.addons.ingress.version.as_deref(), values::INGRESS_NGINX),
        ..row("ingress-nginx", "6", Content::Sourced(values::ingress_nginx), Judged::Running)
    },
    Row {
        version: |_| gateway_api::VERSION.to_owned(),
        ..row("gateway-api", "7a", Content::BuiltIn(gateway_api::objects), Judged::Established)
    },
    Row {
        gate: |site| control_plane_provider_gate(site, ControlPlaneProviderType::Steward),
        needs: &[CILIUM, CERT_MANAGER],
        version: |site| pinned(site.spec.addons.control_plane_provider.version.as_deref(), values::STEWARD),
        ..row("steward", "7b", Content::Sourced(values::steward), Judged::Running)
    },
    Row {
        gate: |site| control_plane_provider_gate(site, ControlPlaneProviderType::Kamaji),
        needs: &[CILIUM, CERT_MANAGER],
        version: |site| pinned(site.spec.addons.control_plane_provider.version.as_deref(), values::KAMAJI),
        ..row("kamaji", "7b", Content::Sourced(values::kamaji), Judged::Running)
    },
    Row {
        gate: |site| enabled(site.spec.addons.capi.enabled, "capi"),
        needs: &[CILIUM, CERT_MANAGER],
        version: |site| site.spec.addons.capi.version.clone(),
        ..row("capi", "8", Content::Sourced(values::capi), Judged::Running)
    },
    Row {
        gate: flux_gate,
        needs: &[CILIUM],
        version: |site| pinned(site.spec.addons.git_ops.version.as_deref(), values::FLUX),
        ..row("flux", "9", Content::Sourced(values::flux), Judged::Running)
    },
    row("butler-crds", "9.5", Content::BuiltIn(butler::crds), Judged::Established),
    Row {
        needs: &[BUTLER_CRDS],
        ..row("provider-config", "9.6", Content::BuiltIn(provider_config::objects), Judged::Applied)
    },
    Row {
        needs: &[BUTLER_CRDS],
        ..row("butler-addons", "9.7", Content::BuiltIn(butler::catalogue), Judged::Applied)
    },
    Row {
        gate: |site| enabled(site.spec.addons.butler_controller.enabled, "butlerController"),
        needs: &[CILIUM, BUTLER_CRDS],
        version: |_| values::BUTLER_CONTROLLER.to_owned(),
        ..row("butler-controller", "10", Content::Sourced(values::butler_controller), Judged::Running)
    },
    Row { needs: &[BUTLER_CRDS], ..row("butler", "11", Content::BuiltIn(butler::platform), Judged::Applied) },
    Row {
        needs: &[BUTLER_CRDS],
        manager: "butler-exposure",
        ..row("butler-config-exposure", "11.5", Content::BuiltIn(exposure::objects), Judged::Applied)
    },
    Row {
        gate: |site| enabled(site.spec.addons.console.enabled, "console"),
        needs: &[
            CILIUM,
            need("butler-controller"),
            Need { on: "traefik", when: console_by_ingress },
            Need { on: "ingress-nginx", when: console_by_ingress },
            Need { on: "cloud-controller-manager", when: |site| site.profile.cloud_controller.is_some() },
        ],
        version: |_| values::BUTLER_CONSOLE.to_owned(),
        ..row("butler-console", "12", Content::Sourced(values::butler_console), Judged::Running)
    },
    Row {
        gate: backend_pool_gate,
        needs: &[need("cloud-controller-manager"), need("node-provider-ids"), need("butler-console")],
        ..row("cloud-lb-backend-pool", "12.5", Content::Infrastructure, Judged::Applied)
    },
];

/// The row of an addon.
pub(crate) fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

fn pinned(asked: Option<&str>, tested: &str) -> String {
    asked.filter(|version| !version.is_empty()).unwrap_or(tested).to_owned()
}

fn chosen(yes: bool, why_not: &str) -> Gate {
    if yes { Gate::Install } else { Gate::Skip(why_not.to_owned()) }
}

fn enabled(yes: bool, part: &str) -> Gate {
    if yes { Gate::Install } else { Gate::Skip(format!("addons.{part}.enabled is false")) }
}

fn by_gateway(site: &Site<'_>) -> bool {
    site.spec.control_plane_exposure.mode == ExposureMode::Gateway
}

fn console_by_ingress(site: &Site<'_>) -> bool {
    site.spec.addons.console.ingress.as_ref().is_some_and(|ingress| ingress.enabled)
}

fn cloud_gate(site: &Site<'_>) -> Gate {
    chosen(site.profile.cloud_controller.is_some(), "on-prem: there is no cloud to control")
}

fn kube_vip_gate(site: &Site<'_>) -> Gate {
    if !site.profile.on_prem {
        return Gate::Skip("a cloud load balancer is in front of the control plane".to_owned());
    }
    match site.spec.effective_control_plane_ha() {
        ControlPlaneHaType::KubeVip => chosen(site.spec.network.vip.is_some(), "network.vip is not set"),
        ControlPlaneHaType::TalosVip if site.single_node() => {
            Gate::Skip("a single node holds the address by Talos' own virtual IP".to_owned())
        }
        ControlPlaneHaType::TalosVip => Gate::Skip("addons.controlPlaneHA.type is talos-vip".to_owned()),
        ControlPlaneHaType::External => Gate::Skip("addons.controlPlaneHA.type is external".to_owned()),
        ControlPlaneHaType::None if site.single_node() => {
            Gate::Skip("a single node needs no address that moves".to_owned())
        }
        ControlPlaneHaType::None => Gate::Skip("addons.controlPlaneHA is switched off".to_owned()),
    }
}

fn metallb_gate(site: &Site<'_>) -> Gate {
    let wanted = &site.spec.addons.load_balancer;
    if !site.profile.on_prem {
        Gate::Skip("the cloud gives Services their addresses".to_owned())
    } else if !wanted.enabled {
        enabled(false, "loadBalancer")
    } else if site.spec.network.load_balancer_pool.is_none() {
        Gate::Skip("network.loadBalancerPool is not set".to_owned())
    } else {
        chosen(site.has_metallb(), "addons.loadBalancer.type is none")
    }
}

fn metallb_version(site: &Site<'_>) -> String {
    pinned(site.spec.addons.load_balancer.version.as_deref(), values::METALLB)
}

fn ingress_gate(site: &Site<'_>, kind: IngressType) -> Gate {
    let wanted = &site.spec.addons.ingress;
    match wanted.type_ {
        IngressType::None if kind == IngressType::Traefik => {
            Gate::Skip("addons.ingress.type is none".to_owned())
        }
        other if other != kind => Gate::NotChosen,
        _ if !site.profile.on_prem => Gate::Skip("the cloud gives Services their addresses".to_owned()),
        _ => enabled(wanted.enabled, "ingress"),
    }
}

fn control_plane_provider_gate(site: &Site<'_>, kind: ControlPlaneProviderType) -> Gate {
    let wanted = &site.spec.addons.control_plane_provider;
    match wanted.type_ {
        ControlPlaneProviderType::None if kind == ControlPlaneProviderType::Steward => {
            Gate::Skip("addons.controlPlaneProvider.type is none".to_owned())
        }
        other if other != kind => Gate::NotChosen,
        _ => enabled(wanted.enabled, "controlPlaneProvider"),
    }
}

fn flux_gate(site: &Site<'_>) -> Gate {
    let wanted = &site.spec.addons.git_ops;
    match wanted.type_ {
        _ if !wanted.enabled => enabled(false, "gitOps"),
        GitOpsType::None => Gate::Skip("addons.gitOps.type is none".to_owned()),
        GitOpsType::Flux => Gate::Install,
    }
}

fn backend_pool_gate(site: &Site<'_>) -> Gate {
    if !site.profile.fills_backend_pools {
        return Gate::Skip("the infrastructure fills its backend pools itself".to_owned());
    }
    // Without the console there is no load balancer whose pool could be filled.
    enabled(site.spec.addons.console.enabled, "console")
}
