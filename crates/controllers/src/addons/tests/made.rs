//! What the built-in addons and the values are made of.

use super::{Cluster, find, text};
use crate::addons::{
    LABEL_ADDON, LABEL_STAND_IN, NoSources, Sources, StandIns, objects, parts, plan, redacted,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use butler_api::Provider;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn made(cluster: &Cluster, addon: &str) -> Vec<Value> {
    objects(addon, &cluster.site(), &StandIns).expect("the addon is made")
}

#[test]
fn kube_vip_asks_through_kube_prism_and_holds_the_address() {
    let cluster = Cluster::proxmox();
    let all = made(&cluster, "kube-vip");
    let set = find(&all, "DaemonSet", "kube-vip");
    let pod = &set["spec"]["template"]["spec"];
    let env: BTreeMap<&str, &str> = pod["containers"][0]["env"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| (text(entry, "/name"), text(entry, "/value")))
        .collect();
    assert_eq!((env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"]), ("localhost", "7445"));
    assert_eq!((env["address"], env["vip_cidr"], env["port"]), ("10.40.0.200", "32", "6443"));
    assert_eq!((env["vip_leaseduration"], env["vip_renewdeadline"], env["vip_retryperiod"]), ("5", "3", "1"));
    assert_eq!((env["cp_enable"], env["svc_enable"]), ("true", "false"));
    assert!(!env.contains_key("vip_interface"), "kube-vip finds the interface itself");
    assert_eq!(pod["hostNetwork"], true);
    assert_eq!(pod["tolerations"], json!([{ "operator": "Exists" }]));
    assert_eq!(pod["nodeSelector"], json!({ "node-role.kubernetes.io/control-plane": "" }));
    assert_eq!(text(pod, "/containers/0/image"), "ghcr.io/kube-vip/kube-vip:v0.8.7");

    let change = json!({ "network": { "vipInterface": "ens18", "vip": "fd00::200" } });
    let all = made(&Cluster::new(Provider::Proxmox, change), "kube-vip");
    let env =
        find(&all, "DaemonSet", "kube-vip").pointer("/spec/template/spec/containers/0/env").expect("env");
    let env = env.as_array().expect("a list");
    assert!(env.contains(&json!({ "name": "vip_interface", "value": "ens18" })));
    assert!(env.contains(&json!({ "name": "vip_cidr", "value": "128" })));
}

#[test]
fn nothing_of_the_provider_config_is_lost() {
    let cluster = Cluster::proxmox();
    let all = made(&cluster, "provider-config");
    let config = find(&all, "ProviderConfig", "butler-mgmt-provider");
    assert_eq!(config["spec"], serde_json::to_value(&cluster.config.spec).expect("JSON"));
    assert_eq!(config.pointer("/spec/proxmox/vmidRange/end"), Some(&json!(299)));
    assert!(config.pointer("/spec/limits").is_some());
    let secret = find(&all, "Secret", "butler-mgmt-proxmox-credentials");
    assert_eq!(text(secret, "/metadata/namespace"), "butler-system");
    let decoded = STANDARD.decode(text(secret, "/data/tokenSecret")).expect("base64");
    assert_eq!(decoded, cluster.credentials["tokenSecret"]);
    let shown = redacted(secret).to_string();
    assert!(!shown.contains(text(secret, "/data/tokenSecret")) && shown.contains("tokenSecret"));
}

/// Neither a shell nor a template nor YAML has a say in what a password or a label is.
#[test]
fn quotes_newlines_and_dollars_reach_the_new_cluster_as_they_are() {
    let odd = "it's \"odd\":\n${HOME} $(id) {{ .Values.x }} \\ # 'end";
    let mut cluster = Cluster::proxmox();
    cluster.credentials.insert("password".to_owned(), odd.as_bytes().to_vec());
    cluster.config.metadata.labels = Some([("site".to_owned(), odd.to_owned())].into());
    let storage = &mut cluster.config.spec.proxmox.as_mut().expect("the block").storage;
    odd.clone_into(storage);
    let all = made(&cluster, "provider-config");
    let config = find(&all, "ProviderConfig", "butler-mgmt-provider");
    assert_eq!(text(config, "/metadata/labels/site"), odd);
    assert_eq!(text(config, "/spec/proxmox/storage"), odd);
    let secret = find(&all, "Secret", "butler-mgmt-proxmox-credentials");
    assert_eq!(STANDARD.decode(text(secret, "/data/password")).expect("base64"), odd.as_bytes());
}

#[test]
fn credentials_are_in_that_one_secret_alone() {
    let cluster = Cluster::proxmox();
    let hidden = STANDARD.encode(&cluster.credentials["tokenSecret"]);
    for addon in plan(&cluster.site()).iter().filter(|addon| addon.skipped.is_none()) {
        for object in made(&cluster, addon.name) {
            let text = object.to_string();
            let is_secret = object["kind"] == "Secret";
            assert!(is_secret || !(text.contains(&hidden) || text.contains("hush")), "{} {text}", addon.name);
        }
    }
    assert!(!format!("{:?}", cluster.site()).contains("hush"));
}

#[test]
fn exposure_writes_spec_and_status() {
    let change = json!({ "controlPlaneExposure": { "mode": "Ingress", "hostname": "*.k8s.example.com" } });
    for (cluster, mode, proxy) in [
        (Cluster::proxmox(), "LoadBalancer", false),
        (Cluster::new(Provider::Proxmox, change), "Ingress", true),
    ] {
        let all = made(&cluster, "butler-config-exposure");
        let config = find(&all, "ButlerConfig", "butler");
        assert_eq!(text(config, "/spec/controlPlaneExposure/mode"), mode);
        assert_eq!(config["status"], json!({ "controlPlaneExposureMode": mode, "tcpProxyRequired": proxy }));
    }
}

#[test]
fn the_pool_is_the_specs() {
    let all = made(&Cluster::proxmox(), "metallb-pool");
    let pool = find(&all, "IPAddressPool", "default-pool");
    assert_eq!(pool["spec"]["addresses"], json!(["10.40.0.210-10.40.0.250"]));
    assert_eq!(find(&all, "L2Advertisement", "default")["spec"]["ipAddressPools"], json!(["default-pool"]));
}

#[test]
fn the_gateway_api_has_its_kinds() {
    let all = made(&Cluster::proxmox(), "gateway-api");
    let names: Vec<&str> = all.iter().map(|crd| text(crd, "/metadata/name")).collect();
    for plural in ["gatewayclasses", "gateways", "httproutes", "grpcroutes", "tlsroutes", "referencegrants"] {
        assert!(names.contains(&format!("{plural}.gateway.networking.k8s.io").as_str()), "{plural}");
    }
    for crd in &all {
        let versions = crd["spec"]["versions"].as_array().expect("versions");
        assert_eq!(versions.iter().filter(|version| version["storage"] == true).count(), 1);
        assert!(crd.pointer("/metadata/annotations/api-approved.kubernetes.io").is_some());
    }
    let class = find(&all, "CustomResourceDefinition", "gatewayclasses.gateway.networking.k8s.io");
    assert_eq!(
        (text(class, "/spec/scope"), class["spec"]["names"]["shortNames"].clone()),
        ("Cluster", json!(["gc"]))
    );
}

#[test]
fn values_fit_a_cluster_of_talos_nodes() {
    let cluster = Cluster::proxmox();
    let cilium = parts("cilium", &cluster.site()).remove(0);
    assert_eq!(
        (cilium.namespace.as_str(), &cilium.values["kubeProxyReplacement"]),
        ("kube-system", &json!(true))
    );
    assert_eq!(
        (&cilium.values["k8sServiceHost"], &cilium.values["k8sServicePort"]),
        (&json!("localhost"), &json!(7445))
    );
    assert_eq!(cilium.values["cgroup"]["autoMount"]["enabled"], false);
    assert_eq!(cilium.values["hubble"]["relay"]["enabled"], true);
    let agent =
        cilium.values.pointer("/securityContext/capabilities/ciliumAgent").expect("a list").to_string();
    assert!(agent.contains("SYS_ADMIN") && !agent.contains("SYS_MODULE"));

    let single =
        json!({ "cluster": { "topology": "single-node" }, "addons": { "storage": { "replicaCount": 3 } } });
    let single = Cluster::new(Provider::Proxmox, single);
    let longhorn = parts("longhorn", &single.site()).remove(0);
    assert_eq!(longhorn.values["defaultSettings"]["defaultReplicaCount"], 1);
    assert_eq!(longhorn.values["defaultSettings"]["defaultDataPath"], "/var/lib/longhorn");
    assert_eq!(parts("cilium", &single.site())[0].values["operator"]["replicas"], 1);
}

#[test]
fn cluster_api_gets_the_own_provider_once_and_the_others() {
    let names = |cluster: &Cluster| -> Vec<(String, String)> {
        parts("capi", &cluster.site()).into_iter().map(|part| (part.addon, part.version)).collect()
    };
    let pair = |name: &str, version: &str| (name.to_owned(), version.to_owned());
    let own = names(&Cluster::proxmox());
    assert!(
        own.contains(&pair("capmox", "v0.6.0"))
            && own.contains(&pair("capi-control-plane-steward", "v0.3.0"))
    );
    let change = json!({ "addons": { "capi": { "infrastructureProviders": [
        { "name": "proxmox", "version": "v0.8.1" },
        { "name": "aws", "credentialsSecretRef": { "name": "aws-keys" } },
    ] } } });
    let cluster = Cluster::new(Provider::Proxmox, change);
    let both = names(&cluster);
    assert_eq!(
        both.iter().filter(|(name, _)| name == "capmox").collect::<Vec<_>>(),
        [&pair("capmox", "v0.8.1")]
    );
    assert!(both.contains(&pair("capa", "v2.7.0")));
    let aws = parts("capi", &cluster.site()).into_iter().find(|part| part.addon == "capa").expect("capa");
    assert_eq!(
        aws.values["credentialsSecretRef"],
        json!({ "name": "aws-keys", "namespace": "butler-system" })
    );
}

#[test]
fn objects_carry_their_addon_and_stand_ins_say_so() {
    let cluster = Cluster::proxmox();
    for addon in plan(&cluster.site()).iter().filter(|addon| addon.skipped.is_none()) {
        let sourced = !parts(addon.name, &cluster.site()).is_empty();
        for object in made(&cluster, addon.name) {
            let (kind, labels) = (text(&object, "/kind"), &object["metadata"]["labels"]);
            let shared = kind == "Namespace" || addon.name == "butler-config-exposure";
            assert_eq!(labels[LABEL_ADDON] == addon.name, !shared, "{} {kind}", addon.name);
            if sourced && kind != "Namespace" {
                assert!(
                    labels[LABEL_STAND_IN].is_string()
                        && object["metadata"]["annotations"][LABEL_STAND_IN].is_string()
                );
                if let Some(image) = object.pointer("/spec/template/spec/containers/0/image") {
                    assert!(
                        image.as_str().is_some_and(|image| image.starts_with("stand-in.invalid/")),
                        "{image}"
                    );
                }
            }
        }
        for part in parts(addon.name, &cluster.site()) {
            assert!(StandIns.describe(&part).starts_with("STAND-IN for "));
            assert_eq!(NoSources.objects(&part).expect_err("nothing").reason, "AddonSourceMissing");
        }
    }
}

#[test]
fn only_namespaces_that_need_it_are_privileged() {
    let cluster = Cluster::proxmox();
    for addon in plan(&cluster.site()).iter().filter(|addon| addon.skipped.is_none()) {
        for object in made(&cluster, addon.name).iter().filter(|object| object["kind"] == "Namespace") {
            let name = text(object, "/metadata/name");
            let privileged =
                object["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged";
            assert_eq!(privileged, ["longhorn-system", "metallb-system"].contains(&name), "{name}");
        }
    }
}
