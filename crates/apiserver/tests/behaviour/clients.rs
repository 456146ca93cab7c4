//! kube-rs as its users write it: reflectors, controllers, finalizers, leases, events, entries.

use crate::fixtures::Crd;
use crate::harness::{Cluster, PATIENCE, eventually, scenario, unique};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event as StoredEvent;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::core::{NamespaceResourceScope, PartialObjectMeta};
use kube::discovery::Discovery;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::finalizer::{Event as Finalizer, finalizer};
use kube::runtime::reflector::{ObjectRef, Store, reflector, store};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

async fn namespaced<K>(c: &Cluster) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(c.client.clone(), &c.namespace().await)
}

fn map(name: &str, value: &str) -> ConfigMap {
    let mut map =
        ConfigMap { data: Some(BTreeMap::from([("key".into(), value.into())])), ..Default::default() };
    map.metadata.name = Some(name.into());
    map.metadata.labels = Some(BTreeMap::from([("of".to_string(), "test".to_string())]));
    map
}

fn widgets_of(c: &Cluster, crd: &Crd) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(&crd.group, "v1", "Widget");
    Api::namespaced_with(
        c.client.clone(),
        &crd.namespace,
        &ApiResource::from_gvk_with_plural(&kind, "widgets"),
    )
}

/// Runs a stream in the background for as long as the test looks at `probe`.
async fn while_running<T>(stream: impl Stream, what: &str, probe: impl AsyncFnMut() -> Option<T>) -> T {
    let mut stream = std::pin::pin!(stream);
    let drive = async { while stream.next().await.is_some() {} };
    tokio::select! {
        found = eventually(what, probe) => found,
        () = drive => panic!("the stream ended before {what}"),
    }
}

fn known(store: &Store<ConfigMap>) -> Vec<(String, String)> {
    let mut known: Vec<_> = store
        .state()
        .iter()
        .map(|map| {
            (map.name_any(), map.data.as_ref().and_then(|d| d.get("key")).cloned().unwrap_or_default())
        })
        .collect();
    known.sort();
    known
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

/// A reflector sees what is there, what changes and what goes.
async fn reflects(c: &Cluster, config: watcher::Config) {
    let maps: Api<ConfigMap> = namespaced(c).await;
    for i in 0..5 {
        maps.create(&PostParams::default(), &map(&format!("m{i}"), "old")).await.unwrap();
    }
    let (reader, writer) = store();
    let stream = reflector(writer, watcher(maps.clone(), config.labels("of=test"))).applied_objects();
    let mut stream = std::pin::pin!(stream);
    let drive = async { while stream.try_next().await.expect("the watcher meets no error").is_some() {} };
    let test = async {
        let see = async |what: &str, expected: &[(&str, &str)]| {
            let expected = pairs(expected);
            eventually(what, async || (known(&reader) == expected).then_some(())).await;
        };
        let all = [("m0", "old"), ("m1", "old"), ("m2", "old"), ("m3", "old"), ("m4", "old")];
        see("the first objects", &all).await;
        maps.patch("m1", &PatchParams::default(), &Patch::Merge(json!({"data": {"key": "new"}})))
            .await
            .unwrap();
        maps.delete("m0", &DeleteParams::default()).await.unwrap();
        maps.patch("m2", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"labels": null}})))
            .await
            .unwrap();
        maps.create(&PostParams::default(), &map("m5", "late")).await.unwrap();
        see("the changes", &[("m1", "new"), ("m3", "old"), ("m4", "old"), ("m5", "late")]).await;
    };
    tokio::select! {
        () = test => {}
        () = drive => panic!("the watcher ended"),
    }
}

#[tokio::test]
async fn a_reflector_lists_and_watches() {
    scenario(async |c| reflects(c, watcher::Config::default().page_size(2)).await).await;
}

#[tokio::test]
async fn a_reflector_streams_its_list() {
    scenario(async |c| reflects(c, watcher::Config::default().streaming_lists()).await).await;
}

#[tokio::test]
async fn a_watcher_starts_again_after_its_watch_timed_out() {
    scenario(async |c| {
        let maps: Api<ConfigMap> = namespaced(c).await;
        let config = watcher::Config::default().labels("of=test").timeout(1);
        let (reader, writer) = store();
        let stream = reflector(writer, watcher(maps.clone(), config)).applied_objects();
        while_running(stream, "an object that came after several time-outs", async || {
            if maps.get_opt("late").await.unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(2500)).await;
                maps.create(&PostParams::default(), &map("late", "x")).await.unwrap();
            }
            (known(&reader) == pairs(&[("late", "x")])).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_metadata_watcher_sees_metadata() {
    scenario(async |c| {
        let maps: Api<ConfigMap> = namespaced(c).await;
        maps.create(&PostParams::default(), &map("m", "x")).await.unwrap();
        let config = watcher::Config::default().labels("of=test");
        let metadata: Api<PartialObjectMeta<ConfigMap>> =
            Api::namespaced(c.client.clone(), maps.namespace().expect("it has a namespace"));
        let mut stream = std::pin::pin!(watcher(metadata, config).applied_objects());
        let seen = tokio::time::timeout(PATIENCE, stream.try_next()).await.unwrap().unwrap().unwrap();
        assert_eq!(seen.name_any(), "m");
        assert_eq!(seen.metadata.labels, Some(BTreeMap::from([("of".to_string(), "test".to_string())])));
    })
    .await;
}

#[tokio::test]
async fn lists_are_paged_by_the_typed_client() {
    scenario(async |c| {
        let maps: Api<ConfigMap> = namespaced(c).await;
        for i in 0..5 {
            maps.create(&PostParams::default(), &map(&format!("m{i}"), "x")).await.unwrap();
        }
        let mut params = ListParams::default().labels("of=test").limit(2);
        let mut seen = Vec::new();
        loop {
            let page = maps.list(&params).await.unwrap();
            seen.extend(page.items.iter().map(ResourceExt::name_any));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => break,
            }
        }
        assert_eq!(seen, ["m0", "m1", "m2", "m3", "m4"]);
        let metadata = maps.list_metadata(&ListParams::default().labels("of=test")).await.unwrap();
        assert_eq!(metadata.items.len(), 5);
    })
    .await;
}

/// What the controller of the test below does: a Secret for each ConfigMap, gone with it.
async fn reconcile(
    map: Arc<ConfigMap>,
    context: Arc<(Api<ConfigMap>, Api<Secret>)>,
) -> Result<Action, kube::Error> {
    let (maps, secrets) = &*context;
    let done = finalizer(maps, "example.com/secret", map, async |event| match event {
        Finalizer::Apply(map) => {
            let mut secret = Secret::default();
            secret.metadata.name = Some(map.name_any());
            secret.metadata.owner_references =
                Some(vec![map.controller_owner_ref(&()).expect("it has a uid")]);
            secret.string_data = map.data.clone();
            let params = PatchParams::apply("behaviour").force();
            secrets.patch(&map.name_any(), &params, &Patch::Apply(&secret)).await?;
            let patch = json!({"metadata": {"annotations": {"example.com/done": "yes"}}});
            maps.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
            Ok(Action::await_change())
        }
        Finalizer::Cleanup(map) => {
            secrets.delete(&map.name_any(), &DeleteParams::default()).await?;
            Ok::<_, kube::Error>(Action::await_change())
        }
    })
    .await;
    match done {
        Ok(action) => Ok(action),
        Err(
            kube::runtime::finalizer::Error::ApplyFailed(error)
            | kube::runtime::finalizer::Error::CleanupFailed(error),
        ) => Err(error),
        Err(other) => panic!("the finalizer could not be set or removed: {other}"),
    }
}

#[tokio::test]
async fn a_controller_with_a_finalizer_runs() {
    scenario(async |c| {
        let namespace = c.namespace().await;
        let maps: Api<ConfigMap> = Api::namespaced(c.client.clone(), &namespace);
        let secrets: Api<Secret> = Api::namespaced(c.client.clone(), &namespace);
        let config = watcher::Config::default().labels("of=test");
        let again =
            |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<_>| Action::requeue(Duration::from_millis(200));
        let controller = Controller::new(maps.clone(), config.clone())
            .owns(secrets.clone(), watcher::Config::default())
            .run(reconcile, again, Arc::new((maps.clone(), secrets.clone())));
        maps.create(&PostParams::default(), &map("a", "1")).await.unwrap();
        while_running(controller, "the controller to come, go and repair", async || {
            let secret = secrets.get_opt("a").await.unwrap()?;
            let value = secret.data.as_ref()?.get("key")?.0.clone();
            assert!(secret.owner_references()[0].controller.unwrap_or_default());
            match value.as_slice() {
                b"1" => drop(
                    maps.patch("a", &PatchParams::default(), &Patch::Merge(json!({"data": {"key": "2"}})))
                        .await,
                ),
                _ => return Some(()),
            }
            None
        })
        .await;
        let made = maps.get("a").await.unwrap();
        assert_eq!(made.finalizers(), ["example.com/secret"]);
        maps.delete("a", &DeleteParams::default()).await.unwrap();
        let controller = Controller::new(maps.clone(), config).run(
            reconcile,
            again,
            Arc::new((maps.clone(), secrets.clone())),
        );
        while_running(controller, "the cleanup", async || {
            let gone =
                maps.get_opt("a").await.unwrap().is_none() && secrets.get_opt("a").await.unwrap().is_none();
            gone.then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_lease_is_held_by_server_side_apply() {
    scenario(async |c| {
        let leases: Api<Lease> = namespaced(c).await;
        let claim = |holder: &str| {
            Patch::Apply(json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"},
                "spec": {
                    "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z",
                },
            }))
        };
        leases.patch("leader", &PatchParams::apply("one"), &claim("one")).await.unwrap();
        let refused = leases.patch("leader", &PatchParams::apply("two"), &claim("two")).await.unwrap_err();
        let kube::Error::Api(status) = refused else { panic!("not an answer of the API: {refused}") };
        assert!(status.is_conflict(), "{status:?}");
        assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"one\": .spec.holderIdentity");
        let held = leases.patch("leader", &PatchParams::apply("two").force(), &claim("two")).await.unwrap();
        assert_eq!(held.spec.unwrap().holder_identity.as_deref(), Some("two"));
    })
    .await;
}

#[tokio::test]
async fn an_event_recorder_publishes_and_counts() {
    scenario(async |c| {
        let namespace = c.namespace().await;
        let maps: Api<ConfigMap> = Api::namespaced(c.client.clone(), &namespace);
        let about = maps.create(&PostParams::default(), &map("m", "x")).await.unwrap().object_ref(&());
        let reporter = Reporter { controller: "example.com/behaviour".into(), instance: Some("one".into()) };
        let recorder = Recorder::new(c.client.clone(), reporter);
        let event = Event {
            type_: EventType::Warning,
            reason: "Odd".into(),
            note: Some("that is odd".into()),
            action: "Looking".into(),
            secondary: None,
        };
        recorder.publish(&event, &about).await.unwrap();
        recorder.publish(&event, &about).await.unwrap();
        let events: Api<StoredEvent> = Api::namespaced(c.client.clone(), &namespace);
        let stored = events.list(&ListParams::default()).await.unwrap().items;
        let stored: Vec<_> = stored.iter().filter(|e| e.reason.as_deref() == Some("Odd")).collect();
        assert_eq!(stored.len(), 1, "the second is counted on the first");
        assert_eq!(stored[0].note.as_deref(), Some("that is odd"));
        assert_eq!(stored[0].series.as_ref().map(|series| series.count), Some(2));
        assert_eq!(stored[0].regarding.as_ref().unwrap().uid, about.uid);
    })
    .await;
}

#[tokio::test]
async fn an_entry_is_inserted_then_modified() {
    scenario(async |c| {
        let maps: Api<ConfigMap> = namespaced(c).await;
        for expected in ["1", "11", "111"] {
            let add = |map: &mut ConfigMap| {
                map.data.get_or_insert_default().entry("n".into()).or_default().push('1');
            };
            let mut entry = maps.entry("e").await.unwrap().or_insert(|| map("e", "x")).and_modify(add);
            entry.commit(&PostParams::default()).await.unwrap();
            assert_eq!(entry.get().data.as_ref().unwrap()["n"], expected);
        }
    })
    .await;
}

#[tokio::test]
async fn a_status_is_applied_and_replaced() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let widgets = widgets_of(c, &crd);
        let spec: DynamicObject = serde_json::from_value(crd.widget("w", json!({"size": 1}))).unwrap();
        widgets.create(&PostParams::default(), &spec).await.unwrap();
        let mut named = json!({
            "apiVersion": crd.api_version(), "kind": "Widget", "metadata": {"name": "w"},
            "status": {"phase": "Ready", "n": 1},
        });
        let params = PatchParams::apply("controller").force();
        let applied = widgets.patch_status("w", &params, &Patch::Apply(&named)).await.unwrap();
        assert_eq!(applied.data["status"], json!({"phase": "Ready", "n": 1}));
        named["status"] = json!({"phase": "Done"});
        let applied = widgets.patch_status("w", &params, &Patch::Apply(&named)).await.unwrap();
        assert_eq!(applied.data["status"], json!({"phase": "Done"}), "what is no longer applied goes");
        let merged = Patch::Merge(json!({"status": {"extra": true}}));
        let merged = widgets.patch_status("w", &PatchParams::default(), &merged).await.unwrap();
        assert_eq!(merged.data["status"], json!({"phase": "Done", "extra": true}));
        let mut whole = merged.clone();
        whole.data["status"] = json!({"phase": "Replaced"});
        let replaced = widgets.replace_status("w", &PostParams::default(), &whole).await.unwrap();
        assert_eq!(replaced.data["status"], json!({"phase": "Replaced"}));
        assert_eq!(replaced.metadata.generation, Some(1));
    })
    .await;
}

#[tokio::test]
async fn a_condition_can_be_awaited() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let crds: Api<CustomResourceDefinition> = Api::all(c.client.clone());
        let name = crd.resource();
        let established = await_condition(crds, &name, conditions::is_crd_established());
        tokio::time::timeout(PATIENCE, established).await.unwrap().unwrap();
        let widgets = widgets_of(c, &crd);
        let object: DynamicObject = serde_json::from_value(crd.widget("w", json!({}))).unwrap();
        let made = widgets.create(&PostParams::default(), &object).await.unwrap();
        let uid = made.uid().unwrap();
        let gone = await_condition(widgets.clone(), "w", conditions::is_deleted(&uid));
        let how = DeleteParams::default();
        let (gone, deleted) = tokio::join!(tokio::time::timeout(PATIENCE, gone), widgets.delete("w", &how));
        gone.unwrap().unwrap();
        deleted.unwrap();
    })
    .await;
}

#[tokio::test]
async fn discovery_finds_kinds_both_ways() {
    scenario(async |c| {
        let crd = c.widgets().await;
        for aggregated in [false, true] {
            eventually("the kind in discovery", async || {
                let discovery = Discovery::new(c.client.clone()).filter(&[crd.group.as_str()]);
                let found = if aggregated { discovery.run_aggregated().await } else { discovery.run().await };
                let found = found.ok()?;
                let (resource, capabilities) =
                    found.resolve_gvk(&GroupVersionKind::gvk(&crd.group, "v1", "Widget"))?;
                assert_eq!(resource.plural, "widgets");
                assert!(capabilities.supports_operation("watch"));
                assert!(capabilities.subresources.iter().any(|(sub, _)| sub.plural.ends_with("status")));
                Some(())
            })
            .await;
        }
    })
    .await;
}

#[tokio::test]
async fn dynamic_objects_keep_what_they_carry() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let widgets = widgets_of(c, &crd);
        let spec: Value = json!({"size": 1, "order": ["b", "a"], "labels": {"x": "y"}});
        let object: DynamicObject = serde_json::from_value(crd.widget("w", spec.clone())).unwrap();
        let made = widgets.create(&PostParams::default(), &object).await.unwrap();
        assert_eq!(made.data["spec"], spec);
        assert_eq!(made.types.as_ref().unwrap().kind, "Widget");
        let reference = ObjectRef::from_obj_with(&made, ApiResource::erase::<ConfigMap>(&()));
        assert_eq!(reference.name, "w");
        let missing = widgets.get(&unique("nope")).await.unwrap_err();
        assert!(matches!(missing, kube::Error::Api(status) if status.is_not_found()));
    })
    .await;
}
