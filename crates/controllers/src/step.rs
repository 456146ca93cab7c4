//! What a plan decides: the one shape that all plans share.

use butler_drivers::Failure;
use jiff::Timestamp;
use std::borrow::Cow;
use std::time::Duration;

/// What is to happen next. `A` is a controller's own list of actions.
#[derive(Debug, Clone, PartialEq)]
pub enum Step<A> {
    /// These, side by side: none needs another. Then look again.
    Do(Vec<A>),
    /// Nothing can be done until something outside has happened.
    Wait(Wait),
    /// Everything is as the spec wants it.
    Done,
    /// Only a person can help.
    Stop(Failure),
}

/// What is waited for, and until when.
#[derive(Debug, Clone, PartialEq)]
pub struct Wait {
    /// All that is missing, in the order in which people should read it.
    pub on: Vec<Awaited>,
    /// When waiting becomes a failure, which observing goes on after all the same.
    pub deadline: Timestamp,
    /// When to look again if nothing is heard.
    pub recheck: Duration,
}

/// One thing that is missing.
#[derive(Debug, Clone, PartialEq)]
pub struct Awaited {
    /// One word for programs: `TalosSilent`, or what was last in the way: `StorageFull`.
    pub reason: Cow<'static, str>,
    /// For people: `butler-mgmt-cp-0 to answer at 10.40.0.11:50000`.
    pub what: String,
    /// What to look at when it does not come.
    pub remedy: String,
}

impl<A> Step<A> {
    /// The failure that a wait turns into at its deadline, or the one that stopped the plan.
    pub fn failure(&self, now: Timestamp) -> Option<Failure> {
        match self {
            Step::Stop(failure) => Some(failure.clone()),
            Step::Wait(wait) if now >= wait.deadline => wait.on.first().map(|awaited| {
                let all: Vec<&str> = wait.on.iter().map(|awaited| awaited.what.as_str()).collect();
                Failure::new(
                    butler_drivers::Class::Retryable,
                    awaited.reason.clone(),
                    format!("waited until {} for {}", wait.deadline, all.join("; ")),
                    awaited.remedy.clone(),
                )
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
impl<A: std::fmt::Debug> Step<A> {
    /// For tables of plans: what is to happen, in a word.
    pub(crate) fn word(&self) -> String {
        match self {
            Step::Do(actions) => {
                actions.iter().map(|action| format!("{action:?}")).collect::<Vec<_>>().join("+")
            }
            Step::Wait(wait) => format!("wait for {}", wait.on[0].what),
            Step::Done => "done".to_owned(),
            Step::Stop(failure) => format!("stop {}", failure.reason),
        }
    }
}
