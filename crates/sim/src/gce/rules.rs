//! What each kind of resource has to be like, when it is made and when it is changed: defaults, links, and what fits together.

use super::network::{is_range, parse_ports, texts};
use super::request::Refusal;
use super::state::{Fields, State, collection_of, link};
use serde_json::{Value, json};

/// Schemes of load balancers that hand packets on.
const PASSTHROUGH: [&str; 3] = ["EXTERNAL", "EXTERNAL_PASSTHROUGH", "INTERNAL"];

fn text<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number(fields: &Fields, name: &str, without: i64) -> i64 {
    let value = fields.get(name);
    value.and_then(Value::as_i64).or_else(|| value?.as_str()?.parse().ok()).unwrap_or(without)
}

fn default(fields: &mut Fields, name: &str, value: Value) {
    fields.entry(name).or_insert(value);
}

fn within(fields: &Fields, name: &str, least: i64, most: i64) -> Result<(), Refusal> {
    let value = number(fields, name, least);
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let why = format!("Must be between {least} and {most}");
    Err(Refusal::field(&format!("resource.{name}"), &value.to_string(), &why))
}

impl State {
    /// Checks a resource as it is going to be, and completes it.
    pub(super) fn check_resource(&self, path: &str, fields: &mut Fields) -> Result<(), Refusal> {
        check_labels(fields)?;
        match collection_of(path) {
            "addresses" => self.check_address(path, fields),
            "firewalls" => self.check_firewall(fields),
            "healthChecks" => check_health_check(fields),
            "httpHealthChecks" => check_legacy_check(fields),
            "instanceGroups" => Ok(()),
            "backendServices" => self.check_service(path, fields),
            "targetPools" => self.check_pool(path, fields),
            "forwardingRules" => self.check_rule(path, fields),
            "instances" => self.check_instance(path, fields),
            other => Err(Refusal::not_simulated(&format!("Making {other}"))),
        }
    }

    /// The path behind a link, which has to be of a collection, there, and ready.
    pub(super) fn linked(&self, at: &str, given: &str, collection: &str) -> Result<String, Refusal> {
        let malformed = || Refusal::field(at, given, "The URL is malformed.");
        let path = self.path_of(given).ok_or_else(malformed)?;
        if collection_of(&path) != collection {
            return Err(Refusal::field(at, given, &format!("The URL must be one of {collection}.")));
        }
        if self.coming.contains_key(&path) || self.leaving.contains_key(&path) {
            return Err(Refusal::not_ready(&path));
        }
        if self.docs.contains_key(&path) { Ok(path) } else { Err(Refusal::not_found(&path)) }
    }

    /// The same for a field, which is written in full afterwards; `None` when it is not given.
    pub(super) fn linked_field(
        &self,
        fields: &mut Fields,
        name: &str,
        collection: &str,
    ) -> Result<Option<String>, Refusal> {
        let given = text(fields, name).to_string();
        if given.is_empty() {
            return Ok(None);
        }
        let path = self.linked(&format!("resource.{name}"), &given, collection)?;
        fields.insert(name.into(), link(&path).into());
        Ok(Some(path))
    }

    fn linked_list(&self, fields: &mut Fields, name: &str, collection: &str) -> Result<Vec<String>, Refusal> {
        let given: Vec<String> = texts(fields.get(name)).map(ToString::to_string).collect();
        let at = |index: usize| format!("resource.{name}[{index}]");
        let paths: Vec<String> = given
            .iter()
            .enumerate()
            .map(|(index, one)| self.linked(&at(index), one, collection))
            .collect::<Result<_, _>>()?;
        if !given.is_empty() {
            fields.insert(name.into(), paths.iter().map(|path| Value::from(link(path))).collect());
        }
        Ok(paths)
    }

    fn check_address(&self, path: &str, fields: &mut Fields) -> Result<(), Refusal> {
        default(fields, "addressType", "EXTERNAL".into());
        if text(fields, "addressType") == "INTERNAL" {
            let subnetwork = self.linked_field(fields, "subnetwork", "subnetworks")?;
            if subnetwork.is_none() {
                return Err(Refusal::required("resource.subnetwork"));
            }
            return Ok(());
        }
        default(fields, "networkTier", "PREMIUM".into());
        if !text(fields, "address").is_empty() {
            let why = "Only an address that is in use by an instance of the project can be named.";
            return Err(Refusal::field("resource.address", text(fields, "address"), why));
        }
        self.check_quota("STATIC_ADDRESSES", self.region_of(path))
    }

    /// Refuses one more of what a limit is about.
    pub(super) fn check_quota(&self, metric: &str, region: Option<&str>) -> Result<(), Refusal> {
        match self.exceeds(metric, region, 1.0) {
            Some((limit, place)) => Err(Refusal::quota(metric, limit, &place)),
            None => Ok(()),
        }
    }

    fn check_firewall(&self, fields: &mut Fields) -> Result<(), Refusal> {
        default(fields, "network", "global/networks/default".into());
        self.linked_field(fields, "network", "networks")?;
        default(fields, "direction", "INGRESS".into());
        default(fields, "priority", 1000.into());
        within(fields, "priority", 0, 65535)?;
        let given =
            |name: &str| fields.get(name).and_then(Value::as_array).is_some_and(|all| !all.is_empty());
        if given("allowed") == given("denied") {
            return Err(Refusal::invalid(
                "Exactly one of 'resource.allowed' and 'resource.denied' must be specified.",
            ));
        }
        if given("targetTags") && given("targetServiceAccounts") {
            return Err(Refusal::invalid(
                "Target tags and target service accounts can't be used in one rule.",
            ));
        }
        let open = !["sourceRanges", "sourceTags", "sourceServiceAccounts"].into_iter().any(given);
        for name in ["allowed", "denied"] {
            for entry in fields.get(name).and_then(Value::as_array).into_iter().flatten() {
                let protocol = entry["IPProtocol"].as_str().unwrap_or_default();
                if protocol.is_empty() {
                    return Err(Refusal::required(&format!("resource.{name}[].IPProtocol")));
                }
                if let Some(bad) = texts(entry.get("ports")).find(|ports| parse_ports(ports).is_none()) {
                    return Err(Refusal::field(
                        &format!("resource.{name}[].ports"),
                        bad,
                        "Ports must be a number or a range.",
                    ));
                }
            }
        }
        if let Some(bad) = texts(fields.get("sourceRanges")).find(|range| !is_range(range)) {
            return Err(Refusal::field(
                "resource.sourceRanges",
                bad,
                "Must be a CIDR block without host bits.",
            ));
        }
        if open && text(fields, "direction") == "INGRESS" {
            fields.insert("sourceRanges".into(), json!(["0.0.0.0/0"]));
        }
        Ok(())
    }

    fn check_service(&self, path: &str, fields: &mut Fields) -> Result<(), Refusal> {
        default(fields, "loadBalancingScheme", "EXTERNAL".into());
        default(fields, "protocol", "TCP".into());
        default(fields, "sessionAffinity", "NONE".into());
        default(fields, "timeoutSec", 30.into());
        default(fields, "connectionDraining", json!({ "drainingTimeoutSec": 0 }));
        let scheme = text(fields, "loadBalancingScheme");
        if !PASSTHROUGH.contains(&scheme) {
            return Err(Refusal::not_simulated(&format!("The scheme {scheme}")));
        }
        if !matches!(text(fields, "protocol"), "TCP" | "UDP" | "UNSPECIFIED") {
            let why = format!("Protocol is not allowed for scheme {scheme}.");
            return Err(Refusal::field("resource.protocol", text(fields, "protocol"), &why));
        }
        let checks = self.linked_list(fields, "healthChecks", "healthChecks")?;
        if checks.len() != 1 {
            return Err(Refusal::invalid(
                "Exactly one health check must be specified for a backend service of this scheme.",
            ));
        }
        let region = self.region_of(path);
        if self.region_of(&checks[0]) != region {
            return Err(Refusal::invalid("The health check must be in the region of the backend service."));
        }
        let mut groups = Vec::new();
        for (index, backend) in
            fields.get_mut("backends").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
        {
            let at = format!("resource.backends[{index}].group");
            let group = self.linked(&at, backend["group"].as_str().unwrap_or_default(), "instanceGroups")?;
            if self.region_of(&group) != region {
                return Err(Refusal::field(&at, &group, "The instance group is in another region."));
            }
            if groups.contains(&group) {
                return Err(Refusal::field(&at, &group, "Duplicate backend groups."));
            }
            let mode = backend["balancingMode"].as_str().unwrap_or("UTILIZATION");
            if mode != "CONNECTION" {
                let why = "Balancing mode must be CONNECTION for a load balancer that hands packets on.";
                return Err(Refusal::field(&format!("resource.backends[{index}].balancingMode"), mode, why));
            }
            backend["group"] = link(&group).into();
            groups.push(group);
        }
        Ok(())
    }

    fn check_pool(&self, path: &str, fields: &mut Fields) -> Result<(), Refusal> {
        default(fields, "sessionAffinity", "NONE".into());
        let checks = self.linked_list(fields, "healthChecks", "httpHealthChecks")?;
        if checks.len() > 1 {
            return Err(Refusal::invalid("At most one health check can be specified for a target pool."));
        }
        let instances = self.linked_list(fields, "instances", "instances")?;
        if instances.len() > 200 {
            return Err(Refusal::invalid("At most 200 instances can be specified at once."));
        }
        match instances.iter().find(|instance| self.region_of(instance) != self.region_of(path)) {
            Some(other) => {
                Err(Refusal::field("resource.instances", other, "The instance is in another region."))
            }
            None => Ok(()),
        }
    }

    fn check_rule(&self, path: &str, fields: &mut Fields) -> Result<(), Refusal> {
        default(fields, "loadBalancingScheme", "EXTERNAL".into());
        default(fields, "IPProtocol", "TCP".into());
        default(fields, "networkTier", "PREMIUM".into());
        let service = self.linked_field(fields, "backendService", "backendServices")?;
        let pool = self.linked_field(fields, "target", "targetPools")?;
        let behind = match (service, pool) {
            (Some(one), None) | (None, Some(one)) => one,
            _ => {
                return Err(Refusal::invalid(
                    "Exactly one of 'resource.target' and 'resource.backendService' must be specified.",
                ));
            }
        };
        if self.region_of(&behind) != self.region_of(path) {
            return Err(Refusal::field("resource.target", &behind, "It is in another region."));
        }
        let scheme = text(fields, "loadBalancingScheme");
        let other = self.text(&behind, "loadBalancingScheme");
        if !other.is_empty() && other != scheme {
            let why = "The scheme of the forwarding rule and of the backend service must be the same.";
            return Err(Refusal::field("resource.loadBalancingScheme", scheme, why));
        }
        self.check_rule_address(path, fields)?;
        check_rule_ports(fields)?;
        self.check_rule_alone(path, fields)
    }

    /// A rule may name an address by its link or in writing; it has to be reserved in the same region.
    fn check_rule_address(&self, path: &str, fields: &mut Fields) -> Result<(), Refusal> {
        let given = text(fields, "IPAddress").to_string();
        if given.is_empty() {
            return Ok(());
        }
        let reserved = if given.parse::<std::net::IpAddr>().is_ok() {
            self.all("addresses")
                .map(|(path, _)| path)
                .find(|known| self.text(known, "address") == given)
                .cloned()
        } else {
            Some(self.linked("resource.IPAddress", &given, "addresses")?)
        };
        let internal = text(fields, "loadBalancingScheme") == "INTERNAL";
        let Some(reserved) = reserved.filter(|reserved| self.region_of(reserved) == self.region_of(path))
        else {
            let why = "The IP address is not reserved in the region of the forwarding rule.";
            return if internal { Ok(()) } else { Err(Refusal::field("resource.IPAddress", &given, why)) };
        };
        if (self.text(&reserved, "addressType") == "INTERNAL") != internal {
            return Err(Refusal::field(
                "resource.IPAddress",
                &given,
                "The type of the address does not fit the scheme.",
            ));
        }
        let taken = self.users_of(&reserved).into_iter().find(|user| collection_of(user) == "instances");
        if let Some(user) = taken {
            return Err(Refusal::in_use("address", &reserved, &user));
        }
        fields.insert("IPAddress".into(), self.text(&reserved, "address").into());
        Ok(())
    }

    /// No two rules of an address share a port.
    fn check_rule_alone(&self, path: &str, fields: &Fields) -> Result<(), Refusal> {
        let address = text(fields, "IPAddress");
        let mine = ports_of(fields);
        let there = self.all("forwardingRules").map(|(path, doc)| (path, &doc.fields));
        let coming = self.changes_under_way().filter(|(path, _)| collection_of(path) == "forwardingRules");
        let clash = there.chain(coming).find(|(other, fields)| {
            let same = other.as_str() != path && !address.is_empty() && text(fields, "IPAddress") == address;
            let overlaps = |(from, to): &(u16, u16)| mine.iter().any(|(a, b)| from <= b && a <= to);
            same && ports_of(fields).iter().any(overlaps)
        });
        match clash {
            Some((other, _)) => Err(Refusal::field(
                "resource.IPAddress",
                address,
                &format!(
                    "Specified IP address and ports conflict with the existing forwarding rule '{other}'."
                ),
            )),
            None => Ok(()),
        }
    }
}

/// Ranges of ports that a forwarding rule listens on.
pub(super) fn ports_of(fields: &Fields) -> Vec<(u16, u16)> {
    if fields.get("allPorts") == Some(&Value::Bool(true)) {
        return vec![(1, u16::MAX)];
    }
    let range = fields.get("portRange").and_then(Value::as_str);
    range.into_iter().chain(texts(fields.get("ports"))).filter_map(parse_ports).collect()
}

fn check_rule_ports(fields: &mut Fields) -> Result<(), Refusal> {
    let ports: Vec<String> = texts(fields.get("ports")).map(ToString::to_string).collect();
    let range = text(fields, "portRange").to_string();
    let all = fields.get("allPorts") == Some(&Value::Bool(true));
    if [!ports.is_empty(), !range.is_empty(), all].iter().filter(|given| **given).count() != 1 {
        return Err(Refusal::invalid(
            "Exactly one of 'ports', 'portRange' and 'allPorts' must be specified.",
        ));
    }
    let with_service = !text(fields, "backendService").is_empty();
    if !ports.is_empty() && !with_service {
        return Err(Refusal::field(
            "resource.ports",
            &ports.join(","),
            "Ports can only be specified with a backend service.",
        ));
    }
    if ports.len() > 5 {
        return Err(Refusal::field("resource.ports", &ports.join(","), "At most 5 ports can be specified."));
    }
    if let Some(bad) = ports.iter().find(|port| port.parse::<u16>().is_err()) {
        return Err(Refusal::field("resource.ports", bad, "Must be a port number."));
    }
    if !range.is_empty() {
        let (from, to) = parse_ports(&range)
            .ok_or_else(|| Refusal::field("resource.portRange", &range, "Must be a range of ports."))?;
        fields.insert("portRange".into(), format!("{from}-{to}").into());
    }
    Ok(())
}

fn check_health_check(fields: &mut Fields) -> Result<(), Refusal> {
    check_thresholds(fields)?;
    let kind = text(fields, "type").to_string();
    let block = match kind.as_str() {
        "TCP" => "tcpHealthCheck",
        "SSL" => "sslHealthCheck",
        "HTTP" => "httpHealthCheck",
        "HTTPS" => "httpsHealthCheck",
        "" => return Err(Refusal::required("resource.type")),
        other => return Err(Refusal::not_simulated(&format!("A health check of type {other}"))),
    };
    let blocks = ["tcpHealthCheck", "sslHealthCheck", "httpHealthCheck", "httpsHealthCheck"];
    if let Some(other) = blocks.iter().find(|other| **other != block && fields.contains_key(**other)) {
        return Err(Refusal::invalid(format!("'resource.{other}' does not fit the type {kind}.")));
    }
    let usual = if kind == "HTTP" || kind == "TCP" { 80 } else { 443 };
    default(fields, block, json!({}));
    let Some(Value::Object(inner)) = fields.get_mut(block) else { return Ok(()) };
    default(inner, "port", usual.into());
    default(inner, "proxyHeader", "NONE".into());
    if kind.starts_with("HTTP") {
        default(inner, "requestPath", "/".into());
    }
    let port = number(inner, "port", 0);
    if (1..=65535).contains(&port) {
        return Ok(());
    }
    Err(Refusal::field(&format!("resource.{block}.port"), &port.to_string(), "Must be between 1 and 65535"))
}

fn check_legacy_check(fields: &mut Fields) -> Result<(), Refusal> {
    check_thresholds(fields)?;
    default(fields, "port", 80.into());
    default(fields, "requestPath", "/".into());
    within(fields, "port", 1, 65535)
}

fn check_thresholds(fields: &mut Fields) -> Result<(), Refusal> {
    for (name, usual, most) in [
        ("checkIntervalSec", 5, 300),
        ("timeoutSec", 5, 300),
        ("healthyThreshold", 2, 10),
        ("unhealthyThreshold", 2, 10),
    ] {
        default(fields, name, usual.into());
        within(fields, name, 1, most)?;
    }
    let (timeout, interval) = (number(fields, "timeoutSec", 5), number(fields, "checkIntervalSec", 5));
    if timeout > interval {
        let why = "Must be less than or equal to checkIntervalSec.";
        return Err(Refusal::field("resource.timeoutSec", &timeout.to_string(), why));
    }
    Ok(())
}

/// Keys begin with a letter; both have only small letters, digits, dashes and underscores, at most 63.
pub(super) fn check_labels(fields: &Fields) -> Result<(), Refusal> {
    let Some(labels) = fields.get("labels").and_then(Value::as_object) else { return Ok(()) };
    if labels.len() > 64 {
        return Err(Refusal::invalid("At most 64 labels are allowed."));
    }
    let plain = |text: &str| {
        text.len() <= 63
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
    };
    for (key, value) in labels {
        let value = value.as_str().unwrap_or_default();
        if !plain(key) || !key.starts_with(|c: char| c.is_ascii_lowercase()) {
            return Err(Refusal::field(
                "resource.labels",
                key,
                "Label keys must match [\\p{Ll}\\p{Lo}][\\p{Ll}\\p{Lo}\\p{N}_-]{0,62}",
            ));
        }
        if !plain(value) {
            return Err(Refusal::field(
                "resource.labels",
                value,
                "Label values must match [\\p{Ll}\\p{Lo}\\p{N}_-]{0,63}",
            ));
        }
    }
    Ok(())
}
