//! Rules of LoadBalancerRequest and MachineLoadBalancer.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::{Findings, Problem, Validate};
use crate::{
    Cidr, HealthCheckProtocol, LabelOperator, LabelSelector, LoadBalancerImplementation,
    LoadBalancerListener, LoadBalancerOptions, LoadBalancerRequest, LoadBalancerTarget, MachineLoadBalancer,
    MachineProtocol,
};

impl Validate for LoadBalancerRequest {
    fn validate(&self) -> Vec<Problem> {
        let mut found = Findings::default();
        let spec = &self.spec;
        check_targets(&spec.targets, &mut found);
        check_listener_ports(spec.port, &spec.listeners, "spec.listeners", &mut found);
        if let Some(options) = &spec.options {
            check_options(options, "spec.options", &mut found);
            let pool = options.implementation == Some(LoadBalancerImplementation::TargetPool);
            if pool && spec.effective_health_check_port() == spec.port {
                found.warn(
                    "spec.healthCheckPort",
                    spec.effective_health_check_port(),
                    "a target pool is checked by plain HTTP, which the TLS port of the Kubernetes API never answers, and \
                     a pool without healthy members sends to all of them",
                    "set it to a port that speaks plain HTTP, or use implementation backend-service",
                );
            }
        }
        found.0
    }
}

fn check_targets(targets: &[LoadBalancerTarget], found: &mut Findings) {
    let mut seen = BTreeMap::new();
    for (index, target) in targets.iter().enumerate() {
        let path = format!("spec.targets[{index}].ip");
        match target.ip.parse::<IpAddr>() {
            Ok(ip) => {
                if let Some(first) = seen.insert(ip, index) {
                    let rule = format!("is the address of spec.targets[{first}] too");
                    found.error(path, ip, rule, "list each machine once");
                }
            }
            Err(_) => {
                let rule = format!("not an IP address: {}", crate::values::address_slip(&target.ip));
                found.error(path, &target.ip, rule, "write it as 10.128.0.10");
            }
        }
    }
}

/// Every port of a load balancer once.
pub(super) fn check_listener_ports(
    first: i32,
    listeners: &[LoadBalancerListener],
    path: &str,
    found: &mut Findings,
) {
    let mut seen = BTreeMap::from([(first, "the first port".to_owned())]);
    for (index, listener) in listeners.iter().enumerate() {
        let here = format!("{path}[{index}]");
        if let Some(other) = seen.get(&listener.port) {
            let rule = format!("is taken by {other} already");
            found.error(format!("{here}.port"), listener.port, rule, "give every listener a port of its own");
        } else {
            seen.insert(listener.port, here);
        }
    }
}

pub(super) fn check_options(options: &LoadBalancerOptions, path: &str, found: &mut Findings) {
    for (index, text) in options.allowed_cidrs.iter().enumerate() {
        found.parsed(&format!("{path}.allowedCIDRs[{index}]"), text.parse::<Cidr>());
    }
    if options.preserve_client_ip {
        found.warn(
            format!("{path}.preserveClientIP"),
            true,
            "a control-plane node then cannot reach itself through the load balancer",
            "leave it off unless nothing on the nodes uses the endpoint",
        );
    }
    let check = &options.health_check;
    if check.timeout > check.interval {
        found.error(
            format!("{path}.healthCheck.timeout"),
            check.timeout,
            format!("is longer than the interval of {} s", check.interval),
            "make it at most the interval",
        );
    }
    if check.protocol == HealthCheckProtocol::Https {
        found.warn(
            format!("{path}.healthCheck.protocol"),
            "https",
            "gets 401 where anonymous access is off, as Talos has it: no machine then counts as healthy",
            "use tcp, or set anonymous-auth to true in cluster.apiServer.extraArgs by a config patch",
        );
    }
    if let Some(text) = check.path.as_ref().filter(|_| check.protocol == HealthCheckProtocol::Tcp) {
        found.warn(
            format!("{path}.healthCheck.path"),
            text,
            "a tcp check asks for no path; it is ignored",
            "remove the path",
        );
    }
}

impl Validate for MachineLoadBalancer {
    fn validate(&self) -> Vec<Problem> {
        let mut found = Findings::default();
        let spec = &self.spec;
        let mut seen = BTreeMap::new();
        for (index, port) in spec.ports().enumerate() {
            let path = match index {
                0 => "spec.port".to_owned(),
                further => format!("spec.listeners[{}]", further - 1),
            };
            if let Some(other) = seen.get(&(port.port, port.protocol)) {
                let rule = format!("is taken by {other} already");
                found.error(format!("{path}.port"), port.port, rule, "give every listener a port of its own");
            } else {
                seen.insert((port.port, port.protocol), path.clone());
            }
            if port.protocol == MachineProtocol::Udp {
                found.warn(
                    format!("{path}.protocol"),
                    "udp",
                    "udp is not built yet; the port is reported as UnsupportedProtocol and not served",
                    "use tcp",
                );
            }
        }
        check_selector(&spec.machine_selector, "spec.machineSelector", &mut found);
        if spec.provider_ref.name.as_ref().is_none_or(String::is_empty) {
            found.missing(
                "spec.providerRef.name",
                "providerRef names no object",
                "set name, kind and apiVersion",
            );
        }
        if spec.provider_ref.kind.as_ref().is_none_or(String::is_empty) {
            found.missing(
                "spec.providerRef.kind",
                "providerRef names no kind",
                "set name, kind and apiVersion",
            );
        }
        found.0
    }
}

fn check_selector(selector: &LabelSelector, path: &str, found: &mut Findings) {
    if selector.is_empty() {
        found.missing(
            path,
            "an empty selector would select every machine of every cluster",
            "select by label, such as cluster.x-k8s.io/cluster-name",
        );
    }
    for (index, requirement) in selector.match_expressions.iter().enumerate() {
        let wants_values = matches!(requirement.operator, LabelOperator::In | LabelOperator::NotIn);
        let path = format!("{path}.matchExpressions[{index}].values");
        if wants_values && requirement.values.is_empty() {
            found.missing(path, "In and NotIn need at least one value", "add the values");
        } else if !wants_values && !requirement.values.is_empty() {
            let values = requirement.values.join(", ");
            found.error(path, values, "Exists and DoesNotExist take no values", "remove the values");
        }
    }
}
