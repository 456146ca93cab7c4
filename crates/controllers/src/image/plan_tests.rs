//! Every branch of the image's plan, and its names.

use super::super::observe::Observed;
use super::*;
use crate::external::{Memory, REQUESTED};
use crate::{ImageFacts, Owner};
use butler_api::ImageSyncStatus;
use butler_api::names::FINALIZER_IMAGE_SYNC;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

fn fresh() -> Observed {
    let mut object: ImageSync = serde_json::from_value(json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ImageSync",
        "metadata": {"name": "i0", "namespace": "n", "uid": "u0", "generation": 1},
        "spec": {"factoryRef": {"schematicID": "ce4c980550dd2ab1", "version": "v1.9.2"},
                 "providerConfigRef": {"name": "p"}},
    }))
    .unwrap();
    object.metadata.finalizers = Some(vec![FINALIZER_IMAGE_SYNC.to_owned()]);
    Observed {
        now: at(0),
        object,
        owner: Owner { cluster: "c".into(), cluster_uid: "cu".into(), object_uid: "u0".into() },
        factory: Some("https://factory.example/".into()),
        shared: false,
        unusable: None,
        memory: Memory::default(),
        deadlines: Deadlines::default(),
    }
}

fn requested(mut observed: Observed) -> Observed {
    let condition = crate::report::condition(REQUESTED, true, "InfrastructureAsked", "", at(-9), Some(1));
    observed.object.status.get_or_insert_with(ImageSyncStatus::default).conditions.push(condition);
    observed
}

fn deleting(mut observed: Observed) -> Observed {
    observed.object.metadata.deletion_timestamp = Some(Time(at(-1)));
    observed
}

fn after(mut observed: Observed, last: Outcome<ImageFacts>, next: i64) -> Observed {
    (observed.memory.last, observed.memory.next) = (Some(last), Some(at(next)));
    observed
}

#[test]
fn the_table_of_plans() {
    let no_finalizer = || {
        let mut observed = fresh();
        observed.object.metadata.finalizers = None;
        observed
    };
    let mut proxied = fresh();
    proxied.object.spec.transfer_mode = TransferMode::Proxy;
    let mut unusable = fresh();
    unusable.unusable = Some(Failure::new(Class::Auth, "NoSecret", "there is none", "make one"));
    let mut stuck = requested(deleting(fresh()));
    stuck.unusable.clone_from(&unusable.unusable);
    let mut written = Observed { factory: None, ..requested(fresh()) };
    written.object.status.as_mut().unwrap().artifact_url = Some("https://old/x.qcow2".into());
    let working =
        || Outcome::Working { operation: Some("t".into()), waiting_for: "the download".into(), known: None };
    let failed = |class| Outcome::Failed(Failure::new(class, "Why", "it failed", ""));
    let table = [
        ("new", no_finalizer(), "AddFinalizer"),
        ("kept", fresh(), "Ensure"),
        ("proxy", proxied, "stop TransferModeNotBuilt"),
        ("no factory", Observed { factory: None, ..fresh() }, "stop ImageFactoryMissing"),
        ("no factory any more", written, "Ensure"),
        ("no credentials", unusable, "stop NoSecret"),
        ("on its way", after(fresh(), working(), 5), "wait for the download"),
        ("on its way, due", after(fresh(), working(), 0), "Ensure"),
        ("there", after(fresh(), Outcome::Ready(ImageFacts::default()), 5), "done"),
        ("hiccup", after(fresh(), failed(Class::Retryable), 5), "wait for it failed"),
        ("impossible", after(fresh(), failed(Class::InvalidConfig), 5), "stop Why"),
        ("deleted, never asked for", deleting(fresh()), "RemoveFinalizer"),
        ("deleted", requested(deleting(fresh())), "Delete"),
        (
            "deleted, used by another",
            Observed { shared: true, ..requested(deleting(fresh())) },
            "RemoveFinalizer",
        ),
        ("deleted, no credentials", stuck, "stop NoSecret"),
        ("going", after(requested(deleting(fresh())), working(), 5), "wait for the download"),
        ("gone", after(requested(deleting(fresh())), Outcome::Gone, 0), "RemoveFinalizer"),
        ("done", deleting(no_finalizer()), "done"),
    ];
    for (name, observed, expected) in table {
        assert_eq!(plan(&observed).word(), expected, "{name}");
    }
}

#[test]
fn names_and_urls_are_as_documented() {
    let mut object = fresh().object;
    assert_eq!(image_name(&object), "nocloud-v1-9-2-amd64-ce4c9805-butler");
    assert_eq!(
        artifact_url("https://factory.example/", &object.spec),
        "https://factory.example/image/ce4c980550dd2ab1/v1.9.2/nocloud-amd64.qcow2"
    );
    object.spec.display_name = Some("mine".into());
    assert_eq!(image_name(&object), "mine");
    object.spec.display_name = None;
    object.spec.factory_ref.arch = Architecture::Arm64;
    object.spec.factory_ref.platform = "Weird_".repeat(20);
    assert!(image_name(&object).len() <= 63);
}

#[test]
fn the_sum_that_was_asked_for_counts_and_is_told() {
    let mut observed = requested(fresh());
    assert_eq!(observed.sha256(), None);
    observed.object.status.as_mut().unwrap().artifact_sha256 = Some("cd".into());
    assert_eq!(observed.sha256().as_deref(), Some("cd"), "as it was found");
    observed.object.spec.sha256 = Some("AB".repeat(32));
    assert_eq!(observed.sha256(), Some("ab".repeat(32)), "as it was asked for, in small letters");
    let there = after(observed, Outcome::Ready(ImageFacts::default()), 5);
    let status = super::super::status::status(&there, &plan(&there));
    assert_eq!(status.artifact_sha256, Some("ab".repeat(32)));
}

#[test]
fn pauses_follow_the_outcome() {
    let deadlines = Deadlines::default();
    let working = Outcome::Working { operation: None, waiting_for: String::new(), known: None };
    let asked = Some(Duration::from_millis(30));
    assert_eq!(pause_after(&working, asked, 0, &deadlines), Duration::from_millis(30));
    assert_eq!(pause_after(&Outcome::Gone, None, 0, &deadlines), Duration::ZERO);
    assert!(pause_after(&Outcome::Ready(ImageFacts::default()), None, 0, &deadlines) > deadlines.resync);
}
