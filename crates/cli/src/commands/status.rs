//! `butleradm status`: how far a cluster is, read from its objects.

use super::block_on;
use crate::engine::{Home, Objects};
use crate::exit::{Ended, Exit};
use crate::output;
use crate::progress::{DELETING, OutputFormat, left, phase_name, split_until};
use anyhow::{Context as _, Result};
use butler_api::{ClusterBootstrap, ClusterBootstrapStatus, LoadBalancerRequest, names};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster. Not needed when there is only one.
    cluster: Option<String>,
    /// How to speak.
    #[arg(long, short, value_enum, default_value_t, env = "BUTLER_OUTPUT")]
    output: OutputFormat,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    block_on(status(args))
}

async fn status(args: Args) -> Result<Exit> {
    let home = Home::usual();
    let cluster = home.choose(args.cluster.as_deref())?;
    let objects = Objects::attach(&home, &cluster).await?;
    let api: Api<ClusterBootstrap> = Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
    let found = api.get_opt(&cluster).await.context("cannot read the ClusterBootstrap");
    let labelled = ListParams::default().labels(&format!("{}={cluster}", names::LABEL_CLUSTER_BOOTSTRAP));
    let balancers: Api<LoadBalancerRequest> =
        Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
    let balancers = balancers.list(&labelled).await.context("cannot list the load balancers");
    let running = !objects.is_embedded();
    objects.stop().await;
    let Some(bootstrap) = found? else {
        return Err(Ended::error(Exit::NotFound, format!("{cluster} has state, but no ClusterBootstrap")));
    };
    match args.output {
        OutputFormat::Json => output::line(&status_json(&bootstrap, &balancers?.items)?.to_string()),
        OutputFormat::Text => {
            table(&bootstrap, &balancers?.items, running, &home).iter().for_each(|line| output::line(line));
        }
    }
    Ok(Exit::Ok)
}

/// The status without the credentials that it may hold.
fn status_json(bootstrap: &ClusterBootstrap, balancers: &[LoadBalancerRequest]) -> Result<Value> {
    let mut status = serde_json::to_value(bootstrap.status.clone().unwrap_or_default())?;
    if let Value::Object(fields) = &mut status {
        fields.remove("kubeconfig");
        fields.remove("talosconfig");
        let balancers = balancers.iter().map(
            |balancer| json!({"name": balancer.name_any(), "spec": balancer.spec, "status": balancer.status}),
        );
        fields.insert("loadBalancers".to_owned(), balancers.collect());
        fields.insert("cluster".to_owned(), bootstrap.name_any().into());
        fields.insert("provider".to_owned(), bootstrap.spec.provider.as_str().into());
    }
    Ok(status)
}

fn table(
    bootstrap: &ClusterBootstrap,
    balancers: &[LoadBalancerRequest],
    running: bool,
    home: &Home,
) -> Vec<String> {
    let status = bootstrap.status.clone().unwrap_or_default();
    let name = bootstrap.name_any();
    let phase = match bootstrap.metadata.deletion_timestamp {
        Some(_) => DELETING,
        None => status.phase.map_or("Pending", phase_name),
    };
    let at_work = if running { "a command works on it now" } else { "nothing works on it now" };
    let mut lines = vec![
        format!("{name} on {}: {phase} ({at_work})", bootstrap.spec.provider),
        format!("  endpoint     {}", status.control_plane_endpoint.as_deref().unwrap_or("-")),
    ];
    let kubeconfig = home.kubeconfig(&name);
    if kubeconfig.exists() {
        lines.push(format!("  kubeconfig   {}", kubeconfig.display()));
    }
    lines.extend(status.console_url.iter().map(|url| format!("  console      {url}")));
    lines.extend(failure(&status, running));
    lines.push(String::new());
    lines.extend(machines(&status));
    lines.push(String::new());
    if !balancers.is_empty() {
        lines.extend(load_balancers(balancers, running));
        lines.push(String::new());
    }
    lines.extend(addons(&status));
    lines
}

fn failure(status: &ClusterBootstrapStatus, running: bool) -> Vec<String> {
    let Some(reason) = &status.failure_reason else {
        let waiting = butler_api::find_condition(&status.conditions, butler_api::CONDITION_PROGRESSING);
        let waiting = waiting.filter(|condition| {
            (condition.is_true() || condition.reason == "Paused") && !condition.message.is_empty()
        });
        return waiting
            .map(|condition| {
                let (message, until) = split_until(&condition.message);
                // Deadlines begin again with the next command.
                let left = left(until.filter(|_| running), jiff::Timestamp::now());
                format!("  now          {message}{left}")
            })
            .into_iter()
            .collect();
    };
    let mut lines =
        vec![format!("  failed       {reason}: {}", status.failure_message.as_deref().unwrap_or_default())];
    lines.extend(status.failure_remedy.iter().map(|remedy| format!("  what to do   {remedy}")));
    lines
}

fn machines(status: &ClusterBootstrapStatus) -> Vec<String> {
    let width = status.machines.iter().map(|machine| machine.name.len()).max().unwrap_or(0).max(7);
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    let row = |name: &str, role: &str, phase: &str, address: &str, configured: &str, joined: &str| {
        format!("{name:width$}  {role:13}  {phase:9}  {address:15}  {configured:10}  {joined}")
            .trim_end()
            .to_owned()
    };
    let mut lines = vec![row("MACHINE", "ROLE", "PHASE", "ADDRESS", "CONFIGURED", "JOINED")];
    for machine in &status.machines {
        let phase = machine.phase.map_or_else(|| "-".to_owned(), |phase| format!("{phase:?}"));
        let address = machine.ip_address.as_deref().unwrap_or("-");
        let (configured, joined) = (yes(machine.talos_configured), yes(machine.ready));
        lines.push(row(&machine.name, &machine.role.to_string(), &phase, address, configured, joined));
    }
    lines
}

/// A row for each port: how many of its targets are there, and how many are well. Health changes by itself, so that nothing is said of
/// it when nobody looks.
fn load_balancers(balancers: &[LoadBalancerRequest], running: bool) -> Vec<String> {
    let name_width = balancers.iter().map(|balancer| balancer.name_any().len()).max().unwrap_or(0).max(13);
    let endpoint = |balancer: &LoadBalancerRequest| {
        balancer.status.as_ref().and_then(|status| status.endpoint.clone()).unwrap_or_else(|| "-".to_owned())
    };
    let endpoint_width = balancers.iter().map(|balancer| endpoint(balancer).len()).max().unwrap_or(0).max(8);
    let row = |name: &str, phase: &str, endpoint: &str, port: &str, targets: &str, healthy: &str| {
        format!("{name:name_width$}  {phase:9}  {endpoint:endpoint_width$}  {port:5}  {targets:7}  {healthy}")
            .trim_end()
            .to_owned()
    };
    let mut lines = vec![row("LOAD BALANCER", "PHASE", "ENDPOINT", "PORT", "TARGETS", "HEALTHY")];
    for balancer in balancers {
        let status = balancer.status.clone().unwrap_or_default();
        let phase = status.phase.map_or_else(|| "-".to_owned(), |phase| format!("{phase:?}"));
        let (name, endpoint) = (balancer.name_any(), endpoint(balancer));
        if status.listeners.is_empty() {
            lines.push(row(&name, &phase, &endpoint, "-", "-", "-"));
        }
        for port in &status.listeners {
            let counts = [port.port, port.registered, port.healthy].map(|number| number.to_string());
            let healthy = if running { counts[2].as_str() } else { "-" };
            lines.push(row(&name, &phase, &endpoint, &counts[0], &counts[1], healthy));
        }
    }
    lines
}

fn addons(status: &ClusterBootstrapStatus) -> Vec<String> {
    let width = status.addons_installed.keys().map(String::len).max().unwrap_or(0).max(5);
    let mut lines = vec![format!("{:width$}  INSTALLED", "ADDON")];
    for (addon, done) in &status.addons_installed {
        lines.push(format!("{addon:width$}  {}", if *done { "yes" } else { "no" }));
    }
    lines
}
