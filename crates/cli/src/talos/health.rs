//! `butleradm talos health`: waits until nodes are healthy, and says of each what it found.
//!
//! A Kubernetes node that is not Ready is no fault here: without a CNI it never is, and the CNI comes after Talos.

use super::reach::{Reach, Road, explain, explain_wait, parse_duration, wait};
use crate::output;
use anyhow::{Context, Result, bail};
use butler_talos::api::cluster::ClusterInfo;
use butler_talos::client::{
    Client, MachineStatus, Node, NodeAddress, service_is_up, wait_until_configured, wait_until_etcd,
    wait_until_service, wait_until_status,
};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// How long to wait for health.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    timeout: Duration,
    /// Clocks may differ so much.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    max_clock_skew: Duration,
    /// Then let Talos run its own checks, which include Kubernetes (they need a CNI).
    #[arg(long)]
    talos_checks: bool,
}

/// What was found on one node.
struct Found {
    address: NodeAddress,
    version: String,
    stage: String,
    skew: Duration,
    /// Ids of etcd's members as this node's own etcd knows them; none on a worker.
    members: Option<BTreeSet<u64>>,
}

pub(super) async fn run(args: Args) -> Result<ExitCode> {
    let deadline = Instant::now() + args.timeout;
    let road = args.reach.road()?;
    road.require_credentials()?;
    road.require_direct("health")?;
    let mut checks = JoinSet::new();
    for address in &road.nodes {
        checks.spawn(check(road.node(address, None), deadline));
    }
    let mut found = Vec::new();
    let mut ill = 0;
    while let Some(outcome) = checks.join_next().await {
        match outcome? {
            Ok(node) => {
                output::line(&node.line());
                found.push(node);
            }
            Err(error) => {
                output::error(&output::chain(&error));
                ill += 1;
            }
        }
    }
    let problems = compare(&found, args.max_clock_skew);
    for problem in &problems {
        output::error(problem);
    }
    if ill + problems.len() > 0 {
        return Ok(ExitCode::FAILURE);
    }
    if args.talos_checks {
        talos_checks(&road, &found, deadline).await?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Found {
    fn line(&self) -> String {
        let etcd = match &self.members {
            Some(members) => format!("etcd of {}", members.len()),
            None => "worker".to_owned(),
        };
        format!("{} {} {}, {etcd}, clock within {:.1?}", self.address, self.version, self.stage, self.skew)
    }
}

async fn check(node: Node, deadline: Instant) -> Result<Found> {
    let address = node.address().clone();
    let wait = |what: &str| wait(&address, what, deadline);
    let client = wait_until_configured(&node, &wait("the node")).await.map_err(explain_wait)?;
    let services = client.service_list().await.map_err(explain)?;
    for service in &services {
        // Some are done with their work, and fine so. etcd is looked at closer below.
        let done = matches!(service.state.as_str(), "Finished" | "Skipped");
        if !done && service.id != "etcd" && !service_is_up(service) {
            let wait = wait(&format!("service {}", service.id));
            wait_until_service(&node, &service.id, &wait).await.map_err(explain_wait)?;
        }
    }
    let members = if services.iter().any(|service| service.id == "etcd") {
        let client = wait_until_etcd(&node, &wait("etcd")).await.map_err(explain_wait)?;
        let members = client.etcd_member_list(true).await.map_err(explain)?;
        Some(members.into_iter().map(|member| member.id).collect())
    } else {
        None
    };
    wait_until_status(&node, &wait("stage running"), MachineStatus::is_running)
        .await
        .map_err(explain_wait)?;
    let version = client.version().await.map_err(explain)?.version.unwrap_or_default().tag;
    let stage = match MachineStatus::get(&client).await.map_err(explain)? {
        Some(status) => status.to_string(),
        None => "no status".to_owned(),
    };
    Ok(Found { skew: skew(&client).await?, address, version, stage, members })
}

/// How far the node's clock is from ours; half the way of the call is unknown and not subtracted.
async fn skew(client: &Client) -> Result<Duration> {
    let theirs = client.time().await.map_err(explain)?.localtime.context("the node did not tell its time")?;
    let theirs = SystemTime::try_from(theirs).context("the node's time is out of range")?;
    let now = SystemTime::now();
    Ok(now.duration_since(theirs).unwrap_or_else(|ahead| ahead.duration()))
}

/// What no node can know alone: clocks against ours, and whether all have the same etcd.
fn compare(found: &[Found], max_skew: Duration) -> Vec<String> {
    let mut problems: Vec<String> = found
        .iter()
        .filter(|node| node.skew > max_skew)
        .map(|node| format!("{}: its clock is off by {:.1?}", node.address, node.skew))
        .collect();
    let mut clusters = found.iter().filter_map(|node| Some((node, node.members.as_ref()?)));
    if let Some((first, members)) = clusters.next() {
        for (node, own) in clusters {
            if own.is_disjoint(members) {
                problems.push(format!(
                    "{} and {} belong to two different etcd clusters: one of them has to be reset",
                    first.address, node.address
                ));
            } else if own != members {
                problems.push(format!(
                    "{} and {} do not agree on etcd's members yet",
                    first.address, node.address
                ));
            }
        }
    }
    problems
}

async fn talos_checks(road: &Road, found: &[Found], deadline: Instant) -> Result<()> {
    let named = |control_plane: bool| {
        let some = found.iter().filter(|node| node.members.is_some() == control_plane);
        some.map(|node| node.address.host().to_owned()).collect::<Vec<_>>()
    };
    let Some(asked) = found.iter().find(|node| node.members.is_some()) else {
        bail!("Talos' own checks need a control plane among the nodes");
    };
    let nodes = ClusterInfo {
        control_plane_nodes: named(true),
        worker_nodes: named(false),
        // The API server as the node itself reaches it: behind some load balancers the endpoint does not lead back.
        force_endpoint: "127.0.0.1:7445".to_owned(),
    };
    let client = road.client(&asked.address).await?;
    let left = deadline.saturating_duration_since(Instant::now());
    let checks = async {
        let mut lines = client.health_check(nodes, left).await.map_err(explain)?;
        while let Some(progress) = lines.next().await.map_err(explain)? {
            output::note(&format!("{}: {}", asked.address, progress.message));
        }
        Ok(())
    };
    match timeout_at(deadline, checks).await {
        Ok(done) => done,
        Err(_) => bail!("Talos' own checks did not pass in time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(address: &str, skew: u64, members: Option<&[u64]>) -> Found {
        Found {
            address: address.parse().unwrap(),
            version: "v1.9.5".to_owned(),
            stage: "stage running, ready".to_owned(),
            skew: Duration::from_secs(skew),
            members: members.map(|ids| ids.iter().copied().collect()),
        }
    }

    #[test]
    fn two_etcd_clusters_and_wrong_clocks_are_found() {
        let limit = Duration::from_secs(30);
        let fine = [
            node("10.0.0.1", 1, Some(&[1, 2])),
            node("10.0.0.2", 0, Some(&[1, 2])),
            node("10.0.0.3", 2, None),
        ];
        assert!(compare(&fine, limit).is_empty());
        let split = [node("10.0.0.1", 0, Some(&[1])), node("10.0.0.2", 0, Some(&[2]))];
        assert!(compare(&split, limit)[0].contains("two different etcd clusters"));
        let late = [node("10.0.0.1", 0, Some(&[1])), node("10.0.0.2", 0, Some(&[1, 2]))];
        assert!(compare(&late, limit)[0].contains("do not agree"));
        assert!(compare(&[node("10.0.0.3", 31, None)], limit)[0].contains("clock"));
    }
}
