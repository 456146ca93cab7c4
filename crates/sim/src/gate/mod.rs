//! The gate: every call from outside passes it, once before it is carried out and once before it is answered.
//!
//! It numbers calls, keeps them in a log, and lets them go wrong as a [`FaultScript`] says. A server does
//!
//! ```text
//!   match gate.enter(call).await {                        // may hang, or stop here for a test
//!       Verdict::Refuse(fault) => refuse as the real one does; Fault::Reset cuts the connection
//!       Verdict::Proceed(ticket) => {
//!           carry it out (ticket.is_stale(): answer a read from the state before the last change)
//!           match ticket.leave().await {                  // streams leave when they begin, not when they end
//!               Leaving::Answer => answer
//!               Leaving::Lose => cut the connection
//!           }
//!       }
//!   }
//! ```
//!
//! A test can hold a call at either side ([`Gate::hold_at`]), and [`Gate::freeze`] keeps calls out while a snapshot is taken.

mod checkpoint;
mod fault;
mod machines;
mod script;
mod state;

pub use checkpoint::{Checkpoint, Moment};
pub use fault::{Fault, MachineFault};
pub use script::{CallRule, FaultScript, MachineRule, Matcher, Pattern, RandomFaults, ScriptProblem};
pub use state::GateState;

pub(crate) use machines::KillOrder;
pub(crate) use script::RawScript;

use parking_lot::Mutex;
use state::State;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// The systems that calls go to.
pub const SYSTEMS: &[&str] = &["proxmox", "talos", "kubernetes", "gce", "aws"];

/// A call from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// One of [`SYSTEMS`].
    pub system: &'static str,
    /// What is to be done: `POST /nodes/pve1/qemu/9000/clone`, `ApplyConfiguration`.
    pub operation: String,
    /// To what: a machine, a VM, an object.
    pub object: String,
    /// Whether it changes anything.
    pub mutates: bool,
}

/// A call in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedCall {
    /// From 1.
    pub number: u64,
    pub call: Call,
    /// What went wrong with it, on purpose.
    pub fault: Option<Fault>,
    pub progress: Progress,
}

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It waits at the gate, or hangs there for good.
    Waiting,
    /// It was refused; nothing happened.
    Refused,
    /// It is being carried out.
    UnderWay,
    /// It is done and was answered.
    Answered,
    /// It is done and the answer was lost on purpose.
    Lost,
    /// Its server has dropped it without an end, because the caller went away for instance.
    Dropped,
}

/// Whether a call may be carried out.
#[derive(Debug)]
pub enum Verdict {
    Proceed(Ticket),
    Refuse(Fault),
}

/// What is to be done with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    Answer,
    Lose,
}

/// A call that is being carried out.
#[derive(Debug)]
pub struct Ticket {
    gate: Gate,
    number: u64,
    fault: Option<Fault>,
    /// It is counted among the calls under way.
    counted: bool,
}

/// Keeps calls out as long as it lives.
#[derive(Debug)]
pub struct Frozen {
    gate: Gate,
}

/// The gate of a data centre. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Can be another one at any time: causes come, and are mended.
    script: Mutex<Arc<FaultScript>>,
    state: Mutex<State>,
    /// Counts changes of the state; those who wait look again.
    changed: watch::Sender<u64>,
    /// Where machines are told to die.
    kills: Mutex<Option<mpsc::UnboundedSender<KillOrder>>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(FaultScript::default())
    }
}

impl Gate {
    /// A gate whose first call is number 1.
    #[must_use]
    pub fn new(script: FaultScript) -> Self {
        Self::resume(script, GateState::default())
    }

    /// A gate that goes on where another one was.
    #[must_use]
    pub fn resume(script: FaultScript, from: GateState) -> Self {
        let state = State::resume(&script, from);
        let inner = Inner {
            script: Mutex::new(Arc::new(script)),
            state: Mutex::new(state),
            changed: watch::Sender::new(0),
            kills: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// What a gate needs to go on from here.
    #[must_use]
    pub fn state(&self) -> GateState {
        self.inner.state.lock().export()
    }

    /// All calls so far, in the order of their numbers.
    #[must_use]
    pub fn calls(&self) -> Vec<LoggedCall> {
        self.inner.state.lock().log.clone()
    }

    /// The calls from this number on.
    #[must_use]
    pub fn calls_from(&self, number: u64) -> Vec<LoggedCall> {
        let state = self.inner.state.lock();
        let begin = state.log.partition_point(|logged| logged.number < number);
        state.log[begin..].to_vec()
    }

    /// The number of the last call.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.inner.state.lock().count
    }

    /// Changes whenever a call comes or ends.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// From now on this script holds in place of the one before; the default one mends everything. What hung because of a
    /// machine's fault goes on when that fault is gone.
    pub fn set_faults(&self, script: FaultScript) {
        let script = Arc::new(script);
        self.inner.state.lock().follow_script(&script);
        *self.inner.script.lock() = script;
        self.tell();
    }

    /// The same while machines run: those that are to die as soon as they have power have it already, and die now.
    pub async fn change_faults(&self, script: FaultScript) {
        let now = |rule: &&MachineRule| {
            rule.fault == MachineFault::Die && rule.stage.is_none() && rule.call.is_none()
        };
        let dying: Vec<Pattern> =
            script.machines.iter().filter(now).map(|rule| rule.machine.clone()).collect();
        self.set_faults(script);
        for machine in dying {
            self.kill(machine).await;
        }
    }

    fn script(&self) -> Arc<FaultScript> {
        self.inner.script.lock().clone()
    }

    /// Lets the call with this number go wrong, whatever the script says.
    pub fn on_call(&self, number: u64, fault: Fault) {
        self.inner.state.lock().at.insert(number, fault);
    }

    /// Holds the call with this number when it comes.
    #[must_use]
    pub fn hold_at(&self, number: u64, moment: Moment) -> Checkpoint {
        self.hold_when(Matcher { call: Some(number), ..Matcher::default() }, moment)
    }

    /// Holds the first call that fits.
    #[must_use]
    pub fn hold_when(&self, calls: Matcher, moment: Moment) -> Checkpoint {
        let (hold, checkpoint) = checkpoint::pair(calls, moment);
        self.inner.state.lock().holds.push(hold);
        checkpoint
    }

    /// No call goes wrong any more, none is held, and those that hang are refused: the data centre ends.
    pub fn close(&self) {
        let mut state = self.inner.state.lock();
        state.closed = true;
        state.holds.clear();
        drop(state);
        self.tell();
    }

    /// Keeps new calls out and waits until those under way are done. Calls that are held, or hang, do not count.
    pub async fn freeze(&self) -> Frozen {
        self.inner.state.lock().frozen += 1;
        let frozen = Frozen { gate: self.clone() };
        self.tell();
        self.until(|state| state.under_way == 0).await;
        frozen
    }

    fn tell(&self) {
        self.inner.changed.send_modify(|count| *count += 1);
    }

    async fn until(&self, mut is_so: impl FnMut(&mut State) -> bool) {
        let mut changed = self.inner.changed.subscribe();
        while !is_so(&mut self.inner.state.lock()) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    /// A call comes. This may take as long as the script or a test wants.
    pub async fn enter(&self, call: Call) -> Verdict {
        let mut begun = None;
        self.until(|state| {
            if state.frozen == 0 && begun.is_none() {
                begun = Some(state.begin(&self.script(), call.clone()));
            }
            begun.is_some()
        })
        .await;
        // Nothing but an answer can have ended the wait, since the sender lives in this gate.
        let Some(begun) = begun else { return Verdict::Refuse(Fault::Reset) };
        self.tell();
        let number = begun.number;
        // From here on the call is known: whoever drops this future must not leave it behind as waiting.
        let mut ticket = Ticket { gate: self.clone(), number, fault: begun.fault, counted: false };
        for machine in begun.kills {
            self.kill(machine).await;
        }
        if let Some(hold) = begun.hold
            && let Some(fault) = hold.wait(self.logged(number)).await
        {
            ticket.fault = Some(fault);
        }
        if ticket.fault == Some(Fault::Timeout) {
            let _ = tokio::time::timeout(fault::HANG, self.until(|state| state.closed)).await;
        }
        match ticket.fault {
            Some(fault) if !fault.is_carried_out() => {
                ticket.end(Progress::Refused);
                Verdict::Refuse(fault)
            }
            _ => {
                self.until(|state| {
                    let free = state.frozen == 0;
                    if free {
                        state.under_way += 1;
                        state.note(number, Progress::UnderWay, None);
                    }
                    free
                })
                .await;
                ticket.counted = true;
                Verdict::Proceed(ticket)
            }
        }
    }

    fn logged(&self, number: u64) -> LoggedCall {
        self.inner.state.lock().logged(number)
    }
}

impl Ticket {
    /// The number of the call.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether a read is to be answered from the state before the last change.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.fault == Some(Fault::StaleRead)
    }

    /// The call is carried out. This may take as long as a test wants.
    pub async fn leave(mut self) -> Leaving {
        let hold = self.gate.inner.state.lock().take_hold(self.number, Moment::After);
        if let Some(hold) = hold {
            self.uncount();
            let call = self.gate.logged(self.number);
            if let Some(fault) = hold.wait(call).await {
                self.fault = Some(if fault == Fault::StaleRead { fault } else { Fault::LoseAnswer });
            }
        }
        if self.fault == Some(Fault::LoseAnswer) {
            self.end(Progress::Lost);
            Leaving::Lose
        } else {
            self.end(Progress::Answered);
            Leaving::Answer
        }
    }

    fn uncount(&mut self) {
        if std::mem::take(&mut self.counted) {
            self.gate.inner.state.lock().under_way -= 1;
            self.gate.tell();
        }
    }

    fn end(&mut self, progress: Progress) {
        self.gate.inner.state.lock().note(self.number, progress, self.fault);
        self.uncount();
        self.gate.tell();
    }
}

/// A server that ends without leaving, since its caller is gone, must not keep a snapshot waiting.
impl Drop for Ticket {
    fn drop(&mut self) {
        let open = matches!(self.gate.logged(self.number).progress, Progress::Waiting | Progress::UnderWay);
        if open {
            self.end(Progress::Dropped);
        }
        self.uncount();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.gate.inner.state.lock().frozen -= 1;
        self.gate.tell();
    }
}

#[cfg(test)]
mod tests;
