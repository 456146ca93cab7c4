//! Each rule is broken once, in a config that is good otherwise.
//!
//! With `BUTLER_TALOS_REFUSED=DIR`, each config that Talos is said to refuse is written to `DIR/<minor>/<number>-<mode>.yaml`,
//! so that Talos' own code can be asked whether it does.

use super::*;
use crate::intent::Role;
use crate::render::tests::{full, full_node};
use crate::secrets::tests::{bundle, secret_texts};
use serde_json::json;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) fn base(contract: Contract, role: Role) -> MachineConfig {
    crate::render(&full(contract), &full_node(role), bundle()).unwrap()
}

/// The config with a value of the v1alpha1 document set (or removed, when it is null).
pub(super) fn with(config: &MachineConfig, pointer: &str, value: Value) -> MachineConfig {
    let mut config = config.clone();
    let main = config.documents.iter_mut().find(|d| d.kind == crate::config::MAIN).unwrap();
    set(&mut main.value, pointer, value);
    config
}

fn set(root: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let mut place = root;
    for part in parent.split('/').skip(1) {
        place = match place {
            Value::Array(items) => &mut items[part.parse::<usize>().unwrap()],
            map => {
                if map.get(part).is_none() {
                    map[part] = json!({});
                }
                &mut map[part]
            }
        };
    }
    match (place, value) {
        (Value::Object(map), Value::Null) => drop(map.remove(key)),
        (Value::Array(items), value) => items[key.parse::<usize>().unwrap()] = value,
        (place, value) => place[key] = value,
    }
}

fn with_document(config: &MachineConfig, kind: &'static str, value: Value) -> MachineConfig {
    let mut config = config.clone();
    config.documents.retain(|document| {
        document.kind != kind || document.name() != value["name"].as_str().unwrap_or_default()
    });
    config.documents.push(crate::config::Document::new(kind, value));
    config
}

fn refused_by_talos(config: &MachineConfig, contract: Contract, mode: Mode) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let Some(folder) = std::env::var_os("BUTLER_TALOS_REFUSED").map(PathBuf::from) else { return };
    let folder = folder.join(contract.to_string());
    std::fs::create_dir_all(&folder).unwrap();
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::fs::write(folder.join(format!("{number:04}-{}.yaml", mode.name())), config.to_yaml()).unwrap();
}

/// One problem with that text and path, of that source, and no secret in any.
fn expect(config: &MachineConfig, contract: Contract, mode: Mode, source: Source, path: &str, text: &str) {
    let found = validate(config, mode, Some(contract));
    let hit = found.iter().find(|problem| problem.path == path && problem.message.contains(text));
    let hit = hit.unwrap_or_else(|| panic!("{path}: {text}\nfound: {found:#?}"));
    assert_eq!(hit.source, source, "{hit}");
    for secret in secret_texts(bundle()) {
        assert!(!format!("{found:?}").contains(&secret));
    }
    if source == Source::Talos && hit.severity == Severity::Error {
        refused_by_talos(config, contract, mode);
    }
}

#[test]
fn a_good_config_has_no_problems() {
    for contract in Contract::ALL {
        for role in [Role::ControlPlane, Role::Worker] {
            for mode in [Mode::Metal, Mode::Cloud, Mode::Container] {
                let config = base(contract, role);
                assert_eq!(validate(&config, mode, Some(contract)), []);
                assert_eq!(validate(&config, mode, None), []);
                assert_eq!(validate_text(&config.to_yaml(), mode, None), []);
            }
        }
    }
}

#[test]
fn what_talos_checks_on_control_planes() {
    let good = base(Contract::V1_9, Role::ControlPlane);
    let cases: Vec<(&str, Value, &str, &str)> = vec![
        ("/machine", Value::Null, "machine", "machine instructions are required"),
        ("/cluster", Value::Null, "cluster", "cluster instructions are required"),
        ("/cluster/controlPlane", json!({}), "cluster.controlPlane.endpoint", "endpoint is required"),
        (
            "/cluster/controlPlane/endpoint",
            json!("https://:6443"),
            "cluster.controlPlane.endpoint",
            "hostname must not be blank",
        ),
        (
            "/cluster/controlPlane/endpoint",
            json!("https://a:99999"),
            "cluster.controlPlane.endpoint",
            "port number must be between",
        ),
        ("/cluster/network/dnsDomain", json!("a b"), "cluster.network.dnsDomain", "is not a valid DNS name"),
        (
            "/cluster/externalCloudProvider",
            json!({"manifests": ["https://a/b"]}),
            "cluster.externalCloudProvider",
            "is disabled, but manifests",
        ),
        (
            "/cluster/externalCloudProvider",
            json!({"enabled": true, "manifests": ["x"]}),
            "cluster.externalCloudProvider.manifests[0]",
            "hostname must not be blank",
        ),
        ("/cluster/etcd/ca", Value::Null, "cluster.etcd.ca", "key/cert combination should not be empty"),
        (
            "/cluster/etcd/subnet",
            json!("10.0.0.0/8"),
            "cluster.etcd.subnet",
            "can't be set when advertised subnets are set",
        ),
        (
            "/cluster/etcd/advertisedSubnets",
            json!(["x"]),
            "cluster.etcd.advertisedSubnets[0]",
            "etcd advertised subnet is not valid",
        ),
        (
            "/cluster/etcd/listenSubnets",
            json!(["!10.0.0.0/8", "y"]),
            "cluster.etcd.listenSubnets[1]",
            "etcd listen subnet is not valid",
        ),
        (
            "/cluster/inlineManifests",
            json!([{"name": "a", "contents": ""}, {"name": "a", "contents": ""}]),
            "cluster.inlineManifests[1].name",
            "is duplicate",
        ),
        (
            "/cluster/inlineManifests",
            json!([{"name": " ", "contents": ""}]),
            "cluster.inlineManifests[0].name",
            "can't be empty",
        ),
        ("/cluster/id", Value::Null, "cluster.id", "discovery service requires .cluster.id"),
        ("/cluster/secret", Value::Null, "cluster.secret", "discovery service requires .cluster.secret"),
        (
            "/cluster/discovery/registries/service/endpoint",
            json!("https://d/x"),
            "cluster.discovery.registries.service.endpoint",
            "path should be empty",
        ),
        (
            "/cluster/apiServer/resources",
            json!({"requests": {"disk": "1"}}),
            "cluster.apiServer.resources.requests[disk]",
            "unsupported pod resource \"disk\"",
        ),
        (
            "/cluster/apiServer/authorizationConfig",
            json!([{"type": "X", "name": "x"}]),
            "cluster.apiServer.authorizationConfig[0]",
            "type X is not allowed",
        ),
        (
            "/cluster/network/cni",
            json!({"name": "calico"}),
            "cluster.network.cni.name",
            "cni name should be one of",
        ),
        (
            "/cluster/network/cni",
            json!({"name": "none", "urls": ["https://a"]}),
            "cluster.network.cni.urls",
            "should be empty for \"none\"",
        ),
        (
            "/cluster/network/cni",
            json!({"name": "none", "flannel": {"extraArgs": ["x"]}}),
            "cluster.network.cni.flannel.extraArgs",
            "should be empty for",
        ),
        (
            "/machine/install",
            Value::Null,
            "machine.install",
            "install instructions are required in \"metal\" mode",
        ),
        (
            "/machine/install/disk",
            Value::Null,
            "machine.install",
            "either install disk or diskSelector should be defined",
        ),
        (
            "/machine/install/diskSelector",
            json!({"size": "x"}),
            "machine.install.diskSelector.size",
            "failed to parse disk size x",
        ),
        (
            "/machine/install/diskSelector",
            json!({"type": "tape"}),
            "machine.install.diskSelector.type",
            "unsupported disk type",
        ),
        ("/machine/type", json!("master"), "machine.type", "unknown machine type \"master\""),
        ("/machine/ca", Value::Null, "machine.ca", "issuing CA is required"),
        ("/machine/ca/key", json!(""), "machine.ca.key", "issuing CA key is required for controlplane nodes"),
        (
            "/machine/network/interfaces/0/deviceSelector",
            json!({"driver": "x"}),
            "machine.network.interfaces[0]",
            "mutually exclusive",
        ),
        (
            "/machine/network/interfaces/0/interface",
            Value::Null,
            "machine.network.interfaces[0]",
            "required either config section",
        ),
        (
            "/machine/network/interfaces/1/deviceSelector",
            json!({}),
            "machine.network.interfaces[1]",
            "should contain at least one field",
        ),
        (
            "/machine/network/interfaces/0/addresses",
            json!(["10.0.0.0.1/24"]),
            "machine.network.interfaces[0].addresses[0]",
            "failed to parse IP address",
        ),
        (
            "/machine/network/interfaces/0/vip/ip",
            json!("x"),
            "machine.network.interfaces[0].vip.ip",
            "failed to parse \"x\" as IP address",
        ),
        (
            "/machine/network/interfaces/0/routes",
            json!([{"network": "10/8", "gateway": "10.0.0.1"}]),
            "machine.network.interfaces[0].routes[0].network",
            "invalid network address",
        ),
        (
            "/machine/network/interfaces/0/routes",
            json!([{"network": "", "gateway": ""}]),
            "machine.network.interfaces[0].routes[0]",
            "either network or gateway should be set",
        ),
        (
            "/machine/network/interfaces/0/bond",
            json!({"interfaces": ["a"], "mode": "fast"}),
            "machine.network.interfaces[0].bond.mode",
            "invalid bond mode",
        ),
        (
            "/machine/network/interfaces/0/bond",
            json!({"interfaces": ["a"], "mode": "802.3ad", "updelay": 5}),
            "machine.network.interfaces[0].bond.updelay",
            "can't be set if miiMon is zero",
        ),
        (
            "/machine/network/interfaces/0/bond",
            json!({"interfaces": ["a"], "mode": "balance-rr", "lacpRate": "fast"}),
            "machine.network.interfaces[0].bond.lacpRate",
            "only available in 802.3ad mode",
        ),
        (
            "/machine/network/interfaces/0/bond",
            json!({"interfaces": ["lo"], "mode": "802.3ad"}),
            "machine.network.interfaces[2]",
            "shouldn't have any addressing methods",
        ),
        (
            "/machine/network/interfaces/0/wireguard",
            json!({"privateKey": "QUJD"}),
            "machine.network.interfaces[0].wireguard.privateKey",
            "private key is invalid",
        ),
        (
            "/machine/network/interfaces/0/vlans",
            json!([{"vlanId": 5, "addresses": ["x"]}]),
            "machine.network.interfaces[0].vlans[0]",
            "failed to parse IP address",
        ),
        (
            "/machine/disks",
            json!([{"device": "/dev/sdb", "partitions": [{"mountpoint": "/var/a"}, {"mountpoint": "/var/b"}]}]),
            "machine.disks[0].partitions[0]",
            "occupy full disk",
        ),
        (
            "/machine/kubelet/nodeIP/validSubnets",
            json!(["10.0.0/8"]),
            "machine.kubelet.nodeIP.validSubnets[0]",
            "kubelet nodeIP subnet is not valid",
        ),
        (
            "/machine/kubelet/extraConfig",
            json!({"port": 1}),
            "machine.kubelet.extraConfig.port",
            "can't be overridden",
        ),
        (
            "/machine/systemDiskEncryption",
            json!({"state": {"provider": "luks2", "keys": []}}),
            "machine.systemDiskEncryption.state.keys",
            "no encryption keys provided",
        ),
        (
            "/machine/systemDiskEncryption",
            json!({"ephemeral": {"provider": "luks2", "keys": [{"slot": 0, "nodeID": {}}, {"slot": 0, "nodeID": {}}]}}),
            "machine.systemDiskEncryption.ephemeral.keys[1]",
            "slot 0 is already in use",
        ),
        (
            "/machine/network/kubespan",
            json!({"enabled": true, "mtu": 1000}),
            "machine.network.kubespan.mtu",
            "at least 1280",
        ),
        (
            "/machine/logging",
            json!({"destinations": [{"endpoint": "http://a:1", "format": "json_lines"}]}),
            "machine.logging.destinations[0]",
            "unexpected logging endpoint scheme",
        ),
        (
            "/machine/logging",
            json!({"destinations": [{"endpoint": "udp://a:1", "format": "text"}]}),
            "machine.logging.destinations[0]",
            "unknown logging format",
        ),
        ("/machine/nodeLabels", json!({"a/b/c": "x"}), "machine.nodeLabels[a/b/c]", "too many slashes"),
        (
            "/machine/nodeAnnotations",
            json!({"-x": "y"}),
            "machine.nodeAnnotations[-x]",
            "invalid machine node annotations",
        ),
        ("/machine/nodeTaints", json!({"a": "b:Never"}), "machine.nodeTaints[a]", "invalid taint effect"),
        (
            "/machine/features/kubernetesTalosAPIAccess",
            json!({"enabled": true, "allowedRoles": ["os:king"]}),
            "machine.features.kubernetesTalosAPIAccess.allowedRoles[0]",
            "invalid role",
        ),
        (
            "/machine/features/nodeAddressSortAlgorithm",
            json!("v9"),
            "machine.features.nodeAddressSortAlgorithm",
            "invalid node address sort algorithm",
        ),
        ("/persist", json!(false), "persist", ".persist should be enabled"),
        (
            "/machine/registries",
            json!({"mirrors": {"ghcr.io": null}}),
            "machine.registries.mirrors[ghcr.io]",
            "is null",
        ),
    ];
    for (pointer, value, path, text) in cases {
        expect(&with(&good, pointer, value), Contract::V1_9, Mode::Metal, Source::Talos, path, text);
    }
}

#[test]
fn what_talos_checks_on_workers() {
    let good = base(Contract::V1_9, Role::Worker);
    let key = base64_key();
    for (pointer, value, path, text) in [
        ("/machine/ca/key", json!(key), "machine.ca.key", "issuing Talos API CA key is not allowed"),
        ("/cluster/ca/key", json!(key), "cluster.ca.key", "issuing Kubernetes API CA key is not allowed"),
        (
            "/cluster/etcd",
            json!({"ca": {"crt": key, "key": key}}),
            "cluster.etcd",
            "only allowed on control plane machines",
        ),
        (
            "/machine/network/interfaces/0/vip",
            json!({"ip": "10.0.0.1"}),
            "machine.network.interfaces[0].vip",
            "not allowed on non-controlplane",
        ),
        (
            "/machine/features/kubernetesTalosAPIAccess",
            json!({"enabled": true}),
            "machine.features.kubernetesTalosAPIAccess",
            "can only be enabled on control plane",
        ),
    ] {
        expect(&with(&good, pointer, value), Contract::V1_9, Mode::Metal, Source::Talos, path, text);
    }
}

fn base64_key() -> String {
    crate::secrets::base64_of(bundle().etcd.cert_pem())
}

#[test]
fn modes_and_minors_differ() {
    let good = base(Contract::V1_9, Role::ControlPlane);
    let no_disk = with(&good, "/machine/install/disk", Value::Null);
    assert_eq!(validate(&no_disk, Mode::Cloud, None), []);
    let no_dns = with(&good, "/machine/features/hostDNS", Value::Null);
    assert_eq!(validate(&no_dns, Mode::Metal, None), []);
    expect(
        &no_dns,
        Contract::V1_9,
        Mode::Container,
        Source::Talos,
        "machine.features.hostDNS",
        "should be enabled in container mode",
    );
    let half = json!({"enabled": false, "forwardKubeDNSToHost": true});
    assert_eq!(validate(&with(&good, "/machine/features/hostDNS", half.clone()), Mode::Metal, None), []);
    let newest = base(Contract::V1_13, Role::ControlPlane);
    let broken = with(&newest, "/machine/features/hostDNS", half);
    expect(
        &broken,
        Contract::V1_13,
        Mode::Metal,
        Source::Talos,
        "machine.features.hostDNS",
        "requires hostDNS.enabled",
    );
    let args = with(&newest, "/machine/install/extraKernelArgs", json!(["a=b"]));
    expect(
        &args,
        Contract::V1_13,
        Mode::Metal,
        Source::Talos,
        "machine.install.extraKernelArgs",
        "can't be used together",
    );
}

#[test]
fn warnings_are_no_errors() {
    let good = base(Contract::V1_9, Role::ControlPlane);
    for (pointer, value) in [
        ("/machine/install/extensions", json!([{"image": "a"}])),
        ("/cluster/network/cni", json!({"name": "custom"})),
        ("/machine/network/interfaces/1/cidr", json!("10.1.1.1/24")),
    ] {
        let found = validate(&with(&good, pointer, value), Mode::Metal, None);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].severity, Severity::Warning);
    }
}

#[test]
fn what_talos_checks_in_documents() {
    let good = base(Contract::V1_13, Role::ControlPlane);
    for (kind, value, path, text) in [
        (
            "HostnameConfig",
            json!({"auto": "stable", "hostname": "a"}),
            "auto",
            "cannot be set at the same time",
        ),
        ("HostnameConfig", json!({}), "", "either 'auto' or 'hostname' must be set"),
        ("Layer2VIPConfig", json!({"name": "10.40.0.200"}), "link", "link must be specified"),
        ("Layer2VIPConfig", json!({"name": "x", "link": "eth0"}), "name", "must be a valid IP address"),
        (
            "TimeSyncConfig",
            json!({"ntp": {"servers": ["a"]}, "ptp": {"devices": ["b"]}}),
            "",
            "only one of ntp or ptp",
        ),
        (
            "RegistryMirrorConfig",
            json!({"name": "a", "endpoints": [{"url": "ftp://x"}]}),
            "endpoints[0].url",
            "unsupported scheme",
        ),
        ("RegistryMirrorConfig", json!({"name": "", "endpoints": []}), "name", "name must be specified"),
        ("DHCPv4Config", json!({"name": "eth0", "clientIdentifier": "duid"}), "duidRaw", "must be set"),
        (
            "UserVolumeConfig",
            json!({"name": "a_b", "provisioning": {"diskSelector": {"match": "true"}, "minSize": "1GiB"}}),
            "name",
            "can only contain",
        ),
        (
            "UserVolumeConfig",
            json!({"name": "a", "provisioning": {"minSize": "1GiB"}}),
            "provisioning.diskSelector",
            "disk selector is required",
        ),
        (
            "UserVolumeConfig",
            json!({"name": "a", "provisioning": {"diskSelector": {"match": "true"}}}),
            "provisioning",
            "min size or max size is required",
        ),
        ("VolumeConfig", json!({"name": "DATA"}), "name", "volumes are supported"),
        ("LinkAliasConfig", json!({"name": "x"}), "selector.match", "link selector is required"),
        (
            "LinkConfig",
            json!({"name": "e", "routes": [{"destination": "0.0.0.0/0", "gateway": "10.0.0.1"}]}),
            "routes[0].destination",
            "must be a valid IP prefix",
        ),
        ("VLANConfig", json!({"name": "v", "parent": "eth0"}), "vlanID", "between 1 and 4094"),
        (
            "VLANConfig",
            json!({"name": "eth0", "parent": "x", "vlanID": 4}),
            "name",
            "conflicting documents: LinkConfig/eth0 and VLANConfig/eth0",
        ),
        ("BondConfig", json!({"name": "b", "links": ["x"]}), "bondMode", "bond mode must be specified"),
        ("WireguardConfig", json!({"name": "w"}), "privateKey", "must be specified"),
        (
            "StaticHostConfig",
            json!({"name": "10.0.0.1", "hostnames": []}),
            "hostnames",
            "at least one hostname",
        ),
        ("KubeSpanConfig", json!({"enabled": true, "mtu": 100}), "mtu", "at least 1280"),
        ("BlackholeRouteConfig", json!({"name": "x"}), "name", "valid address prefix"),
        ("ExtensionServiceConfig", json!({"name": "x"}), "", "no config files found"),
        ("SideroLinkConfig", json!({"apiUrl": "http://x"}), "apiUrl", "scheme must be"),
        ("KmsgLogConfig", json!({"name": "x", "url": "http://x:1"}), "url", "scheme must be"),
        ("WatchdogTimerConfig", json!({"device": ""}), "device", "empty value"),
        (
            "NetworkRuleConfig",
            json!({"name": "x", "portSelector": {"ports": [], "protocol": "tcp"}, "ingress": []}),
            "portSelector.ports",
            "is required",
        ),
        ("ZswapConfig", json!({"maxPoolPercent": 101}), "maxPoolPercent", "between 0 and 100"),
    ] {
        expect(&with_document(&good, kind, value), Contract::V1_13, Mode::Metal, Source::Talos, path, text);
    }
}

#[test]
fn what_is_said_twice_is_refused() {
    let good = base(Contract::V1_12, Role::ControlPlane);
    for (pointer, value, path, text) in [
        (
            "/machine/network/hostname",
            json!("x"),
            "machine.network.hostname",
            "static hostname is already set",
        ),
        (
            "/machine/features/stableHostname",
            json!(true),
            "machine.features.stableHostname",
            "stable hostname is already set",
        ),
        (
            "/machine/network/nameservers",
            json!(["1.1.1.1"]),
            "machine.network.nameservers",
            "already set in v1alpha1",
        ),
        (
            "/machine/time",
            json!({"servers": ["a"]}),
            "machine.time.servers",
            "in both v1alpha1 and new-style",
        ),
    ] {
        expect(&with(&good, pointer, value), Contract::V1_12, Mode::Metal, Source::Talos, path, text);
    }
}

#[test]
fn what_talos_does_not_check() {
    let good = base(Contract::V1_11, Role::ControlPlane);
    for (pointer, value, path, text) in [
        (
            "/cluster/controlPlane/endpoint",
            json!("https://10.244.0.9:6443"),
            "cluster.controlPlane.endpoint",
            "the endpoint 10.244.0.9 lies inside 10.244.0.0/16",
        ),
        (
            "/machine/network/interfaces/0/vip/ip",
            json!("10.96.0.9"),
            "machine.network.interfaces[0].vip.ip",
            "the shared address 10.96.0.9 lies inside 10.96.0.0/12",
        ),
        (
            "/machine/network/interfaces/0/addresses",
            json!(["10.244.1.1/24"]),
            "machine.network.interfaces[0].addresses[0]",
            "the node address 10.244.1.1 lies inside",
        ),
        (
            "/cluster/network/podSubnets",
            json!(["10.96.0.0/16"]),
            "cluster.network.serviceSubnets[0]",
            "10.96.0.0/12 overlaps 10.96.0.0/16 of cluster.network.podSubnets[0]",
        ),
        (
            "/cluster/network/podSubnets",
            json!(["10.244.1.0/16"]),
            "cluster.network.podSubnets[0]",
            "did you mean 10.244.0.0/16?",
        ),
        ("/cluster/network/podSubnets", json!(["x"]), "cluster.network.podSubnets[0]", "is not a network"),
        (
            "/machine/network/interfaces/0/vip/ip",
            json!("10.40.0.199"),
            "cluster.apiServer.certSANs",
            "the shared address 10.40.0.199 is missing",
        ),
        (
            "/machine/kubelet/image",
            json!("ghcr.io/siderolabs/kubelet:v1.36.0"),
            "machine.kubelet.image",
            "Talos 1.11 runs Kubernetes 1.29 to 1.34, not 1.36.0",
        ),
        (
            "/machine/kubelet/image",
            json!("ghcr.io/siderolabs/kubelet:latest"),
            "machine.kubelet.image",
            "has no tag of the form",
        ),
        (
            "/cluster/apiServer/image",
            json!("registry.k8s.io/kube-apiserver:v1.33.0"),
            "machine.kubelet.image",
            "the kubelet (1.34) is newer than the API server (1.33)",
        ),
        (
            "/machine/kubelet/image",
            json!("ghcr.io/siderolabs/kubelet:v1.30.0"),
            "machine.kubelet.image",
            "too old for the API server",
        ),
        (
            "/cluster/discovery/enabled",
            json!(false),
            "machine.network.interfaces[2].addresses",
            "with 10.40.0.250/32 on lo, discovery must be on",
        ),
        (
            "/cluster/etcd/advertisedSubnets",
            Value::Null,
            "machine.network.interfaces[2].addresses",
            "cluster.etcd.advertisedSubnets must name",
        ),
        (
            "/machine/kubelet/nodeIP",
            Value::Null,
            "machine.network.interfaces[2].addresses",
            "machine.kubelet.nodeIP.validSubnets must name",
        ),
        (
            "/cluster/etcd/advertisedSubnets",
            json!(["!10.0.0.1/32"]),
            "cluster.etcd.advertisedSubnets",
            "no address is left",
        ),
    ] {
        expect(&with(&good, pointer, value), Contract::V1_11, Mode::Metal, Source::Butler, path, text);
    }
}

#[test]
fn what_talos_does_not_check_in_documents() {
    let good = base(Contract::V1_12, Role::ControlPlane);
    let off = with(&good, "/cluster/discovery/enabled", json!(false));
    expect(
        &off,
        Contract::V1_12,
        Mode::Metal,
        Source::Butler,
        "addresses",
        "with 10.40.0.250/32 on lo, discovery must be on",
    );
    let vip = with_document(&good, "Layer2VIPConfig", json!({"name": "10.97.0.1", "link": "eth0"}));
    expect(
        &vip,
        Contract::V1_12,
        Mode::Metal,
        Source::Butler,
        "name",
        "the shared address 10.97.0.1 lies inside 10.96.0.0/12",
    );
    let link = with_document(
        &good,
        "LinkConfig",
        json!({"name": "eth0", "addresses": [{"address": "10.244.0.1/24"}]}),
    );
    expect(
        &link,
        Contract::V1_12,
        Mode::Metal,
        Source::Butler,
        "addresses[0].address",
        "the node address 10.244.0.1 lies inside",
    );
    let worker = base(Contract::V1_12, Role::Worker);
    let worker = with_document(&worker, "Layer2VIPConfig", json!({"name": "10.40.0.200", "link": "eth0"}));
    expect(
        &worker,
        Contract::V1_12,
        Mode::Metal,
        Source::Butler,
        "",
        "a worker cannot hold the shared address",
    );
}

#[test]
fn text_is_read_strictly_and_places_are_told() {
    let text = "\
version: v1alpha1
machine:
    type: controlplane
    colour: red
    instal: {}
    certSANs: none
    install: {wipe: maybe, grubUseUKICmdline: true, disk: 7}
cluster:
    controlPlane: {endpoint: https://10.0.0.1:6443}
    network: {podSubnets: [10.0.0.0/24]}
---
apiVersion: v1alpha1
kind: HostnameConfig
auto: off
hostname: a
---
apiVersion: v1alpha1
kind: HostnameConfig
---
apiVersion: v1alpha1
kind: Nonsense
---
kind: [
";
    let found = validate_text(text, Mode::Metal, Some(Contract::V1_11));
    let shown: Vec<String> = found
        .iter()
        .map(|p| format!("{}:{}: {p}", p.mark.map_or(0, |m| m.line), p.mark.map_or(0, |m| m.column)))
        .collect();
    for wanted in [
        "2:1: machine.ca: issuing CA or some accepted CAs are required (.machine.ca, machine.acceptedCAs)",
        "4:5: machine.colour: unknown key",
        "5:5: machine.instal: unknown key, did you mean \"install\"?",
        "6:15: machine.certSANs: must be a list, not this",
        "7:21: machine.install.wipe: must be true or false, not this",
        "7:28: machine.install.grubUseUKICmdline: is not known to Talos 1.11: it came with 1.12",
        "9:20: cluster.controlPlane.endpoint: the endpoint 10.0.0.1 lies inside 10.0.0.0/24 of cluster.network.podSubnets[0]",
        "13:7: HostnameConfig is not known to Talos 1.11: it came with 1.12",
        "21:7: \"Nonsense\" is not a kind of document that Talos has",
    ] {
        assert!(shown.iter().any(|line| line == wanted), "{wanted}\n{shown:#?}");
    }
    // A broken document at the end hides nothing before it.
    assert!(found.iter().any(|p| p.mark.is_some_and(|m| m.line >= 23)), "{shown:#?}");
    let twice = validate_text(
        "apiVersion: v1alpha1\nkind: HostnameConfig\nauto: off\n---\napiVersion: v1alpha1\nkind: HostnameConfig\nauto: off\n",
        Mode::Metal,
        None,
    );
    assert_eq!(twice[0].message, "the document HostnameConfig is there twice");
    assert_eq!(validate_text("", Mode::Metal, None)[0].message, "there is no document in it");
}

#[test]
fn strings_take_any_scalar_as_talos_does() {
    let text = base(Contract::V1_9, Role::ControlPlane)
        .to_yaml()
        .replace("vm.nr_hugepages: \"1024\"", "vm.nr_hugepages: 1024");
    assert!(text.contains("vm.nr_hugepages: 1024"));
    assert_eq!(validate_text(&text, Mode::Metal, None), []);
    let config = MachineConfig::from_yaml(&text, None).unwrap();
    assert_eq!(config.get("machine.sysctls").unwrap()["vm.nr_hugepages"], json!("1024"));
}

#[test]
fn the_contract_is_that_of_the_installer() {
    for contract in Contract::ALL {
        assert_eq!(contract_of(&base(contract, Role::Worker)), Some(contract));
    }
    let other =
        with(&base(Contract::V1_9, Role::Worker), "/machine/install/image", json!("example.com/x:latest"));
    assert_eq!(contract_of(&other), None);
}
