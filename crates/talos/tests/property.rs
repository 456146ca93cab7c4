//! Any valid intent gives a valid config, for every contract.
//!
//! With `BUTLER_TALOS_CORPUS=DIR`, every config is also written to `DIR/<minor>/<number>-<role>.yaml`, so that Talos' own
//! code can be asked about each of them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use butler_talos::*;
use jiff::Timestamp;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

fn now() -> Timestamp {
    "2026-06-01T00:00:00Z".parse().unwrap()
}

fn bundle() -> &'static SecretsBundle {
    static BUNDLE: OnceLock<SecretsBundle> = OnceLock::new();
    BUNDLE.get_or_init(|| SecretsBundle::from_yaml(include_str!("data/secrets.yaml"), now()).unwrap())
}

/// Node addresses are in 192.168.0.0/16, load balancers and shared addresses too, pods and services elsewhere.
fn node_address() -> impl Strategy<Value = IpAddr> {
    (1u8..=200).prop_map(|last| IpAddr::from([192, 168, 7, last]))
}

fn name() -> impl Strategy<Value = String> {
    "[a-z][a-z0-9]{0,10}(-[a-z0-9]{1,8})?"
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{1,8}",
        Just("true".into()),
        Just("1.10".into()),
        Just("0x10".into()),
        Just(String::new()),
        Just("off".into())
    ]
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map("([a-z]{1,8}\\.example/)?[a-z][a-z0-9._-]{0,8}[a-z0-9]", text(), 0..4)
}

fn mirrors() -> impl Strategy<Value = BTreeMap<String, Mirror>> {
    let mirror = (
        prop::collection::vec("https?://[a-z]{1,8}(:[1-9][0-9]{1,3})?(/v2/[a-z]{1,5})?", 1..3),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(endpoints, override_path, skip_fallback)| Mirror {
            endpoints,
            override_path,
            skip_fallback,
        });
    prop::collection::btree_map(prop_oneof!["[a-z]{2,8}\\.(io|com)", Just("*".to_owned())], mirror, 0..3)
}

fn links() -> impl Strategy<Value = Vec<Link>> {
    let mtu = prop::option::of(1280u32..9000);
    let link = (any::<bool>(), any::<bool>(), mtu, any::<bool>(), 1u8..250);
    prop::collection::vec(link, 0..3).prop_map(|links| {
        let one =
            |(index, (by_mac, dhcp, mtu, route, last)): (usize, (bool, bool, Option<u32>, bool, u8))| Link {
                name: if by_mac {
                    LinkName::Mac(format!("52:54:00:00:00:0{index}"))
                } else {
                    LinkName::Name(format!("eth{index}"))
                },
                dhcp,
                addresses: if dhcp {
                    vec![]
                } else {
                    vec![Cidr::new(IpAddr::from([192, 168, 8 + index as u8, last]), 24).unwrap()]
                },
                routes: match (dhcp, route) {
                    (true, _) => vec![],
                    (false, true) => {
                        vec![Route { network: None, gateway: IpAddr::from([192, 168, 8 + index as u8, 254]) }]
                    }
                    (false, false) => vec![Route {
                        network: Some(Cidr::parse("172.20.0.0/16").unwrap()),
                        gateway: IpAddr::from([192, 168, 8 + index as u8, 254]),
                    }],
                },
                mtu,
            };
        links.into_iter().enumerate().map(one).collect()
    })
}

prop_compose! {
    fn cluster()(
        contract in prop::sample::select(Contract::ALL.to_vec()),
        name in name(),
        host in prop_oneof![Just("192.168.7.252".to_owned()), Just("api.example.com".to_owned()), Just("[fd00::9]".to_owned())],
        port in 1u16..,
        (second, pod_bits) in (0u8..90, 12u8..=24),
        flags in any::<[bool; 6]>(),
        control_planes in prop::collection::btree_set(node_address(), 1..5),
        extra_names in prop::collection::vec("[a-z]{1,8}\\.example\\.org", 0..3),
        kubernetes in 0u32..6,
        time_servers in prop::collection::vec("[a-z]{1,8}\\.ntp\\.org", 0..3),
        nameservers in prop::collection::vec((1u8..).prop_map(|n| IpAddr::from([9, 9, 9, n])), 0..3),
        registry_mirrors in mirrors(),
        installer in prop_oneof![
            Just(Installer::Stock),
            "[0-9a-f]{64}".prop_map(Installer::factory),
            Just(Installer::Image("registry.example.com/installer:v1.2.3".into())),
        ],
    ) -> ClusterIntent {
        let endpoint = Endpoint::parse(&format!("https://{host}:{port}")).unwrap();
        let mut cluster = ClusterIntent::new(name, endpoint, contract.default_talos());
        let (first, last) = contract.kubernetes_minors();
        cluster.kubernetes = KubernetesVersion::parse(&format!("1.{}.4", (first + kubernetes).min(last))).unwrap();
        cluster.pod_networks = vec![Cidr::new(IpAddr::from([10, 100 + second, 0, 0]), pod_bits).unwrap().network()];
        cluster.service_networks = vec![Cidr::parse("10.0.0.0/12").unwrap()];
        cluster.cni = if flags[0] { Cni::None } else { Cni::Flannel };
        cluster.kube_proxy = flags[1];
        cluster.kube_prism_port = (!flags[2]).then_some(KUBE_PRISM_PORT);
        cluster.vip = flags[3].then(|| IpAddr::from([192, 168, 7, 250]));
        cluster.schedule_on_control_planes = flags[4];
        cluster.external_cloud_provider = flags[5];
        cluster.control_planes = control_planes.into_iter().collect();
        cluster.extra_names = extra_names;
        cluster.time_servers = time_servers;
        cluster.nameservers = nameservers;
        cluster.registry_mirrors = registry_mirrors;
        cluster.installer = installer;
        cluster
    }
}

prop_compose! {
    fn node(cluster: ClusterIntent)(
        role in prop::sample::select(vec![Role::ControlPlane, Role::Worker]),
        hostname in name(),
        selector in any::<bool>(),
        wipe in any::<bool>(),
        links in links(),
        vip_by_mac in any::<bool>(),
        loopback in any::<bool>(),
        labels in labels(),
        annotations in labels(),
        disks in prop::collection::vec(any::<(bool, bool)>(), 0..3),
        mount in any::<bool>(),
        pod in any::<bool>(),
        sysctls in prop::collection::btree_map("net\\.[a-z]{1,5}", "[0-9]{1,3}", 0..3),
        kernel_modules in prop::collection::vec("[a-z_]{2,8}", 0..2),
    ) -> NodeIntent {
        let mut node = NodeIntent::new(role, hostname);
        node.address = match role {
            Role::ControlPlane => cluster.control_planes.first().copied(),
            Role::Worker => Some(IpAddr::V4(Ipv4Addr::new(192, 168, 7, 240))),
        };
        node.install_disk = Some(if selector {
            InstallDisk::Selector([("size".to_owned(), ">= 100GB".to_owned()), ("type".to_owned(), "ssd".to_owned())].into())
        } else {
            InstallDisk::Path("/dev/vda".into())
        });
        node.wipe = wipe;
        node.vip_link = Some(match links.first() {
            Some(link) => link.name.clone(),
            None if vip_by_mac => LinkName::Mac("52:54:00:00:00:aa".into()),
            None => LinkName::Name("eth0".into()),
        });
        node.links = links;
        if loopback {
            node.loopback = vec![IpAddr::from([192, 168, 7, 251])];
            node.node_networks = vec![Cidr::parse("192.168.0.0/16").unwrap()];
        }
        node.labels = labels;
        node.annotations = annotations;
        node.extra_disks = disks
            .into_iter()
            .enumerate()
            .map(|(index, (by_id, kubelet_mount))| ExtraDisk {
                name: format!("data-{index}"),
                device: if by_id { format!("/dev/disk/by-id/x{index}") } else { format!("/dev/vd{index}") },
                kubelet_mount,
            })
            .collect();
        node.kubelet_mounts = if mount { vec!["/var/lib/longhorn".into()] } else { vec![] };
        if pod {
            node.static_pods = vec![serde_json::json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c", "image": "i", "args": ["a\nb", "yes"]}]},
            })];
        }
        node.sysctls = sysctls;
        node.kernel_modules = kernel_modules;
        node
    }
}

fn spec() -> impl Strategy<Value = (ClusterIntent, NodeIntent)> {
    cluster().prop_flat_map(|cluster| (Just(cluster.clone()), node(cluster)))
}

/// For Talos' own code to look at.
fn keep(contract: Contract, role: Role, text: &str) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let Some(folder) = std::env::var_os("BUTLER_TALOS_CORPUS").map(PathBuf::from) else { return };
    let folder = folder.join(contract.to_string());
    std::fs::create_dir_all(&folder).unwrap();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::fs::write(folder.join(format!("{number:05}-{}.yaml", role.name())), text).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_valid_spec_gives_a_valid_config((cluster, node) in spec()) {
        let contract = cluster.talos.contract();
        let config = render(&cluster, &node, bundle()).unwrap();
        let text = config.to_yaml();
        keep(contract, node.role, &text);
        let again = MachineConfig::from_yaml(&text, Some(contract));
        prop_assert!(again.as_ref().is_ok_and(|again| *again == config), "{:?}", again);
        let errors = |problems: Vec<Problem>| problems.into_iter().filter(|p| p.severity == Severity::Error).collect::<Vec<_>>();
        prop_assert_eq!(errors(check_cluster(&cluster, std::slice::from_ref(&node))).into_iter().filter(|p| p.path != "nodes").collect::<Vec<_>>(), vec![]);
        for mode in [Mode::Metal, Mode::Cloud, Mode::Container] {
            prop_assert_eq!(errors(validate_text(&text, mode, Some(contract))), vec![]);
        }
        let shown = format!("{config:?} {:?}", config.documents());
        prop_assert!(secrets().iter().all(|secret| !shown.contains(secret)), "{}", shown);
    }

    /// Damage anywhere: problems with places, and not one of them shows a secret.
    #[test]
    fn a_broken_config_shows_no_secret(
        (cluster, node) in spec(),
        cut in any::<prop::sample::Index>(),
        what in prop::sample::select(vec![": ", "\n", "- ", "\"", "[", "{", "  ", "\t", "&a ", "*a", "!!int ", "\u{0}", "key: ["]),
        remove in 0usize..20,
    ) {
        let contract = cluster.talos.contract();
        let text = render(&cluster, &node, bundle()).unwrap().to_yaml();
        let at = cut.index(text.len());
        let end = (at + remove).min(text.len());
        prop_assume!(text.is_char_boundary(at) && text.is_char_boundary(end));
        let broken = format!("{}{what}{}", &text[..at], &text[end..]);
        let problems = validate_text(&broken, Mode::Metal, Some(contract));
        let shown = problems.iter().map(|p| format!("{p} {p:?}\n")).collect::<String>();
        prop_assert!(secrets().iter().all(|secret| !shown.contains(secret)), "{}", shown);
        let patched = Patch::parse("p", &broken).and_then(|patch| {
            let config = MachineConfig::from_yaml(&text, Some(contract)).unwrap();
            patch.apply(&config, contract)
        });
        let shown = format!("{patched:?} {}", patched.as_ref().err().map(ToString::to_string).unwrap_or_default());
        prop_assert!(secrets().iter().all(|secret| !shown.contains(secret)), "{}", shown);
    }

    /// Whatever is read as secrets: an answer, and never the text itself.
    #[test]
    fn broken_secrets_are_not_shown(cut in any::<prop::sample::Index>(), remove in 1usize..40) {
        let text = bundle().to_yaml();
        let at = cut.index(text.len());
        let broken = format!("{}{}", &text[..at], &text[(at + remove).min(text.len())..]);
        let read = SecretsBundle::from_yaml(&broken, now());
        let shown = format!("{read:?} {}", read.as_ref().err().map(ToString::to_string).unwrap_or_default());
        prop_assert!(secrets().iter().all(|secret| !shown.contains(secret)), "{}", shown);
    }
}

/// Texts that must not turn up anywhere: whole values, and pieces of keys.
fn secrets() -> &'static [String] {
    static SECRETS: OnceLock<Vec<String>> = OnceLock::new();
    SECRETS.get_or_init(|| {
        let mut found = Vec::new();
        for line in bundle().to_yaml().lines() {
            let Some((key, value)) = line.trim().split_once(": ") else { continue };
            // The cluster's id tells clusters apart; it opens nothing. Certificates are public.
            if !matches!(key, "crt" | "id") {
                found.push(value[..value.len().min(40)].to_owned());
                found.extend((value.len() > 200).then(|| value[150..190].to_owned()));
            }
        }
        assert_eq!(found.len(), 4 + 2 * 4 + 1, "four secrets, and five keys, one of them short: {found:?}");
        found
    })
}
