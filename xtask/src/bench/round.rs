//! One round of one side: a fresh server, every measurement once, the server gone again.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context, Result};
use http::Method;

use super::{
    Plan,
    http::{Ask, JSON, TABLE, Target},
    objects::{self, DEFINITIONS, NAMESPACES, SAMPLES},
    reads,
    stats::{milliseconds, quantile},
    subject::{Recipe, Subject},
    syncs::Tool,
    usage::memory,
    writes::{self, Samples, Write},
};

/// Clients that write at the same time.
pub(super) const CLIENTS: [usize; 2] = [1, 32];
pub(super) const WATCHERS: usize = 100;
pub(super) const WRITES: [Write; 3] = [Write::Create, Write::Update, Write::Apply];

/// kube-apiserver holds the first create of a new kind back until its definition is 2 s old. Both sides wait it out.
const AFTER_DEFINITION: Duration = Duration::from_secs(3);
/// Before memory is read, so that what a request left behind can be cleaned up.
const AT_REST: Duration = Duration::from_secs(2);

/// A thing that is measured. Writes go with the number of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    ColdStart,
    ColdStartWithoutStore,
    Restart,
    ResidentIdle,
    ResidentFull,
    ResidentRestarted,
    ProportionalIdle,
    ProportionalFull,
    Rate(Write, usize),
    Cpu(Write, usize),
    Syncs(usize),
    List,
    Table,
    WatchMedian,
    WatchTail,
    WatchCpu,
    WatchLoadCpu,
    LatencyMedian(Write, usize),
    LatencyTail(Write, usize),
    LoadCpu(Write, usize),
    /// Worst over the stretches of writes.
    Others,
    ListSize,
    Events,
}

pub(super) type Figures = BTreeMap<Key, f64>;

pub(super) async fn run(recipe: &Recipe, parent: &Path, plan: &Plan, tool: Option<Tool>) -> Result<Figures> {
    let mut figures = Figures::new();
    let server = recipe.start(parent).await?;
    figures.insert(Key::ColdStart, milliseconds(server.start.answered));
    figures.insert(Key::ColdStartWithoutStore, milliseconds(server.start.without_store));
    tokio::time::sleep(AT_REST).await;
    let idle = memory(&server.pids())?;
    figures.insert(Key::ResidentIdle, idle.resident);
    figures.insert(Key::ProportionalIdle, idle.proportional);

    prepare(&server.target).await?;
    let mut samples = Samples::default();
    write_all(&mut samples, &server, plan, &mut figures).await?;
    tokio::time::sleep(AT_REST).await;
    let full = memory(&server.pids())?;
    figures.insert(Key::ResidentFull, full.resident);
    figures.insert(Key::ProportionalFull, full.proportional);

    read_all(&server, plan, samples.count(), &mut figures).await?;

    let server = server.restart().await?;
    // A server that is up but does not serve what it has stored is not back yet.
    let served = reads::wait_for(&server.target, &format!("{SAMPLES}/{}", writes::name(0))).await?;
    figures.insert(Key::Restart, milliseconds(server.start.answered + served));
    tokio::time::sleep(AT_REST).await;
    figures.insert(Key::ResidentRestarted, memory(&server.pids())?.resident);
    // Everything that was acknowledged is there again. Its list may take longer than a single object; that is not timed.
    reads::wait_for(&server.target, &format!("{SAMPLES}?limit=1")).await?;
    reads::check_list(&server.target, JSON, samples.count() + plan.watched).await?;
    if let Some(tool) = tool {
        count_syncs(&mut samples, &server, plan, tool, &mut figures).await?;
    }
    Ok(figures)
}

async fn prepare(target: &Target) -> Result<()> {
    let mut connection = target.connect().await?;
    for (path, object) in [(NAMESPACES, objects::namespace()), (DEFINITIONS, objects::definition())] {
        let body = serde_json::to_vec(&object).context("write an object as JSON")?;
        connection.call(Ask::send(Method::POST, path, body)).await?;
    }
    tokio::time::sleep(AFTER_DEFINITION).await;
    Ok(())
}

async fn write_all(
    samples: &mut Samples,
    server: &Subject,
    plan: &Plan,
    figures: &mut Figures,
) -> Result<()> {
    let pids = server.pids();
    // Not counted: a server that has never written is not what anybody meets.
    samples.write(&server.target, &pids, Write::Create, CLIENTS[1], plan.warm_up()).await?;
    let mut others = 0.0_f64;
    for write in WRITES {
        for clients in CLIENTS {
            let count = plan.writes(write, clients);
            let outcome = samples.write(&server.target, &pids, write, clients, count).await?;
            figures.insert(Key::Rate(write, clients), outcome.per_second());
            figures.insert(Key::Cpu(write, clients), outcome.server_cpu());
            figures.insert(Key::LoadCpu(write, clients), outcome.load_cpu());
            let at = |q| milliseconds(quantile(&outcome.latencies, q));
            figures.insert(Key::LatencyMedian(write, clients), at(0.5));
            figures.insert(Key::LatencyTail(write, clients), at(0.99));
            others = others.max(outcome.usage.others);
        }
    }
    figures.insert(Key::Others, others);
    Ok(())
}

async fn read_all(server: &Subject, plan: &Plan, count: usize, figures: &mut Figures) -> Result<()> {
    let target = &server.target;
    for (key, accept) in [(Key::List, JSON), (Key::Table, TABLE)] {
        // Also warms both sides up.
        reads::check_list(target, accept, count).await?;
        let (latencies, size) = reads::lists(target, accept, plan.lists).await?;
        figures.insert(key, milliseconds(quantile(&latencies, 0.5)));
        if key == Key::List {
            figures.insert(Key::ListSize, size as f64);
        }
    }
    let watched = reads::watch(target, &server.pids(), WATCHERS, plan.watched).await?;
    let events = watched.latencies.len() as f64;
    figures.insert(Key::WatchMedian, milliseconds(quantile(&watched.latencies, 0.5)));
    figures.insert(Key::WatchTail, milliseconds(quantile(&watched.latencies, 0.99)));
    figures.insert(Key::WatchCpu, milliseconds(watched.usage.server) * 1e3 / events);
    figures.insert(Key::WatchLoadCpu, milliseconds(watched.usage.load) * 1e3 / events);
    figures.insert(Key::Events, events);
    Ok(())
}

async fn count_syncs(
    samples: &mut Samples,
    server: &Subject,
    plan: &Plan,
    tool: Tool,
    figures: &mut Figures,
) -> Result<()> {
    let pids = server.pids();
    for clients in CLIENTS {
        let count = plan.syncs(clients);
        let counter = tool.attach(&pids).await?;
        samples.write(&server.target, &pids, Write::Create, clients, count).await?;
        figures.insert(Key::Syncs(clients), counter.finish().await? as f64 / count as f64);
    }
    Ok(())
}
