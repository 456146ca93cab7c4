//! What the forwarding rules of a project mean as load balancers, and the health of their targets.
//!
//! Packets are handed on unchanged: the port of the client is the port of the target. There is one balancer for each address,
//! and one pool for each port of it.

use super::handle::Healths;
use super::network::{LEGACY_PROBES, PROBES, texts};
use super::request::{Outcome, Refusal};
use super::rules::ports_of;
use super::state::{Doc, Fields, State, collection_of, link};
use crate::balancer::{Balancer, Check, Frontend, Mode, Pool, Probe, Target};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// What the names of our balancers begin with.
pub(super) const OWNER: &str = "gce/";
/// A rule for more ports than this is served on those that clusters use.
const MOST_PORTS: usize = 64;
const USUAL_PORTS: [u16; 5] = [80, 443, 6443, 50000, 50001];
const AGENT: &str = "GoogleHC/1.0";

/// Who stands behind a forwarding rule.
struct Behind {
    instances: Vec<String>,
    /// `None`: nobody checks, and everybody is taken for healthy.
    check: Option<Check>,
    probes: &'static [IpAddr],
    /// Instances that get no new connections, and keep the ones they have.
    draining: Vec<String>,
}

impl State {
    /// The load balancers as they are to be.
    pub(super) fn balancers(&self) -> BTreeMap<String, Balancer> {
        let mut all: BTreeMap<String, Balancer> = BTreeMap::new();
        for (path, doc) in self.all("forwardingRules") {
            let Some(address) = self.text(path, "IPAddress").parse::<IpAddr>().ok() else { continue };
            let Some(behind) = self.behind(&doc.fields) else { continue };
            let balancer = all.entry(format!("{OWNER}{address}")).or_default();
            balancer.mode = Mode::Passthrough;
            for port in ports(&doc.fields) {
                let pool = port.to_string();
                balancer.pools.insert(pool.clone(), self.pool(&behind, port));
                balancer.frontends.push(Frontend {
                    address,
                    port,
                    pool,
                    zone: None,
                    open: true,
                    open_inside: true,
                });
            }
        }
        all
    }

    fn pool(&self, behind: &Behind, port: u16) -> Pool {
        let leaving = behind.draining.iter().map(|instance| (instance, true));
        let all = behind.instances.iter().map(|instance| (instance, false)).chain(leaving);
        let targets = all.filter_map(|(instance, draining)| {
            let (address, _) = self.addresses_of(instance);
            let probed = behind.check.as_ref().map(|check| check.port.unwrap_or(port));
            let seen = |port| behind.probes.iter().all(|probe| self.admits(instance, *probe, port));
            Some(Target {
                zone: instance.split('/').nth(3).unwrap_or_default().to_string(),
                draining,
                open: self.admits(instance, self.client, port),
                checkable: probed.is_some_and(seen),
                ..Target::new(address?, port)
            })
        });
        Pool {
            targets: targets.collect(),
            check: behind.check.clone().unwrap_or_default(),
            cut_unhealthy: false,
            cut_removed: true,
        }
    }

    /// Who is behind a forwarding rule, by its target pool or backend service.
    fn behind(&self, rule: &Fields) -> Option<Behind> {
        let linked =
            |field: &str| rule.get(field).and_then(Value::as_str).and_then(|link| self.path_of(link));
        if let Some(pool) = linked("target") {
            let fields = &self.doc(&pool)?.fields;
            let check = texts(fields.get("healthChecks")).next().and_then(|link| self.path_of(link));
            return Some(Behind {
                instances: texts(fields.get("instances")).filter_map(|link| self.path_of(link)).collect(),
                check: check.and_then(|check| self.check_of(&check)),
                probes: &LEGACY_PROBES,
                draining: Vec::new(),
            });
        }
        let fields = &self.doc(&linked("backendService")?)?.fields;
        let backends = fields.get("backends").and_then(Value::as_array).into_iter().flatten();
        let groups: Vec<&Doc> =
            backends.filter_map(|backend| self.doc(&self.path_of(backend["group"].as_str()?)?)).collect();
        let check = texts(fields.get("healthChecks")).next().and_then(|link| self.path_of(link));
        Some(Behind {
            instances: groups.iter().flat_map(|group| group.members.iter().cloned()).collect(),
            check: check.and_then(|check| self.check_of(&check)),
            probes: &PROBES,
            draining: groups.iter().flat_map(|group| group.draining.keys().cloned()).collect(),
        })
    }

    /// Instances that leave a group keep their connections for as long as the backend service says.
    pub(super) fn drain(&mut self, group: &str, leaving: &[String], now: u64) {
        let services = self.users_of(group).into_iter().filter_map(|user| {
            let draining = self.doc(&user)?.fields.get("connectionDraining")?;
            draining["drainingTimeoutSec"].as_u64().and_then(|seconds| u32::try_from(seconds).ok())
        });
        let Some(seconds) = services.max().filter(|seconds| *seconds > 0) else { return };
        let until = now + self.scaled(f64::from(seconds));
        if let Some(doc) = self.docs.get_mut(group).filter(|_| until > now) {
            doc.draining.extend(leaving.iter().map(|instance| (instance.clone(), until)));
        }
    }

    /// A health check as the balancer makes it.
    fn check_of(&self, path: &str) -> Option<Check> {
        let fields = &self.doc(path)?.fields;
        let number = |fields: &Fields, name: &str| {
            let value = fields.get(name)?;
            value.as_u64().or_else(|| value.as_str()?.parse().ok())
        };
        let (inner, tls, http) = match (collection_of(path), self.text(path, "type")) {
            ("httpHealthChecks", _) => (fields.clone(), false, true),
            (_, "HTTP") => (fields.get("httpHealthCheck")?.as_object()?.clone(), false, true),
            (_, "HTTPS") => (fields.get("httpsHealthCheck")?.as_object()?.clone(), true, true),
            (_, "SSL") => (fields.get("sslHealthCheck")?.as_object()?.clone(), true, false),
            _ => (fields.get("tcpHealthCheck")?.as_object()?.clone(), false, false),
        };
        let path = inner.get("requestPath").and_then(Value::as_str).unwrap_or("/").to_string();
        let probe =
            if http { Probe::Http { tls, path, good: vec![(200, 200)], agent: AGENT } } else { Probe::Tcp };
        let seconds = |name: &str| Duration::from_secs(number(fields, name).unwrap_or(5));
        let count =
            |name: &str| number(fields, name).and_then(|count| u32::try_from(count).ok()).unwrap_or(2);
        Some(Check {
            probe,
            port: number(&inner, "port").and_then(|port| u16::try_from(port).ok()),
            interval: seconds("checkIntervalSec"),
            timeout: seconds("timeoutSec"),
            first: count("healthyThreshold"),
            rise: count("healthyThreshold"),
            fall: count("unhealthyThreshold"),
        })
    }

    /// `getHealth` of a target pool (about one instance) or of a backend service (about one group).
    pub(super) fn health_of(&self, path: &str, body: &Fields, healths: Healths<'_>) -> Outcome {
        if !self.docs.contains_key(path) {
            return Err(Refusal::not_found(path));
        }
        let pool = collection_of(path) == "targetPools";
        let (field, named) = if pool { ("instance", "instances") } else { ("group", "instanceGroups") };
        let given = body.get(field).and_then(Value::as_str).unwrap_or_default();
        let wanted = self.linked(&format!("resource.{field}"), given, named)?;
        let members = match self.doc(&wanted) {
            Some(group) if !pool => group.members.iter().cloned().collect(),
            _ => vec![wanted],
        };
        let rules: Vec<(&String, &Fields)> = self
            .all("forwardingRules")
            .filter(|(rule, _)| {
                [self.text(rule, "target"), self.text(rule, "backendService")].contains(&link(path).as_str())
            })
            .map(|(rule, doc)| (rule, &doc.fields))
            .collect();
        let mut states = Vec::new();
        for (rule, fields) in rules {
            for member in &members {
                states.extend(self.health_behind(rule, fields, member, healths));
            }
        }
        let kind =
            if pool { "compute#targetPoolInstanceHealth" } else { "compute#backendServiceGroupHealth" };
        let mut told = json!({ "kind": kind });
        if !states.is_empty() {
            told["healthStatus"] = states.into();
        }
        Ok(told)
    }

    fn health_behind(
        &self,
        rule: &str,
        fields: &Fields,
        instance: &str,
        healths: Healths<'_>,
    ) -> Option<Value> {
        let (Some(inside), _) = self.addresses_of(instance) else { return None };
        let (address, port) = (self.text(rule, "IPAddress"), *ports(fields).first()?);
        let checked = self.behind(fields)?.check.is_some();
        let well = !checked
            || healths(&format!("{OWNER}{address}"), &port.to_string(), SocketAddr::new(inside, port));
        Some(json!({
            "instance": link(instance), "ipAddress": address, "port": port, "forwardingRule": link(rule),
            "forwardingRuleIp": address, "healthState": if well { "HEALTHY" } else { "UNHEALTHY" },
        }))
    }
}

/// The ports that a rule is served on.
fn ports(rule: &Fields) -> Vec<u16> {
    let ranges = ports_of(rule);
    let count: usize = ranges.iter().map(|(from, to)| usize::from(to - from) + 1).sum();
    if count > MOST_PORTS {
        return USUAL_PORTS
            .into_iter()
            .filter(|port| ranges.iter().any(|(from, to)| (from..=to).contains(&port)))
            .collect();
    }
    ranges.into_iter().flat_map(|(from, to)| from..=to).collect()
}
