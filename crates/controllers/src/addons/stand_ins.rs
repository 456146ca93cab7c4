//! Stand-ins for the addons that come as charts: small manifests of our own, for rehearsals.
//!
//! They have the names and shapes that people know (a `cilium` DaemonSet, three cert-manager Deployments), and do none of
//! the work. Every object carries [`LABEL_STAND_IN`], every image is of a registry that can't exist.

use super::objects::{meta, named};
use super::source::{Part, Sources};
use super::stand_in_table::{self, Definition, Runs, StandIn, Workload};
use butler_drivers::{Class, Failure};
use serde_json::{Value, json};

/// Label and annotation of every stand-in object: the addon that it stands for.
pub const LABEL_STAND_IN: &str = "butler.butlerlabs.dev/stand-in-for";

/// A source of stand-ins for every addon that needs a source.
#[derive(Debug, Clone, Copy, Default)]
pub struct StandIns;

impl Sources for StandIns {
    fn objects(&self, part: &Part) -> Result<Vec<Value>, Failure> {
        let Some(stand_in) = stand_in_table::find(&part.addon) else {
            return Err(Failure::new(
                Class::InvalidConfig,
                "AddonSourceMissing",
                format!("there is no stand-in for the addon {} {}", part.addon, part.version),
                "give a bundle that has it with --bundle, or leave the addon out",
            ));
        };
        let mut all = make(stand_in, part);
        for object in &mut all {
            mark(object, &part.addon);
        }
        Ok(all)
    }

    fn describe(&self, part: &Part) -> String {
        format!("STAND-IN for {} {}", part.addon, part.version)
    }
}

fn make(stand_in: &StandIn, part: &Part) -> Vec<Value> {
    let mut all: Vec<Value> = stand_in.definitions.iter().map(definition).collect();
    let namespace = part.namespace.as_str();
    for workload in stand_in.workloads.iter().filter(|workload| (workload.when)(&part.values)) {
        all.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta(namespace, workload.name),
        }));
        all.push(run(workload, part));
        if let Some(port) = workload.port {
            let type_ = (stand_in.service_type)(&part.values);
            all.push(service(
                namespace,
                workload.name,
                port,
                if workload.outside { type_ } else { "ClusterIP" },
            ));
        }
    }
    all.extend((stand_in.more)(part));
    all
}

fn run(workload: &Workload, part: &Part) -> Value {
    let mut labels =
        json!({ "app.kubernetes.io/name": workload.name, "app.kubernetes.io/part-of": part.addon });
    if workload.runs == Runs::OnEveryNode {
        labels["k8s-app"] = json!(workload.name);
    }
    let mut container = json!({
        "name": workload.name,
        "image": format!("stand-in.invalid/{}:{}", workload.name, part.version.trim_start_matches('v')),
    });
    if let Some(port) = workload.port {
        container["ports"] = json!([{ "name": "main", "containerPort": port }]);
    }
    container["securityContext"] = match workload.privileged {
        true => json!({ "privileged": true }),
        false => json!({
            "allowPrivilegeEscalation": false,
            "runAsNonRoot": true,
            "capabilities": { "drop": ["ALL"] },
            "seccompProfile": { "type": "RuntimeDefault" },
        }),
    };
    let mut pod = json!({ "serviceAccountName": workload.name, "containers": [container] });
    if workload.host_network {
        // What runs before there is a CNI also runs on nodes that are not ready.
        pod["hostNetwork"] = json!(true);
        pod["tolerations"] = json!([{ "operator": "Exists" }]);
    }
    let mut spec = json!({
        "selector": { "matchLabels": { "app.kubernetes.io/name": workload.name } },
        "template": { "metadata": { "labels": labels }, "spec": pod },
    });
    let kind = match workload.runs {
        Runs::OnEveryNode => "DaemonSet",
        Runs::Times(replicas) => {
            spec["replicas"] = json!(replicas(&part.values));
            "Deployment"
        }
        Runs::AsMembers(replicas) => {
            spec["replicas"] = json!(replicas);
            spec["serviceName"] = json!(workload.name);
            spec["podManagementPolicy"] = json!("Parallel");
            "StatefulSet"
        }
    };
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": meta(&part.namespace, workload.name), "spec": spec })
}

fn service(namespace: &str, name: &str, port: u16, type_: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta(namespace, name),
        "spec": {
            "type": type_,
            "selector": { "app.kubernetes.io/name": name },
            "ports": [{ "name": "main", "port": port, "targetPort": "main", "protocol": "TCP" }],
        },
    })
}

fn definition(definition: &Definition) -> Value {
    let Definition { group, version, kind, plural, namespaced } = definition;
    let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": named(&format!("{plural}.{group}")),
        "spec": {
            "group": group,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase(),
            },
            "scope": if *namespaced { "Namespaced" } else { "Cluster" },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": { "spec": free, "status": free },
                } },
            }],
        },
    })
}

fn mark(object: &mut Value, addon: &str) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for field in ["labels", "annotations"] {
        if let Value::Object(all) = metadata.entry(field).or_insert_with(|| json!({})) {
            all.insert(LABEL_STAND_IN.to_owned(), addon.into());
        }
    }
}
