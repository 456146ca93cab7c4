//! ImageSyncs on the embedded API, with an infrastructure that answers by script.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use butler_api::{ButlerConfig, ClusterBootstrap, ImageSync, ImageSyncPhase, MachineRequest};
use butler_drivers::{Class, Operation, Progress};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use support::{Home, Script, Scripted, cluster_conditions, failure, has, names};

const SCHEMATIC: &str = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515";

async fn home(script: &Arc<Script>, factory: Option<&str>) -> (Home, support::Life) {
    let home = Home::new().await;
    home.provider(json!({})).await;
    let settings: Api<ButlerConfig> = Api::all(home.client.clone());
    let spec = factory.map(|url| json!({"imageFactory": {"url": url}})).unwrap_or(json!({}));
    let object = json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ButlerConfig",
        "metadata": {"name": "butler"}, "spec": spec,
    });
    settings.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    let life = home.start(home.context(Arc::new(Scripted(script.clone()))));
    (home, life)
}

fn cluster(name: &str) -> Value {
    json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ClusterBootstrap",
        "metadata": {"name": name},
        "spec": {
            "provider": "proxmox", "providerRef": {"name": "site"},
            "cluster": {"name": name, "topology": "single-node",
                        "controlPlane": {"replicas": 1, "cpu": 4, "memoryMB": 8192, "diskGB": 40}},
            "network": {"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12", "vip": "10.40.0.200"},
            "talos": {"version": "v1.9.2", "schematic": SCHEMATIC},
        }
    })
}

fn phase(image: &ImageSync) -> Option<ImageSyncPhase> {
    image.status.as_ref().and_then(|status| status.phase)
}

#[tokio::test]
async fn one_image_for_two_clusters_that_goes_with_the_last() {
    let script = Arc::new(Script::default());
    let busy =
        || Ok(Progress::waiting("the download", Some(Operation("UPID:9".into())), Duration::from_millis(5)));
    script.image.lock().extend([busy(), busy()]);
    let (home, life) = home(&script, Some("https://factory.example/")).await;
    for name in ["one", "two"] {
        home.given_secrets(name).await;
        home.create::<ClusterBootstrap>(cluster(name)).await;
        home.until::<MachineRequest>(&format!("{name}-cp-0"), |machine| machine.spec.image.is_some()).await;
    }
    assert_eq!(names::<ImageSync>(&home).await, ["one-ce4c9805-1-9-2"]);
    let image = home.until::<ImageSync>("one-ce4c9805-1-9-2", |image| {
        image.is_ready() && image.owner_references().len() == 2
    });
    let image = image.await;
    let status = image.status.clone().unwrap();
    let url = format!("https://factory.example/image/{SCHEMATIC}/v1.9.2/nocloud-amd64.qcow2");
    assert_eq!(status.artifact_url.as_deref(), Some(url.as_str()));
    assert_eq!((status.provider_task_id, status.observed_generation), (None, Some(1)));
    let asks: Vec<String> = script.called().into_iter().filter(|call| call.starts_with("image ")).collect();
    assert!(asks[1].ends_with(" UPID:9") && asks[2].ends_with(" UPID:9"), "{asks:?}");

    home.api::<ClusterBootstrap>().delete("one", &DeleteParams::default()).await.unwrap();
    home.until_gone::<ClusterBootstrap>("one").await;
    let left =
        home.until::<ImageSync>("one-ce4c9805-1-9-2", |image| image.owner_references().len() == 1).await;
    assert!(left.metadata.deletion_timestamp.is_none(), "the other one still uses it");
    home.api::<ClusterBootstrap>().delete("two", &DeleteParams::default()).await.unwrap();
    home.until_gone::<ClusterBootstrap>("two").await;
    assert_eq!(names::<ImageSync>(&home).await, Vec::<String>::new());
    assert!(script.called().iter().any(|call| call.starts_with("image-delete")));
    life.end().await;
}

#[tokio::test]
async fn an_image_that_fails_stops_the_bootstrap_until_it_is_mended() {
    let script = Arc::new(Script::default());
    script.image.lock().extend((0..500).map(|_| Err(failure(Class::InvalidConfig, "ImageNotFound"))));
    let (home, life) = home(&script, Some("https://factory.example")).await;
    home.given_secrets("one").await;
    home.create::<ClusterBootstrap>(cluster("one")).await;
    let stopped = home
        .until::<ClusterBootstrap>("one", |cb| has(cluster_conditions(cb), "Failed", true, "ImageNotFound"))
        .await;
    let status = stopped.status.unwrap();
    assert_eq!(status.failure_remedy.as_deref(), Some("mend it"));
    assert_eq!(names::<MachineRequest>(&home).await, Vec::<String>::new(), "no machine without its image");
    script.image.lock().clear();
    home.until::<MachineRequest>("one-cp-0", |_| true).await;
    home.until::<ImageSync>("one-ce4c9805-1-9-2", |image| phase(image) == Some(ImageSyncPhase::Ready)).await;
    life.end().await;
}

#[tokio::test]
async fn without_a_factory_the_image_is_skipped_and_that_is_told() {
    let script = Arc::new(Script::default());
    let (home, life) = home(&script, None).await;
    home.given_secrets("one").await;
    home.create::<ClusterBootstrap>(cluster("one")).await;
    home.until::<MachineRequest>("one-cp-0", |machine| machine.spec.image.is_none()).await;
    home.until::<ClusterBootstrap>("one", |cb| {
        has(cluster_conditions(cb), "ImageReady", true, "ImageSyncSkipped")
    })
    .await;
    assert_eq!(names::<ImageSync>(&home).await, Vec::<String>::new());
    life.end().await;
}
