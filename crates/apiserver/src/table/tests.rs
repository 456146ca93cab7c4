//! Rows of objects, compared with what a real server showed of the same objects.

use super::*;
use crate::builtin;
use crate::resource::{CrdFacts, SchemaSource};
use std::sync::Arc;

fn now() -> Timestamp {
    "2026-11-15T18:00:00Z".parse().unwrap()
}

fn find(group: &str, kind: &str) -> Arc<Resource> {
    builtin::resources().into_iter().find(|r| r.group == group && r.kind == kind).unwrap()
}

fn cells(group: &str, kind: &str, mut object: Value) -> Value {
    object["metadata"]["name"] = json!("a");
    object["metadata"]["creationTimestamp"] = json!("2026-11-15T17:50:00Z");
    let resource = find(group, kind);
    let options = TableOptions {
        include: IncludeObject::None,
        list_metadata: &json!({"resourceVersion": "5"}),
        with_columns: true,
        now: now(),
    };
    let table = render(&resource, std::iter::once(&object), &options);
    let cells = table["rows"][0]["cells"].clone();
    assert_eq!(
        cells.as_array().unwrap().len(),
        table["columnDefinitions"].as_array().unwrap().len(),
        "{kind}: one cell for each column"
    );
    cells
}

#[test]
fn every_kind_has_a_cell_for_each_column_even_of_an_empty_object() {
    for resource in builtin::resources().iter().filter(|r| r.verbs.contains(&"list")) {
        cells(&resource.group, &resource.kind, json!({}));
    }
}

#[test]
fn tables_carry_metadata_object_or_nothing() {
    let resource = find("", "ConfigMap");
    let object =
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let table = |include: IncludeObject, with_columns: bool| {
        let metadata = json!({"resourceVersion": "5", "continue": "x", "remainingItemCount": 3, "junk": 1});
        let options = TableOptions { include, list_metadata: &metadata, with_columns, now: now() };
        render(&resource, std::iter::once(&object), &options)
    };
    let metadata = table(IncludeObject::Metadata, true);
    assert_eq!(metadata["kind"], "Table");
    assert_eq!(
        metadata["metadata"],
        json!({"resourceVersion": "5", "continue": "x", "remainingItemCount": 3})
    );
    assert_eq!(
        metadata["rows"][0]["object"],
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}})
    );
    assert_eq!(metadata["rows"][0]["cells"], json!(["a", 1, "<unknown>"]));
    assert_eq!(table(IncludeObject::Object, true)["rows"][0]["object"], object);
    let none = table(IncludeObject::None, false);
    assert_eq!(none["rows"][0]["object"], Value::Null);
    assert_eq!(none["columnDefinitions"], Value::Null);
    assert_eq!(IncludeObject::parse("Foo"), None);
}

#[test]
fn custom_columns_print_as_the_real_server_prints_them() {
    let column = |name: &str, ty: &str, path: &str| Column {
        name: name.into(),
        ty: ty.into(),
        format: String::new(),
        description: String::new(),
        priority: 0,
        json_path: path.into(),
    };
    let mut resource = Resource {
        group: "x.y".into(),
        version: "v1".into(),
        plural: "widgets".into(),
        singular: "widget".into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        namespaced: true,
        short_names: vec![],
        categories: vec![],
        verbs: vec![],
        has_status: false,
        scale: None,
        columns: vec![
            column("S", "string", ".spec.s"),
            column("I", "integer", ".spec.i"),
            column("N", "number", ".spec.n"),
            column("B", "boolean", ".spec.b"),
            column("D", "date", ".spec.d"),
            column("Obj", "string", ".spec.o"),
            column("Arr", "string", ".spec.a"),
            column("Star", "string", ".spec.a[*]"),
            column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
            column("SAsInt", "integer", ".spec.s"),
            column("IAsStr", "string", ".spec.i"),
            column("NAsInt", "integer", ".spec.n"),
            column("SDate", "date", ".spec.s"),
        ],
        selectable_fields: vec![],
        schema: SchemaSource::Ready(Arc::default()),
        crd: Some(CrdFacts { crd_name: "widgets.x.y".into(), storage_version: "v1".into() }),
        deprecation_warning: None,
    };
    let full = json!({"metadata": {"name": "full", "creationTimestamp": "2026-11-15T17:59:58Z"},
        "spec": {"s": "text", "i": 5, "n": 1.5, "b": true, "d": "2020-01-01T00:00:00Z", "o": {"x": 1, "y": [1, "z"]},
            "a": ["p", "q"]},
        "status": {"conditions": [{"type": "Other", "status": "No"}, {"type": "Ready", "status": "True"}]}});
    let empty = json!({"metadata": {"name": "empty", "creationTimestamp": "2026-11-15T17:59:58Z"},
        "spec": {"a": [], "d": "junk"}});
    let list_metadata = json!({});
    let options = TableOptions {
        include: IncludeObject::None,
        list_metadata: &list_metadata,
        with_columns: true,
        now: now(),
    };
    let table = render(&resource, [&full, &empty].into_iter(), &options);
    assert_eq!(
        table["rows"][0]["cells"],
        json!([
            "full",
            "text",
            5,
            1.5,
            true,
            "6y320d",
            "{\"x\":1,\"y\":[1,\"z\"]}",
            "[\"p\",\"q\"]",
            "p",
            "True",
            null,
            "5",
            1,
            "<invalid>"
        ])
    );
    assert_eq!(
        table["rows"][1]["cells"],
        json!(["empty", null, null, null, null, "<invalid>", null, "[]", null, null, null, null, null, null])
    );
    resource.columns.clear();
    let table = render(&resource, std::iter::once(&full), &options);
    assert_eq!(table["rows"][0]["cells"], json!(["full", "2s"]));
    assert_eq!(table["columnDefinitions"][1]["type"], "date");
}

#[test]
fn core_kinds() {
    assert_eq!(cells("", "Namespace", json!({"status": {"phase": "Active"}})), json!(["a", "Active", "10m"]));
    assert_eq!(
        cells("", "Secret", json!({"type": "Opaque", "data": {"x": "", "y": ""}})),
        json!(["a", "Opaque", 2, "10m"])
    );
    assert_eq!(
        cells("coordination.k8s.io", "Lease", json!({"spec": {"holderIdentity": "me"}})),
        json!(["a", "me", "10m"])
    );
    assert_eq!(
        cells("rbac.authorization.k8s.io", "ClusterRole", json!({})),
        json!(["a", "2026-11-15T17:50:00Z"])
    );
    assert_eq!(
        cells(
            "rbac.authorization.k8s.io",
            "RoleBinding",
            json!({"roleRef": {"kind": "Role", "name": "r"}, "subjects": [
            {"kind": "User", "name": "u"}, {"kind": "User", "name": "v"}, {"kind": "Group", "name": "g"},
            {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]})
        ),
        json!(["a", "Role/r", "10m", "u, v", "g", "n/s"])
    );
    assert_eq!(
        cells(
            "",
            "Event",
            json!({"involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "f"}, "type": "Normal",
            "reason": "R", "message": " m \n", "firstTimestamp": "2026-11-15T17:55:00Z",
            "lastTimestamp": "2026-11-15T17:59:00Z", "count": 3, "source": {"component": "c", "host": "h"}})
        ),
        json!(["60s", "Normal", "R", "pod/p", "f", "c, h", "m", "5m", 3, "a"])
    );
    assert_eq!(
        cells(
            "events.k8s.io",
            "Event",
            json!({"regarding": {"kind": "Pod", "name": "p"}, "type": "Normal",
            "reason": "R", "note": "m", "eventTime": "2026-11-15T17:55:00.000000Z", "reportingController": "c"})
        ),
        json!(["5m", "Normal", "R", "pod/p", "", "c", "m", "5m", 1, "a"])
    );
}

#[test]
fn nodes_and_services() {
    assert_eq!(
        cells(
            "",
            "Node",
            json!({
            "metadata": {"labels": {"node-role.kubernetes.io/control-plane": "", "kubernetes.io/role": "x"}},
            "spec": {"unschedulable": true},
            "status": {"conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "nodeInfo": {"kubeletVersion": "v1.36.4", "osImage": "Talos", "kernelVersion": "6.1",
                    "architecture": "amd64", "containerRuntimeVersion": "containerd://2"}}})
        ),
        json!([
            "a",
            "Ready,SchedulingDisabled",
            "control-plane,x",
            "10m",
            "v1.36.4",
            "10.0.0.1",
            "<none>",
            "Talos",
            "6.1 (amd64)",
            "containerd://2"
        ])
    );
    assert_eq!(cells("", "Node", json!({}))[1], "Unknown");
    let service = |spec: Value, status: Value| cells("", "Service", json!({"spec": spec, "status": status}));
    assert_eq!(
        service(
            json!({"type": "ClusterIP", "clusterIPs": ["10.96.0.1"], "selector": {"a": "b"},
            "ports": [{"port": 81, "protocol": "TCP"}]}),
            json!({})
        ),
        json!(["a", "ClusterIP", "10.96.0.1", "<none>", "81/TCP", "10m", "a=b"])
    );
    assert_eq!(
        service(
            json!({"type": "LoadBalancer", "clusterIPs": ["10.96.0.1"],
            "ports": [{"port": 81, "protocol": "TCP", "nodePort": 30001}]}),
            json!({})
        ),
        json!(["a", "LoadBalancer", "10.96.0.1", "<pending>", "81:30001/TCP", "10m", "<none>"])
    );
    assert_eq!(
        service(json!({"type": "LoadBalancer"}), json!({"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}))
            [3],
        "1.1.1.1"
    );
    assert_eq!(
        cells(
            "discovery.k8s.io",
            "EndpointSlice",
            json!({"addressType": "IPv4", "ports": [{"port": 80}],
            "endpoints": [{"addresses": ["1.1.1.1"]}, {"addresses": ["1.1.1.2"]}, {"addresses": ["1.1.1.3"]},
                {"addresses": ["1.1.1.4"]}]})
        ),
        json!(["a", "IPv4", "80", "1.1.1.1,1.1.1.2,1.1.1.3 + 1 more...", "10m"])
    );
    assert_eq!(
        cells("networking.k8s.io", "Ingress", json!({"spec": {"rules": [{"host": "x.y"}], "tls": [{}]}})),
        json!(["a", "<none>", "x.y", "", "80, 443", "10m"])
    );
}

#[test]
fn workloads() {
    let template =
        json!({"spec": {"containers": [{"name": "c", "image": "x"}, {"name": "d", "image": "y"}]}});
    assert_eq!(
        cells(
            "apps",
            "Deployment",
            json!({"spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"},
            "matchExpressions": [{"key": "k", "operator": "In", "values": ["1", "2"]}]}, "template": template},
            "status": {"readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1}})
        ),
        json!(["a", "1/3", 2, 1, "10m", "c,d", "x,y", "a=b,k in (1,2)"])
    );
    assert_eq!(
        cells("apps", "DaemonSet", json!({"spec": {"template": template}, "status": {"numberReady": 2}})),
        json!(["a", 0, 0, 2, 0, 0, "<none>", "10m", "c,d", "x,y", "<none>"])
    );
    assert_eq!(
        cells(
            "batch",
            "Job",
            json!({"spec": {"completions": 2, "template": template},
            "status": {"succeeded": 1, "startTime": "2026-11-15T17:55:00Z"}})
        ),
        json!(["a", "Running", "1/2", "5m", "10m", "c,d", "x,y", "<none>"])
    );
    assert_eq!(
        cells("batch", "CronJob", json!({"spec": {"schedule": "* * * * *", "suspend": false}})),
        json!(["a", "* * * * *", "<none>", "False", 0, "<none>", "10m", "", "", "<none>"])
    );
}

#[test]
fn pods_tell_their_state() {
    let pod =
        |status: Value| cells("", "Pod", json!({"spec": {"containers": [{"name": "c"}]}, "status": status}));
    assert_eq!(
        pod(json!({"phase": "Pending"})),
        json!(["a", "0/1", "Pending", "0", "10m", "<none>", "<none>", "<none>", "<none>"])
    );
    assert_eq!(
        pod(
            json!({"phase": "Running", "podIPs": [{"ip": "10.1.1.1"}], "containerStatuses": [{"name": "c", "ready": true,
            "restartCount": 2, "state": {"running": {}}, "lastState": {"terminated": {"finishedAt": "2026-11-15T17:58:00Z"}}}]})
        ),
        json!(["a", "1/1", "Running", "2 (2m ago)", "10m", "10.1.1.1", "<none>", "<none>", "<none>"])
    );
    let waiting = json!({"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 0,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
    assert_eq!(pod(waiting)[2], "CrashLoopBackOff");
    let init = json!({"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"terminated": {"exitCode": 3}}}]});
    assert_eq!(pod(init)[2], "Init:ExitCode:3");
    let done = json!({"phase": "Succeeded", "containerStatuses": [{"name": "c",
        "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]});
    assert_eq!(pod(done)[2], "Completed");
}

#[test]
fn storage() {
    assert_eq!(
        cells(
            "",
            "PersistentVolumeClaim",
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "v",
            "storageClassName": "s", "volumeMode": "Filesystem"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}})
        ),
        json!(["a", "Bound", "v", "1Gi", "RWO", "s", "<unset>", "10m", "Filesystem"])
    );
    assert_eq!(
        cells(
            "storage.k8s.io",
            "StorageClass",
            json!({
            "metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"})
        ),
        json!(["a (default)", "p", "Delete", "Immediate", false, "10m"])
    );
}
