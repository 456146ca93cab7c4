//! Does what the plan says: writes our own objects, and starts work in the background.

use super::memory::{Task, Trouble};
use super::observe::{ANNOTATION_INTENT, Observed, SiteParts};
use super::plan::Action;
use super::{claim, clock, configs, talos, target, wanted};
use crate::error::{Doing, ReconcileError};
use crate::machine::pause_after_failure;
use crate::object::{self, Key};
use crate::runtime::Shared;
use crate::{Class, Failure};
use butler_api::names::{FINALIZER_CLUSTER_BOOTSTRAP, FINALIZER_LOAD_BALANCER_TARGET};
use butler_api::{ClusterBootstrap, ImageSync, LoadBalancerRequest, MachineRequest};
use butler_talos::pki::{BACKDATE, CLIENT_LIFE};
use butler_talos::{API_PORT, Endpoint, SecretsBundle, Talosconfig, admin_kubeconfig};
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// All actions of a step, side by side.
pub(crate) async fn act(
    shared: &Arc<Shared>,
    api: &Api<ClusterBootstrap>,
    observed: &Observed,
    actions: &[Action],
) -> Result<(), ReconcileError> {
    let all = actions.iter().map(|action| one(shared, api, observed, action));
    futures::future::join_all(all).await.into_iter().collect()
}

async fn one(
    shared: &Arc<Shared>,
    api: &Api<ClusterBootstrap>,
    observed: &Observed,
    action: &Action,
) -> Result<(), ReconcileError> {
    let client = shared.context.client.clone();
    let namespace = observed.object.namespace().unwrap_or_default();
    let machines: Api<MachineRequest> = Api::namespaced(client.clone(), &namespace);
    let images: Api<ImageSync> = Api::namespaced(client.clone(), &namespace);
    let balancers: Api<LoadBalancerRequest> = Api::namespaced(client.clone(), &namespace);
    let secrets: Api<Secret> = Api::namespaced(client, &namespace);
    match action {
        Action::AddFinalizer => {
            object::set_finalizer(api, &observed.object, FINALIZER_CLUSTER_BOOTSTRAP, true).await.map(drop)
        }
        Action::RemoveFinalizer => {
            object::set_finalizer(api, &observed.object, FINALIZER_CLUSTER_BOOTSTRAP, false).await.map(drop)
        }
        Action::CreateImage => {
            let factory =
                observed.settings.as_ref().and_then(|settings| settings.spec.image_factory.as_ref());
            let image = wanted::image_sync(&observed.object, &observed.profile, factory);
            object::create(&images, &image).await
        }
        Action::JoinImage(name) => share(&images, observed, name, true).await,
        Action::ReleaseImage(name) => share(&images, observed, name, false).await,
        Action::CreateMachine(name) => match observed.wanted().iter().find(|node| node.name == *name) {
            Some(node) => object::create(&machines, &observed.machine_request(node)).await,
            None => Ok(()),
        },
        Action::UpdateMachine(name) => update(&machines, observed, name).await,
        Action::DeleteMachine(name) => match observed.machines.get(name) {
            Some(machine) => object::delete(&machines, machine).await,
            None => Ok(()),
        },
        Action::ReleaseMachine(name) => release(&machines, observed, name).await,
        Action::CreateBalancer => object::create(&balancers, &observed.load_balancer_request()).await,
        Action::UpdateBalancer => update_balancer(&balancers, observed).await,
        Action::DeleteBalancer => match &observed.balancer.own {
            Some(own) => object::delete(&balancers, own.as_ref()).await,
            None => Ok(()),
        },
        Action::StoreConfigs => store_configs(&secrets, observed).await,
        Action::StoreConfig(node) => store_config(&secrets, observed, node).await,
        Action::StoreKubeconfig => store_kubeconfig(&secrets, observed).await,
        Action::DeleteSecret(name) => match object::get(&secrets, name).await? {
            Some(secret) => object::delete(&secrets, &secret).await,
            None => Ok(()),
        },
        Action::Start(task) => {
            start(shared, observed, task.clone());
            Ok(())
        }
    }
}

/// Starts a task; its outcome is remembered, and its end wakes the controller.
fn start(shared: &Arc<Shared>, observed: &Observed, task: Task) {
    let key = Key::of(&observed.object);
    let after = {
        let (shared, key) = (shared.clone(), key.clone());
        move || shared.wake(&key)
    };
    let work = {
        let (shared, observed, key, task) = (shared.clone(), observed.clone(), key.clone(), task.clone());
        async move {
            let done = carry_out(&shared, &observed, &task).await;
            remember(&shared, &key, task, done);
        }
    };
    shared.tasks.start(&key, task, work, after);
}

/// Boxed: what a task holds is nobody else's business, the compiler's included.
fn carry_out<'a>(
    shared: &'a Arc<Shared>,
    observed: &'a Observed,
    task: &'a Task,
) -> BoxFuture<'a, Result<(), Failure>> {
    match task {
        Task::MakeSecrets => make_secrets(shared, observed).boxed(),
        Task::Knock => claim::knock(shared, observed).boxed(),
        Task::Look(machine) => talos::look(shared, observed, machine).boxed(),
        Task::Apply(machine) => talos::apply(shared, observed, machine).boxed(),
        Task::Bootstrap => talos::bootstrap(shared, observed).boxed(),
        Task::Etcd => talos::etcd(shared, observed).boxed(),
        Task::Vote(machine) => talos::vote(shared, observed, machine).boxed(),
        Task::Clock(machine) => clock::follow(shared, observed, machine).boxed(),
        Task::Reach => target::reach(shared, observed).boxed(),
        Task::ReachEndpoint => target::reach_endpoint(shared, observed).boxed(),
        Task::Survey => target::survey(shared, observed).boxed(),
        Task::Watch => target::watch(shared, observed).boxed(),
        Task::Withdraw => target::withdraw(shared, observed).boxed(),
        Task::Install(addon) => target::install(shared, observed, addon).boxed(),
    }
}

fn remember(shared: &Shared, key: &Key, task: Task, done: Result<(), Failure>) {
    let now = (shared.context.clock)();
    shared.bootstraps.change(key, |memory| match done {
        Ok(()) => {
            memory.troubles.remove(&task);
        }
        Err(failure) => {
            let failures = memory.troubles.get(&task).map_or(0, |trouble| trouble.failures).saturating_add(1);
            let pause = pause_after_failure(failure.class, failures, &shared.context.deadlines);
            let until = now.checked_add(pause).unwrap_or(now);
            memory.troubles.insert(task, Trouble { failure, failures, until });
        }
    });
}

/// Secrets are drawn once, and stored before anything is made from them.
async fn make_secrets(shared: &Arc<Shared>, observed: &Observed) -> Result<(), Failure> {
    let now = observed.now;
    let failed = |message: String| {
        Failure::new(Class::Retryable, "SecretsNotMade", message, "look at this computer's memory and disk")
    };
    let drawn = tokio::task::spawn_blocking(move || {
        SecretsBundle::generate(now).map(|made| made.bundle.to_yaml()).map_err(|error| configs::text(&error))
    });
    let text = drawn.await.map_err(|error| failed(error.to_string()))?.map_err(failed)?;
    let name = wanted::secrets_name(&observed.object.name_any());
    let secret = wanted::secret(&observed.object, &name, [("secrets.yaml".to_owned(), text)].into());
    let namespace = observed.object.namespace().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(shared.context.client.clone(), &namespace);
    object::create(&api, &secret).await.map_err(|error| failed(configs::text(&error)))
}

async fn store_configs(api: &Api<Secret>, observed: &Observed) -> Result<(), ReconcileError> {
    let (Some(Ok(rendered)), Some(Ok(secrets)), Ok(provided)) =
        (&observed.rendered, &observed.secrets, &observed.provided)
    else {
        return Ok(());
    };
    let name = wanted::configs_name(&observed.object.name_any());
    let known = observed.stored.as_ref().and_then(|stored| stored.talosconfig.as_ref());
    let talosconfig = match known {
        Some(text) => text.expose().to_owned(),
        None => match talosconfig(observed, secrets) {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(%error, "a talosconfig could not be made");
                return Ok(());
            }
        },
    };
    let mut data: BTreeMap<String, String> = rendered
        .configs
        .iter()
        .map(|(node, config)| (format!("{node}.yaml"), config.expose().to_owned()))
        .collect();
    data.insert("talosconfig".to_owned(), talosconfig);
    let intent = configs::intent_of(&observed.object.spec, &provided.config.spec);
    if observed.stored.is_none() {
        let mut secret = wanted::secret(&observed.object, &name, data);
        secret.annotations_mut().insert(ANNOTATION_INTENT.to_owned(), intent);
        return object::create(api, &secret).await;
    }
    // Configs of nodes that are not wanted any more go; marks of what was applied stay.
    let mut changes: Map<String, Value> = data.into_iter().map(|(key, text)| (key, encoded(&text))).collect();
    for node in observed.stored.iter().flat_map(|stored| stored.configs.keys()) {
        if !rendered.configs.contains_key(node) {
            changes.insert(format!("{node}.yaml"), Value::Null);
        }
    }
    let patch = json!({"metadata": {"annotations": {ANNOTATION_INTENT: intent}}, "data": changes});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .map(drop)
        .doing(|| format!("write the Secret {name}"))
}

/// The config of a machine that has replaced another. All others keep theirs.
async fn store_config(api: &Api<Secret>, observed: &Observed, node: &str) -> Result<(), ReconcileError> {
    let Some(Ok(rendered)) = &observed.rendered else { return Ok(()) };
    let Some(config) = rendered.configs.get(node) else { return Ok(()) };
    let name = wanted::configs_name(&observed.object.name_any());
    let patch = json!({"data": {format!("{node}.yaml"): encoded(config.expose())}});
    let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    done.map(drop).doing(|| format!("write the Secret {name}"))
}

fn encoded(text: &str) -> Value {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text).into()
}

/// Without a proxy, which is the way of whoever runs the bootstrap, may hold a password, and is of no use to others.
fn talosconfig(
    observed: &Observed,
    secrets: &SecretsBundle,
) -> Result<String, butler_talos::TalosconfigError> {
    let begin = observed.now.checked_sub(BACKDATE).unwrap_or(observed.now);
    let endpoints = observed.control_planes().filter_map(|node| observed.address(&node.name)).collect();
    let name = &observed.object.spec.cluster.name;
    let config = Talosconfig::generate(name, endpoints, secrets, begin, CLIENT_LIFE + BACKDATE)?;
    Ok(config.to_yaml())
}

/// Without a proxy, as the talosconfig.
async fn store_kubeconfig(api: &Api<Secret>, observed: &Observed) -> Result<(), ReconcileError> {
    let (Some(Ok(secrets)), Some(endpoint)) = (&observed.secrets, &observed.endpoint) else { return Ok(()) };
    let begin = observed.now.checked_sub(BACKDATE).unwrap_or(observed.now);
    let server = Endpoint::new(endpoint, API_PORT);
    let cluster = &observed.object.spec.cluster.name;
    let made = admin_kubeconfig(cluster, &server, secrets, begin, CLIENT_LIFE + BACKDATE, None);
    let text = match made {
        Ok(text) => text,
        Err(error) => {
            tracing::warn!(%error, "a kubeconfig could not be made");
            return Ok(());
        }
    };
    let name = wanted::kubeconfig_name(&observed.object.name_any());
    if observed.kubeconfig.is_some() {
        let patch = json!({"data": {"kubeconfig": encoded(text.expose())}});
        let done = api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        return done.map(drop).doing(|| format!("write the Secret {name}"));
    }
    let data = [("kubeconfig".to_owned(), text.expose().to_owned())].into();
    object::create(api, &wanted::secret(&observed.object, &name, data)).await
}

/// Takes or gives up a share in an image. Whoever gives up the last one asks for the image to go.
async fn share(
    api: &Api<ImageSync>,
    observed: &Observed,
    name: &str,
    wanted: bool,
) -> Result<(), ReconcileError> {
    let Some(image) = object::get(api, name).await? else { return Ok(()) };
    let uid = observed.object.uid().unwrap_or_default();
    let mut owners = image.owner_references().to_vec();
    owners.retain(|owner| owner.uid != uid);
    if wanted {
        let Some(mut own) = object::owner_reference(&observed.object) else { return Ok(()) };
        // There is one controller at most, and that is whoever made it.
        own.controller = None;
        owners.push(own);
    } else if owners.is_empty() {
        return object::delete(api, &image).await;
    }
    let patch = json!({"metadata": {"resourceVersion": image.resource_version(), "ownerReferences": owners}});
    match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        Ok(_) => Ok(()),
        Err(error) if crate::error::is_conflict(&error) || crate::error::is_absent(&error) => Ok(()),
        Err(error) => Err(error).doing(|| format!("write the owners of ImageSync {name}")),
    }
}

async fn update(api: &Api<MachineRequest>, observed: &Observed, name: &str) -> Result<(), ReconcileError> {
    let node = observed.wanted().iter().find(|node| node.name == name);
    let (Some(node), Some(machine)) = (node, observed.machines.get(name)) else { return Ok(()) };
    let changed = MachineRequest { spec: observed.machine_request(node).spec, ..machine.clone() };
    match api.replace(name, &PostParams::default(), &changed).await {
        Ok(_) => Ok(()),
        Err(error) if crate::error::is_conflict(&error) || crate::error::is_absent(&error) => Ok(()),
        Err(error) => Err(error).doing(|| format!("write MachineRequest {name}")),
    }
}

/// Lets a machine go that is drained.
async fn release(api: &Api<MachineRequest>, observed: &Observed, name: &str) -> Result<(), ReconcileError> {
    let Some(machine) = observed.machines.get(name) else { return Ok(()) };
    object::set_finalizer(api, machine, FINALIZER_LOAD_BALANCER_TARGET, false).await.map(drop)
}

async fn update_balancer(api: &Api<LoadBalancerRequest>, observed: &Observed) -> Result<(), ReconcileError> {
    let Some(own) = &observed.balancer.own else { return Ok(()) };
    let changed = LoadBalancerRequest { spec: observed.load_balancer_request().spec, ..own.as_ref().clone() };
    match api.replace(&own.name_any(), &PostParams::default(), &changed).await {
        Ok(_) => Ok(()),
        Err(error) if crate::error::is_conflict(&error) || crate::error::is_absent(&error) => Ok(()),
        Err(error) => Err(error).doing(|| format!("write LoadBalancerRequest {}", own.name_any())),
    }
}

/// What addons are made from, when all of it is known.
pub(crate) fn site_parts(observed: &Observed) -> Option<SiteParts> {
    let provided = observed.provided.as_ref().ok()?;
    Some(SiteParts::new(observed, provided, observed.endpoint.as_deref()?))
}
