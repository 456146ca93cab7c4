//! Which stand-ins there are, as data: workloads, CRDs, and the few objects that other addons look for.

use super::objects::{meta, named};
use super::source::Part;
use serde_json::{Value, json};

/// What stands in for one addon.
pub(crate) struct StandIn {
    pub(crate) addon: &'static str,
    pub(crate) workloads: &'static [Workload],
    pub(crate) definitions: &'static [Definition],
    /// Type of the Services that are reached from outside.
    pub(crate) service_type: fn(&Value) -> &'static str,
    /// Further objects.
    pub(crate) more: fn(&Part) -> Vec<Value>,
}

/// Something that runs.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) runs: Runs,
    /// Port that its Service leads to, where it has one.
    pub(crate) port: Option<u16>,
    /// Whether its Service is reached from outside.
    pub(crate) outside: bool,
    pub(crate) host_network: bool,
    pub(crate) privileged: bool,
    /// Whether the values ask for it.
    pub(crate) when: fn(&Value) -> bool,
}

/// How a workload runs.
#[derive(Clone, Copy)]
pub(crate) enum Runs {
    OnEveryNode,
    /// So many times, as the values say.
    Times(fn(&Value) -> i64),
    AsMembers(i64),
}

/// A CRD, of which only the names are real.
pub(crate) struct Definition {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) namespaced: bool,
}

impl PartialEq for Runs {
    fn eq(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Runs::OnEveryNode, Runs::OnEveryNode)
                | (Runs::Times(_), Runs::Times(_))
                | (Runs::AsMembers(_), Runs::AsMembers(_))
        )
    }
}

const fn deployment(name: &'static str) -> Workload {
    Workload {
        name,
        runs: Runs::Times(|_| 1),
        port: None,
        outside: false,
        host_network: false,
        privileged: false,
        when: |_| true,
    }
}

const fn serving(name: &'static str, port: u16) -> Workload {
    Workload { port: Some(port), ..deployment(name) }
}

const fn on_every_node(name: &'static str, host_network: bool) -> Workload {
    Workload { runs: Runs::OnEveryNode, host_network, privileged: true, ..deployment(name) }
}

const fn namespaced(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Definition {
    Definition { group, version, kind, plural, namespaced: true }
}

const fn clusterwide(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> Definition {
    Definition { group, version, kind, plural, namespaced: false }
}

const fn stand_in(
    addon: &'static str,
    workloads: &'static [Workload],
    definitions: &'static [Definition],
) -> StandIn {
    StandIn { addon, workloads, definitions, service_type: |_| "ClusterIP", more: |_| Vec::new() }
}

/// The stand-in of a part.
pub(crate) fn find(addon: &str) -> Option<&'static StandIn> {
    STAND_INS.iter().find(|stand_in| stand_in.addon == addon)
}

fn hubble(values: &Value) -> bool {
    values.pointer("/hubble/enabled").and_then(Value::as_bool).unwrap_or(false)
}

fn operators(values: &Value) -> i64 {
    values.pointer("/operator/replicas").and_then(Value::as_i64).unwrap_or(1)
}

pub(crate) static STAND_INS: [StandIn; 23] = [
    stand_in(
        "cilium",
        &[
            on_every_node("cilium", true),
            on_every_node("cilium-envoy", true),
            Workload { runs: Runs::Times(operators), host_network: true, ..deployment("cilium-operator") },
            Workload { when: hubble, ..serving("hubble-relay", 4245) },
            Workload { when: hubble, ..serving("hubble-ui", 8081) },
        ],
        &[
            namespaced("cilium.io", "v2", "CiliumNetworkPolicy", "ciliumnetworkpolicies"),
            namespaced("cilium.io", "v2", "CiliumEndpoint", "ciliumendpoints"),
            clusterwide("cilium.io", "v2", "CiliumNode", "ciliumnodes"),
            clusterwide("cilium.io", "v2", "CiliumIdentity", "ciliumidentities"),
        ],
    ),
    stand_in(
        "cert-manager",
        &[
            deployment("cert-manager"),
            deployment("cert-manager-cainjector"),
            serving("cert-manager-webhook", 10250),
        ],
        &[
            namespaced("cert-manager.io", "v1", "Certificate", "certificates"),
            namespaced("cert-manager.io", "v1", "CertificateRequest", "certificaterequests"),
            namespaced("cert-manager.io", "v1", "Issuer", "issuers"),
            clusterwide("cert-manager.io", "v1", "ClusterIssuer", "clusterissuers"),
            namespaced("acme.cert-manager.io", "v1", "Order", "orders"),
            namespaced("acme.cert-manager.io", "v1", "Challenge", "challenges"),
        ],
    ),
    StandIn {
        more: storage_class,
        ..stand_in(
            "longhorn",
            &[
                on_every_node("longhorn-manager", false),
                deployment("longhorn-driver-deployer"),
                serving("longhorn-ui", 8000),
            ],
            &[
                namespaced("longhorn.io", "v1beta2", "Volume", "volumes"),
                namespaced("longhorn.io", "v1beta2", "Engine", "engines"),
                namespaced("longhorn.io", "v1beta2", "Replica", "replicas"),
                namespaced("longhorn.io", "v1beta2", "Setting", "settings"),
            ],
        )
    },
    stand_in(
        "metallb",
        &[serving("metallb-controller", 9443), on_every_node("metallb-speaker", true)],
        &[
            namespaced("metallb.io", "v1beta1", "IPAddressPool", "ipaddresspools"),
            namespaced("metallb.io", "v1beta1", "L2Advertisement", "l2advertisements"),
            namespaced("metallb.io", "v1beta1", "BGPAdvertisement", "bgpadvertisements"),
            namespaced("metallb.io", "v1beta2", "BGPPeer", "bgppeers"),
            namespaced("metallb.io", "v1beta1", "BFDProfile", "bfdprofiles"),
            namespaced("metallb.io", "v1beta1", "Community", "communities"),
        ],
    ),
    StandIn {
        service_type: |_| "LoadBalancer",
        more: |_| vec![ingress_class("traefik", "traefik.io/ingress-controller")],
        ..stand_in(
            "traefik",
            &[Workload { outside: true, ..serving("traefik", 8443) }],
            &[
                namespaced("traefik.io", "v1alpha1", "IngressRoute", "ingressroutes"),
                namespaced("traefik.io", "v1alpha1", "IngressRouteTCP", "ingressroutetcps"),
                namespaced("traefik.io", "v1alpha1", "Middleware", "middlewares"),
            ],
        )
    },
    StandIn {
        service_type: |_| "LoadBalancer",
        more: |_| vec![ingress_class("nginx", "k8s.io/ingress-nginx")],
        ..stand_in(
            "ingress-nginx",
            &[Workload { outside: true, ..serving("ingress-nginx-controller", 8443) }],
            &[],
        )
    },
    stand_in(
        "steward",
        &[
            serving("steward-controller-manager", 9443),
            Workload { runs: Runs::AsMembers(3), ..serving("steward-etcd", 2379) },
        ],
        &[
            namespaced("steward.butlerlabs.dev", "v1alpha1", "TenantControlPlane", "tenantcontrolplanes"),
            clusterwide("steward.butlerlabs.dev", "v1alpha1", "DataStore", "datastores"),
        ],
    ),
    stand_in(
        "kamaji",
        &[
            serving("kamaji-controller-manager", 9443),
            Workload { runs: Runs::AsMembers(3), ..serving("kamaji-etcd", 2379) },
        ],
        &[
            namespaced("kamaji.clastix.io", "v1alpha1", "TenantControlPlane", "tenantcontrolplanes"),
            clusterwide("kamaji.clastix.io", "v1alpha1", "DataStore", "datastores"),
        ],
    ),
    stand_in(
        "capi-core",
        &[serving("capi-controller-manager", 9443)],
        &[
            namespaced("cluster.x-k8s.io", "v1beta1", "Cluster", "clusters"),
            namespaced("cluster.x-k8s.io", "v1beta1", "Machine", "machines"),
            namespaced("cluster.x-k8s.io", "v1beta1", "MachineSet", "machinesets"),
            namespaced("cluster.x-k8s.io", "v1beta1", "MachineDeployment", "machinedeployments"),
        ],
    ),
    stand_in(
        "capi-bootstrap-kubeadm",
        &[serving("capi-kubeadm-bootstrap-controller-manager", 9443)],
        &[
            namespaced("bootstrap.cluster.x-k8s.io", "v1beta1", "KubeadmConfig", "kubeadmconfigs"),
            namespaced(
                "bootstrap.cluster.x-k8s.io",
                "v1beta1",
                "KubeadmConfigTemplate",
                "kubeadmconfigtemplates",
            ),
        ],
    ),
    stand_in(
        "capi-control-plane-steward",
        &[serving("capi-steward-controller-manager", 9443)],
        &[namespaced(
            "controlplane.cluster.x-k8s.io",
            "v1alpha1",
            "StewardControlPlane",
            "stewardcontrolplanes",
        )],
    ),
    stand_in(
        "capk",
        &[serving("capk-controller-manager", 9443)],
        &[namespaced(INFRASTRUCTURE, "v1alpha1", "KubevirtCluster", "kubevirtclusters")],
    ),
    stand_in(
        "capx",
        &[serving("capx-controller-manager", 9443)],
        &[namespaced(INFRASTRUCTURE, "v1beta1", "NutanixCluster", "nutanixclusters")],
    ),
    stand_in(
        "capmox",
        &[serving("capmox-controller-manager", 9443)],
        &[
            namespaced(INFRASTRUCTURE, "v1alpha1", "ProxmoxCluster", "proxmoxclusters"),
            namespaced(INFRASTRUCTURE, "v1alpha1", "ProxmoxMachine", "proxmoxmachines"),
        ],
    ),
    stand_in(
        "capg",
        &[serving("capg-controller-manager", 9443)],
        &[namespaced(INFRASTRUCTURE, "v1beta1", "GCPCluster", "gcpclusters")],
    ),
    stand_in(
        "capa",
        &[serving("capa-controller-manager", 9443)],
        &[namespaced(INFRASTRUCTURE, "v1beta2", "AWSCluster", "awsclusters")],
    ),
    stand_in(
        "capz",
        &[serving("capz-controller-manager", 9443)],
        &[namespaced(INFRASTRUCTURE, "v1beta1", "AzureCluster", "azureclusters")],
    ),
    stand_in(
        "flux",
        &[
            serving("source-controller", 9090),
            deployment("kustomize-controller"),
            deployment("helm-controller"),
            serving("notification-controller", 9090),
        ],
        &[
            namespaced("source.toolkit.fluxcd.io", "v1", "GitRepository", "gitrepositories"),
            namespaced("source.toolkit.fluxcd.io", "v1", "HelmRepository", "helmrepositories"),
            namespaced("kustomize.toolkit.fluxcd.io", "v1", "Kustomization", "kustomizations"),
            namespaced("helm.toolkit.fluxcd.io", "v2", "HelmRelease", "helmreleases"),
        ],
    ),
    stand_in("butler-controller", &[deployment("butler-controller")], &[]),
    StandIn {
        service_type: |values| match values.pointer("/frontend/service/type").and_then(Value::as_str) {
            Some("LoadBalancer") => "LoadBalancer",
            _ => "ClusterIP",
        },
        more: console_ingress,
        ..stand_in(
            "butler-console",
            &[
                serving("butler-console-server", 8080),
                Workload { outside: true, ..serving("butler-console-frontend", 8081) },
            ],
            &[],
        )
    },
    stand_in("gcp-cloud-controller-manager", &[on_every_node("cloud-controller-manager", true)], &[]),
    stand_in("aws-cloud-controller-manager", &[on_every_node("aws-cloud-controller-manager", true)], &[]),
    stand_in(
        "azure-cloud-controller-manager",
        &[Workload { host_network: true, ..deployment("cloud-controller-manager") }],
        &[],
    ),
];

const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io";

fn storage_class(part: &Part) -> Vec<Value> {
    let replicas = part.values.pointer("/persistence/defaultClassReplicaCount").and_then(Value::as_i64);
    let mut metadata = named("longhorn");
    metadata["annotations"] = json!({ "storageclass.kubernetes.io/is-default-class": "true" });
    vec![json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": metadata,
        "provisioner": "driver.longhorn.io",
        "allowVolumeExpansion": true,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "parameters": { "numberOfReplicas": replicas.unwrap_or(3).to_string() },
    })]
}

fn ingress_class(name: &str, controller: &str) -> Value {
    let mut metadata = named(name);
    metadata["annotations"] = json!({ "ingressclass.kubernetes.io/is-default-class": "true" });
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IngressClass",
        "metadata": metadata,
        "spec": { "controller": controller },
    })
}

fn console_ingress(part: &Part) -> Vec<Value> {
    let Some(ingress) = part.values.get("ingress") else { return Vec::new() };
    if ingress.get("enabled").and_then(Value::as_bool) != Some(true) {
        return Vec::new();
    }
    let host = ingress.get("host").cloned().unwrap_or_default();
    let path = |path: &str, service: &str, port: u16| {
        json!({
            "path": path,
            "pathType": "Prefix",
            "backend": { "service": { "name": service, "port": { "number": port } } },
        })
    };
    let mut spec = json!({ "rules": [{ "host": host, "http": { "paths": [
        path("/api", "butler-console-server", 8080),
        path("/ws", "butler-console-server", 8080),
        path("/", "butler-console-frontend", 8081),
    ] } }] });
    if let Some(class) = ingress.get("className") {
        spec["ingressClassName"] = class.clone();
    }
    if let Some(secret) = ingress.pointer("/tls/secretName") {
        spec["tls"] = json!([{ "hosts": [host], "secretName": secret }]);
    }
    vec![json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": meta(&part.namespace, "butler-console"),
        "spec": spec,
    })]
}
