//! Google's cloud controller manager, as objects of the new cluster: a load balancer for each Service that asks for one.
//!
//! It runs its service controller alone. Nodes get their providerID from us and pods their addresses from the CNI, and a
//! kubelet that waited for it (`--cloud-provider=external`) would keep away the very pods that it consists of.

use super::names::tail;
use super::settings::Settings;
use crate::profile::Component;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use butler_api::ProviderConfigSpec;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

const NAME: &str = "cloud-controller-manager";
const ROLE: &str = "butler:cloud-controller-manager";
const CONFIG: &str = "gcp-cloud-config";
const CREDENTIALS: &str = "gcp-cloud-credentials";
/// Where the container finds both.
const CONFIG_FOLDER: &str = "/etc/cloud-config";
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
    let place = |name: &str| json!({ "name": name, "namespace": component.namespace });
    let mut all = vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": place(NAME) }),
        role(),
        binding("ClusterRoleBinding", json!({ "name": ROLE }), "ClusterRole", ROLE, component),
        // How its own endpoint tells who asks.
        binding("RoleBinding", place(NAME), "Role", "extension-apiserver-authentication-reader", component),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": place(CONFIG),
            "data": { "cloud-config": cloud_config(&settings, cluster, key.is_some()) },
        }),
    ];
    all.extend(key.map(|key| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": place(CREDENTIALS), "type": "Opaque",
            "data": { "key.json": STANDARD.encode(key) },
        })
    }));
    all.push(daemon_set(component, cluster, key.is_some()));
    Some(all)
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

fn role() -> Value {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({ "apiGroups": groups, "resources": resources, "verbs": verbs });
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": ROLE },
        "rules": [
            rule(&[""], &["services"], &["get", "list", "watch", "update", "patch"]),
            rule(&[""], &["services/status"], &["get", "update", "patch"]),
            rule(&[""], &["nodes"], &["get", "list", "watch"]),
            rule(&["", "events.k8s.io"], &["events"], &["create", "update", "patch"]),
            rule(&["coordination.k8s.io"], &["leases"], &["get", "list", "watch", "create", "update", "patch"]),
            // The cluster's id, by which it names what it makes.
            rule(&[""], &["configmaps"], &["get", "list", "watch", "create", "update"]),
            rule(&[""], &["endpoints", "serviceaccounts"], &["get", "list", "watch"]),
            rule(&["authentication.k8s.io"], &["tokenreviews"], &["create"]),
            rule(&["authorization.k8s.io"], &["subjectaccessreviews"], &["create"]),
        ],
    })
}

fn binding(kind: &str, metadata: Value, role_kind: &str, role: &str, component: &Component) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role },
        "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": component.namespace }],
    })
}

fn daemon_set(component: &Component, cluster: &str, with_key: bool) -> Value {
    let labels = json!({ "app.kubernetes.io/name": NAME });
    let mut mounts = vec![json!({ "name": "config", "mountPath": CONFIG_FOLDER, "readOnly": true })];
    let mut volumes = vec![json!({ "name": "config", "configMap": { "name": CONFIG } })];
    let mut environment = Vec::new();
    if with_key {
        mounts.push(json!({ "name": "credentials", "mountPath": KEY_FOLDER, "readOnly": true }));
        volumes.push(json!({ "name": "credentials", "secret": { "secretName": CREDENTIALS } }));
        environment.push(
            json!({ "name": "GOOGLE_APPLICATION_CREDENTIALS", "value": format!("{KEY_FOLDER}/key.json") }),
        );
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": NAME, "namespace": component.namespace, "labels": labels },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "serviceAccountName": NAME,
                    "hostNetwork": true,
                    "priorityClassName": "system-cluster-critical",
                    // The key stays off the workers.
                    "nodeSelector": { "node-role.kubernetes.io/control-plane": "" },
                    "tolerations": [{ "operator": "Exists" }],
                    "containers": [{
                        "name": NAME,
                        "image": format!(
                            "registry.k8s.io/cloud-provider-gcp/cloud-controller-manager:{}",
                            component.version
                        ),
                        "args": [
                            "--cloud-provider=gce",
                            format!("--cloud-config={CONFIG_FOLDER}/cloud-config"),
                            format!("--cluster-name={cluster}"),
                            "--controllers=service",
                            "--configure-cloud-routes=false",
                            "--allocate-node-cidrs=false",
                            "--leader-elect=true",
                            "--v=2",
                        ],
                        "env": environment,
                        "resources": { "requests": { "cpu": "50m", "memory": "64Mi" } },
                        "volumeMounts": mounts,
                    }],
                    "volumes": volumes,
                },
            },
            "updateStrategy": { "type": "RollingUpdate" },
        },
    })
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
