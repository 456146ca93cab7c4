//! `butleradm destroy`: takes a cluster down, waits until it is gone, and only then forgets it.

mod access;
mod by_tag;

use super::block_on;
use super::load::load;
use super::words::span;
use crate::config::Need;
use crate::engine::{Goal, Home, Objects, Outcome, Reach, Signals, Workers, afresh, drive, not_in_time};
use crate::exit::{Ended, Exit};
use crate::output;
use crate::progress::{OutputFormat, Speaker, Turn};
use crate::recorder::Journal;
use access::Access;
use anyhow::{Context as _, Result};
use butler_api::{ClusterBootstrap, LoadBalancerRequest, MachineRequest, ProviderConfig, names};
use butler_controllers::addons::NoSources;
use butler_drivers::SharedRecorder;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt as _};
use std::io::{BufRead as _, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster. Not needed when there is only one.
    cluster: Option<String>,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Find what is ours on the infrastructure by its tags, for a cluster whose state is lost. Needs --config.
    #[arg(long, requires = "config")]
    by_tag: bool,
    /// For --by-tag, when several clusters have the name: the uid of the one that is meant.
    #[arg(long, requires = "by_tag")]
    uid: Option<String>,
    /// The bootstrap file: how the infrastructure is reached. Replaces the settings and credentials that are stored, for a cluster
    /// whose credentials are no longer taken.
    #[arg(long, short, value_name = "FILE", env = "BUTLER_CONFIG")]
    config: Option<PathBuf>,
    /// How to speak.
    #[arg(long, short, value_enum, default_value_t, env = "BUTLER_OUTPUT")]
    output: OutputFormat,
    /// Stop after this time, with everything kept.
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "45m", env = "BUTLER_TIMEOUT")]
    timeout: Duration,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    block_on(destroy(args))
}

async fn destroy(args: Args) -> Result<Exit> {
    let home = Home::usual();
    if args.by_tag {
        let settings = load(args.config.as_deref(), None, Need::Credentials, &home)?;
        return by_tag::by_tag(&args, &settings).await;
    }
    let cluster = home.choose(args.cluster.as_deref())?;
    let folder = home.open(&cluster)?;
    let mut reach = Reach::kept(&folder.path())?;
    let journal = folder.journal();
    let objects = Objects::open(folder, reach.objects.as_ref()).await?;
    let result = prepared(&args, &cluster, &home, &objects, &mut reach, &journal).await;
    let folder = objects.stop().await;
    let exit = result?;
    if exit == Exit::Ok
        && let Some(folder) = folder
    {
        folder.forget()?;
    }
    Ok(exit)
}

/// Reads what is there, opens the journal with all its secrets known, and takes it down.
async fn prepared(
    args: &Args,
    cluster: &str,
    home: &Home,
    objects: &Objects,
    reach: &mut Reach,
    journal: &Path,
) -> Result<Exit> {
    if let Some(file) = &args.config {
        access::replace(file, cluster, home, objects, reach).await?;
    }
    let api: Api<ClusterBootstrap> = Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
    let there = api.get_opt(cluster).await.context("cannot read the ClusterBootstrap")?;
    let access = match &there {
        Some(there) => Access::read(&objects.client, there).await?,
        None => None,
    };
    let redactor = access.as_ref().map(|access| access.redactor(reach.proxy.as_deref()));
    let holder = journal.parent().and_then(|folder| reach.holder(folder));
    let journal = Arc::new(Journal::open(journal, redactor.unwrap_or_default())?);
    let work = Work { args, cluster, objects, reach, journal: &journal, holder };
    take_down(&work, there.as_ref(), access.as_ref()).await
}

/// What taking a cluster down needs.
struct Work<'a> {
    args: &'a Args,
    cluster: &'a str,
    objects: &'a Objects,
    reach: &'a Reach,
    journal: &'a Arc<Journal>,
    holder: Option<String>,
}

async fn take_down(
    work: &Work<'_>,
    there: Option<&ClusterBootstrap>,
    access: Option<&Access>,
) -> Result<Exit> {
    let Work { args, cluster, objects, reach, journal, ref holder } = *work;
    let client = &objects.client;
    let parts = parts(client, cluster).await?;
    if there.is_some() || !parts.is_empty() {
        confirm(args, cluster, &parts)?;
    }
    let began = Instant::now();
    let signals = Signals::listen()?;
    let mut speaker = Speaker::new(args.output, Some(journal.clone())).take_down();
    if let Some(there) = there {
        if let Some(access) = access {
            let recorder: SharedRecorder = journal.clone();
            access.check(client, there, reach, &recorder).await?;
        }
        mark_for_deletion(client, cluster).await?;
        let context = reach.context(client.clone(), journal, Arc::new(NoSources))?;
        let mut workers = Workers::start(context, cluster, holder.clone());
        let outcome =
            drive(&mut workers, &mut speaker, Goal::Gone, began, Some(args.timeout), &signals).await;
        workers.stop().await;
        speaker.finish();
        if let Some(exit) = not_gone(outcome, cluster, &mut speaker, began) {
            return Ok(exit);
        }
    }
    let left = leftovers(client, cluster, there.and_then(|there| there.metadata.uid.as_deref())).await?;
    if !left.is_empty() {
        let list = left.join(", ");
        return Err(Ended::error(
            Exit::General,
            format!(
                "{cluster} is not forgotten, since something remains: {list}; run the same command again"
            ),
        ));
    }
    if !objects.is_embedded() {
        // The embedded API goes with the folder; another cluster keeps nothing of ours either.
        forget_inputs(client, cluster).await?;
    }
    speaker.tell(&Turn::Gone { cluster: cluster.to_owned() }, began.elapsed());
    Ok(Exit::Ok)
}

async fn mark_for_deletion(client: &Client, cluster: &str) -> Result<()> {
    let api: Api<ClusterBootstrap> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    api.delete(cluster, &DeleteParams::default()).await.context("cannot delete the ClusterBootstrap")?;
    if let Some(there) = api.get_opt(cluster).await.context("cannot read the ClusterBootstrap")? {
        afresh(&api, &there).await?;
    }
    Ok(())
}

/// The code of a run that did not take the cluster down.
fn not_gone(outcome: Outcome, cluster: &str, speaker: &mut Speaker, began: Instant) -> Option<Exit> {
    let (exit, why, remedy) = match outcome {
        Outcome::Reached(_) => return None,
        Outcome::Failed { reason, message, remedy } => {
            (Exit::Failed, format!("{reason}: {message}"), Some(remedy))
        }
        Outcome::TimedOut(obstacle) => {
            let (why, remedy) = not_in_time("the time is over, and something remains", obstacle);
            (Exit::Timeout, why, remedy)
        }
        Outcome::Interrupted => (Exit::Interrupted, "stopped as asked".to_owned(), None),
        Outcome::Busy(why) => (Exit::Busy, why, None),
        Outcome::Broken(why) => (Exit::General, why, None),
    };
    let next = format!("what remains is still known; go on with: butleradm destroy {cluster} --yes");
    speaker.tell(&Turn::Stopped { why, remedy, next }, began.elapsed());
    Some(exit)
}

/// Load balancer and machines of a cluster, as far as the API knows them.
async fn parts(client: &Client, cluster: &str) -> Result<Vec<String>> {
    let labelled = ListParams::default().labels(&format!("{}={cluster}", names::LABEL_CLUSTER_BOOTSTRAP));
    let balancers: Api<LoadBalancerRequest> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let balancers = balancers.list(&labelled).await.context("cannot list the load balancers")?;
    let machines: Api<MachineRequest> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let machines = machines.list(&labelled).await.context("cannot list the machines")?;
    let balancers = balancers.items.iter().map(|balancer| format!("load balancer {}", balancer.name_any()));
    let machines = machines.items.iter().map(|machine| format!("machine {}", machine.spec.machine_name));
    Ok(balancers.chain(machines).collect())
}

/// Everything of the cluster that is still in the API, credentials aside: those go with the folder.
async fn leftovers(client: &Client, cluster: &str, uid: Option<&str>) -> Result<Vec<String>> {
    let mut left = parts(client, cluster).await?;
    let images: Api<butler_api::ImageSync> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let images = images.list(&ListParams::default()).await.context("cannot list the images")?;
    let ours = images.items.iter().filter(|image| is_of(image.owner_references(), cluster, uid));
    left.extend(ours.map(|image| format!("image {}", image.name_any())));
    let secrets: Api<Secret> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    for kind in ["talos-secrets", "talos-configs", "kubeconfig"] {
        let name = format!("{cluster}-{kind}");
        let there = secrets.get_opt(&name).await.context("cannot look for secrets")?;
        // One that the user brought stays the user's.
        let ours = there.filter(|secret| is_of(secret.owner_references(), cluster, uid));
        left.extend(ours.map(|_| format!("Secret {name}")));
    }
    Ok(left)
}

/// Whether something belongs to a cluster: by its uid where that is known, for names come again. Images are shared, and those of
/// others are no leftovers of ours.
fn is_of(owners: &[OwnerReference], cluster: &str, uid: Option<&str>) -> bool {
    owners.iter().any(|owner| {
        owner.kind == "ClusterBootstrap" && owner.name == cluster && uid.is_none_or(|uid| owner.uid == uid)
    })
}

/// Removes what the bootstrap file was turned into: ProviderConfig and credentials.
async fn forget_inputs(client: &Client, cluster: &str) -> Result<()> {
    let of_cluster = ListParams::default().labels(&format!(
        "{}={cluster},{}={}",
        names::LABEL_CLUSTER,
        names::LABEL_MANAGED_BY,
        names::MANAGED_BY
    ));
    let params = DeleteParams::default();
    let configs: Api<ProviderConfig> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    configs.delete_collection(&params, &of_cluster).await.context("cannot delete the ProviderConfig")?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    secrets.delete_collection(&params, &of_cluster).await.context("cannot delete the credentials")?;
    Ok(())
}

/// Asks for the cluster's name, unless `--yes` was said.
fn confirm(args: &Args, cluster: &str, list: &[String]) -> Result<()> {
    if args.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Ended::error(
            Exit::Usage,
            "destroy asks before it begins; say --yes when nobody can answer",
        ));
    }
    output::note(&format!("This removes {cluster} and everything on it, for good:"));
    list.iter().for_each(|entry| output::note(&format!("  {entry}")));
    output::note(&format!("Type {cluster} to go on:"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if answer.trim() == cluster {
        return Ok(());
    }
    Err(Ended::error(Exit::Interrupted, "not confirmed; nothing was touched"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_others_are_no_leftovers() {
        let owner = |kind: &str, name: &str, uid: &str| OwnerReference {
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        };
        let owners = [owner("ClusterBootstrap", "other", "u2"), owner("ClusterBootstrap", "m", "u1")];
        assert!(is_of(&owners, "m", Some("u1")) && is_of(&owners, "m", None));
        assert!(
            !is_of(&owners[..1], "m", None) && !is_of(&owners, "m", Some("u9")) && !is_of(&[], "m", None)
        );
        assert!(!is_of(&[owner("Secret", "m", "u1")], "m", None));
    }

    #[tokio::test]
    async fn secrets_that_the_user_brought_are_no_leftovers() {
        let dir = tempfile::tempdir().unwrap();
        let objects = Objects::open(Home::at(dir.path().to_owned()).open("m").unwrap(), None).await.unwrap();
        let secrets: Api<Secret> = Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
        let make = |name: &str, owners: serde_json::Value| {
            serde_json::from_value::<Secret>(
                serde_json::json!({"metadata": {"name": name, "ownerReferences": owners}}),
            )
            .unwrap()
        };
        let none = serde_json::json!([]);
        secrets.create(&Default::default(), &make("m-talos-secrets", none)).await.unwrap();
        assert_eq!(leftovers(&objects.client, "m", Some("u1")).await.unwrap(), [""; 0]);
        // An owner that is there: the Secret of one that is not would be collected as garbage.
        let bootstraps: Api<ClusterBootstrap> =
            Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
        let bootstrap = serde_json::json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ClusterBootstrap", "metadata": {"name": "m"},
            "spec": {"provider": "proxmox", "providerRef": {"name": "p"}, "talos": {"version": "v1.9.2", "schematic": "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"},
                "cluster": {"name": "m", "topology": "single-node",
                    "controlPlane": {"replicas": 1, "cpu": 4, "memoryMB": 16384, "diskGB": 100}},
                "network": {"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12", "vip": "10.40.0.100"}},
        });
        let bootstrap = serde_json::from_value::<ClusterBootstrap>(bootstrap).unwrap();
        let uid = bootstraps.create(&Default::default(), &bootstrap).await.unwrap().uid().unwrap();
        let ours = serde_json::json!([{"apiVersion": "butler.butlerlabs.dev/v1alpha1",
            "kind": "ClusterBootstrap", "name": "m", "uid": uid}]);
        secrets.create(&Default::default(), &make("m-talos-configs", ours)).await.unwrap();
        assert_eq!(
            leftovers(&objects.client, "m", Some(uid.as_str())).await.unwrap(),
            ["Secret m-talos-configs"]
        );
        objects.stop().await;
    }
}
