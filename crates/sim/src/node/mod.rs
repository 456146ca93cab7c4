//! The shell around one machine: it feeds [`step`](crate::machine::step) and does what comes out.

mod snapshot;
mod trust;

pub(crate) use snapshot::NodeSnapshot;

use crate::api;
use crate::calm::{Busy, Calm};
use crate::config::{ConfigError, NodeConfig};
use crate::delays;
use crate::etcd::{Identity, Newcomer};
use crate::fabric::{Fabric, Network};
use crate::gate::{Gate, Pattern};
use crate::journal::Journal;
use crate::machine::{Answer, Effect, EtcdCall, Input, Machine, Member, Port, Stage, Task, step};
use crate::pki;
use crate::serve::Listening;
use crate::tls::{self, TlsError};
use crate::world::{NodeOptions, Shared, WorldError};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tonic::Code;

/// What others see of a node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) options: NodeOptions,
    pub(crate) world: Weak<Shared>,
    pub(crate) journal: Journal,
    inbox: mpsc::UnboundedSender<Letter>,
    machine: watch::Receiver<Arc<Machine>>,
    /// The same, told when what a state brings with it (open ports, above all) is done.
    settled: watch::Receiver<Arc<Machine>>,
    faces: Mutex<Faces>,
    calm: Arc<Calm>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// What changes with the ports.
#[derive(Debug)]
struct Faces {
    api: SocketAddr,
    trustd: SocketAddr,
    /// What is shown in maintenance mode, with its fingerprint.
    maintenance: Option<(Arc<SignedIdentity>, String)>,
    /// A worker's certificate, once trustd has signed it.
    signed: Option<Arc<SignedIdentity>>,
    /// Tasks that were started and have not ended, with the boot that they belong to.
    outstanding: Vec<(Task, u32)>,
}

impl Faces {
    fn ended(&mut self, task: Task, boot: u32) {
        if let Some(at) = self.outstanding.iter().position(|one| *one == (task, boot)) {
            self.outstanding.swap_remove(at);
        }
    }
}

pub(crate) struct SignedIdentity(pub(crate) pki::Identity);

impl std::fmt::Debug for SignedIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignedIdentity")
    }
}

/// Something that happens, and who wants to know what came of it.
#[derive(Debug)]
struct Letter {
    input: Input,
    reply: Option<oneshot::Sender<Answer>>,
    /// Held until the machine has taken the step.
    busy: Busy,
}

impl Node {
    /// Checks that its address can be listened on, and starts the task that owns the machine. It is off.
    pub(crate) async fn start(options: NodeOptions, world: &Arc<Shared>) -> Result<Arc<Self>, WorldError> {
        let mut machine = Machine::new(options.media, &options.talos_version);
        machine.hostname = options.hostname.clone().unwrap_or_else(|| stable_name(options.address));
        if let Some(text) = &options.user_data {
            let config = NodeConfig::check(text, &options.talos_version, options.media)
                .map_err(|e| WorldError::UserData { address: options.address, why: e.to_string() })?;
            machine.disk.config = Some(config);
        }
        let snapshot = NodeSnapshot::new(options, machine);
        Self::launch(snapshot, world).await
    }

    async fn launch(from: NodeSnapshot, world: &Arc<Shared>) -> Result<Arc<Self>, WorldError> {
        let NodeSnapshot { options, machine, outstanding, maintenance, signed, journal } = from;
        let api = reserve(&world.network, SocketAddr::new(options.address, options.port)).await?;
        let trustd = reserve(&world.network, SocketAddr::new(options.address, options.trustd_port)).await?;
        let (inbox, letters) = mpsc::unbounded_channel();
        let (published, seen) = watch::channel(Arc::new(machine.clone()));
        let (settles, settled) = watch::channel(Arc::new(machine.clone()));
        let node = Arc::new(Self {
            options,
            world: Arc::downgrade(world),
            journal: Journal::from_pages(journal),
            inbox,
            machine: seen,
            settled,
            faces: Mutex::new(Faces { api, trustd, maintenance, signed, outstanding: Vec::new() }),
            calm: world.calm.clone(),
            task: Mutex::new(None),
        });
        let keeper = Keeper {
            node: node.clone(),
            published,
            settles,
            open: Vec::new(),
            last_status: (machine.stage != Stage::Off).then(|| machine.status()),
            // The journal of the next boot begins with it, and not on the way down.
            boot: machine.boot.saturating_sub(u32::from(machine.stage == Stage::Rebooting)),
            host: None,
            machine,
        };
        // A letter before all others: what the machine was in the middle of goes on first.
        let busy = node.calm.busy_now();
        let running = tokio::spawn(keeper.run(letters, outstanding, busy));
        *node.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
        Ok(node)
    }

    /// Ends the task without waiting for it.
    pub(crate) fn abort(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        task.iter().for_each(JoinHandle::abort);
    }

    /// Ends the task. The machine should be off.
    pub(crate) async fn end(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
    }

    fn faces(&self) -> MutexGuard<'_, Faces> {
        self.faces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn machine(&self) -> Arc<Machine> {
        self.machine.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Arc<Machine>> {
        self.settled.clone()
    }

    pub(crate) fn api_address(&self) -> SocketAddr {
        self.faces().api
    }

    pub(crate) fn trustd_address(&self) -> SocketAddr {
        self.faces().trustd
    }

    pub(crate) fn fingerprint(&self) -> Option<String> {
        self.faces().maintenance.as_ref().map(|(_, fingerprint)| fingerprint.clone())
    }

    /// Something happens; the answer is what the machine says to it, or `Done` when it says nothing.
    pub(crate) async fn tell(&self, input: Input) -> Answer {
        let (reply, answer) = oneshot::channel();
        let gone = || Answer::refused(Code::Unavailable, "the simulated machine has been removed");
        if self.inbox.send(Letter { input, reply: Some(reply), busy: self.calm.busy_now() }).is_err() {
            return gone();
        }
        answer.await.unwrap_or_else(|_| gone())
    }

    /// The same for what comes from outside of the world: it waits while a snapshot is taken.
    pub(crate) async fn tell_from_outside(&self, input: Input) -> Answer {
        let _busy = self.calm.busy().await;
        self.tell(input).await
    }

    /// What follows at once from something that has begun.
    fn send(&self, input: Input) {
        // The receiver is gone only when the machine is being removed.
        let _ = self.inbox.send(Letter { input, reply: None, busy: self.calm.busy_now() });
    }

    /// The names that fault scripts may call it by; its address is the last.
    fn fault_names(&self) -> Vec<String> {
        let mut names = vec![self.hostname(), self.machine().hostname.clone()];
        names.dedup();
        names.push(self.options.address.to_string());
        names
    }

    /// Asks the gate about this machine, if there is one.
    fn fault<T>(&self, ask: impl FnOnce(&Gate, &[&str]) -> T) -> Option<T> {
        let world = self.world.upgrade()?;
        let gate = world.gate.as_ref()?;
        let names = self.fault_names();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        Some(ask(gate, &names))
    }

    /// Whether this machine goes by a name that a fault script uses.
    pub(crate) fn is_called(&self, pattern: &Pattern) -> bool {
        self.fault_names().iter().any(|name| pattern.fits(name))
    }

    /// How far its clock is ahead of the right time, in seconds.
    pub(crate) fn clock_skew(&self) -> i64 {
        self.fault(Gate::clock_skew).flatten().unwrap_or_default()
    }

    /// Whether a fault keeps a task from ending.
    fn never_ends(&self, task: Task) -> bool {
        match task {
            Task::Boot => self.fault(Gate::never_boots).unwrap_or_default(),
            Task::TimeSync => self.clock_skew() != 0,
            _ => false,
        }
    }

    /// The strict check of what is to be applied, as the version that runs now makes it.
    pub(crate) fn check(&self, text: &[u8]) -> Result<Arc<NodeConfig>, ConfigError> {
        let text = std::str::from_utf8(text)
            .map_err(|_| ConfigError::Parse("yaml: control characters are not allowed".to_string()))?;
        NodeConfig::check(text, &self.machine().version, self.options.media)
    }

    /// Another member took this one out of its etcd cluster.
    pub(crate) fn etcd_removed(&self) {
        self.send(Input::EtcdRemoved);
    }

    pub(crate) fn hostname(&self) -> String {
        self.machine().hostname().to_string()
    }

    /// The certificate that maintenance mode shows: a new one, unless this is the other half of a life that was cut in two.
    fn maintenance_identity(&self) -> Result<pki::Identity, TlsError> {
        let known = self.faces().maintenance.clone();
        if let Some((identity, _)) = known {
            return Ok(identity.0.clone());
        }
        let mut names = self.names();
        names.extend(["127.0.0.1".to_string(), "::1".to_string()]);
        let (identity, fingerprint) = pki::maintenance(&names)?;
        self.faces().maintenance = Some((Arc::new(SignedIdentity(identity.clone())), fingerprint));
        Ok(identity)
    }

    /// The names in the node's own certificates.
    fn names(&self) -> Vec<String> {
        let mut names = vec![self.options.address.to_string(), self.hostname()];
        if let Some(config) = self.machine().config() {
            names.extend(config.parts.cert_sans.iter().cloned());
        }
        // Talos knows them from the metadata of its cloud, or has them on an interface.
        if let Some(Network::Fabric(fabric)) = self.world.upgrade().map(|world| world.network.clone()) {
            names.extend(fabric.leading_to(self.options.address).iter().map(IpAddr::to_string));
        }
        names.sort();
        names.dedup();
        names
    }
}

/// A name that stays the same for the same machine, in the form of Talos' own.
fn stable_name(address: IpAddr) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, address.to_string().as_bytes());
    let letter = |byte: &u8| char::from(b"0123456789abcdefghijklmnopqrstuvwxyz"[usize::from(byte % 36)]);
    let letters: Vec<char> = digest.as_ref().iter().take(6).map(letter).collect();
    format!("talos-{}-{}", letters[..3].iter().collect::<String>(), letters[3..].iter().collect::<String>())
}

/// What other nodes of the same cluster are found by.
pub(crate) fn identity(machine: &Machine) -> Option<Identity> {
    let parts = &machine.config()?.parts;
    Some(if parts.discovery {
        Identity::Discovery { id: parts.cluster_id.clone(), secret: parts.cluster_secret.clone() }
    } else {
        Identity::Endpoint(parts.endpoint.clone())
    })
}

/// Finds out whether the address is free, and which port it is when any will do.
async fn reserve(network: &Network, address: SocketAddr) -> Result<SocketAddr, WorldError> {
    let bind = async { network.listen(address).await?.local_addr() };
    bind.await.map_err(|source| WorldError::Listen { address, source })
}

/// The task that owns a machine.
struct Keeper {
    node: Arc<Node>,
    machine: Machine,
    published: watch::Sender<Arc<Machine>>,
    settles: watch::Sender<Arc<Machine>>,
    open: Vec<Listening>,
    last_status: Option<crate::machine::MachineStatus>,
    /// The boot whose pages the journal holds.
    boot: u32,
    /// The address that it has taken in a simulated network.
    host: Option<(Fabric, IpAddr)>,
}

/// A machine that is gone has left its address.
impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some((fabric, address)) = self.host.take() {
            fabric.host_down(address);
        }
    }
}

impl Keeper {
    async fn run(
        mut self,
        mut letters: mpsc::UnboundedReceiver<Letter>,
        outstanding: Vec<Task>,
        beginning: Busy,
    ) {
        if let Some(world) = self.node.world.upgrade() {
            self.resume(&world, outstanding).await;
        }
        drop(beginning);
        while let Some(Letter { input, reply, busy }) = letters.recv().await {
            let Some(world) = self.node.world.upgrade() else { break };
            self.turn(&world, input, reply).await;
            drop(busy);
        }
        for port in self.open.drain(..) {
            port.close(false).await;
        }
    }

    async fn turn(&mut self, world: &Arc<Shared>, input: Input, mut reply: Option<oneshot::Sender<Answer>>) {
        if let Input::Done(task, boot) = &input {
            self.node.faces().ended(*task, *boot);
        }
        let stage = self.machine.stage;
        let (next, effects) = step(self.machine.clone(), input);
        let actor =
            if next.run.actor.is_empty() { self.machine.run.actor.clone() } else { next.run.actor.clone() };
        self.machine = next;
        // Readers see the new state before any effect of it.
        self.published.send_replace(Arc::new(self.machine.clone()));
        for effect in effects {
            if let Effect::Answer(answer) = effect {
                if let Some(reply) = reply.take() {
                    let _ = reply.send(answer);
                }
            } else {
                self.perform(world, effect, &actor).await;
            }
        }
        self.take_address(world);
        self.tell_status(world, &actor);
        if self.machine.stage != stage {
            self.meet_fate(stage);
        }
        self.settles.send_replace(Arc::new(self.machine.clone()));
        world.tell_followers(self.node.options.address);
        if let Some(reply) = reply {
            let _ = reply.send(Answer::Done);
        }
    }

    /// In a simulated network, an address answers as long as its machine has a network.
    fn take_address(&mut self, world: &Shared) {
        let Network::Fabric(fabric) = &world.network else { return };
        let up = !matches!(self.machine.stage, Stage::Off | Stage::PoweringOn | Stage::Rebooting);
        match (&self.host, up) {
            (None, true) => {
                let address = self.node.options.address;
                fabric.host_up(address);
                self.host = Some((fabric.clone(), address));
            }
            (Some((fabric, address)), false) => {
                fabric.host_down(*address);
                self.host = None;
            }
            _ => {}
        }
    }

    /// A script may want the machine to die here.
    fn meet_fate(&self, from: Stage) {
        let stage = self.machine.stage;
        let dies = self.node.fault(|gate, names| gate.dies_in(names, stage)).unwrap_or_default();
        if dies && stage != Stage::Off {
            tracing::info!(node = %self.node.options.address, ?from, ?stage, "SIMULATED: dies as the fault script says");
            self.node.send(Input::PowerOff);
        }
    }

    /// Talos' machine status goes into the event stream whenever it changes.
    fn tell_status(&mut self, world: &Shared, actor: &str) {
        let status = self.machine.status();
        if self.last_status.as_ref() != Some(&status) {
            let id = world.random().event_id();
            self.node.journal.machine_status(id, actor, &status);
            self.last_status = Some(status);
        }
    }

    async fn perform(&mut self, world: &Arc<Shared>, effect: Effect, actor: &str) {
        match effect {
            Effect::Answer(_) => {}
            Effect::Serve(port) => self.serve(world, port).await,
            Effect::Close { graceful } => {
                for port in self.open.drain(..) {
                    port.close(graceful).await;
                }
                let mut faces = self.node.faces();
                faces.maintenance = None;
                faces.signed = None;
            }
            Effect::Start(task) => self.start(world, task),
            Effect::RequestCertificate => {
                tokio::spawn(trust::request(self.node.clone(), self.machine.boot));
            }
            Effect::Etcd(call) => self.etcd(world, call),
            Effect::Emit(event) => {
                let id = world.random().event_id();
                self.node.journal.event(id, actor, &event);
            }
            Effect::Log(line) => {
                tracing::info!(node = %self.node.options.address, "SIMULATED: {line}");
                self.node.journal.log(&line);
            }
        }
    }

    fn start(&mut self, world: &Shared, task: Task) {
        if task == Task::Boot && self.boot != self.machine.boot {
            self.boot = self.machine.boot;
            let boot_id = world.random().uuid();
            self.node.journal.begin(boot_id);
            self.last_status = None;
        }
        self.node.faces().outstanding.push((task, self.machine.boot));
        let never = self.node.never_ends(task);
        if never {
            let line = format!("SIMULATED: {task:?} does not end, as the fault script says");
            self.node.journal.log(&line);
        }
        let jitter = delays::jitter(world.options.seed, world.random().fraction());
        let delay = delays::delay(task, world.options.speed, jitter);
        let (node, boot) = (Arc::downgrade(&self.node), self.machine.boot);
        let gate = world.gate.clone().filter(|_| never);
        tokio::spawn(async move {
            if let Some(gate) = gate {
                let holds = |_: &Gate| node.upgrade().is_some_and(|node| node.never_ends(task));
                gate.until_mended(holds).await;
            }
            tokio::time::sleep(delay).await;
            if let Some(node) = node.upgrade() {
                let _busy = node.calm.busy().await;
                node.send(Input::Done(task, boot));
            }
        });
    }

    async fn serve(&mut self, world: &Shared, port: Port) {
        match self.open_port(&world.network, port).await {
            Ok(listening) => self.open.push(listening),
            Err(error) => {
                let line = format!("cannot serve {port:?}: {error}");
                tracing::warn!(node = %self.node.options.address, "{line}");
                self.node.journal.log(&line);
            }
        }
    }

    async fn open_port(&self, network: &Network, port: Port) -> Result<Listening, ServeError> {
        let node = self.node.clone();
        let listening = match port {
            Port::Maintenance => {
                let identity = node.maintenance_identity()?;
                let answer = move |_, request| api::maintenance(node.clone(), request);
                Listening::open(network, self.node.api_address(), tls::open(identity)?, answer).await?
            }
            Port::Apid => {
                let config = self.machine.config().ok_or(ServeError::NoConfig)?;
                let identity = self.api_identity(config)?;
                let mut cas = pki::certificates(&config.parts.os_ca.cert).map_err(TlsError::from)?;
                for pem in &config.parts.accepted_cas {
                    cas.extend(pki::certificates(pem).map_err(TlsError::from)?);
                }
                let clock = Arc::downgrade(&node);
                let ahead = move || clock.upgrade().map(|node| node.clock_skew()).unwrap_or_default();
                let config = tls::mutual(identity, &cas, config.parts.check_key_usage, ahead)?;
                let answer = move |caller, request| api::configured(node.clone(), caller, request);
                Listening::open(network, self.node.api_address(), config, answer).await?
            }
            Port::Trustd => {
                let config = self.machine.config().ok_or(ServeError::NoConfig)?;
                let identity =
                    pki::server(&config.parts.os_ca, &self.node.names()).map_err(TlsError::from)?;
                let answer = move |_, request| api::trustd(node.clone(), request);
                Listening::open(network, self.node.trustd_address(), tls::open(identity)?, answer).await?
            }
        };
        Ok(listening)
    }

    fn api_identity(&self, config: &NodeConfig) -> Result<pki::Identity, ServeError> {
        let signed = self.node.faces().signed.clone();
        Ok(match signed {
            Some(signed) => signed.0.clone(),
            None => pki::server(&config.parts.os_ca, &self.node.names()).map_err(TlsError::from)?,
        })
    }

    fn etcd(&self, world: &Shared, call: EtcdCall) {
        // First, and whatever the disk holds by now: a reset has wiped the configuration along with the data.
        if let EtcdCall::Stop(member) = call {
            return world.etcd().stop(member);
        }
        let Some(identity) = identity(&self.machine) else { return };
        let id = world.random().next();
        let newcomer = Newcomer { id, name: self.node.hostname(), address: self.node.options.address };
        let never_joins = self.node.fault(Gate::never_joins).unwrap_or_default();
        let never_promoted = self.node.fault(Gate::never_promoted).unwrap_or_default();
        let mut etcd = world.etcd();
        let came = match call {
            EtcdCall::Create => {
                let cluster = world.random().next();
                let member = etcd.create(cluster, identity, newcomer);
                Some(Input::EtcdMember { member, learner: false })
            }
            EtcdCall::Join if never_joins => Some(Input::EtcdNotFound),
            EtcdCall::Join => Some(match etcd.join(&identity, newcomer) {
                Some(member) => Input::EtcdMember { member, learner: true },
                None => Input::EtcdNotFound,
            }),
            EtcdCall::Start(member) => Some(match etcd.start(member) {
                Some(learner) => Input::EtcdStarted { learner },
                None => Input::EtcdRemoved,
            }),
            EtcdCall::Stop(_) => None,
            EtcdCall::Promote(_) if never_promoted => Some(Input::EtcdNotPromoted),
            EtcdCall::Promote(member) => {
                Some(if etcd.promote(member) { Input::EtcdPromoted } else { Input::EtcdNotPromoted })
            }
            EtcdCall::Leave(Member { cluster, id }) => Some(Input::EtcdLeft(etcd.remove(cluster, id))),
        };
        drop(etcd);
        if let Some(input) = came {
            self.node.send(input);
        }
    }
}

/// Why a port can't be opened.
#[derive(Debug, thiserror::Error)]
enum ServeError {
    #[error("there is no configuration")]
    NoConfig,
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot listen: {0}")]
    Listen(#[from] io::Error),
}
