//! Bad files and exactly what is said about them; good files and the objects that they become.

use super::*;
use crate::validate::report;
use std::fs;

fn around(folder: &Path, variables: &[(&str, &str)]) -> Surroundings {
    Surroundings {
        variables: variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        home: folder.to_owned(),
        folder: folder.to_owned(),
    }
}

const TOKEN: [(&str, &str); 2] = [("PROXMOX_TOKEN_ID", "b@pve!t"), ("PROXMOX_TOKEN_SECRET", "s3cret")];

fn checked_with(text: &str, variables: &[(&str, &str)], need: Need) -> Checked {
    let folder = tempfile::tempdir().unwrap();
    check(&Schemas::new().unwrap(), text, None, need, &around(folder.path(), variables))
}

fn lines(text: &str) -> Vec<String> {
    report("f", &checked_with(text, &TOKEN, Need::Credentials).findings)
}

fn good(text: &str) -> Settings {
    let checked = checked_with(text, &TOKEN, Need::Credentials);
    let found = report("f", &checked.findings);
    checked.settings.unwrap_or_else(|| panic!("{}", found.join("\n")))
}

const PROXMOX: &str = "\
provider: proxmox
cluster:
  name: m1
  controlPlane: {replicas: 3, cpu: 4, memoryMB: 8192, diskGB: 50}
  workers: {replicas: 3, cpu: 8, memoryMB: 16384, diskGB: 100}
network:
  vip: 10.40.0.200
  loadBalancerPool: {start: 10.40.0.210, end: 10.40.0.250}
talos:
  version: v1.9.2
providerConfig:
  proxmox:
    endpoint: https://pve:8006
    nodes: [pve1]
    storage: local-lvm
    templateID: \"9000\"
    vmidStart: 200
    vmidEnd: 299
";

#[test]
fn a_file_becomes_objects() {
    let settings = good(PROXMOX);
    let spec = &settings.bootstrap.spec;
    assert_eq!((settings.cluster(), spec.provider), ("m1", Provider::Proxmox));
    assert_eq!(spec.provider_ref.name, "m1-provider");
    assert_eq!(
        (spec.network.pod_cidr.as_str(), spec.network.service_cidr.as_str()),
        ("10.244.0.0/16", "10.96.0.0/12")
    );
    assert_eq!(spec.talos.schematic, schema::SCHEMATIC);
    let proxmox = settings.provider_config.spec.proxmox.as_ref().unwrap();
    assert_eq!(proxmox.template_id, Some(9000));
    assert_eq!(proxmox.vmid_range.as_ref().map(|range| (range.start, range.end)), Some((200, 299)));
    assert_eq!(settings.credentials_name(), "m1-proxmox-credentials");
    assert_eq!(settings.credentials.get("tokenSecret"), Some("s3cret"));
    assert!(settings.butler_config.is_none());
    let text = serde_json::to_string(&(&settings.bootstrap, &settings.provider_config)).unwrap();
    assert!(!text.contains("s3cret"));
}

#[test]
fn all_problems_at_once_with_their_places() {
    let text = PROXMOX
        .replace("vip: 10.40.0.200", "vip: 10.40.0.220\n  vippInterface: eth0\n  mtu: 9000")
        .replace("memoryMB: 8192", "memoryMB: 100")
        .replace("version: v1.9.2", "version: 1.9")
        .replace("    storage: local-lvm\n", "    password: 12345\n")
        .replace("vmidEnd: 299", "vmidEnd: 150");
    let found = lines(&text);
    let expected = [
        "f:4:49: error: cluster.controlPlane.memoryMB: Invalid value: 100: should be greater than or equal to 2048",
        "f:7:8: error: network.vip: \"10.40.0.220\": lies inside network.loadBalancerPool 10.40.0.210-10.40.0.250, so a service could take it away",
        "    help: move the vip out of the pool, or make the pool smaller",
        "f:8:3: error: network.vippInterface: unknown field",
        "    help: did you mean vipInterface?",
        "f:9:8: error: network.mtu: 9000: above 1500, which every switch on the way has to carry",
        "f:12:12: error: talos.version: 1.9: must be of type string",
        "f:14:3: error: providerConfig.proxmox.storage: Required value",
        "f:17:15: error: providerConfig.proxmox.password: must be of type string",
        "f:19:16: error: providerConfig.proxmox.vmidStart: \"200\": comes after the end, 150",
    ];
    for line in expected {
        assert!(found.iter().any(|found| found.starts_with(line)), "no {line:?} in\n{}", found.join("\n"));
    }
    assert!(!found.join("\n").contains("12345"), "a password is shown");
    assert_eq!(found.last().map(String::as_str), Some("f: 8 errors, 0 warnings"), "{}", found.join("\n"));
}

#[test]
fn what_is_no_bootstrap_file_is_told_apart() {
    let first = |text: &str| lines(text).first().cloned().unwrap_or_default();
    assert_eq!(first("# nothing\n"), "f:1:1: error: the file is empty");
    assert_eq!(
        first("apiVersion: butler.butlerlabs.dev/v1alpha1\nkind: ClusterBootstrap\n"),
        "f:1:1: error: this is a Kubernetes object (ClusterBootstrap), not a bootstrap file"
    );
    assert_eq!(first("- a\n"), "f:1:1: error: not a bootstrap file: a mapping is expected");
    assert!(first("a: [1\n").contains("not YAML"));
    assert_eq!(lines(&format!("{PROXMOX}---\nprovider: aws\n"))[0], "f:20:1: error: a second document");
    let twice = lines(&format!("{PROXMOX}provider: proxmox\n"));
    assert_eq!(twice[0], "f:19:1: error: provider: the key is there already, at 1:1");
}

#[test]
fn the_command_and_the_file_name_the_same_provider() {
    let folder = tempfile::tempdir().unwrap();
    let schemas = Schemas::new().unwrap();
    let checked =
        check(&schemas, PROXMOX, Some(Provider::Gcp), Need::Credentials, &around(folder.path(), &TOKEN));
    assert!(checked.settings.is_none());
    assert_eq!(
        report("f", &checked.findings)[..2],
        [
            "f:1:11: error: provider: \"proxmox\": the command says gcp".to_owned(),
            "    help: run `butleradm bootstrap proxmox`, or set provider to gcp and give it a block in providerConfig"
                .to_owned()
        ]
    );
    let missing = lines(&PROXMOX.replace("provider: proxmox", "provider: nutanix"));
    assert!(
        missing.iter().any(|line| line.starts_with(
            "f:12:3: error: providerConfig: the block nutanix is missing, and provider is nutanix"
        )),
        "{missing:?}"
    );
    assert!(
        missing.iter().any(|line| line.contains("warning: providerConfig.proxmox: not used")),
        "{missing:?}"
    );
}

#[test]
fn credentials_come_from_environment_file_or_field_in_this_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("creds");
    fs::write(&file, "username: of-file\npassword: \"p-of-file\"\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let text =
        format!("{PROXMOX}    credentialsFile: creds\n    username: of-field\n    password: p-of-field\n");
    let schemas = Schemas::new().unwrap();
    let get = |variables: &[(&str, &str)], text: &str| {
        let checked = check(&schemas, text, None, Need::Credentials, &around(folder.path(), variables));
        (checked.settings.map(|settings| settings.credentials), report("f", &checked.findings))
    };
    let (found, said) = get(&[], &text);
    assert_eq!(found.as_ref().and_then(|c| c.get("password")), Some("p-of-file"), "{said:?}");
    assert!(said.is_empty(), "{said:?}");
    let (found, _) = get(&[("PROXMOX_PASSWORD", "p-of-env")], &text);
    assert_eq!(found.as_ref().and_then(|c| c.get("password")), Some("p-of-env"));
    assert_eq!(found.as_ref().and_then(|c| c.get("username")), Some("of-file"));
    let (found, _) = get(&TOKEN, &text);
    let keys: Vec<_> = found.unwrap().0.into_keys().collect();
    assert_eq!(keys, ["token", "tokenSecret"], "a whole token wins, and the other pair is left out");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (_, said) = get(&[], &text);
    assert!(said[0].contains("other users of this computer can read it (mode 0644)"), "{said:?}");
    fs::write(&file, "export PROXMOX_TOKEN_ID='a@pve!b'\n# c\nPROXMOX_TOKEN_SECRET=\"x=y\"\n").unwrap();
    let (found, _) = get(&[], &text.replace("    username: of-field\n    password: p-of-field\n", ""));
    assert_eq!(found.unwrap().get("tokenSecret"), Some("x=y"));
}

#[test]
fn missing_credentials_say_where_to_put_them() {
    let text =
        |need, variables: &[(&str, &str)]| report("f", &checked_with(PROXMOX, variables, need).findings);
    let found = text(Need::Credentials, &[]);
    assert_eq!(
        found[0],
        "f:12:3: error: providerConfig.proxmox.token: token is missing from the credentials of proxmox"
    );
    assert_eq!(
        found[1],
        "    help: set the environment variable PROXMOX_TOKEN_ID, or put it into the file that providerConfig.proxmox.credentialsFile names"
    );
    let half = text(Need::Credentials, &[("PROXMOX_USERNAME", "u")]);
    assert!(half[0].contains("password is missing"), "{half:?}");
    assert!(text(Need::NoCredentials, &[])[0].contains("warning"));
    assert!(text(Need::AnyCredentials, &[]).is_empty());
    let gone = format!("{PROXMOX}    credentialsFile: nowhere\n");
    assert!(report("f", &checked_with(&gone, &[], Need::Credentials).findings)[0].contains("cannot read it"));
}

#[test]
fn variables_stand_in_for_fields() {
    let mut variables = TOKEN.to_vec();
    variables.extend([("BUTLER_NETWORK_VIP", "10.40.0.201"), ("BUTLER_CLUSTER_WORKERS_REPLICAS", "5")]);
    let settings = checked_with(PROXMOX, &variables, Need::Credentials).settings.unwrap();
    assert_eq!(settings.bootstrap.spec.network.vip.as_deref(), Some("10.40.0.201"));
    assert_eq!(settings.bootstrap.spec.cluster.workers.unwrap().replicas, 5);
    variables.push(("BUTLER_CLUSTER_WORKERS_CPU", "many"));
    let found = report("f", &checked_with(PROXMOX, &variables, Need::Credentials).findings);
    assert!(
        found[0].starts_with("f:1:1: error: cluster.workers.cpu (from BUTLER_CLUSTER_WORKERS_CPU): \"many\": must be of type integer"),
        "{found:?}"
    );
}

#[test]
fn variables_of_other_infrastructures_are_left_alone() {
    let mut variables = TOKEN.to_vec();
    variables.extend([
        ("BUTLER_PROVIDERCONFIG_NUTANIX_ENDPOINT", "https://prism"),
        ("BUTLER_PROVIDERCONFIG_PROXMOX_BRIDGE", "vmbr7"),
    ]);
    let checked = checked_with(PROXMOX, &variables, Need::Credentials);
    assert_eq!(report("f", &checked.findings), Vec::<String>::new());
    let proxmox = checked.settings.unwrap().provider_config.spec.proxmox.unwrap();
    assert_eq!(proxmox.bridge.as_deref(), Some("vmbr7"));
}

#[test]
fn a_road_that_others_can_read_is_said_or_refused() {
    let plain = PROXMOX.replace("https://pve:8006", "http://pve:8006");
    let found = lines(&plain);
    assert_eq!(
        found[0],
        "f:13:15: error: providerConfig.proxmox.endpoint: http would send credentials and machine secrets unencrypted"
    );
    let both = lines(&format!("{plain}    insecure: true\n"));
    assert!(both[0].starts_with("f:13:15: warning: providerConfig.proxmox.endpoint: "), "{both:?}");
    let unchecked = lines(&format!("{PROXMOX}    insecure: true\n"));
    assert!(unchecked[0].starts_with("f:19:15: warning: providerConfig.proxmox.insecure: "), "{unchecked:?}");
    assert!(unchecked[1].contains("providerConfig.proxmox.caFile"), "{unchecked:?}");
    assert_eq!(lines(PROXMOX), Vec::<String>::new());
}

#[test]
fn a_key_that_nobody_can_use_is_refused_by_name() {
    let found = lines(&format!("imageFactory: {{url: https://f, apiKey: k3y}}\n{PROXMOX}"));
    assert!(found[0].starts_with("f:1:40: error: imageFactory.apiKey: "), "{found:?}");
    assert!(!found.join("\n").contains("k3y"), "{found:?}");
    let wrong = lines(&format!("imageFactory: {{url: https://f, sha256: abc}}\n{PROXMOX}"));
    assert!(wrong[0].starts_with("f:1:40: error: imageFactory.sha256: "), "{wrong:?}");
}

#[test]
fn forms_that_only_the_file_has() {
    let extra = format!(
        "addons: {{loadBalancer: {{addressPool: 10.40.0.210-10.40.0.219}}}}\nmultiTenancyMode: Enforced\n\
         imageFactory: {{url: https://f, sha256: \"AB{:062}\"}}\nproxy: http://p:3128\ntalos:\n  timeServers: [ntp.example.com]\n",
        0
    );
    let settings = good(
        &(PROXMOX
            .replace("workers: {replicas: 3", "workers: {replicas: 0")
            .replace("https://pve:8006", "pve.example.com:8006/")
            .replace("  loadBalancerPool: {start: 10.40.0.210, end: 10.40.0.250}\n", "")
            .replace("talos:\n", &extra)
            + "    hostAliases: [\"10.1.1.1 pve.example.com pve\"]\n"),
    );
    let spec = &settings.bootstrap.spec;
    assert!(spec.cluster.workers.is_none());
    assert_eq!(spec.network.load_balancer_pool.as_ref().unwrap().end, "10.40.0.219");
    assert_eq!(
        settings.provider_config.spec.proxmox.as_ref().unwrap().endpoint,
        "https://pve.example.com:8006"
    );
    assert_eq!(settings.provider_config.spec.network.as_ref().unwrap().time_servers, ["ntp.example.com"]);
    let factory = settings.butler_config.as_ref().unwrap().spec.image_factory.clone().unwrap();
    assert_eq!((factory.url.as_str(), factory.auto_sync), ("https://f", true));
    assert_eq!(factory.sha256, Some(format!("ab{:062}", 0)));
    let tenancy = settings.butler_config.as_ref().unwrap().spec.multi_tenancy.clone();
    assert_eq!(tenancy.mode, butler_api::MultiTenancyMode::Enforced);
    assert!(settings.brings_image());
    assert_eq!(settings.proxy.as_deref(), Some("http://p:3128"));
    assert_eq!(settings.host_aliases.len(), 2);
}

#[test]
fn every_field_of_the_kinds_can_be_written() {
    let text = PROXMOX
        .replace(
            "talos:\n",
            "\
addons:
  cni: {hubbleEnabled: false, version: 1.17.0}
  storage: {replicaCount: 2}
  controlPlaneHA: {type: talos-vip}
  certManager: {enabled: false}
  ingress: {type: nginx}
  controlPlaneProvider: {enabled: false}
  capi: {infrastructureProviders: [{name: proxmox, version: v0.6.0}]}
  gitOps: {enabled: false}
paused: true
controlPlaneExposure: {mode: Ingress, hostname: '*.k8s.example.com'}
talos:
  installDisk: /dev/sda
  configDelivery: userData
  configPatches: [{op: add, path: /machine/sysctls, value: '{}'}]
",
        )
        .replace("vip: 10.40.0.200", "vip: 10.40.0.200\n  vipInterface: ens18")
        .replace("diskGB: 50}", "diskGB: 50, labels: {a: b}, extraDisks: [{sizeGB: 5}]}");
    let spec = good(&text).bootstrap.spec;
    assert!(spec.paused && !spec.addons.cni.hubble_enabled && !spec.addons.cert_manager.enabled);
    assert_eq!(spec.addons.storage.replica_count, 2);
    assert_eq!(spec.network.vip_interface.as_deref(), Some("ens18"));
    assert_eq!(spec.talos.config_delivery, butler_api::ConfigDelivery::UserData);
    assert_eq!(spec.cluster.control_plane.labels.get("a").map(String::as_str), Some("b"));
    assert_eq!(spec.cluster.control_plane.extra_disks.len(), 1);
}
