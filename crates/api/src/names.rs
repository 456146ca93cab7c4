//! Names that more than one room must spell alike: the API group, labels, annotations, finalizers, well-known objects,
//! and the rule that makes object names from a cluster's name.

use std::collections::BTreeMap;

use crate::common::MachineRole;

/// API group of all kinds but [`crate::MachineLoadBalancer`].
pub const GROUP: &str = "butler.butlerlabs.dev";
/// API group of [`crate::MachineLoadBalancer`].
pub const LOAD_BALANCER_GROUP: &str = "loadbalancer.butler.butlerlabs.dev";
/// The one version of both groups.
pub const VERSION: &str = "v1alpha1";
/// Namespace in which the bootstrap works.
pub const SYSTEM_NAMESPACE: &str = "butler-system";
/// Name of the one ButlerConfig.
pub const BUTLER_CONFIG_NAME: &str = "butler";
/// Longest object name that is also a DNS label.
pub const MAX_NAME: usize = 63;

/// Finalizer of a ClusterBootstrap.
pub const FINALIZER_CLUSTER_BOOTSTRAP: &str = "clusterbootstrap.butler.butlerlabs.dev/finalizer";
/// Finalizer of a MachineRequest.
pub const FINALIZER_MACHINE_REQUEST: &str = "butler.butlerlabs.dev/machinerequest";
/// Finalizer of a LoadBalancerRequest.
pub const FINALIZER_LOAD_BALANCER_REQUEST: &str = "butler.butlerlabs.dev/loadbalancerrequest";
/// Finalizer of a MachineRequest whose machine is behind a load balancer: the machine stays until it is drained.
pub const FINALIZER_LOAD_BALANCER_TARGET: &str = "butler.butlerlabs.dev/load-balancer-target";
/// Finalizer of an ImageSync.
pub const FINALIZER_IMAGE_SYNC: &str = "butler.butlerlabs.dev/imagesync";
/// Finalizer of a ProviderConfig.
pub const FINALIZER_PROVIDER_CONFIG: &str = "butler.butlerlabs.dev/providerconfig";
/// Finalizer of a MachineLoadBalancer.
pub const FINALIZER_MACHINE_LOAD_BALANCER: &str = "loadbalancer.butler.butlerlabs.dev/machineloadbalancer";

/// Label: name of the ClusterBootstrap that an object belongs to.
pub const LABEL_CLUSTER_BOOTSTRAP: &str = "butler.butlerlabs.dev/cluster-bootstrap";
/// Label: name of the cluster that an object belongs to.
pub const LABEL_CLUSTER: &str = "butler.butlerlabs.dev/cluster";
/// Label: `control-plane` or `worker`.
pub const LABEL_ROLE: &str = "butler.butlerlabs.dev/role";
/// Label: schematic of a synced image, cut to 63 characters.
pub const LABEL_SCHEMATIC_ID: &str = "butler.butlerlabs.dev/schematic-id";
/// Label: Talos version of a synced image.
pub const LABEL_IMAGE_VERSION: &str = "butler.butlerlabs.dev/image-version";
/// Label: architecture of a synced image.
pub const LABEL_IMAGE_ARCH: &str = "butler.butlerlabs.dev/image-arch";
/// Label: ProviderConfig that a synced image was uploaded with.
pub const LABEL_PROVIDER_CONFIG: &str = "butler.butlerlabs.dev/provider-config";
/// Label: where a catalogue entry comes from (`builtin`).
pub const LABEL_SOURCE: &str = "butler.butlerlabs.dev/source";
/// Label that Kubernetes tools use for "who made this".
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Our value of [`LABEL_MANAGED_BY`].
pub const MANAGED_BY: &str = "butler";

/// Machine label: present (with an empty value) on control-plane machines.
pub const LABEL_CAPI_CONTROL_PLANE: &str = "cluster.x-k8s.io/control-plane";
/// Machine label: the cluster's name.
pub const LABEL_CAPI_CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
/// Machine label: availability zone, where the infrastructure has such a thing.
pub const LABEL_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
/// Machine label: region, where the infrastructure has such a thing.
pub const LABEL_REGION: &str = "failure-domain.beta.kubernetes.io/region";

/// Machine annotation (value `true`): queued for deletion, so drain its connections and take it out of load balancers.
///
/// The proposal names a label `cluster.x-k8s.io/control-plane/selected-for-upgrade`. A key may hold one slash only, so the
/// second one is a dash here, and it is an annotation since nobody selects by it.
pub const ANNOTATION_SELECTED_FOR_UPGRADE: &str = "cluster.x-k8s.io/control-plane-selected-for-upgrade";
/// Cluster API's hook annotation: its Machine is not ended while a load balancer still drains it.
pub const ANNOTATION_PRE_TERMINATE_HOOK: &str =
    "pre-terminate.delete.hook.machine.cluster.x-k8s.io/butler-load-balancer";
/// ClusterBootstrap annotation: `"false"` keeps kubeconfig and talosconfig out of `status`; the Secrets stay.
pub const ANNOTATION_CREDENTIALS_IN_STATUS: &str = "butler.butlerlabs.dev/credentials-in-status";
/// MachineRequest annotation: zone that the machine was placed in.
pub const ANNOTATION_AVAILABILITY_ZONE: &str = "butler.butlerlabs.dev/availability-zone";

/// The labels that every machine of a cluster carries, so that selectors of load balancers find it.
pub fn machine_labels(
    cluster: &str,
    role: MachineRole,
    zone: Option<&str>,
    region: Option<&str>,
) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([
        (LABEL_CLUSTER.to_owned(), cluster.to_owned()),
        (LABEL_ROLE.to_owned(), role.to_string()),
        (LABEL_MANAGED_BY.to_owned(), MANAGED_BY.to_owned()),
        (LABEL_CAPI_CLUSTER_NAME.to_owned(), cluster.to_owned()),
    ]);
    if role == MachineRole::ControlPlane {
        labels.insert(LABEL_CAPI_CONTROL_PLANE.to_owned(), String::new());
    }
    for (key, value) in [(LABEL_ZONE, zone), (LABEL_REGION, region)] {
        if let Some(value) = value {
            labels.insert(key.to_owned(), value.to_owned());
        }
    }
    labels
}

/// Name of the n-th machine of a role, also the name of its MachineRequest: `<cluster>-cp-0`, `<cluster>-worker-0`.
pub fn machine_name(cluster: &str, role: MachineRole, index: u32) -> String {
    let suffix = match role {
        MachineRole::ControlPlane => format!("-cp-{index}"),
        MachineRole::Worker => format!("-worker-{index}"),
    };
    with_suffix(cluster, &suffix, MAX_NAME)
}

/// Name of the LoadBalancerRequest of a cluster: `<cluster>-lb`.
pub fn load_balancer_name(cluster: &str) -> String {
    with_suffix(cluster, "-lb", MAX_NAME)
}

/// `stem` + `suffix` in at most `max` characters: a stem that is too long is cut and gets a hash of the whole, so that
/// two long names that begin alike stay apart. Never rejects.
pub fn with_suffix(stem: &str, suffix: &str, max: usize) -> String {
    let whole = format!("{stem}{suffix}");
    if whole.len() <= max {
        return whole;
    }
    let mark = format!("-{:08x}", fnv1a(&whole));
    let room = max.saturating_sub(mark.len() + suffix.len());
    let cut: String = stem.chars().take(room).collect();
    format!("{}{mark}{suffix}", cut.trim_end_matches(['-', '.']))
}

/// A label value made from any text: cut to 63 characters, and ending in a letter or digit.
pub fn label_value(text: &str) -> String {
    let cut: String = text.chars().take(MAX_NAME).collect();
    cut.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// 32-bit FNV-1a: the names that it marks must be the same in every release, which std's hashers do not promise.
fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_cluster() {
        assert_eq!(machine_name("butler-mgmt", MachineRole::ControlPlane, 0), "butler-mgmt-cp-0");
        assert_eq!(machine_name("butler-mgmt", MachineRole::Worker, 2), "butler-mgmt-worker-2");
        assert_eq!(load_balancer_name("butler-mgmt"), "butler-mgmt-lb");
    }

    #[test]
    fn long_names_are_shortened_and_stay_apart() {
        let (a, b) = ("a".repeat(62) + "b", "a".repeat(62) + "c");
        let (a, b) = (load_balancer_name(&a), load_balancer_name(&b));
        assert_eq!((a.len(), b.len()), (63, 63));
        assert_ne!(a, b);
        assert!(a.ends_with("-lb"));
        assert_eq!(with_suffix("abc-def", "", 16), "abc-def");
        assert_eq!(with_suffix("abc-----------def", "", 13), with_suffix("abc-----------def", "", 13));
        assert!(!with_suffix("abc-----------def", "", 13).contains("--"));
    }

    #[test]
    fn machines_carry_the_selector_labels() {
        let labels = machine_labels("m", MachineRole::ControlPlane, Some("z1"), None);
        assert_eq!(labels.get("cluster.x-k8s.io/control-plane").map(String::as_str), Some(""));
        assert_eq!(labels.get("cluster.x-k8s.io/cluster-name").map(String::as_str), Some("m"));
        assert_eq!(labels.get("failure-domain.beta.kubernetes.io/zone").map(String::as_str), Some("z1"));
        assert!(!labels.contains_key("failure-domain.beta.kubernetes.io/region"));
        assert!(!machine_labels("m", MachineRole::Worker, None, None).contains_key(LABEL_CAPI_CONTROL_PLANE));
    }

    #[test]
    fn keys_hold_one_slash() {
        for key in [
            ANNOTATION_SELECTED_FOR_UPGRADE,
            ANNOTATION_PRE_TERMINATE_HOOK,
            ANNOTATION_CREDENTIALS_IN_STATUS,
            LABEL_CAPI_CONTROL_PLANE,
            FINALIZER_CLUSTER_BOOTSTRAP,
        ] {
            assert_eq!(key.matches('/').count(), 1, "{key}");
        }
    }

    #[test]
    fn label_values_are_cut() {
        assert_eq!(label_value(&"a".repeat(70)).len(), 63);
        assert_eq!(label_value("abc-"), "abc");
    }
}
