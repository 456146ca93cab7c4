//! `butleradm support`: everything that helps to understand a bootstrap, in one file, without secrets.

use super::block_on;
use crate::engine::{Home, Objects};
use crate::exit::Exit;
use crate::output;
use anyhow::{Context as _, Result};
use butler_api::{
    ButlerConfig, ClusterBootstrap, ImageSync, LoadBalancerRequest, MachineRequest, ProviderConfig, names,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster. Not needed when there is only one.
    cluster: Option<String>,
    /// The file to write. Default: <cluster>-support.tar.gz here.
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    block_on(support(args))
}

async fn support(args: Args) -> Result<Exit> {
    let home = Home::usual();
    let cluster = home.choose(args.cluster.as_deref())?;
    let objects = Objects::attach(&home, &cluster).await?;
    let collected = collect(&objects.client).await;
    objects.stop().await;
    let mut parts = vec![
        ("versions.json".to_owned(), pretty(&versions())),
        ("objects.json".to_owned(), pretty(&collected?)),
    ];
    for name in ["journal.jsonl", "inventory.json"] {
        match std::fs::read_to_string(home.folder(&cluster).join(name)) {
            Ok(text) => parts.push((name.to_owned(), text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot read {name}")),
        }
    }
    let file = args.file.unwrap_or_else(|| PathBuf::from(format!("{cluster}-support.tar.gz")));
    let out = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&file)
        .with_context(|| format!("cannot write {}", file.display()))?;
    archive(out, &cluster, &parts).with_context(|| format!("cannot write {}", file.display()))?;
    output::line(&file.display().to_string());
    output::note(
        "Names, addresses and error texts are in it; credentials, keys and certificates are not. Look before you send it.",
    );
    Ok(Exit::Ok)
}

fn versions() -> Value {
    json!({
        "butleradm": env!("CARGO_PKG_VERSION"), "written": jiff::Timestamp::now().to_string(),
        "os": std::env::consts::OS, "arch": std::env::consts::ARCH,
    })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

async fn collect(client: &Client) -> Result<Value> {
    let namespace = names::SYSTEM_NAMESPACE;
    let mut all = json!({
        "clusterBootstraps": list::<ClusterBootstrap>(&Api::namespaced(client.clone(), namespace)).await?,
        "machineRequests": list::<MachineRequest>(&Api::namespaced(client.clone(), namespace)).await?,
        "loadBalancerRequests": list::<LoadBalancerRequest>(&Api::namespaced(client.clone(), namespace)).await?,
        "imageSyncs": list::<ImageSync>(&Api::namespaced(client.clone(), namespace)).await?,
        "providerConfigs": list::<ProviderConfig>(&Api::namespaced(client.clone(), namespace)).await?,
        "butlerConfigs": list::<ButlerConfig>(&Api::all(client.clone())).await?,
        "secrets": list::<Secret>(&Api::namespaced(client.clone(), namespace)).await?,
        "events": list::<Event>(&Api::namespaced(client.clone(), namespace)).await?,
    });
    redact(&mut all);
    Ok(all)
}

async fn list<K>(api: &Api<K>) -> Result<Value>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    let kind = K::kind(&());
    let found = api.list(&ListParams::default()).await.with_context(|| format!("cannot list {kind}"))?;
    Ok(serde_json::to_value(found.items)?)
}

/// Fields that hold secrets, wherever they are: their keys stay, their values go.
const SECRET_FIELDS: [&str; 6] =
    ["data", "stringData", "kubeconfig", "talosconfig", "userData", "configPatches"];

fn redact(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if SECRET_FIELDS.contains(&name.as_str()) {
                    blot(field);
                } else if name == "managedFields" {
                    *field = Value::Null;
                } else {
                    redact(field);
                }
            }
        }
        _ => {}
    }
}

fn blot(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(blot),
        Value::Array(items) => items.iter_mut().for_each(blot),
        Value::String(text) => *text = format!("({} characters, removed)", text.chars().count()),
        _ => {}
    }
}

fn archive(out: impl Write, cluster: &str, parts: &[(String, String)]) -> std::io::Result<()> {
    let mut tar = tar::Builder::new(GzEncoder::new(out, Compression::default()));
    for (name, text) in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0));
        header.set_cksum();
        tar.append_data(&mut header, format!("{cluster}-support/{name}"), text.as_bytes())?;
    }
    tar.into_inner()?.finish()?.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn secrets_lose_their_values_and_keep_their_keys() {
        let mut value = json!({"secrets": [{"metadata": {"name": "a"}, "data": {"password": "aHVudGVyMjI="}}],
            "clusterBootstraps": [{"status": {"kubeconfig": "a2V5", "phase": "Ready"}}],
            "machineRequests": [{"spec": {"userData": "#cloud hunter22", "cpu": 4}}]});
        redact(&mut value);
        let text = value.to_string();
        assert!(
            !text.contains("hunter22") && !text.contains("aHVudGVyMjI=") && !text.contains("a2V5"),
            "{text}"
        );
        assert_eq!(value["secrets"][0]["data"]["password"], "(12 characters, removed)");
        assert_eq!(value["clusterBootstraps"][0]["status"]["phase"], "Ready");
    }

    #[test]
    fn an_archive_can_be_opened() {
        let mut bytes = Vec::new();
        archive(&mut bytes, "m", &[("a.json".to_owned(), "{}".to_owned())]).unwrap();
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(bytes.as_slice()));
        let mut entry = tar.entries().unwrap().next().unwrap().unwrap();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        assert_eq!((entry.path().unwrap().to_str().unwrap(), text.as_str()), ("m-support/a.json", "{}"));
    }
}
