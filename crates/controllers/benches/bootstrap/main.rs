//! How fast a bootstrap is, in this process and without Proxmox: one measurement per run, told as a line of JSON.
//! `cargo xtask bench bootstrap` runs it in rounds and makes a table.
//!
//! ```text
//! bootstrap zero            a highly available cluster, 3 + 3, when nothing outside takes time
//! bootstrap delays SPEED    the same on the committed delay table at this speed, beside the table's critical path
//! bootstrap many N          N such clusters at once, without delays: time and memory
//! bootstrap shapes SPEED    the critical path and the model of the fixed waits; measures nothing
//! ```
//!
//! With `TIMELINE` in the environment, what happened when is told on stderr.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark that can't go on fails, and its output is its result"
)]

mod path;
mod site;
#[allow(unreachable_pub, reason = "shared with the tests, which are crates of their own")]
#[path = "../../tests/support/mod.rs"]
mod support;
mod timeline;
mod upstream;

use serde_json::{Value, json};
use site::Site;
use std::time::Instant;

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let figures = match words[..] {
        ["zero"] => zero().await,
        ["delays", speed] => delays(speed.parse().unwrap()).await,
        ["many", clusters] => many(clusters.parse().unwrap()).await,
        ["shapes", speed] => shapes(speed.parse().unwrap()),
        // Whoever builds and runs everything does not want to wait for this.
        _ => return eprintln!("say what to measure: zero | delays SPEED | many N | shapes SPEED"),
    };
    println!("{figures}");
}

async fn zero() -> Value {
    json!({"seconds": one(0.0).await})
}

async fn delays(speed: f64) -> Value {
    json!({"speed": speed, "seconds": one(speed).await})
}

/// One cluster, from its ClusterBootstrap to Ready.
async fn one(speed: f64) -> f64 {
    let site = Site::new(speed, 1).await;
    site.given_secrets(0).await;
    let life = site.start();
    let timeline = timeline::follow(&site);
    let began = Instant::now();
    site.create(0).await;
    site.ready(0).await;
    let took = began.elapsed().as_secs_f64();
    timeline.tell(&site);
    life.end().await;
    site.stop().await;
    took
}

/// Many clusters, from the first ClusterBootstrap to the last Ready.
async fn many(clusters: usize) -> Value {
    let site = Site::new(0.0, clusters).await;
    for number in 0..clusters {
        site.given_secrets(number).await;
    }
    let life = site.start();
    let before = memory("VmRSS");
    let began = Instant::now();
    for number in 0..clusters {
        site.create(number).await;
    }
    for number in 0..clusters {
        site.ready(number).await;
    }
    let took = began.elapsed().as_secs_f64();
    let (after, peak) = (memory("VmRSS"), memory("VmHWM"));
    let calls = site.calls.made.lock().clone();
    life.end().await;
    site.stop().await;
    json!({"clusters": clusters, "seconds": took, "before": before, "after": after, "peak": peak, "calls": calls})
}

fn shapes(speed: f64) -> Value {
    json!({"rows": path::critical(speed), "upstreamRows": upstream::modelled(speed)})
}

/// A line of this process' status, in MiB.
fn memory(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: f64 = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0.0);
    kib / 1024.0
}
