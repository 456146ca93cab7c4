//! Readiness as a table: what an object looks like, and what is said of it.

use crate::addons::{Readiness, judge, judge_with_pods};
use serde_json::{Value, json};

fn said(object: &Value) -> String {
    match judge(object) {
        Readiness::Ready => "ready".to_owned(),
        Readiness::NotReady { why } => why,
    }
}

fn object(kind: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": kind, "spec": spec, "status": status,
        "metadata": { "name": "x", "namespace": "y", "generation": 2 },
    })
}

fn condition(kind: &str, name: &str, status: &str) -> Value {
    object(
        kind,
        json!({}),
        json!({ "conditions": [
        { "type": name, "status": status, "reason": "Because", "message": "of that" },
    ] }),
    )
}

#[test]
fn a_table_of_objects() {
    let deployment = |status: Value| object("Deployment", json!({ "replicas": 2 }), status);
    let set = |status: Value| object("DaemonSet", json!({}), status);
    let members = |status: Value| object("StatefulSet", json!({ "replicas": 3 }), status);
    let service = |type_: &str, status: Value| object("Service", json!({ "type": type_ }), status);
    let cases = [
        (deployment(json!({})), "its controller has not looked at it yet"),
        (
            deployment(json!({ "observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2 })),
            "its controller has not looked at it yet",
        ),
        (deployment(json!({ "observedGeneration": 2 })), "0 of 2 replicas available"),
        (
            deployment(
                json!({ "observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 2 }),
            ),
            "1 of 2 replicas are of the newest version",
        ),
        (
            deployment(
                json!({ "observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 2 }),
            ),
            "1 old replicas are still there",
        ),
        (
            deployment(
                json!({ "observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2 }),
            ),
            "ready",
        ),
        (
            deployment(json!({ "observedGeneration": 2, "conditions": [
                { "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota" },
            ] })),
            "0 of 2 replicas available; FailedCreate: exceeded quota",
        ),
        (set(json!({ "observedGeneration": 2 })), "there is no node yet that it should run on"),
        (
            set(json!({ "observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3,
                "numberAvailable": 1 })),
            "1 of 3 pods available",
        ),
        (
            set(json!({ "observedGeneration": 2, "desiredNumberScheduled": 3, "updatedNumberScheduled": 3,
                "numberAvailable": 3 })),
            "ready",
        ),
        (members(json!({ "observedGeneration": 2, "readyReplicas": 1 })), "1 of 3 replicas ready"),
        (members(json!({ "observedGeneration": 2, "readyReplicas": 3, "updatedReplicas": 3 })), "ready"),
        (object("Job", json!({}), json!({})), "0 of 1 completions"),
        (condition("Job", "Complete", "True"), "ready"),
        (condition("Job", "Failed", "True"), "it failed: Because: of that"),
        (condition("CustomResourceDefinition", "Established", "True"), "ready"),
        (object("CustomResourceDefinition", json!({}), json!({})), "not Established yet"),
        (
            condition("CustomResourceDefinition", "NamesAccepted", "False"),
            "its names are not accepted: Because: of that",
        ),
        (condition("APIService", "Available", "False"), "not Available: Because: of that"),
        (condition("Node", "Ready", "False"), "not Ready: Because: of that"),
        (object("Namespace", json!({}), json!({ "phase": "Terminating" })), "phase Terminating, not Active"),
        (object("PersistentVolumeClaim", json!({}), json!({ "phase": "Bound" })), "ready"),
        (service("ClusterIP", json!({})), "ready"),
        (service("LoadBalancer", json!({ "loadBalancer": {} })), "it has no address yet"),
        (
            service("LoadBalancer", json!({ "loadBalancer": { "ingress": [{ "ip": "10.40.0.210" }] } })),
            "ready",
        ),
        (condition("Certificate", "Ready", "False"), "Because: of that"),
        (object("Certificate", json!({}), json!({})), "ready"),
    ];
    for (object, wanted) in cases {
        assert_eq!(said(&object), wanted, "{object}");
    }
}

#[test]
fn something_that_is_going_is_not_ready() {
    let mut going = condition("Certificate", "Ready", "True");
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(said(&going), "it is being deleted");
}

#[test]
fn the_cause_is_looked_for_among_the_pods() {
    let mut workload = object(
        "Deployment",
        json!({ "selector": { "matchLabels": { "app": "a" } } }),
        json!({
            "observedGeneration": 2,
        }),
    );
    let pod = |name: &str, app: &str, namespace: &str, status: Value| {
        json!({ "kind": "Pod", "status": status, "metadata": {
            "name": name, "namespace": namespace, "labels": { "app": app },
        } })
    };
    let waiting = |reason: &str, message: &str| json!({ "containerStatuses": [{ "name": "c", "state": { "waiting": { "reason": reason, "message": message } } }] });
    let pods = [
        pod("other", "b", "y", waiting("ErrImagePull", "not ours")),
        pod("elsewhere", "a", "z", waiting("ErrImagePull", "not ours")),
        pod("new", "a", "y", waiting("ContainerCreating", "")),
        pod("bad", "a", "y", waiting("ImagePullBackOff", "no such image")),
    ];
    let why = |workload: &Value, pods: &[Value]| match judge_with_pods(workload, pods) {
        Readiness::NotReady { why } => why,
        Readiness::Ready => "ready".to_owned(),
    };
    assert_eq!(why(&workload, &pods), "0 of 1 replicas available; pod bad: ImagePullBackOff: no such image");
    assert_eq!(why(&workload, &pods[..3]), "0 of 1 replicas available");
    let unscheduled = pod(
        "p",
        "a",
        "y",
        json!({ "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available" },
    ] }),
    );
    assert!(why(&workload, &[unscheduled]).ends_with("pod p: Unschedulable: 0/3 nodes are available"));
    let crashed = pod(
        "q",
        "a",
        "y",
        json!({ "containerStatuses": [
        { "name": "c", "state": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } } },
    ] }),
    );
    assert!(why(&workload, &[crashed]).ends_with("pod q: container c ended with 137: OOMKilled"));
    workload["status"] =
        json!({ "observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 1, "replicas": 1 });
    assert_eq!(why(&workload, &pods), "ready");
}
