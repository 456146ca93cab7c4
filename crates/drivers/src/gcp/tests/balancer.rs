//! Load balancers: the order of parts, drift, swaps, strangers, removal; all over the dry run's model or a hand-made one.

use super::{balancer, config, machine, owner, settings};
use crate::dry_run::Recording;
use crate::failure::Class;
use crate::gcp::balancer::{Desired, Health, Look, Observed, Plan, facts, plan, plan_removal};
use crate::gcp::part::{Kind, Mutation, Part, Scope, Thing, Verb};
use crate::gcp::settings::{Settings, url};
use crate::mark::Mark;
use crate::seam::{LoadBalancerFacts, LoadBalancerWanted, Owner, Progress};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A project in memory that can be tampered with.
#[derive(Default)]
struct World {
    things: Vec<Thing>,
    members: BTreeMap<Part, Vec<String>>,
}

impl World {
    fn see(&self, looks: &[Look], seen: &mut Observed) {
        for look in looks {
            match look {
                Look::List(kind) => {
                    let all = self.things.iter().filter(|thing| thing.part.kind == *kind);
                    seen.lists.insert(*kind, all.cloned().collect());
                }
                Look::Members(group) => {
                    seen.members.insert(group.clone(), self.members.get(group).cloned().unwrap_or_default());
                }
                Look::Instances(_) => {
                    let all = self.things.iter().filter(|thing| thing.part.kind == Kind::Instance);
                    seen.instances = Some(all.cloned().collect());
                }
            }
        }
    }

    /// The next step, with everything looked at that the plan asks for.
    fn next(&self, wanted: &LoadBalancerWanted) -> (Plan, Observed) {
        let desired = Desired::new(wanted, &settings());
        let mut seen = Observed { sweep: true, ..Observed::default() };
        loop {
            match plan(&desired, &seen).unwrap() {
                Plan::Look(looks) => self.see(&looks, &mut seen),
                other => return (other, seen),
            }
        }
    }

    fn apply(&mut self, mutation: &Mutation) {
        let part = &mutation.part;
        match &mutation.verb {
            Verb::Insert { body, .. } => self.put(part, body.clone()),
            Verb::Replace { body, .. } | Verb::Patch { body, .. } => {
                let thing = self.things.iter_mut().find(|thing| thing.part == *part).unwrap();
                for (key, value) in body.as_object().unwrap() {
                    thing.body[key] = value.clone();
                }
            }
            Verb::Delete => self.things.retain(|thing| thing.part != *part),
            Verb::AddInstances(urls) => {
                let ends = urls.iter().map(|url| crate::gcp::names::tail(url).to_owned());
                self.members.entry(part.clone()).or_default().extend(ends);
            }
            Verb::RemoveInstances(urls) => {
                let members = self.members.get_mut(part).unwrap();
                members.retain(|member| !urls.contains(&url(member)));
            }
            Verb::Start | Verb::Resume => panic!("not of a load balancer"),
        }
    }

    fn put(&mut self, part: &Part, mut body: Value) {
        body["selfLink"] = json!(url(&format!("p/{}", part.path())));
        if part.kind == Kind::Address {
            body["status"] = json!("RESERVED");
            if body.get("address").is_none() {
                body["address"] = json!("35.194.52.218");
            }
        }
        self.things.push(Thing::read(part.kind, &body).unwrap());
    }

    fn instance(&mut self, name: &str, zone: &str, ip: &str, owner: Option<&Owner>) -> String {
        let part = Part::new(Kind::Instance, Scope::Zone(zone.into()), name);
        let description = owner.map(|owner| Mark::new(owner, &BTreeMap::new()).describe());
        let body = json!({"name": name, "description": description.unwrap_or_default(), "status": "RUNNING",
            "networkInterfaces": [{"networkIP": ip}]});
        self.put(&part, body);
        format!("p/{}", part.path())
    }

    /// All steps until nothing is left to do, as words.
    fn finish(&mut self, wanted: &LoadBalancerWanted) -> Vec<String> {
        let mut steps = Vec::new();
        for _ in 0..50 {
            match self.next(wanted).0 {
                Plan::Do(mutation) => {
                    steps.push(mutation.change().detail);
                    self.apply(&mutation);
                }
                Plan::Wait(what) => {
                    steps.push(format!("wait for {what}"));
                    return steps;
                }
                Plan::Settled => return steps,
                Plan::Look(_) => unreachable!(),
            }
        }
        panic!("never settled: {steps:#?}");
    }

    fn facts(&self, wanted: &LoadBalancerWanted) -> LoadBalancerFacts {
        facts(&Desired::new(wanted, &settings()), &self.next(wanted).1, &Health::new()).unwrap()
    }

    fn thing(&mut self, name: &str) -> &mut Thing {
        self.things.iter_mut().find(|thing| thing.part.name == name).unwrap()
    }
}

fn three() -> Value {
    json!({"targets": [
        {"ip": "10.128.0.10", "instanceName": "mgmt-cp-0"},
        {"ip": "10.128.0.11", "instanceName": "mgmt-cp-1"},
        {"ip": "10.128.0.12", "instanceName": "mgmt-cp-2"}]})
}

fn with_three() -> (World, LoadBalancerWanted) {
    let mut world = World::default();
    for (number, zone) in ["a", "b", "a"].iter().enumerate() {
        let uid = owner(&format!("cp-{number}"));
        let ip = format!("10.128.0.{}", 10 + number);
        world.instance(&format!("mgmt-cp-{number}"), &format!("us-central1-{zone}"), &ip, Some(&uid));
    }
    (world, balancer(three()))
}

#[test]
fn the_endpoint_comes_before_any_target() {
    let mut world = World::default();
    let wanted = balancer(json!({"listeners": [{"port": 50000}]}));
    let steps = world.finish(&wanted);
    let expected = [
        "make the address mgmt-lb-ip in us-central1: external",
        "make the health check mgmt-lb-hc in us-central1: TCP 6443 every 10 s, in after 2, out after 2",
        "make the health check mgmt-lb-50000-hc in us-central1: TCP 50000 every 10 s, in after 2, out after 2",
        "make the backend service mgmt-lb-backend in us-central1: for port 6443, connections drain for 30 s",
        "make the forwarding rule mgmt-lb-fwd in us-central1: port 6443 to mgmt-lb-backend",
        "make the backend service mgmt-lb-50000-backend in us-central1: for port 50000, connections drain for 30 s",
        "make the forwarding rule mgmt-lb-50000-fwd in us-central1: port 50000 to mgmt-lb-50000-backend",
        "make the firewall rule mgmt-lb-checks: TCP 6443, 50000 from 35.191.0.0/16, 130.211.0.0/22, 209.85.152.0/22, 209.85.204.0/22",
        "make the firewall rule mgmt-lb-clients: TCP 6443, 50000 from 0.0.0.0/0",
    ];
    assert_eq!(steps, expected);
    let facts = world.facts(&wanted);
    assert_eq!((facts.endpoint.as_str(), facts.resource_id.as_str()), ("35.194.52.218", "mgmt-lb-fwd"));
    assert_eq!(facts.outputs.kubernetes_endpoint.as_deref(), Some("https://35.194.52.218:6443"));
    assert_eq!(facts.outputs.talos_endpoint.as_deref(), Some("35.194.52.218:50000"));
    assert!(
        facts.listeners.iter().all(|listener| listener.registered.is_empty()) && facts.lacking.is_empty()
    );
}

#[test]
fn targets_are_added_zone_by_zone_and_swapped_without_a_gap() {
    let (mut world, wanted) = with_three();
    let steps = world.finish(&wanted);
    let expected = [
        "make the instance group mgmt-lb-cp in us-central1-a",
        "add mgmt-cp-0, mgmt-cp-2 to the instance group mgmt-lb-cp in us-central1-a",
        "make the instance group mgmt-lb-cp in us-central1-b",
        "add mgmt-cp-1 to the instance group mgmt-lb-cp in us-central1-b",
        "set the backend service mgmt-lb-backend in us-central1: send to the machines in us-central1-a, us-central1-b",
    ];
    assert_eq!(steps[steps.len() - 5..], expected);
    assert_eq!(world.facts(&wanted).listeners[0].registered, ["10.128.0.10", "10.128.0.11", "10.128.0.12"]);
    // cp-1 is replaced by a machine of another name, in a zone that has no group yet.
    world.instance("mgmt-cp-3", "us-central1-c", "10.128.0.13", Some(&owner("cp-3")));
    let mut spec = three();
    spec["targets"][1] = json!({"ip": "10.128.0.13", "instanceName": "mgmt-cp-3"});
    let wanted = balancer(spec);
    let expected = [
        "make the instance group mgmt-lb-cp in us-central1-c",
        "add mgmt-cp-3 to the instance group mgmt-lb-cp in us-central1-c",
        "set the backend service mgmt-lb-backend in us-central1: send to the machines in us-central1-c",
        "take mgmt-cp-1 out of the instance group mgmt-lb-cp in us-central1-b",
    ];
    // While cp-1 is taken out it drains: it is not registered any more, and no stranger.
    for _ in 0..3 {
        let (Plan::Do(mutation), _) = world.next(&wanted) else { panic!() };
        world.apply(&mutation);
    }
    let (_, mut seen) = world.next(&wanted);
    seen.busy.insert("p/zones/us-central1-b/instanceGroups/mgmt-lb-cp".into());
    let leaving = facts(&Desired::new(&wanted, &settings()), &seen, &Health::new()).unwrap();
    assert_eq!(leaving.listeners[0].draining, ["10.128.0.11"]);
    assert_eq!((leaving.listeners[0].registered.len(), leaving.foreign_targets.len()), (3, 0));
    assert_eq!(world.finish(&wanted), expected[3..]);
    assert_eq!(world.facts(&wanted).listeners[0].registered, ["10.128.0.10", "10.128.0.12", "10.128.0.13"]);
}

#[test]
fn a_target_that_google_does_not_know_is_waited_for() {
    let mut world = World::default();
    world.instance("mgmt-cp-0", "us-central1-a", "10.128.0.10", Some(&owner("cp-0")));
    // Another machine of the right name, somewhere else, is not the one that is meant.
    world.instance("mgmt-cp-1", "us-central1-c", "10.128.7.7", None);
    let steps = world.finish(&balancer(three()));
    assert_eq!(steps.last().unwrap(), "wait for the instance mgmt-cp-1 to be seen at Google");
    assert_eq!(world.facts(&balancer(three())).listeners[0].registered, ["10.128.0.10"]);
}

#[test]
fn strangers_behind_it_are_reported_and_left_alone() {
    let (mut world, wanted) = with_three();
    world.finish(&wanted);
    let stranger = world.instance("somebody", "us-central1-a", "10.128.0.99", None);
    let group = Part::new(Kind::InstanceGroup, Scope::Zone("us-central1-a".into()), "mgmt-lb-cp");
    world.members.get_mut(&group).unwrap().push(stranger);
    let service = world.thing("mgmt-lb-backend");
    service.body["backends"]
        .as_array_mut()
        .unwrap()
        .push(json!({"group": url("p/zones/us-central1-f/instanceGroups/theirs")}));
    assert_eq!(world.finish(&wanted), Vec::<String>::new(), "nothing is changed");
    let facts = world.facts(&wanted);
    assert_eq!(facts.foreign_targets, ["group theirs", "somebody"]);
    assert!(facts.listeners[0].registered.contains(&"10.128.0.99".to_owned()), "registered is what is there");
}

#[test]
fn what_was_changed_by_hand_comes_back() {
    let (mut world, wanted) = with_three();
    world.finish(&wanted);
    let table = [
        ("mgmt-lb-hc", "checkIntervalSec", json!(300), "set the health check mgmt-lb-hc"),
        (
            "mgmt-lb-backend",
            "connectionDraining",
            json!({"drainingTimeoutSec": 0}),
            "set the backend service mgmt-lb-backend",
        ),
        ("mgmt-lb-checks", "sourceRanges", json!(["10.0.0.0/8"]), "set the firewall rule mgmt-lb-checks"),
        ("mgmt-lb-clients", "disabled", json!(null), ""),
    ];
    for (name, key, value, step) in table {
        world.thing(name).body[key] = value;
        let steps = world.finish(&wanted);
        match step {
            "" => assert_eq!(steps, Vec::<String>::new(), "{name}"),
            _ => assert!(steps.len() == 1 && steps[0].starts_with(step), "{name}: {steps:?}"),
        }
    }
    // A rule can't be changed, so it is made anew; one that was deleted comes back, under the same address.
    world.thing("mgmt-lb-fwd").body["portRange"] = json!("443-443");
    let steps = world.finish(&wanted);
    assert_eq!(steps[0], "delete the forwarding rule mgmt-lb-fwd in us-central1");
    assert_eq!(steps.len(), 2);
    world.things.retain(|thing| thing.part.kind != Kind::Address);
    world.thing("mgmt-lb-fwd").body["IPAddress"] = json!("35.194.52.218");
    let (Plan::Do(mutation), _) = world.next(&wanted) else { panic!() };
    let Verb::Insert { body, .. } = mutation.verb else { panic!() };
    assert_eq!(body["address"], "35.194.52.218", "the machines hold it");
}

#[test]
fn a_stranger_of_the_same_name_is_a_conflict_and_stays() {
    for (kind, name) in [
        (Kind::Address, "mgmt-lb-ip"),
        (Kind::ForwardingRule, "mgmt-lb-fwd"),
        (Kind::BackendService, "mgmt-lb-backend"),
    ] {
        let mut world = World::default();
        let part = Part::new(kind, Scope::Region("us-central1".into()), name);
        world.put(&part, json!({"name": name, "description": "made by hand", "address": "203.0.113.1"}));
        let wanted = balancer(json!({}));
        let desired = Desired::new(&wanted, &settings());
        let mut seen = Observed::default();
        let failure = loop {
            match plan(&desired, &seen) {
                Ok(Plan::Look(looks)) => world.see(&looks, &mut seen),
                Ok(Plan::Do(mutation)) => {
                    world.apply(&mutation);
                    seen = Observed::default();
                }
                Ok(other) => panic!("{other:?}"),
                Err(failure) => break failure,
            }
        };
        assert_eq!((failure.class, failure.reason.as_str()), (Class::Conflict, "NameTaken"), "{name}");
        assert!(failure.message.contains(name));
        let mut seen = Observed::default();
        loop {
            match plan_removal(&desired, &seen) {
                Plan::Look(looks) => world.see(&looks, &mut seen),
                Plan::Do(mutation) => {
                    assert_ne!(mutation.part.name, name, "not ours to delete");
                    world.apply(&mutation);
                    seen = Observed::default();
                }
                _ => break,
            }
        }
        assert_eq!(world.things.iter().map(|thing| &thing.part).collect::<Vec<_>>(), [&part]);
    }
}

#[test]
fn it_goes_in_the_order_in_which_nothing_is_needed_any_more() {
    let (mut world, wanted) = with_three();
    world.finish(&wanted);
    let desired = Desired::new(&wanted, &settings());
    let mut gone = Vec::new();
    let mut seen = Observed::default();
    loop {
        match plan_removal(&desired, &seen) {
            Plan::Look(looks) => world.see(&looks, &mut seen),
            Plan::Do(mutation) => {
                gone.push(mutation.part.name.clone());
                world.apply(&mutation);
                seen = Observed::default();
            }
            Plan::Settled => break,
            Plan::Wait(what) => panic!("{what}"),
        }
    }
    let expected = [
        "mgmt-lb-fwd",
        "mgmt-lb-backend",
        "mgmt-lb-cp",
        "mgmt-lb-cp",
        "mgmt-lb-hc",
        "mgmt-lb-checks",
        "mgmt-lb-clients",
        "mgmt-lb-ip",
    ];
    assert_eq!(gone, expected);
    assert!(
        world.things.iter().all(|thing| thing.part.kind == Kind::Instance),
        "machines are not its business"
    );
}

#[test]
fn a_pool_takes_the_place_of_a_service() {
    let (mut world, wanted) = with_three();
    world.finish(&wanted);
    let mut spec = three();
    spec["options"] = json!({"implementation": "target-pool", "healthCheck": {"protocol": "http"}});
    spec["healthCheckPort"] = json!(3990);
    let pooled = balancer(spec);
    // A pool's members are in its body.
    let mut steps = Vec::new();
    for _ in 0..50 {
        let (Plan::Do(mutation), _) = world.next(&pooled) else { break };
        steps.push(mutation.change().detail);
        if let Verb::AddInstances(urls) = &mutation.verb {
            world.thing(&mutation.part.name).body["instances"] = json!(urls);
        } else {
            world.apply(&mutation);
        }
    }
    let expected = [
        "make the legacy health check mgmt-lb-hc: HTTP 3990 /readyz every 10 s, in after 2, out after 2",
        "make the target pool mgmt-lb-pool in us-central1: for port 6443",
        "set the firewall rule mgmt-lb-checks: TCP 3990 from 35.191.0.0/16, 130.211.0.0/22, 209.85.152.0/22, 209.85.204.0/22",
        "add mgmt-cp-0, mgmt-cp-1, mgmt-cp-2 to the target pool mgmt-lb-pool in us-central1",
        "delete the forwarding rule mgmt-lb-fwd in us-central1",
        "make the forwarding rule mgmt-lb-fwd in us-central1: port 6443 to mgmt-lb-pool",
        "delete the backend service mgmt-lb-backend in us-central1",
        "delete the instance group mgmt-lb-cp in us-central1-a",
        "delete the instance group mgmt-lb-cp in us-central1-b",
        "delete the health check mgmt-lb-hc in us-central1",
    ];
    assert_eq!(steps, expected);
    assert_eq!(world.facts(&pooled).listeners[0].registered.len(), 3);
}

#[test]
fn what_needs_nothing_of_each_other_is_made_side_by_side() {
    let wanted = balancer(json!({"listeners": [{"port": 50000}]}));
    let desired = Desired::new(&wanted, &settings());
    let mut world = World::default();
    let mut rounds = Vec::new();
    for _ in 0..9 {
        // Everything that can be begun, before any of it ends.
        let (mut begun, mut seen) = (Vec::new(), Observed::default());
        loop {
            match plan(&desired, &seen).unwrap() {
                Plan::Look(looks) => world.see(&looks, &mut seen),
                Plan::Do(mutation) => {
                    seen.busy.insert(format!("p/{}", mutation.part.path()));
                    begun.push(mutation);
                }
                Plan::Wait(_) | Plan::Settled => break,
            }
        }
        if begun.is_empty() {
            break;
        }
        begun.iter().for_each(|mutation| world.apply(mutation));
        rounds.push(begun.iter().map(|mutation| mutation.part.name.clone()).collect::<Vec<_>>());
    }
    let expected = [
        vec!["mgmt-lb-ip", "mgmt-lb-hc", "mgmt-lb-50000-hc", "mgmt-lb-checks", "mgmt-lb-clients"],
        vec!["mgmt-lb-backend", "mgmt-lb-50000-backend"],
        vec!["mgmt-lb-fwd", "mgmt-lb-50000-fwd"],
    ];
    assert_eq!(rounds, expected, "three rounds, as long as the longest of each");
}

#[test]
fn somebody_who_was_a_target_is_no_stranger() {
    let mut world = World::default();
    let former = world.instance("own-cp", "us-central1-a", "10.128.0.10", None);
    let wanted = balancer(json!({"targets": [{"ip": "10.128.0.10", "instanceName": "own-cp"}]}));
    world.finish(&wanted);
    let nobody = balancer(json!({}));
    assert_eq!(world.finish(&nobody), Vec::<String>::new(), "not a machine of the cluster");
    let desired = Desired::new(&nobody, &settings());
    let mut seen = Observed { former: BTreeSet::from([former]), ..Observed::default() };
    let step = loop {
        match plan(&desired, &seen).unwrap() {
            Plan::Look(looks) => world.see(&looks, &mut seen),
            other => break other,
        }
    };
    let Plan::Do(mutation) = step else { panic!("{step:?}") };
    assert!(matches!(mutation.verb, Verb::RemoveInstances(_)));
}

#[test]
fn a_listener_that_is_not_wanted_any_more_goes() {
    let mut world = World::default();
    world.finish(&balancer(json!({"listeners": [{"port": 50000}]})));
    let steps = world.finish(&balancer(json!({})));
    let expected = [
        "set the firewall rule mgmt-lb-checks: TCP 6443 from 35.191.0.0/16, 130.211.0.0/22, 209.85.152.0/22, 209.85.204.0/22",
        "set the firewall rule mgmt-lb-clients: TCP 6443 from 0.0.0.0/0",
        "delete the forwarding rule mgmt-lb-50000-fwd in us-central1",
        "delete the backend service mgmt-lb-50000-backend in us-central1",
        "delete the health check mgmt-lb-50000-hc in us-central1",
    ];
    assert_eq!(steps, expected);
}

#[test]
fn what_google_lacks_is_said() {
    let wanted = balancer(json!({
        "listeners": [{"port": 50001, "targetPort": 50000, "role": "worker"}],
        "options": {"deletionProtection": true, "allowedCIDRs": ["203.0.113.0/24", "2001:db8::/32"]}}));
    let desired = Desired::new(&wanted, &settings());
    assert_eq!(desired.listeners.len(), 1, "a port can't be translated");
    assert!(
        desired.lacking[0].contains("50001") && desired.lacking[1].contains("2001:db8::/32"),
        "{:?}",
        desired.lacking
    );
    assert!(desired.lacking[2].contains("deletionProtection"));
    let (_, clients, _) = desired.firewalls().pop().unwrap();
    assert_eq!(clients["sourceRanges"], json!(["203.0.113.0/24"]));
    let shared = config(json!({"network": "projects/host/global/networks/shared"}));
    let desired = Desired::new(&balancer(json!({})), &Settings::read(&shared).unwrap());
    assert!(
        desired.firewalls().is_empty() && desired.lacking[0].contains("another project"),
        "{:?}",
        desired.lacking
    );
}

/// Google takes a rule without sources for one that lets everybody in.
#[test]
fn networks_that_cannot_come_in_open_nothing() {
    let mut world = World::default();
    world.finish(&balancer(json!({})));
    let only_six = balancer(json!({"options": {"allowedCIDRs": ["2001:db8::/32"]}}));
    let steps = world.finish(&only_six);
    let expected = [
        "make the firewall rule mgmt-lb-nodes: TCP 6443 from the cluster's machines",
        "delete the firewall rule mgmt-lb-clients",
    ];
    assert_eq!(steps, expected, "what was open before is closed");
    let bare = |thing: &Thing| {
        thing.body.get("sourceRanges") == Some(&json!([])) && thing.body.get("sourceTags").is_none()
    };
    assert!(!world.things.iter().any(bare), "a rule without a source lets everybody in");
    let lacking = Desired::new(&only_six, &settings()).lacking;
    assert!(lacking[0].contains("no client is let in"), "{lacking:?}");
}

/// A list of clients does not lock the cluster's own machines out: they come with their tag inside, with their addresses outside.
#[test]
fn machines_of_the_cluster_come_in_beside_the_list() {
    let mut world = World::default();
    world.instance("mgmt-worker-0", "us-central1-a", "10.128.0.20", Some(&owner("w-0")));
    world.thing("mgmt-worker-0").body["networkInterfaces"][0]["accessConfigs"] =
        json!([{"natIP": "203.0.113.9"}]);
    world.instance("somebody", "us-central1-a", "10.128.0.99", None);
    world.thing("somebody").body["networkInterfaces"][0]["accessConfigs"] =
        json!([{"natIP": "203.0.113.66"}]);
    let wanted =
        balancer(json!({"listeners": [{"port": 50000}], "options": {"allowedCIDRs": ["198.51.100.7/32"]}}));
    world.finish(&wanted);
    let nodes = world.thing("mgmt-lb-nodes").body.clone();
    assert_eq!(
        (&nodes["sourceTags"], &nodes["sourceRanges"]),
        (&json!(["mgmt"]), &json!(["203.0.113.9/32"]))
    );
    assert_eq!(nodes["allowed"][0]["ports"], json!(["6443"]), "the Kubernetes API, and nothing else");
    world.things.retain(|thing| thing.part.kind != Kind::Instance);
    let steps = world.finish(&wanted);
    assert_eq!(steps, ["set the firewall rule mgmt-lb-nodes: TCP 6443 from the cluster's machines"]);
    let open = balancer(json!({"listeners": [{"port": 50000}]}));
    assert!(world.finish(&open).contains(&"delete the firewall rule mgmt-lb-nodes".to_owned()));
}

#[test]
fn networks_of_clients_are_sent_without_host_bits() {
    let wanted = balancer(
        json!({"options": {"allowedCIDRs": ["203.0.113.7/24", "203.0.113.0/24", "198.51.100.7/32"]}}),
    );
    let (_, clients, _) = Desired::new(&wanted, &settings()).firewalls().pop().unwrap();
    assert_eq!(clients["sourceRanges"], json!(["203.0.113.0/24", "198.51.100.7/32"]));
}

#[test]
fn an_endpoint_never_turns_inside_out() {
    let mut world = World::default();
    world.finish(&balancer(json!({})));
    let inside = balancer(json!({"options": {"internal": true}}));
    let desired = Desired::new(&inside, &settings());
    let mut seen = Observed::default();
    world.see(&[Look::List(Kind::Address), Look::List(Kind::ForwardingRule)], &mut seen);
    assert_eq!(plan(&desired, &seen).unwrap_err().reason, "EndpointFixed");
    let (address, _) = desired.address_body(None);
    assert_eq!(
        (address["purpose"].as_str(), address["subnetwork"].is_string()),
        (Some("SHARED_LOADBALANCER_VIP"), true)
    );
    let (rule, _) = desired.rule_body(&desired.listeners[0], "10.128.0.200");
    assert_eq!((&rule["ports"], &rule["loadBalancingScheme"]), (&json!(["6443"]), &json!("INTERNAL")));
}

#[test]
fn names_begin_with_the_cluster_and_stay_short() {
    let mut wanted = balancer(json!({}));
    wanted.name = "front".into();
    let part = Desired::new(&wanted, &settings()).address();
    assert_eq!(part.name, "mgmt-front-ip");
    let cluster = "9".repeat(63);
    wanted.spec.cluster_name = cluster.clone();
    wanted.name = butler_api::names::load_balancer_name(&cluster);
    let desired = Desired::new(&wanted, &settings());
    let names: BTreeSet<String> = desired.parts().into_iter().map(|part| part.name).collect();
    assert!(
        names.iter().all(|name| name.len() <= 63 && name.starts_with("b-9") && desired.is_part(name)),
        "{names:?}"
    );
}

#[tokio::test]
async fn a_dry_run_lists_every_resource() {
    let recording = Recording::new(&config(json!({}))).unwrap();
    let hands = recording.infrastructure();
    let balancers = hands.load_balancers.unwrap();
    let Progress::Ready(facts) = balancers.ensure(&balancer(json!({})), None).await.unwrap() else {
        panic!()
    };
    let cp = machine("mgmt-cp-0");
    let Progress::Ready(made) = hands.machines.ensure(&cp, None).await.unwrap() else { panic!() };
    let with = balancer(json!({"targets": [{"ip": made.addresses[0], "instanceName": "mgmt-cp-0"}]}));
    let Progress::Ready(again) = balancers.ensure(&with, None).await.unwrap() else { panic!() };
    assert_eq!(again.endpoint, facts.endpoint);
    assert_eq!(again.listeners[0].registered, [made.addresses[0].to_string()]);
    let kinds: Vec<String> = recording.changes().into_iter().map(|change| change.kind).collect();
    assert_eq!(kinds.iter().filter(|kind| *kind == "load-balancer").count(), 9);
    assert_eq!(balancers.owned(Some("c1c1c1c1-0000")).await.unwrap().len(), 7);
    balancers.delete(&with, None).await.unwrap();
    assert_eq!(balancers.owned(None).await.unwrap(), []);
}
