//! Addons against the embedded API: applied, looked at, applied again, refused.

use super::{Cluster, text};
use crate::addons::{
    AddonState, LABEL_ADDON, Part, Sources, StandIns, Target, install, objects, observe, parts, plan,
};
use butler_api::Provider;
use butler_apiserver::{Server, User};
use butler_drivers::{Class, Failure};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

struct World {
    _server: Server,
    client: Client,
    _scratch: tempfile::TempDir,
}

async fn world() -> World {
    let scratch = tempfile::tempdir().expect("a folder");
    let server = Server::in_memory(scratch.path()).await.expect("the server starts");
    let client = Client::new(server.service(User::new("test", &["system:masters"])), "default");
    World { _server: server, client, _scratch: scratch }
}

fn api(client: &Client, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(group, version, kind);
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&gvk, plural))
}

fn in_namespace(
    client: &Client,
    namespace: &str,
    group: &str,
    kind: &str,
    plural: &str,
) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(group, "v1", kind);
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&gvk, plural))
}

/// Installs everything, what is needed first before what needs it.
async fn install_all(target: &Target, cluster: &Cluster) {
    let mut left: Vec<_> =
        plan(&cluster.site()).into_iter().filter(|addon| addon.skipped.is_none()).collect();
    while !left.is_empty() {
        let waiting: Vec<&str> = left.iter().map(|addon| addon.name).collect();
        let (now, later): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|addon| !addon.needs.iter().any(|need| waiting.contains(need)));
        left = later;
        // Side by side, as a controller does: they meet in namespaces that they share.
        let site = cluster.site();
        let calls = now.iter().map(|addon| target.install(addon.name, &site, &StandIns));
        for (done, addon) in futures::future::join_all(calls).await.into_iter().zip(&now) {
            done.unwrap_or_else(|failure| panic!("{}: {failure}", addon.name));
        }
    }
}

/// Generations (or else versions) of all objects of all addons, by path. None of them has a field that its kind lacks.
pub(super) async fn generations(client: &Client, cluster: &Cluster) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for addon in plan(&cluster.site()).iter().filter(|addon| addon.skipped.is_none()) {
        for object in objects(addon.name, &cluster.site(), &StandIns).expect("made") {
            let gvk = crate::addons::kinds::gvk(text(&object, "/apiVersion"), text(&object, "/kind"));
            let (resource, capabilities) =
                kube::discovery::pinned_kind(client, &gvk).await.expect("the kind is served");
            let (namespace, name) = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
            let api: Api<DynamicObject> = match capabilities.scope {
                kube::discovery::Scope::Cluster => Api::all_with(client.clone(), &resource),
                kube::discovery::Scope::Namespaced => {
                    Api::namespaced_with(client.clone(), namespace, &resource)
                }
            };
            let found = api.get(name).await.unwrap_or_else(|error| panic!("{} {name}: {error}", gvk.kind));
            let version = match found.metadata.generation {
                Some(generation) => generation.to_string(),
                None => found.resource_version().expect("a version"),
            };
            all.insert(format!("{} {namespace} {name}", gvk.kind), version);
            let strict = PatchParams::apply("a-stranger").force().validation_strict().dry_run();
            let taken = api.patch(name, &strict, &Patch::Apply(&object)).await;
            taken.unwrap_or_else(|error| panic!("{} {name}: {error}", gvk.kind));
        }
    }
    all
}

/// Versions of everything there is of the kinds that addons are made of.
async fn versions(client: &Client) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for (group, kind, plural) in [
        ("apps", "Deployment", "deployments"),
        ("apps", "DaemonSet", "daemonsets"),
        ("", "Service", "services"),
        ("", "Namespace", "namespaces"),
        ("", "Secret", "secrets"),
        ("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions"),
        ("rbac.authorization.k8s.io", "ClusterRole", "clusterroles"),
    ] {
        for object in
            api(client, group, "v1", kind, plural).list(&ListParams::default()).await.expect("a list")
        {
            let path = format!("{kind} {} {}", object.namespace().unwrap_or_default(), object.name_any());
            all.insert(path, object.resource_version().expect("a version"));
        }
    }
    all
}

/// Says of all workloads that they run.
async fn run_everything(client: &Client) {
    for (kind, plural) in
        [("Deployment", "deployments"), ("DaemonSet", "daemonsets"), ("StatefulSet", "statefulsets")]
    {
        let all = api(client, "apps", "v1", kind, plural);
        for object in all.list(&ListParams::default()).await.expect("a list") {
            let replicas = object.data.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
            let generation = object.metadata.generation.expect("a generation");
            let status = json!({ "status": {
                "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
                "readyReplicas": replicas, "availableReplicas": replicas,
                "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "updatedNumberScheduled": 1,
                "numberReady": 1, "numberAvailable": 1, "numberMisscheduled": 0,
            } });
            let status = prune(kind, status);
            let namespace = object.namespace().expect("a namespace");
            let api = in_namespace(client, &namespace, "apps", kind, plural);
            let done =
                api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(status)).await;
            done.unwrap_or_else(|error| panic!("{kind} {}: {error}", object.name_any()));
        }
    }
    let services = api(client, "", "v1", "Service", "services");
    for service in services.list(&ListParams::default()).await.expect("a list") {
        if service.data.pointer("/spec/type").and_then(Value::as_str) == Some("LoadBalancer") {
            let api =
                in_namespace(client, &service.namespace().expect("a namespace"), "", "Service", "services");
            let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "10.40.0.210" }] } } });
            api.patch_status(&service.name_any(), &PatchParams::default(), &Patch::Merge(status))
                .await
                .expect("done");
        }
    }
}

fn prune(kind: &str, mut status: Value) -> Value {
    if let Some(fields) = status["status"].as_object_mut() {
        fields.retain(|name, _| {
            name == "observedGeneration" || (kind == "DaemonSet") == name.contains("umber")
        });
    }
    status
}

/// Looks again after each change until `wanted` says yes.
async fn until(
    target: &Target,
    cluster: &Cluster,
    wanted: impl Fn(&BTreeMap<String, AddonState>) -> bool,
) -> BTreeMap<String, AddonState> {
    let mut last = BTreeMap::new();
    let looking = async {
        loop {
            last = target.observe(&cluster.site(), &StandIns).await.expect("looked");
            if wanted(&last) {
                return;
            }
            target.changed().await;
        }
    };
    let done = tokio::time::timeout(Duration::from_secs(60), looking).await;
    assert!(done.is_ok(), "it never came: {last:#?}");
    last
}

#[tokio::test]
async fn everything_is_applied_once_and_found_ready() {
    let world = world().await;
    let console =
        json!({ "addons": { "console": { "enabled": true, "ingress": { "enabled": true, "tls": true } } } });
    let cluster = Cluster::new(Provider::Proxmox, console);
    let target = Target::new(world.client.clone());
    let before = target.observe(&cluster.site(), &StandIns).await.expect("looked");
    assert!(before.values().all(|state| *state == AddonState::Absent) && before.len() == 18, "{before:#?}");

    install_all(&target, &cluster).await;
    let applied = target.observe(&cluster.site(), &StandIns).await.expect("looked");
    assert!(applied.values().all(|state| *state != AddonState::Absent), "{applied:#?}");
    assert_eq!(applied["gateway-api"], AddonState::Ready);
    let AddonState::NotReady { object, why } = &applied["cert-manager"] else { panic!("nothing runs yet") };
    assert!(object.starts_with("Deployment cert-manager/cert-manager"), "{object}");
    assert_eq!(why, "its controller has not looked at it yet");

    run_everything(&world.client).await;
    until(&target, &cluster, |states| states.values().all(|state| *state == AddonState::Ready)).await;
    assert_eq!(target.console_url(&cluster.site()).as_deref(), Some("https://butler.butler-mgmt.local"));
    // Whoever comes for the first time sees the same.
    install(&world.client, "kube-vip", &cluster.site(), &StandIns).await.expect("nothing to do");
    let fresh = observe(&world.client, &cluster.site(), &StandIns).await.expect("looked");
    assert!(fresh.values().all(|state| *state == AddonState::Ready), "{fresh:#?}");

    let (once, same) = (versions(&world.client).await, generations(&world.client, &cluster).await);
    assert!(once.len() > 100 && same.len() > 100, "{} {}", once.len(), same.len());
    install_all(&target, &cluster).await;
    assert_eq!(once, versions(&world.client).await, "the second time changes nothing");
    assert_eq!(same, generations(&world.client, &cluster).await);
}

#[tokio::test]
async fn every_stand_in_is_taken() {
    let world = world().await;
    let target = Target::new(world.client.clone());
    let mut taken = BTreeSet::new();
    for provider in Provider::ALL {
        let kamaji = json!({ "addons": {
            "ingress": { "type": "nginx" }, "controlPlaneProvider": { "type": "kamaji" }, "console": { "enabled": true },
            "capi": { "infrastructureProviders": [{ "name": "gcp" }, { "name": "harvester" }, { "name": "nutanix" }] },
        } });
        let cluster = Cluster::new(provider, kamaji);
        for addon in plan(&cluster.site()).iter().filter(|addon| addon.skipped.is_none()) {
            let asked: Vec<String> =
                parts(addon.name, &cluster.site()).into_iter().map(|part| part.addon).collect();
            if asked.is_empty() || !taken.insert(asked) {
                continue;
            }
            let done = target.install(addon.name, &cluster.site(), &StandIns).await;
            done.unwrap_or_else(|failure| panic!("{provider} {}: {failure}", addon.name));
        }
    }
    assert!(taken.len() > 15, "{taken:?}");
}

#[tokio::test]
async fn fields_of_others_are_left_to_them() {
    let world = world().await;
    let cluster = Cluster::proxmox();
    let theirs = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "name": "kube-vip", "namespace": "kube-system" },
        "spec": {
            "selector": { "matchLabels": { "app.kubernetes.io/name": "kube-vip" } },
            "template": {
                "metadata": { "labels": { "app.kubernetes.io/name": "kube-vip" } },
                "spec": { "hostNetwork": false, "containers": [{ "name": "kube-vip", "image": "old:1" }] },
            },
        },
    });
    let sets = in_namespace(&world.client, "kube-system", "apps", "DaemonSet", "daemonsets");
    let params = PatchParams::apply("somebody-else");
    sets.patch("kube-vip", &params, &Patch::Apply(&theirs)).await.expect("applied");
    let target = Target::new(world.client.clone());
    let refused = target.install("kube-vip", &cluster.site(), &StandIns).await.expect_err("a conflict");
    assert_eq!((refused.class, refused.reason.as_str()), (Class::Conflict, "FieldsOwnedByAnother"));
    for word in ["DaemonSet kube-system/kube-vip", "somebody-else", "image", "hostNetwork"] {
        assert!(refused.message.contains(word), "{word}: {}", refused.message);
    }
    let states = target.observe(&cluster.site(), &StandIns).await.expect("looked");
    assert_eq!(states["kube-vip"], AddonState::Absent, "half an addon is no addon");
}

#[tokio::test]
async fn a_refused_object_is_named_with_the_servers_words() {
    /// Gives a Deployment whose selector does not fit, or an object of a kind that nobody serves.
    struct Bad(Value);
    impl Sources for Bad {
        fn objects(&self, _: &Part) -> Result<Vec<Value>, Failure> {
            Ok(vec![self.0.clone()])
        }
        fn describe(&self, part: &Part) -> String {
            part.addon.clone()
        }
    }
    let world = world().await;
    let cluster = Cluster::proxmox();
    let unfit = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "d", "namespace": "flux-system" },
        "spec": {
            "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "labels": { "a": "c" } }, "spec": { "containers": [{ "name": "c", "image": "i" }] } },
        },
    });
    let target = Target::new(world.client.clone());
    let refused = target.install("flux", &cluster.site(), &Bad(unfit)).await.expect_err("refused");
    assert_eq!((refused.class, refused.reason.as_str()), (Class::InvalidConfig, "ObjectRefused"));
    assert!(
        refused.message.contains("Deployment flux-system/d") && refused.message.contains("selector"),
        "{refused}"
    );

    let unknown = json!({ "apiVersion": "example.com/v1", "kind": "Thing", "metadata": { "name": "t" } });
    let refused = target.install("flux", &cluster.site(), &Bad(unknown)).await.expect_err("not served");
    assert_eq!((refused.class, refused.reason.as_str()), (Class::Retryable, "KindOrNamespaceMissing"));

    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "s", "namespace": "flux-system" },
        "data": { "not a key": "aHVzaGh1c2g=" },
    });
    let refused = target.install("flux", &cluster.site(), &Bad(secret)).await.expect_err("refused");
    assert!(
        refused.message.contains("Secret flux-system/s") && !refused.message.contains("hush"),
        "{refused}"
    );
}

#[tokio::test]
async fn what_is_not_wanted_any_more_goes_and_what_was_lost_comes_back() {
    let world = world().await;
    let cluster = Cluster::proxmox();
    let target = Target::new(world.client.clone());
    target.install("cilium", &cluster.site(), &StandIns).await.expect("installed");
    let deployments = in_namespace(&world.client, "kube-system", "apps", "Deployment", "deployments");
    assert!(deployments.get_opt("hubble-ui").await.expect("asked").is_some());
    // Somebody takes an object over: it is theirs from then on, and stays.
    let theirs = json!({ "metadata": { "labels": { LABEL_ADDON: null } } });
    deployments
        .patch("hubble-relay", &PatchParams::default(), &Patch::Merge(&theirs))
        .await
        .expect("taken over");
    let crds = api(
        &world.client,
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    );
    let kept = crds.list(&ListParams::default().labels(LABEL_ADDON)).await.expect("a list").items.len();

    let quiet = Cluster::new(Provider::Proxmox, json!({ "addons": { "cni": { "hubbleEnabled": false } } }));
    let states = target.observe(&quiet.site(), &StandIns).await.expect("looked");
    assert_eq!(states["cilium"], AddonState::Absent, "another spec is another addon");
    target.install("cilium", &quiet.site(), &StandIns).await.expect("installed");
    assert!(deployments.get_opt("hubble-ui").await.expect("asked").is_none(), "it is pruned");
    assert!(deployments.get_opt("hubble-relay").await.expect("asked").is_some(), "it is not ours");
    assert!(deployments.get_opt("cilium-operator").await.expect("asked").is_some());
    assert_eq!(
        crds.list(&ListParams::default().labels(LABEL_ADDON)).await.expect("a list").items.len(),
        kept
    );

    let states = target.observe(&quiet.site(), &StandIns).await.expect("looked");
    assert_ne!(states["cilium"], AddonState::Absent);
    deployments.delete("cilium-operator", &Default::default()).await.expect("deleted");
    until(&target, &quiet, |states| states["cilium"] == AddonState::Absent).await;
    target.install("cilium", &quiet.site(), &StandIns).await.expect("installed");
    let states = target.observe(&quiet.site(), &StandIns).await.expect("looked");
    assert_ne!(states["cilium"], AddonState::Absent);
}

#[tokio::test]
async fn nodes_are_changed_as_far_as_they_need_it() {
    let world = world().await;
    let nodes = api(&world.client, "", "v1", "Node", "nodes");
    let label = "node.kubernetes.io/exclude-from-external-load-balancers";
    let node = |name: &str, address: &str| {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { label: "" } },
            "status": { "addresses": [{ "type": "InternalIP", "address": address }] },
        });
        serde_json::from_value::<DynamicObject>(node).expect("a node")
    };
    let cluster = Cluster::new(Provider::Aws, json!({ "cluster": { "topology": "single-node" } }));
    let target = Target::new(world.client.clone());
    nodes.create(&PostParams::default(), &node("ip-10-40-0-10", "10.40.0.10")).await.expect("joined");
    until(&target, &cluster, |states| states["node-provider-ids"] == AddonState::Absent).await;
    target.install("node-provider-ids", &cluster.site(), &StandIns).await.expect("changed");
    let states = target.observe(&cluster.site(), &StandIns).await.expect("looked");
    let AddonState::NotReady { object, .. } = &states["node-provider-ids"] else {
        panic!("one node is missing")
    };
    assert_eq!(object, "Node butler-mgmt-worker-0");
    let first = nodes.get("ip-10-40-0-10").await.expect("is there");
    assert_eq!(first.data["spec"]["providerID"], "aws:///zone/butler-mgmt-cp-0");

    nodes.create(&PostParams::default(), &node("butler-mgmt-worker-0", "10.40.0.99")).await.expect("joined");
    until(&target, &cluster, |states| states["node-provider-ids"] == AddonState::Absent).await;
    target.install("node-provider-ids", &cluster.site(), &StandIns).await.expect("changed");
    let states = target.observe(&cluster.site(), &StandIns).await.expect("looked");
    assert_eq!(states["node-provider-ids"], AddonState::Ready);

    let single = Cluster::new(Provider::Proxmox, json!({ "cluster": { "topology": "single-node" } }));
    target.install("metallb", &single.site(), &StandIns).await.expect("installed");
    target.install("metallb-pool", &single.site(), &StandIns).await.expect("installed");
    for node in nodes.list(&ListParams::default()).await.expect("a list") {
        assert!(!node.labels().contains_key(label), "a single node takes traffic");
    }
    let states = target.observe(&single.site(), &StandIns).await.expect("looked");
    assert_eq!(states["metallb-pool"], AddonState::Ready);
}

#[tokio::test]
async fn the_platform_and_its_exposure_share_one_config() {
    let world = world().await;
    let change = json!({ "controlPlaneExposure": { "mode": "Ingress", "hostname": "*.k8s.example.com" } });
    let cluster = Cluster::new(Provider::Proxmox, change);
    let target = Target::new(world.client.clone());
    for addon in ["butler-crds", "butler-config-exposure", "butler", "butler-config-exposure", "butler"] {
        target.install(addon, &cluster.site(), &StandIns).await.expect(addon);
    }
    let configs = api(&world.client, "butler.butlerlabs.dev", "v1alpha1", "ButlerConfig", "butlerconfigs");
    let config = configs.get("butler").await.expect("is there").data;
    assert_eq!(config["spec"]["controlPlaneExposure"]["mode"], "Ingress");
    assert_eq!(config["spec"]["defaultProviderConfigRef"]["name"], "butler-mgmt-provider");
    assert_eq!(config["status"], json!({ "controlPlaneExposureMode": "Ingress", "tcpProxyRequired": true }));
}

#[tokio::test]
async fn nothing_is_asked_while_nothing_changes() {
    /// Counts how often addons are made.
    struct Counting(Mutex<usize>);
    impl Sources for Counting {
        fn objects(&self, part: &Part) -> Result<Vec<Value>, Failure> {
            *self.0.lock().expect("a lock") += 1;
            StandIns.objects(part)
        }
        fn describe(&self, part: &Part) -> String {
            part.addon.clone()
        }
    }
    let world = world().await;
    let cluster = Cluster::proxmox();
    let target = Target::new(world.client.clone());
    let counting = Counting(Mutex::new(0));
    target.observe(&cluster.site(), &counting).await.expect("looked");
    let once = *counting.0.lock().expect("a lock");
    target.observe(&cluster.site(), &counting).await.expect("looked");
    assert_eq!(*counting.0.lock().expect("a lock"), once);
    let woken = tokio::time::timeout(Duration::ZERO, target.changed()).await;
    assert!(woken.is_err(), "nothing has changed");
    target.install("flux", &cluster.site(), &counting).await.expect("installed");
    target.changed().await;
}
