//! Virtual addresses of control planes: Talos' own, and kube-vip's. Pure but for the clock.
//!
//! Talos elects a holder among the control planes whose etcd runs; kube-vip among those on which its pod is ready. A holder
//! keeps an address as long as it can. One that died without a word is followed by the next only after a while.

use super::clock::{Clock, Wait};
use super::facts::Facts;
use super::kubelet::Surroundings;
use super::objects::{self, Action, Objects, is_true, list, name, namespace, text};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Who may hold an address, and who does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Claims {
    /// By address: node addresses that could hold it, and whether Talos or kube-vip says so.
    pub(super) by_talos: BTreeMap<IpAddr, BTreeSet<IpAddr>>,
    pub(super) by_kube_vip: BTreeMap<IpAddr, BTreeSet<IpAddr>>,
    /// The lock that kube-vip's instances elect with, by address.
    locks: BTreeMap<IpAddr, (String, String)>,
}

/// Who can hold what. `machines` are the control planes of one cluster.
pub(super) fn claims(objects: &Objects, machines: &[Arc<Facts>], quorum: bool) -> Claims {
    let mut claims = Claims::default();
    for facts in machines.iter().filter(|facts| facts.is_control_plane()) {
        for address in facts.shared_addresses() {
            let candidates = claims.by_talos.entry(address).or_default();
            if quorum && facts.etcd_runs && facts.kubelet {
                candidates.insert(facts.address);
            }
        }
    }
    for pod in objects.all(objects::PODS) {
        let Some((address, lock)) = kube_vip(pod) else { continue };
        let candidates = claims.by_kube_vip.entry(address).or_default();
        claims.locks.insert(address, (namespace(pod).to_string(), lock));
        let node = text(pod, "/spec/nodeName");
        let host = machines.iter().find(|facts| facts.hostname == node);
        if let Some(host) =
            host.filter(|host| host.is_control_plane() && host.kubelet && is_true(pod, "Ready"))
        {
            candidates.insert(host.address);
        }
    }
    claims
}

impl Claims {
    /// Addresses that two mechanisms want to hold.
    pub(super) fn conflicts(&self) -> Vec<IpAddr> {
        self.by_talos.keys().filter(|address| self.by_kube_vip.contains_key(address)).copied().collect()
    }

    /// Who holds each address from now on.
    pub(super) fn holders(
        &self,
        before: &BTreeMap<IpAddr, IpAddr>,
        died: impl Fn(IpAddr) -> bool,
        clock: &mut Clock,
    ) -> BTreeMap<IpAddr, IpAddr> {
        let mut holders = BTreeMap::new();
        let all: BTreeSet<&IpAddr> = self.by_talos.keys().chain(self.by_kube_vip.keys()).collect();
        for address in all {
            let from =
                |map: &BTreeMap<IpAddr, BTreeSet<IpAddr>>| map.get(address).cloned().unwrap_or_default();
            let candidates: BTreeSet<IpAddr> =
                from(&self.by_talos).union(&from(&self.by_kube_vip)).copied().collect();
            let holder = before.get(address).copied();
            let next = match holder {
                Some(holder) if candidates.contains(&holder) => Some(holder),
                // Its lease has to run out first.
                Some(holder) if died(holder) && !clock.over(Wait::AddressTakenOver, &address.to_string()) => {
                    Some(holder)
                }
                _ => candidates.first().copied(),
            };
            holders.extend(next.map(|next| (*address, next)));
        }
        holders
    }

    /// The locks of kube-vip's instances, with their holders' names.
    pub(super) fn leases(
        &self,
        objects: &Objects,
        holders: &BTreeMap<IpAddr, IpAddr>,
        machines: &[Arc<Facts>],
        now: &str,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        for (address, (space, lock)) in &self.locks {
            let holder =
                holders.get(address).and_then(|holder| machines.iter().find(|f| f.address == *holder));
            let Some(holder) = holder else { continue };
            // Kubernetes writes these times with microseconds.
            let time = now.replace('Z', ".000000Z");
            let spec = json!({
                "holderIdentity": holder.hostname, "leaseDurationSeconds": 5,
                "acquireTime": time, "renewTime": time,
            });
            match objects.get(objects::LEASES, space, lock) {
                None => actions.push(Action::Create {
                    collection: objects::LEASES,
                    value: json!({
                        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                        "metadata": {"name": lock, "namespace": space}, "spec": spec,
                    }),
                }),
                Some(found) if found["spec"]["holderIdentity"] != holder.hostname => {
                    let mut value = found.as_ref().clone();
                    let moves = objects::number(&value, "/spec/leaseTransitions").unwrap_or(0);
                    value["spec"] = spec;
                    value["spec"]["leaseTransitions"] = (moves + 1).into();
                    actions.push(Action::Put { collection: objects::LEASES, value });
                }
                Some(_) => {}
            }
        }
        actions
    }
}

fn container(pod: &Value) -> Option<&Value> {
    let fits = |image: &str| {
        let last = image.rsplit('/').next().unwrap_or_default();
        let name = last.split([':', '@']).next().unwrap_or_default();
        matches!(name, "kube-vip" | "kube-vip-iptables")
    };
    list(pod, "/spec/containers").iter().find(|container| fits(text(container, "/image")))
}

fn env<'a>(container: &'a Value, wanted: &str) -> Option<&'a str> {
    let entry = list(container, "/env").iter().find(|entry| entry["name"] == wanted)?;
    entry["value"].as_str().filter(|value| !value.is_empty())
}

/// The control-plane address that a pod of kube-vip is to hold, and the name of its lock.
fn kube_vip(pod: &Value) -> Option<(IpAddr, String)> {
    let container = container(pod)?;
    if env(container, "cp_enable") != Some("true") {
        return None;
    }
    let address = env(container, "address").or_else(|| env(container, "vip_address"))?.parse().ok()?;
    Some((address, env(container, "vip_leasename").unwrap_or("plndr-cp-lock").to_string()))
}

/// Why kube-vip would end at once on this node: it speaks to the API before it does anything else, and the address of the
/// service `kubernetes` is dead until somebody balances it.
pub(super) fn cannot_run(objects: &Objects, pod: &Value, around: &Surroundings<'_>) -> Option<String> {
    let container = kube_vip(pod).and(container(pod))?;
    let node = text(pod, "/spec/nodeName");
    let facts = around.kubelets.get(node)?;
    let host = env(container, "KUBERNETES_SERVICE_HOST").unwrap_or("10.96.0.1");
    let port = env(container, "KUBERNETES_SERVICE_PORT").unwrap_or("443");
    let reached = match host {
        "localhost" | "127.0.0.1" | "::1" => {
            (port == "7445" && facts.kube_prism()) || (port == "6443" && facts.static_pods)
        }
        "10.96.0.1" => around.networked.contains(node) || has_proxy(objects, node),
        other => {
            other == facts.address.to_string()
                || around.kubelets.values().any(|f| f.address.to_string() == other)
        }
    };
    (!reached).then(|| format!("dial tcp {host}:{port}: connect: connection refused (pod {})", name(pod)))
}

/// Whether kube-proxy balances services on a node.
fn has_proxy(objects: &Objects, node: &str) -> bool {
    objects.all(objects::PODS).any(|pod| {
        text(pod, "/spec/nodeName") == node
            && objects::label(pod, "k8s-app") == Some("kube-proxy")
            && is_true(pod, "Ready")
    })
}
