//! Attributes of balancers, target groups and listeners: which there are, what they begin with, and what they may be.

use crate::aws::input::{list, text};
use crate::aws::request::Refusal;
use crate::aws::state::Tags;
use serde_json::{Value, json};

/// What a value may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Flag,
    Number(u32, u32),
    Of(&'static [&'static str]),
    Text,
}

/// A name, what it begins with, and what it may be.
pub(super) type Known = (&'static str, &'static str, Kind);

pub(super) const BALANCER: &[Known] = &[
    ("access_logs.s3.bucket", "", Kind::Text),
    ("access_logs.s3.enabled", "false", Kind::Flag),
    ("access_logs.s3.prefix", "", Kind::Text),
    ("deletion_protection.enabled", "false", Kind::Flag),
    (
        "dns_record.client_routing_policy",
        "any_availability_zone",
        Kind::Of(&[
            "any_availability_zone",
            "availability_zone_affinity",
            "partial_availability_zone_affinity",
        ]),
    ),
    ("ipv6.deny_all_igw_traffic", "false", Kind::Flag),
    ("load_balancing.cross_zone.enabled", "false", Kind::Flag),
    ("secondary_ips.auto_assigned.per_subnet", "0", Kind::Number(0, 7)),
    ("zonal_shift.config.enabled", "false", Kind::Flag),
];

pub(super) const TARGET_GROUP: &[Known] = &[
    ("deregistration_delay.connection_termination.enabled", "false", Kind::Flag),
    ("deregistration_delay.timeout_seconds", "300", Kind::Number(0, 3600)),
    (
        "load_balancing.cross_zone.enabled",
        "use_load_balancer_configuration",
        Kind::Of(&["true", "false", "use_load_balancer_configuration"]),
    ),
    // Begins with true where targets are instances.
    ("preserve_client_ip.enabled", "false", Kind::Flag),
    ("proxy_protocol_v2.enabled", "false", Kind::Flag),
    ("stickiness.enabled", "false", Kind::Flag),
    ("stickiness.type", "source_ip", Kind::Of(&["source_ip"])),
    ("target_group_health.dns_failover.minimum_healthy_targets.count", "1", Kind::Text),
    ("target_group_health.dns_failover.minimum_healthy_targets.percentage", "off", Kind::Text),
    ("target_group_health.unhealthy_state_routing.minimum_healthy_targets.count", "1", Kind::Text),
    ("target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage", "off", Kind::Text),
    ("target_health_state.unhealthy.connection_termination.enabled", "true", Kind::Flag),
    ("target_health_state.unhealthy.draining_interval_seconds", "0", Kind::Number(0, 360_000)),
];

pub(super) const LISTENER: &[Known] = &[("tcp.idle_timeout.seconds", "350", Kind::Number(60, 6000))];

pub(super) fn defaults(known: &[Known]) -> Tags {
    known.iter().map(|(name, value, _)| ((*name).to_string(), (*value).to_string())).collect()
}

pub(super) fn show(attributes: &Tags) -> Value {
    attributes.iter().map(|(key, value)| json!({ "Key": key, "Value": value })).collect()
}

/// The attributes after a change.
///
/// # Errors
/// Names the attribute that there is not, or that can't have this value.
pub(super) fn change(known: &[Known], before: &Tags, input: &Value) -> Result<Tags, Refusal> {
    let mut after = before.clone();
    for entry in list(input, "Attributes") {
        let key = text(entry, "Key").unwrap_or_default();
        let value = text(entry, "Value").unwrap_or_default();
        let Some((_, _, kind)) = known.iter().find(|(name, _, _)| *name == key) else {
            let why = format!("The attribute key '{key}' is not recognized");
            return Err(Refusal::new("InvalidConfigurationRequest", why));
        };
        let good = match kind {
            Kind::Flag => matches!(value, "true" | "false"),
            Kind::Number(from, to) => value.parse().is_ok_and(|number| (*from..=*to).contains(&number)),
            Kind::Of(values) => values.contains(&value),
            Kind::Text => true,
        };
        if !good {
            let why = format!("The value '{value}' is not valid for attribute '{key}'");
            return Err(Refusal::new("InvalidConfigurationRequest", why));
        }
        after.insert(key.to_string(), value.to_string());
    }
    let is = |key: &str, value: &str| after.get(key).is_some_and(|there| there == value);
    let interval = "target_health_state.unhealthy.draining_interval_seconds";
    let cuts = "target_health_state.unhealthy.connection_termination.enabled";
    if after.contains_key(interval) && !is(interval, "0") && is(cuts, "true") {
        let why = format!("'{interval}' can only be set when '{cuts}' is false");
        return Err(Refusal::new("InvalidConfigurationRequest", why));
    }
    Ok(after)
}

pub(super) fn is_on(attributes: &Tags, key: &str) -> bool {
    attributes.get(key).is_some_and(|value| value == "true")
}
