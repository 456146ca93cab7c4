use super::super::clock::Clock;
use super::super::facts::PodSecurity;
use super::super::objects::{self, Action, Objects, label, name, text};
use super::super::schedule;
use super::{Sight, plan};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NOW: &str = "2026-01-01T00:00:00Z";

/// A cluster in the small: what the controllers want is done at once, and every pod with a node is ready.
struct Small {
    objects: Objects,
    names: u32,
    told: Vec<String>,
}

impl Small {
    fn new(nodes: &[(&str, Value)]) -> Self {
        let node = |(name, taints): &(&str, Value)| json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": {"taints": taints}});
        let space = json!({"metadata": {"name": "a"}});
        let account = json!({"metadata": {"name": "default", "namespace": "a"}});
        let objects = Objects::default()
            .with(objects::NODES, nodes.iter().map(node).collect())
            .with(objects::NAMESPACES, vec![space])
            .with(objects::SERVICE_ACCOUNTS, vec![account]);
        Self { objects, names: 0, told: Vec::new() }
    }

    fn with(mut self, collection: &'static str, value: Value) -> Self {
        self.put(collection, value);
        self
    }

    fn put(&mut self, collection: &'static str, mut value: Value) {
        if name(&value).is_empty() {
            self.names += 1;
            let made = format!("{}{}", text(&value, "/metadata/generateName"), self.names);
            value["metadata"]["name"] = made.into();
        }
        if objects::uid(&value).is_empty() {
            value["metadata"]["uid"] = format!("uid-{}", name(&value)).into();
        }
        self.objects = std::mem::take(&mut self.objects).with(collection, vec![value]);
    }

    /// One round of the workload controllers alone.
    fn wanted(&self, security: &PodSecurity) -> Vec<Action> {
        let (refused, clock) = (BTreeMap::new(), Clock::new(0.0, 1, 1));
        plan(&Sight::new(&self.objects, security, &refused, &clock))
    }

    fn apply(&mut self, actions: Vec<Action>) -> bool {
        let some = !actions.is_empty();
        for action in actions {
            match action {
                Action::Create { collection, value } | Action::Put { collection, value } => {
                    self.put(collection, value);
                }
                Action::Delete { collection, key } => self.objects.remove(collection, &key),
                Action::Tell { message, .. } => self.told.push(message),
            }
        }
        some
    }

    fn settle(&mut self, pods_work: bool) {
        for _ in 0..50 {
            let mut actions = self.wanted(&PodSecurity::default());
            actions.extend(schedule::plan(&self.objects, NOW));
            if pods_work {
                actions.extend(self.kubelet());
            }
            if !self.apply(actions) {
                return;
            }
        }
        panic!("the controllers never come to rest");
    }

    fn kubelet(&self) -> Vec<Action> {
        let waits = |pod: &&std::sync::Arc<Value>| {
            !text(pod, "/spec/nodeName").is_empty() && text(pod, "/status/phase") == "Pending"
        };
        let work = |pod: &std::sync::Arc<Value>| {
            let mut value = pod.as_ref().clone();
            let ends = text(pod, "/spec/restartPolicy") == "Never";
            let phase = if ends { "Succeeded" } else { "Running" };
            let ready = if ends { "False" } else { "True" };
            value["status"] = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
            Action::Put { collection: objects::PODS, value }
        };
        self.objects.all(objects::PODS).filter(waits).map(work).collect()
    }

    fn pods(&self) -> Vec<&Value> {
        self.objects.all(objects::PODS).map(AsRef::as_ref).collect()
    }

    fn status(&self, collection: &'static str, name: &str) -> Value {
        self.objects.get(collection, "a", name).unwrap()["status"].clone()
    }
}

fn workload(kind: &str, name: &str, replicas: u32, pod: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": name, "namespace": "a", "generation": 1},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": name}}, "serviceName": name,
            "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
        },
    })
}

fn plain() -> Value {
    json!({"containers": [{"name": "c", "image": "i:1"}]})
}

#[test]
fn a_deployment_rolls_over_without_a_gap() {
    let mut small = Small::new(&[("n1", json!([])), ("n2", json!([]))])
        .with(objects::DEPLOYMENTS, workload("Deployment", "web", 3, plain()));
    small.settle(true);
    let status = small.status(objects::DEPLOYMENTS, "web");
    assert_eq!(status["availableReplicas"], 3);
    assert_eq!(status["conditions"][1]["reason"], "NewReplicaSetAvailable");
    let spread = small.pods().iter().filter(|pod| text(pod, "/spec/nodeName") == "n1").count();
    assert!((1..=2).contains(&spread), "{spread} of three on one of two nodes");

    let mut changed = small.objects.get(objects::DEPLOYMENTS, "a", "web").unwrap().as_ref().clone();
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "i:2".into();
    changed["metadata"]["generation"] = 2.into();
    small.put(objects::DEPLOYMENTS, changed);
    // As long as the new pods don't work, the old ones stay.
    small.settle(false);
    let status = small.status(objects::DEPLOYMENTS, "web");
    assert_eq!((&status["replicas"], &status["availableReplicas"]), (&json!(6), &json!(3)));
    assert_eq!(status["conditions"][1]["reason"], "ReplicaSetUpdated");
    small.settle(true);
    let status = small.status(objects::DEPLOYMENTS, "web");
    assert_eq!((&status["replicas"], &status["updatedReplicas"]), (&json!(3), &json!(3)));
    assert_eq!(status["observedGeneration"], 2);
    assert!(small.pods().iter().all(|pod| text(pod, "/spec/containers/0/image") == "i:2"));
}

#[test]
fn daemons_go_where_taints_let_them() {
    let control_plane = json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]);
    let mut small = Small::new(&[("cp", control_plane), ("w", json!([]))])
        .with(objects::DAEMON_SETS, workload("DaemonSet", "shy", 1, plain()));
    let mut bold = plain();
    bold["tolerations"] = json!([{"operator": "Exists"}]);
    small.put(objects::DAEMON_SETS, workload("DaemonSet", "bold", 1, bold));
    small.settle(true);
    let shy = small.status(objects::DAEMON_SETS, "shy");
    assert_eq!((&shy["desiredNumberScheduled"], &shy["numberReady"]), (&json!(1), &json!(1)));
    let bold = small.status(objects::DAEMON_SETS, "bold");
    assert_eq!((&bold["desiredNumberScheduled"], &bold["numberAvailable"]), (&json!(2), &json!(2)));
    assert!(bold.get("numberUnavailable").is_none());
}

#[test]
fn stateful_pods_come_one_after_the_other() {
    let mut small = Small::new(&[("n1", json!([]))])
        .with(objects::STATEFUL_SETS, workload("StatefulSet", "db", 3, plain()));
    small.settle(false);
    let names: Vec<&str> = small.pods().iter().map(|pod| name(pod)).collect();
    assert_eq!(names, ["db-0"], "the second waits for the first");
    small.settle(true);
    let status = small.status(objects::STATEFUL_SETS, "db");
    assert_eq!((&status["readyReplicas"], &status["updatedReplicas"]), (&json!(3), &json!(3)));
    let mut fewer = small.objects.get(objects::STATEFUL_SETS, "a", "db").unwrap().as_ref().clone();
    fewer["spec"]["replicas"] = 1.into();
    small.put(objects::STATEFUL_SETS, fewer);
    small.settle(true);
    let names: Vec<&str> = small.pods().iter().map(|pod| name(pod)).collect();
    assert_eq!(names, ["db-0"], "the last is the first to go");
}

#[test]
fn a_job_makes_as_many_pods_as_it_needs_and_ends() {
    let mut pod = plain();
    pod["restartPolicy"] = "Never".into();
    let mut job = workload("Job", "once", 1, pod);
    job["spec"]["completions"] = 3.into();
    job["spec"]["parallelism"] = 2.into();
    let mut small = Small::new(&[("n1", json!([]))]).with(objects::JOBS, job);
    small.settle(false);
    assert_eq!(small.pods().len(), 2);
    small.settle(true);
    let status = small.status(objects::JOBS, "once");
    assert_eq!(status["succeeded"], 3);
    assert_eq!(status["conditions"][1]["type"], "Complete");
    assert_eq!(small.pods().len(), 3);
}

#[test]
fn what_a_pod_may_not_do_is_said_once_and_not_tried() {
    let mut pod = plain();
    pod["hostNetwork"] = true.into();
    let talos = PodSecurity { enforce: "baseline".into(), exempt: Vec::new() };
    let mut small =
        Small::new(&[("n1", json!([]))]).with(objects::REPLICA_SETS, workload("ReplicaSet", "bold", 1, pod));
    for _ in 0..3 {
        let actions = small.wanted(&talos);
        small.apply(actions);
    }
    assert_eq!(small.pods().len(), 0);
    assert_eq!(small.told.len(), 1, "{:?}", small.told);
    let status = small.status(objects::REPLICA_SETS, "bold");
    assert_eq!(status["conditions"][0]["reason"], "FailedCreate");
    assert!(text(&status, "/conditions/0/message").contains("violates PodSecurity"), "{status}");
}

#[test]
fn a_pod_without_its_account_waits_for_it() {
    let mut pod = plain();
    pod["serviceAccountName"] = "late".into();
    let mut small =
        Small::new(&[("n1", json!([]))]).with(objects::REPLICA_SETS, workload("ReplicaSet", "r", 1, pod));
    small.settle(true);
    assert_eq!(small.pods().len(), 0);
    small.put(objects::SERVICE_ACCOUNTS, json!({"metadata": {"name": "late", "namespace": "a"}}));
    small.settle(true);
    assert_eq!(small.pods().len(), 1);
    assert_eq!(small.status(objects::REPLICA_SETS, "r")["readyReplicas"], 1);
}

#[test]
fn the_scheduler_says_why_there_is_no_node() {
    let mut apart = plain();
    apart["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "r"}}}]}});
    let mut small =
        Small::new(&[("n1", json!([]))]).with(objects::REPLICA_SETS, workload("ReplicaSet", "r", 2, apart));
    small.settle(true);
    let waiting: Vec<&Value> =
        small.pods().into_iter().filter(|pod| text(pod, "/spec/nodeName").is_empty()).collect();
    assert_eq!(waiting.len(), 1);
    assert_eq!(label(waiting[0], "app"), Some("r"));
    assert_eq!(
        text(waiting[0], "/status/conditions/0/message"),
        "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."
    );
}
