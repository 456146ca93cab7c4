//! A place where a test stops the data centre: just before a call is carried out, or just after it, before its answer.

use super::{Fault, LoggedCall, Matcher};
use tokio::sync::oneshot;

/// Which side of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Nothing of it has happened.
    Before,
    /// It is done; the caller does not know yet.
    After,
}

/// What becomes of a call that was held.
pub(super) type Decision = Option<Fault>;

/// The test's end of a place where a call is held. Dropped without a decision, the call goes on.
#[derive(Debug)]
pub struct Checkpoint {
    reached: oneshot::Receiver<LoggedCall>,
    decide: oneshot::Sender<Decision>,
}

/// The gate's end.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) calls: Matcher,
    pub(super) moment: Moment,
    reached: oneshot::Sender<LoggedCall>,
    decided: oneshot::Receiver<Decision>,
}

pub(super) fn pair(calls: Matcher, moment: Moment) -> (Hold, Checkpoint) {
    let (reached, told) = oneshot::channel();
    let (decide, decided) = oneshot::channel();
    (Hold { calls, moment, reached, decided }, Checkpoint { reached: told, decide })
}

impl Hold {
    /// Nobody waits for it any more, and nothing was decided in advance.
    pub(super) fn is_abandoned(&self) -> bool {
        self.reached.is_closed() && self.decided.is_empty()
    }

    /// Tells that the call is here and waits for what is to become of it.
    pub(super) async fn wait(self, call: LoggedCall) -> Decision {
        let _ = self.reached.send(call);
        self.decided.await.unwrap_or_default()
    }
}

impl Checkpoint {
    /// Waits until the call is there; `None` when the data centre ended before that.
    pub async fn reached(&mut self) -> Option<LoggedCall> {
        (&mut self.reached).await.ok()
    }

    /// Lets the call go on as if nothing had been.
    pub fn go_on(self) {
        let _ = self.decide.send(None);
    }

    /// Lets it go wrong. After the call is carried out, every fault but a stale read loses the answer.
    pub fn fail(self, fault: Fault) {
        let _ = self.decide.send(Some(fault));
    }
}
