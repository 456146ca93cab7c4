//! The thin shell around [`State`]: time, the world's machines, and the port.

use super::before::Before;
use super::request::{Answer, Call};
use super::serve;
use super::site::ProxmoxSite;
use super::state::{Boot, Effect, State};
use crate::ca::{CaError, SimCa};
use crate::fabric::Fabric;
use crate::gate::Gate;
use crate::machine::{Media, Stage};
use crate::world::{NodeOptions, World};
use parking_lot::Mutex;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A simulated Proxmox VE is started by this.
#[derive(Debug)]
pub struct Proxmox;

/// Where a Proxmox is put.
#[derive(Debug, Clone)]
pub struct ProxmoxOptions {
    pub world: World,
    pub fabric: Fabric,
    pub gate: Gate,
    pub ca: SimCa,
    /// Scales every delay: 1 is real time, 0 is as fast as possible.
    pub speed: f64,
    pub seed: u64,
}

/// Why a Proxmox can't be started.
#[derive(Debug, thiserror::Error)]
pub enum ProxmoxError {
    #[error("cannot make the certificate of the simulated Proxmox")]
    Ca(#[from] CaError),
    #[error("cannot listen on {address} for the simulated Proxmox")]
    Listen { address: SocketAddr, source: io::Error },
}

/// A running Proxmox. Clones are the same one; it ends with [`ProxmoxHandle::stop`] or when the last handle is dropped.
#[derive(Debug, Clone)]
pub struct ProxmoxHandle {
    running: Arc<Running>,
}

#[derive(Debug)]
struct Running {
    shell: Arc<Shell>,
    address: SocketAddr,
    fabric: Fabric,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// What every connection and the clock share.
#[derive(Debug)]
pub(super) struct Shell {
    state: Mutex<State>,
    /// What the last call that changed something has changed, for reads that are to be stale.
    before: Mutex<Before>,
    pub(super) gate: Gate,
    world: World,
    fabric: Fabric,
    /// Effects happen in their order: only who holds this carries any out.
    turn: tokio::sync::Mutex<()>,
    /// Something new may be due.
    begun: Notify,
    epoch: (u64, Instant),
}

impl Proxmox {
    /// Starts a Proxmox as its site describes it.
    ///
    /// # Errors
    /// Fails when its port is taken.
    pub async fn serve(site: &ProxmoxSite, options: ProxmoxOptions) -> Result<ProxmoxHandle, ProxmoxError> {
        let state = State::new(site, options.speed, options.seed);
        Self::resume(site, state, options).await
    }

    /// Goes on from a snapshot, in a world that has the machines of that moment.
    ///
    /// # Errors
    /// Fails when its port is taken.
    pub async fn resume(
        site: &ProxmoxSite,
        state: State,
        options: ProxmoxOptions,
    ) -> Result<ProxmoxHandle, ProxmoxError> {
        let address = SocketAddr::new(site.address, site.port);
        let mut names = site.names.clone();
        names.push(site.address.to_string());
        let tls = options.ca.server(&names, &[b"h2", b"http/1.1"])?;
        let listener =
            options.fabric.listen(address).map_err(|source| ProxmoxError::Listen { address, source })?;
        options.fabric.host_up(site.address);
        for name in &site.names {
            options.fabric.name(name, site.address);
        }
        state.foreign_addresses().into_iter().for_each(|address| options.fabric.host_up(address));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let shell = Arc::new(Shell {
            state: Mutex::new(state),
            before: Mutex::default(),
            gate: options.gate,
            world: options.world,
            fabric: options.fabric.clone(),
            turn: tokio::sync::Mutex::new(()),
            begun: Notify::new(),
            epoch: (u64::try_from(now.as_millis()).unwrap_or_default(), Instant::now()),
        });
        let tasks = vec![
            tokio::spawn(clock(shell.clone())),
            tokio::spawn(serve::accept(listener, tls, shell.clone())),
        ];
        let running = Running { shell, address, fabric: options.fabric, tasks: Mutex::new(tasks) };
        Ok(ProxmoxHandle { running: Arc::new(running) })
    }
}

/// Carries out tasks when they are due, whether anybody asks or not.
async fn clock(shell: Arc<Shell>) {
    loop {
        let due = shell.state.lock().next_due();
        let begun = shell.begun.notified();
        match due {
            Some(due) => {
                let wait = Duration::from_millis(due.saturating_sub(shell.now()));
                let timed_out = wait.is_zero() || tokio::time::timeout(wait, begun).await.is_err();
                if timed_out {
                    shell.settle(None).await;
                }
            }
            None => begun.await,
        }
    }
}

impl Shell {
    /// Milliseconds; with tokio's clock, so that paused time works.
    fn now(&self) -> u64 {
        let (start, instant) = self.epoch;
        start + u64::try_from(instant.elapsed().as_millis()).unwrap_or_default()
    }

    /// What the gate is told about a call.
    pub(super) fn describe(&self, call: &Call) -> (String, String) {
        let state = self.state.lock();
        (state.operation_of(call), state.object_of(call))
    }

    /// Answers a call, after everything that is due has happened.
    pub(super) async fn answer(&self, call: &Call) -> Answer {
        self.settle(Some(call)).await;
        let now = self.now();
        let mut state = self.state.lock();
        if call.method != "GET" {
            *self.before.lock() = state.before(call);
        } else if call.stale {
            return state.as_before(&self.before.lock()).handle(call, now);
        }
        let answer = state.handle(call, now);
        drop(state);
        self.begun.notify_one();
        answer
    }

    /// Carries out what is due, then looks at the machines that a call is about.
    async fn settle(&self, call: Option<&Call>) {
        let turn = self.turn.lock().await;
        loop {
            let effects = self.state.lock().advance(self.now());
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.perform(effect).await;
            }
        }
        if let Some(call) = call {
            self.look(call);
        }
        drop(turn);
    }

    /// Power and agent of machines change without a call.
    fn look(&self, call: &Call) {
        let now = self.now();
        let all = call.vmid().is_none();
        let mut state = self.state.lock();
        for (vmid, address) in state.machines() {
            if !all && call.vmid() != Some(vmid) {
                continue;
            }
            let Some(stage) = self.world.node(address).map(|machine| machine.stage()) else { continue };
            let up = matches!(
                stage,
                Stage::Maintenance | Stage::LeavingMaintenance | Stage::Booting | Stage::Running
            );
            state.observe(vmid, stage != Stage::Off, up, now);
        }
    }

    async fn perform(&self, effect: Effect) {
        let machine = |address: &IpAddr| self.world.node(*address);
        match effect {
            Effect::PowerOn { upid, vmid, boot } => {
                let address = boot.address;
                let outcome = self.power_on(boot).await;
                if let Err(why) = &outcome {
                    tracing::warn!(vmid, %address, "SIMULATED: {why}");
                }
                self.state.lock().booted(&upid, vmid, address, outcome, self.now());
            }
            Effect::PowerOff { address } => {
                if let Some(machine) = machine(&address) {
                    machine.power_off().await;
                }
            }
            Effect::Cycle { address } => {
                if let Some(machine) = machine(&address) {
                    machine.power_off().await;
                    machine.power_on().await;
                }
            }
            Effect::Remove { address } => self.world.remove_node(address).await,
            Effect::Foreign { address, up: true } => self.fabric.host_up(address),
            Effect::Foreign { address, up: false } => self.fabric.host_down(address),
        }
    }

    async fn power_on(&self, boot: Boot) -> Result<(), String> {
        if boot.known
            && let Some(machine) = self.world.node(boot.address)
        {
            machine.power_on().await;
            return Ok(());
        }
        let mut options = NodeOptions::new(boot.address);
        options.media = if boot.from_iso { Media::Iso } else { Media::DiskImage };
        options.talos_version = boot.talos_version;
        options.hostname = boot.hostname;
        // Two machines with one address would both run in reality, and neither well; here the second one stays off.
        self.world.add_node(options).await.map(|_| ()).map_err(|e| e.to_string())
    }
}

impl ProxmoxHandle {
    /// Where it listens, in the fabric.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// A copy of everything that it knows, taken between two calls.
    pub async fn snapshot(&self) -> State {
        let _turn = self.running.shell.turn.lock().await;
        self.state()
    }

    /// A copy of everything that it knows now. A machine may be on its way up.
    #[must_use]
    pub fn state(&self) -> State {
        self.running.shell.state.lock().clone()
    }

    /// Changes what it knows, as an administrator at its console could.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.running.shell.state.lock());
        self.running.shell.begun.notify_one();
    }

    /// Closes the port and ends its connections. The machines stay as they are.
    pub async fn stop(&self) {
        let tasks = std::mem::take(&mut *self.running.tasks.lock());
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        self.running.fabric.host_down(self.running.address.ip());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.lock().iter().for_each(JoinHandle::abort);
    }
}
