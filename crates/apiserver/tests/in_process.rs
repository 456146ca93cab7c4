//! The API handed to a client in the same process: no socket, no TLS, and a clock that tests can stop.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use butler_apiserver::{Server, User};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::runtime::{reflector, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use std::time::Duration;

async fn server() -> (Server, Client, tempfile::TempDir) {
    let scratch = tempfile::tempdir().expect("a folder");
    let server = Server::in_memory(scratch.path()).await.expect("the server starts");
    let client = Client::new(server.service(User::new("test", &["system:masters"])), "default");
    (server, client, scratch)
}

fn configmap(name: &str, value: &str) -> ConfigMap {
    let mut cm =
        ConfigMap { data: Some([("v".to_string(), value.to_string())].into()), ..ConfigMap::default() };
    cm.metadata.name = Some(name.into());
    cm
}

#[tokio::test(start_paused = true)]
async fn hours_of_watching_pass_in_no_time() {
    let (_server, client, _scratch) = server().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    let before = api.create(&PostParams::default(), &configmap("a", "0")).await.expect("created");
    let rv = before.resource_version().expect("a version");
    let mut events = Box::pin(api.watch(&WatchParams::default().timeout(280), &rv).await.expect("a watch"));
    let changes = tokio::spawn({
        let api = api.clone();
        async move {
            for n in 1..4 {
                tokio::time::sleep(Duration::from_secs(70)).await;
                let patch = json!({"data": {"v": n.to_string()}});
                api.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
            }
        }
    });
    let (mut seen, mut bookmarks) = (Vec::new(), 0);
    while let Some(event) = events.try_next().await.expect("the watch goes on") {
        match event {
            WatchEvent::Modified(cm) => seen.push(cm.data.expect("data")["v"].clone()),
            WatchEvent::Bookmark(_) => bookmarks += 1,
            other => panic!("{other:?}"),
        }
    }
    changes.await.expect("the writer is done");
    assert_eq!(seen, ["1", "2", "3"]);
    assert!(bookmarks >= 3, "a quiet minute ends with a bookmark; there were {bookmarks}");
}

/// Follows `stream` until the reflector's store holds exactly `wanted`.
async fn until(store: &reflector::Store<ConfigMap>, wanted: &[(&str, &str)]) {
    let wanted: Vec<(String, String)> = wanted.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
    for _ in 0..2000 {
        let mut have: Vec<(String, String)> = store
            .state()
            .iter()
            .filter(|cm| cm.name_any() != "kube-root-ca.crt")
            .map(|cm| {
                (cm.name_any(), cm.data.clone().unwrap_or_default().get("v").cloned().unwrap_or_default())
            })
            .collect();
        have.sort();
        if have == wanted {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the reflector never saw {wanted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reflector_survives_a_compaction_in_both_modes() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let (server, client, _scratch) = server().await;
        let api: Api<ConfigMap> = Api::default_namespaced(client);
        api.create(&PostParams::default(), &configmap("a", "1")).await.expect("created");
        let (store, writer) = reflector::store();
        let stream = reflector::reflector(writer, watcher(api.clone(), config));
        // The stream is polled by hand, so that it can be kept from looking while history is lost.
        let mut stream = Box::pin(stream);
        let mut saw_gap = false;
        let mut step = async |times: usize| {
            for _ in 0..times {
                match tokio::time::timeout(Duration::from_secs(5), stream.next()).await {
                    Ok(Some(Err(watcher::Error::WatchError(status)))) => saw_gap |= status.code == 410,
                    Ok(Some(Err(watcher::Error::WatchStartFailed(_)))) => saw_gap = true,
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("a reflector never ends"),
                    Err(_) => return,
                }
            }
        };
        step(10).await;
        until(&store, &[("a", "1")]).await;
        for n in 0..200 {
            let patch = json!({"data": {"v": n.to_string()}});
            api.patch("a", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
        }
        api.create(&PostParams::default(), &configmap("b", "x")).await.expect("created");
        api.delete("a", &DeleteParams::default()).await.expect("deleted");
        server.store().compact(server.store().revision());
        step(500).await;
        until(&store, &[("b", "x")]).await;
        assert!(saw_gap, "the history was forgotten, so the watch had to be told");
    }
}
