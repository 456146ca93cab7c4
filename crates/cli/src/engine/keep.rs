//! What is kept of a cluster that is ready: the ways in, and what it is made of.

use super::folder::{Folder, Home};
use crate::talos::files;
use anyhow::{Context as _, Result};
use butler_api::{ClusterBootstrap, LoadBalancerRequest, MachineRequest, names};
use k8s_openapi::api::core::v1::Secret;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Where the ways in were written.
pub(crate) struct Kept {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) talosconfig: PathBuf,
}

/// Writes kubeconfig, talosconfig and inventory, each whole and for the owner alone. With a proxy, both ways in go through it.
pub(crate) async fn keep(
    client: &Client,
    bootstrap: &ClusterBootstrap,
    home: &Home,
    folder: Option<&Folder>,
    proxy: Option<&str>,
) -> Result<Kept> {
    let cluster = bootstrap.name_any();
    let kubeconfig = secret_text(client, &format!("{cluster}-kubeconfig"), "kubeconfig").await?;
    let talosconfig = secret_text(client, &format!("{cluster}-talos-configs"), "talosconfig").await?;
    let kept = Kept { kubeconfig: home.kubeconfig(&cluster), talosconfig: home.talosconfig(&cluster) };
    let write = |path: &Path, text: &str| {
        files::write_one(path, text, true).with_context(|| format!("cannot write {}", path.display()))
    };
    write(&kept.kubeconfig, &with_proxy(&kubeconfig, "clusters", proxy)?)?;
    write(&kept.talosconfig, &with_proxy(&talosconfig, "contexts", proxy)?)?;
    if let Some(folder) = folder {
        let inventory = inventory(client, bootstrap).await?;
        write(&folder.inventory(), &format!("{}\n", serde_json::to_string_pretty(&inventory)?))?;
    }
    Ok(kept)
}

/// Writes the talosconfig as soon as there is one: whoever has to look into a bootstrap that does not go on needs it then. Ends
/// only with an error.
pub(crate) async fn keep_talosconfig(
    client: &Client,
    cluster: &str,
    home: &Home,
    proxy: Option<&str>,
) -> Result<()> {
    let name = format!("{cluster}-talos-configs");
    let api: Api<Secret> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let there = |secret: Option<&Secret>| {
        secret.and_then(|secret| secret.data.as_ref()).is_some_and(|data| data.contains_key("talosconfig"))
    };
    kube::runtime::wait::await_condition(api, &name, there)
        .await
        .with_context(|| format!("cannot wait for the Secret {name}"))?;
    let text = secret_text(client, &name, "talosconfig").await?;
    let path = home.talosconfig(cluster);
    files::write_one(&path, &with_proxy(&text, "contexts", proxy)?, true)
        .with_context(|| format!("cannot write {}", path.display()))?;
    std::future::pending().await
}

/// One key of a Secret of the bootstrap, as text.
async fn secret_text(client: &Client, name: &str, key: &str) -> Result<String> {
    let api: Api<Secret> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let secret = api.get(name).await.with_context(|| format!("cannot read the Secret {name}"))?;
    let data = secret.data.unwrap_or_default().remove(key);
    let data = data.with_context(|| format!("the Secret {name} has no key {key}"))?;
    String::from_utf8(data.0).with_context(|| format!("key {key} of the Secret {name} is not text"))
}

/// A kubeconfig or talosconfig that goes through a proxy.
fn with_proxy(text: &str, section: &str, proxy: Option<&str>) -> Result<String> {
    let Some(proxy) = proxy else { return Ok(text.to_owned()) };
    let mut config: Value = serde_saphyr::from_str(text).context("a config that was made is not YAML")?;
    match &mut config[section] {
        Value::Array(clusters) => {
            clusters.iter_mut().for_each(|entry| entry["cluster"]["proxy-url"] = proxy.into());
        }
        Value::Object(contexts) => {
            contexts.values_mut().for_each(|context| context["proxy-url"] = proxy.into());
        }
        _ => {}
    }
    serde_saphyr::to_string(&config).context("cannot write the config as YAML")
}

/// What the cluster is made of, without secrets: enough to find it again by hand.
async fn inventory(client: &Client, bootstrap: &ClusterBootstrap) -> Result<Value> {
    let cluster = bootstrap.name_any();
    let api: Api<MachineRequest> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let labelled = ListParams::default().labels(&format!("{}={cluster}", names::LABEL_CLUSTER_BOOTSTRAP));
    let machines = api.list(&labelled).await.context("cannot list the machines")?;
    let machines: Vec<Value> = machines
        .items
        .iter()
        .map(|machine| {
            let status = machine.status.clone().unwrap_or_default();
            json!({
                "name": machine.spec.machine_name, "role": machine.spec.role, "uid": machine.uid(),
                "providerID": status.provider_id, "address": status.ip_address, "macAddress": status.mac_address,
            })
        })
        .collect();
    let api: Api<LoadBalancerRequest> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let balancers = api.list(&labelled).await.context("cannot list the load balancers")?;
    let balancers: Vec<Value> = balancers
        .items
        .iter()
        .map(|balancer| {
            let status = balancer.status.clone().unwrap_or_default();
            json!({
                "name": balancer.name_any(), "uid": balancer.uid(), "endpoint": status.endpoint,
                "resourceID": status.resource_id, "outputs": status.outputs,
            })
        })
        .collect();
    let status = bootstrap.status.clone().unwrap_or_default();
    Ok(json!({
        "cluster": cluster, "uid": bootstrap.uid(), "provider": bootstrap.spec.provider,
        "endpoint": status.control_plane_endpoint, "talosVersion": bootstrap.spec.talos.version,
        "schematic": bootstrap.spec.talos.schematic, "machines": machines, "loadBalancers": balancers,
        "addons": status.addons_installed, "written": jiff::Timestamp::now().to_string(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_configs_take_a_proxy() {
        let proxy = Some("http://127.0.0.1:3128");
        let kube = with_proxy("clusters:\n- name: a\n  cluster: {server: 'https://x'}\n", "clusters", proxy)
            .unwrap();
        let read: Value = serde_saphyr::from_str(&kube).unwrap();
        assert_eq!(
            read["clusters"][0]["cluster"],
            json!({"server": "https://x", "proxy-url": "http://127.0.0.1:3128"})
        );
        let talos = with_proxy("context: a\ncontexts: {a: {ca: x}}\n", "contexts", proxy).unwrap();
        let read: Value = serde_saphyr::from_str(&talos).unwrap();
        assert_eq!(read["contexts"]["a"]["proxy-url"], "http://127.0.0.1:3128");
        assert_eq!(with_proxy("as: it is", "clusters", None).unwrap(), "as: it is");
    }

    #[tokio::test]
    async fn a_talosconfig_is_there_before_the_cluster_is() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().to_owned());
        let objects = crate::engine::Objects::open(home.open("m").unwrap(), None).await.unwrap();
        let api: Api<Secret> = Api::namespaced(objects.client.clone(), names::SYSTEM_NAMESPACE);
        let secret =
            json!({"metadata": {"name": "m-talos-configs"}, "stringData": {"talosconfig": "context: m\n"}});
        let written = async {
            api.create(&Default::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
            while !home.talosconfig("m").exists() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = written => {}
            ended = keep_talosconfig(&objects.client, "m", &home, None) => panic!("{ended:?}"),
        }
        assert_eq!(std::fs::read_to_string(home.talosconfig("m")).unwrap(), "context: m\n");
        objects.stop().await;
    }
}
