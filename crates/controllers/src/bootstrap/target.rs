//! Work on the new cluster's Kubernetes API, in the background: finding a way to it, looking at it, installing addons.

use super::act::site_parts;
use super::configs;
use super::memory::{NodeSight, Survey, Target};
use super::observe::Observed;
use crate::object::Key;
use crate::runtime::Shared;
use crate::told::Tell;
use crate::{Class, Context, Failure, addons};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Reason: a cloud controller has not let go of the load balancers of Services yet.
pub(crate) const SERVICES_LEAVING: &str = "ServicesLeaving";
/// For one try to reach an API server.
const TRY: Duration = Duration::from_secs(3);
/// A connection on which nothing was heard for so long is given up.
const QUIET: Duration = Duration::from_secs(90);
/// After so long without success, what was seen is told; the next try begins at once.
const ROUND: Duration = Duration::from_secs(15);
/// Pauses between tries: the shortest, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// An API that answered so lately is not asked whether it does before it is looked at.
const FRESH: Duration = Duration::from_secs(1);

/// Finds a way: the endpoint, or any control plane that answers.
pub(crate) async fn reach(shared: &Arc<Shared>, observed: &Observed) -> Result<(), Failure> {
    let endpoint = observed.endpoint.clone().unwrap_or_default();
    let (client, via) = first_to_answer(shared, observed, &hosts(observed)).await?;
    let target = addons::Target::new(client.clone());
    shared.bootstraps.change(&Key::of(&observed.object), |memory| {
        memory.endpoint_answers = via == endpoint;
        memory.target = Some(Target { client, addons: target, via });
        memory.reach_note.clear();
        memory.stale = true;
    });
    Ok(())
}

/// The endpoint, and every control plane.
fn hosts(observed: &Observed) -> Vec<String> {
    let mut hosts: Vec<String> = observed.endpoint.clone().into_iter().collect();
    for address in observed.control_planes().filter_map(|node| observed.address(&node.name)) {
        if !hosts.contains(&address) {
            hosts.push(address);
        }
    }
    hosts
}

/// Waits until the endpoint itself answers: that is where everybody else will look for the cluster.
pub(crate) async fn reach_endpoint(shared: &Arc<Shared>, observed: &Observed) -> Result<(), Failure> {
    let endpoint = observed.endpoint.clone().unwrap_or_default();
    let (client, _) = first_to_answer(shared, observed, &[endpoint]).await?;
    shared.bootstraps.change(&Key::of(&observed.object), |memory| {
        (memory.endpoint_answers, memory.endpoint) = (true, Some(client));
    });
    Ok(())
}

async fn first_to_answer(
    shared: &Arc<Shared>,
    observed: &Observed,
    hosts: &[String],
) -> Result<(kube::Client, String), Failure> {
    let kubeconfig = observed.kubeconfig.as_ref().map(|text| text.expose()).unwrap_or_default();
    let mut clients = Vec::new();
    for host in hosts {
        clients.push((connect(&shared.context, kubeconfig, host).await?, host.clone()));
    }
    let mut last = String::new();
    let tries = async {
        let began = Instant::now();
        loop {
            let mut answers: FuturesUnordered<_> = clients
                .iter()
                .cloned()
                .map(|(client, host)| async move { (answers(&client).await, client, host) })
                .collect();
            while let Some((answer, client, host)) = answers.next().await {
                match answer {
                    Ok(()) => return (client, host),
                    Err(why) => last = format!("{host}: {why}"),
                }
            }
            drop(answers);
            // A small part of what was waited so far: nobody waits noticeably longer for having waited long.
            sleep((began.elapsed() / 20).clamp(PAUSES.0, PAUSES.1)).await;
        }
    };
    // Told before the milestone's deadline, so that the failure there says what was last seen.
    let round = ROUND.min(observed.deadlines.kubernetes / 2).min(observed.deadlines.addons / 2);
    match timeout(round, tries).await {
        Ok(found) => Ok(found),
        Err(_) => {
            let message = format!("no answer from {}; last: {last}", hosts.join(", "));
            shared
                .bootstraps
                .change(&Key::of(&observed.object), |memory| memory.reach_note.clone_from(&last));
            let remedy = "look at the control planes' services, and at the way to port 6443";
            Err(Failure::new(Class::Retryable, "KubernetesSilent", message, remedy))
        }
    }
}

/// Whether an API server is ready to be used.
async fn answers(client: &kube::Client) -> Result<(), String> {
    match timeout(TRY, client.apiserver_version()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(configs::text(&error)),
        Err(_) => Err(format!("no answer within {TRY:?}")),
    }
}

/// A client for the API server at a host: its certificate is checked by the cluster's own CA, and every call is recorded.
async fn connect(context: &Context, kubeconfig: &str, host: &str) -> Result<kube::Client, Failure> {
    let wrong = |why: String| {
        let remedy = "remove the Secret with the kubeconfig: it is made anew";
        Failure::new(Class::Retryable, "KubeconfigUnusable", format!("the kubeconfig: {why}"), remedy)
    };
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).map_err(|error| wrong(configs::text(&error)))?;
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| wrong(configs::text(&error)))?;
    config.cluster_url =
        super::plan::server(host).parse().map_err(|_| wrong(format!("{host:?} is no host")))?;
    config.connect_timeout = Some(TRY);
    // A watch on a server that lost its power would never end: real ones send something at least once a minute.
    config.read_timeout = Some(QUIET);
    config.proxy_url = match &context.target_proxy {
        Some(proxy) => Some(proxy.parse().map_err(|_| wrong("the proxy is no URL".to_owned()))?),
        None => None,
    };
    let builder = ClientBuilder::try_from(config).map_err(|error| wrong(configs::text(&error)))?;
    let limit = context.deadlines.call;
    let tell = Tell::new(context.recorder.clone(), context.clock.clone(), host.to_owned(), limit);
    Ok(builder.with_layer(&tell).build())
}

/// The way that was found.
fn target(shared: &Shared, observed: &Observed) -> Result<Target, Failure> {
    let known = shared.bootstraps.change(&Key::of(&observed.object), |memory| memory.target.clone());
    known.ok_or_else(|| {
        Failure::new(Class::Retryable, "KubernetesSilent", "the new cluster is not reached", "wait")
    })
}

/// Looks at nodes and addons. A cluster that does not answer any more is reached for anew.
pub(crate) async fn survey(shared: &Arc<Shared>, observed: &Observed) -> Result<(), Failure> {
    let target = target(shared, observed)?;
    let key = Key::of(&observed.object);
    let Some(parts) = site_parts(observed) else { return Ok(()) };
    let endpoint = shared.bootstraps.change(&key, |memory| {
        memory.stale = false;
        memory.endpoint.clone()
    });
    let done = observed.milestone().is_none();
    target.addons.rest(done);
    // A cluster that is done is looked at seldom, so that there is time to ask at its front door too.
    if let Some(client) = endpoint.filter(|_| done)
        && answers(&client).await.is_err()
    {
        shared.bootstraps.change(&key, |memory| (memory.endpoint_answers, memory.endpoint) = (false, None));
    }
    // Looking itself costs no call, so that it would never notice that nobody is there any more.
    let now = (shared.context.clock)();
    let fresh =
        observed.survey.as_ref().is_some_and(|last| crate::runtime::until(last.answered, now) < FRESH);
    let answered = match (&observed.survey, fresh) {
        (Some(last), true) => last.answered,
        _ => now,
    };
    let looked = async {
        if !fresh {
            answers(&target.client).await.map_err(|why| {
                let message = format!("the Kubernetes API at {} does not answer any more: {why}", target.via);
                Failure::new(Class::Retryable, "KubernetesSilent", message, "look at the control planes")
            })?;
        }
        target.addons.observe(&parts.site(), shared.context.sources.as_ref()).await
    };
    match looked.await {
        Ok(addons) => {
            let nodes = target.addons.nodes().iter().filter_map(|node| node_sight(node)).collect();
            let at = (shared.context.clock)();
            shared
                .bootstraps
                .change(&key, |memory| memory.survey = Some(Survey { at, answered, nodes, addons }));
            Ok(())
        }
        Err(failure) => {
            if failure.reason == "KubernetesSilent" {
                shared.bootstraps.change(&key, |memory| {
                    (memory.target, memory.endpoint, memory.endpoint_answers) = (None, None, false);
                });
                shared.tasks.cancel_one(&key, &super::Task::Watch);
            }
            Err(failure)
        }
    }
}

fn node_sight(node: &Value) -> Option<(String, NodeSight)> {
    let name = node.pointer("/metadata/name")?.as_str()?.to_owned();
    let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let said = |field: &str| ready.and_then(|ready| ready[field].as_str()).unwrap_or_default().to_owned();
    Some((name, NodeSight { ready: said("status") == "True", why: said("message") }))
}

/// Ends when something has changed that the last look has not seen.
pub(crate) async fn watch(shared: &Arc<Shared>, observed: &Observed) -> Result<(), Failure> {
    let target = target(shared, observed)?;
    target.addons.changed().await;
    shared.bootstraps.change(&Key::of(&observed.object), |memory| memory.stale = true);
    Ok(())
}

/// Removes every Service that has a load balancer of its own, and waits until whoever made that one has let go of it.
pub(crate) async fn withdraw(shared: &Arc<Shared>, observed: &Observed) -> Result<(), Failure> {
    let (client, _) = first_to_answer(shared, observed, &hosts(observed)).await?;
    let began = Instant::now();
    loop {
        let left = remove_services(&client).await.map_err(|error| {
            let message = format!("the Services of the cluster: {}", configs::text(&error));
            Failure::new(Class::Retryable, "KubernetesSilent", message, "look at the control planes")
        })?;
        let now = (shared.context.clock)();
        shared.bootstraps.change(&Key::of(&observed.object), |memory| {
            (memory.heard, memory.withdrawn) = (Some(now), left.is_empty());
        });
        if left.is_empty() {
            return Ok(());
        }
        if began.elapsed() > ROUND {
            return Err(Failure::new(
                Class::Retryable,
                SERVICES_LEAVING,
                format!("load balancers of Services are not gone yet: {}", left.join(", ")),
                "look at the cluster's cloud controller manager; what is left when the machines are gone has to be removed by hand",
            ));
        }
        sleep((began.elapsed() / 20).clamp(PAUSES.0, PAUSES.1)).await;
    }
}

/// Asks for all of them to go; those that are still there.
async fn remove_services(client: &kube::Client) -> Result<Vec<String>, kube::Error> {
    let balanced = |service: &Service| {
        let type_ = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
        type_ == Some("LoadBalancer")
    };
    let all = Api::<Service>::all(client.clone()).list(&ListParams::default()).await?.items;
    let mut left = Vec::new();
    for service in all.iter().filter(|service| balanced(service)) {
        let (namespace, name) = (service.namespace().unwrap_or_default(), service.name_any());
        if service.metadata.deletion_timestamp.is_none() {
            let own: Api<Service> = Api::namespaced(client.clone(), &namespace);
            match own.delete(&name, &DeleteParams::background()).await {
                Err(error) if !crate::error::is_absent(&error) => return Err(error),
                _ => {}
            }
        }
        left.push(format!("{namespace}/{name}"));
    }
    Ok(left)
}

/// Applies an addon.
pub(crate) async fn install(shared: &Arc<Shared>, observed: &Observed, addon: &str) -> Result<(), Failure> {
    let target = target(shared, observed)?;
    let Some(parts) = site_parts(observed) else { return Ok(()) };
    target.addons.install(addon, &parts.site(), shared.context.sources.as_ref()).await.map_err(
        |failure| Failure { message: format!("the addon {addon}: {}", failure.message), ..failure },
    )?;
    let now = (shared.context.clock)();
    shared.bootstraps.change(&Key::of(&observed.object), |memory| {
        memory.installed.insert(addon.to_owned(), now);
        memory.stale = true;
    });
    Ok(())
}
