//! Work on Talos nodes, in the background: looking, applying configs, making etcd. Every call is told to the recorder.

use super::memory::TalosSight;
use super::observe::{Observed, identity_of};
use super::{clock, configs, wanted};
use crate::object::Key;
use crate::runtime::Shared;
use crate::{Class, Failure};
use butler_drivers::{Call, Outcome};
use butler_talos::client::{
    ClientError, Credentials, Decision, ErrorClass, Node, NodeState, Observation, Owner, Refusal, Seen, Wait,
    WaitError, bootstrap_when_ready, decide, observe, wait_until_answering, wait_until_configured,
    wait_until_etcd,
};
use butler_talos::pki::{BACKDATE, CLIENT_LIFE};
use butler_talos::{Secret, Talosconfig};
use k8s_openapi::api::core::v1::Secret as SecretObject;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// After so long without an answer, what was seen is told; the wait goes on.
pub(crate) const SLICE: Duration = Duration::from_secs(5);

/// What is missing when a wait comes to nothing: the same words while it is waited for, and when it was given up.
#[derive(Debug)]
pub(crate) struct Lack {
    pub(crate) reason: &'static str,
    pub(crate) remedy: &'static str,
}

pub(crate) const ETCD_SILENT: Lack = Lack {
    reason: "EtcdNotHealthy",
    remedy: "look at the services of that machine (`butleradm talos health`)",
};

pub(crate) const ETCD_LEARNS: Lack = Lack {
    reason: "EtcdNotVoting",
    remedy: "look at the etcd services of all control planes (`butleradm talos health`)",
};

/// Waits until a machine's Talos shows what it is.
pub(crate) async fn look(shared: &Arc<Shared>, observed: &Observed, machine: &str) -> Result<(), Failure> {
    let node = node(shared, observed, machine)?;
    let key = Key::of(&observed.object);
    loop {
        let wait = Wait::new(format!("Talos on {machine}"), Instant::now() + SLICE);
        let began = (shared.context.clock)();
        let state = match wait_until_answering(&node, &wait).await {
            Ok(state) => state,
            Err(_) => node.probe().await,
        };
        let sight = match state {
            NodeState::Maintenance { fingerprint } => {
                shared.bootstraps.change(&key, |memory| {
                    memory.unverified.insert(machine.to_owned(), fingerprint.to_string())
                });
                TalosSight::Maintenance
            }
            NodeState::Configured { owner: Owner::Ours, .. } => TalosSight::Ours,
            NodeState::Configured { .. } => {
                record(shared, "probe", machine, false, began, Err((Class::Conflict, "foreign".to_owned())));
                return Err(foreign(machine, &node));
            }
            NodeState::CertificateTrouble { reason } => {
                record(shared, "probe", machine, false, began, Err((Class::Conflict, reason.clone())));
                let remedy =
                    "check that this is the right machine; one of another cluster has to be reset first";
                let message = format!("{machine} at {}: {reason}", node.address());
                return Err(Failure::new(Class::Conflict, "TalosCertificateWrong", message, remedy));
            }
            NodeState::ClockSkew { reason } => TalosSight::ClockSkew(reason),
            other => TalosSight::Silent(other.to_string()),
        };
        let found = matches!(sight, TalosSight::Maintenance | TalosSight::Ours);
        let outcome =
            if found { Ok(format!("{sight:?}")) } else { Err((Class::Retryable, format!("{sight:?}"))) };
        record(shared, "probe", machine, false, began, outcome);
        if see(shared, &key, observed, machine, sight) && !found {
            shared.wake(&key);
        }
        if found || outlived(shared, observed, machine) {
            return Ok(());
        }
    }
}

/// Whether a machine was replaced, or has moved, since it was observed: work on it is in vain.
pub(crate) fn outlived(shared: &Shared, observed: &Observed, machine: &str) -> bool {
    let was = observed.machines.get(machine).map(identity_of);
    shared.bootstraps.change(&Key::of(&observed.object), |memory| memory.identities.get(machine).cloned())
        != was
}

/// Remembers what a machine showed; whether that is new.
fn see(shared: &Shared, key: &Key, observed: &Observed, machine: &str, sight: TalosSight) -> bool {
    let Some(identity) = observed.machines.get(machine).map(identity_of) else { return false };
    shared.bootstraps.change(key, |memory| {
        let new = Some((identity, sight));
        let known = memory.talos.get(machine).cloned();
        if let Some(new) = &new {
            memory.talos.insert(machine.to_owned(), new.clone());
        }
        known != new
    })
}

fn unsee(shared: &Shared, key: &Key, machine: &str) {
    shared.bootstraps.change(key, |memory| memory.talos.remove(machine));
}

fn foreign(machine: &str, node: &Node) -> Failure {
    Failure::new(
        Class::Conflict,
        "TalosNodeNotOurs",
        format!("the node at {} ({machine}) has a config of another cluster", node.address()),
        "check that nobody else has this address; a node of another cluster has to be reset before it is used",
    )
}

/// Gives a machine its config: in maintenance mode, or by our certificate when it has an older one of ours.
pub(crate) async fn apply(shared: &Arc<Shared>, observed: &Observed, machine: &str) -> Result<(), Failure> {
    let node = node(shared, observed, machine)?;
    let key = Key::of(&observed.object);
    let config = observed.stored.as_ref().and_then(|stored| stored.configs.get(machine));
    let (Some(config), Some(mark)) = (config, observed.mark(machine)) else { return Ok(()) };
    let fresh = observed.talos.get(machine) == Some(&TalosSight::Maintenance);
    let handed = observed.object.spec.talos.config_delivery == butler_api::ConfigDelivery::UserData;
    if !handed || !fresh {
        let began = (shared.context.clock)();
        let done = send(&node, config, fresh).await;
        record(shared, "ApplyConfiguration", machine, true, began, outcome(&done));
        if let Err(error) = done {
            // Whatever it is now, it has to be looked at again before the next try.
            unsee(shared, &key, machine);
            return Err(failure(machine, &error));
        }
    }
    write_mark(shared, observed, machine, &mark).await?;
    let mark = shared.bootstraps.change(&key, |memory| {
        memory.marks += 1;
        memory.marks
    });
    see(shared, &key, observed, machine, TalosSight::Applied { fresh, mark });
    Ok(())
}

async fn send(node: &Node, config: &Secret, fresh: bool) -> Result<(), ClientError> {
    let client = if fresh { node.connect_maintenance().await? } else { node.connect().await? };
    client.apply_configuration(config.expose(), false).await.map(drop)
}

/// Writes down that a machine has taken its config. Lost, the config is only applied once more.
async fn write_mark(shared: &Shared, observed: &Observed, machine: &str, mark: &str) -> Result<(), Failure> {
    let namespace = observed.object.namespace().unwrap_or_default();
    let api: Api<SecretObject> = Api::namespaced(shared.context.client.clone(), &namespace);
    let name = wanted::configs_name(&observed.object.name_any());
    let patch = json!({"stringData": {format!("{machine}.applied"): mark}});
    api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop).map_err(|error| {
        let message = format!("the Secret {name} could not be written: {}", configs::text(&error));
        Failure::new(Class::Retryable, "StateNotWritten", message, "look at the API that holds our objects")
    })
}

/// Has etcd made on the chosen control plane, once: all control planes are looked at first.
pub(crate) async fn bootstrap(shared: &Arc<Shared>, observed: &Observed) -> Result<(), Failure> {
    let first = observed.first().unwrap_or_default();
    let chosen = node(shared, observed, &first)?;
    let wait = Wait::new(format!("Talos on {first}"), Instant::now() + SLICE * 12);
    let began = (shared.context.clock)();
    clock::guarded(shared, &chosen, &first, async {
        let answers = wait_until_configured(&chosen, &wait).await;
        record(shared, "wait until configured", &first, false, began, waited(&answers));
        answers
            .map(drop)
            .map_err(|error| wait_failure(&first, &Lack { reason: "TalosSilent", ..ETCD_SILENT }, &error))
    })
    .await?;
    let seen = all_control_planes(shared, observed, &first).await?;
    match decide(&chosen.address().to_string(), &seen) {
        Decision::AlreadyDone => {}
        Decision::Refuse(refusal) => return Err(refused(&refusal)),
        Decision::Bootstrap => {
            let wait = Wait::new(format!("the bootstrap of {first}"), Instant::now() + SLICE * 12);
            let began = (shared.context.clock)();
            clock::guarded(shared, &chosen, &first, async {
                let done = bootstrap_when_ready(&chosen, &wait).await;
                record(shared, "Bootstrap", &first, true, began, waited(&done));
                match done {
                    Err(error) if !already(&error) => {
                        // A lost answer: the next try looks at the control planes again before it asks.
                        Err(wait_failure(
                            &first,
                            &Lack { reason: "EtcdNotBootstrapped", ..ETCD_SILENT },
                            &error,
                        ))
                    }
                    _ => Ok(()),
                }
            })
            .await?;
        }
    }
    shared.bootstraps.change(&Key::of(&observed.object), |memory| memory.bootstrapped = true);
    Ok(())
}

fn already(error: &WaitError) -> bool {
    error.cause().is_some_and(|cause| *cause.class() == ErrorClass::AlreadyBootstrapped)
}

async fn all_control_planes(
    shared: &Arc<Shared>,
    observed: &Observed,
    first: &str,
) -> Result<Vec<Seen>, Failure> {
    // A first try may have been carried out although its answer was lost, and somebody may have acted in between.
    let key = Key::of(&observed.object);
    let again = shared.bootstraps.change(&key, |memory| std::mem::replace(&mut memory.guarded, true));
    let mut looks = Vec::new();
    for plane in observed.control_planes() {
        let node = node(shared, observed, &plane.name)?;
        // One that we saw without a config a moment ago, and gave its first, has no etcd data: it may still be rebooting.
        let fresh = !again
            && plane.name != first
            && matches!(observed.talos.get(&plane.name), Some(TalosSight::Applied { fresh: true, .. }));
        looks.push(async move {
            let address = node.address().to_string();
            let began = (shared.context.clock)();
            let observation = if fresh { Observation::Fresh } else { observe(&node).await };
            if !fresh {
                record(shared, "ServiceList", &plane.name, false, began, Ok(format!("{observation:?}")));
            }
            Seen { node: address, observation }
        });
    }
    Ok(futures::future::join_all(looks).await)
}

fn refused(refusal: &Refusal) -> Failure {
    let class = if refusal.is_temporary() { Class::Retryable } else { Class::Conflict };
    let reason = match refusal {
        Refusal::Elsewhere { .. } => "EtcdElsewhere",
        Refusal::Foreign { .. } => "TalosNodeNotOurs",
        Refusal::Unanswered { .. } | Refusal::ChosenNotReady { .. } => "ControlPlaneSilent",
        Refusal::NotListed { .. } | Refusal::ChosenIsWorker => "BootstrapMachineWrong",
    };
    Failure::new(class, reason, format!("etcd was not made: {refusal}"), refusal.remedy())
}

/// Waits until etcd on the chosen control plane is healthy.
pub(crate) async fn etcd(shared: &Arc<Shared>, observed: &Observed) -> Result<(), Failure> {
    healthy(shared, observed, &observed.first().unwrap_or_default(), &ETCD_SILENT).await?;
    shared.bootstraps.change(&Key::of(&observed.object), |memory| memory.etcd_up = true);
    Ok(())
}

/// Waits until etcd on any control plane votes: a member that still learns is none that may be counted on.
pub(crate) async fn vote(shared: &Arc<Shared>, observed: &Observed, machine: &str) -> Result<(), Failure> {
    healthy(shared, observed, machine, &ETCD_LEARNS).await
}

/// Waits until etcd on a control plane is healthy and votes; what is told when it does not is what was waited for.
async fn healthy(
    shared: &Arc<Shared>,
    observed: &Observed,
    machine: &str,
    lack: &Lack,
) -> Result<(), Failure> {
    let node = node(shared, observed, machine)?;
    // Told before the milestone's deadline, so that the failure there says what was last seen.
    let limit = (SLICE * 6).min(observed.deadlines.etcd / 2).min(observed.deadlines.addons / 2);
    let wait = Wait::new(format!("etcd on {machine}"), Instant::now() + limit);
    let began = (shared.context.clock)();
    clock::guarded(shared, &node, machine, async {
        let healthy = wait_until_etcd(&node, &wait).await;
        record(shared, "wait until etcd is healthy", machine, false, began, waited(&healthy));
        healthy.map(drop).map_err(|error| wait_failure(machine, lack, &error))
    })
    .await?;
    if let Some(identity) = observed.machines.get(machine).map(identity_of) {
        shared
            .bootstraps
            .change(&Key::of(&observed.object), |memory| memory.voters.insert(machine.to_owned(), identity));
    }
    Ok(())
}

/// A machine's Talos, with our certificate.
pub(crate) fn node(shared: &Shared, observed: &Observed, machine: &str) -> Result<Node, Failure> {
    let unusable = |message: String| {
        Failure::new(Class::Retryable, "TalosNotReachable", message, "look at the MachineRequest")
    };
    let address = observed
        .address(machine)
        .ok_or_else(|| unusable(format!("the machine {machine} has no address")))?
        .parse()
        .map_err(|error| unusable(format!("the machine {machine}: {error}")))?;
    Ok(Node::new(address, shared.context.talos.clone()).with_credentials(credentials(shared, observed)?))
}

/// Our certificate, signed once per life.
fn credentials(shared: &Shared, observed: &Observed) -> Result<Credentials, Failure> {
    let wrong = |message: String| {
        Failure::new(Class::InvalidConfig, "SecretsUnusable", message, "look at the cluster's secrets")
    };
    let secrets = match &observed.secrets {
        Some(Ok(secrets)) => secrets,
        Some(Err(failure)) => return Err(failure.clone()),
        None => return Err(wrong("the cluster has no secrets yet".to_owned())),
    };
    let key = Key::of(&observed.object);
    let version = configs::fingerprint(secrets.os.cert_pem());
    let known = shared.bootstraps.change(&key, |memory| memory.credentials.clone());
    if let Some((of, credentials)) = known
        && of == version
    {
        return Ok(credentials);
    }
    let begin = observed.now.checked_sub(BACKDATE).unwrap_or(observed.now);
    let config = Talosconfig::generate("butler", Vec::new(), secrets, begin, CLIENT_LIFE)
        .map_err(|error| wrong(configs::text(&error)))?;
    let context = config.get(None).ok_or_else(|| wrong("the talosconfig has no context".to_owned()))?;
    let made = Credentials::from_context(context).map_err(|error| wrong(error.to_string()))?;
    shared.bootstraps.change(&key, |memory| memory.credentials = Some((version, made.clone())));
    Ok(made)
}

fn failure(machine: &str, error: &ClientError) -> Failure {
    let (class, reason) = match error.class() {
        ErrorClass::RefusedConfig { .. } => (Class::InvalidConfig, "TalosConfigRefused"),
        ErrorClass::WrongCertificate => (Class::Conflict, "TalosNodeNotOurs"),
        ErrorClass::Denied => (Class::Auth, "TalosDenied"),
        ErrorClass::ClockSkew => (Class::Retryable, "ClockSkew"),
        ErrorClass::NotThereYet | ErrorClass::ConnectionLost | ErrorClass::TimedOut => {
            (Class::Retryable, "TalosSilent")
        }
        _ => (Class::Retryable, "TalosCallFailed"),
    };
    Failure::new(class, reason, format!("{machine}: {error}"), error.remedy())
}

fn wait_failure(machine: &str, lack: &Lack, error: &WaitError) -> Failure {
    match error.cause() {
        Some(cause) => failure(machine, cause),
        None => Failure::new(Class::Retryable, lack.reason, configs::text(error), lack.remedy),
    }
}

type Told = Result<String, (Class, String)>;

fn outcome(done: &Result<(), ClientError>) -> Told {
    match done {
        Ok(()) => Ok("ok".to_owned()),
        Err(error) => Err((failure("", error).class, error.message().to_owned())),
    }
}

fn waited<T>(done: &Result<T, WaitError>) -> Told {
    match done {
        Ok(_) => Ok("ok".to_owned()),
        Err(error) => Err((Class::Retryable, configs::text(error))),
    }
}

fn record(
    shared: &Shared,
    operation: &str,
    machine: &str,
    mutates: bool,
    began: jiff::Timestamp,
    told: Told,
) {
    let took = crate::runtime::until(began, (shared.context.clock)());
    let outcome = match told {
        Ok(word) => Outcome::Ok(word),
        Err((class, message)) => Outcome::Failed { class, message },
    };
    shared.context.recorder.record(Call {
        system: "talos",
        operation: operation.to_owned(),
        object: format!("machine {machine}"),
        mutates,
        began,
        took,
        outcome,
    });
}
