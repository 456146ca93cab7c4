//! Writes from a number of clients at once: create, update, server-side apply. Every write must succeed; one that does
//! not ends the run, since a rate with errors in it means nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use http::Method;
use tokio::{sync::Barrier, task::JoinSet};

use super::{
    http::{APPLY, Ask, Connection, JSON, Target},
    objects::{self, SAMPLES},
    usage::{Meter, Usage},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Write {
    /// POST of a new object.
    Create,
    /// PUT with the resourceVersion that the last write returned.
    Update,
    /// Forced apply by a manager of its own.
    Apply,
}

/// The objects that exist, by number, with the resourceVersion of their last write.
#[derive(Debug, Default)]
pub(super) struct Samples {
    versions: Vec<String>,
}

/// A stretch of writes.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) writes: usize,
    pub(super) usage: Usage,
    /// Sorted.
    pub(super) latencies: Vec<Duration>,
}

/// What the clients of one stretch share.
struct Work {
    write: Write,
    /// Numbers still to be written: `next` up to `end`.
    next: AtomicUsize,
    end: usize,
    versions: Vec<String>,
    start: Barrier,
}

/// What one client did: number of the object, its new version, how long it took.
type Done = Vec<(usize, String, Duration)>;

// === impl Samples ===

impl Samples {
    pub(super) fn count(&self) -> usize {
        self.versions.len()
    }

    /// Does `count` writes with `clients` connections. Creates add objects; the others change the first `count` of them,
    /// each once.
    pub(super) async fn write(
        &mut self,
        target: &Target,
        pids: &[u32],
        write: Write,
        clients: usize,
        count: usize,
    ) -> Result<Outcome> {
        let first = if write == Write::Create { self.versions.len() } else { 0 };
        let end = first + count;
        if write == Write::Create {
            self.versions.resize(end, String::new());
        }
        let work = Arc::new(Work {
            write,
            next: AtomicUsize::new(first),
            end: end.min(self.versions.len()),
            versions: std::mem::take(&mut self.versions),
            // The clients and the one who holds the watch.
            start: Barrier::new(clients + 1),
        });
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            let connection = target.connect().await?;
            tasks.spawn(client(connection, Arc::clone(&work)));
        }
        let meter = Meter::start(pids)?;
        work.start.wait().await;
        let mut done = Vec::with_capacity(count);
        while let Some(result) = tasks.join_next().await {
            done.extend(result.context("wait for a client")??);
        }
        let usage = meter.stop()?;
        self.versions = Arc::into_inner(work).context("the clients still hold their work")?.versions;
        Ok(self.record(done, usage))
    }

    fn record(&mut self, done: Done, usage: Usage) -> Outcome {
        let mut latencies = Vec::with_capacity(done.len());
        for (number, version, latency) in done {
            self.versions[number] = version;
            latencies.push(latency);
        }
        latencies.sort_unstable();
        Outcome { writes: latencies.len(), usage, latencies }
    }
}

// === impl Outcome ===

impl Outcome {
    pub(super) fn per_second(&self) -> f64 {
        self.writes as f64 / self.usage.elapsed.as_secs_f64()
    }

    /// CPU time of the server in ms for one write.
    pub(super) fn server_cpu(&self) -> f64 {
        self.usage.server.as_secs_f64() * 1e3 / self.writes as f64
    }

    /// CPU time of the load itself in ms for one write.
    pub(super) fn load_cpu(&self) -> f64 {
        self.usage.load.as_secs_f64() * 1e3 / self.writes as f64
    }
}

/// One client: takes the next number until none is left.
async fn client(mut connection: Connection, work: Arc<Work>) -> Result<Done> {
    let mut done = Vec::new();
    work.start.wait().await;
    loop {
        let number = work.next.fetch_add(1, Ordering::Relaxed);
        if number >= work.end {
            return Ok(done);
        }
        let sent = Instant::now();
        let version = write_one(&mut connection, work.write, number, &work.versions[number])
            .await
            .with_context(|| format!("{:?} of object {number}", work.write))?;
        done.push((number, version, sent.elapsed()));
    }
}

/// The name of an object by its number.
pub(super) fn name(number: usize) -> String {
    format!("sample-{number:06}")
}

async fn write_one(
    connection: &mut Connection,
    write: Write,
    number: usize,
    version: &str,
) -> Result<String> {
    let name = name(number);
    // Each kind of write brings another size, so that none of them is without effect.
    let (method, path, content_type, body) = match write {
        Write::Create => {
            let body = objects::sample(&name, number as u64, None);
            (Method::POST, format!("{SAMPLES}?fieldManager=bench"), JSON, body)
        }
        Write::Update => {
            let body = objects::sample(&name, number as u64 + 1_000_000, Some(version));
            (Method::PUT, format!("{SAMPLES}/{name}?fieldManager=bench"), JSON, body)
        }
        Write::Apply => {
            let body = objects::sample(&name, number as u64 + 2_000_000, None);
            (Method::PATCH, format!("{SAMPLES}/{name}?fieldManager=bench-apply&force=true"), APPLY, body)
        }
    };
    let ask = Ask { method, path: &path, accept: JSON, content_type, body };
    objects::resource_version(&connection.call(ask).await?)
}
