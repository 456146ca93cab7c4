//! Puts the objects of a bootstrap into the API: made when they are missing, brought up to date when they are there.

use super::api::MANAGER;
use super::changes::{self, Made};
use crate::config::Settings;
use crate::exit::{Ended, Exit};
use anyhow::{Context as _, Result};
use butler_api::{
    CONDITION_ADDONS_INSTALLED, CONDITION_DEGRADED, CONDITION_FAILED, CONDITION_PROGRESSING, CONDITION_READY,
    ClusterBootstrap, ClusterBootstrapPhase, Condition, ConditionStatus, ImageSync, ImageSyncPhase,
    LoadBalancerPhase, LoadBalancerRequest, MachinePhase, MachineRequest, ProviderConfig, names,
};
use butler_drivers::Credentials;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// Puts everything. Repeatable; refuses when the file has changed where that is no longer possible.
pub(crate) async fn put(client: &Client, settings: &Settings) -> Result<ClusterBootstrap> {
    let cluster = settings.cluster();
    let bootstraps: Api<ClusterBootstrap> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let there = bootstraps.get_opt(cluster).await.context("cannot look for the ClusterBootstrap")?;
    if let Some(there) = &there {
        let configs: Api<ProviderConfig> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
        let name = settings.provider_config.name_any();
        let config = configs.get_opt(&name).await.context("cannot read the ProviderConfig")?;
        refuse_changes(there, config.as_ref(), settings)?;
    }
    put_inputs(client, settings).await?;
    if let Some(config) = &settings.butler_config {
        let api = Api::all(client.clone());
        put_one(&api, names::BUTLER_CONFIG_NAME, config).await?;
    }
    match there {
        None => {
            let made = bootstraps.create(&PostParams::default(), &settings.bootstrap).await;
            made.context("cannot make the ClusterBootstrap")
        }
        Some(there) => {
            forgive(client, &there).await?;
            update(&bootstraps, cluster, &there, &settings.bootstrap).await
        }
    }
}

/// Credentials, and how the infrastructure is reached.
pub(crate) async fn put_inputs(client: &Client, settings: &Settings) -> Result<()> {
    put_credentials(client, settings.credentials_name(), settings.cluster(), &settings.credentials).await?;
    apply(client, &settings.provider_config).await
}

/// The Secret with the credentials of a cluster's infrastructure.
pub(crate) async fn put_credentials(
    client: &Client,
    name: &str,
    cluster: &str,
    credentials: &Credentials,
) -> Result<()> {
    let labels = json!({names::LABEL_CLUSTER: cluster, names::LABEL_MANAGED_BY: names::MANAGED_BY});
    apply(client, &secret(name, &labels, credentials.0.clone())?).await
}

/// Machines, load balancers and images that failed in the last run are tried in this one before their failure counts again.
async fn forgive(client: &Client, bootstrap: &ClusterBootstrap) -> Result<()> {
    let ours = |owners: &[OwnerReference]| {
        owners.iter().any(|owner| Some(&owner.uid) == bootstrap.metadata.uid.as_ref())
    };
    let machines: Api<MachineRequest> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    for machine in machines.list(&ListParams::default()).await.context("cannot list the machines")? {
        let status = machine.status.clone().unwrap_or_default();
        let failed = status.phase == Some(MachinePhase::Failed) || status.failure_reason.is_some();
        if failed && ours(machine.owner_references()) {
            let phase = status.phase.filter(|phase| *phase != MachinePhase::Failed);
            clear(&machines, &machine.name_any(), json!(phase.unwrap_or_default()), status.conditions)
                .await?;
        }
    }
    let balancers: Api<LoadBalancerRequest> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    for balancer in balancers.list(&ListParams::default()).await.context("cannot list the load balancers")? {
        let status = balancer.status.clone().unwrap_or_default();
        let failed = status.phase == Some(LoadBalancerPhase::Failed) || status.failure_reason.is_some();
        if failed && ours(balancer.owner_references()) {
            let phase = status.phase.filter(|phase| *phase != LoadBalancerPhase::Failed);
            clear(&balancers, &balancer.name_any(), json!(phase.unwrap_or_default()), status.conditions)
                .await?;
        }
    }
    let images: Api<ImageSync> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    for image in images.list(&ListParams::default()).await.context("cannot list the images")? {
        let status = image.status.clone().unwrap_or_default();
        let failed = status.phase == Some(ImageSyncPhase::Failed) || status.failure_reason.is_some();
        if failed && ours(image.owner_references()) {
            let phase = status.phase.filter(|phase| *phase != ImageSyncPhase::Failed);
            clear(&images, &image.name_any(), json!(phase.unwrap_or_default()), status.conditions).await?;
        }
    }
    Ok(())
}

/// Takes a failure out of a status; what is known of the object stays.
async fn clear<K>(api: &Api<K>, name: &str, phase: Value, mut conditions: Vec<Condition>) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let failed = [CONDITION_FAILED, CONDITION_DEGRADED];
    conditions.retain(|condition| !(failed.contains(&condition.type_.as_str()) && condition.is_true()));
    let clean = json!({"status": {
        "phase": phase, "failureReason": null, "failureMessage": null, "conditions": conditions,
    }});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&clean))
        .await
        .map(|_| ())
        .with_context(|| format!("cannot clear the last run's failure of {name}"))
}

/// A new spec in place of the old one, and a clean sheet.
async fn update(
    api: &Api<ClusterBootstrap>,
    name: &str,
    there: &ClusterBootstrap,
    wanted: &ClusterBootstrap,
) -> Result<ClusterBootstrap> {
    if there.metadata.deletion_timestamp.is_some() {
        return Err(Ended::error(
            Exit::General,
            format!("{name} is being destroyed; let `butleradm destroy {name}` finish first"),
        ));
    }
    let mut now = there.clone();
    if there.spec != wanted.spec {
        now.spec = wanted.spec.clone();
        now.metadata.managed_fields = None;
        now = api
            .replace(name, &PostParams::default(), &now)
            .await
            .context("cannot change the ClusterBootstrap")?;
    }
    afresh(api, &now).await
}

/// A clean sheet: a failure of the last run is not one of this run, and deadlines count from here, since the time in which nobody
/// worked is not held against anybody.
pub(crate) async fn afresh(api: &Api<ClusterBootstrap>, now: &ClusterBootstrap) -> Result<ClusterBootstrap> {
    let mut status = now.status.clone().unwrap_or_default();
    status.conditions.retain(|condition| !OF_LAST_RUN.contains(&condition.type_.as_str()));
    status.conditions.push(restarted(now.metadata.generation));
    let phase = match status.phase {
        Some(ClusterBootstrapPhase::Failed) | None => ClusterBootstrapPhase::default(),
        // What was ready the last time is looked at again before that is said once more.
        Some(ClusterBootstrapPhase::Ready) if now.metadata.deletion_timestamp.is_none() => {
            ClusterBootstrapPhase::InstallingAddons
        }
        Some(other) => other,
    };
    let clean = json!({"status": {
        "failureReason": null, "failureMessage": null, "failureRemedy": null, "conditions": status.conditions,
        "phase": phase,
    }});
    api.patch_status(&now.name_any(), &PatchParams::default(), &Patch::Merge(&clean))
        .await
        .context("cannot clear the last run's failure")
}

/// Conditions that say nothing about this run: how work went on, and that it came to its end.
const OF_LAST_RUN: [&str; 3] = [CONDITION_PROGRESSING, CONDITION_READY, CONDITION_ADDONS_INSTALLED];

/// Work goes on, from now.
fn restarted(generation: Option<i64>) -> Condition {
    let now = Timestamp::now();
    Condition {
        type_: CONDITION_PROGRESSING.to_owned(),
        status: ConditionStatus::True,
        observed_generation: generation,
        last_transition_time: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        reason: "Restarted".to_owned(),
        message: String::new(),
    }
}

fn refuse_changes(
    there: &ClusterBootstrap,
    config: Option<&ProviderConfig>,
    settings: &Settings,
) -> Result<()> {
    let wanted = &settings.bootstrap;
    let made = Made::of(there);
    let was = serde_json::to_value(&there.spec)?;
    let is = serde_json::to_value(&wanted.spec)?;
    let mut refused = changes::refused(&was, &is, made);
    if let Some(config) = config {
        let was = serde_json::to_value(&config.spec)?;
        let is = serde_json::to_value(&settings.provider_config.spec)?;
        refused.extend(changes::refused_of_provider(&was, &is, made));
    }
    if refused.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = refused
        .iter()
        .map(|change| format!("  {}: was {}, is now {}", change.path, change.was, change.is))
        .collect();
    let name = &wanted.spec.cluster.name;
    Err(Ended::error(
        Exit::Usage,
        format!(
            "the file has changed since this bootstrap began, in what its machines or nodes are made with:\n{}\n\
             change it back and go on, or `butleradm destroy {name}` and begin anew",
            list.join("\n")
        ),
    ))
}

fn secret(name: &str, labels: &Value, values: BTreeMap<String, String>) -> Result<Secret> {
    let mut secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": names::SYSTEM_NAMESPACE, "labels": labels}, "type": "Opaque",
    }))?;
    // As `data`, so that a key that is no longer there goes.
    secret.data =
        Some(values.into_iter().map(|(key, value)| (key, ByteString(value.into_bytes()))).collect());
    Ok(secret)
}

async fn apply<K>(client: &Client, object: &K) -> Result<()>
where
    K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let api = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let name = object.meta().name.clone().unwrap_or_default();
    put_one(&api, &name, object).await
}

/// Server-side apply: what others have added to the object stays.
async fn put_one<K>(api: &Api<K>, name: &str, object: &K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = K::api_version(&()).into();
    value["kind"] = K::kind(&()).into();
    api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&value))
        .await
        .map(|_| ())
        .with_context(|| format!("cannot put the {} {name}", K::kind(&())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Need, Schemas, Surroundings, check};
    use crate::engine::{Home, Objects};
    use std::path::Path;

    const FILE: &str = include_str!("../../../../examples/bootstrap-proxmox.yaml");

    fn settings() -> Settings {
        let around = Surroundings { variables: BTreeMap::new(), ..Surroundings::of(Path::new("f")) };
        check(&Schemas::new().unwrap(), FILE, None, Need::AnyCredentials, &around).settings.unwrap()
    }

    fn machine(name: &str, owner: &ClusterBootstrap) -> MachineRequest {
        serde_json::from_value(json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "MachineRequest",
            "metadata": {"name": name, "ownerReferences": [{"apiVersion": "butler.butlerlabs.dev/v1alpha1",
                "kind": "ClusterBootstrap", "name": owner.name_any(), "uid": owner.uid()}]},
            "spec": {"providerRef": {"name": "p"}, "machineName": name, "role": "worker", "cpu": 1, "memoryMB": 2048, "diskGB": 20},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn failures_of_the_last_run_are_cleared_and_those_of_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings();
        let folder = Home::at(dir.path().to_owned()).open(settings.cluster()).unwrap();
        let objects = Objects::open(folder, None).await.unwrap();
        let ours = put(&objects.client, &settings).await.unwrap();
        let mut theirs = settings.bootstrap.clone();
        theirs.metadata.name = Some("theirs".to_owned());
        let bootstraps: Api<ClusterBootstrap> =
            Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
        let theirs = bootstraps.create(&PostParams::default(), &theirs).await.unwrap();
        let api: Api<MachineRequest> = Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
        let failed = json!({"status": {"phase": "Failed", "providerID": "200", "failureReason": "StorageFull", "failureMessage": "m",
            "conditions": [{"type": "Failed", "status": "True", "reason": "StorageFull", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Requested", "status": "True", "reason": "Asked", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        for (name, owner) in [("ours", &ours), ("theirs", &theirs)] {
            api.create(&PostParams::default(), &machine(name, owner)).await.unwrap();
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(&failed)).await.unwrap();
        }
        put(&objects.client, &settings).await.unwrap();
        let ours = api.get("ours").await.unwrap().status.unwrap();
        assert_eq!(
            (ours.phase, ours.failure_reason, ours.failure_message),
            (Some(MachinePhase::Pending), None, None)
        );
        let kept: Vec<&str> = ours.conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(
            (kept, ours.provider_id.as_deref()),
            (vec!["Requested"], Some("200")),
            "what is known stays"
        );
        let theirs = api.get("theirs").await.unwrap().status.unwrap();
        assert_eq!(
            (theirs.phase, theirs.failure_reason.as_deref()),
            (Some(MachinePhase::Failed), Some("StorageFull"))
        );
        objects.stop().await;
    }

    #[tokio::test]
    async fn a_second_run_looks_again_and_refuses_another_place_for_machines() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings();
        let folder = Home::at(dir.path().to_owned()).open(settings.cluster()).unwrap();
        let objects = Objects::open(folder, None).await.unwrap();
        put(&objects.client, &settings).await.unwrap();
        let api: Api<ClusterBootstrap> = Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
        let condition = |name: &str| json!({"type": name, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let conditions: Vec<Value> = ["MachinesReady", "AddonsInstalled", "Ready"].map(condition).into();
        let ready = json!({"status": {"phase": "Ready", "bootstrapMachine": "m", "conditions": conditions,
            "machines": [{"name": "m", "role": "control-plane"}]}});
        api.patch_status(settings.cluster(), &PatchParams::default(), &Patch::Merge(&ready)).await.unwrap();

        let again = put(&objects.client, &settings).await.unwrap().status.unwrap();
        assert_eq!(again.phase, Some(ClusterBootstrapPhase::InstallingAddons), "ready is not said unseen");
        let told: Vec<&str> = again.conditions.iter().map(|condition| condition.type_.as_str()).collect();
        assert_eq!(told, ["MachinesReady", "Progressing"]);

        let mut moved = settings.clone();
        moved.provider_config.spec.proxmox.as_mut().unwrap().storage = "elsewhere".to_owned();
        let refused = put(&objects.client, &moved).await.unwrap_err();
        assert_eq!(Exit::of(&refused), Exit::Usage);
        assert!(refused.to_string().contains("providerConfig.proxmox.storage: was"), "{refused}");
        let configs: Api<ProviderConfig> = Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
        let there = configs.get(&settings.provider_config.name_any()).await.unwrap();
        assert_eq!(there.spec, settings.provider_config.spec, "nothing was changed");
        objects.stop().await;
    }
}
