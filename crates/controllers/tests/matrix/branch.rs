//! One point of the matrix: a copy of everything, a second life, and a look at what it comes to.

use crate::lives::{self, Inventory, Life, Patience};
use crate::points::{Choice, WORKERS};
use crate::record::{Cut, Point};
use butler_api::ClusterBootstrap;
use butler_drivers::NoRecorder;
use butler_sim::{
    BranchOptions, CallRule, DataCentre, DataCentreOptions, Fault, FaultScript, Matcher, Pattern,
};
use kube::api::DeleteParams;
use serde_json::json;
use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// So long may a second life take. Far more than it needs: this only ends one that never gets there.
const LIMIT: Duration = Duration::from_secs(90);

/// Drawing keys takes longer than all the rest of a life.
pub(crate) static SECRETS: LazyLock<String> =
    LazyLock::new(|| butler_talos::SecretsBundle::generate(jiff::Timestamp::now()).unwrap().bundle.to_yaml());

/// Which way a run goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    Bootstrap,
    Destroy,
}

/// What happens at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Death before it is carried out.
    Before,
    /// Death after it was carried out, before the answer is seen.
    After,
    /// An error, in the second life: the first call of the same kind meets it.
    Error(Fault),
    /// The same error in the first life, which goes on with all that it remembers.
    Alive(Fault),
}

/// A point of the matrix, as it is named in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) goal: Goal,
    pub(crate) call: u64,
    pub(crate) event: Event,
}

/// What the end has to be.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) goal: Goal,
    pub(crate) inventory: Inventory,
    pub(crate) addons: Vec<String>,
}

/// What came of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Met {
    /// The error was met; deaths always are.
    pub(crate) fault: bool,
}

impl Goal {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Goal::Bootstrap => "bootstrap",
            Goal::Destroy => "destroy",
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.goal.word(), self.call)?;
        match self.event {
            Event::Before => f.write_str("before"),
            Event::After => f.write_str("after"),
            Event::Error(fault) => write!(f, "{fault}"),
            Event::Alive(fault) => write!(f, "{fault} in the same life"),
        }
    }
}

/// Runs a point in a runtime of its own, on this thread. `None` when the call was never carried out, so that there is
/// nothing after it.
///
/// # Errors
/// What is wrong with the end, in words.
pub(crate) fn run(
    point: &Point,
    event: Event,
    wanted: &Wanted,
    choice: &Choice,
) -> Option<Result<Met, String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = match event {
        Event::Before => runtime.block_on(second_life(&point.before, FaultScript::default(), wanted)),
        Event::After => runtime.block_on(second_life(point.after.as_ref()?, FaultScript::default(), wanted)),
        Event::Error(fault) => runtime.block_on(second_life(&point.before, script(point, 1, fault), wanted)),
        // Where a call is made more than once, the second time: there is something to remember then.
        Event::Alive(fault) => {
            let script = script(point, point.before_it.min(1) + 1, fault);
            runtime.block_on(first_life(choice, script, wanted))
        }
    };
    // Whatever still runs dies here.
    runtime.shutdown_background();
    Some(outcome)
}

/// The n-th call of a life that is the same one.
fn script(point: &Point, nth: u64, fault: Fault) -> FaultScript {
    let call = &point.call;
    let calls = Matcher {
        system: Some(call.call.system.to_owned()),
        operation: Some(Pattern::from(call.call.operation.as_str())),
        object: Some(Pattern::from(call.call.object.as_str())),
        call: None,
    };
    FaultScript { calls: vec![CallRule { calls, nth, times: Some(1), fault }], ..FaultScript::default() }
}

async fn second_life(cut: &Cut, faults: FaultScript, wanted: &Wanted) -> Result<Met, String> {
    let folder = tempfile::tempdir().unwrap();
    cut.folder.restore(folder.path());
    let patience = patience(&faults);
    let scripted = !faults.calls.is_empty();
    let options = BranchOptions { faults, ..BranchOptions::default() };
    let data_centre =
        DataCentre::branch(&cut.data_centre, options).await.map_err(|error| error.to_string())?;
    let life = Life::begin(folder.path(), &data_centre, Arc::new(NoRecorder), patience).await;
    let first = cut.data_centre.calls();
    ends(&life, &data_centre, wanted, first, scripted).await
}

/// A call that is never answered is given up soon, and any other is waited for.
fn patience(faults: &FaultScript) -> Patience {
    let hangs = faults.calls.iter().any(|rule| rule.fault == Fault::Timeout);
    Patience(Duration::from_secs(if hangs { 1 } else { 30 }))
}

/// A life of its own, from the beginning, that meets an error and goes on.
async fn first_life(choice: &Choice, faults: FaultScript, wanted: &Wanted) -> Result<Met, String> {
    let folder = tempfile::tempdir().unwrap();
    let patience = patience(&faults);
    let begin = DataCentreOptions { seed: choice.seed, ..choice.place.options() };
    let data_centre = DataCentre::start(begin).await.map_err(|error| error.to_string())?;
    let life = Life::begin(folder.path(), &data_centre, Arc::new(NoRecorder), patience).await;
    lives::given_secrets(&life.client, &SECRETS).await;
    if wanted.goal == Goal::Bootstrap {
        data_centre.gate().set_faults(faults.clone());
    }
    lives::ask(&life.client, &data_centre, choice.place, choice.place.cluster(WORKERS, json!({}))).await;
    let mut first = 0;
    if wanted.goal == Goal::Destroy {
        if tokio::time::timeout(LIMIT, life.ready()).await.is_err() {
            return Err(stuck(&life, &data_centre).await);
        }
        data_centre.gate().set_faults(faults);
        first = data_centre.gate().count();
        life.api::<ClusterBootstrap>().delete(lives::CLUSTER, &DeleteParams::default()).await.unwrap();
    }
    ends(&life, &data_centre, wanted, first, true).await
}

/// Follows a life to its end, and looks at what it has come to.
async fn ends(
    life: &Life,
    data_centre: &DataCentre,
    wanted: &Wanted,
    first: u64,
    scripted: bool,
) -> Result<Met, String> {
    let known = secrets(life).await;
    let end = async {
        match wanted.goal {
            Goal::Bootstrap => life.ready().await,
            Goal::Destroy => life.gone().await,
        }
    };
    if tokio::time::timeout(LIMIT, end).await.is_err() {
        return Err(stuck(life, data_centre).await);
    }
    let mut problems = check(life, data_centre, wanted).await;
    if wanted.goal == Goal::Bootstrap && known.is_some() && secrets(life).await != known {
        problems.push("the cluster's secrets are others than those that the first life had drawn".to_owned());
    }
    let calls = data_centre.gate().calls();
    let met = !scripted || calls.iter().any(|call| call.number > first && call.fault.is_some());
    if problems.is_empty() { Ok(Met { fault: met }) } else { Err(problems.join("\n")) }
}

/// The secrets that a cluster stands and falls with.
async fn secrets(life: &Life) -> Option<String> {
    life.secret(&format!("{}-talos-secrets", lives::CLUSTER), "secrets.yaml").await
}

async fn check(life: &Life, data_centre: &DataCentre, wanted: &Wanted) -> Vec<String> {
    let mut problems = Vec::new();
    let there = Inventory::of(data_centre);
    problems.extend(there.differences(&wanted.inventory));
    if wanted.goal == Goal::Destroy {
        return problems;
    }
    let status = life.cluster().await.and_then(|cluster| cluster.status).unwrap_or_default();
    let addons: Vec<String> =
        status.addons_installed.iter().filter(|(_, there)| **there).map(|(name, _)| name.clone()).collect();
    if addons != wanted.addons {
        problems.push(format!("addons: {addons:?} and not {:?}", wanted.addons));
    }
    for (name, votes) in data_centre.world().etcd_members() {
        if !votes {
            problems.push(format!("the cluster is ready, and etcd on {name} still learns"));
        }
    }
    for machine in status.machines.iter().filter(|machine| !machine.ready || !machine.talos_configured) {
        problems.push(format!("the cluster is ready and {} is not", machine.name));
    }
    problems
}

/// What a life that never gets there says of itself.
async fn stuck(life: &Life, data_centre: &DataCentre) -> String {
    let calls = data_centre.gate().calls();
    let last: Vec<String> = calls
        .iter()
        .rev()
        .take(12)
        .map(|call| {
            format!(
                "  {} {} {} {:?} {:?}",
                call.number, call.call.operation, call.call.object, call.progress, call.fault
            )
        })
        .collect();
    let status = life.cluster().await.and_then(|cluster| cluster.status);
    let status = status.map(|mut status| {
        (status.kubeconfig, status.talosconfig) = (None, None);
        serde_json::to_string(&status).unwrap()
    });
    format!("never got there\n  status: {status:?}\n  last calls:\n{}", last.join("\n"))
}
