//! `bootstrap --dry-run`: everything that would be made, by the real plans, on an infrastructure that only takes notes.
//!
//! The controllers run on an API in memory and on the recording driver until every machine is planned. They would then turn to
//! the nodes; those are reached through a port that leads nowhere, so that nobody is contacted.

use crate::config::Settings;
use crate::engine::dry_workers;
use crate::exit::Exit;
use crate::output;
use crate::progress::OutputFormat;
use anyhow::{Context as _, Result, bail};
use butler_api::{ImageSync, LoadBalancerRequest, MachineRequest, MachineRole, names};
use butler_controllers::addons::{self, PlannedAddon, Site, SiteMachine, Sources};
use butler_controllers::{Infrastructures, planned_load_balancer};
use butler_drivers::dry_run::Recording;
use butler_drivers::{Credentials, Failure, Infrastructure, PlannedChange, Profile};
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Longer than any plan takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Everything that a bootstrap would make.
pub(crate) struct Plan {
    /// Objects of the bootstrap API, without secrets.
    objects: Vec<Value>,
    /// Changes to the infrastructure, in order.
    changes: Vec<PlannedChange>,
    addons: Vec<(PlannedAddon, Result<Vec<Value>, String>)>,
}

/// Gives the one recording, whatever is asked for.
struct Recorded(Recording);

impl Infrastructures for Recorded {
    fn connect(
        &self,
        _config: &butler_api::ProviderConfigSpec,
        _credentials: &Credentials,
    ) -> Result<Infrastructure, Failure> {
        Ok(self.0.infrastructure())
    }
}

pub(crate) async fn show(
    settings: &Settings,
    sources: Arc<dyn Sources>,
    format: OutputFormat,
) -> Result<Exit> {
    let plan = plan(settings, sources).await?;
    match format {
        OutputFormat::Json => lines_json(&plan).iter().for_each(|line| output::line(&line.to_string())),
        OutputFormat::Text => lines(settings, &plan).iter().for_each(|line| output::line(line)),
    }
    Ok(Exit::Ok)
}

async fn plan(settings: &Settings, sources: Arc<dyn Sources>) -> Result<Plan> {
    let targets = expected_targets(settings);
    let recording = Recording::new(&settings.provider_config.spec).map_err(super::failure)?;
    let recording = recording.with_targets(targets.unwrap_or(0));
    let infrastructures = Arc::new(Recorded(recording.clone()));
    let expected = expected_machines(settings);
    let dry = dry_workers(settings, infrastructures, sources.clone()).await?;
    let machines: Api<MachineRequest> = Api::namespaced(dry.client.clone(), names::SYSTEM_NAMESPACE);
    let planned = tokio::time::timeout(PATIENCE, dry.until_planned(expected, targets)).await;
    let list = machines.list(&ListParams::default()).await.context("cannot list the planned machines")?.items;
    let images: Api<ImageSync> = Api::namespaced(dry.client.clone(), names::SYSTEM_NAMESPACE);
    let images = images.list(&ListParams::default()).await.context("cannot list the planned images")?.items;
    let balancers: Api<LoadBalancerRequest> = Api::namespaced(dry.client.clone(), names::SYSTEM_NAMESPACE);
    let balancers = balancers.list(&ListParams::default()).await;
    let balancers = balancers.context("cannot list the planned load balancers")?.items;
    let uid = dry.uid.clone();
    dry.stop().await;
    match planned {
        Ok(Ok(())) => {}
        Ok(Err(why)) => bail!("{why}"),
        Err(_) => bail!("the plan did not come to an end: {} of {expected} machines are planned", list.len()),
    }
    let endpoint = balancers.iter().find_map(|balancer| balancer.status.as_ref()?.endpoint.clone());
    let mut uids: Vec<(String, String)> =
        list.iter().filter_map(|machine| Some((machine.uid()?, machine.name_any()))).collect();
    uids.extend(balancers.iter().filter_map(|balancer| Some((balancer.uid()?, balancer.name_any()))));
    Ok(Plan {
        objects: objects(settings, &list, &images, &balancers)?,
        changes: changes(&recording, &uid, &uids),
        addons: planned_addons(settings, &list, endpoint.as_deref(), sources.as_ref()),
    })
}

/// Machines behind the load balancer, where there is to be one.
fn expected_targets(settings: &Settings) -> Option<usize> {
    let spec = &settings.bootstrap.spec;
    let request = planned_load_balancer(&settings.bootstrap, &Profile::of(settings.provider))?;
    let workers = request.spec.listeners.iter().any(|listener| listener.role == MachineRole::Worker);
    let workers = spec.effective_workers().filter(|_| workers).map_or(0, |pool| pool.replicas);
    usize::try_from(spec.control_plane_count() + workers).ok()
}

fn expected_machines(settings: &Settings) -> usize {
    let spec = &settings.bootstrap.spec;
    let workers = spec.effective_workers().map_or(0, |pool| pool.replicas);
    usize::try_from(spec.control_plane_count() + workers).unwrap_or(0)
}

/// The objects as they would be written, in the order in which they are. A Secret shows its keys.
fn objects(
    settings: &Settings,
    machines: &[MachineRequest],
    images: &[ImageSync],
    balancers: &[LoadBalancerRequest],
) -> Result<Vec<Value>> {
    let cluster = settings.cluster();
    let secret = |name: String, keys: Vec<&str>| {
        let data: BTreeMap<&str, &str> = keys.into_iter().map(|key| (key, "(not shown)")).collect();
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": names::SYSTEM_NAMESPACE}, "data": data})
    };
    let keys = settings.credentials.0.keys().map(String::as_str).collect();
    let mut all = vec![
        secret(settings.credentials_name().to_owned(), keys),
        serde_json::to_value(&settings.provider_config)?,
    ];
    if let Some(config) = &settings.butler_config {
        all.push(serde_json::to_value(config)?);
    }
    all.push(serde_json::to_value(&settings.bootstrap)?);
    all.extend([
        secret(format!("{cluster}-talos-secrets"), vec!["secrets.yaml"]),
        secret(format!("{cluster}-talos-configs"), vec!["talosconfig"]),
        secret(format!("{cluster}-kubeconfig"), vec!["kubeconfig"]),
    ]);
    for image in images {
        all.push(bare(serde_json::to_value(image)?));
    }
    for balancer in balancers {
        all.push(bare(serde_json::to_value(balancer)?));
    }
    for machine in machines {
        let mut object = bare(serde_json::to_value(machine)?);
        if let Some(data) = object.pointer_mut("/spec/userData") {
            *data = "(not shown)".into();
        }
        all.push(object);
    }
    Ok(all)
}

/// Without what an API adds.
fn bare(mut object: Value) -> Value {
    if let Value::Object(fields) = &mut object {
        fields.remove("status");
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.retain(|key, _| ["name", "namespace", "labels"].contains(&key.as_str()));
        }
    }
    object
}

/// The recorded changes; ids that only the real objects will have are named.
fn changes(recording: &Recording, uid: &str, uids: &[(String, String)]) -> Vec<PlannedChange> {
    let mut changes = recording.changes();
    // Machines are made side by side; each one's own changes stay in their order, and so do those of a load balancer's parts.
    changes.sort_by_cached_key(|change| match change.kind.as_str() {
        "image" | "machine" => (0, change.kind.clone(), change.name.clone()),
        _ => (1, String::new(), String::new()),
    });
    for change in &mut changes {
        change.detail = change.detail.replace(uid, "<cluster uid>");
        for (uid, name) in uids {
            change.detail = change.detail.replace(uid.as_str(), &format!("<uid of {name}>"));
        }
    }
    changes
}

fn planned_addons(
    settings: &Settings,
    machines: &[MachineRequest],
    endpoint: Option<&str>,
    sources: &dyn Sources,
) -> Vec<(PlannedAddon, Result<Vec<Value>, String>)> {
    let profile = Profile::of(settings.provider);
    let spec = &settings.bootstrap.spec;
    let credentials: BTreeMap<String, Vec<u8>> =
        settings.credentials.0.iter().map(|(key, value)| (key.clone(), value.clone().into_bytes())).collect();
    let machines: Vec<SiteMachine> = machines
        .iter()
        .map(|machine| SiteMachine {
            name: machine.name_any(),
            role: machine.spec.role,
            address: machine.status.as_ref().and_then(|status| status.ip_address.clone()),
            provider_id: machine.status.as_ref().and_then(|status| status.provider_id.clone()),
        })
        .collect();
    let site = Site {
        spec,
        name: settings.cluster(),
        namespace: names::SYSTEM_NAMESPACE,
        profile: &profile,
        endpoint: spec.network.vip.as_deref().or(endpoint).unwrap_or_default(),
        provider_config: &settings.provider_config,
        credentials: &credentials,
        machines: &machines,
        multi_tenancy: settings.butler_config.as_ref().map(|config| config.spec.multi_tenancy.mode),
    };
    let planned = addons::plan(&site).into_iter();
    planned
        .map(|addon| {
            let objects = match addon.skipped {
                Some(_) => Ok(Vec::new()),
                None => addons::objects(addon.name, &site, sources)
                    .map(|objects| objects.iter().map(addons::redacted).collect())
                    .map_err(|failure| failure.message),
            };
            (addon, objects)
        })
        .collect()
}

/// Ports that have to be open, and from where.
const PORTS: [(&str, &str); 7] = [
    ("6443/tcp", "Kubernetes API: from here, from the nodes, from users"),
    ("50000/tcp", "Talos API: from here and between control planes"),
    ("50001/tcp", "Talos trust: from workers to control planes"),
    ("2379-2380/tcp", "etcd: between control planes"),
    ("10250/tcp", "kubelet: between nodes"),
    ("4240/tcp", "Cilium health: between nodes"),
    ("8472/udp", "Cilium VXLAN: between nodes"),
];

fn lines(settings: &Settings, plan: &Plan) -> Vec<String> {
    let mut lines = vec![format!(
        "{} on {}: nothing is made, nobody is contacted",
        settings.cluster(),
        settings.provider
    )];
    lines.extend([String::new(), "objects in the bootstrap API:".to_owned()]);
    for object in &plan.objects {
        lines.push("---".to_owned());
        lines.push(serde_saphyr::to_string(object).unwrap_or_default().trim_end().to_owned());
    }
    lines.extend([
        String::new(),
        format!(
            "changes to {}, those of each machine and of the load balancer in this order, all of these side by side:",
            settings.provider
        ),
    ]);
    lines.extend(plan.changes.iter().map(|change| format!("  {change}")));
    lines.extend([String::new(), "ports:".to_owned()]);
    lines.extend(PORTS.iter().map(|(port, what)| format!("  {port:14} {what}")));
    lines.extend([String::new(), "addons on the new cluster:".to_owned()]);
    for (addon, objects) in &plan.addons {
        let head = format!("  {:5} {} {}", addon.step, addon.name, addon.version);
        match (&addon.skipped, objects) {
            (Some(why), _) => lines.push(format!("{head}: skipped, {why}")),
            (None, Err(why)) => lines.push(format!("{head}: CANNOT BE INSTALLED: {why}")),
            (None, Ok(objects)) => {
                let needs = if addon.needs.is_empty() {
                    String::new()
                } else {
                    format!(" after {}", addon.needs.join(", "))
                };
                lines.push(format!("{head}{needs}: {} objects", objects.len()));
                lines.extend(objects.iter().map(|object| format!("          {}", title(object))));
            }
        }
    }
    lines
}

fn title(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let namespace = text("/metadata/namespace");
    let place = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    format!("{} {place}{}", text("/kind"), text("/metadata/name"))
}

/// The same for programs: one line for each object, change, port and addon object.
fn lines_json(plan: &Plan) -> Vec<Value> {
    let mut lines: Vec<Value> =
        plan.objects.iter().map(|object| json!({"event": "object", "object": object})).collect();
    lines.extend(plan.changes.iter().map(
        |change| json!({"event": "change", "kind": change.kind, "name": change.name, "detail": change.detail}),
    ));
    lines.extend(PORTS.iter().map(|(port, what)| json!({"event": "port", "port": port, "purpose": what})));
    for (addon, objects) in &plan.addons {
        let (objects, problem) = match objects {
            Ok(objects) => (objects.clone(), None),
            Err(why) => (Vec::new(), Some(why)),
        };
        lines.push(
            json!({"event": "addon", "addon": addon.name, "step": addon.step, "version": addon.version,
            "needs": addon.needs, "skipped": addon.skipped, "objects": objects, "problem": problem}),
        );
    }
    lines
}
