//! Services: defaults, checks, and the addresses and node ports that they are given.

use super::common::{at, child, fill, fill_all, is_blank, items, items_mut, remove, text};
use super::metadata::{invalid, label_problems, port_name_problems, subdomain_problems, validate_labels};
use crate::status::{FieldError, FieldProblem};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};

/// Where cluster addresses come from: first address and number of bits of the network.
pub const CLUSTER_IP_RANGE: (Ipv4Addr, u32) = (Ipv4Addr::new(10, 96, 0, 0), 12);
/// First node port and how many there are.
const NODE_PORTS: (u16, u16) = (30000, 2768);
const PORT: &str = "must be between 1 and 65535, inclusive";
const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

/// What is taken already, and chance.
pub struct ServicePool<'a> {
    pub ip_used: &'a dyn Fn(Ipv4Addr) -> bool,
    pub node_port_used: &'a dyn Fn(u16) -> bool,
    pub random: &'a mut dyn FnMut() -> u32,
}

pub(super) fn default_service(service: &mut Value) {
    let spec = child(service, "spec");
    fill_all(spec, [("type", json!("ClusterIP")), ("sessionAffinity", json!("None"))]);
    if spec["sessionAffinity"] == "ClientIP" {
        fill(child(child(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", json!(10800));
    } else {
        remove(spec, "sessionAffinityConfig");
    }
    for port in items_mut(spec, "ports") {
        fill(port, "protocol", json!("TCP"));
        let number = at(port, "port").clone();
        if is_blank(at(port, "targetPort")) || at(port, "targetPort") == 0 {
            port["targetPort"] = number;
        }
    }
    if spec["type"] == "ExternalName" {
        return;
    }
    fill(spec, "internalTrafficPolicy", json!("Cluster"));
    if matches!(text(spec, "type"), "NodePort" | "LoadBalancer") {
        fill(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if spec["type"] == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
}

/// Addresses and ports once given stay when an update does not name them.
pub(super) fn keep_allocations(service: &mut Value, old: &Value) {
    let spec = child(service, "spec");
    if spec["type"] == "ExternalName" {
        return;
    }
    for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let before = at(old, "spec").get(name).cloned().unwrap_or_default();
        if !is_blank(&before) && is_blank(at(spec, name)) {
            spec[name] = before;
        }
    }
    if !needs_node_ports(spec) {
        return;
    }
    for port in items_mut(spec, "ports") {
        let before = items(old, "spec.ports").iter().find(|other| {
            at(other, "port") == at(port, "port") && text(other, "protocol") == text(port, "protocol")
        });
        let number = before.map_or(&Value::Null, |other| at(other, "nodePort"));
        if is_blank(at(port, "nodePort")) && !is_blank(number) {
            port["nodePort"] = number.clone();
        }
    }
}

fn needs_node_ports(spec: &Value) -> bool {
    match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => at(spec, "allocateLoadBalancerNodePorts") != false,
        _ => false,
    }
}

/// Gives a service its cluster address and node ports; those that it asks for must be free and in range.
pub fn allocate_service(service: &mut Value, pool: &mut ServicePool<'_>) -> Vec<FieldError> {
    let spec = child(service, "spec");
    if spec["type"] == "ExternalName" {
        return Vec::new();
    }
    let mut errors = Vec::new();
    match text(spec, "clusterIP").to_string().as_str() {
        "None" => spec["clusterIPs"] = json!(["None"]),
        "" => match free_address(pool) {
            Some(address) => {
                spec["clusterIP"] = address.to_string().into();
                spec["clusterIPs"] = json!([address.to_string()]);
            }
            None => errors.push(FieldError::new(
                FieldProblem::Internal,
                "spec.clusterIPs",
                Value::Null,
                "failed to allocate a serviceIP: range is full",
            )),
        },
        asked => {
            if let Some(why) = address_refusal(asked, pool) {
                let why = format!("failed to allocate IP {asked}: {why}");
                errors.push(FieldError::invalid("spec.clusterIPs", json!([asked]), why));
            }
            spec["clusterIPs"] = json!([asked]);
        }
    }
    // A headless service without selector gets its endpoints by hand, and they may be of both families.
    if spec["clusterIP"] == "None" && is_blank(at(spec, "selector")) {
        let families = json!(["IPv4", "IPv6"]);
        fill_all(spec, [("ipFamilies", families), ("ipFamilyPolicy", json!("RequireDualStack"))]);
    }
    fill_all(spec, [("ipFamilies", json!(["IPv4"])), ("ipFamilyPolicy", json!("SingleStack"))]);
    if needs_node_ports(spec) {
        give_node_ports(spec, pool);
    }
    errors
}

fn free_address(pool: &mut ServicePool<'_>) -> Option<Ipv4Addr> {
    let (first, bits) = CLUSTER_IP_RANGE;
    let size = 1_u32 << (32 - bits);
    let start = (pool.random)() % size;
    // From a random place onwards, without the first (network) and last (broadcast) address.
    (0..size)
        .map(|step| (start.wrapping_add(step)) % size)
        .filter(|offset| *offset != 0 && *offset != size - 1)
        .map(|offset| Ipv4Addr::from(u32::from(first) + offset))
        .find(|address| !(pool.ip_used)(*address))
}

fn address_refusal(asked: &str, pool: &ServicePool<'_>) -> Option<String> {
    let (first, bits) = CLUSTER_IP_RANGE;
    let Ok(address) = asked.parse::<Ipv4Addr>() else { return None };
    let mask = u32::MAX << (32 - bits);
    if u32::from(address) & mask != u32::from(first) {
        return Some(format!(
            "the provided IP ({asked}) is not in the valid range. The range of valid IPs is {first}/{bits}"
        ));
    }
    (pool.ip_used)(address).then(|| "provided IP is already allocated".to_string())
}

fn give_node_ports(spec: &mut Value, pool: &mut ServicePool<'_>) {
    let (first, count) = NODE_PORTS;
    let mut given: Vec<u16> = items(spec, "ports")
        .iter()
        .filter_map(|port| at(port, "nodePort").as_u64().and_then(|number| u16::try_from(number).ok()))
        .collect();
    for port in items_mut(spec, "ports") {
        if !is_blank(at(port, "nodePort")) && at(port, "nodePort") != 0 {
            continue;
        }
        let start = u16::try_from((pool.random)() % u32::from(count)).unwrap_or_default();
        let free = (0..count)
            .map(|step| first + (start + step) % count)
            .find(|number| !given.contains(number) && !(pool.node_port_used)(*number));
        if let Some(number) = free {
            given.push(number);
            port["nodePort"] = number.into();
        }
    }
}

pub(super) fn validate_service(service: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let spec = at(service, "spec");
    let ty = text(spec, "type");
    let headless = text(spec, "clusterIP") == "None";
    if items(spec, "ports").is_empty() && !headless && ty != "ExternalName" {
        errors.push(FieldError::required("spec.ports", ""));
    }
    errors.extend(validate_ports(spec));
    errors.extend(validate_labels("spec.selector", at(spec, "selector")));
    let affinity = text(spec, "sessionAffinity");
    if !matches!(affinity, "ClientIP" | "None") {
        errors.push(FieldError::not_supported(
            "spec.sessionAffinity",
            affinity.into(),
            &["ClientIP", "None"],
        ));
    }
    if !TYPES.contains(&ty) {
        errors.push(FieldError::not_supported("spec.type", ty.into(), &TYPES));
    }
    if ty == "ExternalName" {
        match text(spec, "externalName") {
            "" => errors.push(FieldError::required("spec.externalName", "")),
            name => errors.extend(invalid(
                "spec.externalName",
                name,
                subdomain_problems(name.trim_end_matches('.')),
            )),
        }
    }
    errors.extend(validate_addresses(spec));
    errors.extend(validate_policies(spec, ty));
    if let Some(old) = old {
        errors.extend(validate_kept_address(spec, at(old, "spec")));
    }
    errors
}

fn validate_policies(spec: &Value, ty: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let policies = ["Cluster", "Local"];
    let external = text(spec, "externalTrafficPolicy");
    let is_exposed = matches!(ty, "NodePort" | "LoadBalancer") || !items(spec, "externalIPs").is_empty();
    if !external.is_empty() && !is_exposed {
        let why = "may only be set for externally-accessible services";
        errors.push(FieldError::invalid("spec.externalTrafficPolicy", external.into(), why));
    } else if !external.is_empty() && !policies.contains(&external) {
        errors.push(FieldError::not_supported("spec.externalTrafficPolicy", external.into(), &policies));
    }
    let internal = text(spec, "internalTrafficPolicy");
    if !internal.is_empty() && !policies.contains(&internal) {
        errors.push(FieldError::not_supported("spec.internalTrafficPolicy", internal.into(), &policies));
    }
    errors
}

fn validate_addresses(spec: &Value) -> Vec<FieldError> {
    let address = text(spec, "clusterIP");
    if matches!(address, "" | "None") || address.parse::<IpAddr>().is_ok() {
        return Vec::new();
    }
    let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    vec![FieldError::invalid("spec.clusterIPs[0]", address.into(), why)]
}

fn validate_kept_address(spec: &Value, old: &Value) -> Vec<FieldError> {
    let (new, before) = (text(spec, "clusterIP"), text(old, "clusterIP"));
    let external = text(spec, "type") == "ExternalName" || text(old, "type") == "ExternalName";
    if before.is_empty() || external || new == before {
        return Vec::new();
    }
    vec![FieldError::invalid("spec.clusterIPs[0]", json!([new]), "may not change once set")]
}

fn validate_ports(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let ports = items(spec, "ports");
    for (index, port) in ports.iter().enumerate() {
        let field = format!("spec.ports[{index}]");
        let name = text(port, "name");
        let before = &ports[..index];
        if name.is_empty() && ports.len() > 1 {
            errors.push(FieldError::required(format!("{field}.name"), ""));
        } else if !name.is_empty() {
            errors.extend(invalid(&format!("{field}.name"), name, label_problems(name)));
            if before.iter().any(|other| text(other, "name") == name) {
                errors.push(FieldError::new(
                    FieldProblem::Duplicate,
                    format!("{field}.name"),
                    name.into(),
                    "",
                ));
            }
        }
        errors.extend(validate_port_numbers(spec, port, &field));
        let key = |port: &Value| (text(port, "protocol").to_string(), at(port, "port").clone());
        if before.iter().any(|other| key(other) == key(port)) {
            // Shown with Go's field names, as the real server shows it.
            let shown = json!({"Name": "", "Protocol": port["protocol"], "AppProtocol": null, "Port": port["port"],
                "TargetPort": 0, "NodePort": 0});
            errors.push(FieldError::new(FieldProblem::Duplicate, field, shown, ""));
        }
    }
    errors
}

fn validate_port_numbers(spec: &Value, port: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let in_range = |value: &Value| value.as_i64().is_some_and(|number| (1..=65535).contains(&number));
    let number = at(port, "port");
    if !in_range(number) {
        let shown = if number.is_null() { json!(0) } else { number.clone() };
        errors.push(FieldError::invalid(format!("{field}.port"), shown, PORT));
    }
    let protocol = text(port, "protocol");
    if !matches!(protocol, "SCTP" | "TCP" | "UDP") {
        let valid = ["SCTP", "TCP", "UDP"];
        errors.push(FieldError::not_supported(format!("{field}.protocol"), protocol.into(), &valid));
    }
    let target = at(port, "targetPort");
    if let Some(name) = target.as_str() {
        errors.extend(invalid(&format!("{field}.targetPort"), name, port_name_problems(name)));
    } else if !in_range(target) {
        let shown = if target.is_null() { json!(0) } else { target.clone() };
        errors.push(FieldError::invalid(format!("{field}.targetPort"), shown, PORT));
    }
    if text(spec, "type") == "ClusterIP" && at(port, "nodePort").as_i64().unwrap_or_default() != 0 {
        let why = "may not be used when `type` is 'ClusterIP'";
        errors.push(FieldError::forbidden(format!("{field}.nodePort"), why));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: Value) -> Value {
        let mut service = json!({"spec": spec});
        default_service(&mut service);
        service
    }

    fn problems(spec: Value) -> Vec<String> {
        validate_service(&service(spec), None).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn defaults_and_allocation_are_those_of_the_real_server() {
        let mut made = service(json!({"ports": [{"port": 80}], "type": "NodePort"}));
        let mut random = || 5;
        let mut pool = ServicePool {
            ip_used: &|ip| ip == Ipv4Addr::new(10, 96, 0, 5),
            node_port_used: &|port| port == 30005,
            random: &mut random,
        };
        assert!(allocate_service(&mut made, &mut pool).is_empty());
        assert_eq!(
            made["spec"],
            json!({"ports": [{"protocol": "TCP", "port": 80, "targetPort": 80, "nodePort": 30006}],
                "clusterIP": "10.96.0.6", "clusterIPs": ["10.96.0.6"], "type": "NodePort", "sessionAffinity": "None",
                "externalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
                "internalTrafficPolicy": "Cluster"})
        );
        let mut wrong = service(json!({"ports": [{"port": 80}], "clusterIP": "1.2.3.4"}));
        let errors = allocate_service(&mut wrong, &mut pool);
        assert_eq!(
            errors[0].to_string(),
            "spec.clusterIPs: Invalid value: [\"1.2.3.4\"]: failed to allocate IP 1.2.3.4: the provided IP (1.2.3.4) is \
             not in the valid range. The range of valid IPs is 10.96.0.0/12"
        );
    }

    #[test]
    fn headless_services_get_no_address() {
        let mut random = || 0;
        let mut pool = ServicePool { ip_used: &|_| false, node_port_used: &|_| false, random: &mut random };
        let mut made = service(json!({"clusterIP": "None"}));
        assert!(allocate_service(&mut made, &mut pool).is_empty());
        assert_eq!(made["spec"]["clusterIPs"], json!(["None"]));
        assert_eq!(made["spec"]["ipFamilyPolicy"], "RequireDualStack");
        let mut made = service(json!({"clusterIP": "None", "selector": {"a": "b"}}));
        assert!(allocate_service(&mut made, &mut pool).is_empty());
        assert_eq!(made["spec"]["ipFamilies"], json!(["IPv4"]));
    }

    #[test]
    fn an_update_keeps_what_was_given() {
        let old = json!({"spec": {"type": "NodePort", "clusterIP": "10.96.0.6", "clusterIPs": ["10.96.0.6"],
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30006}]}});
        let mut new = service(json!({"type": "NodePort", "ports": [{"port": 80}]}));
        keep_allocations(&mut new, &old);
        assert_eq!(new["spec"]["clusterIP"], "10.96.0.6");
        assert_eq!(new["spec"]["ports"][0]["nodePort"], 30006);
        new["spec"]["clusterIP"] = json!("10.96.0.7");
        let errors: Vec<String> =
            validate_service(&new, Some(&old)).iter().map(ToString::to_string).collect();
        assert_eq!(errors, ["spec.clusterIPs[0]: Invalid value: [\"10.96.0.7\"]: may not change once set"]);
    }

    #[test]
    fn refusals_are_worded_as_the_real_server_words_them() {
        assert_eq!(problems(json!({})), ["spec.ports: Required value"]);
        assert!(problems(json!({"clusterIP": "None"})).is_empty());
        assert_eq!(problems(json!({"type": "ExternalName"})), ["spec.externalName: Required value"]);
        assert_eq!(
            problems(json!({"type": "Foo", "ports": [{"port": 80}]})),
            [
                "spec.type: Unsupported value: \"Foo\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \"NodePort\""
            ]
        );
        assert_eq!(
            problems(json!({"ports": [{"port": 80}, {"port": 81}]})),
            ["spec.ports[0].name: Required value", "spec.ports[1].name: Required value"]
        );
        assert_eq!(
            problems(json!({"ports": [{"port": 80, "name": "a"}, {"port": 80, "name": "a"}]})),
            [
                "spec.ports[1].name: Duplicate value: \"a\"",
                "spec.ports[1]: Duplicate value: {\"AppProtocol\":null,\"Name\":\"\",\"NodePort\":0,\"Port\":80,\"Protocol\":\"TCP\",\"TargetPort\":0}"
            ]
        );
        assert_eq!(
            problems(json!({"ports": [{"port": 70000, "targetPort": 1}]})),
            ["spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive"]
        );
        assert_eq!(
            problems(json!({"ports": [{"port": 80, "nodePort": 30000}]})),
            ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"]
        );
        assert_eq!(
            problems(json!({"clusterIP": "zz", "ports": [{"port": 80}]})),
            [
                "spec.clusterIPs[0]: Invalid value: \"zz\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
            ]
        );
    }
}
