//! `butleradm destroy`: takes a cluster down, waits until it is gone, and only then forgets it.

mod access;

use super::block_on;
use super::load::load;
use super::words::span;
use crate::config::{Need, Settings};
use crate::engine::{Goal, Home, Objects, Outcome, Reach, Signals, Workers, afresh, drive, not_in_time};
use crate::exit::{Ended, Exit};
use crate::output;
use crate::progress::{OutputFormat, Speaker, Turn};
use crate::recorder::Journal;
use access::Access;
use anyhow::{Context as _, Result};
use butler_api::{ClusterBootstrap, MachineRequest, ProviderConfig, names};
use butler_controllers::addons::NoSources;
use butler_drivers::{
    ImageWanted, Infrastructure, MachineTarget, NoRecorder, Operation, OwnedResource, Progress,
    SharedRecorder,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client, ResourceExt as _};
use std::collections::BTreeMap;
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
        return by_tag(&args, &settings).await;
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
    let machines = machines(client, cluster).await?;
    if there.is_some() || !machines.is_empty() {
        confirm(args, cluster, &machines.iter().map(|name| format!("machine {name}")).collect::<Vec<_>>())?;
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

async fn machines(client: &Client, cluster: &str) -> Result<Vec<String>> {
    let api: Api<MachineRequest> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let labelled = ListParams::default().labels(&format!("{}={cluster}", names::LABEL_CLUSTER_BOOTSTRAP));
    let list = api.list(&labelled).await.context("cannot list the machines")?;
    Ok(list.items.into_iter().map(|machine| machine.spec.machine_name).collect())
}

/// Everything of the cluster that is still in the API, credentials aside: those go with the folder.
async fn leftovers(client: &Client, cluster: &str, uid: Option<&str>) -> Result<Vec<String>> {
    let mut left: Vec<String> =
        machines(client, cluster).await?.iter().map(|name| format!("machine {name}")).collect();
    let images: Api<butler_api::ImageSync> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let images = images.list(&ListParams::default()).await.context("cannot list the images")?;
    let ours = images.items.iter().filter(|image| is_of(image.owner_references(), cluster, uid));
    left.extend(ours.map(|image| format!("image {}", image.name_any())));
    let secrets: Api<Secret> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    for name in [format!("{cluster}-talos-secrets"), format!("{cluster}-kubeconfig")] {
        let there = secrets.get_opt(&name).await.context("cannot look for secrets")?;
        left.extend(there.map(|_| format!("Secret {name}")));
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

/// Without state: whatever carries the cluster's tags goes.
async fn by_tag(args: &Args, settings: &Settings) -> Result<Exit> {
    let cluster = args.cluster.clone().unwrap_or_else(|| settings.cluster().to_owned());
    let recorder: SharedRecorder = Arc::new(NoRecorder);
    let connection = Reach::of(settings).connection(&recorder);
    let infrastructure =
        butler_drivers::connect(&settings.provider_config.spec, &settings.credentials, &connection)
            .map_err(crate::commands::failure)?;
    let mut found = infrastructure.machines.owned(None).await.map_err(crate::commands::failure)?;
    if let Some(images) = &infrastructure.images {
        found.extend(images.owned(None).await.map_err(crate::commands::failure)?);
    }
    let found = of_one_cluster(found, &cluster, args.uid.as_deref())
        .map_err(|text| Ended::error(Exit::Usage, text))?;
    if found.is_empty() {
        let text = format!("nothing on {} carries the tags of {cluster}", settings.provider);
        return Err(Ended::error(Exit::NotFound, text));
    }
    let list: Vec<String> = found.iter().map(|r| format!("{} {} ({})", r.kind, r.name, r.id)).collect();
    confirm(args, &cluster, &list)?;
    let deadline = Instant::now() + args.timeout;
    for resource in &found {
        remove(&infrastructure, resource, deadline).await?;
        output::line(&format!("{} {} is gone", resource.kind, resource.name));
    }
    Ok(Exit::Ok)
}

/// What carries the tags of one cluster. Two clusters may have the same name, and only one of them is to go. Pure.
fn of_one_cluster(
    mut found: Vec<OwnedResource>,
    cluster: &str,
    uid: Option<&str>,
) -> Result<Vec<OwnedResource>, String> {
    found.retain(|resource| {
        resource.owner.cluster == cluster && uid.is_none_or(|uid| resource.owner.cluster_uid == uid)
    });
    let mut clusters: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for resource in &found {
        let list = clusters.entry(&resource.owner.cluster_uid).or_default();
        list.push(format!("{} {} ({})", resource.kind, resource.name, resource.id));
    }
    if clusters.len() < 2 {
        return Ok(found);
    }
    let list: Vec<String> =
        clusters.iter().map(|(uid, list)| format!("  uid {uid}: {}", list.join(", "))).collect();
    Err(format!(
        "{} clusters are called {cluster}:\n{}\nsay which one is to go with --uid; nothing was touched",
        clusters.len(),
        list.join("\n")
    ))
}

/// One resource, until it is gone.
async fn remove(infrastructure: &Infrastructure, resource: &OwnedResource, deadline: Instant) -> Result<()> {
    let mut operation: Option<Operation> = None;
    loop {
        let progress = match (resource.kind.as_str(), &infrastructure.images) {
            ("image", Some(images)) => {
                let wanted = ImageWanted {
                    owner: resource.owner.clone(),
                    name: resource.name.clone(),
                    url: String::new(),
                    sha256: None,
                    format: String::new(),
                };
                images.delete(&wanted, operation.as_ref()).await
            }
            _ => {
                let target = MachineTarget {
                    owner: resource.owner.clone(),
                    name: resource.name.clone(),
                    provider_id: Some(resource.id.clone()),
                };
                infrastructure.machines.delete(&target, operation.as_ref()).await
            }
        };
        match progress {
            Ok(Progress::Ready(())) => return Ok(()),
            Ok(Progress::InProgress { operation: next, recheck, .. }) => {
                operation = next;
                tokio::time::sleep(recheck).await;
            }
            Err(failure) if failure.class.stops() => return Err(crate::commands::failure(failure)),
            Err(failure) => {
                tracing::warn!(%failure, "trying again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        if Instant::now() >= deadline {
            let text = format!(
                "{} {} is not gone in time; run the same command again",
                resource.kind, resource.name
            );
            return Err(Ended::error(Exit::Timeout, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use butler_drivers::Owner;

    fn resource(uid: &str, cluster: &str) -> OwnedResource {
        let owner =
            Owner { cluster: cluster.to_owned(), cluster_uid: uid.to_owned(), object_uid: String::new() };
        OwnedResource {
            kind: "machine".to_owned(),
            name: format!("{cluster}-cp-0"),
            id: format!("of-{uid}"),
            owner,
        }
    }

    #[test]
    fn two_clusters_of_one_name_are_told_apart() {
        let all = || vec![resource("u1", "m"), resource("u2", "m"), resource("u3", "other")];
        let refused = of_one_cluster(all(), "m", None).unwrap_err();
        assert_eq!(
            refused,
            "2 clusters are called m:\n  uid u1: machine m-cp-0 (of-u1)\n  uid u2: machine m-cp-0 (of-u2)\n\
             say which one is to go with --uid; nothing was touched"
        );
        assert_eq!(of_one_cluster(all(), "m", Some("u2")), Ok(vec![resource("u2", "m")]));
        assert_eq!(of_one_cluster(all(), "other", None), Ok(vec![resource("u3", "other")]));
        assert_eq!(
            of_one_cluster(all(), "m", Some("u3")),
            Ok(Vec::new()),
            "a uid of another name is nobody's"
        );
    }

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
}
