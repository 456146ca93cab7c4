//! The roles and bindings that every cluster starts with.
//!
//! The contents are those of Kubernetes 1.36, without the roles of controllers and of the scheduler, which do not run
//! here. `admin`, `edit` and `view` are aggregated from labelled parts, so that a CRD can add its own rules to them.

use super::rbac::{GROUP, aggregated_rules};
use serde_json::{Value, json};

/// Groups, resources and verbs, each separated by blanks; the empty word is the core group.
struct Grant(&'static str, &'static str, &'static str);

const READ: &str = "get list watch";
const WRITE: &str = "create delete deletecollection patch update";
const ALL: &str = "create delete deletecollection get list patch update watch";
const EVENTS: &str = " events.k8s.io";
const REPORT: &str = "create patch update";

const TO_ADMIN: &[Grant] = &[
    Grant("authorization.k8s.io", "localsubjectaccessreviews", "create"),
    Grant("rbac.authorization.k8s.io", "rolebindings roles", ALL),
];

const TO_EDIT: &[Grant] = &[
    Grant("", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", READ),
    Grant("", "serviceaccounts", "impersonate"),
    Grant("", "pods pods/attach pods/exec pods/portforward pods/proxy", WRITE),
    Grant("", "pods/eviction", "create"),
    Grant(
        "",
        "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets \
         serviceaccounts services services/proxy",
        WRITE,
    ),
    Grant("", "serviceaccounts/token", "create"),
    Grant(EVENTS, "events", WRITE),
    Grant(
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets \
         statefulsets/scale",
        WRITE,
    ),
    Grant("autoscaling", "horizontalpodautoscalers", WRITE),
    Grant("batch", "cronjobs jobs", WRITE),
    Grant(
        "extensions",
        "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets \
         replicasets/scale replicationcontrollers/scale",
        WRITE,
    ),
    Grant("policy", "poddisruptionbudgets", WRITE),
    Grant("networking.k8s.io", "ingresses networkpolicies", WRITE),
    Grant("coordination.k8s.io", "leases", ALL),
    Grant("resource.k8s.io", "resourceclaims resourceclaimtemplates", WRITE),
];

const TO_VIEW: &[Grant] = &[
    Grant(
        "",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers \
         replicationcontrollers/scale serviceaccounts services services/status",
        READ,
    ),
    Grant(
        "",
        "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas \
         resourcequotas/status",
        READ,
    ),
    Grant("", "namespaces", READ),
    Grant(EVENTS, "events", READ),
    Grant("discovery.k8s.io", "endpointslices", READ),
    Grant(
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status \
         replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
        READ,
    ),
    Grant("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", READ),
    Grant("batch", "cronjobs cronjobs/status jobs jobs/status", READ),
    Grant(
        "extensions",
        "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status \
         networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale",
        READ,
    ),
    Grant("policy", "poddisruptionbudgets poddisruptionbudgets/status", READ),
    Grant("networking.k8s.io", "ingresses ingresses/status networkpolicies", READ),
    Grant("resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates", READ),
];

/// Roles for parts of a cluster that charts and node bootstrapping refer to.
const COMPONENTS: &[(&str, &[Grant])] = &[
    (
        "system:auth-delegator",
        &[
            Grant("authentication.k8s.io", "tokenreviews", "create"),
            Grant("authorization.k8s.io", "subjectaccessreviews", "create"),
        ],
    ),
    (
        "system:basic-user",
        &[
            Grant("authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
            Grant("authentication.k8s.io", "selfsubjectreviews", "create"),
        ],
    ),
    (
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &[Grant("certificates.k8s.io", "certificatesigningrequests/nodeclient", "create")],
    ),
    (
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &[Grant("certificates.k8s.io", "certificatesigningrequests/selfnodeclient", "create")],
    ),
    ("system:kube-dns", &[Grant("", "endpoints services", "list watch")]),
    (
        "system:kubelet-api-admin",
        &[
            Grant("", "nodes", READ),
            Grant("", "nodes", "proxy"),
            Grant("", "nodes/log nodes/metrics nodes/proxy nodes/stats", "*"),
            Grant("", "nodes/configz nodes/healthz nodes/pods", "*"),
        ],
    ),
    (
        "system:node-bootstrapper",
        &[Grant("certificates.k8s.io", "certificatesigningrequests", "create get list watch")],
    ),
    (
        "system:node-proxier",
        &[
            Grant("", "endpoints services", "list watch"),
            Grant("", "nodes", READ),
            Grant(EVENTS, "events", REPORT),
            Grant("networking.k8s.io", "servicecidrs", "list watch"),
            Grant("discovery.k8s.io", "endpointslices", "list watch"),
        ],
    ),
    (
        "system:persistent-volume-provisioner",
        &[
            Grant("", "persistentvolumes", "create delete get list watch"),
            Grant("", "persistentvolumeclaims", "get list update watch"),
            Grant("storage.k8s.io", "storageclasses", READ),
            Grant("", "events", "watch"),
            Grant(EVENTS, "events", REPORT),
        ],
    ),
];

const PUBLIC_PATHS: &str = "/healthz /livez /readyz /version /version/";
const DISCOVERY_PATHS: &str =
    "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/";
const MONITORING_PATHS: &str =
    "/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz";
const ISSUER_PATHS: &str = "/.well-known/openid-configuration /.well-known/openid-configuration/ \
                            /openid/v1/jwks /openid/v1/jwks/";

/// All of them, ready to be created at the first start. The one namespaced role is in `kube-system`.
pub fn default_rbac_objects() -> Vec<Value> {
    let mut roles = vec![
        cluster_role(
            "cluster-admin",
            vec![
                json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
                json!({"nonResourceURLs": ["*"], "verbs": ["*"]}),
            ],
        ),
        labelled(cluster_role("system:aggregate-to-admin", rules(TO_ADMIN)), "admin"),
        labelled(cluster_role("system:aggregate-to-edit", rules(TO_EDIT)), "edit"),
        labelled(cluster_role("system:aggregate-to-view", rules(TO_VIEW)), "view"),
        aggregated("admin"),
        labelled(aggregated("edit"), "admin"),
        labelled(aggregated("view"), "edit"),
        cluster_role("system:public-info-viewer", vec![paths(PUBLIC_PATHS)]),
        cluster_role("system:discovery", vec![paths(DISCOVERY_PATHS)]),
        cluster_role(
            "system:monitoring",
            vec![
                paths(MONITORING_PATHS),
                json!({"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}),
            ],
        ),
        cluster_role("system:service-account-issuer-discovery", vec![paths(ISSUER_PATHS)]),
    ];
    roles.extend(COMPONENTS.iter().map(|(name, grants)| cluster_role(name, rules(grants))));
    let filled: Vec<Option<Vec<Value>>> = roles.iter().map(|role| aggregated_rules(role, &roles)).collect();
    for (role, rules) in roles.iter_mut().zip(filled) {
        if let Some(rules) = rules {
            role["rules"] = rules.into();
        }
    }
    roles.extend(bindings());
    roles.push(authentication_reader());
    roles
}

fn bindings() -> impl Iterator<Item = Value> {
    let group = |name: &str| json!({"apiGroup": GROUP, "kind": "Group", "name": name});
    let everyone = vec![group("system:authenticated"), group("system:unauthenticated")];
    [
        ("cluster-admin", vec![group("system:masters")]),
        ("system:basic-user", vec![group("system:authenticated")]),
        ("system:discovery", vec![group("system:authenticated")]),
        ("system:public-info-viewer", everyone),
        ("system:monitoring", vec![group("system:monitoring")]),
        ("system:service-account-issuer-discovery", vec![group("system:serviceaccounts")]),
        (
            "system:kube-dns",
            vec![json!({"kind": "ServiceAccount", "name": "kube-dns", "namespace": "kube-system"})],
        ),
        (
            "system:node-proxier",
            vec![json!({"apiGroup": GROUP, "kind": "User", "name": "system:kube-proxy"})],
        ),
    ]
    .into_iter()
    .map(|(name, subjects)| {
        let mut binding = object("ClusterRoleBinding", name);
        binding["roleRef"] = json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name});
        binding["subjects"] = subjects.into();
        binding
    })
}

/// Lets an extension server read how this one authenticates.
fn authentication_reader() -> Value {
    let mut role = object("Role", "extension-apiserver-authentication-reader");
    role["metadata"]["namespace"] = json!("kube-system");
    role["rules"] = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"],
        "resourceNames": ["extension-apiserver-authentication"]}]);
    role
}

fn object(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind,
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
    })
}

fn cluster_role(name: &str, rules: Vec<Value>) -> Value {
    let mut role = object("ClusterRole", name);
    role["rules"] = rules.into();
    role
}

fn aggregated(name: &str) -> Value {
    let mut role = cluster_role(name, Vec::new());
    role["aggregationRule"] =
        json!({"clusterRoleSelectors": [{"matchLabels": {aggregate_label(name): "true"}}]});
    role
}

fn labelled(mut role: Value, target: &str) -> Value {
    role["metadata"]["labels"][aggregate_label(target)] = json!("true");
    role
}

fn aggregate_label(target: &str) -> String {
    format!("rbac.authorization.k8s.io/aggregate-to-{target}")
}

fn rules(grants: &[Grant]) -> Vec<Value> {
    let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
    grants
        .iter()
        .map(|Grant(groups, resources, verbs)| {
            json!({"apiGroups": words(groups), "resources": words(resources), "verbs": words(verbs)})
        })
        .collect()
}

fn paths(list: &str) -> Value {
    json!({"nonResourceURLs": list.split_whitespace().collect::<Vec<_>>(), "verbs": ["get"]})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Rule;
    use std::collections::BTreeSet;

    #[test]
    fn every_object_is_complete_and_every_binding_finds_its_role() {
        let objects = default_rbac_objects();
        let mut seen = BTreeSet::new();
        for object in &objects {
            let name = object["metadata"]["name"].as_str().unwrap();
            assert!(seen.insert((object["kind"].as_str().unwrap(), name)), "{name} is there twice");
            assert_eq!(
                object["metadata"]["labels"]["kubernetes.io/bootstrapping"], "rbac-defaults",
                "{name}"
            );
            for rule in Rule::list(object) {
                assert!(!rule.verbs.is_empty(), "{name}");
                assert_eq!(rule.resources.is_empty(), !rule.non_resource_urls.is_empty(), "{name}");
                let words = rule.resources.iter().chain(&rule.non_resource_urls).chain(&rule.verbs);
                assert!(words.clone().all(|w| !w.is_empty() && !w.contains(' ')), "{name}: {rule:?}");
            }
        }
        for binding in objects.iter().filter(|o| o["kind"] == "ClusterRoleBinding") {
            let role = binding["roleRef"]["name"].as_str().unwrap();
            assert!(seen.contains(&("ClusterRole", role)), "{role}");
        }
    }

    #[test]
    fn aggregated_roles_come_filled() {
        let objects = default_rbac_objects();
        let count = |name: &str| {
            let role = objects.iter().find(|o| o["kind"] == "ClusterRole" && o["metadata"]["name"] == name);
            Rule::list(role.unwrap()).len()
        };
        assert_eq!(count("view"), TO_VIEW.len());
        assert_eq!(count("edit"), TO_VIEW.len() + TO_EDIT.len());
        assert_eq!(count("admin"), TO_VIEW.len() + TO_EDIT.len() + TO_ADMIN.len());
    }
}
