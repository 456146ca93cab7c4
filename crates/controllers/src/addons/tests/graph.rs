//! The graph by itself: every row of the documentation, every gate, no circle.

use super::Cluster;
use crate::addons::{PlannedAddon, StandIns, objects, parts, plan};
use butler_api::Provider;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The documentation's table: step, addon, installed on-prem, installed in a cloud. The cluster has a pool, the console and
/// all that is optional.
const TABLE: [(&str, &str, bool, bool); 21] = [
    ("1", "kube-vip", true, false),
    ("2", "cilium", true, true),
    ("2.5", "cloud-controller-manager", false, true),
    ("2.6", "node-provider-ids", false, true),
    ("3", "cert-manager", true, true),
    ("4", "longhorn", true, true),
    ("5", "metallb", true, false),
    ("5", "metallb-pool", true, false),
    ("6", "traefik", true, false),
    ("7a", "gateway-api", true, true),
    ("7b", "steward", true, true),
    ("8", "capi", true, true),
    ("9", "flux", true, true),
    ("9.5", "butler-crds", true, true),
    ("9.6", "provider-config", true, true),
    ("9.7", "butler-addons", true, true),
    ("10", "butler-controller", true, true),
    ("11", "butler", true, true),
    ("11.5", "butler-config-exposure", true, true),
    ("12", "butler-console", true, true),
    ("12.5", "cloud-lb-backend-pool", false, false),
];

fn planned(cluster: &Cluster) -> BTreeMap<&'static str, PlannedAddon> {
    plan(&cluster.site()).into_iter().map(|addon| (addon.name, addon)).collect()
}

fn why(cluster: &Cluster, addon: &str) -> String {
    planned(cluster)[addon].skipped.clone().unwrap_or_default()
}

#[test]
fn every_row_of_the_documentation_is_there() {
    let console = json!({ "addons": { "console": { "enabled": true } } });
    for provider in Provider::ALL {
        let cluster = Cluster::new(provider, console.clone());
        let all = plan(&cluster.site());
        let steps: Vec<(&str, &str)> = all.iter().map(|addon| (addon.step, addon.name)).collect();
        let wanted: Vec<(&str, &str)> = TABLE.iter().map(|(step, name, ..)| (*step, *name)).collect();
        assert_eq!(steps, wanted, "{provider}");
        for (addon, (_, name, on_prem, cloud)) in all.iter().zip(TABLE) {
            let azure_only = name == "cloud-lb-backend-pool" && provider == Provider::Azure;
            let installed = if provider.is_on_prem() { on_prem } else { cloud || azure_only };
            assert_eq!(addon.skipped.is_none(), installed, "{provider}: {name} {:?}", addon.skipped);
            assert!(!addon.version.is_empty() || addon.skipped.is_some(), "{name} has no version");
        }
    }
}

/// One addon after the other, as their needs allow. Gives the rounds; panics on a circle.
fn rounds(all: &[PlannedAddon]) -> Vec<Vec<&'static str>> {
    let mut left: Vec<&PlannedAddon> = all.iter().filter(|addon| addon.skipped.is_none()).collect();
    let mut done = BTreeSet::new();
    let mut rounds = Vec::new();
    while !left.is_empty() {
        let (ready, rest): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|addon| addon.needs.iter().all(|need| done.contains(need)));
        assert!(!ready.is_empty(), "these wait for each other: {rest:?}");
        done.extend(ready.iter().map(|addon| addon.name));
        rounds.push(ready.iter().map(|addon| addon.name).collect());
        left = rest;
    }
    rounds
}

#[test]
fn all_gates_together_never_make_a_circle_or_a_need_that_is_skipped() {
    let choices: [&[Value]; 9] = [
        &[json!({}), json!({ "cluster": { "topology": "single-node" } })],
        &[json!({}), json!({ "network": { "vip": null } })],
        &[json!({}), json!({ "network": { "loadBalancerPool": null } })],
        &[json!({}), json!({ "addons": { "cni": { "type": "none" }, "storage": { "type": "none" } } })],
        &[
            json!({}),
            json!({ "addons": { "ingress": { "type": "nginx" }, "controlPlaneProvider": { "type": "kamaji" } } }),
            json!({ "addons": { "ingress": { "type": "none" }, "controlPlaneProvider": { "type": "none" } } }),
        ],
        &[
            json!({}),
            json!({ "addons": { "certManager": { "enabled": false }, "capi": { "enabled": false } } }),
        ],
        &[json!({}), json!({ "addons": { "butlerController": { "enabled": false } } })],
        &[json!({}), json!({ "addons": { "console": { "enabled": true, "ingress": { "enabled": true } } } })],
        &[
            json!({}),
            json!({ "controlPlaneExposure": {
                "mode": "Gateway", "hostname": "*.k8s.example.com", "gatewayRef": "infra/tenants",
            } }),
        ],
    ];
    let mut changes = vec![json!({})];
    for choice in choices {
        let mut next = Vec::new();
        for base in &changes {
            for change in choice {
                // Not a merge patch yet: its nulls have to last until the spec.
                let mut both = base.clone();
                deep(&mut both, change);
                next.push(both);
            }
        }
        changes = next;
    }
    assert_eq!(changes.len(), 2_usize.pow(8) * 3);
    for provider in [Provider::Proxmox, Provider::Aws, Provider::Azure] {
        for change in &changes {
            let cluster = Cluster::new(provider, change.clone());
            let all = plan(&cluster.site());
            let installed: BTreeSet<&str> =
                all.iter().filter(|addon| addon.skipped.is_none()).map(|addon| addon.name).collect();
            for addon in &all {
                for need in &addon.needs {
                    assert!(
                        installed.contains(need),
                        "{} needs {need}, which is skipped: {change}",
                        addon.name
                    );
                }
            }
            rounds(&all);
        }
    }
}

fn deep(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                deep(fields.entry(key).or_insert_with(|| json!({})), change);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

#[test]
fn what_can_run_side_by_side_does() {
    let cluster = Cluster::proxmox();
    let rounds = rounds(&plan(&cluster.site()));
    assert_eq!(rounds[0], ["kube-vip", "cilium", "gateway-api", "butler-crds"]);
    assert_eq!(
        rounds[1],
        [
            "cert-manager",
            "longhorn",
            "metallb",
            "flux",
            "provider-config",
            "butler-addons",
            "butler-controller",
            "butler",
            "butler-config-exposure"
        ]
    );
    assert_eq!(rounds[2], ["metallb-pool", "steward", "capi"]);
    assert_eq!(rounds[3], ["traefik"]);
    assert_eq!(rounds.len(), 4);
}

#[test]
fn cilium_comes_after_the_gateway_api_only_where_it_serves_it() {
    assert!(planned(&Cluster::proxmox())["cilium"].needs.is_empty());
    let gateway = json!({ "controlPlaneExposure": {
        "mode": "Gateway", "hostname": "*.k8s.example.com", "gatewayRef": "infra/tenants",
    } });
    let cluster = Cluster::new(Provider::Proxmox, gateway);
    assert_eq!(planned(&cluster)["cilium"].needs, ["gateway-api"]);
    assert_eq!(parts("cilium", &cluster.site())[0].values["gatewayAPI"]["enabled"], true);
}

#[test]
fn what_is_skipped_says_why() {
    let skipped = |provider, change: Value, addon: &str| why(&Cluster::new(provider, change), addon);
    let single = json!({ "cluster": { "topology": "single-node" } });
    let cases = [
        (Provider::Proxmox, single.clone(), "kube-vip", "Talos' own virtual IP"),
        (Provider::Proxmox, json!({ "network": { "vip": null } }), "kube-vip", "network.vip is not set"),
        (Provider::Gcp, json!({}), "kube-vip", "cloud load balancer"),
        (Provider::Gcp, json!({}), "metallb", "cloud gives Services"),
        (Provider::Gcp, json!({}), "traefik", "cloud gives Services"),
        (Provider::Proxmox, json!({}), "cloud-controller-manager", "on-prem"),
        (
            Provider::Proxmox,
            json!({ "network": { "loadBalancerPool": null } }),
            "metallb-pool",
            "loadBalancerPool",
        ),
        (Provider::Proxmox, json!({ "addons": { "cni": { "type": "none" } } }), "cilium", "addons.cni.type"),
        (Provider::Proxmox, json!({}), "butler-console", "addons.console.enabled is false"),
        (Provider::Azure, json!({}), "cloud-lb-backend-pool", "addons.console.enabled is false"),
        (Provider::Aws, json!({}), "cloud-lb-backend-pool", "itself"),
    ];
    for (provider, change, addon, said) in cases {
        let found = skipped(provider, change, addon);
        assert!(found.contains(said), "{provider} {addon}: {found:?}");
    }
    for other in ["talos-vip", "external"] {
        let change = json!({ "addons": { "controlPlaneHA": { "type": other } } });
        assert!(skipped(Provider::Proxmox, change, "kube-vip").contains(other));
    }
}

#[test]
fn a_version_in_the_spec_wins_over_the_pin() {
    let plain = planned(&Cluster::proxmox());
    let pins = [
        ("kube-vip", "v0.8.7"),
        ("cilium", "1.17.0"),
        ("cert-manager", "v1.16.2"),
        ("longhorn", "1.7.2"),
        ("metallb", "0.14.9"),
        ("traefik", "34.3.0"),
        ("gateway-api", "v1.2.1"),
        ("steward", "0.4.0"),
        ("capi", "v1.9.4"),
        ("butler-controller", "0.27.0"),
    ];
    for (addon, version) in pins {
        assert_eq!(plain[addon].version, version, "{addon}");
    }
    let change = json!({ "addons": {
        "cni": { "version": "1.19.4" }, "capi": { "version": "v1.10.0" }, "controlPlaneHA": { "version": "v1.0.0" },
    } });
    let cluster = Cluster::new(Provider::Proxmox, change);
    let all = planned(&cluster);
    assert_eq!((all["cilium"].version.as_str(), all["capi"].version.as_str()), ("1.19.4", "v1.10.0"));
    assert_eq!(parts("cilium", &cluster.site())[0].version, "1.19.4");
    assert_eq!(parts("capi", &cluster.site())[0].version, "v1.10.0");
}

#[test]
fn every_planned_addon_can_be_made() {
    let console = json!({ "addons": { "console": { "enabled": true, "ingress": { "enabled": true } } } });
    for provider in Provider::ALL {
        let cluster = Cluster::new(provider, console.clone());
        for addon in plan(&cluster.site()).iter().filter(|addon| addon.skipped.is_none()) {
            let made = objects(addon.name, &cluster.site(), &StandIns);
            if addon.name == "cloud-lb-backend-pool" {
                assert_eq!(made.expect_err("the driver's part").reason, "AddonNotBuilt");
                continue;
            }
            let made = made.unwrap_or_else(|failure| panic!("{provider} {}: {failure}", addon.name));
            assert_eq!(made.is_empty(), addon.name == "node-provider-ids", "{provider} {}", addon.name);
        }
    }
}

/// As a user writes it. Each is switched off by itself, and nothing that stays waits for it.
#[test]
fn what_is_switched_off_in_the_spec_is_skipped_and_waited_for_by_nobody() {
    for (key, addon) in [("capi", "capi"), ("butlerController", "butler-controller")] {
        let yaml = format!("addons:\n  {key}:\n    enabled: false\n");
        let change: Value = serde_saphyr::from_str(&yaml).expect("YAML");
        let all = planned(&Cluster::new(Provider::Proxmox, change));
        assert_eq!(all[addon].skipped.as_deref(), Some(format!("addons.{key}.enabled is false").as_str()));
        let others = planned(&Cluster::proxmox()).into_values().filter(|other| other.skipped.is_none());
        for other in others.filter(|other| other.name != addon) {
            let now = &all[other.name];
            assert!(now.skipped.is_none() || now.needs.contains(&addon), "{}: {:?}", other.name, now.skipped);
        }
    }
}
