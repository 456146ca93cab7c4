//! Looks at the clocks of machines. A node whose clock is wrong starts nothing and says nothing about it; certificates that are
//! not valid yet are only the worse case.

use super::observe::Observed;
use super::plan::CLOCKS;
use super::talos::{SLICE, node, outlived};
use crate::object::Key;
use crate::runtime::{Shared, until};
use crate::{Class, Failure};
use butler_drivers::{Call, Outcome};
use butler_talos::client::{ClientError, ErrorClass, Node};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// Clocks of one site agree better than this.
const TOLERATED: SignedDuration = SignedDuration::from_secs(60);

/// Does the work, and ends it when it takes long and the machine's clock turns out to be wrong.
pub(crate) async fn guarded(
    shared: &Arc<Shared>,
    talos: &Node,
    machine: &str,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let looks = async {
        loop {
            tokio::time::sleep(SLICE).await;
            if let Some(Some(why)) = wrong(shared, talos, machine).await {
                return Failure::new(
                    Class::Retryable,
                    "ClockSkew",
                    format!("the clock of {machine} is wrong: {why}"),
                    CLOCKS,
                );
            }
        }
    };
    tokio::select! {
        done = work => done,
        failure = looks => Err(failure),
    }
}

/// Follows the clock of a machine that is late, until its node is ready.
pub(crate) async fn follow(shared: &Arc<Shared>, observed: &Observed, machine: &str) -> Result<(), Failure> {
    let talos = node(shared, observed, machine)?;
    let key = Key::of(&observed.object);
    loop {
        let seen = wrong(shared, &talos, machine).await;
        let (news, ready) = shared.bootstraps.change(&key, |memory| {
            let known = memory.clocks.get(machine).cloned();
            match &seen {
                Some(Some(why)) => drop(memory.clocks.insert(machine.to_owned(), why.clone())),
                Some(None) => drop(memory.clocks.remove(machine)),
                None => {}
            }
            let node = memory.survey.as_ref().and_then(|survey| survey.nodes.get(machine));
            (known != memory.clocks.get(machine).cloned(), node.is_some_and(|node| node.ready))
        });
        if ready || outlived(shared, observed, machine) {
            shared.bootstraps.change(&key, |memory| memory.clocks.remove(machine));
            return Ok(());
        }
        if news {
            shared.wake(&key);
        }
        tokio::time::sleep(SLICE).await;
    }
}

/// How a machine's clock is wrong; `None` when it could not be asked.
async fn wrong(shared: &Shared, talos: &Node, machine: &str) -> Option<Option<String>> {
    let began = (shared.context.clock)();
    let asked = async { talos.connect().await?.time().await };
    let heard = asked.await;
    let now = (shared.context.clock)();
    let judged = match &heard {
        Ok(time) => {
            let told = time.localtime.as_ref().and_then(|time| Timestamp::from_second(time.seconds).ok());
            told.map(|told| judge(told, now))
        }
        Err(error) => refused(error),
    };
    shared.context.recorder.record(Call {
        system: "talos",
        operation: "Time".to_owned(),
        object: format!("machine {machine}"),
        mutates: false,
        began,
        took: until(began, now),
        outcome: match (&judged, heard) {
            (Some(Some(why)), _) => {
                Outcome::Failed { class: Class::Retryable, message: format!("the clock is wrong: {why}") }
            }
            (_, Ok(_)) => Outcome::Ok("ok".to_owned()),
            (_, Err(error)) => {
                Outcome::Failed { class: Class::Retryable, message: error.message().to_owned() }
            }
        },
    });
    judged
}

fn refused(error: &ClientError) -> Option<Option<String>> {
    (*error.class() == ErrorClass::ClockSkew).then(|| Some(error.message().to_owned()))
}

/// What two clocks say about each other. Pure.
fn judge(theirs: Timestamp, ours: Timestamp) -> Option<String> {
    let ahead = theirs.duration_since(ours);
    let side = if ahead.is_negative() { "behind" } else { "ahead of" };
    (ahead.abs() > TOLERATED).then(|| format!("it is {:#} {side} this computer's", rounded(ahead.abs())))
}

fn rounded(length: SignedDuration) -> SignedDuration {
    SignedDuration::from_secs(length.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_differences_are_no_news() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(judge(at(1000), at(1000)), None);
        assert_eq!((judge(at(1060), at(1000)), judge(at(940), at(1000))), (None, None));
        assert_eq!(judge(at(1600), at(1000)).as_deref(), Some("it is 10m ahead of this computer's"));
        assert_eq!(judge(at(0), at(90_000)).as_deref(), Some("it is 25h behind this computer's"));
    }
}
