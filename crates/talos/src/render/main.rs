//! The v1alpha1 document: what all contracts have in it.

use super::put;
use crate::contract::Contract;
use crate::intent::{Cidr, ClusterIntent, Cni, InstallDisk, NodeIntent, Role, VOLUMES};
use crate::pki::Ca;
use crate::secrets::{EncryptionSecret, SecretsBundle, base64_of};
use serde_json::{Value, json};

/// Kept off control planes by Talos; where they do the workers' work it would hide them from load balancers.
const NO_LOAD_BALANCER: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

pub(super) fn main(cluster: &ClusterIntent, node: &NodeIntent, secrets: &SecretsBundle) -> Value {
    json!({
        "version": "v1alpha1",
        "debug": false,
        "persist": true,
        "machine": machine(cluster, node, secrets),
        "cluster": cluster_section(cluster, node, secrets),
    })
}

fn machine(cluster: &ClusterIntent, node: &NodeIntent, secrets: &SecretsBundle) -> Value {
    let contract = cluster.talos.contract();
    let names = match node.role {
        Role::ControlPlane => {
            let mut names = cluster.names();
            let own = node.addresses().into_iter().map(|address| address.to_string());
            names.extend(own.filter(|name| !cluster.names().contains(name)));
            names
        }
        Role::Worker => node.addresses().iter().map(ToString::to_string).collect(),
    };
    let mut machine = json!({
        "type": node.role.name(),
        "token": secrets.trustd_token.expose(),
        "ca": ca(&secrets.os, node.role),
        "certSANs": names,
        "kubelet": kubelet(cluster, node),
        "network": {},
        "install": install(cluster, node),
        "features": features(cluster),
    });
    put(&mut machine, "pods", node.static_pods.clone());
    put(&mut machine, "sysctls", json!(node.sysctls));
    let modules: Vec<Value> = node.kernel_modules.iter().map(|name| json!({"name": name})).collect();
    if !modules.is_empty() {
        machine["kernel"] = json!({"modules": modules});
    }
    let mut labels = node.labels.clone();
    if node.role == Role::ControlPlane && !cluster.schedule_on_control_planes {
        labels.entry(NO_LOAD_BALANCER.into()).or_default();
    }
    put(&mut machine, "nodeLabels", json!(labels));
    put(&mut machine, "nodeAnnotations", json!(node.annotations));
    put(&mut machine, "nodeTaints", json!(node.taints));
    if contract >= Contract::V1_12 {
        machine["install"]["grubUseUKICmdline"] = true.into();
    }
    machine
}

fn kubelet(cluster: &ClusterIntent, node: &NodeIntent) -> Value {
    let mut kubelet = json!({
        "image": format!("ghcr.io/siderolabs/kubelet:v{}", cluster.kubernetes),
        "defaultRuntimeSeccompProfileEnabled": true,
        "disableManifestsDirectory": true,
    });
    put(&mut kubelet, "extraArgs", json!(node.kubelet_args));
    let disks = node.extra_disks.iter().filter(|disk| disk.kubelet_mount);
    let disks = disks.map(|disk| format!("{VOLUMES}/{}", disk.name));
    let mounts: Vec<Value> = disks
        .chain(node.kubelet_mounts.iter().cloned())
        // What a pod mounts below must be seen by the kubelet and by the host: hence shared, both ways.
        .map(|path| json!({"destination": path, "type": "bind", "source": path, "options": ["bind", "rshared", "rw"]}))
        .collect();
    put(&mut kubelet, "extraMounts", mounts);
    let networks = own_networks(node);
    if !networks.is_empty() {
        kubelet["nodeIP"] = json!({"validSubnets": networks});
    }
    kubelet
}

fn install(cluster: &ClusterIntent, node: &NodeIntent) -> Value {
    let mut install = json!({"image": cluster.installer.image(&cluster.talos), "wipe": node.wipe});
    match &node.install_disk {
        Some(InstallDisk::Path(path)) => install["disk"] = json!(path),
        Some(InstallDisk::Selector(fields)) => install["diskSelector"] = json!(fields),
        None => {}
    }
    install
}

fn features(cluster: &ClusterIntent) -> Value {
    let mut features = json!({
        "diskQuotaSupport": true,
        "hostDNS": {"enabled": true, "forwardKubeDNSToHost": true},
    });
    if let Some(port) = cluster.kube_prism_port {
        features["kubePrism"] = json!({"enabled": true, "port": port});
    }
    if cluster.talos.contract() < Contract::V1_12 {
        features["rbac"] = true.into();
        features["stableHostname"] = true.into();
        features["apidCheckExtKeyUsage"] = true.into();
    }
    features
}

fn cluster_section(cluster: &ClusterIntent, node: &NodeIntent, secrets: &SecretsBundle) -> Value {
    let texts = |networks: &[Cidr]| networks.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut section = json!({
        "id": secrets.cluster_id.expose(),
        "secret": secrets.cluster_secret.expose(),
        "controlPlane": {"endpoint": cluster.endpoint.to_string()},
        "clusterName": cluster.name,
        "network": {
            "dnsDomain": cluster.dns_domain,
            "podSubnets": texts(&cluster.pod_networks),
            "serviceSubnets": texts(&cluster.service_networks),
        },
        "token": secrets.bootstrap_token.expose(),
        "ca": ca(&secrets.kubernetes, node.role),
        "discovery": {
            "enabled": cluster.discovery,
            // The registry inside Kubernetes does not work with Kubernetes 1.32 and later.
            "registries": {"kubernetes": {"disabled": true}, "service": {}},
        },
    });
    if cluster.cni == Cni::None {
        section["network"]["cni"] = json!({"name": "none"});
    }
    if cluster.external_cloud_provider {
        section["externalCloudProvider"] = json!({"enabled": true});
    }
    if node.role == Role::ControlPlane {
        control_plane(cluster, node, secrets, &mut section);
    }
    section
}

/// What only control planes may know and do.
fn control_plane(cluster: &ClusterIntent, node: &NodeIntent, secrets: &SecretsBundle, section: &mut Value) {
    let image = |name: &str| format!("registry.k8s.io/{name}:v{}", cluster.kubernetes);
    let (name, secret) = match &secrets.encryption {
        EncryptionSecret::Secretbox(secret) => ("secretboxEncryptionSecret", secret),
        EncryptionSecret::AesCbc(secret) => ("aescbcEncryptionSecret", secret),
    };
    section[name] = secret.expose().into();
    section["aggregatorCA"] = ca(&secrets.aggregator, Role::ControlPlane);
    section["serviceAccount"] = json!({"key": base64_of(secrets.service_account.pem().expose())});
    section["apiServer"] = json!({
        "image": image("kube-apiserver"),
        "certSANs": cluster.names(),
        "admissionControl": [{"name": "PodSecurity", "configuration": pod_security()}],
        "auditPolicy": {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]},
    });
    if cluster.talos.contract() < Contract::V1_12 {
        section["apiServer"]["disablePodSecurityPolicy"] = true.into();
    }
    section["controllerManager"] = json!({"image": image("kube-controller-manager")});
    section["proxy"] = json!({"image": image("kube-proxy")});
    if !cluster.kube_proxy {
        section["proxy"]["disabled"] = true.into();
    }
    section["scheduler"] = json!({"image": image("kube-scheduler")});
    section["etcd"] = json!({"ca": ca(&secrets.etcd, Role::ControlPlane)});
    put(&mut section["etcd"], "advertisedSubnets", own_networks(node));
    if cluster.schedule_on_control_planes {
        section["allowSchedulingOnControlPlanes"] = true.into();
    }
}

/// The networks of a node's own addresses, without those of load balancers that it has on `lo`.
fn own_networks(node: &NodeIntent) -> Vec<String> {
    let mut networks: Vec<String> = node.node_networks.iter().map(ToString::to_string).collect();
    for address in &node.loopback {
        if node.node_networks.iter().any(|network| network.contains(*address)) {
            networks.push(format!("!{}", Cidr::host(*address)));
        }
    }
    networks
}

fn ca(ca: &Ca, role: Role) -> Value {
    // Workers get the certificate alone; Talos writes the missing key as an empty text.
    let key = match role {
        Role::ControlPlane => base64_of(ca.key_pem().expose()),
        Role::Worker => String::new(),
    };
    json!({"crt": base64_of(ca.cert_pem()), "key": key})
}

/// Talos' own defaults for pods: what they may not do, outside of kube-system.
fn pod_security() -> Value {
    json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1alpha1",
        "kind": "PodSecurityConfiguration",
        "defaults": {
            "audit": "restricted",
            "audit-version": "latest",
            "enforce": "baseline",
            "enforce-version": "latest",
            "warn": "restricted",
            "warn-version": "latest",
        },
        "exemptions": {"namespaces": ["kube-system"], "runtimeClasses": [], "usernames": []},
    })
}
