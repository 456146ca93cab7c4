//! What the script says of machines.

use super::{Gate, MachineFault, MachineRule, Pattern};
use crate::machine::Stage;
use tokio::sync::{mpsc, oneshot};

/// Machines of this name are to lose their power; the answer tells that they have.
#[derive(Debug)]
pub(crate) struct KillOrder {
    pub(crate) machine: Pattern,
    pub(crate) done: oneshot::Sender<()>,
}

impl Gate {
    /// Where the orders go that come with a call's number.
    pub(crate) fn take_kills(&self) -> mpsc::UnboundedReceiver<KillOrder> {
        let (sender, orders) = mpsc::unbounded_channel();
        *self.inner.kills.lock() = Some(sender);
        orders
    }

    pub(super) async fn kill(&self, machine: Pattern) {
        let kills = self.inner.kills.lock().clone();
        let (done, killed) = oneshot::channel();
        if let Some(kills) = kills
            && kills.send(KillOrder { machine, done }).is_ok()
        {
            let _ = killed.await;
        }
    }

    fn rules(&self, names: &[&str]) -> impl Iterator<Item = (usize, MachineRule)> + use<> {
        let fits = move |rule: &MachineRule| names.iter().any(|name| rule.machine.fits(name));
        let script = self.script();
        let rules = script.machines.iter().cloned().enumerate().filter(move |(_, rule)| fits(rule));
        rules.collect::<Vec<_>>().into_iter()
    }

    /// Waits until `fault` is no longer so. Ends as well when the data centre does.
    pub(crate) async fn until_mended(&self, mut fault: impl FnMut(&Gate) -> bool) {
        let mut changed = self.watch();
        while fault(self) && !self.inner.state.lock().closed {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// Whether a machine with these names (its own, its address) dies because it gets to this stage. Says so once for every
    /// rule; the last name is the one that a machine is remembered by.
    pub(crate) fn dies_in(&self, names: &[&str], stage: Stage) -> bool {
        let Some(id) = names.last() else { return false };
        // Without a stage or a call, a machine dies as soon as it has power.
        let when = |rule: &MachineRule| match (rule.stage, rule.call) {
            (Some(wanted), _) => wanted == stage,
            (None, None) => stage == Stage::PoweringOn,
            (None, Some(_)) => false,
        };
        let dies = |rule: &MachineRule| rule.fault == MachineFault::Die && when(rule);
        let due = self.rules(names).find(|(_, rule)| dies(rule));
        due.is_some_and(|(number, _)| self.inner.state.lock().died.insert((number, (*id).to_string())))
    }

    pub(crate) fn never_boots(&self, names: &[&str]) -> bool {
        self.rules(names).any(|(_, rule)| rule.fault == MachineFault::NeverBoots)
    }

    pub(crate) fn never_joins(&self, names: &[&str]) -> bool {
        self.rules(names).any(|(_, rule)| rule.fault == MachineFault::NeverJoins)
    }

    pub(crate) fn never_promoted(&self, names: &[&str]) -> bool {
        self.rules(names).any(|(_, rule)| rule.fault == MachineFault::NeverPromoted)
    }

    /// How many seconds a machine's clock is ahead.
    pub(crate) fn clock_skew(&self, names: &[&str]) -> Option<i64> {
        self.rules(names).find_map(|(_, rule)| match rule.fault {
            MachineFault::ClockSkew(seconds) => Some(seconds),
            _ => None,
        })
    }
}
