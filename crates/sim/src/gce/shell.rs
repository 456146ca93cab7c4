//! The thin shell around [`State`]: time, the world's machines, addresses, load balancers, and the ports.

use super::balance::OWNER;
use super::request::{Answer, Call};
use super::serve;
use super::site::GceSite;
use super::state::{Boot, Effect, State};
use crate::balancer::{Balancers, BalancersState};
use crate::infrastructure::{Base, Place, StartError, Tasks, port, to_the_end};
use crate::machine::{Media, Stage};
use crate::world::NodeOptions;
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Where Google's APIs answer: the range that Google gives to private access.
const APIS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(199, 36, 153, 8)), 443);
const NAMES: [&str; 4] = [
    "compute.googleapis.com",
    "www.googleapis.com",
    "oauth2.googleapis.com",
    "cloudresourcemanager.googleapis.com",
];
const METADATA: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), 80);
const METADATA_NAME: &str = "metadata.google.internal";
/// Google waits two minutes at most, and promises less. A shorter wait keeps snapshots from waiting along.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// How errors call it.
const WHAT: &str = "Google Cloud";

/// A simulated project of Google Cloud is started by this.
#[derive(Debug)]
pub struct Gce;

/// A running project. Clones are the same one; it ends with [`GceHandle::stop`] or when the last handle is dropped.
#[derive(Debug, Clone)]
pub struct GceHandle {
    running: Arc<Running>,
}

#[derive(Debug)]
struct Running {
    shell: Arc<Shell>,
    tasks: Tasks,
}

/// What every connection and the clock share.
#[derive(Debug)]
pub(super) struct Shell {
    pub(super) base: Base<State>,
    /// The state before the last call that changed something, for reads that are to be stale.
    before: Mutex<Option<State>>,
    balancers: Balancers,
    /// Counts the times that operations have ended.
    settled: watch::Sender<u64>,
}

impl Gce {
    /// Goes on from a state, in a world that has the machines of that moment. `health` is what its load balancers know of
    /// their targets from before.
    ///
    /// # Errors
    /// Fails when one of its ports is taken.
    pub fn resume(state: State, place: Place, health: BalancersState) -> Result<GceHandle, StartError> {
        let (listener, tls) = place.open(WHAT, APIS, &NAMES.map(ToString::to_string))?;
        let mut ports = vec![(listener, Some(tls))];
        // The metadata server of a machine is without TLS.
        if state.metadata_server {
            ports.push((place.listen(WHAT, METADATA)?, None));
            place.fabric.name(METADATA_NAME, METADATA.ip());
        }
        NAMES.iter().for_each(|name| place.fabric.name(name, APIS.ip()));
        let balancers = Balancers::import(place.fabric.clone(), &place.world, place.speed, health);
        let shell = Arc::new(Shell {
            base: Base::new(state, place),
            before: Mutex::default(),
            balancers,
            settled: watch::Sender::new(0),
        });
        shell.guard();
        shell.rebalance();
        let mut tasks = vec![tokio::spawn(clock(shell.clone()))];
        for (listener, tls) in ports {
            let (shell, metadata) = (shell.clone(), tls.is_none());
            let answer = move |request| serve::answer(shell.clone(), metadata, request);
            tasks.push(tokio::spawn(port::accept(listener, tls, answer)));
        }
        Ok(GceHandle { running: Arc::new(Running { shell, tasks: Tasks::new(tasks) }) })
    }

    /// What a project knows at the beginning of time.
    #[must_use]
    pub fn fresh(site: &GceSite, speed: f64, seed: u64) -> State {
        State::new(site, speed, seed)
    }
}

/// Carries out operations when they are due, whether anybody asks or not.
async fn clock(shell: Arc<Shell>) {
    loop {
        shell.base.due(State::next_due).await;
        to_the_end(shell.clone().settle()).await;
    }
}

impl Shell {
    /// Connections from outside meet the firewall.
    fn guard(self: &Arc<Self>) {
        let shell = Arc::downgrade(self);
        self.base.fabric.guard(Arc::new(move |to| {
            shell.upgrade().is_none_or(|shell| shell.base.state.lock().admits_from_outside(to))
        }));
    }

    /// What the gate is told about a call.
    pub(super) fn describe(&self, call: &Call) -> (String, String, bool) {
        self.base.state.lock().describe(call)
    }

    /// Answers a call, after everything that is due has happened.
    pub(super) async fn answer(self: &Arc<Self>, call: &Call, stale: bool) -> Answer {
        to_the_end(self.clone().settle()).await;
        let awaited = self.base.state.lock().waits_for(call);
        if let Some(name) = awaited {
            let mut settled = self.settled.subscribe();
            let over = settled.wait_for(|_| !self.base.state.lock().is_under_way(&name));
            let _ = tokio::time::timeout(LONGEST_WAIT, over).await;
        }
        let now = self.base.now();
        let health =
            |balancer: &str, pool: &str, target| self.balancers.health(balancer, pool, target).is_healthy();
        let mutates = self.describe(call).2;
        let mut state = self.base.state.lock();
        if mutates {
            *self.before.lock() = Some(state.clone());
        } else if stale && let Some(mut old) = self.before.lock().clone() {
            old.keep_current(&state);
            return old.handle(call, now, &health);
        }
        let answer = state.handle(call, now, &health);
        drop(state);
        self.base.tell();
        answer
    }

    /// Carries out what is due, then looks at the machines.
    async fn settle(self: Arc<Self>) {
        let turn = self.base.turn.lock().await;
        let mut changed = false;
        loop {
            let (effects, ended) = {
                let mut state = self.base.state.lock();
                let before = state.under_way();
                let effects = state.advance(self.base.now());
                (effects, state.under_way() != before)
            };
            changed |= ended || !effects.is_empty();
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.perform(effect).await;
            }
        }
        self.look();
        if changed {
            self.rebalance();
            self.settled.send_modify(|count| *count += 1);
        }
        drop(turn);
    }

    /// Machines can switch themselves off.
    fn look(&self) {
        let now = self.base.now();
        let mut state = self.base.state.lock();
        for (path, address) in state.machines() {
            let Some(stage) = self.base.world.node(address).map(|machine| machine.stage()) else { continue };
            state.observe(&path, stage != Stage::Off, now);
        }
    }

    /// Tells the balancers what is wanted of them now.
    fn rebalance(&self) {
        self.balancers.apply_newest(OWNER, || self.base.state.lock().balancers());
    }

    async fn perform(&self, effect: Effect) {
        match effect {
            Effect::PowerOn { operation, path, boot } => {
                let address = boot.address;
                let outcome = self.power_on(boot).await;
                if let Err(why) = &outcome {
                    tracing::warn!(path, %address, "SIMULATED: {why}");
                }
                self.base.state.lock().booted(&operation, &path, address, outcome, self.base.now());
            }
            Effect::PowerOff { address } => self.base.power_off(address).await,
            Effect::Cycle { address } => self.base.cycle(address).await,
            Effect::Remove { address } => self.base.world.remove_node(address).await,
            Effect::Translate { external, internal } => self.base.fabric.hold(external, internal),
        }
    }

    async fn power_on(&self, boot: Boot) -> Result<(), String> {
        // Not Talos: nothing to simulate behind it.
        let Some(talos_version) = boot.talos_version else { return Ok(()) };
        let mut options = NodeOptions::new(boot.address);
        options.media = Media::DiskImage;
        options.talos_version = talos_version;
        options.hostname = Some(boot.hostname);
        options.user_data = boot.user_data;
        self.base.power_on(boot.known, options).await
    }
}

impl GceHandle {
    /// A copy of everything that the project knows, taken between two calls.
    pub async fn snapshot(&self) -> State {
        self.running.shell.base.snapshot().await
    }

    /// A copy of everything that the project knows now. A machine may be on its way up.
    #[must_use]
    pub fn state(&self) -> State {
        self.running.shell.base.copy()
    }

    /// Changes what the project knows, as an administrator at the console could.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.running.shell.base.state.lock());
        self.running.shell.rebalance();
        self.running.shell.base.tell();
    }

    /// Its load balancers at work.
    #[must_use]
    pub fn balancers(&self) -> &Balancers {
        &self.running.shell.balancers
    }

    /// Closes the ports and ends its connections. The machines stay as they are.
    pub async fn stop(&self) {
        self.running.tasks.end().await;
        self.running.shell.balancers.apply(OWNER, std::collections::BTreeMap::new());
        let shell = &self.running.shell;
        shell.base.fabric.host_down(APIS.ip());
        if shell.base.state.lock().metadata_server {
            shell.base.fabric.host_down(METADATA.ip());
        }
    }
}
