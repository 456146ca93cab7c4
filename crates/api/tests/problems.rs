//! Validation across fields, as a table: one change to a good object, and the problems that it brings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use butler_api::{Problem, Severity, validate_object};
use serde_json::{Value, json};

fn good(file: &str) -> Value {
    let path = format!("{}/../../examples/{file}.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    serde_saphyr::from_str(text.split("\n---\n").next().unwrap()).unwrap()
}

fn set(object: &mut Value, pointer: &str, value: Value) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"));
    if value.is_null() {
        parent.as_object_mut().unwrap().remove(key);
    } else {
        parent[key] = value;
    }
}

fn problems(file: &str, changes: &[(&str, Value)]) -> Vec<Problem> {
    let mut object = good(file);
    for (pointer, value) in changes {
        set(&mut object, pointer, value.clone());
    }
    validate_object(&object).unwrap().unwrap()
}

/// Asserts the problems as `E path: part of the rule` lines, in order.
fn expect(file: &str, changes: &[(&str, Value)], expected: &[&str]) {
    let found = problems(file, changes);
    let lines: Vec<String> = found
        .iter()
        .map(|p| format!("{} {}: {}", if p.severity == Severity::Error { "E" } else { "W" }, p.path, p.rule))
        .collect();
    assert_eq!(lines.len(), expected.len(), "{changes:?}\n{lines:#?}");
    for (line, part) in lines.iter().zip(expected) {
        assert!(line.contains(part), "{line:?} does not hold {part:?}");
    }
    assert!(found.iter().all(|p| !p.remedy.is_empty()));
}

/// Changes to a good object, and what they bring.
type Row<'a> = (&'a [(&'a str, Value)], &'a [&'a str]);

const HA: &str = "clusterbootstrap-ha-on-prem";
const SINGLE: &str = "clusterbootstrap-single-node";
const GCP: &str = "clusterbootstrap-gcp";

#[test]
fn addresses_of_a_cluster() {
    let pool = |start: &str, end: &str| json!({"start": start, "end": end});
    let table: &[Row] = &[
        (
            &[("/spec/network/vip", json!("10.40.0.210"))],
            &["E spec.network.vip: lies inside spec.network.loadBalancerPool"],
        ),
        (
            &[("/spec/network/vip", json!("10.40.0.250"))],
            &["E spec.network.vip: lies inside spec.network.loadBalancerPool"],
        ),
        (&[("/spec/network/vip", json!("10.40.0.251"))], &[]),
        (
            &[("/spec/network/vip", json!("10.40.0.300"))],
            &["E spec.network.vip: not an IP address or a DNS host name"],
        ),
        (
            &[("/spec/network/vip", json!("10.244.3.4"))],
            &["E spec.network.vip: lies inside spec.network.podCIDR"],
        ),
        (
            &[("/spec/network/vip", json!("10.96.0.1"))],
            &["E spec.network.vip: lies inside spec.network.serviceCIDR"],
        ),
        (
            &[("/spec/network/vip", json!("10.111.255.255"))],
            &["E spec.network.vip: lies inside spec.network.serviceCIDR"],
        ),
        (&[("/spec/network/vip", Value::Null)], &["E spec.network.vip: an ha cluster on harvester needs"]),
        (&[("/spec/network/vip", json!(""))], &["E spec.network.vip: an ha cluster on harvester needs"]),
        (
            &[("/spec/network/vip", json!("k8s.example.com"))],
            &["E spec.network.vip: a floating address has to be an IP"],
        ),
        (
            &[
                ("/spec/network/vip", json!("k8s.example.com")),
                ("/spec/addons/controlPlaneHA/type", json!("external")),
            ],
            &[],
        ),
        (
            &[("/spec/network/loadBalancerPool", pool("10.40.0.250", "10.40.0.210"))],
            &["E spec.network.loadBalancerPool.start: not an address range: its start comes after its end"],
        ),
        (
            &[("/spec/network/loadBalancerPool", pool("10.40.0.256", "x"))],
            &[
                "E spec.network.loadBalancerPool.start: not an IP address: 256",
                "E spec.network.loadBalancerPool.end",
            ],
        ),
        (
            &[("/spec/network/loadBalancerPool", pool("10.243.255.1", "10.244.0.1"))],
            &["E spec.network.loadBalancerPool: overlaps spec.network.podCIDR"],
        ),
        (
            &[("/spec/network/loadBalancerPool", pool("10.95.0.1", "10.120.0.1"))],
            &["E spec.network.loadBalancerPool: overlaps spec.network.serviceCIDR"],
        ),
        (
            &[("/spec/network/podCIDR", json!("10.96.0.0/16"))],
            &["E spec.network.serviceCIDR: overlaps spec.network.podCIDR"],
        ),
        (&[("/spec/network/podCIDR", json!("10.300.0.0/16"))], &["E spec.network.podCIDR: not a CIDR: 300"]),
        (
            &[("/spec/network/podCIDR", json!("10.244.0.0/40"))],
            &["E spec.network.podCIDR: not a CIDR: the prefix length"],
        ),
        (
            &[("/spec/network/podCIDR", json!("10.244.0.9/16"))],
            &["W spec.network.podCIDR: has bits beyond its prefix"],
        ),
        (&[("/spec/network/vipInterface", json!("a-very-long-interface"))], &["E spec.network.vipInterface"]),
        (
            &[("/spec/network/loadBalancerPool", Value::Null)],
            &["W spec.network.loadBalancerPool: without a pool"],
        ),
    ];
    for (changes, expected) in table {
        expect(HA, changes, expected);
    }
}

#[test]
fn all_problems_come_at_once() {
    expect(
        HA,
        &[
            ("/spec/cluster/controlPlane/replicas", json!(4)),
            ("/spec/network/vip", json!("10.40.0.220")),
            ("/spec/talos/version", json!("v1.9")),
            ("/spec/talos/installDisk", json!("vda")),
            ("/spec/controlPlaneExposure/mode", json!("Gateway")),
        ],
        &[
            "W spec.cluster.controlPlane.replicas: an even number",
            "E spec.network.vip: lies inside spec.network.loadBalancerPool",
            "E spec.talos.version: not a Talos version: it has to be three numbers",
            "E spec.talos.installDisk",
            "E spec.controlPlaneExposure.hostname: hostname is required when mode is Gateway",
            "E spec.controlPlaneExposure.gatewayRef: gatewayRef is required when mode is Gateway",
        ],
    );
}

#[test]
fn topology() {
    let workers = json!({"replicas": 2, "cpu": 1, "memoryMB": 2048, "diskGB": 20});
    expect(
        SINGLE,
        &[("/spec/cluster/controlPlane/replicas", json!(3))],
        &["W spec.cluster.controlPlane.replicas: a single-node"],
    );
    expect(
        SINGLE,
        &[("/spec/cluster/workers", workers)],
        &["W spec.cluster.workers: a single-node cluster has no workers"],
    );
    expect(
        SINGLE,
        &[("/spec/network/vip", Value::Null)],
        &["W spec.network.vip: the node's own address becomes the endpoint"],
    );
    expect(
        HA,
        &[("/spec/cluster/controlPlane/replicas", json!(1))],
        &["W spec.cluster.controlPlane.replicas: etcd survives"],
    );
    expect(
        HA,
        &[("/spec/cluster/workers", Value::Null)],
        &["W spec.cluster.workers: an ha cluster without workers"],
    );
    expect(
        HA,
        &[("/spec/cluster/workers/replicas", json!(2))],
        &["W spec.addons.storage.replicaCount: there are 2 workers"],
    );
    expect(HA, &[("/spec/cluster/name", json!("Bad_Name"))], &["E spec.cluster.name: not a cluster name"]);
}

#[test]
fn cloud_clusters() {
    expect(GCP, &[("/spec/network/vip", json!("lb.example.com"))], &[]);
    expect(
        GCP,
        &[("/spec/network/loadBalancerPool", json!({"start": "10.0.0.1", "end": "10.0.0.9"}))],
        &["W spec.network.loadBalancerPool: gcp has load balancers of its own"],
    );
    expect(
        GCP,
        &[("/spec/network/vipInterface", json!("eth0"))],
        &["W spec.network.vipInterface: only a virtual IP on-prem"],
    );
    expect(
        GCP,
        &[(
            "/spec/controlPlaneLoadBalancer",
            json!({"listeners": [{"port": 6443}, {"port": 50000}, {"port": 50000}]}),
        )],
        &[
            "E spec.controlPlaneLoadBalancer.listeners[0].port: is taken by the first port",
            "E spec.controlPlaneLoadBalancer.listeners[2].port: is taken by spec.controlPlaneLoadBalancer.listeners[1]",
        ],
    );
    expect(
        GCP,
        &[("/spec/addons/capi/infrastructureProviders", json!([{"name": "aws"}]))],
        &["W spec.addons.capi.infrastructureProviders[0].credentialsSecretRef: aws is not"],
    );
}

#[test]
fn config_patches() {
    expect(
        HA,
        &[(
            "/spec/talos/configPatches",
            json!([
                {"op": "add", "path": "/machine/time"},
                {"op": "replace", "path": "machine/time", "value": "1"},
                {"op": "remove", "path": "/a~2b", "value": "x"},
                {"op": "remove", "path": "/a~1b"},
                {"op": "add", "path": "/a", "value": ""},
            ]),
        )],
        &[
            "E spec.talos.configPatches[0].value: value is required when op is add or replace",
            "E spec.talos.configPatches[1].path: not a JSON Pointer",
            "E spec.talos.configPatches[2].path: not a JSON Pointer",
            "W spec.talos.configPatches[2].value: op remove takes no value",
        ],
    );
}

#[test]
fn exposure() {
    let exposure = |value: Value| [("/spec/controlPlaneExposure", value)];
    expect(
        HA,
        &exposure(json!({"mode": "Ingress"})),
        &["E spec.controlPlaneExposure.hostname: hostname is required when mode is Ingress"],
    );
    expect(HA, &exposure(json!({"mode": "Ingress", "hostname": "*.a.example"})), &[]);
    expect(
        HA,
        &exposure(json!({"mode": "Ingress", "hostname": "*.*.example"})),
        &["E spec.controlPlaneExposure.hostname: not a domain"],
    );
    expect(
        HA,
        &exposure(json!({"mode": "Gateway", "hostname": "*.a.example", "gatewayRef": "gw"})),
        &["E spec.controlPlaneExposure.gatewayRef: not of the form namespace/name"],
    );
    expect(
        "butlerconfig",
        &[("/spec/controlPlaneExposure/hostname", Value::Null)],
        &["E spec.controlPlaneExposure.hostname"],
    );
    expect(
        "butlerconfig",
        &[("/metadata/name", json!("other"))],
        &["E metadata.name: there is one ButlerConfig"],
    );
}

#[test]
fn load_balancers() {
    let file = "loadbalancerrequest-full";
    expect(
        file,
        &[("/spec/targets", json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}, {"ip": "x"}]))],
        &[
            "E spec.targets[1].ip: is the address of spec.targets[0] too",
            "E spec.targets[2].ip: not an IP address",
        ],
    );
    expect(
        file,
        &[("/spec/listeners", json!([{"port": 6443}]))],
        &["E spec.listeners[0].port: is taken by the first port"],
    );
    expect(
        file,
        &[(
            "/spec/options",
            json!({
                "allowedCIDRs": ["10.0.0.0/8", "10.0.0.0/99"],
                "preserveClientIP": true,
                "healthCheck": {"interval": 5, "timeout": 6, "path": "/x"},
                "implementation": "target-pool",
            }),
        )],
        &[
            "E spec.options.allowedCIDRs[1]: not a CIDR",
            "W spec.options.preserveClientIP: a control-plane node then cannot reach itself",
            "E spec.options.healthCheck.timeout: is longer than the interval of 5 s",
            "W spec.options.healthCheck.path: a tcp check asks for no path",
            "W spec.healthCheckPort: a target pool is checked by plain HTTP",
        ],
    );
    expect(
        file,
        &[("/spec/options", json!({"healthCheck": {"protocol": "https", "path": "/readyz"}}))],
        &["W spec.options.healthCheck.protocol: gets 401 where anonymous access is off"],
    );
    let file = "machineloadbalancer";
    expect(
        file,
        &[("/spec/listeners", json!([{"port": 6443}, {"port": 6443, "protocol": "udp"}]))],
        &[
            "E spec.listeners[0].port: is taken by spec.port already",
            "W spec.listeners[1].protocol: udp is not built yet",
        ],
    );
    expect(file, &[("/spec/machineSelector", json!({}))], &["E spec.machineSelector: an empty selector"]);
    expect(
        file,
        &[(
            "/spec/machineSelector/matchExpressions",
            json!([{"key": "a", "operator": "In"}, {"key": "b", "operator": "Exists", "values": ["x"]}]),
        )],
        &[
            "E spec.machineSelector.matchExpressions[0].values: In and NotIn",
            "E spec.machineSelector.matchExpressions[1].values: Exists",
        ],
    );
    expect(
        file,
        &[("/spec/providerRef", json!({}))],
        &["E spec.providerRef.name", "E spec.providerRef.kind"],
    );
}

#[test]
fn provider_configs() {
    let file = "providerconfig-all";
    expect(
        file,
        &[("/spec/provider", json!("aws"))],
        &["E spec.aws: the block aws is required", "W spec.harvester: provider is aws"],
    );
    expect(
        file,
        &[
            ("/spec/provider", json!("proxmox")),
            ("/spec/harvester", Value::Null),
            (
                "/spec/proxmox",
                json!({"endpoint": "https://p", "nodes": ["a"], "storage": "s", "vmidRange": {"start": 300, "end": 200}}),
            ),
            ("/spec/scope", json!({"type": "team"})),
            ("/spec/network", json!({"mode": "ipam", "subnet": "10.0.0.0/24", "gateway": "10.0.1.1"})),
        ],
        &[
            "E spec.proxmox.vmidRange.start: comes after the end",
            "E spec.scope.teamRef",
            "E spec.network.poolRefs: ipam needs",
            "E spec.network.gateway: lies outside",
        ],
    );
}

#[test]
fn fixed_addresses() {
    let proxmox =
        json!({"endpoint": "https://p", "nodes": ["a"], "storage": "s", "vlan": 12, "bridge": "vmbr1"});
    let wrong = |network: Value, problems: &[&str]| {
        expect(
            "providerconfig-all",
            &[
                ("/spec/provider", json!("proxmox")),
                ("/spec/harvester", Value::Null),
                ("/spec/proxmox", proxmox.clone()),
                ("/spec/network", network),
            ],
            problems,
        );
    };
    let range = json!({"start": "10.0.0.10", "end": "10.0.0.20"});
    wrong(json!({"subnet": "10.0.0.0/24", "gateway": "10.0.0.1", "nodeAddresses": range}), &[]);
    wrong(json!({"nodeAddresses": range}), &["E spec.network.subnet: node addresses need"]);
    wrong(
        json!({"subnet": "10.0.0.0/28", "gateway": "10.0.0.11", "nodeAddresses": range}),
        &[
            "E spec.network.nodeAddresses.end: lies outside",
            "E spec.network.nodeAddresses: holds the router's address",
        ],
    );
    wrong(
        json!({"subnet": "10.0.0.0/24", "nodeAddresses": {"start": "10.0.0.9", "end": "10.0.0.300"}}),
        &["E spec.network.nodeAddresses: not an address range: 300 in"],
    );
    let machine = |fixed: Value, problems: &[&str]| {
        expect("machinerequest", &[("/spec/staticAddress", fixed)], problems);
    };
    machine(json!({"address": "10.0.0.9/24", "gateway": "10.0.0.1", "nameservers": ["1.1.1.1"]}), &[]);
    machine(
        json!({"address": "10.0.0.9", "nameservers": ["dns"]}),
        &[
            "E spec.staticAddress.address: not a CIDR",
            "E spec.staticAddress.nameservers[0]: not an IP address",
        ],
    );
    machine(
        json!({"address": "10.0.0.9/24", "gateway": "10.0.9.1"}),
        &["E spec.staticAddress.gateway: lies outside the network"],
    );
}

#[test]
fn the_rest() {
    expect(
        "imagesync",
        &[("/spec/factoryRef/version", json!("1.9"))],
        &["E spec.factoryRef.version: not a Talos version"],
    );
    expect("imagesync", &[("/spec/sha256", json!("abc"))], &["E spec.sha256: is not a SHA-256"]);
    expect("imagesync", &[("/spec/sha256", json!("0123456789abcdef".repeat(4)))], &[]);
    expect(
        "addondefinition",
        &[("/spec/chart/defaultVersion", json!("2.0.0"))],
        &["E spec.chart.defaultVersion: is not one of"],
    );
    expect(
        "addondefinition",
        &[("/spec/dependsOn", json!(["cilium"]))],
        &["E spec.dependsOn[0]: an addon cannot depend on itself"],
    );
    expect(
        "addondefinition",
        &[("/spec/defaults/timeout", json!("10 minutes"))],
        &["E spec.defaults.timeout: not a duration"],
    );
    expect("addondefinition", &[("/spec/defaults/timeout", json!("1h30m"))], &[]);
    assert!(validate_object(&json!({"kind": "Pod"})).is_none());
    assert!(validate_object(&json!({})).is_none());
}

#[test]
fn a_problem_reads_as_a_sentence() {
    let found = problems(HA, &[("/spec/network/vip", json!("10.40.0.220"))]);
    assert_eq!(
        found[0].to_string(),
        "error: spec.network.vip: \"10.40.0.220\": lies inside spec.network.loadBalancerPool 10.40.0.210-10.40.0.250, \
         so a service could take it away; move the vip out of the pool, or make the pool smaller"
    );
}
