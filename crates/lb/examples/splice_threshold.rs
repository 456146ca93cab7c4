//! Where copying in the kernel begins to pay: CPU of the forwarding thread per GB, copied and spliced, for answers of
//! growing size. `cargo run --release -p butler-lb --example splice_threshold`
#![allow(clippy::print_stdout)] // its output is the point

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use butler_lb::{
    config::Config,
    forward::{LoadBalancer, Options, Tuning},
};

const STRETCH: Duration = Duration::from_millis(400);
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    println!("| answer | copied, s/GB | spliced from the first full read, s/GB |\n|---|---|---|");
    for kib in [16, 32, 64, 128, 256, 512, 1024, 4096] {
        let backend = serve(kib << 10)?;
        let mut best = [f64::MAX; 2];
        // In turn, and the best of each: what else runs on the machine can only add.
        for _ in 0..ROUNDS {
            for (place, splice_after) in [None, Some(1)].into_iter().enumerate() {
                best[place] = best[place].min(measure(backend, kib << 10, splice_after)?);
            }
        }
        println!("| {kib} KiB | {:.3} | {:.3} |", best[0], best[1]);
    }
    Ok(())
}

/// A server that answers every byte with so many.
fn serve(size: usize) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        let answer = vec![b'x'; size];
        for mut stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || {
                while stream.read_exact(&mut [0]).is_ok() && stream.write_all(&answer).is_ok() {}
            });
        }
    });
    Ok(address)
}

/// Seconds of the forwarding thread's CPU per GB.
fn measure(backend: SocketAddr, size: usize, splice_after: Option<u32>) -> Result<f64> {
    let config: Config = serde_json::from_value(serde_json::json!({
        "threads": 1,
        "listeners": [{
            "name": "threshold", "bind": ["127.0.0.1:0"], "health": {"kind": "tcp"},
            "backends": [{"name": "only", "address": backend}],
        }],
    }))?;
    let tuning = Tuning { splice_after, ..Tuning::default() };
    let handle = LoadBalancer::start(&config, Options { tuning, ..Options::default() })?;
    let address = *handle.addresses("threshold").first().context("it does not listen")?;
    let mut stream = TcpStream::connect(address)?;
    let mut answer = vec![0; size];
    let mut ask = || stream.write_all(b"?").and_then(|()| stream.read_exact(&mut answer));
    for _ in 0..10 {
        ask()?;
    }
    let (before, started, mut bytes) = (cpu()?, Instant::now(), 0);
    while started.elapsed() < STRETCH {
        ask()?;
        bytes += size;
    }
    Ok((cpu()? - before).as_secs_f64() * 1e9 / bytes as f64)
}

/// CPU time of the forwarding thread, by the scheduler's own nanoseconds.
fn cpu() -> Result<Duration> {
    for task in fs::read_dir("/proc/self/task")? {
        let folder = task?.path();
        if fs::read_to_string(folder.join("comm"))?.trim() == "lb-0" {
            let text = fs::read_to_string(folder.join("schedstat"))?;
            let first = text.split_ascii_whitespace().next().context("read schedstat")?;
            return Ok(Duration::from_nanos(first.parse()?));
        }
    }
    anyhow::bail!("there is no forwarding thread")
}
