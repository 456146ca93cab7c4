//! Every example of the documentation decodes, encodes to the same, has no problems, and gets the documented defaults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use butler_api::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn fixtures() -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Files of butleradm and of butler-lb are no objects; their own tests read them.
        if name.starts_with("bootstrap-") || name.starts_with("butler-lb") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for document in text.split("\n---\n") {
            let value =
                serde_saphyr::from_str(document).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            found.push((path.file_name().unwrap().to_string_lossy().into_owned(), value));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(found.len() >= 19, "fixtures are missing: {}", found.len());
    found
}

fn fixture(name: &str) -> Value {
    fixtures().into_iter().find(|(file, _)| file == name).unwrap().1
}

fn there_and_back<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(value: &Value) -> Value {
    let typed: T = serde_json::from_value(value.clone()).unwrap();
    let again = serde_json::to_value(&typed).unwrap();
    assert_eq!(serde_json::from_value::<T>(again.clone()).unwrap(), typed);
    again
}

/// `outer` has everything that `inner` has; it may have more (defaults).
fn assert_holds(outer: &Value, inner: &Value, path: &str) {
    match (outer, inner) {
        (Value::Object(outer), Value::Object(inner)) => {
            for (key, value) in inner {
                let there = outer.get(key).unwrap_or_else(|| panic!("{path}.{key} was lost"));
                assert_holds(there, value, &format!("{path}.{key}"));
            }
        }
        (Value::Array(outer), Value::Array(inner)) => {
            assert_eq!(outer.len(), inner.len(), "{path}");
            for (index, (outer, inner)) in outer.iter().zip(inner).enumerate() {
                assert_holds(outer, inner, &format!("{path}[{index}]"));
            }
        }
        _ => assert_eq!(outer, inner, "{path}"),
    }
}

fn assert_no_null(value: &Value, path: &str) {
    match value {
        Value::Null => panic!("{path} is null"),
        Value::Array(items) => items.iter().for_each(|item| assert_no_null(item, path)),
        Value::Object(fields) => {
            fields.iter().for_each(|(key, field)| assert_no_null(field, &format!("{path}.{key}")))
        }
        _ => {}
    }
}

#[test]
fn examples_survive_decoding_and_encoding() {
    for (file, value) in fixtures() {
        let again = match value["kind"].as_str().unwrap() {
            "AddonDefinition" => there_and_back::<AddonDefinition>(&value),
            "ButlerConfig" => there_and_back::<ButlerConfig>(&value),
            "ClusterBootstrap" => there_and_back::<ClusterBootstrap>(&value),
            "ImageSync" => there_and_back::<ImageSync>(&value),
            "LoadBalancerRequest" => there_and_back::<LoadBalancerRequest>(&value),
            "MachineLoadBalancer" => there_and_back::<MachineLoadBalancer>(&value),
            "MachineRequest" => there_and_back::<MachineRequest>(&value),
            "ProviderConfig" => there_and_back::<ProviderConfig>(&value),
            other => panic!("{file}: no test for {other}"),
        };
        assert_holds(&again, &value, &file);
        assert_no_null(&again, &file);
    }
}

#[test]
fn examples_have_no_problems() {
    for (file, value) in fixtures() {
        let problems = validate_object(&value).expect("our kind").expect("decodes");
        assert_eq!(problems, [], "{file}");
    }
}

#[test]
fn an_omitted_addon_has_the_documented_default() {
    let object: ClusterBootstrap =
        serde_json::from_value(fixture("clusterbootstrap-single-node.yaml")).unwrap();
    assert_eq!(object.spec.addons, ClusterBootstrapAddonsSpec::default());
    assert_eq!(
        serde_json::to_value(&object.spec.addons).unwrap(),
        json!({
            "cni": {"type": "cilium", "hubbleEnabled": true},
            "storage": {"type": "longhorn", "replicaCount": 3},
            "loadBalancer": {"enabled": true, "type": "metallb"},
            "controlPlaneHA": {"enabled": true, "type": "kube-vip"},
            "certManager": {"enabled": true},
            "ingress": {"enabled": true, "type": "traefik"},
            "controlPlaneProvider": {"enabled": true, "type": "steward"},
            "capi": {"enabled": true, "version": "v1.9.4"},
            "butlerController": {"enabled": true, "version": "latest"},
            "gitOps": {"enabled": true, "type": "flux"},
            "console": {"enabled": false, "version": "latest"},
        })
    );
    assert_eq!(object.spec.control_plane_exposure.mode, ExposureMode::LoadBalancer);
    assert_eq!(object.spec.talos.install_disk, "/dev/vda");
    assert!(!object.spec.paused);
}

#[test]
fn defaults_are_what_an_empty_object_decodes_to() {
    fn same<T: DeserializeOwned + Default + PartialEq + std::fmt::Debug>() {
        assert_eq!(serde_json::from_value::<T>(json!({})).unwrap(), T::default());
    }
    same::<ClusterBootstrapAddonsSpec>();
    same::<CniAddonSpec>();
    same::<StorageAddonSpec>();
    same::<LoadBalancerAddonSpec>();
    same::<ControlPlaneHaAddonSpec>();
    same::<CertManagerAddonSpec>();
    same::<IngressAddonSpec>();
    same::<ControlPlaneProviderAddonSpec>();
    same::<CapiAddonSpec>();
    same::<ButlerControllerAddonSpec>();
    same::<GitOpsAddonSpec>();
    same::<ConsoleAddonSpec>();
    same::<ControlPlaneExposureSpec>();
    same::<LoadBalancerOptions>();
    same::<LoadBalancerHealthCheck>();
    same::<DrainSpec>();
    same::<MultiTenancySpec>();
    same::<AddonDefaults>();
    same::<ProviderLoadBalancer>();
}

#[test]
fn load_balancer_defaults() {
    let object: LoadBalancerRequest =
        serde_json::from_value(fixture("loadbalancerrequest-azure.yaml")).unwrap();
    assert_eq!((object.spec.port, object.spec.effective_health_check_port()), (6443, 6443));
    let object: LoadBalancerRequest =
        serde_json::from_value(fixture("loadbalancerrequest-three-listeners.yaml")).unwrap();
    let ports: Vec<_> =
        object.spec.listeners.iter().map(|l| (l.port, l.effective_target_port(), l.role)).collect();
    assert_eq!(ports, [(50000, 50000, MachineRole::ControlPlane), (50001, 50000, MachineRole::Worker)]);
    let options = object.spec.options.unwrap();
    assert_eq!(options.deregistration_delay_seconds, 30);
    let check = options.health_check;
    assert_eq!((check.interval, check.timeout, check.healthy, check.unhealthy), (10, 5, 2, 2));
}

#[test]
fn readiness_helpers() {
    let machine: MachineRequest = serde_json::from_value(fixture("machinerequest.yaml")).unwrap();
    assert!(machine.is_ready());
    let image: ImageSync = serde_json::from_value(fixture("imagesync.yaml")).unwrap();
    assert!(image.is_ready());
    let bare = MachineRequest { status: None, ..machine };
    assert!(!bare.is_ready());
}

#[test]
fn a_single_node_keeps_its_address_by_talos() {
    let mut object: ClusterBootstrap =
        serde_json::from_value(fixture("clusterbootstrap-single-node.yaml")).unwrap();
    assert_eq!(object.spec.effective_control_plane_ha(), ControlPlaneHaType::TalosVip);
    assert_eq!((object.spec.control_plane_count(), object.spec.storage_replicas()), (1, 1));
    assert!(object.credentials_in_status());
    object.metadata.annotations =
        Some([(names::ANNOTATION_CREDENTIALS_IN_STATUS.to_owned(), "false".to_owned())].into());
    assert!(!object.credentials_in_status());
    let ha: ClusterBootstrap = serde_json::from_value(fixture("clusterbootstrap-ha-on-prem.yaml")).unwrap();
    assert_eq!(ha.spec.effective_control_plane_ha(), ControlPlaneHaType::KubeVip);
    let cloud: ClusterBootstrap = serde_json::from_value(fixture("clusterbootstrap-gcp.yaml")).unwrap();
    assert_eq!(cloud.spec.effective_control_plane_ha(), ControlPlaneHaType::None);
}
