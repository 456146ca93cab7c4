//! The thin shell around [`State`]: time, the world's machines, and the port.

use super::before::Before;
use super::request::{Answer, Call};
use super::serve;
use super::site::ProxmoxSite;
use super::state::{Boot, Effect, State};
use crate::infrastructure::{Base, Place, StartError, Tasks, port, to_the_end};
use crate::machine::{Media, Stage};
use crate::world::NodeOptions;
use parking_lot::Mutex;
use std::net::SocketAddr;
use std::sync::Arc;

/// A simulated Proxmox VE is started by this.
#[derive(Debug)]
pub struct Proxmox;

/// A running Proxmox. Clones are the same one; it ends with [`ProxmoxHandle::stop`] or when the last handle is dropped.
#[derive(Debug, Clone)]
pub struct ProxmoxHandle {
    running: Arc<Running>,
}

#[derive(Debug)]
struct Running {
    shell: Arc<Shell>,
    address: SocketAddr,
    tasks: Tasks,
}

/// What every connection and the clock share.
#[derive(Debug)]
pub(super) struct Shell {
    pub(super) base: Base<State>,
    /// What the last call that changed something has changed, for reads that are to be stale.
    before: Mutex<Before>,
}

impl Proxmox {
    /// Starts a Proxmox as its site describes it.
    ///
    /// # Errors
    /// Fails when its port is taken.
    pub fn serve(site: &ProxmoxSite, place: Place, seed: u64) -> Result<ProxmoxHandle, StartError> {
        let state = State::new(site, place.speed, seed);
        Self::resume(site, state, place)
    }

    /// Goes on from a snapshot, in a world that has the machines of that moment.
    ///
    /// # Errors
    /// Fails when its port is taken.
    pub fn resume(site: &ProxmoxSite, state: State, place: Place) -> Result<ProxmoxHandle, StartError> {
        let address = SocketAddr::new(site.address, site.port);
        let mut names = site.names.clone();
        names.push(site.address.to_string());
        let (listener, tls) = place.open("Proxmox", address, &names)?;
        site.names.iter().for_each(|name| place.fabric.name(name, site.address));
        state.foreign_addresses().into_iter().for_each(|address| place.fabric.host_up(address));
        let shell = Arc::new(Shell { base: Base::new(state, place), before: Mutex::default() });
        let clock = tokio::spawn(clock(shell.clone()));
        let called = shell.clone();
        let answer = move |request| serve::answer(called.clone(), request);
        let port = tokio::spawn(port::accept(listener, Some(tls), answer));
        let running = Running { shell, address, tasks: Tasks::new(vec![clock, port]) };
        Ok(ProxmoxHandle { running: Arc::new(running) })
    }
}

/// Carries out tasks when they are due, whether anybody asks or not.
async fn clock(shell: Arc<Shell>) {
    loop {
        shell.base.due(State::next_due).await;
        to_the_end(shell.clone().settle()).await;
    }
}

impl Shell {
    /// What the gate is told about a call.
    pub(super) fn describe(&self, call: &Call) -> (String, String) {
        let state = self.base.state.lock();
        (state.operation_of(call), state.object_of(call))
    }

    /// Answers a call, after everything that is due has happened.
    pub(super) async fn answer(self: &Arc<Self>, call: &Call) -> Answer {
        to_the_end(self.clone().settle()).await;
        self.look(call);
        let now = self.base.now();
        let mut state = self.base.state.lock();
        if call.method != "GET" {
            *self.before.lock() = state.before(call);
        } else if call.stale {
            return state.as_before(&self.before.lock()).handle(call, now);
        }
        let answer = state.handle(call, now);
        drop(state);
        self.base.tell();
        answer
    }

    /// Carries out what is due.
    async fn settle(self: Arc<Self>) {
        let turn = self.base.turn.lock().await;
        loop {
            let effects = self.base.state.lock().advance(self.base.now());
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.perform(effect).await;
            }
        }
        drop(turn);
    }

    /// Power and agent of the machines that a call is about change without a call.
    fn look(&self, call: &Call) {
        let now = self.base.now();
        let all = call.vmid().is_none();
        let mut state = self.base.state.lock();
        for (vmid, address) in state.machines() {
            if !all && call.vmid() != Some(vmid) {
                continue;
            }
            let Some(stage) = self.base.world.node(address).map(|machine| machine.stage()) else { continue };
            let up = matches!(
                stage,
                Stage::Maintenance | Stage::LeavingMaintenance | Stage::Booting | Stage::Running
            );
            state.observe(vmid, stage != Stage::Off, up, now);
        }
    }

    async fn perform(&self, effect: Effect) {
        match effect {
            Effect::PowerOn { upid, vmid, boot } => {
                let address = boot.address;
                let outcome = self.power_on(boot).await;
                if let Err(why) = &outcome {
                    tracing::warn!(vmid, %address, "SIMULATED: {why}");
                }
                self.base.state.lock().booted(&upid, vmid, address, outcome, self.base.now());
            }
            Effect::PowerOff { address } => self.base.power_off(address).await,
            Effect::Cycle { address } => self.base.cycle(address).await,
            Effect::Remove { address } => self.base.world.remove_node(address).await,
            Effect::Foreign { address, up: true } => self.base.fabric.host_up(address),
            Effect::Foreign { address, up: false } => self.base.fabric.host_down(address),
        }
    }

    async fn power_on(&self, boot: Boot) -> Result<(), String> {
        let mut options = NodeOptions::new(boot.address);
        options.media = if boot.from_iso { Media::Iso } else { Media::DiskImage };
        options.talos_version = boot.talos_version;
        options.hostname = boot.hostname;
        // Two machines with one address would both run in reality, and neither well; here the second one stays off.
        self.base.power_on(boot.known, options).await
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
        self.running.shell.base.snapshot().await
    }

    /// A copy of everything that it knows now. A machine may be on its way up.
    #[must_use]
    pub fn state(&self) -> State {
        self.running.shell.base.copy()
    }

    /// Changes what it knows, as an administrator at its console could.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.running.shell.base.state.lock());
        self.running.shell.base.tell();
    }

    /// Closes the port and ends its connections. The machines stay as they are.
    pub async fn stop(&self) {
        self.running.tasks.end().await;
        self.running.shell.base.fabric.host_down(self.running.address.ip());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fabric, Network, SimCa, World, WorldOptions};
    use std::time::Duration;

    fn call(target: &str, form: &str) -> Call {
        let target = format!("/api2/json/nodes/pve1/qemu/{target}");
        let call = Call::read("POST", &target, "application/x-www-form-urlencoded", form.as_bytes());
        let token = "PVEAPIToken=root@pam!butler=7f0c2a5e-3c43-4d5b-9c0f-2f6f0e0d9a11";
        Call { authorization: Some(token.to_owned()), ..call.ok().flatten().unwrap() }
    }

    #[tokio::test]
    async fn a_caller_that_hangs_up_leaves_no_machine_halfway() {
        let fabric = Fabric::default();
        let world = World::on(Network::Fabric(fabric.clone()), WorldOptions { speed: 0.0, seed: 1 });
        let place = Place {
            world: world.clone(),
            fabric,
            gate: crate::gate::Gate::default(),
            ca: SimCa::generate().unwrap(),
            speed: 0.0,
        };
        let proxmox = Proxmox::serve(&ProxmoxSite::example(), place, 1).unwrap();
        let shell = proxmox.running.shell.clone();
        let ask = |target, form| shell.base.state.lock().handle(&call(target, form), shell.base.now());
        assert_eq!(ask("9000/clone", "newid=200&name=cp-0&full=1").status, 200);
        shell.clone().settle().await;
        assert_eq!(ask("200/status/start", "").status, 200);
        // Whoever asks next has the machine switched on, and leaves in the middle of that.
        let next = call("200/config", "cores=2");
        let mut asking = Box::pin(shell.answer(&next));
        assert!(futures::poll!(&mut asking).is_pending());
        drop(asking);
        let on = async {
            while proxmox.snapshot().await.machine_of(200).is_none() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), on).await.unwrap();
        proxmox.stop().await;
        world.stop().await;
    }
}
