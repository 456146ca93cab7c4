//! The commands of a bootstrap, one file each: they read words, call the engine, and speak.

mod addons;
pub(crate) mod bootstrap;
mod call_log;
pub(crate) mod completions;
pub(crate) mod datacentre;
pub(crate) mod destroy;
pub(crate) mod doctor;
pub(crate) mod dry_run;
pub(crate) mod events;
pub(crate) mod kubeconfig;
pub(crate) mod load;
pub(crate) mod logs;
pub(crate) mod rehearse;
pub(crate) mod status;
pub(crate) mod support;
pub(crate) mod words;

use crate::exit::Exit;
use anyhow::Result;

/// Runs a command on a runtime of its own.
pub(crate) fn block_on(command: impl Future<Output = Result<Exit>>) -> Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(command);
    // What is still running in the background has been told to end, or does not matter.
    runtime.shutdown_background();
    result
}

/// An obstacle of the infrastructure as an error: what, why, and what to do.
fn failure(failure: butler_drivers::Failure) -> anyhow::Error {
    let remedy = if failure.remedy.is_empty() { String::new() } else { format!("; {}", failure.remedy) };
    anyhow::anyhow!("{}: {}{remedy}", failure.reason, failure.message)
}
