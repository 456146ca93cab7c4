//! Workloads become ready, as their real controllers would have it.

use crate::site::{Site, Wish, apply, cni, condition, node_ready, until};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Node, Pod, Service};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn template(app: &str, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "example.org/app:v1"}]});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"labels": {"app": app}}, "spec": spec})
}

fn workload(kind: &str, name: &str, replicas: u32, more: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "serviceName": name, "selector": {"matchLabels": {"app": name}},
            "template": template(name, more)},
    })
}

fn deployment(name: &str, replicas: u32, more: Value) -> Value {
    let mut made = workload("Deployment", name, replicas, more);
    made["spec"].as_object_mut().unwrap().remove("serviceName");
    made
}

async fn ready_site() -> (Site, kube::Client) {
    let mut site = Site::new();
    site.cluster(1, 2, &Wish::default()).await;
    let client = site.admin("10.40.0.11").await;
    apply(&client, cni()).await;
    for name in ["cp1", "w1", "w2"] {
        node_ready(&client, name, "True").await;
    }
    (site, client)
}

#[tokio::test(flavor = "multi_thread")]
async fn deployments_stateful_sets_and_jobs_become_ready() {
    let (site, client) = ready_site().await;
    apply(&client, deployment("web", 3, json!({}))).await;
    apply(&client, workload("StatefulSet", "db", 2, json!({}))).await;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": "default"},
        "spec": {"template": template("once", json!({"restartPolicy": "Never"}))},
    });
    apply(&client, job).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    until(deployments.clone(), "web", "available", |d| {
        let status = &d["status"];
        condition(d, "Available") == Some("True".into())
            && status["observedGeneration"] == d["metadata"]["generation"]
            && status["updatedReplicas"] == 3
            && status["availableReplicas"] == 3
            && status.get("unavailableReplicas").is_none()
            && condition(d, "Progressing") == Some("True".into())
    })
    .await;
    until(Api::<StatefulSet>::default_namespaced(client.clone()), "db", "ready", |set| {
        set["status"]["readyReplicas"] == 2
            && set["status"]["currentRevision"] == set["status"]["updateRevision"]
    })
    .await;
    until(Api::<Job>::default_namespaced(client.clone()), "once", "complete", |job| {
        condition(job, "Complete") == Some("True".into()) && job["status"]["succeeded"] == 1
    })
    .await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let web = pods.list(&ListParams::default().labels("app=web")).await.unwrap();
    assert_eq!(web.items.len(), 3);
    for pod in &web {
        let node = pod.spec.as_ref().unwrap().node_name.clone().unwrap();
        assert!(node.starts_with('w'), "control planes are tainted: {node}");
        assert_eq!(pod.metadata.owner_references.as_ref().unwrap()[0].kind, "ReplicaSet");
    }
    assert!(pods.get_opt("db-1").await.unwrap().is_some());

    // A new image: a new ReplicaSet takes over.
    let mut changed = deployment("web", 2, json!({}));
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "example.org/app:v2".into();
    apply(&client, changed).await;
    until(deployments, "web", "updated", |d| {
        d["status"]["observedGeneration"] == d["metadata"]["generation"]
            && d["status"]["replicas"] == 2
            && d["status"]["availableReplicas"] == 2
            && d["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
    })
    .await;
    let web = pods.list(&ListParams::default().labels("app=web")).await.unwrap();
    let images: Vec<_> =
        web.iter().map(|p| p.spec.as_ref().unwrap().containers[0].image.clone().unwrap()).collect();
    assert_eq!(images, ["example.org/app:v2", "example.org/app:v2"]);
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_do_more_than_their_namespace_allows_are_refused() {
    let (site, client) = ready_site().await;
    apply(&client, deployment("bold", 1, json!({"hostNetwork": true}))).await;
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    until(deployments.clone(), "bold", "refused", |d| condition(d, "ReplicaFailure") == Some("True".into()))
        .await;
    let found = serde_json::to_value(deployments.get("bold").await.unwrap()).unwrap();
    assert!(found.to_string().contains("violates PodSecurity"), "{found}");
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let told = events.list(&ListParams::default()).await.unwrap();
    assert!(told.iter().any(|e| e.reason.as_deref() == Some("FailedCreate")));
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = json!({"metadata": {"name": "own"}, "spec": {"hostPID": true,
        "containers": [{"name": "c", "image": "x"}]}});
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let refused = pods.create(&PostParams::default(), &pod).await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(s) if s.code == 403), "{refused:?}");
    // The namespace's label decides.
    let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default",
        "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}});
    apply(&client, space).await;
    until(deployments, "bold", "available", |d| condition(d, "Available") == Some("True".into())).await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_images_hold_a_pod_and_a_pool_gives_addresses() {
    let (site, client) = ready_site().await;
    site.clusters.lose_images("broken/");
    let mut broken = deployment("broken", 1, json!({}));
    broken["spec"]["template"]["spec"]["containers"][0]["image"] = "example.org/broken/app:v1".into();
    apply(&client, broken).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut name = String::new();
    for _ in 0..500 {
        let found = pods.list(&ListParams::default().labels("app=broken")).await.unwrap();
        if let Some(pod) = found.items.first() {
            name = pod.metadata.name.clone().unwrap();
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    until(pods, &name, "in trouble", |pod| {
        pod.pointer("/status/containerStatuses/0/state/waiting/reason") == Some(&"ImagePullBackOff".into())
    })
    .await;

    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "ipaddresspools.metallb.io"},
        "spec": {"group": "metallb.io", "scope": "Namespaced",
            "names": {"plural": "ipaddresspools", "singular": "ipaddresspool", "kind": "IPAddressPool"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    apply(&client, crd).await;
    apply(&client, deployment("metallb-controller", 1, json!({}))).await;
    let pool = json!({"apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool",
        "metadata": {"name": "pool", "namespace": "default"},
        "spec": {"addresses": ["10.40.1.10-10.40.1.20"]}});
    apply(&client, pool).await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "lb", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    apply(&client, service).await;
    let services: Api<Service> = Api::default_namespaced(client.clone());
    until(services, "lb", "addressed", |s| {
        s.pointer("/status/loadBalancer/ingress/0/ip") == Some(&"10.40.1.10".into())
    })
    .await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stateful_pods_get_their_volumes_from_a_driver_that_runs() {
    let (site, client) = ready_site().await;
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {"name": "longhorn", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "driver.longhorn.io"});
    apply(&client, class).await;
    let mut set = workload("StatefulSet", "db", 1, json!({}));
    set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    apply(&client, set).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    until(pods, "db-0", "held up", |pod| {
        pod.to_string().contains("pod has unbound immediate PersistentVolumeClaims")
    })
    .await;
    apply(&client, deployment("longhorn-driver", 1, json!({}))).await;
    until(Api::<StatefulSet>::default_namespaced(client.clone()), "db", "ready", |set| {
        set["status"]["readyReplicas"] == 1
    })
    .await;
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_controller_makes_load_balancers_for_machines_that_it_knows() {
    let (site, client) = ready_site().await;
    apply(&client, deployment("cloud-controller-manager", 1, json!({}))).await;
    until(
        Api::<Deployment>::default_namespaced(client.clone()),
        "cloud-controller-manager",
        "ready",
        |deployment| condition(deployment, "Available") == Some("True".into()),
    )
    .await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "lb", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
    apply(&client, service).await;
    let services: Api<Service> = Api::default_namespaced(client.clone());
    // It has no machine that it knows: there is no providerID on any node.
    let early = services.get("lb").await.unwrap();
    assert!(early.status.and_then(|status| status.load_balancer?.ingress).is_none());
    let nodes: Api<Node> = Api::all(client.clone());
    for node in nodes.list(&ListParams::default()).await.unwrap() {
        let name = node.metadata.name.unwrap();
        let excluded = "node.kubernetes.io/exclude-from-external-load-balancers";
        let patch = json!({"spec": {"providerID": format!("cloud://project/zone/{name}")},
            "metadata": {"labels": {excluded: null}}});
        nodes.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
    until(services, "lb", "addressed", |s| {
        s.pointer("/status/loadBalancer/ingress/0/ip") == Some(&"198.18.0.10".into())
    })
    .await;
    site.stop().await;
}
