//! What may change between two runs of the same bootstrap. Pure.

use butler_api::ClusterBootstrap;
use serde_json::Value;

/// A field that was set otherwise when the bootstrap began, and can't change under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The field, as the bootstrap file writes it.
    pub(crate) path: String,
    pub(crate) was: String,
    pub(crate) is: String,
}

/// How far a bootstrap has come, as far as it fixes things.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Made {
    Nothing,
    /// There are machines, or they were asked for.
    Machines,
    /// Also etcd: from here on nodes are as they are.
    Cluster,
}

impl Made {
    /// As the status of a ClusterBootstrap says.
    pub(crate) fn of(bootstrap: &ClusterBootstrap) -> Made {
        let status = bootstrap.status.as_ref();
        match status.map(|status| (status.bootstrap_machine.is_some(), status.machines.is_empty())) {
            Some((true, _)) => Made::Cluster,
            Some((false, false)) => Made::Machines,
            _ => Made::Nothing,
        }
    }
}

/// Fields that machines, certificates or etcd are made with: fixed from the first machine on.
const WITH_MACHINES: [&str; 13] = [
    "provider",
    "cluster.name",
    "cluster.topology",
    "cluster.controlPlane",
    "cluster.workers.cpu",
    "cluster.workers.memoryMB",
    "cluster.workers.diskGB",
    "cluster.workers.extraDisks",
    "network.podCIDR",
    "network.serviceCIDR",
    "network.vip",
    "talos",
    "addons.controlPlaneHA",
];

/// Fields that only configs and machines that are still to come could follow: fixed from etcd on, since nothing changes nodes then.
const WITH_CLUSTER: [&str; 6] = [
    "cluster.workers.replicas",
    "cluster.workers.labels",
    "network.vipInterface",
    "network.mtu",
    "addons.cni.type",
    "addons.storage.type",
];

/// Compares the spec of a ClusterBootstrap that is there with the one that is wanted; both as JSON, with defaults.
pub(crate) fn refused(was: &Value, is: &Value, made: Made) -> Vec<Refused> {
    let mut found = Vec::new();
    let of_stage = |stage: Made, paths: &'static [&'static str]| {
        if made >= stage { paths.iter() } else { [].iter() }
    };
    for path in of_stage(Made::Machines, &WITH_MACHINES).chain(of_stage(Made::Cluster, &WITH_CLUSTER)) {
        let pointer = format!("/{}", path.replace('.', "/"));
        differences(path, was.pointer(&pointer), is.pointer(&pointer), &mut found);
    }
    found
}

/// Of a ProviderConfig: how one gets in, and where machines that are still to come are placed. All else says where machines are
/// looked for and what they are made with: another value makes them twice, or leaves them behind.
const FREE_OF_PROVIDER: [&str; 3] = ["credentialsRef", "insecure", "nodes"];

/// Compares the spec of a ProviderConfig that is there with the one that is wanted; both as JSON, with defaults.
pub(crate) fn refused_of_provider(was: &Value, is: &Value, made: Made) -> Vec<Refused> {
    let mut found = Vec::new();
    if made >= Made::Machines {
        differences("spec", Some(was), Some(is), &mut found);
    }
    found.retain(|change| !change.path.split('.').any(|part| FREE_OF_PROVIDER.contains(&part)));
    for change in &mut found {
        // As the bootstrap file writes them.
        change.path = change.path.replacen("spec.network", "providerNetwork", 1).replacen(
            "spec.",
            "providerConfig.",
            1,
        );
    }
    found
}

/// The leaves in which two values differ.
fn differences(path: &str, was: Option<&Value>, is: Option<&Value>, found: &mut Vec<Refused>) {
    match (was, is) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            for key in keys {
                differences(&format!("{path}.{key}"), a.get(key), b.get(key), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => {
            let shown =
                |value: Option<&Value>| value.map_or_else(|| "not set".to_owned(), ToString::to_string);
            found.push(Refused { path: path.to_owned(), was: shown(a), is: shown(b) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_machines_are_made_with_stays() {
        let was = json!({"provider": "proxmox", "cluster": {"name": "a", "controlPlane": {"cpu": 4}, "workers": {"replicas": 1, "cpu": 2}},
            "network": {"vip": "10.0.0.1"}, "addons": {"console": {"enabled": false}}});
        let mut is = was.clone();
        assert_eq!(refused(&was, &is, Made::Machines), []);
        is["addons"]["console"]["enabled"] = json!(true);
        is["cluster"]["workers"]["replicas"] = json!(3);
        is["paused"] = json!(true);
        assert_eq!(refused(&was, &is, Made::Machines), []);
        is["network"]["vip"] = json!("10.0.0.2");
        is["cluster"]["controlPlane"]["cpu"] = json!(8);
        is["talos"] = json!("x");
        let paths: Vec<String> =
            refused(&was, &is, Made::Machines).into_iter().map(|found| found.path).collect();
        assert_eq!(paths, ["cluster.controlPlane.cpu", "network.vip", "talos"]);
        assert_eq!(refused(&was, &is, Made::Nothing), [], "nothing is fixed before there are machines");
        let vip = refused(&was, &is, Made::Machines).swap_remove(1);
        assert_eq!((vip.was.as_str(), vip.is.as_str()), ("\"10.0.0.1\"", "\"10.0.0.2\""));
    }

    #[test]
    fn what_nodes_are_made_with_stays_once_there_is_a_cluster() {
        let was = json!({"cluster": {"workers": {"replicas": 3, "extraDisks": [{"sizeGB": 5}]}}, "network": {"mtu": 1500}});
        let mut is = was.clone();
        is["cluster"]["workers"]["replicas"] = json!(4);
        is["network"] =
            json!({"mtu": 1400, "vipInterface": "ens18", "loadBalancerPool": {"start": "10.0.0.1"}});
        assert_eq!(refused(&was, &is, Made::Machines), []);
        let paths = |is: &Value, made| {
            refused(&was, is, made).into_iter().map(|found| found.path).collect::<Vec<_>>()
        };
        assert_eq!(
            paths(&is, Made::Cluster),
            ["cluster.workers.replicas", "network.vipInterface", "network.mtu"]
        );
        is = was.clone();
        is["cluster"]["workers"]["extraDisks"] = json!([]);
        assert_eq!(paths(&is, Made::Machines), ["cluster.workers.extraDisks"]);
    }

    #[test]
    fn where_machines_are_stays_and_how_one_gets_in_may_change() {
        let was = json!({"provider": "proxmox", "credentialsRef": {"name": "a"}, "network": {"subnet": "10.0.0.0/24"},
            "proxmox": {"endpoint": "https://a:8006", "nodes": ["pve1"], "storage": "fast", "insecure": false}});
        let mut is = was.clone();
        is["credentialsRef"]["name"] = json!("b");
        is["proxmox"]["nodes"] = json!(["pve1", "pve2"]);
        is["proxmox"]["insecure"] = json!(true);
        assert_eq!(refused_of_provider(&was, &is, Made::Cluster), []);
        is["proxmox"]["storage"] = json!("slow");
        is["proxmox"]["vmidStart"] = json!(500);
        is["network"]["subnet"] = json!("10.0.1.0/24");
        let paths = |made| {
            refused_of_provider(&was, &is, made).into_iter().map(|found| found.path).collect::<Vec<_>>()
        };
        assert_eq!(paths(Made::Nothing), [""; 0]);
        assert_eq!(
            paths(Made::Machines),
            ["providerNetwork.subnet", "providerConfig.proxmox.storage", "providerConfig.proxmox.vmidStart"]
        );
    }
}
