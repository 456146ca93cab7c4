//! What a load balancer at Google is made of: every part of it, with its name and its body, from the request alone.

use crate::gcp::names::{google_name, google_name_with};
use crate::gcp::part::{About, Kind, Part, Scope};
use crate::gcp::settings::Settings;
use crate::mark::Mark;
use crate::seam::{LoadBalancerWanted, Owner};
use butler_api::{
    Cidr, HealthCheckProtocol, LoadBalancerHealthCheck, LoadBalancerImplementation, LoadBalancerOptions,
    MachineRole,
};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Where Google's health checks come from.
pub(crate) const CHECK_SOURCES: [&str; 4] =
    ["35.191.0.0/16", "130.211.0.0/22", "209.85.152.0/22", "209.85.204.0/22"];

/// A load balancer as it is wanted.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Desired {
    pub(crate) owner: Owner,
    pub(crate) about: About,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) targets: Vec<Target>,
    /// Settings that Google lacks.
    pub(crate) lacking: Vec<String>,
    pub(crate) pool: bool,
    pub(crate) internal: bool,
    base: String,
    description: String,
    options: LoadBalancerOptions,
    allowed: Vec<String>,
    firewall: bool,
    settings: Settings,
}

/// One port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) port: u16,
    pub(crate) role: MachineRole,
    /// In the names of its parts; the first listener has none.
    suffix: String,
    check_port: u16,
    check: LoadBalancerHealthCheck,
}

/// A machine behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) ip: Option<IpAddr>,
    pub(crate) name: Option<String>,
    pub(crate) role: MachineRole,
}

impl Desired {
    pub(crate) fn new(wanted: &LoadBalancerWanted, settings: &Settings) -> Self {
        let spec = &wanted.spec;
        let options = spec.options.clone().unwrap_or_default();
        let pool = options.implementation == Some(LoadBalancerImplementation::TargetPool);
        let base = match wanted.name.starts_with(&spec.cluster_name) {
            true => google_name(&wanted.name),
            false => google_name(&format!("{}-{}", spec.cluster_name, wanted.name)),
        };
        let mut lacking = Vec::new();
        let listeners = listeners(wanted, &options, &mut lacking);
        let firewall = settings.firewall_rules && settings.owns_network();
        let allowed = allowed(&options, &mut lacking);
        note_lacking(&options, settings, pool, &mut lacking);
        let targets = spec.targets.iter().map(|target| Target {
            ip: target.ip.parse().ok(),
            name: target.instance_name.as_deref().filter(|name| !name.is_empty()).map(google_name),
            role: target.role.unwrap_or_default(),
        });
        Self {
            about: About {
                kind: "load-balancer",
                name: wanted.name.clone(),
                uid: wanted.owner.object_uid.clone(),
            },
            description: Mark::new(&wanted.owner, &BTreeMap::new()).describe(),
            owner: wanted.owner.clone(),
            targets: targets.collect(),
            internal: options.internal,
            settings: settings.clone(),
            listeners,
            lacking,
            pool,
            base,
            options,
            allowed,
            firewall,
        }
    }

    fn regional(&self, kind: Kind, suffix: &str) -> Part {
        Part::new(kind, Scope::Region(self.settings.region.clone()), google_name_with(&self.base, suffix))
    }

    fn global(&self, kind: Kind, suffix: &str) -> Part {
        Part::new(kind, Scope::Global, google_name_with(&self.base, suffix))
    }

    pub(crate) fn url(&self, part: &Part) -> String {
        self.settings.url(&part.path())
    }

    /// What the names of all parts begin with.
    pub(crate) fn base(&self) -> &str {
        // A long one is cut when a suffix comes behind it.
        self.base.get(..40).unwrap_or(&self.base).trim_end_matches('-')
    }

    /// Whether a name is that of a part.
    pub(crate) fn is_part(&self, name: &str) -> bool {
        name.starts_with(self.base())
    }

    pub(crate) fn address(&self) -> Part {
        self.regional(Kind::Address, "-ip")
    }

    pub(crate) fn check(&self, listener: &Listener) -> Part {
        let suffix = format!("{}-hc", listener.suffix);
        match self.pool {
            true => self.global(Kind::HttpHealthCheck, &suffix),
            false => self.regional(Kind::HealthCheck, &suffix),
        }
    }

    /// What holds the targets of a listener: its backend service or its pool.
    pub(crate) fn holder(&self, listener: &Listener) -> Part {
        match self.pool {
            true => self.regional(Kind::TargetPool, &format!("{}-pool", listener.suffix)),
            false => self.regional(Kind::BackendService, &format!("{}-backend", listener.suffix)),
        }
    }

    pub(crate) fn rule(&self, listener: &Listener) -> Part {
        self.regional(Kind::ForwardingRule, &format!("{}-fwd", listener.suffix))
    }

    /// The group of a role's machines in a zone. Names are unique in a zone only.
    pub(crate) fn group(&self, role: MachineRole, zone: &str) -> Part {
        Part::new(Kind::InstanceGroup, Scope::Zone(zone.to_owned()), self.group_name(role))
    }

    pub(crate) fn group_name(&self, role: MachineRole) -> String {
        let suffix = match role {
            MachineRole::ControlPlane => "-cp",
            MachineRole::Worker => "-worker",
        };
        google_name_with(&self.base, suffix)
    }

    /// Ports that Google's checks ask.
    pub(crate) fn check_ports(&self) -> BTreeSet<u16> {
        self.listeners.iter().map(|listener| listener.check_port).collect()
    }

    /// Whether only some may come in, so that the cluster's own machines have to be let in by name.
    pub(crate) fn is_restricted(&self) -> bool {
        self.firewall && !self.options.allowed_cidrs.is_empty()
    }

    /// Whether machines come in with external addresses of their own.
    pub(crate) fn is_reached_from_outside(&self) -> bool {
        !self.internal && self.settings.external_address
    }

    /// Firewall rules as far as they follow from the request alone.
    pub(crate) fn firewalls(&self) -> Vec<(Part, Value, String)> {
        self.firewalls_with(&BTreeSet::new())
    }

    /// Firewall rules with their bodies: for Google's checks, for the cluster's machines, and for clients. Packets come with the
    /// addresses of all of them. `outside` are the external addresses of the machines.
    pub(crate) fn firewalls_with(&self, outside: &BTreeSet<IpAddr>) -> Vec<(Part, Value, String)> {
        if !self.firewall {
            return Vec::new();
        }
        let checks = self.check_ports();
        let ports: BTreeSet<u16> = self.listeners.iter().map(|listener| listener.port).collect();
        let sources: Vec<String> = CHECK_SOURCES.iter().map(|range| (*range).to_owned()).collect();
        let rule = |suffix: &str, sources: &[String], ports: &BTreeSet<u16>| {
            let part = self.global(Kind::Firewall, suffix);
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            let words = format!("TCP {} from {}", ports.join(", "), sources.join(", "));
            let body = json!({
                "name": part.name,
                "description": self.description,
                "network": self.settings.network,
                "direction": "INGRESS",
                "sourceRanges": sources,
                "targetTags": [google_name(&self.owner.cluster)],
                "allowed": [{"IPProtocol": "tcp", "ports": ports}],
            });
            (part, body, words)
        };
        let mut rules = vec![rule("-checks", &sources, &checks)];
        if self.is_restricted()
            && let Some(api) = self.listeners.first()
        {
            // Inside the network they are known by their tag, and outside of it by their addresses.
            let addresses: Vec<String> = outside.iter().map(|ip| format!("{ip}/32")).collect();
            let (part, mut body, _) = rule("-nodes", &addresses, &BTreeSet::from([api.port]));
            body["sourceTags"] = json!([google_name(&self.owner.cluster)]);
            rules.push((part, body, format!("TCP {} from the cluster's machines", api.port)));
        }
        // Google takes a rule without a source for one that lets everybody in: when nobody is to come in, there is no rule.
        if !self.allowed.is_empty() {
            rules.push(rule("-clients", &self.allowed, &ports));
        }
        rules
    }

    /// `kept` is the address that a forwarding rule of ours has: the machines' configurations hold it.
    pub(crate) fn address_body(&self, kept: Option<&str>) -> (Value, String) {
        let kind = if self.internal { "INTERNAL" } else { "EXTERNAL" };
        let mut body =
            json!({"name": self.address().name, "description": self.description, "addressType": kind});
        if self.internal {
            // Several forwarding rules share it.
            body["purpose"] = json!("SHARED_LOADBALANCER_VIP");
            if let Some(subnetwork) = &self.settings.subnetwork {
                body["subnetwork"] = json!(subnetwork);
            }
        }
        if let Some(kept) = kept {
            body["address"] = json!(kept);
        }
        (body, kind.to_lowercase())
    }

    pub(crate) fn check_body(&self, listener: &Listener) -> (Value, String) {
        let (check, port) = (&listener.check, listener.check_port);
        let path = check.path.as_deref().unwrap_or("/readyz");
        let mut body = json!({
            "name": self.check(listener).name,
            "description": self.description,
            "checkIntervalSec": check.interval,
            "timeoutSec": check.timeout,
            "healthyThreshold": check.healthy,
            "unhealthyThreshold": check.unhealthy,
        });
        let what = match (self.pool, check.protocol) {
            (true, _) => {
                body["port"] = json!(port);
                body["requestPath"] = json!(path);
                format!("HTTP {port} {path}")
            }
            (false, HealthCheckProtocol::Tcp) => {
                body["type"] = json!("TCP");
                body["tcpHealthCheck"] = json!({"port": port});
                format!("TCP {port}")
            }
            (false, HealthCheckProtocol::Http) => {
                body["type"] = json!("HTTP");
                body["httpHealthCheck"] = json!({"port": port, "requestPath": path});
                format!("HTTP {port} {path}")
            }
            (false, HealthCheckProtocol::Https) => {
                body["type"] = json!("HTTPS");
                body["httpsHealthCheck"] = json!({"port": port, "requestPath": path});
                format!("HTTPS {port} {path}")
            }
        };
        let words = format!(
            "{what} every {} s, in after {}, out after {}",
            check.interval, check.healthy, check.unhealthy
        );
        (body, words)
    }

    pub(crate) fn holder_body(&self, listener: &Listener) -> (Value, String) {
        let check = self.url(&self.check(listener));
        let holder = self.holder(listener);
        if self.pool {
            let body = json!({"name": holder.name, "description": self.description,
                "healthChecks": [check], "sessionAffinity": "NONE"});
            return (body, format!("for port {}", listener.port));
        }
        let draining = self.options.deregistration_delay_seconds;
        let body = json!({
            "name": holder.name,
            "description": self.description,
            "protocol": "TCP",
            "loadBalancingScheme": self.scheme(),
            "healthChecks": [check],
            "connectionDraining": {"drainingTimeoutSec": draining},
        });
        (body, format!("for port {}, connections drain for {draining} s", listener.port))
    }

    fn scheme(&self) -> &'static str {
        if self.internal { "INTERNAL" } else { "EXTERNAL" }
    }

    pub(crate) fn rule_body(&self, listener: &Listener, address: &str) -> (Value, String) {
        let holder = self.holder(listener);
        let port = listener.port;
        let mut body = json!({
            "name": self.rule(listener).name,
            "description": self.description,
            "IPAddress": address,
            "IPProtocol": "TCP",
            "loadBalancingScheme": self.scheme(),
        });
        body[if self.pool { "target" } else { "backendService" }] = json!(self.url(&holder));
        if self.internal {
            body["ports"] = json!([port.to_string()]);
            body["network"] = json!(self.settings.network);
            if let Some(subnetwork) = &self.settings.subnetwork {
                body["subnetwork"] = json!(subnetwork);
            }
        } else {
            body["portRange"] = json!(format!("{port}-{port}"));
        }
        (body, format!("port {port} to {}", holder.name))
    }

    pub(crate) fn group_body(&self, group: &Part) -> Value {
        json!({"name": group.name, "description": self.description})
    }

    /// A group as a backend of a service.
    pub(crate) fn backend(&self, group: &Part) -> Value {
        json!({"group": self.url(group), "balancingMode": "CONNECTION"})
    }

    /// Everything that is wanted, but for the groups, which depend on where the targets are.
    pub(crate) fn parts(&self) -> BTreeSet<Part> {
        let mut parts = BTreeSet::from([self.address()]);
        for listener in &self.listeners {
            parts.extend([self.check(listener), self.holder(listener), self.rule(listener)]);
        }
        parts.extend(self.firewalls().into_iter().map(|(part, _, _)| part));
        parts
    }
}

/// The ports that Google can serve.
fn listeners(
    wanted: &LoadBalancerWanted,
    options: &LoadBalancerOptions,
    lacking: &mut Vec<String>,
) -> Vec<Listener> {
    let spec = &wanted.spec;
    let number = |port: i32| u16::try_from(port).ok().filter(|port| *port > 0);
    let mut all = Vec::new();
    if let Some(port) = number(spec.port) {
        let check_port = number(spec.effective_health_check_port()).unwrap_or(port);
        let check = options.health_check.clone();
        all.push(Listener {
            port,
            role: MachineRole::ControlPlane,
            suffix: String::new(),
            check_port,
            check,
        });
    }
    for listener in &spec.listeners {
        let Some(port) = number(listener.port) else { continue };
        if listener.effective_target_port() != listener.port {
            // Packets arrive as they were sent, their port included.
            lacking.push(format!(
                "listener {port} to port {}: Google's passthrough load balancer does not translate ports, so it is left out",
                listener.effective_target_port()
            ));
            continue;
        }
        // What answers there is not the Kubernetes API: an open port has to do.
        let check = LoadBalancerHealthCheck {
            protocol: HealthCheckProtocol::Tcp,
            path: None,
            ..options.health_check.clone()
        };
        let suffix = format!("-{port}");
        all.push(Listener { port, role: listener.role, suffix, check_port: port, check });
    }
    all
}

/// Networks of clients, as Google takes them: without host bits. Everyone when none is given, nobody when none of those that are
/// given has IPv4 addresses, as the load balancer has.
fn allowed(options: &LoadBalancerOptions, lacking: &mut Vec<String>) -> Vec<String> {
    if options.allowed_cidrs.is_empty() {
        return vec!["0.0.0.0/0".to_owned()];
    }
    let (six, four): (Vec<_>, Vec<_>) =
        options.allowed_cidrs.iter().cloned().partition(|cidr| cidr.contains(':'));
    if !six.is_empty() {
        let nobody = if four.is_empty() { ", so that no client is let in" } else { "" };
        lacking.push(format!(
            "allowedCIDRs {}: the load balancer has an IPv4 address only{nobody}",
            six.join(", ")
        ));
    }
    let network = |text: String| match text.parse::<Cidr>() {
        Ok(cidr) => format!("{}/{}", cidr.network(), cidr.prefix()),
        Err(_) => text,
    };
    let mut networks: Vec<String> = Vec::new();
    for one in four.into_iter().map(network) {
        if !networks.contains(&one) {
            networks.push(one);
        }
    }
    networks
}

fn note_lacking(options: &LoadBalancerOptions, settings: &Settings, pool: bool, lacking: &mut Vec<String>) {
    if options.deletion_protection {
        lacking.push("deletionProtection: Google's load balancers have no such setting".to_owned());
    }
    if !settings.owns_network() && settings.firewall_rules {
        lacking.push(format!(
            "firewall rules: the network is another project's ({}), so they have to be made there",
            crate::gcp::names::tail(&settings.network)
        ));
    }
    let made = settings.owns_network() && settings.firewall_rules;
    if made && !options.allowed_cidrs.is_empty() && !options.internal && !settings.external_address {
        lacking.push(
            "allowedCIDRs: machines without external addresses come by Cloud NAT, whose addresses are not known here; add them to the list"
                .to_owned(),
        );
    }
    if !made && !options.allowed_cidrs.is_empty() {
        lacking.push("allowedCIDRs: they are firewall rules at Google, and none are made here".to_owned());
    }
    if pool && options.internal {
        lacking
            .push("internal: target pools are external only; use implementation backend-service".to_owned());
    }
    if pool && options.health_check.protocol != HealthCheckProtocol::Http {
        lacking.push("healthCheck.protocol: target pools are checked by plain HTTP only".to_owned());
    }
    if pool
        && options.deregistration_delay_seconds != LoadBalancerOptions::default().deregistration_delay_seconds
    {
        lacking.push("deregistrationDelaySeconds: target pools do not drain".to_owned());
    }
}
