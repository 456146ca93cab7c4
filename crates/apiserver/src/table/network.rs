//! Cells of nodes, services, endpoints, ingresses and volumes.

use super::view::View;
use serde_json::Value;
use std::collections::BTreeSet;

/// How many elements of a list are shown.
const SHOWN: usize = 3;

pub(super) fn node_cells(node: View<'_>) -> Vec<Value> {
    let ready = node.list("status.conditions").find(|c| c.text("type") == "Ready");
    let mut status = match ready {
        Some(condition) if condition.text("status") == "True" => "Ready".to_string(),
        Some(_) => "NotReady".into(),
        None => "Unknown".into(),
    };
    if node.is_true("spec.unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let address = |ty: &str| {
        let found = node.list("status.addresses").find(|a| a.text("type") == ty);
        found.map_or("<none>", |a| a.text("address")).into()
    };
    let info = node.part("status.nodeInfo");
    let mut kernel = info.text_or("kernelVersion", "<unknown>").to_string();
    if !info.text("architecture").is_empty() {
        kernel.push_str(&format!(" ({})", info.text("architecture")));
    }
    vec![
        node.name().into(),
        status.into(),
        roles(node).into(),
        node.age().into(),
        info.text("kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        info.text_or("osImage", "<unknown>").into(),
        kernel.into(),
        info.text_or("containerRuntimeVersion", "<unknown>").into(),
    ]
}

fn roles(node: View<'_>) -> String {
    let roles: BTreeSet<&str> = node
        .at("metadata.labels")
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { "<none>".into() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

pub(super) fn service_cells(service: View<'_>) -> Vec<Value> {
    let spec = service.part("spec");
    let ip = spec.at("clusterIPs").get(0).and_then(Value::as_str).unwrap_or("<none>");
    let ports: Vec<String> = spec
        .list("ports")
        .map(|port| match port.int("nodePort") {
            0 => format!("{}/{}", port.int("port"), port.text("protocol")),
            node => format!("{}:{node}/{}", port.int("port"), port.text("protocol")),
        })
        .collect();
    vec![
        service.name().into(),
        spec.text("type").into(),
        ip.into(),
        external_address(service).into(),
        if ports.is_empty() { "<none>".into() } else { ports.join(",").into() },
        service.age().into(),
        service.labels("spec.selector").into(),
    ]
}

fn external_address(service: View<'_>) -> String {
    let own = service.joined("spec.externalIPs", ",");
    let or = |text: String, other: &str| if text.is_empty() { other.to_string() } else { text };
    match service.text("spec.type") {
        "ClusterIP" | "NodePort" => or(own, "<none>"),
        "LoadBalancer" => {
            let given = balancer_addresses(service.part("status.loadBalancer"));
            let all: Vec<String> = [given, own].into_iter().filter(|text| !text.is_empty()).collect();
            or(all.join(","), "<pending>")
        }
        "ExternalName" => service.text("spec.externalName").to_string(),
        _ => "<unknown>".into(),
    }
}

fn balancer_addresses(status: View<'_>) -> String {
    let addresses: BTreeSet<&str> = status
        .list("ingress")
        .map(|entry| entry.text_or("ip", entry.text("hostname")))
        .filter(|address| !address.is_empty())
        .collect();
    addresses.into_iter().collect::<Vec<_>>().join(",")
}

pub(super) fn ingress_cells(ingress: View<'_>) -> Vec<Value> {
    let hosts: Vec<&str> = ingress.list("spec.rules").map(|rule| rule.text("host")).collect();
    let named: Vec<&str> = hosts.iter().copied().filter(|host| !host.is_empty()).take(SHOWN).collect();
    let mut shown = if named.is_empty() { "*".to_string() } else { named.join(",") };
    if named.len() == SHOWN && hosts.len() > SHOWN {
        shown.push_str(&format!(" + {} more...", hosts.len() - SHOWN));
    }
    vec![
        ingress.name().into(),
        ingress.words("spec.ingressClassName").unwrap_or_else(|| "<none>".into()).into(),
        shown.into(),
        balancer_addresses(ingress.part("status.loadBalancer")).into(),
        if ingress.count("spec.tls") > 0 { "80, 443" } else { "80" }.into(),
        ingress.age().into(),
    ]
}

pub(super) fn ingress_class_cells(class: View<'_>) -> Vec<Value> {
    let parameters = class.part("spec.parameters");
    let shown = if class.has("spec.parameters") {
        let group = parameters.words("apiGroup").map(|group| format!(".{group}")).unwrap_or_default();
        format!("{}{group}/{}", parameters.text("kind"), parameters.text("name"))
    } else {
        "<none>".into()
    };
    let name = marked(class, "ingressclass.kubernetes.io/is-default-class");
    vec![name, class.text("spec.controller").into(), shown.into(), class.age().into()]
}

/// The name, marked if an annotation says that it is the default.
pub(super) fn marked(object: View<'_>, annotation: &str) -> Value {
    let is_default = object.at("metadata.annotations").get(annotation).is_some_and(|value| value == "true");
    if is_default { format!("{} (default)", object.name()).into() } else { object.name().into() }
}

/// The first few of a list, and how many more there are.
fn first_few(all: &[String], empty: &str) -> String {
    let mut text = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(",");
    if all.len() > SHOWN {
        text.push_str(&format!(" + {} more...", all.len() - SHOWN));
    }
    if text.is_empty() { empty.to_string() } else { text }
}

pub(super) fn endpoints_cells(endpoints: View<'_>) -> Vec<Value> {
    let mut all = Vec::new();
    for subset in endpoints.list("subsets") {
        let addresses: Vec<&str> = subset.list("addresses").map(|address| address.text("ip")).collect();
        if subset.count("ports") == 0 {
            all.extend(addresses.iter().map(ToString::to_string));
        }
        for port in subset.list("ports") {
            all.extend(addresses.iter().map(|ip| {
                let port = port.int("port");
                if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
            }));
        }
    }
    let empty = if endpoints.count("subsets") == 0 { "<none>" } else { "" };
    vec![endpoints.name().into(), first_few(&all, empty).into(), endpoints.age().into()]
}

pub(super) fn endpoint_slice_cells(slice: View<'_>) -> Vec<Value> {
    let ports: Vec<String> = slice
        .list("ports")
        .map(|port| port.words("port").or_else(|| port.words("name")).unwrap_or_else(|| "*".into()))
        .collect();
    let addresses: Vec<String> = slice
        .list("endpoints")
        .flat_map(|endpoint| endpoint.at("addresses").as_array().into_iter().flatten())
        .filter_map(|address| address.as_str().map(str::to_owned))
        .collect();
    vec![
        slice.name().into(),
        slice.text("addressType").into(),
        first_few(&ports, "<unset>").into(),
        first_few(&addresses, "<unset>").into(),
        slice.age().into(),
    ]
}

/// Access modes in their short forms, in a fixed order.
fn access_modes(object: View<'_>, path: &str) -> String {
    let modes = object.at(path);
    let has = |mode: &str| modes.as_array().is_some_and(|list| list.iter().any(|m| m == mode));
    let short: Vec<&str> = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ]
    .iter()
    .filter(|(mode, _)| has(mode))
    .map(|(_, short)| *short)
    .collect();
    short.join(",")
}

fn phase(object: View<'_>) -> Value {
    if object.has("metadata.deletionTimestamp") {
        "Terminating".into()
    } else {
        object.text("status.phase").into()
    }
}

/// The old annotation still wins over the field.
fn storage_class(object: View<'_>) -> Value {
    let old = object.at("metadata.annotations").get("volume.beta.kubernetes.io/storage-class");
    old.cloned().unwrap_or_else(|| object.text("spec.storageClassName").into())
}

pub(super) fn volume_cells(volume: View<'_>) -> Vec<Value> {
    let claim = volume.part("spec.claimRef");
    let claim = if volume.has("spec.claimRef") {
        format!("{}/{}", claim.text("namespace"), claim.text("name"))
    } else {
        String::new()
    };
    let unset = |path: &str| volume.words(path).unwrap_or_else(|| "<unset>".into()).into();
    vec![
        volume.name().into(),
        volume.text_or("spec.capacity.storage", "0").into(),
        access_modes(volume, "spec.accessModes").into(),
        volume.text("spec.persistentVolumeReclaimPolicy").into(),
        phase(volume),
        claim.into(),
        storage_class(volume),
        unset("spec.volumeAttributesClassName"),
        volume.text("status.reason").into(),
        volume.age().into(),
        unset("spec.volumeMode"),
    ]
}

pub(super) fn claim_cells(claim: View<'_>) -> Vec<Value> {
    let is_bound = !claim.text("spec.volumeName").is_empty();
    let (capacity, modes) = if is_bound {
        let capacity = claim.text_or("status.capacity.storage", "0").to_string();
        (capacity, access_modes(claim, "status.accessModes"))
    } else {
        Default::default()
    };
    let unset = |path: &str| claim.words(path).unwrap_or_else(|| "<unset>".into()).into();
    vec![
        claim.name().into(),
        phase(claim),
        claim.text("spec.volumeName").into(),
        capacity.into(),
        modes.into(),
        storage_class(claim),
        unset("spec.volumeAttributesClassName"),
        claim.age().into(),
        unset("spec.volumeMode"),
    ]
}
