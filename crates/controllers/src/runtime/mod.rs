//! Runs the controllers until they are told to stop, and wakes them: by changes of their objects, of what those refer to,
//! and by background tasks that have ended.

mod lease;
mod memory;
mod scope;
mod tasks;

pub(crate) use memory::Memories;
pub use scope::Scope;
pub(crate) use tasks::Tasks;

use crate::error::{ReconcileError, RunError};
use crate::external::Memory;
use crate::object::Key;
use crate::provider::Connections;
use crate::report::Note;
use crate::{Context, ImageFacts, LoadBalancerFacts, MachineFacts};
use crate::{bootstrap, deadlines, image, loadbalancer, machine};
use butler_api::{
    ButlerConfig, ClusterBootstrap, ImageSync, LoadBalancerRequest, MachineRequest, ProviderConfig,
    ProviderReference,
};
use futures::channel::mpsc;
use futures::{Stream, StreamExt};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ObjectReference, Secret};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::runtime::controller::{Action, Config, Controller};
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::utils::predicates;
use kube::runtime::{Predicate, WatchStreamExt, reflector, watcher};
use kube::{Resource, ResourceExt};
use lease::Claim;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What the four controllers share.
pub(crate) struct Shared {
    pub(crate) context: Context,
    pub(crate) connections: Connections,
    pub(crate) machines: Memories<Memory<MachineFacts>>,
    pub(crate) images: Memories<Memory<ImageFacts>>,
    pub(crate) balancers: Memories<Memory<LoadBalancerFacts>>,
    pub(crate) bootstraps: Memories<bootstrap::Memory>,
    pub(crate) tasks: Tasks<bootstrap::Task>,
    scope: Scope,
    errors: Memories<u32>,
    wake: mpsc::UnboundedSender<ObjectRef<ClusterBootstrap>>,
}

/// How often one reconcile may look again before others get their turn.
pub(crate) const ROUNDS: usize = 24;

/// Runs all controllers for everyone's objects until `shutdown`, as [`run_for`] does.
///
/// # Errors
/// When our kinds are not served.
pub async fn run(context: Context, shutdown: CancellationToken) -> Result<(), RunError> {
    run_for(context, Scope::All, shutdown).await
}

/// Runs all controllers until `shutdown`. Running reconciles end first, background tasks are dropped: everything that they
/// know can be looked up again.
///
/// # Errors
/// When our kinds are not served, or somebody else works on the same ClusterBootstrap.
pub async fn run_for(context: Context, scope: Scope, shutdown: CancellationToken) -> Result<(), RunError> {
    let client = context.client.clone();
    served::<ClusterBootstrap>(&scope.api(&client), "ClusterBootstrap").await?;
    served::<MachineRequest>(&scope.api(&client), "MachineRequest").await?;
    served::<ImageSync>(&scope.api(&client), "ImageSync").await?;
    served::<LoadBalancerRequest>(&scope.api(&client), "LoadBalancerRequest").await?;
    let claim = match &scope {
        Scope::One { namespace, name, holder: Some(holder) } => {
            Some(Claim::take(&client, namespace, name, holder, context.clock.clone()).await?)
        }
        _ => None,
    };
    let (wake, woken) = mpsc::unbounded();
    let shared = Arc::new(Shared {
        context,
        connections: Connections::default(),
        machines: Memories::default(),
        images: Memories::default(),
        balancers: Memories::default(),
        bootstraps: Memories::default(),
        tasks: Tasks::default(),
        scope,
        errors: Memories::default(),
        wake,
    });
    // Ends with `shutdown`, and also when the Lease is lost.
    let end = shutdown.child_token();
    let kept = async {
        let Some(claim) = &claim else { return Ok(()) };
        let kept = claim.keep(&end).await;
        end.cancel();
        kept
    };
    let (kept, (), (), (), ()) = tokio::join!(
        kept,
        bootstraps(&client, shared.clone(), woken, end.clone()),
        machines(&client, shared.clone(), end.clone()),
        images(&client, shared.clone(), end.clone()),
        balancers(&client, shared.clone(), end.clone()),
    );
    shared.tasks.cancel_all().await;
    if let Some(claim) = claim.filter(|_| kept.is_ok()) {
        claim.release().await;
    }
    kept
}

impl Shared {
    /// Has a ClusterBootstrap looked at again.
    pub(crate) fn wake(&self, key: &Key) {
        let reference = ObjectRef::new(&key.name).within(&key.namespace);
        // Fails only when the controller has ended, and then nobody is to be woken.
        let _ = self.wake.unbounded_send(reference);
    }

    /// Has the ClusterBootstraps looked at again that an object belongs to: what is known of it can change without its status.
    pub(crate) fn wake_owners(&self, object: &impl ResourceExt) {
        let kind = ClusterBootstrap::kind(&());
        for owner in object.owner_references().iter().filter(|owner| owner.kind == kind) {
            let namespace = object.namespace().unwrap_or_default();
            self.wake(&Key { namespace, name: owner.name.clone(), uid: owner.uid.clone() });
        }
    }

    /// Tells events, once each: their names follow from what they say.
    pub(crate) async fn tell(&self, reference: ObjectReference, notes: &[Note]) {
        let namespace = reference.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let api: Api<Event> = Api::namespaced(self.context.client.clone(), &namespace);
        for note in notes {
            let event = event(&reference, note, (self.context.clock)());
            match api.create(&PostParams::default(), &event).await {
                Ok(_) => {}
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => tracing::warn!(%error, reason = note.reason, "an event could not be written"),
            }
        }
    }
}

fn event(reference: &ObjectReference, note: &Note, now: jiff::Timestamp) -> Event {
    let mut hasher = DefaultHasher::new();
    (&reference.uid, &note.reason, &note.text).hash(&mut hasher);
    let name = reference.name.as_deref().unwrap_or("object");
    let text: String = note.text.chars().take(1000).collect();
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", hasher.finish())),
            namespace: reference.namespace.clone(),
            ..ObjectMeta::default()
        },
        action: Some("Reconcile".to_owned()),
        reason: Some(note.reason.clone()),
        note: Some(text),
        type_: Some(if note.warning { "Warning" } else { "Normal" }.to_owned()),
        event_time: Some(MicroTime(now)),
        regarding: Some(reference.clone()),
        reporting_controller: Some("butlerlabs.dev/butler".to_owned()),
        reporting_instance: Some("butler".to_owned()),
        ..Event::default()
    }
}

async fn served<K>(api: &Api<K>, kind: &'static str) -> Result<(), RunError>
where
    K: Clone + DeserializeOwned + Debug,
{
    match api.list(&ListParams::default().limit(1)).await {
        Err(error) if crate::error::is_absent(&error) => {
            Err(RunError::NoKind { kind, source: Box::new(error) })
        }
        // Anything else mends itself, or is told by the controllers.
        _ => Ok(()),
    }
}

/// Objects of a kind, without those whose status alone has changed: we wrote that ourselves.
fn main_stream<K>(api: Api<K>) -> (Store<K>, impl Stream<Item = Result<K, watcher::Error>> + use<K>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (reader, writer) = store();
    let changed = predicates::generation
        .combine(predicates::finalizers)
        .combine(predicates::annotations)
        .combine(scope::owners);
    let stream = reflector(writer, watcher(api, watcher::Config::default()))
        .default_backoff()
        .applied_objects()
        .predicate_filter(changed, Default::default());
    (reader, stream)
}

async fn bootstraps(
    client: &kube::Client,
    shared: Arc<Shared>,
    woken: mpsc::UnboundedReceiver<ObjectRef<ClusterBootstrap>>,
    shutdown: CancellationToken,
) {
    let (reader, stream) = main_stream::<ClusterBootstrap>(shared.scope.api(client));
    let all = watcher::Config::default();
    let (by_config, by_secret, by_settings) = (reader.clone(), reader.clone(), reader.clone());
    Controller::for_stream(stream, reader)
        .with_config(Config::default())
        .owns(shared.scope.api::<MachineRequest>(client), all.clone())
        .owns(shared.scope.api::<ImageSync>(client), all.clone())
        .owns(shared.scope.api::<LoadBalancerRequest>(client), all.clone())
        .watches(shared.scope.api::<ProviderConfig>(client), all.clone(), move |config| {
            let (namespace, name) = place(&config);
            referring(&by_config, move |cb: &ClusterBootstrap| {
                refers(&cb.spec.provider_ref, cb, &namespace, &name)
            })
        })
        .watches_stream(secrets(shared.scope.api(client)), move |secret| {
            // Which ProviderConfig a Secret belongs to is not known here, and Secrets change seldom.
            let (namespace, _) = place(&secret);
            referring(&by_secret, move |cb: &ClusterBootstrap| cb.namespace().as_deref() == Some(&namespace))
        })
        .watches(Api::<ButlerConfig>::all(client.clone()), all, move |_| referring(&by_settings, |_| true))
        .reconcile_on(woken)
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(|object, shared| in_scope(object, shared, bootstrap::reconcile), again, shared)
        .for_each(|_| std::future::ready(()))
        .await;
}

/// A controller of things that refer to a ProviderConfig: woken by that and by its credentials. With what it knows of.
fn referrers<K>(
    client: &kube::Client,
    shared: &Shared,
    reference: impl Fn(&K) -> &ProviderReference + Send + Sync + 'static,
) -> (Controller<K>, Store<K>)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + Sync
        + 'static,
{
    let (reader, stream) = main_stream::<K>(shared.scope.api(client));
    let (by_config, by_secret) = (reader.clone(), reader.clone());
    let controller = Controller::for_stream(stream, reader.clone())
        .watches(shared.scope.api::<ProviderConfig>(client), watcher::Config::default(), move |config| {
            let (namespace, name) = place(&config);
            referring(&by_config, |object: &K| refers(reference(object), object, &namespace, &name))
        })
        .watches_stream(secrets(shared.scope.api(client)), move |secret| {
            // Which ProviderConfig a Secret belongs to is not known here, and Secrets change seldom.
            let (namespace, _) = place(&secret);
            referring(&by_secret, |object: &K| object.namespace().as_deref() == Some(&namespace))
        });
    (controller, reader)
}

/// Those that belong to a ClusterBootstrap.
fn owned<K>(reader: &Store<K>, cluster: &ClusterBootstrap) -> Vec<ObjectRef<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    let uid = cluster.uid();
    referring(reader, |object: &K| {
        object.owner_references().iter().any(|owner| Some(&owner.uid) == uid.as_ref())
    })
}

async fn machines(client: &kube::Client, shared: Arc<Shared>, shutdown: CancellationToken) {
    let (controller, all) = referrers(client, &shared, |mr: &MachineRequest| &mr.spec.provider_ref);
    controller
        .watches_stream(specs::<ClusterBootstrap>(shared.scope.api(client)), move |cb| owned(&all, &cb))
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(|object, shared| in_scope(object, shared, machine::reconcile), again, shared)
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn images(client: &kube::Client, shared: Arc<Shared>, shutdown: CancellationToken) {
    let (controller, all) = referrers(client, &shared, |image: &ImageSync| &image.spec.provider_config_ref);
    let settings = Api::<ButlerConfig>::all(client.clone());
    controller
        .watches(settings, watcher::Config::default(), move |_| referring(&all, |_| true))
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(|object, shared| in_scope(object, shared, image::reconcile), again, shared)
        .for_each(|_| std::future::ready(()))
        .await;
}

async fn balancers(client: &kube::Client, shared: Arc<Shared>, shutdown: CancellationToken) {
    let (controller, all) =
        referrers(client, &shared, |lbr: &LoadBalancerRequest| &lbr.spec.provider_config_ref);
    controller
        .watches_stream(specs::<ClusterBootstrap>(shared.scope.api(client)), move |cb| owned(&all, &cb))
        .graceful_shutdown_on(shutdown.cancelled_owned())
        .run(|object, shared| in_scope(object, shared, loadbalancer::reconcile), again, shared)
        .for_each(|_| std::future::ready(()))
        .await;
}

/// What is not in the scope is left alone, whatever woke the controller.
async fn in_scope<K, F>(
    object: Arc<K>,
    shared: Arc<Shared>,
    reconcile: impl FnOnce(Arc<K>, Arc<Shared>) -> F,
) -> Result<Action, ReconcileError>
where
    K: Resource<DynamicType = ()>,
    F: Future<Output = Result<Action, ReconcileError>>,
{
    if shared.scope.holds(object.as_ref()) {
        reconcile(object, shared).await
    } else {
        Ok(Action::await_change())
    }
}

/// Changes of Secrets, without what is in them. Those that we write ourselves wake nobody.
fn secrets(
    api: Api<kube::core::PartialObjectMeta<Secret>>,
) -> impl Stream<Item = Result<kube::core::PartialObjectMeta<Secret>, watcher::Error>> + use<> {
    let foreign = format!("!{}", butler_api::names::LABEL_CLUSTER_BOOTSTRAP);
    watcher(api, watcher::Config::default().labels(&foreign)).default_backoff().touched_objects()
}

/// Changes of a kind's specs.
fn specs<K>(api: Api<K>) -> impl Stream<Item = Result<K, watcher::Error>> + use<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    watcher(api, watcher::Config::default())
        .default_backoff()
        .touched_objects()
        .predicate_filter(predicates::generation, Default::default())
}

fn place(object: &impl ResourceExt) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

fn refers(reference: &ProviderReference, object: &impl ResourceExt, namespace: &str, name: &str) -> bool {
    let own = object.namespace().unwrap_or_default();
    reference.name == name && reference.namespace.as_deref().unwrap_or(&own) == namespace
}

fn referring<K>(reader: &Store<K>, matches: impl Fn(&K) -> bool) -> Vec<ObjectRef<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + 'static,
{
    reader
        .state()
        .iter()
        .filter(|object| matches(object))
        .map(|object| ObjectRef::from_obj(object.as_ref()))
        .collect()
}

/// After a call to our own API that failed.
fn again<K: ResourceExt>(object: Arc<K>, error: &ReconcileError, shared: Arc<Shared>) -> Action {
    let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    tracing::warn!(object = object.name_any(), %error, cause, "will be tried again");
    let errors = shared.errors.change(&Key::of(object.as_ref()), |errors| {
        *errors = errors.saturating_add(1);
        *errors
    });
    Action::requeue(deadlines::backoff(errors, shared.context.deadlines.longest_retry))
}

impl Shared {
    /// A reconcile that came to its end.
    pub(crate) fn went_well(&self, key: &Key) {
        self.errors.forget(key);
    }
}

/// When to look again by the clock, given when something is due.
pub(crate) fn at_the_latest(now: jiff::Timestamp, due: Option<jiff::Timestamp>, recheck: Duration) -> Action {
    let until = due.map(|due| until(now, due)).unwrap_or(recheck).min(recheck);
    Action::requeue(until.max(Duration::from_millis(1)))
}

/// How long it is until a moment; nothing when it has passed.
pub(crate) fn until(now: jiff::Timestamp, due: jiff::Timestamp) -> Duration {
    Duration::try_from(due.duration_since(now)).unwrap_or_default()
}
