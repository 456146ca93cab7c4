//! What the controllers of one thing on an infrastructure (machine, image, load balancer) have in common: what can be done
//! about it, what calls say, what is remembered of that, and how it is reported.

use crate::error::ReconcileError;
use crate::object::{self, Key, Written};
use crate::provider::{self, ProviderSight};
use crate::report::Note;
use crate::runtime::{Memories, Shared};
use crate::step::Step;
use crate::{Failure, Progress};
use butler_api::{Condition, Provider, ProviderReference, find_condition};
use butler_drivers::Infrastructure;
use jiff::Timestamp;
use kube::api::Api;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;

/// What can be done about a thing; each at most one change outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    AddFinalizer,
    /// One step towards it, or back to it when somebody changed it.
    Ensure,
    /// Looks at it and changes nothing. Only machines are looked at: one that vanished is not quietly made anew.
    Look,
    /// One step towards its absence.
    Delete,
    RemoveFinalizer,
}

/// What a call said. `F` are the facts of a thing that is there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome<F> {
    /// It is on its way, or on its way back to what it should be.
    Working { operation: Option<String>, waiting_for: String, known: Option<F> },
    /// It is as it was asked for.
    Ready(F),
    /// A look found it so.
    Found(F),
    /// A look did not find it.
    Missing,
    /// It is being removed.
    Leaving { operation: Option<String>, waiting_for: String },
    /// It is not there any more, with all its parts.
    Gone,
    /// The call failed.
    Failed(Failure),
}

/// What calls have said, until the process ends.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Memory<F> {
    /// When this life of ours first saw the object.
    pub(crate) since: Option<Timestamp>,
    /// What the last call said.
    pub(crate) last: Option<Outcome<F>>,
    /// No call before this moment.
    pub(crate) next: Option<Timestamp>,
    /// Failures in a row.
    pub(crate) failures: u32,
    /// The last of them, until all is well.
    pub(crate) trouble: Option<Failure>,
    /// Looks in a row that did not find it.
    pub(crate) missing: u32,
    /// When it was last asked for in this life.
    pub(crate) asked: Option<Timestamp>,
    /// All of it was seen, by the last call that asked for it or by an earlier life.
    pub(crate) whole: bool,
    /// The last look did not see it, and was too early to be believed.
    pub(crate) in_doubt: bool,
    /// The last pass of this life ended with a failure that stops the plan.
    pub(crate) stopped: bool,
    /// Spec, ProviderConfig and credentials by which the last call was made.
    inputs: String,
    /// The deletion has been seen.
    deleting: bool,
}

/// Condition: the infrastructure may have been asked for the thing. Written down before the first time.
pub(crate) const REQUESTED: &str = "Requested";

impl Action {
    /// Whether it writes the object itself, with the version that was read.
    fn writes_object(&self) -> bool {
        matches!(self, Action::AddFinalizer | Action::RemoveFinalizer)
    }
}

impl<F> Outcome<F> {
    /// Of a call that makes, and when it is to be repeated if the infrastructure says so.
    pub(crate) fn of_ensure(answer: Result<Progress<F>, Failure>) -> (Self, Option<Duration>) {
        match answer {
            Ok(Progress::Ready(facts)) => (Outcome::Ready(facts), None),
            Ok(Progress::InProgress { operation, waiting_for, recheck, known }) => {
                let operation = operation.map(|id| id.0);
                (Outcome::Working { operation, waiting_for, known }, Some(recheck))
            }
            Err(failure) => (Outcome::Failed(failure), None),
        }
    }

    /// Of a call that removes.
    pub(crate) fn of_delete(answer: Result<Progress<()>, Failure>) -> (Self, Option<Duration>) {
        match answer {
            Ok(Progress::Ready(())) => (Outcome::Gone, None),
            Ok(Progress::InProgress { operation, waiting_for, recheck, .. }) => {
                (Outcome::Leaving { operation: operation.map(|id| id.0), waiting_for }, Some(recheck))
            }
            Err(failure) => (Outcome::Failed(failure), None),
        }
    }
}

impl<F> Default for Memory<F> {
    fn default() -> Self {
        Self {
            since: None,
            last: None,
            next: None,
            failures: 0,
            trouble: None,
            missing: 0,
            asked: None,
            whole: false,
            in_doubt: false,
            stopped: false,
            inputs: String::new(),
            deleting: false,
        }
    }
}

/// How often to look again for something whose absence is not believed yet.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

impl<F: Clone> Memory<F> {
    /// The object is looked at. Another spec is acted on at once, and a pause after a failure ends when what failed has changed.
    pub(crate) fn look(&mut self, now: Timestamp, inputs: String, deleting: bool) -> Self {
        self.since.get_or_insert(now);
        if self.inputs != inputs || self.deleting != deleting {
            (self.next, self.failures, self.trouble) = (None, 0, None);
            (self.inputs, self.deleting) = (inputs, deleting);
        }
        self.clone()
    }

    /// It is asked for: a call that makes is about to say something.
    pub(crate) fn ask(&mut self, now: Timestamp) {
        (self.asked, self.whole) = (Some(now), false);
    }

    /// Until when its absence is not believed. An earlier life may have asked for it up to the moment at which this one began, and
    /// what was asked for without an answer may be there without being seen; what was seen whole has no such parts.
    pub(crate) fn unsettled(&self, now: Timestamp, lists_lag: bool, settling: Duration) -> Option<Timestamp> {
        let last = self.since.max(self.asked)?;
        let until = last.checked_add(settling).unwrap_or(Timestamp::MAX);
        (lists_lag && !self.whole && now < until).then_some(until)
    }

    /// Whether a look that came late enough has not seen it.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.last, Some(Outcome::Gone)) && !self.in_doubt
    }

    /// A call has said something. `pause` tells how long to leave the infrastructure alone now.
    pub(crate) fn keep(
        &mut self,
        outcome: Outcome<F>,
        now: Timestamp,
        pause: impl FnOnce(&Self, &Outcome<F>) -> Duration,
    ) {
        match &outcome {
            Outcome::Failed(failure) => {
                self.failures = self.failures.saturating_add(1);
                self.trouble = Some(failure.clone());
            }
            // What has only begun again may well fail again.
            Outcome::Working { .. } | Outcome::Leaving { .. } | Outcome::Missing => {}
            Outcome::Ready(_) | Outcome::Found(_) | Outcome::Gone => {
                (self.failures, self.trouble) = (0, None)
            }
        }
        self.whole |= matches!(outcome, Outcome::Ready(_) | Outcome::Found(_));
        self.missing = match outcome {
            Outcome::Missing => self.missing.saturating_add(1),
            _ => 0,
        };
        self.next = now.checked_add(pause(self, &outcome)).ok();
        self.last = Some(outcome);
    }

    /// The operation that is under way. `told` is what the status says, which counts until a call has said something else.
    pub(crate) fn operation(&self, told: Option<&String>) -> Option<String> {
        match &self.last {
            Some(Outcome::Working { operation, .. } | Outcome::Leaving { operation, .. }) => {
                operation.clone()
            }
            Some(Outcome::Failed(_)) | None => told.cloned(),
            Some(_) => None,
        }
    }

    /// The obstacle that is in the way now, whether it stops the plan or not.
    pub(crate) fn obstacle(&self, step: &Step<Action>) -> Option<Failure> {
        match (step, &self.last) {
            (Step::Stop(failure), _) | (_, Some(Outcome::Failed(failure))) => Some(failure.clone()),
            _ => None,
        }
    }
}

impl Shared {
    /// What keeps an infrastructure from being asked at all, and the version of what that follows from. `lacks` says what it
    /// has not.
    pub(crate) fn unusable(
        &self,
        provided: &ProviderSight,
        lacks: impl FnOnce(&Infrastructure, Provider) -> Option<Failure>,
    ) -> (Option<Failure>, String) {
        match provided {
            Ok(provided) => {
                let failure = match self.connections.connect(&self.context, provided) {
                    Ok(infrastructure) => lacks(&infrastructure, provided.config.spec.provider),
                    Err(failure) => Some(failure),
                };
                (failure, provided.version.clone())
            }
            Err(failure) => (Some(failure.clone()), failure.message.clone()),
        }
    }

    /// The infrastructure that an object refers to.
    pub(crate) async fn infrastructure(
        &self,
        object: &impl ResourceExt,
        reference: &ProviderReference,
    ) -> Result<Result<Infrastructure, Failure>, ReconcileError> {
        let namespace = object.namespace().unwrap_or_default();
        let provided = provider::look(&self.context.client, reference, &namespace).await?;
        Ok(provided.and_then(|provided| self.connections.connect(&self.context, &provided)))
    }

    /// Wakes the owners of an object whose plan stops, or goes on again: its status may not say so.
    pub(crate) fn note_stop<F>(
        &self,
        memories: &Memories<Memory<F>>,
        object: &impl ResourceExt,
        step: &Step<Action>,
    ) {
        let stopped = matches!(step, Step::Stop(_));
        let was = memories.change(&Key::of(object), |memory| std::mem::replace(&mut memory.stopped, stopped));
        if was != stopped {
            self.wake_owners(object);
        }
    }

    /// Writes a status that has something new to say, and tells it.
    pub(crate) async fn report<K>(
        &self,
        api: &Api<K>,
        object: &K,
        notes: &[Note],
        step: &Step<Action>,
    ) -> Result<Written, ReconcileError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Serialize + Debug,
    {
        if object::write_status(api, object).await? == Written::Stale {
            return Ok(Written::Stale);
        }
        self.tell(object.object_ref(&()), notes).await;
        let writes = matches!(step, Step::Do(actions) if actions.iter().any(Action::writes_object));
        // The version has changed with it, and the next write needs the new one.
        Ok(if writes { Written::Stale } else { Written::Yes })
    }
}

/// Whether the infrastructure may have been asked for a thing with these conditions.
pub(crate) fn requested(conditions: Option<&Vec<Condition>>) -> bool {
    let told = conditions.and_then(|conditions| find_condition(conditions, REQUESTED));
    told.is_some_and(Condition::is_true)
}

/// How long to leave something alone that was not seen, and may be there all the same until this moment.
pub(crate) fn pause_in_doubt(now: Timestamp, until: Timestamp) -> Duration {
    crate::runtime::until(now, until).min(LOOK_AGAIN)
}

/// What is said while the absence of something is not believed yet.
pub(crate) const IN_DOUBT: &str = "what was asked for a moment ago to be seen, if it was made";

/// What stops the removal of a thing that may be there: `the machine m0`, which is a `machine` of a `MachineRequest`.
pub(crate) fn unremovable(which: &str, what: &str, kind: &str, failure: &Failure) -> Failure {
    Failure {
        message: format!("{which} can't be removed: {}", failure.message),
        remedy: format!(
            "{}; if the {what} is known to be gone, take the finalizer off this {kind}",
            failure.remedy
        ),
        ..failure.clone()
    }
}
