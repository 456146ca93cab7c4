//! Reads a ClusterBootstrap and all that belongs to it. Decides nothing: what the outside world showed to background tasks
//! is in the memory, everything else is read anew each time.

use super::balancer::{self, BalancerSight};
use super::configs::{self, Inputs, NodeInput, Rendered};
use super::memory::{Memory, Survey, TalosSight, Task, Trouble};
use super::wanted::{self, WantedNode};
use crate::addons::{self, PlannedAddon, Site, SiteMachine};
use crate::error::{Doing, ReconcileError};
use crate::object::{self, Key};
use crate::provider::{self, Provided, ProviderSight};
use crate::runtime::Shared;
use crate::{Class, Deadlines, Failure, Profile};
use butler_api::names::{BUTLER_CONFIG_NAME, LABEL_CLUSTER_BOOTSTRAP, label_value, load_balancer_name};
use butler_api::{
    ButlerConfig, ClusterBootstrap, ConfigDelivery, ImageSync, LoadBalancerRequest, MachineRequest,
    MachineRole, MultiTenancyMode,
};
use butler_talos::{Secret as Text, SecretsBundle};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// What is known of a bootstrap.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) now: Timestamp,
    /// When this life of ours first saw the object.
    pub(crate) since: Timestamp,
    pub(crate) deadlines: Deadlines,
    pub(crate) object: ClusterBootstrap,
    pub(crate) profile: Profile,
    /// ProviderConfig and credentials, or what is wrong with them.
    pub(crate) provided: ProviderSight,
    /// The platform's settings where the bootstrap runs.
    pub(crate) settings: Option<ButlerConfig>,
    pub(crate) image: ImageSight,
    /// ImageSyncs that this ClusterBootstrap has a share in.
    pub(crate) images: Vec<ImageSync>,
    /// All nodes that the spec asks for, or what is wrong with it.
    pub(crate) nodes: Result<Vec<WantedNode>, Failure>,
    /// All MachineRequests of this ClusterBootstrap, by name.
    pub(crate) machines: BTreeMap<String, MachineRequest>,
    /// MachineRequests of a name that we need, and of somebody else.
    pub(crate) foreign: BTreeSet<String>,
    /// The load balancer in front of the control plane.
    pub(crate) balancer: BalancerSight,
    /// Uids of MachineRequests, ImageSyncs and LoadBalancerRequests that were tried in this life of ours and have failed: what an earlier life told
    /// of them says nothing about what would come of it now.
    pub(crate) stopped: BTreeSet<String>,
    /// The cluster's secrets, once there are any.
    pub(crate) secrets: Option<Result<Arc<SecretsBundle>, Failure>>,
    /// Host of the control-plane endpoint, once it is known.
    pub(crate) endpoint: Option<String>,
    /// What the spec and the machines say the configs are, once everything for them is known.
    pub(crate) rendered: Option<Result<Arc<Rendered>, Failure>>,
    /// What was stored for the nodes.
    pub(crate) stored: Option<Stored>,
    /// How many marks of this life were written before that Secret was read.
    pub(crate) marks: u64,
    /// The kubeconfig in its Secret.
    pub(crate) kubeconfig: Option<Text>,
    /// Names of Secrets of ours that are there.
    pub(crate) own_secrets: Vec<String>,
    /// By machine.
    pub(crate) talos: BTreeMap<String, TalosSight>,
    /// By machine: how its clock is wrong.
    pub(crate) clocks: BTreeMap<String, String>,
    /// The virtual address that nobody answered at.
    pub(crate) free_address: Option<String>,
    /// By machine: the fingerprint that it showed before it had a config.
    pub(crate) unverified: BTreeMap<String, String>,
    pub(crate) bootstrapped: bool,
    pub(crate) etcd_up: bool,
    /// Control planes whose etcd was seen to vote.
    pub(crate) voters: BTreeSet<String>,
    /// The host by which the new cluster is reached.
    pub(crate) reached: Option<String>,
    pub(crate) endpoint_answers: bool,
    pub(crate) reach_note: String,
    pub(crate) survey: Option<Survey>,
    pub(crate) stale: bool,
    pub(crate) addons: Vec<PlannedAddon>,
    pub(crate) installed: BTreeMap<String, Timestamp>,
    /// No Service has a load balancer of its own any more.
    pub(crate) withdrawn: bool,
    /// When the cluster last told which Services are left.
    pub(crate) heard: Option<Timestamp>,
    pub(crate) running: BTreeSet<Task>,
    pub(crate) troubles: BTreeMap<Task, Trouble>,
}

/// Whether the boot image is there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ImageSight {
    /// Nobody brings one; why.
    Skipped(&'static str),
    /// There is to be one, and nobody has asked for it.
    Wanted,
    /// It is being brought. `join` when this ClusterBootstrap has no share in it yet.
    Coming { image: Box<ImageSync>, join: bool },
    /// It is there, by this name.
    Ready { reference: String, image: Box<ImageSync>, join: bool },
}

/// The Secret with the configs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stored {
    /// What the configs were made from.
    pub(crate) intent: String,
    pub(crate) configs: BTreeMap<String, Text>,
    /// By machine: the MachineRequest and the config that it has taken.
    pub(crate) applied: BTreeMap<String, String>,
    pub(crate) talosconfig: Option<Text>,
}

/// Annotation on the Secret with the configs: what they were made from.
pub(crate) const ANNOTATION_INTENT: &str = "butler.butlerlabs.dev/intent";

/// `None` when the object is gone.
pub(crate) async fn observe(
    shared: &Shared,
    api: &Api<ClusterBootstrap>,
    name: &str,
) -> Result<Option<Observed>, ReconcileError> {
    let Some(object) = object::get(api, name).await? else { return Ok(None) };
    let client = &shared.context.client;
    let namespace = object.namespace().unwrap_or_default();
    let machine_api: Api<MachineRequest> = Api::namespaced(client.clone(), &namespace);
    let image_api: Api<ImageSync> = Api::namespaced(client.clone(), &namespace);
    let balancer_api: Api<LoadBalancerRequest> = Api::namespaced(client.clone(), &namespace);
    let secret_api: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let settings_api: Api<ButlerConfig> = Api::all(client.clone());
    let own = ListParams::default().labels(&format!("{LABEL_CLUSTER_BOOTSTRAP}={}", label_value(name)));
    let (names, everything) = (secret_names(name), ListParams::default());
    let balancer_name = load_balancer_name(&object.spec.cluster.name);
    // Before the Secret is read: what is written from here on may not be in it.
    let marks = shared.bootstraps.change(&Key::of(&object), |memory| memory.marks);
    let (provided, settings, machines, images, balancer, secrets, configs, kubeconfig) = futures::join!(
        provider::look(client, &object.spec.provider_ref, &namespace),
        object::get(&settings_api, BUTLER_CONFIG_NAME),
        machine_api.list(&own),
        image_api.list(&everything),
        object::get(&balancer_api, &balancer_name),
        object::get(&secret_api, &names.0),
        object::get(&secret_api, &names.1),
        object::get(&secret_api, &names.2),
    );
    let parts = Parts {
        marks,
        provided: usable(shared, provided?),
        settings: settings?,
        machines: machines.doing(|| "list MachineRequests".to_owned())?.items,
        images: images.doing(|| "list ImageSyncs".to_owned())?.items,
        balancer: balancer?,
        secrets: secrets?,
        configs: configs?,
        kubeconfig: kubeconfig?,
    };
    Ok(Some(assemble(shared, object, parts)))
}

/// What was read.
struct Parts {
    marks: u64,
    provided: ProviderSight,
    settings: Option<ButlerConfig>,
    machines: Vec<MachineRequest>,
    images: Vec<ImageSync>,
    balancer: Option<LoadBalancerRequest>,
    secrets: Option<Secret>,
    configs: Option<Secret>,
    kubeconfig: Option<Secret>,
}

fn secret_names(cb: &str) -> (String, String, String) {
    (wanted::secrets_name(cb), wanted::configs_name(cb), wanted::kubeconfig_name(cb))
}

/// A ProviderConfig that no driver understands is as good as none.
fn usable(shared: &Shared, provided: ProviderSight) -> ProviderSight {
    let provided = provided?;
    shared.connections.connect(&shared.context, &provided).map(|_| provided)
}

fn assemble(shared: &Shared, object: ClusterBootstrap, parts: Parts) -> Observed {
    let key = Key::of(&object);
    let uid = object.uid();
    let ours = |owners: &[OwnerReference]| owners.iter().any(|owner| Some(&owner.uid) == uid.as_ref());
    let own_secrets = [&parts.secrets, &parts.configs, &parts.kubeconfig]
        .into_iter()
        .flatten()
        .filter(|secret| ours(secret.owner_references()))
        .map(ResourceExt::name_any)
        .collect();
    let (own, others): (Vec<_>, Vec<_>) =
        parts.machines.into_iter().partition(|machine| ours(machine.owner_references()));
    let stored = parts.configs.as_ref().map(stored);
    let network = parts.provided.as_ref().ok().and_then(|provided| provided.config.spec.network.clone());
    let nodes = wanted::nodes(&object.spec, network.as_ref());
    let machines: BTreeMap<_, _> = own.into_iter().map(|machine| (machine.name_any(), machine)).collect();
    let profile = Profile::of(object.spec.provider);
    let balancer = balancer_sight(&object, &profile, parts.balancer, &ours);
    let stopped = stopped(shared, &machines, &parts.images, &balancer);
    let mut observed = Observed {
        now: (shared.context.clock)(),
        since: (shared.context.clock)(),
        deadlines: shared.context.deadlines,
        profile,
        image: image_sight(&object, parts.settings.as_ref(), &parts.images, &ours),
        images: parts.images.into_iter().filter(|image| ours(image.owner_references())).collect(),
        settings: parts.settings,
        endpoint: endpoint(&object, &balancer, &machines, nodes.as_deref().unwrap_or_default()),
        nodes,
        machines,
        foreign: others.iter().map(ResourceExt::name_any).collect(),
        balancer,
        stopped,
        secrets: None,
        rendered: None,
        stored,
        marks: parts.marks,
        kubeconfig: parts.kubeconfig.as_ref().and_then(|secret| value(secret, "kubeconfig")),
        own_secrets,
        talos: BTreeMap::new(),
        clocks: Default::default(),
        free_address: Default::default(),
        unverified: BTreeMap::new(),
        bootstrapped: false,
        etcd_up: false,
        voters: BTreeSet::new(),
        reached: None,
        endpoint_answers: false,
        reach_note: String::new(),
        survey: None,
        stale: false,
        addons: Vec::new(),
        installed: BTreeMap::new(),
        withdrawn: false,
        heard: None,
        running: shared.tasks.running(&key),
        troubles: BTreeMap::new(),
        provided: parts.provided,
        object,
    };
    shared.bootstraps.change(&key, |memory| recall(memory, &mut observed, parts.secrets.as_ref()));
    observed.addons = planned(&observed);
    observed
}

fn balancer_sight(
    object: &ClusterBootstrap,
    profile: &Profile,
    found: Option<LoadBalancerRequest>,
    ours: &impl Fn(&[OwnerReference]) -> bool,
) -> BalancerSight {
    let needed = balancer::needed(&object.spec, profile);
    match found.map(Box::new) {
        Some(found) if ours(found.owner_references()) => {
            BalancerSight { needed, own: Some(found), foreign: false }
        }
        other => BalancerSight { needed, own: None, foreign: other.is_some() },
    }
}

fn stopped(
    shared: &Shared,
    machines: &BTreeMap<String, MachineRequest>,
    images: &[ImageSync],
    balancer: &BalancerSight,
) -> BTreeSet<String> {
    let machines = machines.values().map(|machine| {
        (Key::of(machine), shared.machines.change(&Key::of(machine), |memory| memory.stopped))
    });
    let images = images
        .iter()
        .map(|image| (Key::of(image), shared.images.change(&Key::of(image), |memory| memory.stopped)));
    let balancer = balancer
        .own
        .iter()
        .map(|own| Key::of(own.as_ref()))
        .map(|key| (key.clone(), shared.balancers.change(&key, |memory| memory.stopped)));
    let all = machines.chain(images).chain(balancer);
    all.filter(|(_, stopped)| *stopped).map(|(key, _)| key.uid).collect()
}

/// Adds what is remembered, and what is made from it.
fn recall(memory: &mut Memory, observed: &mut Observed, secrets: Option<&Secret>) {
    refresh(memory, observed);
    observed.since = *memory.since.get_or_insert(observed.now);
    observed.secrets = secrets.map(|secret| bundle(memory, secret, observed.now));
    observed.talos = memory.talos.iter().map(|(name, (_, sight))| (name.clone(), sight.clone())).collect();
    observed.clocks.clone_from(&memory.clocks);
    observed.free_address.clone_from(&memory.free_address);
    observed.unverified.clone_from(&memory.unverified);
    observed.bootstrapped = memory.bootstrapped;
    observed.etcd_up = memory.etcd_up;
    observed.voters = memory.voters.keys().cloned().collect();
    observed.reached = memory.target.as_ref().map(|target| target.via.clone());
    observed.endpoint_answers = memory.endpoint_answers;
    observed.reach_note.clone_from(&memory.reach_note);
    observed.survey.clone_from(&memory.survey);
    observed.stale = memory.stale;
    observed.installed.clone_from(&memory.installed);
    observed.withdrawn = memory.withdrawn;
    observed.heard = memory.heard;
    observed.troubles.clone_from(&memory.troubles);
    if observed.etcd_made()
        && let (Some(stored), Ok(nodes)) = (&observed.stored, &observed.nodes)
    {
        observed.nodes = Ok(fixed(nodes.clone(), stored, &observed.machines));
    }
    observed.rendered = render(memory, observed);
}

/// Once etcd is made, the nodes are those that have a config: growing and shrinking are not built.
fn fixed(
    nodes: Vec<WantedNode>,
    stored: &Stored,
    machines: &BTreeMap<String, MachineRequest>,
) -> Vec<WantedNode> {
    let mut kept: Vec<WantedNode> =
        nodes.into_iter().filter(|node| stored.configs.contains_key(&node.name)).collect();
    for (name, machine) in machines {
        if stored.configs.contains_key(name) && !kept.iter().any(|node| node.name == *name) {
            kept.push(WantedNode::of(machine));
        }
    }
    kept
}

/// Forgets what is about another spec, another ProviderConfig, or a machine that was replaced.
fn refresh(memory: &mut Memory, observed: &Observed) {
    let version = observed.provided.as_ref().map(|provided| provided.version.clone()).unwrap_or_default();
    let inputs = format!("{} {version}", observed.object.metadata.generation.unwrap_or_default());
    if memory.inputs != inputs {
        memory.inputs = inputs;
        memory.troubles.clear();
        // A changed spec can change what addons are made of.
        memory.installed.clear();
        memory.stale = true;
    }
    memory.identities =
        observed.machines.iter().map(|(name, own)| (name.clone(), identity_of(own))).collect();
    let identities = &memory.identities;
    memory.talos.retain(|name, (identity, _)| identities.get(name) == Some(identity));
    memory.voters.retain(|name, identity| identities.get(name) == Some(identity));
}

/// The life of a machine: another one of the same name has another.
pub(crate) fn identity_of(machine: &MachineRequest) -> String {
    let address = machine.status.as_ref().and_then(|status| status.ip_address.clone()).unwrap_or_default();
    format!("{} {address}", machine.uid().unwrap_or_default())
}

fn bundle(memory: &mut Memory, secret: &Secret, now: Timestamp) -> Result<Arc<SecretsBundle>, Failure> {
    let version = format!("{:?} {:?}", secret.uid(), secret.resource_version());
    if let Some((known, bundle)) = &memory.secrets
        && *known == version
    {
        return bundle.clone();
    }
    let name = secret.name_any();
    let wrong = |why: String| {
        let remedy = "put a good secrets.yaml there (`butleradm talos gen` makes one), or remove the Secret before anything was made from it";
        Failure::new(Class::InvalidConfig, "SecretsUnusable", format!("the Secret {name}: {why}"), remedy)
    };
    let read = value(secret, "secrets.yaml")
        .ok_or_else(|| wrong("it has no key secrets.yaml".to_owned()))
        .and_then(|text| {
            SecretsBundle::from_yaml(text.expose(), now)
                .map(Arc::new)
                .map_err(|error| wrong(configs::text(&error)))
        });
    memory.secrets = Some((version, read.clone()));
    read
}

fn value(secret: &Secret, key: &str) -> Option<Text> {
    let bytes = secret.data.as_ref()?.get(key)?;
    String::from_utf8(bytes.0.clone()).ok().map(Text::new)
}

fn stored(secret: &Secret) -> Stored {
    let mut stored = Stored {
        intent: secret.annotations().get(ANNOTATION_INTENT).cloned().unwrap_or_default(),
        ..Stored::default()
    };
    for key in secret.data.iter().flat_map(BTreeMap::keys) {
        let Some(text) = value(secret, key) else { continue };
        if key == "talosconfig" {
            stored.talosconfig = Some(text);
        } else if let Some(node) = key.strip_suffix(".yaml") {
            stored.configs.insert(node.to_owned(), text);
        } else if let Some(node) = key.strip_suffix(".applied") {
            stored.applied.insert(node.to_owned(), text.expose().to_owned());
        }
    }
    stored
}

fn image_sight(
    object: &ClusterBootstrap,
    settings: Option<&ButlerConfig>,
    images: &[ImageSync],
    ours: &impl Fn(&[OwnerReference]) -> bool,
) -> ImageSight {
    let Some(settings) = settings else {
        return ImageSight::Skipped("there is no ButlerConfig, so that the image has to be there already");
    };
    let Some(factory) = &settings.spec.image_factory else {
        return ImageSight::Skipped(
            "the ButlerConfig has no image factory, so that the image has to be there already",
        );
    };
    if factory.url.is_empty() || !factory.auto_sync || object.spec.talos.schematic.is_empty() {
        return ImageSight::Skipped(
            "images are not brought by themselves here (imageFactory.url, autoSync, talos.schematic)",
        );
    }
    let labels = wanted::image_labels(object);
    let same = |image: &&ImageSync| labels.iter().all(|(key, value)| image.labels().get(key) == Some(value));
    let alive = images.iter().filter(|image| image.metadata.deletion_timestamp.is_none());
    let Some(image) = alive.clone().find(same) else { return ImageSight::Wanted };
    let join = !ours(image.owner_references());
    let reference = image.status.as_ref().and_then(|status| status.provider_image_ref.clone());
    match reference.filter(|_| image.is_ready()) {
        Some(reference) => ImageSight::Ready { reference, image: Box::new(image.clone()), join },
        None => ImageSight::Coming { image: Box::new(image.clone()), join },
    }
}

/// The endpoint that the spec names, else the load balancer's, else the first control plane's address.
fn endpoint(
    object: &ClusterBootstrap,
    balancer: &BalancerSight,
    machines: &BTreeMap<String, MachineRequest>,
    nodes: &[WantedNode],
) -> Option<String> {
    if let Some(vip) = object.spec.network.vip.as_ref().filter(|vip| !vip.is_empty()) {
        return Some(vip.clone());
    }
    let status = object.status.as_ref();
    let published = status.and_then(|status| status.control_plane_endpoint.clone());
    if balancer.needed {
        // A load balancer that was made anew may have another endpoint. Until etcd may be there, so has the cluster.
        let begun = status.is_some_and(|status| status.bootstrap_machine.is_some());
        return published.filter(|_| begun).or_else(|| balancer.endpoint());
    }
    // What was published stays, also when a machine is looked at anew.
    if published.is_some() {
        return published;
    }
    let first = nodes.iter().find(|node| node.role == MachineRole::ControlPlane)?;
    machines.get(&first.name)?.status.as_ref()?.ip_address.clone()
}

/// Configs, as soon as everything that they are made from is known. They are made anew only when that has changed.
fn render(memory: &mut Memory, observed: &Observed) -> Option<Result<Arc<Rendered>, Failure>> {
    let nodes = observed.nodes.as_ref().ok()?;
    let provided = observed.provided.as_ref().ok()?;
    let secrets = observed.secrets.as_ref()?.as_ref().ok()?;
    let endpoint = observed.endpoint.as_deref()?;
    let inputs: Vec<NodeInput> =
        nodes.iter().map(|node| node_input(observed, node)).collect::<Option<_>>()?;
    let version = format!(
        "{} {endpoint} {inputs:?} {:?}",
        configs::intent_of(&observed.object.spec, &provided.config.spec),
        memory.secrets.as_ref().map(|(version, _)| version),
    );
    if let Some((known, rendered)) = &memory.rendered
        && *known == version
    {
        return Some(rendered.clone());
    }
    let rendered = configs::render(&Inputs {
        spec: &observed.object.spec,
        provider: &provided.config.spec,
        profile: &observed.profile,
        endpoint,
        passthrough: observed.balancer.needed && observed.profile.loopback_endpoint,
        nodes: &inputs,
        secrets,
    })
    .map(Arc::new);
    memory.rendered = Some((version, rendered.clone()));
    Some(rendered)
}

/// Pushed configs wait for all addresses; those that come with the machine know only the fixed ones.
fn node_input(observed: &Observed, node: &WantedNode) -> Option<NodeInput> {
    if observed.object.spec.talos.config_delivery == ConfigDelivery::UserData {
        let fixed =
            node.static_address.as_ref().and_then(|fixed| fixed.parse().ok()).map(|(address, _)| address);
        let addresses = fixed.into_iter().collect();
        return Some(NodeInput { wanted: node.clone(), addresses, own: fixed, mac: None });
    }
    let status = observed.machines.get(&node.name).filter(|machine| up(machine))?.status.as_ref()?;
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in status.ip_address.iter().chain(&status.ip_addresses).filter_map(|text| text.parse().ok()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    let own = status.ip_addresses.first().and_then(|text| text.parse().ok());
    Some(NodeInput { wanted: node.clone(), addresses, own, mac: status.mac_address.clone() })
}

/// Whether a machine has been up with an address: a look that missed it once does not take that back.
pub(crate) fn up(machine: &MachineRequest) -> bool {
    machine.status.as_ref().is_some_and(|status| {
        status.provider_id.is_some() && status.ip_address.as_ref().is_some_and(|ip| !ip.is_empty())
    })
}

fn planned(observed: &Observed) -> Vec<PlannedAddon> {
    let (Some(provided), Some(endpoint)) = (observed.provided.as_ref().ok(), observed.endpoint.as_ref())
    else {
        return Vec::new();
    };
    addons::plan(&SiteParts::new(observed, provided, endpoint).site())
}

/// All that an addon is made from, owned, for tasks that outlive a reconcile.
#[derive(Clone)]
pub(crate) struct SiteParts {
    object: ClusterBootstrap,
    namespace: String,
    name: String,
    profile: Profile,
    endpoint: String,
    provided: Arc<Provided>,
    machines: Vec<SiteMachine>,
    multi_tenancy: Option<MultiTenancyMode>,
}

impl SiteParts {
    pub(crate) fn new(observed: &Observed, provided: &Arc<Provided>, endpoint: &str) -> SiteParts {
        let machine = |machine: &MachineRequest| {
            let status = machine.status.clone().unwrap_or_default();
            SiteMachine {
                name: machine.name_any(),
                role: machine.spec.role,
                address: status.ip_addresses.first().cloned().or(status.ip_address),
                provider_id: status.provider_id,
            }
        };
        SiteParts {
            namespace: observed.object.namespace().unwrap_or_default(),
            name: observed.object.name_any(),
            profile: observed.profile,
            endpoint: endpoint.to_owned(),
            provided: provided.clone(),
            machines: observed.machines.values().map(machine).collect(),
            multi_tenancy: observed.settings.as_ref().map(|settings| settings.spec.multi_tenancy.mode),
            object: observed.object.clone(),
        }
    }

    pub(crate) fn site(&self) -> Site<'_> {
        Site {
            spec: &self.object.spec,
            name: &self.name,
            namespace: &self.namespace,
            profile: &self.profile,
            endpoint: &self.endpoint,
            provider_config: &self.provided.config,
            credentials: &self.provided.raw,
            machines: &self.machines,
            multi_tenancy: self.multi_tenancy,
        }
    }
}
