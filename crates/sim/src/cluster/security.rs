//! Pod security: what a namespace lets pods do, by the levels of Kubernetes' own standards. Pure.

use super::facts::PodSecurity;
use super::objects::{label, list, text};
use serde_json::Value;

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
const ADDABLE: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const RESTRICTED_VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// What a pod does that its namespace forbids, in the words of the admission plugin.
pub(super) fn violation(
    security: &PodSecurity,
    space: Option<&Value>,
    namespace: &str,
    pod: &Value,
) -> Option<String> {
    if security.exempt.iter().any(|exempt| exempt == namespace) {
        return None;
    }
    let level = space.and_then(|space| label(space, ENFORCE)).unwrap_or(&security.enforce);
    let mut found = match level {
        "baseline" | "restricted" => baseline(&pod["spec"]),
        _ => return None,
    };
    if level == "restricted" {
        found.extend(restricted(&pod["spec"]));
    }
    if found.is_empty() {
        return None;
    }
    Some(format!("violates PodSecurity \"{level}:latest\": {}", found.join(", ")))
}

fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    ["/initContainers", "/containers", "/ephemeralContainers"].into_iter().flat_map(|at| list(spec, at))
}

/// The containers that fail a check, as the plugin lists them.
fn named(spec: &Value, fails: impl Fn(&Value) -> bool) -> Option<String> {
    let names: Vec<String> =
        containers(spec).filter(|c| fails(c)).map(|c| format!("{:?}", text(c, "/name"))).collect();
    let noun = if names.len() == 1 { "container" } else { "containers" };
    (!names.is_empty()).then(|| format!("{noun} {}", names.join(", ")))
}

fn baseline(spec: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let host: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| spec[*field] == true)
        .map(|field| format!("{field}=true"))
        .collect();
    if !host.is_empty() {
        found.push(format!("host namespaces ({})", host.join(", ")));
    }
    let paths: Vec<String> = list(spec, "/volumes")
        .iter()
        .filter(|volume| volume.get("hostPath").is_some())
        .map(|volume| format!("{:?}", text(volume, "/name")))
        .collect();
    if !paths.is_empty() {
        let noun = if paths.len() == 1 { "volume" } else { "volumes" };
        found.push(format!("hostPath volumes ({noun} {})", paths.join(", ")));
    }
    if let Some(who) = named(spec, |c| c["securityContext"]["privileged"] == true) {
        found.push(format!("privileged ({who} must not set securityContext.privileged=true)"));
    }
    let ports = |c: &Value| list(c, "/ports").iter().any(|p| p["hostPort"].as_i64().is_some_and(|n| n != 0));
    if let Some(who) = named(spec, ports) {
        found.push(format!("hostPort ({who} uses hostPorts)"));
    }
    let added = |c: &Value| {
        let caps = list(c, "/securityContext/capabilities/add");
        caps.iter().filter_map(Value::as_str).any(|cap| !ADDABLE.contains(&cap))
    };
    if let Some(who) = named(spec, added) {
        found.push(format!(
            "non-default capabilities ({who} must not include them in securityContext.capabilities.add)"
        ));
    }
    let unconfined = |context: &Value| context["seccompProfile"]["type"] == "Unconfined";
    if unconfined(&spec["securityContext"]) || containers(spec).any(|c| unconfined(&c["securityContext"])) {
        found.push("seccompProfile (must not set type to \"Unconfined\")".to_string());
    }
    found
}

fn restricted(spec: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(who) = named(spec, |c| c["securityContext"]["allowPrivilegeEscalation"] != false) {
        found.push(format!(
            "allowPrivilegeEscalation != false ({who} must set securityContext.allowPrivilegeEscalation=false)"
        ));
    }
    let keeps = |c: &Value| !list(c, "/securityContext/capabilities/drop").iter().any(|cap| cap == "ALL");
    if let Some(who) = named(spec, keeps) {
        found.push(format!(
            "unrestricted capabilities ({who} must set securityContext.capabilities.drop=[\"ALL\"])"
        ));
    }
    let pod_level = &spec["securityContext"];
    let root = |c: &Value| {
        let own = &c["securityContext"]["runAsNonRoot"];
        !(own == true || (own.is_null() && pod_level["runAsNonRoot"] == true))
    };
    if let Some(who) = named(spec, root) {
        found.push(format!("runAsNonRoot != true (pod or {who} must set securityContext.runAsNonRoot=true)"));
    }
    let profiled = |context: &Value| {
        matches!(context["seccompProfile"]["type"].as_str(), Some("RuntimeDefault" | "Localhost"))
    };
    if let Some(who) = named(spec, |c| !profiled(&c["securityContext"]) && !profiled(pod_level)) {
        found.push(format!(
            "seccompProfile (pod or {who} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")"
        ));
    }
    let strange = |volume: &&Value| {
        let fields = volume.as_object().into_iter().flatten();
        fields
            .filter(|(key, _)| *key != "name")
            .any(|(key, _)| key != "hostPath" && !RESTRICTED_VOLUMES.contains(&key.as_str()))
    };
    let volumes: Vec<String> =
        list(spec, "/volumes").iter().filter(strange).map(|v| format!("{:?}", text(v, "/name"))).collect();
    if !volumes.is_empty() {
        found.push(format!("restricted volume types (volumes {} use restricted types)", volumes.join(", ")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn talos() -> PodSecurity {
        PodSecurity { enforce: "baseline".into(), exempt: vec!["kube-system".into()] }
    }

    #[test]
    fn the_namespace_decides() {
        let pod = json!({"spec": {"hostNetwork": true, "containers": [
            {"name": "a", "securityContext": {"privileged": true}}]}});
        let refused = violation(&talos(), None, "metallb-system", &pod).unwrap();
        assert_eq!(
            refused,
            "violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true), privileged (container \"a\" must not set securityContext.privileged=true)"
        );
        assert_eq!(violation(&talos(), None, "kube-system", &pod), None);
        let open = json!({"metadata": {"labels": {ENFORCE: "privileged"}}});
        assert_eq!(violation(&talos(), Some(&open), "metallb-system", &pod), None);
        let plain = json!({"spec": {"containers": [{"name": "a"}]}});
        assert_eq!(violation(&talos(), None, "x", &plain), None);
        let strict = json!({"metadata": {"labels": {ENFORCE: "restricted"}}});
        assert!(violation(&talos(), Some(&strict), "x", &plain).unwrap().contains("runAsNonRoot != true"));
    }
}
