//! Google's cloud controller manager, as objects of the new cluster: a load balancer for each Service that asks for one.

use super::names::tail;
use super::settings::Settings;
use crate::controller_manager::{self, Manager, place};
use crate::profile::Component;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use butler_api::ProviderConfigSpec;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

const CONFIG: &str = "gcp-cloud-config";
const CREDENTIALS: &str = "gcp-cloud-credentials";
/// Where the container finds the key.
const KEY_FOLDER: &str = "/etc/cloud-credentials";

/// All its objects; `None` when the ProviderConfig describes no project.
pub(crate) fn objects(
    component: &Component,
    cluster: &str,
    config: &ProviderConfigSpec,
    credentials: &BTreeMap<String, Vec<u8>>,
) -> Option<Vec<Value>> {
    let settings = Settings::read(config).ok()?;
    let key = key(credentials);
    let mut manager = Manager {
        cluster,
        cloud: "gce",
        image: format!("registry.k8s.io/cloud-provider-gcp/cloud-controller-manager:{}", component.version),
        config: (CONFIG, cloud_config(&settings, cluster, key.is_some())),
        env: Vec::new(),
        mounts: Vec::new(),
        volumes: Vec::new(),
        more: Vec::new(),
    };
    if let Some(key) = key {
        let path = format!("{KEY_FOLDER}/key.json");
        manager.env.push(json!({ "name": "GOOGLE_APPLICATION_CREDENTIALS", "value": path }));
        manager.mounts.push(json!({ "name": "credentials", "mountPath": KEY_FOLDER, "readOnly": true }));
        manager.volumes.push(json!({ "name": "credentials", "secret": { "secretName": CREDENTIALS } }));
        manager.more.push(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": place(component, CREDENTIALS), "type": "Opaque",
            "data": { "key.json": STANDARD.encode(key) },
        }));
    }
    Some(controller_manager::objects(component, manager))
}

/// The key file among the credentials. Without one, the account of the machines themselves is used.
fn key(credentials: &BTreeMap<String, Vec<u8>>) -> Option<&Vec<u8>> {
    let given = ["serviceAccountKey", "applicationDefault"].iter().find_map(|name| credentials.get(*name))?;
    given.trim_ascii_start().starts_with(b"{").then_some(given)
}

fn cloud_config(settings: &Settings, cluster: &str, with_key: bool) -> String {
    let last = |url: &str| url.rsplit('/').next().unwrap_or_default().to_owned();
    let mut text = String::from("[global]\n");
    let mut set = |name: &str, value: &str| {
        // A String takes everything.
        let _ = writeln!(text, "{name} = {value}");
    };
    set("project-id", &settings.project);
    let owner = tail(&settings.network).split('/').next().unwrap_or_default();
    if owner != settings.project {
        set("network-project-id", owner);
    }
    set("network-name", &last(&settings.network));
    if let Some(subnetwork) = &settings.subnetwork {
        set("subnetwork-name", &last(subnetwork));
    }
    // Machines are spread over the region's zones.
    set("regional", "true");
    set("multizone", "true");
    // What its firewall rules are scoped to; it makes none without.
    for tag in settings.tags(cluster) {
        set("node-tags", &tag);
    }
    if with_key {
        // Otherwise it takes the machine's own account, whatever key it is given.
        set("token-url", "nil");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use butler_api::Provider;

    fn made(block: Value, credentials: &[(&str, &str)]) -> Vec<Value> {
        let config = json!({ "provider": "gcp", "credentialsRef": { "name": "creds" }, "gcp": block });
        let config: ProviderConfigSpec = serde_json::from_value(config).unwrap();
        let credentials =
            credentials.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        let component = Profile::of(Provider::Gcp).cloud_controller.unwrap();
        objects(&component, "butler-mgmt", &config, &credentials).unwrap()
    }

    fn of_kind<'a>(all: &'a [Value], kind: &str) -> Option<&'a Value> {
        all.iter().find(|object| object["kind"] == kind)
    }

    #[test]
    fn it_runs_the_service_controller_alone_with_the_key() {
        let block =
            json!({ "projectID": "p1", "region": "us-central1", "network": "inner", "subnetwork": "nodes" });
        let all = made(block, &[("serviceAccountKey", "{\"type\": \"service_account\"}")]);
        let config = of_kind(&all, "ConfigMap").unwrap()["data"]["cloud-config"].as_str().unwrap();
        assert_eq!(
            config,
            "[global]\nproject-id = p1\nnetwork-name = inner\nsubnetwork-name = nodes\nregional = true\n\
             multizone = true\nnode-tags = butler-mgmt\ntoken-url = nil\n"
        );
        let pod = &of_kind(&all, "DaemonSet").unwrap()["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let args: Vec<&str> =
            container["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(args.contains(&"--controllers=service") && args.contains(&"--cluster-name=butler-mgmt"));
        assert!(container["image"].as_str().unwrap().ends_with(":v30.0.0"));
        assert_eq!(container["env"][0]["value"], "/etc/cloud-credentials/key.json");
        assert_eq!(pod["volumes"][1]["secret"]["secretName"], CREDENTIALS);
        let secret = of_kind(&all, "Secret").unwrap();
        assert_eq!(
            STANDARD.decode(secret["data"]["key.json"].as_str().unwrap()).unwrap(),
            b"{\"type\": \"service_account\"}"
        );
        let rules = of_kind(&all, "ClusterRole").unwrap()["rules"].to_string();
        assert!(!rules.contains('*') && !rules.contains("secrets"), "{rules}");
    }

    #[test]
    fn without_a_key_the_machines_own_account_is_used() {
        let network = "projects/shared/global/networks/outer";
        let block = json!({ "projectID": "p1", "region": "us-central1", "network": network });
        let all = made(block, &[("serviceAccountKey", "metadata")]);
        let config = of_kind(&all, "ConfigMap").unwrap()["data"]["cloud-config"].as_str().unwrap();
        assert!(config.contains("network-project-id = shared\nnetwork-name = outer\n"), "{config}");
        assert!(!config.contains("token-url"), "{config}");
        assert_eq!(of_kind(&all, "Secret"), None);
        assert!(!all.last().unwrap().to_string().contains("credentials"));
    }
}
