//! `butleradm talos bootstrap`: etcd, once, on one control plane.

use super::reach::{Reach, Road, explain_wait, parse_duration, wait};
use crate::output;
use anyhow::{Result, bail};
use butler_talos::client::{
    Decision, ErrorClass, Node, NodeAddress, Refusal, bootstrap_guard, bootstrap_when_ready,
    wait_until_answering, wait_until_configured, wait_until_etcd,
};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// All control planes: every one is looked at first. Without it: the endpoints of the talosconfig.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    control_planes: Vec<NodeAddress>,
    /// How long to wait for the control planes, and then for etcd.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    timeout: Duration,
    /// Return after the call, before etcd is up.
    #[arg(long)]
    no_wait: bool,
}

pub(super) async fn run(args: Args) -> Result<ExitCode> {
    let deadline = Instant::now() + args.timeout;
    let road = args.reach.road()?;
    road.require_credentials()?;
    road.require_direct("bootstrap")?;
    let [chosen] = road.nodes.as_slice() else {
        bail!("bootstrap needs exactly one node, and {} are named: say --nodes ADDRESS", road.nodes.len());
    };
    let mut addresses = if args.control_planes.is_empty() { road.known.clone() } else { args.control_planes };
    if addresses.is_empty() {
        output::note("no other control plane is known (--control-planes): only the chosen one is looked at");
        addresses.push(chosen.clone());
    }
    let all: Vec<Node> = addresses.iter().map(|address| road.node(address, None)).collect();
    let node = road.node(chosen, None);
    if guard(&road, &all, &node, deadline).await? == Decision::AlreadyDone {
        output::note(&format!("{chosen}: etcd has data: it was bootstrapped before"));
    } else {
        match bootstrap_when_ready(&node, &wait(chosen, "the bootstrap", deadline)).await {
            Ok(_) => output::line(&format!("{chosen} starts etcd")),
            Err(error)
                if error.cause().is_some_and(|cause| *cause.class() == ErrorClass::AlreadyBootstrapped) =>
            {
                output::note(&format!("{chosen}: etcd has data: it was bootstrapped before"));
            }
            Err(error) => return Err(explain_wait(error)),
        }
    }
    if !args.no_wait {
        wait_until_etcd(&node, &wait(chosen, "etcd", deadline)).await.map_err(explain_wait)?;
        output::line(&format!("{chosen} has a healthy etcd"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks again while only time is missing. The chosen node has to be configured; of the others an answer is enough.
async fn guard(road: &Road, all: &[Node], chosen: &Node, deadline: Instant) -> Result<Decision> {
    loop {
        let (decision, _) = bootstrap_guard(all, chosen).await;
        let refusal = match decision {
            Decision::Refuse(refusal) => refusal,
            decision => return Ok(decision),
        };
        let refused = || anyhow::anyhow!("not bootstrapped: {refusal}\n  what to do: {}", refusal.remedy());
        if !refusal.is_temporary() || Instant::now() >= deadline {
            return Err(refused());
        }
        let waited = match &refusal {
            Refusal::Unanswered { nodes } => answers(road, nodes, deadline).await,
            _ => {
                let wait = wait(chosen.address(), "the configured node", deadline);
                wait_until_configured(chosen, &wait).await.map(drop).map_err(explain_wait)
            }
        };
        // The refusal says what is missing, and the wait only that it did not come.
        waited.map_err(|error| refused().context(first_line(&error)))?;
        // A node may answer and still not tell all: then this is a slow loop, not a hot one.
        sleep(Duration::from_millis(250)).await;
    }
}

fn first_line(error: &anyhow::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

async fn answers(road: &Road, silent: &[(String, String)], deadline: Instant) -> Result<()> {
    for (address, _) in silent {
        let address: NodeAddress = address.parse()?;
        let wait = wait(&address, "an answer", deadline);
        wait_until_answering(&road.node(&address, None), &wait).await.map_err(explain_wait)?;
    }
    Ok(())
}
