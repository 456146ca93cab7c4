//! State, machines and time of an infrastructure, and the tasks that it runs.

use super::Place;
use crate::fabric::Fabric;
use crate::gate::Gate;
use crate::world::{NodeOptions, World};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What every connection to an infrastructure and its clock share.
#[derive(Debug)]
pub(crate) struct Base<S> {
    pub(crate) state: Mutex<S>,
    pub(crate) gate: Gate,
    pub(crate) world: World,
    pub(crate) fabric: Fabric,
    /// Effects happen in their order: only who holds this carries any out.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// Something new may be due.
    begun: Notify,
    epoch: (u64, Instant),
}

/// Tasks that end with their owner.
#[derive(Debug)]
pub(crate) struct Tasks(Mutex<Vec<JoinHandle<()>>>);

/// The time since 1970, by this computer's clock.
pub(crate) fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl<S: Clone> Base<S> {
    pub(crate) fn new(state: S, place: Place) -> Self {
        Self {
            state: Mutex::new(state),
            gate: place.gate,
            world: place.world,
            fabric: place.fabric,
            turn: tokio::sync::Mutex::new(()),
            begun: Notify::new(),
            epoch: (u64::try_from(wall_clock().as_millis()).unwrap_or_default(), Instant::now()),
        }
    }

    /// Milliseconds; with tokio's clock, so that paused time works.
    pub(crate) fn now(&self) -> u64 {
        let (start, instant) = self.epoch;
        start + u64::try_from(instant.elapsed().as_millis()).unwrap_or_default()
    }

    /// Something has changed, and may be due.
    pub(crate) fn tell(&self) {
        self.begun.notify_one();
    }

    /// Waits until something is due.
    pub(crate) async fn due(&self, next_due: impl Fn(&S) -> Option<u64>) {
        loop {
            let due = next_due(&self.state.lock());
            let begun = self.begun.notified();
            let Some(due) = due else {
                begun.await;
                continue;
            };
            let wait = Duration::from_millis(due.saturating_sub(self.now()));
            if wait.is_zero() || tokio::time::timeout(wait, begun).await.is_err() {
                return;
            }
        }
    }

    /// A copy of the state now. A machine may be on its way up.
    pub(crate) fn copy(&self) -> S {
        self.state.lock().clone()
    }

    /// A copy of the state, taken between two calls.
    pub(crate) async fn snapshot(&self) -> S {
        let _turn = self.turn.lock().await;
        self.copy()
    }

    /// Switches a machine on: one that was on before and is in the world, else a new one.
    pub(crate) async fn power_on(&self, known: bool, options: NodeOptions) -> Result<(), String> {
        if known && let Some(machine) = self.world.node(options.address) {
            machine.power_on().await;
            return Ok(());
        }
        self.world.add_node(options).await.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Pulls a machine's plug.
    pub(crate) async fn power_off(&self, address: IpAddr) {
        if let Some(machine) = self.world.node(address) {
            machine.power_off().await;
        }
    }

    /// A machine is off and on again.
    pub(crate) async fn cycle(&self, address: IpAddr) {
        if let Some(machine) = self.world.node(address) {
            machine.power_off().await;
            machine.power_on().await;
        }
    }
}

/// Does something to its end, also when whoever asked for it hangs up meanwhile: a machine that is left halfway would be on in the
/// world, and off for its infrastructure, for ever.
pub(crate) async fn to_the_end(work: impl Future<Output = ()> + Send + 'static) {
    let _ = tokio::spawn(work).await;
}

impl Tasks {
    pub(crate) fn new(tasks: Vec<JoinHandle<()>>) -> Self {
        Self(Mutex::new(tasks))
    }

    /// Ends them, and returns when they have ended.
    pub(crate) async fn end(&self) {
        let tasks = std::mem::take(&mut *self.0.lock());
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.lock().iter().for_each(JoinHandle::abort);
    }
}
