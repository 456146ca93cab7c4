//! Whatever is called in whatever order: every link leads somewhere, no address is given twice, and every operation ends.

use super::state::{collection_of, link};
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// One call out of those that make, change and remove the parts of two small load balancers.
fn calls() -> impl Strategy<Value = (&'static str, String, Value)> {
    (0..22_u8, 0..2_u8, 0..2_u8).prop_map(|(what, one, other)| {
        let zone = ["us-central1-a", "us-central1-b"][usize::from(one)];
        let regional = |collection: &str| format!("{REGION}/{collection}");
        let named = |collection: &str, number: u8| format!("{REGION}/{collection}/x{number}");
        let instances = format!("zones/{zone}/instances");
        let group = format!("zones/{zone}/instanceGroups");
        let member = json!({"instances": [{"instance": format!("{instances}/m{other}")}]});
        let backend = json!([{"group": format!("{group}/g"), "balancingMode": "CONNECTION"}]);
        match what {
            0 => ("POST", regional("addresses"), json!({"name": format!("x{one}")})),
            1 => ("DELETE", named("addresses", one), Value::Null),
            2 => ("POST", regional("healthChecks"), json!({"name": format!("x{one}"), "type": "TCP"})),
            3 => ("DELETE", named("healthChecks", one), Value::Null),
            4 | 5 => ("POST", instances.clone(), instance(zone, &format!("m{other}"))),
            6 => ("DELETE", format!("{instances}/m{other}"), Value::Null),
            7 => ("POST", group.clone(), json!({"name": "g"})),
            8 => ("DELETE", format!("{group}/g"), Value::Null),
            9 | 10 => ("POST", format!("{group}/g/addInstances"), member),
            11 => ("POST", format!("{group}/g/removeInstances"), member),
            12 | 13 => (
                "POST",
                regional("backendServices"),
                json!({"name": format!("x{other}"), "healthChecks": [named("healthChecks", one)], "backends": backend}),
            ),
            14 => ("PATCH", named("backendServices", other), json!({"backends": backend})),
            15 => ("DELETE", named("backendServices", other), Value::Null),
            16 | 17 => (
                "POST",
                regional("forwardingRules"),
                json!({
                    "name": format!("x{one}"), "portRange": if what == 16 { "6443" } else { "6443-6444" },
                    "IPAddress": named("addresses", other), "backendService": named("backendServices", other),
                }),
            ),
            18 => ("DELETE", named("forwardingRules", one), Value::Null),
            19 => ("POST", format!("{instances}/m{other}/stop"), Value::Null),
            20 => ("POST", format!("{instances}/m{other}/start"), Value::Null),
            _ => ("GET", regional("addresses"), Value::Null),
        }
    })
}

/// Two load balancers without rules.
fn beginning() -> Vec<(&'static str, String, Value)> {
    let regional = |collection: &str| format!("{REGION}/{collection}");
    let mut all = Vec::new();
    for (number, zone) in ["us-central1-a", "us-central1-b"].into_iter().enumerate() {
        let name = format!("x{number}");
        let group = format!("zones/{zone}/instanceGroups");
        all.push(("POST", regional("addresses"), json!({"name": name})));
        all.push(("POST", regional("healthChecks"), json!({"name": name, "type": "TCP"})));
        all.push(("POST", format!("zones/{zone}/instances"), instance(zone, "m0")));
        all.push(("POST", group.clone(), json!({"name": "g"})));
        let backends = json!([{"group": format!("{group}/g"), "balancingMode": "CONNECTION"}]);
        let checks = json!([format!("{REGION}/healthChecks/{name}")]);
        all.push((
            "POST",
            regional("backendServices"),
            json!({"name": name, "healthChecks": checks, "backends": backends}),
        ));
    }
    all
}

/// All links within a document.
fn links(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) if text.starts_with("https://www.googleapis.com/compute/v1/") => {
            found.push(text.clone())
        }
        Value::Array(items) => items.iter().for_each(|item| links(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| links(field, found)),
        _ => {}
    }
}

/// Everything that must always hold.
fn check(state: &State) {
    let kept = [
        "addresses",
        "healthChecks",
        "instanceGroups",
        "backendServices",
        "disks",
        "networks",
        "subnetworks",
    ];
    let mut inner = BTreeSet::new();
    let mut outer = BTreeSet::new();
    for (path, doc) in &state.docs {
        let mut found = Vec::new();
        links(&Value::Object(doc.fields.clone()), &mut found);
        for one in found {
            let target = state.path_of(&one).unwrap();
            let known = !kept.contains(&collection_of(&target)) || state.docs.contains_key(&target);
            // The disks of an instance that is being made are not there yet.
            let early = state.coming.contains_key(path);
            assert!(known || early, "{path} leads to {target}, which is gone");
        }
        assert!(
            doc.members.iter().all(|member| state.docs.contains_key(member)),
            "{path} has a member that is gone"
        );
        if collection_of(path) == "instances" {
            let (inside, outside) = state.addresses_of(path);
            assert!(inside.is_none_or(|address| inner.insert(address)), "{inside:?} is there twice");
            assert!(outside.is_none_or(|address| outer.insert(address)), "{outside:?} is there twice");
        }
        if collection_of(path) == "addresses" {
            assert!(outer.insert(state.text(path, "address").parse().unwrap()), "{path} shares its address");
        }
        assert_eq!(doc.fields["selfLink"], link(path));
    }
    for balancer in state.balancers().values() {
        let ports: BTreeSet<u16> = balancer.frontends.iter().map(|front| front.port).collect();
        assert_eq!(ports.len(), balancer.frontends.len(), "two rules for one port");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn links_lead_somewhere_and_operations_end(
        steps in prop::collection::vec((calls(), any::<bool>()), 1..60),
        slow in any::<bool>(),
    ) {
        let mut bench = Bench::with(&site(), if slow { 1.0 } else { 0.0 });
        // Two of everything, so that there is something to take apart.
        for (method, target, body) in beginning() {
            prop_assert_eq!(bench.call(method, &target, body).status, 200, "{}", target);
            bench.now += 60_000;
            bench.settle();
        }
        for ((method, target, body), settles) in steps {
            let answer = bench.call(method, &target, body);
            prop_assert!(answer.status != 501, "{method} {target}: {}", answer.body);
            if settles {
                bench.now += 4000;
                bench.settle();
            }
            check(&bench.state);
        }
        bench.now += 600_000;
        bench.settle();
        check(&bench.state);
        prop_assert_eq!(bench.state.next_due(), None);
        prop_assert!(bench.state.coming.is_empty() && bench.state.leaving.is_empty());
    }
}
