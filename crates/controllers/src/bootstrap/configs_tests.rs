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
    rendered_at(cb, network, &cb.spec.network.vip.clone().unwrap(), None)
}

/// `own` begins the addresses that nodes have on their own cards, where those are not the ones that they are reached by.
fn rendered_at(
    cb: &ClusterBootstrap,
    network: Value,
    endpoint: &str,
    own: Option<&str>,
) -> Result<BTreeMap<String, MachineConfig>, Failure> {
    let provider = provider(network);
    let nodes: Vec<NodeInput> = wanted::nodes(&cb.spec, provider.network.as_ref())?
        .into_iter()
        .enumerate()
        .map(|(index, wanted)| NodeInput {
            addresses: vec![format!("10.40.0.{}", 11 + index).parse().unwrap()],
            own: own.map(|prefix| format!("{prefix}{index}").parse().unwrap()),
            mac: Some(format!("BC:24:11:00:00:{index:02X}")),
            wanted,
        })
        .collect();
    let profile = Profile::of(cb.spec.provider);
    let inputs = Inputs {
        spec: &cb.spec,
        provider: &provider,
        profile: &profile,
        endpoint,
        passthrough: profile.loopback_endpoint,
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

fn in_cloud(provider: butler_api::Provider, version: &str) -> ClusterBootstrap {
    let mut cb = cluster("ha");
    cb.spec.provider = provider;
    cb.spec.network.vip = None;
    cb.spec.talos.version = version.to_owned();
    cb
}

/// The addresses on `lo`, in whichever form the version has.
fn on_loopback(config: &MachineConfig) -> String {
    let links = config.get("machine.network.interfaces").and_then(Value::as_array);
    let old = links.into_iter().flatten().filter(|link| link["interface"] == "lo");
    let new = config.document("LinkConfig", Some("lo"));
    old.chain(new).map(|link| link["addresses"].to_string()).collect()
}

#[test]
fn a_passthrough_load_balancers_address_is_on_every_control_plane_and_taken_for_none_of_theirs() {
    for version in ["v1.9.2", "v1.12.0"] {
        let cb = in_cloud(butler_api::Provider::Gcp, version);
        let configs = rendered_at(&cb, json!({}), "198.51.100.7", Some("10.128.0.")).unwrap();
        for (index, name) in ["prod-cp-0", "prod-cp-1", "prod-cp-2"].into_iter().enumerate() {
            let plane = &configs[name];
            assert!(on_loopback(plane).contains("198.51.100.7/32"), "{version} {name}");
            let own = format!("10.128.0.{index}/32");
            assert_eq!(texts(plane, "cluster.etcd.advertisedSubnets"), [own.as_str()], "{version} {name}");
            assert_eq!(
                texts(plane, "machine.kubelet.nodeIP.validSubnets"),
                [own.as_str()],
                "{version} {name}"
            );
            assert_eq!(plane.get("cluster.controlPlane.endpoint").unwrap(), "https://198.51.100.7:6443");
            for path in ["machine.certSANs", "cluster.apiServer.certSANs"] {
                assert!(texts(plane, path).contains(&"198.51.100.7".to_owned()), "{version} {path}");
            }
        }
        let worker = &configs["prod-worker-0"];
        assert_eq!(on_loopback(worker), "", "workers reach it over the network");
        assert_eq!(texts(worker, "machine.kubelet.nodeIP.validSubnets"), ["10.128.0.3/32"]);
    }
}

#[test]
fn a_user_may_still_have_interfaces_of_their_own_beside_it() {
    let mut cb = in_cloud(butler_api::Provider::Gcp, "v1.9.2");
    cb.spec.network.mtu = Some(1460);
    let configs = rendered_at(&cb, json!({}), "198.51.100.7", Some("10.128.0.")).unwrap();
    let links =
        configs["prod-cp-0"].get("machine.network.interfaces").and_then(Value::as_array).unwrap().len();
    assert_eq!(links, 2, "the card with its MTU, and lo");
    assert!(on_loopback(&configs["prod-cp-0"]).contains("198.51.100.7/32"));
}

#[test]
fn a_load_balancer_with_a_name_needs_nothing_on_the_nodes() {
    let cb = in_cloud(butler_api::Provider::Aws, "v1.9.2");
    let name = "prod-lb-0123.elb.eu-central-1.amazonaws.com";
    let configs = rendered_at(&cb, json!({}), name, Some("10.0.1.")).unwrap();
    let plane = &configs["prod-cp-0"];
    assert_eq!(on_loopback(plane), "");
    assert!(texts(plane, "cluster.apiServer.certSANs").contains(&name.to_owned()));
    assert_eq!(texts(plane, "cluster.etcd.advertisedSubnets"), ["10.0.1.0/32"]);
}

/// The kubelet is never told to wait for a cloud: what would end its wait is a pod, which waits for the kubelet.
#[test]
fn nodes_of_a_cloud_wait_for_no_controller_and_install_nothing() {
    for provider in [butler_api::Provider::Gcp, butler_api::Provider::Aws] {
        let configs =
            rendered_at(&in_cloud(provider, "v1.9.2"), json!({}), "198.51.100.7", Some("10.0.1.")).unwrap();
        for (name, config) in configs {
            assert!(config.get("machine.kubelet.extraArgs.cloud-provider").is_none(), "{name}");
            assert!(
                config.get("cluster.externalCloudProvider.enabled").is_none_or(|on| on == false),
                "{name}"
            );
            assert!(config.get("machine.install.disk").is_none(), "{name}: the image is installed already");
        }
    }
}

#[test]
fn without_an_own_address_the_subnet_counts_and_without_either_it_is_refused() {
    let cb = in_cloud(butler_api::Provider::Gcp, "v1.9.2");
    let configs = rendered_at(&cb, json!({"subnet": "10.128.0.0/20"}), "198.51.100.7", None).unwrap();
    assert_eq!(texts(&configs["prod-cp-0"], "cluster.etcd.advertisedSubnets"), ["10.128.0.0/20"]);
    let failure = rendered_at(&cb, json!({}), "198.51.100.7", None).unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::InvalidConfig, "NodeNetworkUnknown"));
    assert!(failure.remedy.contains("network.subnet"), "{}", failure.remedy);
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

/// The virtual address, a fixed one and the MTU are of one card: said in one place, on every control plane and in every version.
#[test]
fn mtu_fixed_and_virtual_address_are_of_one_card() {
    let network = json!({
        "subnet": "10.40.0.0/24", "gateway": "10.40.0.1",
        "nodeAddresses": {"start": "10.40.0.11", "end": "10.40.0.19"},
    });
    let mut cb = cluster("ha");
    cb.spec.addons.control_plane_ha.type_ = butler_api::ControlPlaneHaType::TalosVip;
    cb.spec.network.mtu = Some(9000);
    let configs = rendered(&cb, network.clone()).unwrap();
    for (index, name) in ["prod-cp-0", "prod-cp-1", "prod-cp-2"].into_iter().enumerate() {
        let links = configs[name].get("machine.network.interfaces").and_then(Value::as_array).unwrap();
        assert_eq!(links.len(), 1, "{name}: {links:?}");
        let link = &links[0];
        assert_eq!((&link["mtu"], &link["vip"]["ip"]), (&json!(9000), &json!("10.40.0.200")), "{name}");
        assert_eq!(link["addresses"], json!([format!("10.40.0.{}/24", 11 + index)]), "{name}");
        assert_eq!(link["routes"][0]["gateway"], "10.40.0.1", "{name}");
    }
    let worker = configs["prod-worker-0"].get("machine.network.interfaces").unwrap();
    assert_eq!((&worker[0]["mtu"], &worker[0]["vip"]), (&json!(9000), &Value::Null));
    // By DHCP, the MTU does not take the lease away.
    let configs = rendered(&cb, json!({})).unwrap();
    let link = &configs["prod-cp-1"].get("machine.network.interfaces").unwrap()[0];
    assert_eq!(
        (&link["dhcp"], &link["mtu"], &link["vip"]["ip"]),
        (&json!(true), &json!(9000), &json!("10.40.0.200"))
    );
}

/// Texts of a user are written as what they are, whatever they look like; and where they can't be that, they are refused by
/// name and not made to fit.
#[test]
fn quotes_newlines_and_dollars_stay_what_they_are() {
    let odd =
        ["it's \"quoted\"", "two\nlines: yes", "${HOME} $(id) {{ .Values.x }}", "# no comment", "- a", "yes"];
    for text in odd {
        let mut cb = cluster("ha");
        let value = json!({"kernel.odd": text}).to_string();
        let patch = json!({"op": "add", "path": "/machine/sysctls", "value": value});
        cb.spec.talos.config_patches = vec![serde_json::from_value(patch).unwrap()];
        let configs = rendered(&cb, json!({})).unwrap();
        let sysctls = &configs["prod-worker-0"].main().unwrap()["machine"]["sysctls"];
        assert_eq!(sysctls["kernel.odd"], text);
    }
    let mut cb = cluster("ha");
    cb.spec.cluster.workers.as_mut().unwrap().labels.insert("odd".to_owned(), "a\"${b}".to_owned());
    let failure = rendered(&cb, json!({})).unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::InvalidConfig, "TalosConfigInvalid"));
    assert!(failure.message.contains("nodeLabels[odd]"), "{}", failure.message);
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
