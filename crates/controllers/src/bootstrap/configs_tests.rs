//! What the machine configs say, and what is found wrong before any node sees one.

use super::super::wanted::{self, tests::cluster};
use super::*;
use butler_api::ClusterBootstrap;
use butler_talos::MachineConfig;
use serde_json::json;
use std::sync::{Arc, LazyLock};

pub(crate) static SECRETS: LazyLock<Arc<SecretsBundle>> = LazyLock::new(|| {
    let now = jiff::Timestamp::from_second(1_700_000_000).unwrap();
    Arc::new(SecretsBundle::generate(now).unwrap().bundle)
});

fn provider(network: Value) -> ProviderConfigSpec {
    serde_json::from_value(json!({
        "provider": "proxmox", "credentialsRef": {"name": "creds"},
        "proxmox": {"endpoint": "https://p", "nodes": ["a"], "storage": "s"}, "network": network,
    }))
    .unwrap()
}

fn rendered(cb: &ClusterBootstrap, network: Value) -> Result<BTreeMap<String, MachineConfig>, Failure> {
    let provider = provider(network);
    let nodes: Vec<NodeInput> = wanted::nodes(&cb.spec, provider.network.as_ref())?
        .into_iter()
        .enumerate()
        .map(|(index, wanted)| NodeInput {
            addresses: vec![format!("10.40.0.{}", 11 + index).parse().unwrap()],
            mac: Some(format!("BC:24:11:00:00:{index:02X}")),
            wanted,
        })
        .collect();
    let profile = Profile::of(cb.spec.provider);
    let endpoint = cb.spec.network.vip.clone().unwrap();
    let inputs = Inputs {
        spec: &cb.spec,
        provider: &provider,
        profile: &profile,
        endpoint: &endpoint,
        nodes: &nodes,
        secrets: &SECRETS,
    };
    let rendered = render(&inputs)?;
    assert_eq!(rendered, render(&inputs)?, "the same twice");
    Ok(rendered
        .configs
        .iter()
        .map(|(name, text)| (name.clone(), MachineConfig::from_yaml(text.expose(), None).unwrap()))
        .collect())
}

fn texts(config: &MachineConfig, path: &str) -> Vec<String> {
    let list = config.get(path).and_then(Value::as_array).cloned().unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn an_ha_cluster_gets_what_it_needs() {
    let network =
        json!({"subnet": "10.40.0.0/24", "timeServers": ["ntp.example"], "dnsServers": ["10.40.0.2"]});
    let configs = rendered(&cluster("ha"), network).unwrap();
    let (plane, worker) = (&configs["prod-cp-0"], &configs["prod-worker-0"]);
    for path in ["machine.certSANs", "cluster.apiServer.certSANs"] {
        for name in ["10.40.0.200", "10.40.0.11", "10.40.0.12", "10.40.0.13"] {
            assert!(texts(plane, path).contains(&name.to_owned()), "{path} lacks {name}");
        }
    }
    assert_eq!(plane.get("cluster.controlPlane.endpoint").unwrap(), "https://10.40.0.200:6443");
    assert_eq!(plane.get("cluster.network.cni.name").unwrap(), "none");
    assert_eq!(plane.get("cluster.proxy.disabled").unwrap(), true);
    assert_eq!(plane.get("machine.network.hostname").unwrap(), "prod-cp-0");
    assert_eq!(plane.get("machine.install.disk").unwrap(), "/dev/vda");
    let image = plane.get("machine.install.image").and_then(Value::as_str).unwrap();
    assert!(
        image.starts_with("factory.talos.dev/installer/ce4c9805") && image.ends_with(":v1.9.2"),
        "{image}"
    );
    assert_eq!(texts(plane, "cluster.etcd.advertisedSubnets"), ["10.40.0.0/24"]);
    assert_eq!(worker.get("machine.nodeLabels.tier").unwrap(), "work");
    let disks = worker.get("machine.disks").unwrap();
    assert_eq!(disks[0]["device"], "/dev/sdb");
    let mounts = worker.get("machine.kubelet.extraMounts").unwrap().to_string();
    assert!(mounts.contains("/var/lib/longhorn") && mounts.contains("/var/mnt/extra-0"), "{mounts}");
    assert!(plane.get("cluster.allowSchedulingOnControlPlanes").is_none_or(|value| value == false));
}

#[test]
fn a_single_node_schedules_and_holds_its_own_address() {
    let configs = rendered(&cluster("single-node"), json!({})).unwrap();
    let node = &configs["prod-cp-0"];
    assert_eq!(node.get("cluster.allowSchedulingOnControlPlanes").unwrap(), true);
    let interfaces = node.get("machine.network.interfaces").unwrap();
    assert_eq!(interfaces[0]["vip"]["ip"], "10.40.0.200");
    assert_eq!(interfaces[0]["deviceSelector"]["hardwareAddr"], "bc:24:11:00:00:00");
    assert_eq!(interfaces[0]["dhcp"], true);
}

#[test]
fn a_fixed_address_stays_beside_the_virtual_one() {
    let mut cb = cluster("single-node");
    cb.spec.network.vip_interface = Some("ens18".into());
    let network = json!({
        "subnet": "10.40.0.0/24", "gateway": "10.40.0.1",
        "nodeAddresses": {"start": "10.40.0.11", "end": "10.40.0.11"},
    });
    let configs = rendered(&cb, network).unwrap();
    let interface = configs["prod-cp-0"].get("machine.network.interfaces").unwrap()[0].clone();
    assert_eq!(interface["interface"], "ens18");
    assert_eq!(interface["addresses"], json!(["10.40.0.11/24"]));
    assert_eq!(interface["routes"][0]["gateway"], "10.40.0.1");
}

#[test]
fn without_cilium_the_proxy_of_kubernetes_stays() {
    let mut cb = cluster("ha");
    cb.spec.addons.cni.type_ = CniType::None;
    let configs = rendered(&cb, json!({})).unwrap();
    assert_ne!(configs["prod-cp-0"].get("cluster.proxy.disabled"), Some(&json!(true)));
    assert_eq!(configs["prod-cp-0"].get("cluster.network.cni.name").unwrap(), "none");
}

#[test]
fn patches_are_applied_and_a_wrong_one_is_named() {
    let patched = |patch: Value| {
        let mut cb = cluster("ha");
        cb.spec.talos.config_patches = vec![
            serde_json::from_value(
                json!({"op": "add", "path": "/machine/sysctls", "value": "{\"vm.swappiness\": \"1\"}"}),
            )
            .unwrap(),
            serde_json::from_value(patch).unwrap(),
        ];
        rendered(&cb, json!({}))
    };
    let good =
        patched(json!({"op": "replace", "path": "/machine/install/disk", "value": "/dev/sda"})).unwrap();
    assert_eq!(good["prod-worker-1"].get("machine.install.disk").unwrap(), "/dev/sda");
    assert_eq!(good["prod-worker-1"].main().unwrap()["machine"]["sysctls"]["vm.swappiness"], "1");
    for bad in [
        json!({"op": "replace", "path": "/machine/nothing/there", "value": "1"}),
        json!({"op": "add", "path": "/machine/install", "value": "{unclosed"}),
    ] {
        let failure = patched(bad.clone()).unwrap_err();
        assert_eq!((failure.class, failure.reason.as_str()), (Class::InvalidConfig, "ConfigPatchWrong"));
        assert!(failure.message.contains("configPatches[1]"), "{}", failure.message);
        assert!(failure.message.contains(bad["path"].as_str().unwrap()), "{}", failure.message);
    }
}

#[test]
fn what_cannot_work_is_found_before() {
    let mut old = cluster("ha");
    old.spec.talos.version = "v1.2.0".into();
    assert_eq!(rendered(&old, json!({})).unwrap_err().class, Class::InvalidConfig);
    let mut overlap = cluster("ha");
    overlap.spec.network.pod_cidr = "10.40.0.0/16".into();
    let failure = rendered(&overlap, json!({"subnet": "10.40.0.0/24"})).unwrap_err();
    assert_eq!(failure.reason, "TalosConfigInvalid");
    assert!(device("/dev/sd", 30).is_err());
    assert_eq!(device("/dev/nvme", 0).unwrap(), "/dev/nvme1n1");
}

#[test]
fn the_intent_changes_with_what_machines_follow_from() {
    let (mut a, provider) = (cluster("ha"), provider(json!({})));
    let before = intent_of(&a.spec, &provider);
    a.spec.addons.certs_off();
    a.spec.paused = true;
    assert_eq!(intent_of(&a.spec, &provider), before, "addons can be changed at any time");
    a.spec.cluster.workers.as_mut().unwrap().replicas = 5;
    assert_ne!(intent_of(&a.spec, &provider), before);
}

trait CertsOff {
    fn certs_off(&mut self);
}

impl CertsOff for butler_api::ClusterBootstrapAddonsSpec {
    fn certs_off(&mut self) {
        self.cert_manager.enabled = false;
    }
}
