//! `butler-lb run`: wires forwarding, shared addresses and the runtime API, and listens to signals.
//!
//! ```text
//!   rights given up --> file --> sockets of the runtime API --> forwarding --> shared addresses --> READY
//!   SIGHUP, POST /v1/reload: the file again
//!   SIGTERM, SIGINT: no reload any more --> addresses handed over --> no new connections --> those that are there end, or their time is over
//! ```

mod access_log;
mod control;
mod notify;
mod status;

use super::{Exit, output};
use access_log::{AccessLog, Reopen};
use anyhow::{Context as _, Result, bail};
use butler_lb::admin::{Control as _, Server, Sockets};
use butler_lb::config::{Config, Loaded, load, report};
use butler_lb::forward::{LoadBalancer, Options};
use butler_lb::vip::{drop_other_capabilities, missing_capabilities};
use control::{Running, STOPPING};
use notify::notify;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Below it, a port needs NET_BIND_SERVICE.
const FIRST_FREE_PORT: u16 = 1024;

pub(super) fn run(file: &Path) -> Exit {
    // First of all, and before there are threads: what can be read now can then be read by a reload too.
    if let Err(error) = drop_other_capabilities() {
        output::error(&error.to_string());
        return Exit::General;
    }
    let loaded = match load(file) {
        Ok(loaded) => loaded,
        Err(error) => {
            output::unusable(&error);
            return Exit::Usage;
        }
    };
    match serve(file, loaded) {
        Ok(()) => Exit::Ok,
        Err(error) => {
            let chain: Vec<String> = error.chain().map(ToString::to_string).collect();
            output::error(&chain.join(": "));
            Exit::General
        }
    }
}

fn serve(file: &Path, Loaded { config, warnings }: Loaded) -> Result<()> {
    for line in report(&file.display().to_string(), &warnings) {
        tracing::warn!("{line}");
    }
    // Before anything is served: a signal that comes early is not lost.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("listen to signals")?;
    let (running, admin) = start(file, config)?;
    notify("READY=1");
    tracing::info!("ready: {}", running.in_a_line());
    for signal in &mut signals {
        if signal == SIGHUP {
            // What came of it was logged.
            let _ = running.reload();
        } else {
            break;
        }
    }
    stop(running, admin, signals);
    Ok(())
}

/// Starts everything.
fn start(file: &Path, config: Config) -> Result<(Arc<Running>, Server)> {
    // First, since it tells whether another balancer runs with the same file.
    let sockets = Sockets::bind(Path::new(&config.admin.socket), config.admin.metrics)?;
    let again = Reopen::default();
    let access_log = match &config.access_log.path {
        Some(path) => {
            let log = AccessLog::open(path, again.clone())
                .with_context(|| format!("open accessLog.path {path:?}"))?;
            Some(Box::new(log) as Box<dyn std::io::Write + Send>)
        }
        None => None,
    };
    name_missing_rights(&config)?;
    let options = Options { access_log, seed: seed(), ..Options::default() };
    let forward = Arc::new(LoadBalancer::start(&config, options)?);
    let running = Arc::new(Running::start(file, config, forward, again)?);
    let admin = sockets.serve(running.clone())?;
    Ok((running, admin))
}

/// Hands the addresses over while everything still answers, then gives connections their time. A second signal ends at once.
fn stop(running: Arc<Running>, admin: Server, mut signals: Signals) {
    notify("STOPPING=1");
    let grace = running.refuse_reloads();
    tracing::info!("stopping: {}connections have {} s", running.to_hand_over(), grace.as_secs());
    let handle = signals.handle();
    let impatient = std::thread::spawn(move || {
        for signal in signals.forever() {
            if signal != SIGHUP {
                tracing::warn!("told to stop a second time: ending at once");
                std::process::exit(Exit::General as i32);
            }
            tracing::warn!("{STOPPING}");
        }
    });
    running.stop(grace);
    drop(admin);
    handle.close();
    let _ = impatient.join();
    tracing::info!("stopped");
}

/// What the kernel must allow for what the file says.
fn name_missing_rights(config: &Config) -> Result<()> {
    let low =
        config.listeners.iter().flat_map(|listener| &listener.bind).any(|bind| bind.port() < FIRST_FREE_PORT);
    let needed = |name: &&str| match *name {
        "NET_BIND_SERVICE" => low,
        _ => !config.vips.is_empty(),
    };
    let missing: Vec<&str> = missing_capabilities()?.into_iter().filter(needed).collect();
    if !missing.is_empty() {
        bail!(
            "this process may not do what the file says: {} missing. Run it as root, give it those capabilities \
             (deploy/butler-lb/butler-lb.service does), or take {} out of the file",
            match missing.as_slice() {
                [one] => format!("the capability {one} is"),
                all => format!("the capabilities {} are", all.join(", ")),
            },
            if missing == ["NET_BIND_SERVICE"] { "ports below 1024" } else { "the vips" }
        );
    }
    Ok(())
}

/// Where jitter and random choices begin. Two balancers that are started together are not to do the same at the same time.
fn seed() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness the process number has to do.
    if aws_lc_rs::rand::fill(&mut bytes).is_err() {
        return u64::from(std::process::id());
    }
    u64::from_ne_bytes(bytes)
}

/// The longest that a listener gives its connections.
fn longest_delay(config: &Config) -> Duration {
    let delays = config.listeners.iter().map(|listener| listener.deregistration_delay);
    Duration::from_secs(delays.max().unwrap_or(0))
}
