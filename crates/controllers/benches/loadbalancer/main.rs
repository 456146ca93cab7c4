//! How soon a load balancer is ready and how often a cloud is asked, in this process and on simulated clouds: one
//! measurement per run, told as a line of JSON. `cargo xtask bench loadbalancer` runs it in rounds and makes a table.
//!
//! ```text
//! loadbalancer bootstrap PLACE SPEED         a highly available cluster, 3 + 3, on the committed delay table: moments and calls
//! loadbalancer idle PLACE FACTOR SECONDS     a Ready cluster that is left alone for so long, with all pauses of the
//!                                            controllers shorter by this factor: calls
//! loadbalancer table SPEED                   the delay table; measures nothing
//! ```
//!
//! PLACE is `gcp` or `aws`. With `TIMELINE` in the environment, every call to the cloud is told on stderr.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark that can't go on fails, and its output is its result"
)]

mod calls;
#[path = "../../tests/lives/mod.rs"]
mod lives;
mod moments;
mod site;
#[allow(unreachable_pub, reason = "shared with the tests, which are crates of their own")]
#[path = "../../tests/support/mod.rs"]
mod support;

use lives::Place;
use serde_json::{Value, json};
use site::Site;
use std::time::{Duration, Instant};

#[tokio::main]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let figures = match words[..] {
        ["bootstrap", place, speed] => bootstrap(Place::parse(place), speed.parse().unwrap()).await,
        ["idle", place, factor, seconds] => {
            idle(Place::parse(place), factor.parse().unwrap(), seconds.parse().unwrap()).await
        }
        ["table", speed] => json!(butler_sim::delay_table(speed.parse().unwrap())),
        // Whoever builds and runs everything does not want to wait for this.
        _ => {
            return eprintln!(
                "say what to measure: bootstrap PLACE SPEED | idle PLACE FACTOR SECONDS | table SPEED"
            );
        }
    };
    println!("{figures}");
}

/// One cluster, from its ClusterBootstrap to Ready.
async fn bootstrap(place: Place, speed: f64) -> Value {
    let site = Site::new(place, speed).await;
    let life = site.start(1.0);
    let moments = moments::follow(&site);
    let window = site.window();
    let began = Instant::now();
    site.create().await;
    site.ready().await;
    let took = began.elapsed().as_secs_f64();
    let counted = site.counted(&window);
    site.tell_timeline(began);
    let figures = moments.told(began);
    life.end().await;
    site.stop().await;
    json!({
        "seconds": took,
        "lastAddress": figures.last_address,
        "endpoint": figures.endpoint,
        "complete": figures.complete,
        "calls": counted,
    })
}

/// A Ready cluster that nobody does anything to.
async fn idle(place: Place, factor: f64, seconds: f64) -> Value {
    let site = Site::new(place, 0.0).await;
    let life = site.start(factor);
    site.create().await;
    site.ready().await;
    site.calm().await;
    // Away from the look that found all well: none of the next ones falls onto an end of the window.
    tokio::time::sleep(Duration::from_secs_f64(site::AWAY.max(site::AWAY_REAL / factor))).await;
    let window = site.window();
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    let counted = site.counted(&window);
    life.end().await;
    site.stop().await;
    json!({"factor": factor, "seconds": seconds, "calls": counted})
}
