//! MachineRequests on the embedded API, with an infrastructure that answers by script.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use butler_api::{MachinePhase, MachineRequest, ProviderConfig};
use butler_drivers::{Class, MachineFacts, Operation, Progress};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::client::Body;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::{Home, Script, Scripted, failure, has, machine_conditions, machine_request, up};

fn phase(machine: &MachineRequest) -> Option<MachinePhase> {
    machine.status.as_ref().and_then(|status| status.phase)
}

fn working(operation: &str) -> support::Answer<MachineFacts> {
    Ok(Progress::waiting("the clone", Some(Operation(operation.to_owned())), Duration::from_millis(5)))
}

async fn home(script: &Arc<Script>) -> (Home, support::Life) {
    let home = Home::new().await;
    home.provider(json!({})).await;
    let life = home.start(home.context(Arc::new(Scripted(script.clone()))));
    (home, life)
}

#[tokio::test]
async fn a_machine_is_made_followed_by_its_operation_and_removed() {
    let script = Arc::new(Script::default());
    script.ensure.lock().extend([working("UPID:1"), working("UPID:1"), Ok(Progress::Ready(up("10.0.0.5")))]);
    let (home, life) = home(&script).await;
    let made: MachineRequest = home.create(machine_request("m0")).await;
    let machine = home.until::<MachineRequest>("m0", |m| m.is_ready()).await;
    let status = machine.status.clone().unwrap();
    assert_eq!(status.provider_id.as_deref(), Some("pve1/100"));
    assert_eq!(status.ip_address.as_deref(), Some("10.0.0.5"));
    assert_eq!(status.ip_addresses, ["10.0.0.5"]);
    assert_eq!(status.mac_address.as_deref(), Some("bc:24:11:00:00:01"));
    assert_eq!(status.operation, None);
    assert_eq!(status.observed_generation, made.metadata.generation);
    assert!(has(machine_conditions(&machine), "Ready", true, "Running"));
    assert_eq!(machine.finalizers(), ["butler.butlerlabs.dev/machinerequest"]);
    assert_eq!(script.called()[..3], ["ensure m0", "ensure m0 UPID:1", "ensure m0 UPID:1"]);

    script.delete.lock().extend([
        Ok(Progress::waiting("the stop", Some(Operation("UPID:2".to_owned())), Duration::from_millis(5))),
        Err(failure(Class::Retryable, "Locked")),
        Ok(Progress::Ready(())),
    ]);
    home.api::<MachineRequest>().delete("m0", &DeleteParams::default()).await.unwrap();
    home.until_gone::<MachineRequest>("m0").await;
    let deletes: Vec<String> =
        script.called().into_iter().filter(|call| call.starts_with("delete")).collect();
    assert_eq!(deletes, ["delete m0", "delete m0 UPID:2", "delete m0 UPID:2"]);
    life.end().await;
}

#[tokio::test]
async fn obstacles_are_told_by_their_class_and_go_away() {
    let script = Arc::new(Script::default());
    script.ensure.lock().extend((0..200).map(|_| Err(failure(Class::Quota, "StorageFull"))));
    let (home, life) = home(&script).await;
    let _: MachineRequest = home.create(machine_request("m0")).await;
    let full = home
        .until::<MachineRequest>("m0", |m| has(machine_conditions(m), "Degraded", true, "StorageFull"))
        .await;
    assert_eq!(phase(&full), Some(MachinePhase::Creating), "no room is not the end");
    let status = full.status.unwrap();
    assert_eq!(status.failure_reason.as_deref(), Some("StorageFull"));
    assert_eq!(status.failure_message.as_deref(), Some("StorageFull happened; what to do: mend it"));
    script.ensure.lock().clear();
    let up = home.until::<MachineRequest>("m0", MachineRequest::is_ready).await;
    assert!(has(machine_conditions(&up), "Degraded", false, "AsExpected"));
    assert_eq!(up.status.unwrap().failure_reason, None);
    life.end().await;
}

#[tokio::test]
async fn a_conflict_stops_until_something_changes() {
    let script = Arc::new(Script::default());
    script.ensure.lock().push_back(Err(failure(Class::Conflict, "VMNameTaken")));
    let home = Home::new().await;
    home.provider(json!({})).await;
    let mut context = home.context(Arc::new(Scripted(script.clone())));
    context.deadlines.slow_retry = Duration::from_secs(3600);
    context.deadlines.resync = Duration::from_secs(3600);
    let life = home.start(context);
    let _: MachineRequest = home.create(machine_request("m0")).await;
    let failed = home.until::<MachineRequest>("m0", |m| phase(m) == Some(MachinePhase::Failed)).await;
    assert_eq!(failed.status.unwrap().failure_reason.as_deref(), Some("VMNameTaken"));
    assert_eq!(script.called(), ["ensure m0"]);
    // The infrastructure's settings change: that is a reason to try again at once.
    let patch = json!({"spec": {"proxmox": {"storage": "other"}}});
    home.api::<ProviderConfig>().patch("site", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    home.until::<MachineRequest>("m0", MachineRequest::is_ready).await;
    assert_eq!(script.called(), ["ensure m0", "ensure m0"]);
    life.end().await;
}

#[tokio::test]
async fn a_machine_that_vanished_is_told_and_never_made_anew() {
    let script = Arc::new(Script::default());
    let (home, life) = home(&script).await;
    let _: MachineRequest = home.create(machine_request("m0")).await;
    home.until::<MachineRequest>("m0", MachineRequest::is_ready).await;
    // One stale answer does not make a machine vanish.
    script.find.lock().push_back(Ok(None));
    home.until::<MachineRequest>("m0", |m| has(machine_conditions(m), "Degraded", true, "VMNotFound")).await;
    home.until::<MachineRequest>("m0", |m| has(machine_conditions(m), "Degraded", false, "AsExpected")).await;
    script.there.lock().clear();
    let gone = home.until::<MachineRequest>("m0", |m| phase(m) == Some(MachinePhase::Failed)).await;
    let status = gone.status.unwrap();
    assert_eq!(status.failure_reason.as_deref(), Some("VMDeleted"));
    assert!(status.failure_message.unwrap().contains("kubectl delete machinerequest"));
    assert_eq!(script.called().iter().filter(|call| call.starts_with("ensure")).count(), 1);
    // It comes back: so does the report.
    script.there.lock().insert("m0".to_owned(), up("10.0.0.9"));
    home.until::<MachineRequest>("m0", |m| phase(m) == Some(MachinePhase::Running)).await;
    // Switched off: switched on again.
    script.there.lock().insert("m0".to_owned(), MachineFacts { running: false, ..up("10.0.0.9") });
    home.until::<MachineRequest>("m0", |m| has(machine_conditions(m), "Degraded", true, "VMStopped")).await;
    home.until::<MachineRequest>("m0", |m| has(machine_conditions(m), "Degraded", false, "AsExpected")).await;
    assert_eq!(script.called().iter().filter(|call| call.starts_with("ensure")).count(), 2);
    life.end().await;
}

#[tokio::test]
async fn without_credentials_a_deletion_waits_and_says_so() {
    let script = Arc::new(Script::default());
    let (home, life) = home(&script).await;
    let _: MachineRequest = home.create(machine_request("m0")).await;
    home.until::<MachineRequest>("m0", MachineRequest::is_ready).await;
    home.api::<ProviderConfig>().delete("site", &DeleteParams::default()).await.unwrap();
    home.api::<MachineRequest>().delete("m0", &DeleteParams::default()).await.unwrap();
    let stuck = home
        .until::<MachineRequest>("m0", |m| {
            phase(m) == Some(MachinePhase::Deleting)
                && has(machine_conditions(m), "Degraded", true, "ProviderConfigNotFound")
        })
        .await;
    let message = stuck.status.unwrap().failure_message.unwrap();
    assert!(
        message.contains("the machine m0 can't be removed") && message.contains("finalizer"),
        "{message}"
    );
    home.api::<k8s_openapi::api::core::v1::Secret>().delete("creds", &DeleteParams::default()).await.unwrap();
    home.provider(json!({})).await;
    home.until_gone::<MachineRequest>("m0").await;
    assert!(script.there.lock().is_empty());
    life.end().await;
}

#[tokio::test]
async fn a_machine_that_was_never_asked_for_goes_without_a_call() {
    let script = Arc::new(Script::default());
    let home = Home::new().await;
    let life = home.start(home.context(Arc::new(Scripted(script.clone()))));
    let _: MachineRequest = home.create(machine_request("m0")).await;
    home.until::<MachineRequest>("m0", |m| {
        has(machine_conditions(m), "Ready", false, "ProviderConfigNotFound")
    })
    .await;
    home.api::<MachineRequest>().delete("m0", &DeleteParams::default()).await.unwrap();
    home.until_gone::<MachineRequest>("m0").await;
    assert!(script.called().is_empty());
    life.end().await;
}

#[tokio::test]
async fn a_second_life_follows_the_same_operation() {
    let script = Arc::new(Script::default());
    script.ensure.lock().extend((0..1000).map(|_| working("UPID:7")));
    let (home, life) = home(&script).await;
    let _: MachineRequest = home.create(machine_request("m0")).await;
    home.until::<MachineRequest>("m0", |m| {
        m.status.as_ref().is_some_and(|status| status.operation.as_deref() == Some("UPID:7"))
    })
    .await;
    life.end().await;
    script.ensure.lock().clear();
    script.calls.lock().clear();
    let life = home.start(home.context(Arc::new(Scripted(script.clone()))));
    home.until::<MachineRequest>("m0", MachineRequest::is_ready).await;
    assert_eq!(script.called()[0], "ensure m0 UPID:7");
    life.end().await;
}

/// The request, the operation and the facts of a machine are written down, each on its own.
const CONFLICTS: usize = 3;

/// Puts a word of its own into the machine just before its status is written, every other time and as often as it may: the
/// status is then written to what is no longer there.
#[derive(Clone)]
struct Meddler<S> {
    inner: S,
    plain: kube::Client,
    /// Writes so far.
    writes: Arc<AtomicUsize>,
    script: Arc<Script>,
}

impl<S, B> tower_service::Service<http::Request<Body>> for Meddler<S>
where
    S: tower_service::Service<http::Request<Body>, Response = http::Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    B: 'static,
{
    type Response = http::Response<B>;
    type Error = S::Error;
    type Future = futures::future::BoxFuture<'static, Result<http::Response<B>, S::Error>>;

    fn poll_ready(&mut self, context: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let inner = self.inner.clone();
        // The one that was asked whether it is ready.
        let mut this = Meddler { inner: std::mem::replace(&mut self.inner, inner), ..self.clone() };
        Box::pin(async move {
            let writes = request.method() == http::Method::PUT && request.uri().path().ends_with("/status");
            let number = if writes { this.writes.fetch_add(1, Ordering::SeqCst) } else { usize::MAX };
            if number < 2 * CONFLICTS && number.is_multiple_of(2) {
                let api: kube::Api<MachineRequest> =
                    kube::Api::namespaced(this.plain.clone(), support::NAMESPACE);
                let word = json!({"metadata": {"annotations": {"somebody": number.to_string()}}});
                api.patch("m0", &PatchParams::default(), &Patch::Merge(&word)).await.unwrap();
            }
            let answer = this.inner.call(request).await?;
            if writes {
                this.script.calls.lock().push(format!("status {}", answer.status().as_u16()));
            }
            Ok(answer)
        })
    }
}

/// Somebody writes in between: what was decided on the old object is not done before it is written down on the new one.
#[tokio::test]
async fn a_status_that_meets_a_conflict_is_written_again_before_anything_is_done() {
    let script = Arc::new(Script::default());
    script.ensure.lock().extend([working("UPID:1"), working("UPID:1"), Ok(Progress::Ready(up("10.0.0.5")))]);
    let home = Home::new().await;
    home.provider(json!({})).await;
    let meddler = Meddler {
        inner: home.server.service(butler_apiserver::User::new("test", &["system:masters"])),
        plain: home.client.clone(),
        writes: Arc::default(),
        script: script.clone(),
    };
    let client = kube::Client::new(meddler, support::NAMESPACE);
    let context = home.context(Arc::new(Scripted(script.clone())));
    let life = home.start(butler_controllers::Context { client, ..context });
    let _: MachineRequest = home.create(machine_request("m0")).await;
    let machine = home.until::<MachineRequest>("m0", MachineRequest::is_ready).await;
    life.end().await;
    let calls = script.called();
    let refused = calls.iter().filter(|call| *call == "status 409").count();
    assert_eq!(refused, CONFLICTS, "{calls:?}");
    for pair in calls.windows(2).filter(|pair| pair[0] == "status 409") {
        assert!(pair[1].starts_with("status "), "it was acted on what was not written down: {calls:?}");
    }
    let first = calls.iter().position(|call| call.starts_with("ensure"));
    assert!(first > calls.iter().position(|call| call == "status 200"), "{calls:?}");
    assert!(calls.contains(&"ensure m0 UPID:1".to_owned()), "no operation was forgotten: {calls:?}");
    assert!(machine.annotations().contains_key("somebody"), "and nothing of others was lost");
}
