//! The thin shell around [`State`]: time, the world's machines, public addresses, load balancers, and the port.

use super::request::{Answer, Call, Service};
use super::route::Context;
use super::serve;
use super::sign::Arrived;
use super::site::AwsSite;
use super::state::{Boot, Effect, State};
use crate::balancer::{Balancers, BalancersState};
use crate::infrastructure::{Base, Place, StartError, Tasks, port, to_the_end, wall_clock};
use crate::machine::{Media, Stage};
use crate::world::NodeOptions;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Whose balancers ours are.
const OWNER: &str = "arn:aws:";

/// A simulated AWS account is started by this.
#[derive(Debug)]
pub struct Aws;

/// A running account. Clones are the same one; it ends with [`AwsHandle::stop`] or when the last handle is dropped.
#[derive(Debug, Clone)]
pub struct AwsHandle {
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
    /// The state before the last call that changed something, for reads that are to be stale.
    before: Mutex<Option<State>>,
    balancers: Balancers,
    pub(super) region: String,
}

impl Aws {
    /// Goes on from a state, in a world that has the machines of that moment. `health` is what its load balancers know of
    /// their targets from before.
    ///
    /// # Errors
    /// Fails when its port is taken.
    pub fn resume(
        site: &AwsSite,
        state: State,
        place: Place,
        health: BalancersState,
    ) -> Result<AwsHandle, StartError> {
        let names = Service::ALL.map(|service| format!("{}.{}.amazonaws.com", service.name(), site.region));
        let address = SocketAddr::new(site.address, 443);
        let (listener, tls) = place.open("AWS", address, &names)?;
        names.iter().for_each(|name| place.fabric.name(name, site.address));
        let balancers = Balancers::import(place.fabric.clone(), &place.world, place.speed, health);
        let shell = Arc::new(Shell {
            base: Base::new(state, place),
            before: Mutex::default(),
            balancers,
            region: site.region.clone(),
        });
        shell.guard();
        shell.rebalance();
        let clock = tokio::spawn(clock(shell.clone()));
        let called = shell.clone();
        let answer = move |request| serve::answer(called.clone(), request);
        let port = tokio::spawn(port::accept(listener, Some(tls), answer));
        Ok(AwsHandle { running: Arc::new(Running { shell, address, tasks: Tasks::new(vec![clock, port]) }) })
    }
}

/// Carries out what is due, whether anybody asks or not.
async fn clock(shell: Arc<Shell>) {
    loop {
        shell.base.due(State::next_due).await;
        to_the_end(shell.clone().settle()).await;
    }
}

impl Shell {
    /// Connections from outside meet the security groups.
    fn guard(self: &Arc<Self>) {
        let shell = Arc::downgrade(self);
        self.base.fabric.guard(Arc::new(move |to| {
            shell.upgrade().is_none_or(|shell| shell.base.state.lock().admits_from_outside(to))
        }));
    }

    /// What the gate is told that a call is about.
    pub(super) fn object_of(&self, call: &Call) -> String {
        self.base.state.lock().object_of(call)
    }

    pub(super) fn request_id(&self) -> String {
        self.base.state.lock().request_id(self.base.now())
    }

    /// Answers a call, after everything that is due has happened.
    pub(super) async fn answer(self: &Arc<Self>, call: &Call, arrived: &Arrived<'_>, stale: bool) -> Answer {
        to_the_end(self.clone().settle()).await;
        let now = self.base.now();
        let health =
            |balancer: &str, group: &str, target| self.balancers.health(balancer, group, target).verdict;
        let mut state = self.base.state.lock();
        let caller = match state.authenticate(call.service, arrived, wall_clock().as_secs()) {
            Ok(caller) => caller,
            Err(refusal) => return Answer::refused(call.service, &refusal, &state.request_id(now)),
        };
        let context = Context { now, health: &health, caller };
        if call.mutates() {
            *self.before.lock() = Some(state.clone());
        } else if stale && let Some(mut old) = self.before.lock().clone() {
            return old.handle(call, &context);
        }
        let answer = state.handle(call, &context);
        drop(state);
        if call.mutates() {
            self.rebalance();
        }
        self.base.tell();
        answer
    }

    /// Carries out what is due, then looks at the machines.
    async fn settle(self: Arc<Self>) {
        let turn = self.base.turn.lock().await;
        let mut changed = false;
        loop {
            let (effects, moved) = {
                let mut state = self.base.state.lock();
                let now = self.base.now();
                let due = state.next_due().is_some_and(|due| due <= now);
                (state.advance(now), due)
            };
            changed |= moved;
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.perform(effect).await;
            }
        }
        changed |= self.look();
        if changed {
            self.rebalance();
        }
        drop(turn);
    }

    /// Machines can switch themselves off. Says whether one has.
    fn look(&self) -> bool {
        let mut state = self.base.state.lock();
        let mut changed = false;
        for (id, address) in state.machines() {
            let Some(stage) = self.base.world.node(address).map(|machine| machine.stage()) else { continue };
            if stage == Stage::Off {
                changed |= state.observe_off(&id);
            }
        }
        changed
    }

    /// Tells the balancers what is wanted of them now.
    fn rebalance(&self) {
        self.balancers.apply_newest(OWNER, || self.base.state.lock().data_plane());
    }

    async fn perform(&self, effect: Effect) {
        match effect {
            Effect::PowerOn { instance, boot } => {
                let address = boot.address;
                if let Err(why) = self.power_on(boot).await {
                    tracing::warn!(%instance, %address, "SIMULATED: {why}");
                }
            }
            Effect::PowerOff { address } => self.base.power_off(address).await,
            Effect::Cycle { address } => self.base.cycle(address).await,
            Effect::Remove { address } => self.base.world.remove_node(address).await,
            Effect::Lead { public, to } => self.base.fabric.hold(public, to),
        }
    }

    async fn power_on(&self, boot: Boot) -> Result<(), String> {
        let mut options = NodeOptions::new(boot.address);
        options.media = Media::DiskImage;
        options.talos_version = boot.talos_version;
        options.hostname = Some(boot.hostname);
        options.user_data = boot.user_data.map(|data| data.reveal().to_string());
        self.base.power_on(boot.known, options).await
    }
}

impl AwsHandle {
    /// Where its APIs answer, in the fabric.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.running.address
    }

    /// A copy of everything that the account knows, taken between two calls.
    pub async fn snapshot(&self) -> State {
        self.running.shell.base.snapshot().await
    }

    /// A copy of everything that the account knows now. A machine may be on its way up.
    #[must_use]
    pub fn state(&self) -> State {
        self.running.shell.base.copy()
    }

    /// Changes what the account knows, as an administrator at the console could.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.running.shell.base.state.lock());
        self.running.shell.rebalance();
        self.running.shell.base.tell();
    }

    /// Makes a call as an administrator at the console could: nobody signs it, and no gate sees it. Parameters as on the
    /// wire, without `Action` and `Version`.
    pub fn call(&self, service: Service, action: &str, params: &[(&str, &str)]) -> Answer {
        let shell = &self.running.shell;
        let version = super::model::version(service);
        let own = [("Action", action), ("Version", version)];
        let params: BTreeMap<String, String> = params
            .iter()
            .chain(&own)
            .map(|(key, value)| ((*key).to_string(), (*value).to_string()))
            .collect();
        let call = Call { service, action: action.to_string(), params };
        let health =
            |balancer: &str, group: &str, target| shell.balancers.health(balancer, group, target).verdict;
        let context = Context { now: shell.base.now(), health: &health, caller: "console".to_string() };
        let answer = shell.base.state.lock().handle(&call, &context);
        shell.rebalance();
        shell.base.tell();
        answer
    }

    /// Its load balancers at work.
    #[must_use]
    pub fn balancers(&self) -> &Balancers {
        &self.running.shell.balancers
    }

    /// Closes the port and ends its connections. The machines stay as they are.
    pub async fn stop(&self) {
        self.running.tasks.end().await;
        self.running.shell.balancers.apply(OWNER, BTreeMap::new());
        self.running.shell.base.fabric.host_down(self.running.address.ip());
    }
}
