//! Patches of both forms on rendered configs.

use super::*;
use crate::intent::Role;
use crate::render::tests::{full, full_node};
use crate::secrets::tests::{bundle, secret_texts};
use serde_json::json;

fn base(contract: Contract) -> MachineConfig {
    crate::render(&full(contract), &full_node(Role::ControlPlane), bundle()).unwrap()
}

fn patched(contract: Contract, patch: &str) -> MachineConfig {
    Patch::parse("p.yaml", patch).unwrap().apply(&base(contract), contract).unwrap()
}

fn refused(contract: Contract, patch: &str) -> String {
    let error =
        Patch::parse("p.yaml", patch).and_then(|patch| patch.apply(&base(contract), contract)).unwrap_err();
    for text in secret_texts(bundle()) {
        assert!(!format!("{error} {error:?}").contains(&text));
    }
    error.to_string()
}

#[test]
fn operations_change_the_main_document_and_no_other() {
    let patch = r#"[{"op": "add", "path": "/machine/sysctls/net.core.somaxconn", "value": 65535},
                    {"op": "replace", "path": "/cluster/clusterName", "value": "other"},
                    {"op": "remove", "path": "/machine/nodeTaints"},
                    {"op": "add", "path": "/machine/certSANs/-", "value": "last"}]"#;
    for contract in Contract::ALL {
        let config = patched(contract, patch);
        // A number where a string belongs becomes one, as in Talos.
        assert_eq!(config.get("machine.sysctls").unwrap()["net.core.somaxconn"], json!("65535"));
        assert_eq!(config.text("cluster.clusterName"), Some("other"));
        assert_eq!(config.get("machine.nodeTaints"), None);
        assert_eq!(config.get("machine.certSANs").unwrap().as_array().unwrap().last(), Some(&json!("last")));
        assert_eq!(config.documents()[1..], base(contract).documents()[1..]);
    }
}

#[test]
fn yaml_operations_and_empty_patches() {
    let config = patched(Contract::V1_12, "- op: add\n  path: /machine/kubelet/extraArgs/v\n  value: '4'\n");
    assert_eq!(config.get("machine.kubelet.extraArgs").unwrap()["v"], json!("4"));
    for nothing in ["", "[]", "# nothing\n", "---\n"] {
        assert!(patched(Contract::V1_12, nothing) == base(Contract::V1_12));
    }
}

#[test]
fn an_error_names_patch_operation_and_path() {
    let error = refused(Contract::V1_9, r#"[{"op":"add","path":"/machine/udev/rules/-","value":"x"}]"#);
    assert_eq!(
        error,
        "cannot apply the patch p.yaml: operation 0 (add /machine/udev/rules/-): path is invalid: /machine has no \"udev\""
    );
    let error = refused(
        Contract::V1_9,
        r#"[{"op":"add","path":"/machine/a","value":1},{"op":"test","path":"/version","value":"v2"}]"#,
    );
    assert!(error.contains("operation 1 (test /version): value did not match"), "{error}");
    let error = refused(Contract::V1_9, r#"[{"op":"add","path":"/machine/colour","value":"red"}]"#);
    assert_eq!(error, "cannot apply the patch p.yaml: machine.colour: unknown key");
    let error = refused(Contract::V1_9, r#"[{"op":"add","path":"/machine/install","value":"red"}]"#);
    assert_eq!(error, "cannot apply the patch p.yaml: machine.install: must be a map, not this");
    let error = refused(Contract::V1_9, r#"[{"op":"add","value":"x"}]"#);
    assert!(
        error.starts_with(
            "cannot read the patch p.yaml: operation 0 is not one of RFC 6902: missing field `path`"
        ),
        "{error}"
    );
    let error = refused(Contract::V1_9, r#"[{"op":"sing","path":"/a"}]"#);
    assert!(error.contains("unknown variant `sing`"), "{error}");
    assert!(refused(Contract::V1_9, "a: [").starts_with("cannot read the patch p.yaml: line "));
}

#[test]
fn a_path_that_has_moved_is_refused_with_its_new_place() {
    for (patch, document) in [
        (r#"[{"op":"replace","path":"/machine/network/hostname","value":"x"}]"#, "HostnameConfig"),
        (r#"[{"op":"add","path":"/machine/network","value":{"hostname":"x"}}]"#, "HostnameConfig"),
        (r#"[{"op":"add","path":"/machine/network/interfaces","value":[]}]"#, "LinkConfig"),
        (r#"[{"op":"add","path":"/machine/time","value":{"disabled":true}}]"#, "TimeSyncConfig"),
        (r#"[{"op":"add","path":"/machine/registries","value":{}}]"#, "RegistryMirrorConfig"),
    ] {
        patched(Contract::V1_11, patch);
        let error = refused(Contract::V1_12, patch);
        assert!(error.contains(&format!("in Talos 1.12 this is in the document {document}")), "{error}");
        assert!(error.contains("p.yaml: operation 0 (/machine/"), "{error}");
    }
    let kubespan = r#"[{"op":"add","path":"/machine/network/kubespan","value":{"enabled":true}}]"#;
    patched(Contract::V1_12, kubespan);
    assert!(
        refused(
            Contract::V1_13,
            &kubespan.replace("/machine/network/kubespan", "/machine/network/kubespan/enabled")
        )
        .contains("KubeSpanConfig")
    );
}

#[test]
fn a_merge_patch_says_what_changes() {
    let patch = "\
machine:
  network:
    interfaces:
      - interface: eth0
        mtu: 9000
        vlans: [{vlanId: 5, dhcp: true}]
      - deviceSelector: {hardwareAddr: '52:54:00:AB:CD:EF'}
        dhcp: false
      - interface: eth7
        dhcp: true
  nodeLabels: {new: '1', example.com/rack: ''}
cluster:
  clusterName: ''
  discovery: {enabled: false}
  network: {podSubnets: [10.1.0.0/16]}
  apiServer:
    certSANs: [more.example.com]
    admissionControl:
      - name: PodSecurity
        configuration: {exemptions: {namespaces: [longhorn-system]}}
    auditPolicy: {apiVersion: audit.k8s.io/v1, kind: Policy, rules: []}
";
    let (before, after) = (base(Contract::V1_11), patched(Contract::V1_11, patch));
    let interfaces = after.get("machine.network.interfaces").unwrap().as_array().unwrap();
    assert_eq!(interfaces.len(), 4, "eth0, by address, lo, eth7");
    assert_eq!(interfaces[0]["mtu"], json!(9000));
    assert_eq!(interfaces[0]["vip"], json!({"ip": "10.40.0.200"}));
    assert_eq!(interfaces[0]["vlans"], json!([{"vlanId": 5, "dhcp": true}]));
    assert_eq!(interfaces[1]["dhcp"], json!(false));
    assert_eq!(interfaces[3], json!({"interface": "eth7", "dhcp": true}));
    let labels = after.get("machine.nodeLabels").unwrap();
    assert_eq!(
        (&labels["new"], &labels["example.com/rack"]),
        (&json!("1"), &json!("r1")),
        "an empty text says nothing"
    );
    assert_eq!(after.text("cluster.clusterName"), before.text("cluster.clusterName"));
    assert_eq!(after.get("cluster.discovery.enabled"), Some(&json!(false)), "but false does");
    assert_eq!(after.get("cluster.network.podSubnets"), Some(&json!(["10.1.0.0/16"])));
    assert_eq!(after.get("cluster.network.serviceSubnets"), before.get("cluster.network.serviceSubnets"));
    let names = after.get("cluster.apiServer.certSANs").unwrap().as_array().unwrap();
    assert_eq!(names.last(), Some(&json!("more.example.com")));
    assert_eq!(names.len(), 6);
    let admission = after.get("cluster.apiServer.admissionControl").unwrap();
    assert_eq!(admission.as_array().unwrap().len(), 1);
    assert_eq!(
        admission[0]["configuration"]["exemptions"]["namespaces"],
        json!(["kube-system", "longhorn-system"])
    );
    assert_eq!(after.get("cluster.apiServer.auditPolicy").unwrap()["rules"], json!([]));
}

#[test]
fn documents_are_merged_by_kind_and_name_or_added() {
    let patch = "\
apiVersion: v1alpha1
kind: HostnameConfig
hostname: other
---
apiVersion: v1alpha1
kind: UserVolumeConfig
name: longhorn
provisioning: {maxSize: 50GiB}
---
apiVersion: v1alpha1
kind: UserVolumeConfig
name: more
provisioning: {diskSelector: {match: disk.transport == 'nvme'}, minSize: 1GiB}
";
    let config = patched(Contract::V1_12, patch);
    assert_eq!(config.document("HostnameConfig", None).unwrap()["hostname"], json!("other"));
    assert_eq!(config.document("HostnameConfig", None).unwrap()["auto"], json!("off"));
    let volume = config.document("UserVolumeConfig", Some("longhorn")).unwrap();
    assert_eq!(volume["provisioning"]["maxSize"], json!("50GiB"));
    assert_eq!(volume["provisioning"]["grow"], json!(true));
    assert_eq!(config.documents().last().unwrap().name(), "more");
    assert!(
        refused(Contract::V1_11, patch)
            .contains("HostnameConfig is not known to Talos 1.11: it came with 1.12")
    );
}

#[test]
fn deletions() {
    let patch = "\
machine:
  nodeTaints: {$patch: delete}
  nodeLabels:
    node.kubernetes.io/exclude-from-external-load-balancers: {$patch: delete}
  kubelet:
    extraMounts:
      - destination: /var/lib/longhorn
        $patch: delete
  install: {disk: {$patch: delete}, wipe: true}
---
apiVersion: v1alpha1
kind: RegistryMirrorConfig
name: ghcr.io
$patch: delete
---
apiVersion: v1alpha1
kind: TimeSyncConfig
ntp: {$patch: delete}
";
    let config = patched(Contract::V1_13, patch);
    assert_eq!(config.get("machine.nodeTaints"), None);
    assert_eq!(config.get("machine.nodeLabels"), Some(&json!({"example.com/rack": "r1"})));
    let mounts = config.get("machine.kubelet.extraMounts").unwrap().as_array().unwrap();
    assert_eq!(mounts.iter().map(|m| &m["destination"]).collect::<Vec<_>>(), ["/var/mnt/longhorn"]);
    assert_eq!(config.get("machine.install.disk"), None);
    assert_eq!(config.get("machine.install.wipe"), Some(&json!(true)));
    assert!(config.document("RegistryMirrorConfig", Some("ghcr.io")).is_none());
    assert!(config.document("RegistryMirrorConfig", Some("docker.io")).is_some());
    assert_eq!(config.document("TimeSyncConfig", None).unwrap().get("ntp"), None);
}

#[test]
fn what_cannot_be_deleted_is_said() {
    for (patch, why) in [
        (
            "machine: {nodeLabels: {nope: {$patch: delete}}}",
            "v1alpha1: machine.nodeLabels.nope: there is nothing to delete",
        ),
        ("machine: {udev: {rules: {$patch: delete}}}", "machine.udev.rules: there is nothing to delete"),
        (
            "machine: {kubelet: {extraMounts: [{destination: /x, $patch: delete}]}}",
            "machine.kubelet.extraMounts.[0]: there is nothing",
        ),
        ("machine: {kubelet: {extraMounts: [{$patch: delete}]}}", "needs a key by which it is known"),
        ("machine: {kubelet: {extraMounts: [{options: {$patch: delete}}]}}", "cannot delete an inner key"),
        ("machine: {color: {$patch: delete}}", "unknown key \"color\""),
        (
            "apiVersion: v1alpha1\nkind: VolumeConfig\nname: x\n$patch: delete\n",
            "VolumeConfig/x: : there is no such document",
        ),
        ("$patch: delete", "the document has no kind"),
        ("persist: true\n$patch: delete", "the v1alpha1 document cannot be deleted"),
    ] {
        let error = refused(Contract::V1_9, patch);
        assert!(error.contains(why), "{patch}: {error}");
    }
}

#[test]
fn another_type_is_no_merge() {
    assert!(
        refused(Contract::V1_9, "machine: {install: [1]}")
            .contains("machine.install: must be a map, not a list")
    );
    let patch =
        "cluster: {apiServer: {admissionControl: [{name: PodSecurity, configuration: {exemptions: x}}]}}";
    assert!(refused(Contract::V1_9, patch).contains("exemptions: the patch has another type there"));
}

#[test]
fn patches_do_not_show_what_is_in_them() {
    let one = Patch::parse("p", "machine: {token: abcdef.0123456789abcdef}").unwrap();
    let two =
        Patch::parse("q", r#"[{"op":"add","path":"/machine/token","value":"abcdef.0123456789abcdef"}]"#)
            .unwrap();
    assert!(!format!("{one:?} {two:?}").contains("abcdef"));
}
