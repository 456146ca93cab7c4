//! `destroy --by-tag`: for a cluster whose state is lost, whatever carries its tags.

use super::{Args, confirm};
use crate::config::Settings;
use crate::engine::Reach;
use crate::exit::{Ended, Exit};
use crate::output;
use crate::progress::OutputFormat;
use anyhow::Result;
use butler_api::{LoadBalancerRequestSpec, ProviderReference, names};
use butler_drivers::{
    Failure, ImageWanted, Infrastructure, LoadBalancerWanted, MachineTarget, NoRecorder, Operation,
    OwnedResource, Owner, Progress, SharedRecorder,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Without state: whatever carries the cluster's tags goes.
pub(super) async fn by_tag(args: &Args, settings: &Settings) -> Result<Exit> {
    let cluster = args.cluster.clone().unwrap_or_else(|| settings.cluster().to_owned());
    let recorder: SharedRecorder = Arc::new(NoRecorder);
    let connection = Reach::of(settings).connection(&recorder);
    let infrastructure =
        butler_drivers::connect(&settings.provider_config.spec, &settings.credentials, &connection)
            .map_err(crate::commands::failure)?;
    // Load balancers first: what sends to machines goes before them.
    let mut found = Vec::new();
    if let Some(balancers) = &infrastructure.load_balancers {
        found.extend(balancers.owned(None).await.map_err(crate::commands::failure)?);
    }
    let of_balancers: BTreeSet<String> = found.iter().map(|part| part.id.clone()).collect();
    found.extend(infrastructure.machines.owned(None).await.map_err(crate::commands::failure)?);
    if let Some(images) = &infrastructure.images {
        found.extend(images.owned(None).await.map_err(crate::commands::failure)?);
    }
    let found = of_one_cluster(found, &cluster, args.uid.as_deref())
        .map_err(|text| Ended::error(Exit::Usage, text))?;
    if found.is_empty() {
        let text = format!("nothing on {} carries the tags of {cluster}", settings.provider);
        return Err(Ended::error(Exit::NotFound, text));
    }
    tell_services(args, &infrastructure, &cluster).await;
    let list: Vec<String> = found.iter().map(|r| format!("{} {} ({})", r.kind, r.name, r.id)).collect();
    confirm(args, &cluster, &list)?;
    let deadline = Instant::now() + args.timeout;
    let (parts, rest): (Vec<_>, Vec<_>) = found.into_iter().partition(|part| of_balancers.contains(&part.id));
    for (object_uid, parts) in by_object(parts) {
        remove(&infrastructure, &Thing::Balancer { object_uid, parts: &parts }, deadline).await?;
        parts.iter().for_each(|part| gone(args, part));
    }
    for resource in &rest {
        remove(&infrastructure, &Thing::Other(resource), deadline).await?;
        gone(args, resource);
    }
    Ok(Exit::Ok)
}

/// Without its state, nobody can ask the cluster to remove what its cloud controller has made for Services: it is told before
/// the machines go, since only the names lead to it afterwards.
async fn tell_services(args: &Args, infrastructure: &Infrastructure, cluster: &str) {
    let Some(balancers) = &infrastructure.load_balancers else { return };
    let text = match balancers.of_services(cluster).await {
        Ok(left) if left.is_empty() => return,
        Ok(left) => format!(
            "made by the cluster's cloud controller for Services, and not removed by this command: {}; delete the Services first, or \
             remove these by hand afterwards",
            left.join(", ")
        ),
        Err(failure) => format!(
            "whether the cluster's cloud controller has made load balancers for Services is not known: {}",
            failure.message
        ),
    };
    match args.output {
        OutputFormat::Text => output::note(&format!("warning: {text}")),
        OutputFormat::Json => output::line(
            &json!({"event": "warning", "time": jiff::Timestamp::now().to_string(), "message": text})
                .to_string(),
        ),
    }
}

fn gone(args: &Args, resource: &OwnedResource) {
    let (kind, name) = (&resource.kind, &resource.name);
    output::line(&match args.output {
        OutputFormat::Text => format!("{kind} {name} is gone"),
        OutputFormat::Json => json!({
            "event": "removed", "time": jiff::Timestamp::now().to_string(), "kind": kind, "name": name, "id": resource.id,
        })
        .to_string(),
    });
}

/// Something that goes as a whole.
enum Thing<'a> {
    /// A load balancer, of which these parts are left.
    Balancer {
        object_uid: String,
        parts: &'a [OwnedResource],
    },
    Other(&'a OwnedResource),
}

impl Thing<'_> {
    fn shown(&self) -> String {
        match self {
            Thing::Balancer { parts, .. } => {
                let list: Vec<String> =
                    parts.iter().map(|part| format!("{} {}", part.kind, part.name)).collect();
                format!("the load balancer with {}", list.join(", "))
            }
            Thing::Other(resource) => format!("{} {}", resource.kind, resource.name),
        }
    }
}

/// Parts of load balancers by the object that asked for them.
fn by_object(parts: Vec<OwnedResource>) -> BTreeMap<String, Vec<OwnedResource>> {
    let mut all: BTreeMap<String, Vec<OwnedResource>> = BTreeMap::new();
    for part in parts {
        all.entry(part.owner.object_uid.clone()).or_default().push(part);
    }
    all
}

/// The request that a load balancer came from, as far as its tags tell. What it says of deletion protection is not known, so a
/// protected one is left alone.
fn request(owner: Owner) -> LoadBalancerWanted {
    let spec = LoadBalancerRequestSpec {
        cluster_name: owner.cluster.clone(),
        provider_config_ref: ProviderReference {
            name: format!("{}-provider", owner.cluster),
            namespace: None,
        },
        port: 6443,
        health_check_port: None,
        targets: Vec::new(),
        listeners: Vec::new(),
        options: None,
    };
    LoadBalancerWanted { name: names::load_balancer_name(&owner.cluster), owner, spec }
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

/// One thing, until it is gone.
async fn remove(infrastructure: &Infrastructure, thing: &Thing<'_>, deadline: Instant) -> Result<()> {
    let mut operation: Option<Operation> = None;
    loop {
        match step(infrastructure, thing, operation.as_ref()).await {
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
            let text = format!("{} is not gone in time; run the same command again", thing.shown());
            return Err(Ended::error(Exit::Timeout, text));
        }
    }
}

/// One step of it.
async fn step(
    infrastructure: &Infrastructure,
    thing: &Thing<'_>,
    operation: Option<&Operation>,
) -> Result<Progress<()>, Failure> {
    let resource = match (thing, &infrastructure.load_balancers) {
        (Thing::Balancer { object_uid, parts }, Some(balancers)) => {
            let Some(part) = parts.first() else { return Ok(Progress::Ready(())) };
            let owner = Owner { object_uid: object_uid.clone(), ..part.owner.clone() };
            return balancers.delete(&request(owner), operation).await;
        }
        (Thing::Balancer { .. }, None) => return Ok(Progress::Ready(())),
        (Thing::Other(resource), _) => resource,
    };
    if let ("image", Some(images)) = (resource.kind.as_str(), &infrastructure.images) {
        let wanted = ImageWanted {
            owner: resource.owner.clone(),
            name: resource.name.clone(),
            url: String::new(),
            sha256: None,
            format: String::new(),
        };
        return images.delete(&wanted, operation).await;
    }
    let target = MachineTarget {
        owner: resource.owner.clone(),
        name: resource.name.clone(),
        provider_id: Some(resource.id.clone()),
    };
    infrastructure.machines.delete(&target, operation).await
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_load_balancer_goes_as_one_thing_and_its_protection_is_not_guessed() {
        let part = |object: &str, kind: &str| {
            let mut part = resource("u1", "m");
            (part.kind, part.owner.object_uid) = (kind.to_owned(), object.to_owned());
            part
        };
        let parts = vec![part("lb1", "address"), part("lb2", "address"), part("lb1", "forwarding rule")];
        let all = by_object(parts);
        assert_eq!(
            all.iter().map(|(object, parts)| (object.as_str(), parts.len())).collect::<Vec<_>>(),
            [("lb1", 2), ("lb2", 1)]
        );
        let thing = Thing::Balancer { object_uid: "lb1".to_owned(), parts: &all["lb1"] };
        assert_eq!(thing.shown(), "the load balancer with address m-cp-0, forwarding rule m-cp-0");
        let wanted = request(all["lb1"][0].owner.clone());
        assert_eq!((wanted.name.as_str(), wanted.spec.options.is_none()), ("m-lb", true));
    }
}
