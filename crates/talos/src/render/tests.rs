//! Golden files per contract, and what each setting turns into.

use super::*;
use crate::contract::{Contract, TalosVersion};
use crate::intent::{Cidr, Cni, Endpoint, ExtraDisk, InstallDisk, Installer, Mirror, Route};
use crate::secrets::tests::bundle;
use std::path::PathBuf;

fn plain(contract: Contract) -> ClusterIntent {
    let endpoint = Endpoint::parse("https://10.40.0.200:6443").unwrap();
    ClusterIntent::new("prod", endpoint, contract.default_talos())
}

/// A cluster with everything that can be said.
pub(crate) fn full(contract: Contract) -> ClusterIntent {
    let mut cluster = plain(contract);
    cluster.control_planes =
        ["10.40.0.201", "10.40.0.202", "10.40.0.203"].map(|ip| ip.parse().unwrap()).to_vec();
    cluster.extra_names = vec!["api.example.com".into()];
    cluster.vip = Some("10.40.0.200".parse().unwrap());
    cluster.time_servers = vec!["ntp.example.com".into()];
    cluster.nameservers = vec!["10.40.0.1".parse().unwrap()];
    cluster.registry_mirrors = [
        (
            "docker.io".to_owned(),
            Mirror {
                endpoints: vec!["https://mirror.example.com/v2/hub".into()],
                override_path: true,
                skip_fallback: true,
            },
        ),
        (
            "ghcr.io".to_owned(),
            Mirror { endpoints: vec!["https://mirror.example.com".into()], ..Mirror::default() },
        ),
    ]
    .into();
    cluster.installer =
        Installer::factory("ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515");
    cluster
}

pub(crate) fn full_node(role: Role) -> NodeIntent {
    let mut node = NodeIntent::new(role, if role == Role::Worker { "prod-w-1" } else { "prod-cp-1" });
    let address = if role == Role::Worker { "10.40.0.211" } else { "10.40.0.201" };
    node.address = Some(address.parse().unwrap());
    node.install_disk = Some(InstallDisk::Path("/dev/vda".into()));
    node.links = vec![
        Link {
            name: LinkName::Name("eth0".into()),
            dhcp: false,
            addresses: vec![Cidr::parse(&format!("{address}/24")).unwrap()],
            routes: vec![
                Route { network: None, gateway: "10.40.0.1".parse().unwrap() },
                Route {
                    network: Some(Cidr::parse("172.16.0.0/12").unwrap()),
                    gateway: "10.40.0.2".parse().unwrap(),
                },
            ],
            mtu: Some(1400),
        },
        Link {
            name: LinkName::Mac("52:54:00:AB:CD:EF".into()),
            dhcp: true,
            addresses: vec![],
            routes: vec![],
            mtu: None,
        },
    ];
    node.vip_link = Some(LinkName::Name("eth0".into()));
    node.loopback = vec!["10.40.0.250".parse().unwrap()];
    node.node_networks = vec![Cidr::parse("10.40.0.0/24").unwrap()];
    node.labels = [("example.com/rack".to_owned(), "r1".to_owned())].into();
    node.taints = [("dedicated".to_owned(), "db:NoSchedule".to_owned())].into();
    node.extra_disks = vec![
        ExtraDisk { name: "longhorn".into(), device: "/dev/vdb".into(), kubelet_mount: true },
        ExtraDisk { name: "logs".into(), device: "/dev/disk/by-id/scsi-1".into(), kubelet_mount: false },
    ];
    node.kubelet_mounts = vec!["/var/lib/longhorn".into()];
    node.kubelet_args = [("provider-id".to_owned(), "sim://prod-cp-1".to_owned())].into();
    node.static_pods = vec![json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kube-vip", "namespace": "kube-system"},
        "spec": {"containers": [{"name": "kube-vip", "image": "ghcr.io/kube-vip/kube-vip:v0.8.7"}]},
    })];
    node.sysctls = [("vm.nr_hugepages".to_owned(), "1024".to_owned())].into();
    node.kernel_modules = vec!["nvme_tcp".into()];
    node
}

/// The text with everything that is drawn or signed taken out, so that a golden file can be read.
fn without_secrets(text: &str) -> String {
    text.lines()
        .map(|line| match line.split_once(": ") {
            Some((key, value)) if value.len() > 100 && value.starts_with("LS0t") => format!("{key}: <pem>\n"),
            _ => format!("{line}\n"),
        })
        .collect()
}

/// Compares with a file, or writes it when `BUTLER_WRITE_GOLDEN` is set.
fn golden(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    if std::env::var_os("BUTLER_WRITE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "{name} differs; found:\n{found}");
}

#[test]
fn golden_files() {
    for contract in Contract::ALL {
        for role in [Role::ControlPlane, Role::Worker] {
            let config = render(&full(contract), &full_node(role), bundle()).unwrap();
            golden(&format!("v{contract}/full-{}.yaml", role.name()), &without_secrets(&config.to_yaml()));
            let mut simple = NodeIntent::new(role, "node-1");
            simple.install_disk = Some(InstallDisk::Path("/dev/sda".into()));
            let config = render(&plain(contract), &simple, bundle()).unwrap();
            golden(&format!("v{contract}/plain-{}.yaml", role.name()), &without_secrets(&config.to_yaml()));
        }
    }
}

fn config(change: impl FnOnce(&mut ClusterIntent, &mut NodeIntent), contract: Contract) -> MachineConfig {
    let (mut cluster, mut node) = (plain(contract), NodeIntent::new(Role::ControlPlane, "cp-1"));
    change(&mut cluster, &mut node);
    render(&cluster, &node, bundle()).unwrap()
}

#[test]
fn a_single_node_does_the_workers_work() {
    for contract in Contract::ALL {
        let label = |config: &MachineConfig| config.get("machine.nodeLabels").is_some();
        let usual = config(|_, _| {}, contract);
        assert!(label(&usual) && usual.get("cluster.allowSchedulingOnControlPlanes").is_none());
        let single = config(|cluster, _| cluster.schedule_on_control_planes = true, contract);
        assert!(!label(&single));
        assert_eq!(single.get("cluster.allowSchedulingOnControlPlanes"), Some(&json!(true)));
    }
}

#[test]
fn a_shared_address_alone_keeps_dhcp() {
    for name in [LinkName::Name("eth0".into()), LinkName::Mac("52:54:00:ab:cd:ef".into())] {
        let change = |cluster: &mut ClusterIntent, node: &mut NodeIntent| {
            cluster.vip = Some("10.40.0.200".parse().unwrap());
            node.vip_link = Some(name.clone());
            node.loopback = vec!["10.40.0.201".parse().unwrap()];
        };
        let old = config(change, Contract::V1_11);
        let interfaces = old.get("machine.network.interfaces").unwrap();
        assert_eq!(interfaces[0]["dhcp"], json!(true));
        assert_eq!(interfaces[0]["vip"]["ip"], json!("10.40.0.200"));
        assert_eq!(interfaces[1], json!({"interface": "lo", "addresses": ["10.40.0.201/32"]}));
        let new = config(change, Contract::V1_12);
        let link = if matches!(name, LinkName::Mac(_)) { "net0" } else { "eth0" };
        assert_eq!(new.document("Layer2VIPConfig", None).unwrap()["link"], json!(link));
        assert!(new.document("LinkConfig", None).is_none() && new.document("DHCPv4Config", None).is_none());
        assert_eq!(new.get("machine.network.interfaces").unwrap()[0]["interface"], json!("lo"));
    }
}

#[test]
fn a_worker_never_has_the_shared_address() {
    for contract in Contract::ALL {
        let config = config(
            |cluster, node| {
                cluster.vip = Some("10.40.0.200".parse().unwrap());
                node.role = Role::Worker;
                node.vip_link = Some(LinkName::Name("eth0".into()));
            },
            contract,
        );
        assert!(
            !config.to_yaml().contains("10.40.0.200\n") && config.document("Layer2VIPConfig", None).is_none()
        );
    }
}

#[test]
fn what_cannot_be_rendered_is_refused() {
    let mut cluster = plain(Contract::V1_9);
    let refused =
        |cluster: &ClusterIntent, node: &NodeIntent| render(cluster, node, bundle()).unwrap_err().to_string();
    let node = NodeIntent::new(Role::ControlPlane, "cp-1");
    cluster.vip = Some("10.40.0.200".parse().unwrap());
    assert!(refused(&cluster, &node).contains("cp-1: vip_link must name"));
    cluster.vip = None;
    for (name, device) in [("", "/dev/sdb"), ("a_b", "/dev/sdb"), ("a", "sdb"), ("a", "/dev/\"")] {
        let mut node = node.clone();
        node.extra_disks = vec![ExtraDisk { name: name.into(), device: device.into(), kubelet_mount: true }];
        assert!(refused(&cluster, &node).contains("extra_disks has the"));
    }
    let mut node = node.clone();
    node.links = vec![Link {
        name: LinkName::Mac("xx".into()),
        dhcp: true,
        addresses: vec![],
        routes: vec![],
        mtu: None,
    }];
    assert!(refused(&cluster, &node).contains("not a hardware address"));
}

#[test]
fn the_defaults_can_be_turned_round() {
    let config = config(
        |cluster, _| {
            cluster.cni = Cni::Flannel;
            cluster.kube_proxy = true;
            cluster.kube_prism_port = None;
            cluster.discovery = false;
            cluster.external_cloud_provider = true;
            cluster.talos = TalosVersion::parse("v1.10.1").unwrap();
        },
        Contract::V1_10,
    );
    assert_eq!(config.get("cluster.network.cni"), None);
    assert_eq!(config.get("cluster.proxy.disabled"), None);
    assert_eq!(config.get("machine.features.kubePrism"), None);
    assert_eq!(config.get("cluster.discovery.enabled"), Some(&json!(false)));
    assert_eq!(config.get("cluster.externalCloudProvider.enabled"), Some(&json!(true)));
    assert_eq!(config.text("machine.install.image"), Some("ghcr.io/siderolabs/installer:v1.10.1"));
}

#[test]
fn what_is_rendered_is_read_again() {
    for contract in Contract::ALL {
        for role in [Role::ControlPlane, Role::Worker] {
            let config = render(&full(contract), &full_node(role), bundle()).unwrap();
            let again = MachineConfig::from_yaml(&config.to_yaml(), Some(contract)).unwrap();
            assert_eq!(again.to_yaml(), config.to_yaml());
            assert!(again == config);
        }
    }
}
