//! Waits for a node. Each ends on an event: a connection that is made or that breaks, a message of a stream. Only while the
//! port is closed is there nothing to listen to, and it is tried again with short pauses.
//!
//! The deadline is the caller's. An error that waiting can't cure ends a wait at once.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use tokio::{
    select,
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    error::{ClientError, ErrorClass},
    probe::{Look, Node, NodeState, Owner},
    session::Client,
    status::MachineStatus,
    stream::NodeEvent,
};
use crate::api::machine::ServiceInfo;

/// What is waited for, until when, and who hears of the progress.
#[derive(Clone)]
pub struct Wait {
    name: String,
    started: Instant,
    deadline: Instant,
    last: watch::Sender<Last>,
    tell: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait")
            .field("name", &self.name)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

/// A wait that ended without what was waited for.
#[derive(Debug, thiserror::Error)]
pub enum WaitError {
    #[error("waited {waited:.1?} for {name} in vain; last seen: {last}")]
    Deadline { name: String, waited: Duration, last: String, remedy: &'static str },
    #[error("waiting for {name} can't succeed")]
    Stopped { name: String, source: ClientError },
}

impl WaitError {
    /// The error that ended the wait before its deadline.
    pub fn cause(&self) -> Option<&ClientError> {
        match self {
            Self::Stopped { source, .. } => Some(source),
            Self::Deadline { .. } => None,
        }
    }

    /// What a person can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Stopped { source, .. } => source.remedy(),
            Self::Deadline { remedy, .. } => remedy,
        }
    }
}

/// What was last seen of a node, and what a person can do when it stays so.
#[derive(Clone)]
struct Last {
    state: String,
    remedy: &'static str,
}

impl Wait {
    /// `name` completes "waiting for ...".
    pub fn new(name: impl Into<String>, deadline: Instant) -> Self {
        Self {
            name: name.into(),
            started: Instant::now(),
            deadline,
            last: watch::Sender::new(Last {
                state: "nothing yet".to_owned(),
                remedy: ErrorClass::NotThereYet.remedy(),
            }),
            tell: Arc::new(|_| {}),
        }
    }

    /// Each new state is told to `tell`, once.
    #[must_use]
    pub fn telling(self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { tell: Arc::new(tell), ..self }
    }

    fn note(&self, state: impl Into<String>, remedy: &'static str) {
        let state = state.into();
        let changed = self.last.send_if_modified(|last| {
            let changed = last.state != state;
            if changed {
                *last = Last { state: state.clone(), remedy };
            }
            changed
        });
        if changed {
            (self.tell)(&state);
        }
    }

    fn stopped(&self, source: ClientError) -> WaitError {
        WaitError::Stopped { name: self.name.clone(), source }
    }

    /// Bounds `work` by the deadline.
    async fn bound<T>(&self, work: impl Future<Output = Result<T, ClientError>>) -> Result<T, WaitError> {
        match timeout_at(self.deadline, work).await {
            Ok(done) => done.map_err(|error| self.stopped(error)),
            Err(_) => {
                let waited = self.started.elapsed();
                let Last { state: last, remedy } = self.last.borrow().clone();
                Err(WaitError::Deadline { name: self.name.clone(), waited, last, remedy })
            }
        }
    }
}

/// Until anything that is a Talos node of ours, or one in maintenance mode, answers.
pub async fn wait_until_answering(node: &Node, wait: &Wait) -> Result<NodeState, WaitError> {
    wait.bound(async {
        Ok(match answering(node, wait).await? {
            Look::Ours(client) => {
                NodeState::Configured { owner: Owner::Ours, fingerprint: client.fingerprint().cloned() }
            }
            Look::Maintenance(_, fingerprint) => NodeState::Maintenance { fingerprint },
            Look::Nothing(state) => state,
        })
    })
    .await
}

/// Until the node is in maintenance mode. A configured one is waited for as long as its connection lasts (it may be resetting).
pub async fn wait_until_maintenance(node: &Node, wait: &Wait) -> Result<Client, WaitError> {
    wait.bound(async {
        loop {
            match answering(node, wait).await? {
                Look::Maintenance(client, _) => return Ok(client),
                Look::Ours(client) => {
                    wait.note("still configured", "reset the node");
                    gone(&client).await;
                }
                Look::Nothing(_) => {}
            }
        }
    })
    .await
}

/// Until the node serves its API with a certificate of our CA, that is: config applied, installed, booted so far.
pub async fn wait_until_configured(node: &Node, wait: &Wait) -> Result<Client, WaitError> {
    wait.bound(configured(node, wait)).await
}

/// Until the node goes away: it closes the connection, or does not answer on it any more.
pub async fn wait_until_gone(client: &Client, wait: &Wait) -> Result<(), WaitError> {
    wait.bound(async {
        wait.note("still there", ErrorClass::StillBooting.remedy());
        gone(client).await;
        Ok(())
    })
    .await
}

/// Until a service runs, and is healthy if it has a health check.
pub async fn wait_until_service(node: &Node, service: &str, wait: &Wait) -> Result<Client, WaitError> {
    wait.bound(async {
        loop {
            let client = configured(node, wait).await?;
            match follow_service(&client, service, wait).await {
                Ok(()) => return Ok(client),
                Err(error) => again_if_temporary(node, wait, error).await?,
            }
        }
    })
    .await
}

/// Until the node's own status satisfies `enough`.
pub async fn wait_until_status(
    node: &Node,
    wait: &Wait,
    enough: impl Fn(&MachineStatus) -> bool + Send + Sync,
) -> Result<Client, WaitError> {
    wait.bound(async {
        loop {
            let client = configured(node, wait).await?;
            match follow_status(&client, wait, &enough).await {
                Ok(()) => return Ok(client),
                Err(error) => again_if_temporary(node, wait, error).await?,
            }
        }
    })
    .await
}

/// Until etcd on this node is healthy, knows a leader, and votes. Talos tells nothing of a learner's promotion, so that last
/// step alone is asked for twice a second.
pub async fn wait_until_etcd(node: &Node, wait: &Wait) -> Result<Client, WaitError> {
    loop {
        let client = wait_until_service(node, "etcd", wait).await?;
        // A connection that was lost in between (the node rebooted) stays lost: from the beginning.
        if wait.bound(follow_votes(&client, node, wait)).await? {
            return Ok(client);
        }
    }
}

/// True when the node's etcd votes; false when the connection to the node is over.
async fn follow_votes(client: &Client, node: &Node, wait: &Wait) -> Result<bool, ClientError> {
    loop {
        match client.etcd_status().await {
            Ok(status) if status.leader != 0 && !status.is_learner => return Ok(true),
            Ok(status) if status.is_learner => {
                wait.note("etcd is a learner still", service_remedy("etcd"));
            }
            Ok(_) => {
                wait.note("etcd has no leader", "look at the other control planes: a majority has to run");
            }
            Err(error) if error.is_temporary() || *error.class() == ErrorClass::Other => {
                wait.note(error.message(), error.remedy());
            }
            Err(error) => return Err(error),
        }
        sleep(node.settings().retry.1).await;
        if client.is_closed() {
            return Ok(false);
        }
    }
}

/// Calls Bootstrap as soon as the node takes it. Whether it may be called at all, [`super::bootstrap_guard`] decides.
///
/// A lost answer is not repeated blindly: the error says so, and the guard has to look again.
pub async fn bootstrap_when_ready(node: &Node, wait: &Wait) -> Result<Client, WaitError> {
    wait.bound(async {
        loop {
            let client = configured(node, wait).await?;
            match follow_bootstrap(&client, wait).await {
                Ok(()) => return Ok(client),
                Err(error) if error.operation() == "Bootstrap" => return Err(error),
                Err(error) => again_if_temporary(node, wait, error).await?,
            }
        }
    })
    .await
}

/// The only loop with pauses: nobody answers yet.
async fn answering(node: &Node, wait: &Wait) -> Result<Look, ClientError> {
    let (mut pause, longest) = node.settings().retry;
    loop {
        let state = match node.look().await {
            Look::Nothing(state) => state,
            found => return Ok(found),
        };
        wait.note(state.to_string(), state.remedy());
        let hopeless = match &state {
            NodeState::Configured { .. } => {
                Some("the node is configured for another cluster, or no credentials were given".to_owned())
            }
            NodeState::CertificateTrouble { reason } => Some(reason.clone()),
            _ => None,
        };
        if let Some(message) = hopeless {
            return Err(ClientError::new("connect", node.address(), ErrorClass::WrongCertificate, message));
        }
        sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

async fn configured(node: &Node, wait: &Wait) -> Result<Client, ClientError> {
    loop {
        match answering(node, wait).await? {
            Look::Ours(client) => return Ok(client),
            Look::Maintenance(client, _) => {
                wait.note("still in maintenance mode", "apply its config");
                // It leaves by closing its port, and that closes this connection.
                gone(&client).await;
            }
            Look::Nothing(_) => {}
        }
    }
}

/// Ends when the connection does. A machine that lost its power closes nothing, so a silent one is asked from time to time.
async fn gone(client: &Client) {
    loop {
        select! {
            () = client.closed() => return,
            () = sleep(client.settings().quiet_limit) => {
                let answer = client.version().await;
                if let Err(error) = answer
                    && matches!(error.class(), ErrorClass::ConnectionLost | ErrorClass::TimedOut)
                {
                    return;
                }
            }
        }
    }
}

async fn again_if_temporary(node: &Node, wait: &Wait, error: ClientError) -> Result<(), ClientError> {
    if !error.is_temporary() {
        return Err(error);
    }
    wait.note(error.message(), error.remedy());
    sleep(node.settings().retry.0).await;
    Ok(())
}

/// The stream first, then the look: what changes in between is in the stream.
async fn follow_service(client: &Client, service: &str, wait: &Wait) -> Result<(), ClientError> {
    let mut events = client.events(0, None).await?;
    loop {
        let services = client.service_list().await?;
        match services.iter().find(|info| info.id == service) {
            Some(info) if service_is_up(info) => return Ok(()),
            Some(info) => wait.note(describe(info), service_remedy(service)),
            None => wait.note(format!("service {service} is not there"), service_remedy(service)),
        }
        loop {
            match timeout(client.settings().quiet_limit, events.next()).await {
                // Silence: look again, which also shows whether the node still lives.
                Err(_) => break,
                Ok(Ok(Some(event))) => {
                    if matches!(NodeEvent::decode(&event), NodeEvent::ServiceState(state) if state.service == service)
                    {
                        break;
                    }
                }
                Ok(Ok(None)) => {
                    return Err(ClientError::new(
                        "Events",
                        client.node(),
                        ErrorClass::ConnectionLost,
                        "the node ended the stream",
                    ));
                }
                Ok(Err(error)) => return Err(error),
            }
        }
    }
}

fn service_remedy(service: &str) -> &'static str {
    match service {
        "etcd" => {
            "if the cluster was never bootstrapped, do that (`butleradm talos bootstrap`); else look at the node's network, time servers and the log of etcd"
        }
        _ => ErrorClass::StillBooting.remedy(),
    }
}

/// A service that runs, and is healthy if it has a health check.
pub fn service_is_up(info: &ServiceInfo) -> bool {
    let health = info.health.as_ref();
    info.state == "Running"
        && health.is_none_or(|health| health.unknown || health.healthy)
        && !unchecked(info)
}

/// etcd's health is unknown for its first five seconds, which says nothing; services without a check stay so for good.
fn unchecked(info: &ServiceInfo) -> bool {
    info.id == "etcd" && info.health.as_ref().is_some_and(|health| health.unknown)
}

fn describe(info: &ServiceInfo) -> String {
    let said = info.events.as_ref().and_then(|events| events.events.last()).map(|event| event.msg.as_str());
    let ill = info.health.as_ref().filter(|health| !health.unknown && !health.healthy);
    let why = ill.map(|health| health.last_message.as_str()).or(said).unwrap_or_default();
    format!("service {} is {}: {why}", info.id, info.state)
}

async fn follow_status(
    client: &Client,
    wait: &Wait,
    enough: &(impl Fn(&MachineStatus) -> bool + Send + Sync),
) -> Result<(), ClientError> {
    let mut changes = MachineStatus::watch(client).await?;
    loop {
        match timeout(client.settings().quiet_limit, changes.next()).await {
            Err(_) => client.version().await.map(drop)?,
            Ok(Ok(Some(event))) => {
                if let Some(status) = event.resource.as_ref().and_then(MachineStatus::read) {
                    if enough(&status) {
                        return Ok(());
                    }
                    wait.note(status.to_string(), ErrorClass::StillBooting.remedy());
                }
            }
            Ok(Ok(None)) => {
                let message = "the node ended the stream";
                return Err(ClientError::new(
                    "cosi Watch",
                    client.node(),
                    ErrorClass::ConnectionLost,
                    message,
                ));
            }
            Ok(Err(error)) => return Err(error),
        }
    }
}

/// Tries, and after a "not yet" tries again at the node's next event. Talos itself holds a call back up to six seconds for
/// what it waits for and sends no event for the clock, so that a second without events is enough to ask again.
async fn follow_bootstrap(client: &Client, wait: &Wait) -> Result<(), ClientError> {
    let mut events = client.events(0, None).await?;
    loop {
        match client.bootstrap().await {
            Err(error) if *error.class() == ErrorClass::StillBooting => {
                wait.note(error.message(), error.remedy());
            }
            done => return done,
        }
        let quiet = client.settings().quiet_limit.min(Duration::from_secs(1));
        if let Ok(event) = timeout(quiet, events.next()).await
            && event?.is_none()
        {
            let message = "the node ended the stream";
            return Err(ClientError::new("Events", client.node(), ErrorClass::ConnectionLost, message));
        }
    }
}
