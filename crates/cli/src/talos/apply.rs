//! `butleradm talos apply`: a machine config for nodes that are new or configured already.

use super::reach::{Reach, Road, explain, explain_wait, parse_duration, wait};
use crate::output;
use anyhow::{Context, Result, bail};
use butler_talos::client::{
    Client, Fingerprint, NodeAddress, NodeState, Owner, wait_until_answering, wait_until_configured,
};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// The machine config.
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Send it to a node in maintenance mode without knowing who that is.
    #[arg(long)]
    insecure: bool,
    /// Send it to a node in maintenance mode only if its key has this fingerprint (the node's console shows it).
    #[arg(long, value_name = "BASE64")]
    cert_fingerprint: Option<Fingerprint>,
    /// Only have it checked by the node.
    #[arg(long)]
    dry_run: bool,
    /// Wait until the node has booted with it. Needs a talosconfig.
    #[arg(long)]
    wait: bool,
    /// How long to wait for a node to answer, and again with --wait until it has booted.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    timeout: Duration,
}

pub(super) async fn run(args: Args) -> Result<ExitCode> {
    let config = std::fs::read_to_string(&args.file)
        .with_context(|| format!("cannot read the machine config {}", args.file.display()))?;
    let Args { reach, insecure, cert_fingerprint: pin, dry_run, wait: waits, timeout, .. } = args;
    let road = reach.road()?;
    if waits {
        road.require_direct("--wait")?;
        road.require_credentials()?;
    }
    for address in &road.nodes {
        let deadline = Instant::now() + timeout;
        let client = connect(&road, address, insecure, pin.as_ref(), deadline).await?;
        let applied = client.apply_configuration(&config, dry_run).await.map_err(explain)?;
        for warning in &applied.warnings {
            output::note(&format!("{address}: warning: {warning}"));
        }
        if !applied.details.is_empty() {
            output::note(&format!("{address}: {}", applied.details.trim_end()));
        }
        output::line(&format!(
            "{address} {}",
            if dry_run { "takes the config (nothing changed)" } else { "has the config" }
        ));
        // The connection is closed before the wait, so that the node's maintenance service can end.
        drop(client);
        if waits && !dry_run {
            let wait = wait(address, "the booted node", Instant::now() + timeout);
            wait_until_configured(&road.node(address, pin.as_ref()), &wait).await.map_err(explain_wait)?;
            output::line(&format!("{address} has booted"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// By the road that the node itself shows. A config holds the cluster's secrets: to an unverified node it goes only when told.
async fn connect(
    road: &Road,
    address: &NodeAddress,
    insecure: bool,
    pin: Option<&Fingerprint>,
    deadline: Instant,
) -> Result<Client> {
    let node = road.node(address, pin);
    if !insecure && pin.is_none() && road.require_direct("").is_err() {
        return road.client(address).await;
    }
    let state = match node.probe().await {
        NodeState::Refused | NodeState::Unreachable { .. } => {
            let wait = wait(address, "the node to answer", deadline);
            wait_until_answering(&node, &wait).await.map_err(explain_wait)?
        }
        state => state,
    };
    match state {
        NodeState::Configured { owner: Owner::Ours, .. } => node.connect().await.map_err(explain),
        NodeState::Maintenance { fingerprint } if insecure || pin.is_some() => {
            if pin.is_none() {
                output::note(&format!("{address}: unverified node, fingerprint {fingerprint}"));
            }
            // Pinned to what was just seen, if to nothing else: no other node may step in between.
            road.node(address, Some(pin.unwrap_or(&fingerprint))).connect_maintenance().await.map_err(explain)
        }
        NodeState::Maintenance { fingerprint } => bail!(
            "node {address} is in maintenance mode, where it can't prove who it is, and the config holds secrets\n  \
             what to do: compare with the node's console, then add --cert-fingerprint {fingerprint}; \
             or add --insecure to trust the network"
        ),
        NodeState::Configured { owner: Owner::Unknown, .. } => {
            bail!("node {address} is configured already\n  what to do: say --talosconfig FILE")
        }
        NodeState::Configured { owner: Owner::Foreign, .. } => bail!(
            "node {address} belongs to another cluster than the talosconfig\n  what to do: check the address; reset the node first"
        ),
        other => bail!("node {address}: {other}\n  what to do: {}", other.remedy()),
    }
}
