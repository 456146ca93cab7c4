//! AWS' cloud controller manager, as objects of the new cluster: a load balancer for each Service that asks for one.

use super::credentials::Source;
use super::settings::Settings;
use crate::connection::Credentials;
use crate::controller_manager::{self, Manager, place};
use crate::profile::Component;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use butler_api::ProviderConfigSpec;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const CONFIG: &str = "aws-cloud-config";
const CREDENTIALS: &str = "aws-cloud-credentials";

/// By what it gets at AWS. Holds keys, and is shown nowhere.
pub(crate) enum Way {
    /// The machines' own profile.
    Profile,
    /// Keys that do not end: id and secret.
    Keys(String, String),
    /// Neither: what the bootstrap has are keys that end, or a role that only it can take on.
    Nothing,
}

impl Way {
    pub(crate) fn of(settings: &Settings, source: Option<&Source>) -> Self {
        if settings.instance_profile.is_some() {
            return Way::Profile;
        }
        let lasting = source.filter(|source| source.roles.is_empty() && source.keys.token.is_none());
        lasting.map_or(Way::Nothing, |source| Way::Keys(source.keys.id.clone(), source.keys.secret.clone()))
    }
}

/// All its objects; `None` when the ProviderConfig describes no region.
pub(crate) fn objects(
    component: &Component,
    cluster: &str,
    config: &ProviderConfigSpec,
    credentials: &BTreeMap<String, Vec<u8>>,
) -> Option<Vec<Value>> {
    let settings = Settings::read(config).ok()?;
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let credentials =
        Credentials(credentials.iter().map(|(key, value)| (key.clone(), text(value))).collect());
    let mut manager = Manager {
        cluster,
        cloud: "aws",
        image: format!("registry.k8s.io/provider-aws/cloud-controller-manager:{}", component.version),
        // By the tag of this name it finds the machines, and by them the network.
        config: (CONFIG, format!("[Global]\nKubernetesClusterID = {cluster}\n")),
        env: vec![json!({ "name": "AWS_REGION", "value": settings.region })],
        mounts: Vec::new(),
        volumes: Vec::new(),
        more: Vec::new(),
    };
    let source = Source::read(&credentials).ok();
    if let Way::Keys(id, secret) = Way::of(&settings, source.as_ref()) {
        for (name, key) in
            [("AWS_ACCESS_KEY_ID", "accessKeyID"), ("AWS_SECRET_ACCESS_KEY", "secretAccessKey")]
        {
            let from = json!({ "secretKeyRef": { "name": CREDENTIALS, "key": key } });
            manager.env.push(json!({ "name": name, "valueFrom": from }));
        }
        manager.more.push(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": place(component, CREDENTIALS), "type": "Opaque",
            "data": { "accessKeyID": STANDARD.encode(id), "secretAccessKey": STANDARD.encode(secret) },
        }));
    }
    Some(controller_manager::objects(component, manager))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use butler_api::Provider;

    fn made(block: Value, credentials: &[(&str, &str)]) -> Vec<Value> {
        let config = json!({ "provider": "aws", "credentialsRef": { "name": "creds" }, "aws": block });
        let config: ProviderConfigSpec = serde_json::from_value(config).unwrap();
        let credentials =
            credentials.iter().map(|(key, value)| ((*key).to_owned(), value.as_bytes().to_vec())).collect();
        Profile::of(Provider::Aws).cloud_controller_objects("mgmt", &config, &credentials).unwrap()
    }

    fn of_kind<'a>(all: &'a [Value], kind: &str) -> Option<&'a Value> {
        all.iter().find(|object| object["kind"] == kind)
    }

    const KEYS: [(&str, &str); 2] = [("accessKeyID", "AKID"), ("secretAccessKey", "hunter2")];

    #[test]
    fn it_runs_the_service_controller_alone_with_the_keys() {
        let all = made(json!({ "region": "eu-west-1", "subnetIDs": ["subnet-a"] }), &KEYS);
        let config = of_kind(&all, "ConfigMap").unwrap()["data"]["cloud-config"].as_str().unwrap();
        assert_eq!(config, "[Global]\nKubernetesClusterID = mgmt\n");
        let pod = &of_kind(&all, "DaemonSet").unwrap()["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let args: Vec<&str> =
            container["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        for arg in [
            "--cloud-provider=aws",
            "--controllers=service",
            "--configure-cloud-routes=false",
            "--cluster-name=mgmt",
        ] {
            assert!(args.contains(&arg), "{arg} in {args:?}");
        }
        assert_eq!(pod["hostNetwork"], true);
        assert_eq!(container["env"][0], json!({ "name": "AWS_REGION", "value": "eu-west-1" }));
        assert_eq!(container["env"][2]["valueFrom"]["secretKeyRef"]["key"], "secretAccessKey");
        let secret = of_kind(&all, "Secret").unwrap();
        assert_eq!(secret["data"]["secretAccessKey"], STANDARD.encode("hunter2"));
    }

    /// Keys that end would leave it without a way after an hour.
    #[test]
    fn the_machines_profile_comes_first_and_keys_that_end_never() {
        let profile = json!({ "region": "eu-west-1", "subnetIDs": ["subnet-a"], "instanceProfile": "nodes" });
        assert_eq!(of_kind(&made(profile, &KEYS), "Secret"), None);
        let plain = json!({ "region": "eu-west-1", "subnetIDs": ["subnet-a"] });
        for more in [("sessionToken", "t"), ("roleARN", "arn:aws:iam::1:role/x")] {
            let all = made(plain.clone(), &[KEYS[0], KEYS[1], more]);
            assert_eq!(of_kind(&all, "Secret"), None, "{}", more.0);
        }
    }
}
