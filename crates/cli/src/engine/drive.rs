//! Follows the controllers until the goal is reached, or something ends the run before.

use super::signals::Signals;
use super::work::Workers;
use crate::progress::{Obstacle, Snapshot, Speaker, obstacle};
use butler_api::{ClusterBootstrap, ClusterBootstrapPhase};
use butler_controllers::RunError;
use std::time::Duration;
use tokio::time::Instant;

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// A cluster that is ready.
    Ready,
    /// A cluster that is gone.
    Gone,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The goal is reached; the object as it was last seen.
    Reached(Option<Box<ClusterBootstrap>>),
    /// The controllers have given up for now.
    Failed { reason: String, message: String, remedy: String },
    /// `--timeout` is over; what was in the way by then.
    TimedOut(Option<Obstacle>),
    /// The user wants to stop.
    Interrupted,
    /// Another run works on the cluster.
    Busy(String),
    /// The controllers can't run.
    Broken(String),
}

/// How often elapsed time is shown anew on a terminal.
const TICK: Duration = Duration::from_secs(1);

/// Follows until the goal. `limit` counts from `began`.
pub(crate) async fn drive(
    workers: &mut Workers,
    speaker: &mut Speaker,
    goal: Goal,
    began: Instant,
    limit: Option<Duration>,
    signals: &Signals,
) -> Outcome {
    let deadline = limit.map(|limit| began + limit);
    let mut tick = tokio::time::interval(TICK);
    loop {
        let picture = workers.pictures.borrow_and_update().clone();
        speaker.show(&picture, began.elapsed());
        if let Some(outcome) = outcome(&picture, goal) {
            return outcome;
        }
        let over = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = signals.asked() => return Outcome::Interrupted,
            changed = workers.pictures.changed() => {
                if changed.is_err() {
                    return Outcome::Broken("the watch of the bootstrap has ended".to_owned());
                }
            }
            ended = &mut workers.controllers => {
                let why = match ended {
                    Ok(Err(error @ (RunError::Held { .. } | RunError::LeaseContested { .. }))) => {
                        return Outcome::Busy(error.to_string());
                    }
                    Ok(Ok(())) => "the controllers have ended".to_owned(),
                    Ok(Err(error)) => crate::output::chain(&error.into()),
                    Err(error) => format!("the controllers have ended: {error}"),
                };
                return Outcome::Broken(why);
            }
            () = over => return Outcome::TimedOut(obstacle(&picture)),
            _ = tick.tick() => {}
        }
    }
}

/// Whether a picture ends the run. Pure.
fn outcome(picture: &Snapshot, goal: Goal) -> Option<Outcome> {
    let Some(bootstrap) = &picture.bootstrap else {
        return (goal == Goal::Gone && picture.listed).then_some(Outcome::Reached(None));
    };
    let status = bootstrap.status.clone().unwrap_or_default();
    let seen = status.observed_generation;
    let current = seen.is_some() && seen >= bootstrap.metadata.generation;
    match status.phase {
        Some(ClusterBootstrapPhase::Ready) if goal == Goal::Ready && current => {
            Some(Outcome::Reached(Some(Box::new(bootstrap.clone()))))
        }
        Some(ClusterBootstrapPhase::Failed) if current || goal == Goal::Gone => Some(Outcome::Failed {
            reason: status.failure_reason.unwrap_or_else(|| "Failed".to_owned()),
            message: status.failure_message.unwrap_or_default(),
            remedy: status.failure_remedy.unwrap_or_default(),
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn picture(phase: &str, generation: i64, observed: i64) -> Snapshot {
        let pool = json!({"replicas": 1, "cpu": 1, "memoryMB": 2048, "diskGB": 20});
        let object = json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ClusterBootstrap", "metadata": {"name": "m", "generation": generation},
            "spec": {"provider": "proxmox", "providerRef": {"name": "p"}, "cluster": {"name": "m", "controlPlane": pool},
                "network": {"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12"}, "talos": {"version": "v1.9.2", "schematic": "s"}},
            "status": {"phase": phase, "observedGeneration": observed, "failureReason": "StorageFull", "failureMessage": "m", "failureRemedy": "r"},
        });
        Snapshot {
            bootstrap: Some(serde_json::from_value(object).unwrap()),
            listed: true,
            ..Snapshot::default()
        }
    }

    #[test]
    fn only_what_the_controllers_say_about_this_spec_counts() {
        assert!(matches!(outcome(&picture("Ready", 2, 2), Goal::Ready), Some(Outcome::Reached(Some(_)))));
        assert_eq!(outcome(&picture("Ready", 2, 1), Goal::Ready), None);
        assert_eq!(outcome(&picture("Failed", 2, 1), Goal::Ready), None);
        let failed =
            Outcome::Failed { reason: "StorageFull".into(), message: "m".into(), remedy: "r".into() };
        assert_eq!(outcome(&picture("Failed", 2, 2), Goal::Ready), Some(failed));
        assert_eq!(outcome(&picture("InstallingAddons", 2, 2), Goal::Ready), None);
    }

    #[test]
    fn gone_is_only_what_was_looked_for() {
        assert_eq!(outcome(&Snapshot::default(), Goal::Gone), None);
        let listed = Snapshot { listed: true, ..Snapshot::default() };
        assert_eq!(outcome(&listed, Goal::Gone), Some(Outcome::Reached(None)));
        assert_eq!(outcome(&listed, Goal::Ready), None);
        assert_eq!(outcome(&picture("Ready", 1, 1), Goal::Gone), None);
    }
}
