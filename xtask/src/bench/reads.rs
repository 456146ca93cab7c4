//! Lists and watches.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use serde::Deserialize;
use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval, timeout},
};

use super::{
    http::{Ask, Connection, Target},
    objects::{self, SAMPLES},
    stream::Lines,
    usage::{Meter, Usage},
};

/// How often an object is created while watchers look on.
const BETWEEN_CREATES: Duration = Duration::from_millis(20);
/// How often a server that is not ready yet is asked again.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// An event that has not come by then has not come.
const PATIENCE: Duration = Duration::from_secs(30);

// === lists ===

/// Times whole lists of all samples, from the request to the last byte; consistent ones, as without a resourceVersion.
/// Sorted. The size is that of the last answer.
pub(super) async fn lists(
    target: &Target,
    accept: &'static str,
    times: usize,
) -> Result<(Vec<Duration>, usize)> {
    let mut connection = target.connect().await?;
    let mut latencies = Vec::with_capacity(times);
    let mut size = 0;
    for _ in 0..times {
        let started = Instant::now();
        size = connection.drain(Ask { accept, ..Ask::get(SAMPLES) }).await?;
        latencies.push(started.elapsed());
    }
    latencies.sort_unstable();
    Ok((latencies, size))
}

/// Asks until the server gives an answer other than "not yet": kube-apiserver may refuse a kind with 429 for a while after
/// a start. Hands back the time that it took.
pub(super) async fn wait_for(target: &Target, path: &str) -> Result<Duration> {
    let started = Instant::now();
    let mut connection = target.connect().await?;
    loop {
        let (status, body) = connection.exchange(Ask::get(path)).await?;
        if status.is_success() {
            return Ok(started.elapsed());
        }
        let not_yet = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        ensure!(
            not_yet && started.elapsed() < PATIENCE,
            "GET {path}: {status}: {}",
            String::from_utf8_lossy(&body)
        );
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

/// Reads a list as `accept` asks for it and makes sure that everything is in it.
pub(super) async fn check_list(target: &Target, accept: &'static str, expected: usize) -> Result<()> {
    #[derive(Deserialize)]
    struct List {
        #[serde(default, alias = "rows")]
        items: Vec<serde::de::IgnoredAny>,
    }
    let body = target.connect().await?.call(Ask { accept, ..Ask::get(SAMPLES) }).await?;
    let list: List = serde_json::from_slice(&body).context("read a list")?;
    ensure!(list.items.len() == expected, "a list has {} objects, not {expected}", list.items.len());
    Ok(())
}

// === watches ===

/// What the watchers saw.
#[derive(Debug)]
pub(super) struct Watched {
    /// From the sending of a create to the parsed event, for every event of every watcher. Sorted.
    pub(super) latencies: Vec<Duration>,
    /// With the creates themselves.
    pub(super) usage: Usage,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: Object<'a>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    name: &'a str,
}

/// When each object was sent, by number.
type Sent = Arc<Vec<OnceLock<Instant>>>;

/// Opens `watchers` watches on connections of their own, then creates `creates` objects at a steady pace. Every watcher
/// must see every object once and in order.
pub(super) async fn watch(target: &Target, pids: &[u32], watchers: usize, creates: usize) -> Result<Watched> {
    let mut connection = target.connect().await?;
    let newest = newest_version(&mut connection).await?;
    let path = format!("{SAMPLES}?watch=true&resourceVersion={newest}");
    let sent: Sent = Arc::new((0..creates).map(|_| OnceLock::new()).collect());
    let mut tasks = JoinSet::new();
    for _ in 0..watchers {
        let lines = target.watch(&path).await?;
        let sent = Arc::clone(&sent);
        tasks.spawn(async move {
            timeout(PATIENCE + BETWEEN_CREATES * sent.len() as u32, follow(lines, &sent))
                .await
                .context("events are missing")?
        });
    }
    let meter = Meter::start(pids)?;
    let mut ticks = interval(BETWEEN_CREATES);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let path = format!("{SAMPLES}?fieldManager=bench");
    for (number, slot) in sent.iter().enumerate() {
        ticks.tick().await;
        let body = objects::sample(&watched_name(number), number as u64, None);
        slot.get_or_init(Instant::now);
        connection.call(Ask::send(Method::POST, &path, body)).await?;
    }
    let mut latencies = Vec::with_capacity(watchers * creates);
    while let Some(result) = tasks.join_next().await {
        latencies.extend(result.context("wait for a watcher")??);
    }
    let usage = meter.stop()?;
    latencies.sort_unstable();
    Ok(Watched { latencies, usage })
}

/// The version of the whole collection, where a watch for what is new begins.
async fn newest_version(connection: &mut Connection) -> Result<String> {
    let path = format!("{SAMPLES}?limit=1");
    let list: serde_json::Value =
        serde_json::from_slice(&connection.call(Ask::get(&path)).await?).context("read a list")?;
    let version = list["metadata"]["resourceVersion"].as_str();
    version.map(str::to_owned).context("find the resourceVersion of a list")
}

fn watched_name(number: usize) -> String {
    format!("watched-{number:06}")
}

/// One watcher: reads events until it has seen every object.
async fn follow(mut lines: Lines, sent: &Sent) -> Result<Vec<Duration>> {
    let mut latencies = Vec::with_capacity(sent.len());
    for (number, sent) in sent.iter().enumerate() {
        check_event(lines.next().await?, number)?;
        let sent = sent.get().context("an event came before its create")?;
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
}

/// Objects are created one after the other, so the events have to come in that order, none missing and none twice.
fn check_event(line: &[u8], number: usize) -> Result<()> {
    let event: Event<'_> = serde_json::from_slice(line)
        .with_context(|| format!("read the event {}", String::from_utf8_lossy(line)))?;
    let (kind, name) = (event.kind, event.object.metadata.name);
    let expected = watched_name(number);
    ensure!(kind == "ADDED" && name == expected, "event {number} is {kind} {name}, not ADDED {expected}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_out_of_order_is_refused() {
        let line = br#"{"type":"ADDED","object":{"kind":"Sample","metadata":{"name":"watched-000003"}}}"#;
        check_event(line, 3).unwrap();
        let error = check_event(line, 2).unwrap_err().to_string();
        assert!(error.contains("watched-000003, not ADDED watched-000002"), "{error}");
        let deleted = br#"{"type":"DELETED","object":{"metadata":{"name":"watched-000003"}}}"#;
        assert!(check_event(deleted, 3).is_err());
    }
}
