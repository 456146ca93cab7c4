//! Endpoints, addresses of load balancers, volumes: what turns a request in an object into something to use. Pure.

use super::clock::{Clock, Wait};
use super::nodes::STAND_IN;
use super::objects::{
    self, Action, Objects, annotation, is_true, list, name, namespace, number, owned_by, text,
};
use super::schedule::selects;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// `servers` are the addresses at which the API is served.
pub(super) fn plan(objects: &Objects, servers: &[IpAddr], clock: &mut Clock) -> Vec<Action> {
    let mut actions = Vec::new();
    actions.extend(own_endpoints(objects, servers));
    for service in objects.all(objects::SERVICES).filter(|service| !objects::is_deleting(service)) {
        actions.extend(endpoints(objects, service));
    }
    actions.extend(load_balancers(objects, clock));
    actions.extend(volumes(objects, clock));
    actions
}

/// The endpoints of the service `kubernetes`, which the API servers keep themselves.
fn own_endpoints(objects: &Objects, servers: &[IpAddr]) -> Option<Action> {
    let endpoints: Vec<Value> = servers
        .iter()
        .map(|ip| json!({"addresses": [ip.to_string()], "conditions": {"ready": true}}))
        .collect();
    let wanted = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "kubernetes", "namespace": "default",
            "labels": {"kubernetes.io/service-name": "kubernetes"}},
        "addressType": if servers.iter().any(IpAddr::is_ipv6) { "IPv6" } else { "IPv4" },
        "endpoints": endpoints, "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}],
    });
    slice(objects, wanted)
}

fn endpoints(objects: &Objects, service: &Value) -> Option<Action> {
    let selector =
        service.pointer("/spec/selector").filter(|s| s.as_object().is_some_and(|m| !m.is_empty()))?;
    let selector = json!({"matchLabels": selector});
    let of = |pod: &&Arc<Value>| {
        namespace(pod) == namespace(service)
            && selects(&selector, pod)
            && !text(pod, "/status/podIP").is_empty()
    };
    let endpoints: Vec<Value> = objects
        .all(objects::PODS)
        .filter(of)
        .filter(|pod| !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed"))
        .map(|pod| {
            let ready = is_true(pod, "Ready");
            json!({
                "addresses": [text(pod, "/status/podIP")],
                "conditions": {"ready": ready, "serving": ready, "terminating": false},
                "nodeName": text(pod, "/spec/nodeName"),
                "targetRef": {"kind": "Pod", "name": name(pod), "namespace": namespace(pod), "uid": objects::uid(pod)},
            })
        })
        .collect();
    let ports: Vec<Value> = list(service, "/spec/ports")
        .iter()
        .map(|port| {
            let number = port["targetPort"].as_i64().or_else(|| port["port"].as_i64()).unwrap_or(0);
            json!({"name": port["name"].as_str().unwrap_or_default(), "port": number,
            "protocol": port["protocol"].as_str().unwrap_or("TCP")})
        })
        .collect();
    let own: String = objects::uid(service).chars().filter(|c| *c != '-').take(5).collect();
    let wanted = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": format!("{}-{own}", name(service)), "namespace": namespace(service),
            "labels": {"kubernetes.io/service-name": name(service),
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
            "ownerReferences": owned_by(service, "v1", "Service")},
        "addressType": "IPv4", "endpoints": endpoints, "ports": ports,
    });
    slice(objects, wanted)
}

/// Makes or changes an EndpointSlice, if it has to be.
fn slice(objects: &Objects, wanted: Value) -> Option<Action> {
    let collection = objects::ENDPOINT_SLICES;
    let Some(found) = objects.get(collection, namespace(&wanted), name(&wanted)) else {
        return Some(Action::Create { collection, value: wanted });
    };
    let mut value = found.as_ref().clone();
    for field in ["endpoints", "ports"] {
        value[field] = wanted[field].clone();
    }
    // The API may have added defaults to an endpoint; only what was said here counts.
    let said = |slice: &Value| -> Vec<(Value, Value)> {
        list(slice, "/endpoints")
            .iter()
            .map(|e| (e["addresses"].clone(), e["conditions"]["ready"].clone()))
            .collect()
    };
    (said(found) != said(&wanted)).then_some(Action::Put { collection, value })
}

/// Whether a product, or what stands in for it, runs: some workload of that name is ready, and none is not.
pub(super) fn runs(objects: &Objects, product: &str, part: &str) -> bool {
    let is_of = |object: &Value| {
        annotation(object, STAND_IN) == Some(product)
            || (name(object).contains(product) || namespace(object).contains(product))
                && name(object).contains(part)
    };
    let deployment = |object: &Value| is_true(object, "Available");
    let daemons = |object: &Value| {
        let wanted = number(object, "/status/desiredNumberScheduled").unwrap_or(0);
        wanted > 0 && number(object, "/status/numberReady") == Some(wanted)
    };
    let mut found = false;
    for (collection, ready) in [
        (objects::DEPLOYMENTS, &deployment as &dyn Fn(&Value) -> bool),
        (objects::DAEMON_SETS, &daemons as &dyn Fn(&Value) -> bool),
    ] {
        for object in objects.all(collection).filter(|object| is_of(object)) {
            if !ready(object) {
                return false;
            }
            found = true;
        }
    }
    found
}

/// MetalLB's controller: an address from a pool for every service that asks for one.
fn load_balancers(objects: &Objects, clock: &mut Clock) -> Vec<Action> {
    let wants = |service: &&Arc<Value>| text(service, "/spec/type") == "LoadBalancer";
    let ip = |service: &Value| text(service, "/status/loadBalancer/ingress/0/ip").to_string();
    let services: Vec<&Arc<Value>> = objects.all(objects::SERVICES).filter(wants).collect();
    let waiting: Vec<&&Arc<Value>> = services.iter().filter(|service| ip(service).is_empty()).collect();
    if waiting.is_empty() || !runs(objects, "metallb", "controller") {
        return Vec::new();
    }
    let mut taken: BTreeSet<String> = services.iter().map(|service| ip(service)).collect();
    let mut actions = Vec::new();
    for service in waiting {
        if !clock.over(Wait::Provisioned, objects::uid(service)) {
            continue;
        }
        let asked = ["metallb.io/loadBalancerIPs", "metallb.universe.tf/loadBalancerIPs"]
            .into_iter()
            .find_map(|key| annotation(service, key))
            .or_else(|| Some(text(service, "/spec/loadBalancerIP")).filter(|ip| !ip.is_empty()));
        let pools = objects.all(objects::ADDRESS_POOLS);
        let usable = pools.filter(|pool| asked.is_some() || pool["spec"]["autoAssign"] != false);
        let mut addresses = usable.flat_map(|pool| list(pool, "/spec/addresses")).filter_map(Value::as_str);
        let fits = |ip: &String| !taken.contains(ip) && asked.is_none_or(|asked| asked == ip);
        let Some(free) = addresses.find_map(|range| addresses_in(range).find(fits)) else { continue };
        taken.insert(free.clone());
        let mut value = service.as_ref().clone();
        value["status"]["loadBalancer"] = json!({"ingress": [{"ip": free, "ipMode": "VIP"}]});
        actions.push(Action::Put { collection: objects::SERVICES, value });
    }
    actions
}

/// All addresses of `a-b` or `a/n`.
fn addresses_in(range: &str) -> impl Iterator<Item = String> {
    let ends = || -> Option<(u32, u32)> {
        if let Some((first, last)) = range.split_once('-') {
            let parse = |text: &str| text.trim().parse::<Ipv4Addr>().ok().map(u32::from);
            return Some((parse(first)?, parse(last)?));
        }
        let (address, bits) = range.split_once('/')?;
        let address = u32::from(address.trim().parse::<Ipv4Addr>().ok()?);
        let size = 1_u64.checked_shl(32_u32.checked_sub(bits.trim().parse().ok()?)?)?;
        let mask = u32::try_from(size - 1).ok()?;
        Some((address & !mask, address | mask))
    };
    let (first, last) = ends().unwrap_or((1, 0));
    (first..=last).map(|address| Ipv4Addr::from(address).to_string())
}

/// A volume for every claim of a class whose driver runs.
fn volumes(objects: &Objects, clock: &mut Clock) -> Vec<Action> {
    let mut actions = Vec::new();
    for claim in objects.all(objects::CLAIMS).filter(|claim| text(claim, "/status/phase") != "Bound") {
        let Some(class) = class_of(objects, claim) else { continue };
        let driver = text(class, "/provisioner");
        if !(driver.contains("longhorn") && runs(objects, "longhorn", "")) {
            continue;
        }
        let late = text(class, "/volumeBindingMode") == "WaitForFirstConsumer";
        let used = |pod: &&Arc<Value>| {
            namespace(pod) == namespace(claim)
                && list(pod, "/spec/volumes")
                    .iter()
                    .any(|v| v.pointer("/persistentVolumeClaim/claimName").is_some_and(|n| n == name(claim)))
        };
        if late && !objects.all(objects::PODS).any(|pod| used(&pod)) {
            continue;
        }
        if clock.over(Wait::Provisioned, objects::uid(claim)) {
            actions.extend(bound(objects, claim, class));
        }
    }
    actions
}

fn class_of<'a>(objects: &'a Objects, claim: &Value) -> Option<&'a Arc<Value>> {
    let is_default = |class: &&Arc<Value>| {
        annotation(class, "storageclass.kubernetes.io/is-default-class") == Some("true")
    };
    match text(claim, "/spec/storageClassName") {
        "" => objects.all(objects::STORAGE_CLASSES).find(is_default),
        named => objects.get(objects::STORAGE_CLASSES, "", named),
    }
}

fn bound(objects: &Objects, claim: &Value, class: &Value) -> Vec<Action> {
    let volume = format!("pvc-{}", objects::uid(claim));
    let size = claim.pointer("/spec/resources/requests/storage").cloned().unwrap_or_else(|| "1Gi".into());
    let modes = claim["spec"]["accessModes"].clone();
    if !objects.has(objects::VOLUMES, "", &volume) {
        return vec![Action::Create {
            collection: objects::VOLUMES,
            value: json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
                "spec": {
                    "capacity": {"storage": size}, "accessModes": modes,
                    "persistentVolumeReclaimPolicy": "Delete", "storageClassName": name(class),
                    "csi": {"driver": text(class, "/provisioner"), "volumeHandle": volume},
                    "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": name(claim),
                        "namespace": namespace(claim), "uid": objects::uid(claim)},
                },
            }),
        }];
    }
    let mut value = claim.clone();
    value["spec"]["volumeName"] = volume.into();
    value["spec"]["storageClassName"] = name(class).into();
    value["status"] = json!({"phase": "Bound", "accessModes": modes, "capacity": {"storage": size}});
    vec![Action::Put { collection: objects::CLAIMS, value }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_networks() {
        let all = |range: &str| addresses_in(range).collect::<Vec<_>>();
        assert_eq!(all("10.0.0.9-10.0.0.10"), ["10.0.0.9", "10.0.0.10"]);
        assert_eq!(all("10.0.0.8/30"), ["10.0.0.8", "10.0.0.9", "10.0.0.10", "10.0.0.11"]);
        assert_eq!(all("10.0.0.9/32"), ["10.0.0.9"]);
        assert!(all("nonsense").is_empty() && all("fd00::/64").is_empty());
    }
}
