//! How long things take in the simulated data centre: one table for all of it, scaled by one knob (`speed`).
//!
//! Seconds at speed 1, after what is known of real machines: a fast x86 server that boots by kexec, a Proxmox with a shared
//! flash storage, images from a mirror nearby. Speed 0.1 takes a tenth of it, speed 0 no time at all. Every delay varies by a
//! tenth around its value, with the seed; with seed 0 nothing varies, so that a benchmark knows what to expect. What depends on an amount of data (copies of disks, downloads) comes on top, at the
//! rates below.
//!
//! [`delay_table`] gives the table by name, so that a benchmark can add up the critical path of what it measures.

use crate::machine::Task;
use std::collections::BTreeMap;
use std::time::Duration;

macro_rules! table {
    ($($name:ident $text:literal $seconds:literal)*) => {
        $(pub(crate) const $name: f64 = $seconds;)*
        /// The whole table, by name.
        const TABLE: &[(&str, f64)] = &[$(($text, $name)),*];
    };
}

table! {
    BOOT "machine/boot" 5.0
    CLOSE_MAINTENANCE "machine/close-maintenance" 1.0
    INSTALL "machine/install" 30.0
    REBOOT "machine/reboot" 15.0
    APID "machine/apid" 8.0
    CRI "machine/cri" 3.0
    TIME_SYNC "machine/time-sync" 2.0
    KUBELET "machine/kubelet" 6.0
    ETCD_JOIN "machine/etcd-join" 3.0
    ETCD_DATA "machine/etcd-data" 2.0
    ETCD_START "machine/etcd-start" 8.0
    ETCD_PROMOTE "machine/etcd-promote" 15.0
    STATIC_PODS "machine/static-pods" 25.0
    RESET "machine/reset" 20.0
    UPGRADE "machine/upgrade" 60.0
    SHUTDOWN "machine/shutdown" 5.0
    CERTIFICATE_RETRY "machine/certificate-retry" 1.0

    VM_CLONE "proxmox/clone" 3.0
    VM_CREATE "proxmox/create" 3.0
    VM_CHANGE "proxmox/change" 1.0
    VM_TEMPLATE "proxmox/template" 3.0
    VM_START "proxmox/start" 2.0
    VM_STOP "proxmox/stop" 2.0
    VM_SHUTDOWN "proxmox/shutdown" 8.0
    VM_REBOOT "proxmox/reboot" 8.0
    VM_RESET "proxmox/reset" 1.0
    VM_DESTROY "proxmox/destroy" 4.0
    DOWNLOAD "proxmox/download" 2.0
    AGENT "proxmox/agent" 6.0

    AWS_INSTANCE_STARTS "aws/instance-starts" 8.0
    AWS_INSTANCE_STOPS "aws/instance-stops" 20.0
    AWS_INSTANCE_ENDS "aws/instance-ends" 30.0
    AWS_VISIBLE "aws/visible" 0.5
    AWS_BALANCER_STARTS "aws/load-balancer-starts" 120.0
    AWS_INTERFACES_LINGER "aws/interfaces-linger" 30.0
    AWS_TARGET_REGISTERS "aws/target-registers" 15.0
    AWS_GROUP_RELEASED "aws/target-group-released" 2.0

    GCE_ADDRESS "gce/address" 2.0
    GCE_CHECK "gce/health-check" 3.0
    GCE_GROUP "gce/instance-group" 3.0
    GCE_MEMBERS "gce/members" 4.0
    GCE_SERVICE "gce/backend-service" 8.0
    GCE_RULE "gce/forwarding-rule" 8.0
    GCE_FIREWALL "gce/firewall" 5.0
    GCE_CHANGE "gce/change" 3.0
    GCE_INSTANCE "gce/instance" 12.0
    GCE_INSTANCE_DELETE "gce/instance-delete" 30.0
    GCE_INSTANCE_START "gce/instance-start" 8.0
    GCE_INSTANCE_STOP "gce/instance-stop" 15.0
    GCE_LIST_LAG "gce/list-lag" 1.0

    NODE_REGISTERS "kubernetes/node-registers" 2.0
    NETWORK_READY "kubernetes/network-ready" 5.0
    POD_STARTS "kubernetes/pod-starts" 8.0
    POD_READY "kubernetes/pod-ready" 4.0
    JOB_RUNS "kubernetes/job-runs" 6.0
    NODE_LOST "kubernetes/node-lost" 40.0
    PODS_EVICTED "kubernetes/pods-evicted" 300.0
    ADDRESS_TAKEN_OVER "kubernetes/address-taken-over" 15.0
    PROVISIONED "kubernetes/provisioned" 3.0
}

/// Bytes a second of a disk copy, and of a download.
pub(crate) const COPY_RATE: f64 = 500e6;
pub(crate) const DOWNLOAD_RATE: f64 = 50e6;

/// Every delay by its name (`machine/boot`, `proxmox/clone`, `kubernetes/pod-starts`), in seconds at this speed, without
/// jitter.
#[must_use]
pub fn delay_table(speed: f64) -> BTreeMap<&'static str, f64> {
    TABLE.iter().map(|(name, seconds)| (*name, seconds * speed.max(0.0))).collect()
}

const fn seconds(task: Task) -> f64 {
    match task {
        Task::Boot => BOOT,
        Task::CloseMaintenance => CLOSE_MAINTENANCE,
        Task::Install => INSTALL,
        Task::Reboot => REBOOT,
        Task::Apid => APID,
        Task::Cri => CRI,
        Task::TimeSync => TIME_SYNC,
        Task::Kubelet => KUBELET,
        Task::EtcdJoin => ETCD_JOIN,
        Task::EtcdData => ETCD_DATA,
        Task::EtcdStart => ETCD_START,
        Task::EtcdPromote => ETCD_PROMOTE,
        Task::StaticPods => STATIC_PODS,
        Task::Reset => RESET,
        Task::Upgrade => UPGRADE,
        Task::Shutdown => SHUTDOWN,
        Task::TryTimeout(_) => 60.0,
    }
}

/// How much a delay varies around its value in the table, either way.
const JITTER: f64 = 0.1;

/// With this seed every delay is as in the table.
const STEADY: u64 = 0;

/// What a delay is multiplied with. `random` is in 0..1.
pub(crate) fn jitter(seed: u64, random: f64) -> f64 {
    if seed == STEADY { 1.0 } else { 1.0 + JITTER * (random * 2.0 - 1.0) }
}

/// What repeats until something else happens must not turn into a busy loop when nothing takes time.
const RETRY_FLOOR: Duration = Duration::from_millis(10);

/// A client subscribes to a node's events while its own request to reset or shut it down is under way. A real machine takes
/// seconds for either; one that were gone at once would leave such a client waiting for an event that is over.
const GOING_DOWN_FLOOR: Duration = Duration::from_millis(100);

/// The length of a task. `speed` 1 is real time, 0.1 a tenth of it, 0 no time at all; `factor` is the task's [`jitter`].
pub(crate) fn delay(task: Task, speed: f64, factor: f64) -> Duration {
    let scaled = seconds(task) * speed.max(0.0) * factor;
    let length = Duration::try_from_secs_f64(scaled).unwrap_or(Duration::MAX);
    match task {
        Task::EtcdJoin | Task::EtcdPromote => length.max(RETRY_FLOOR),
        Task::Reset | Task::Shutdown => length.max(GOING_DOWN_FLOOR),
        // The one delay that is a promise to the user, not a property of a machine.
        Task::TryTimeout(_) => Duration::from_secs(60),
        _ => length,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_zero_takes_no_time_but_loops_still_breathe() {
        assert_eq!(delay(Task::Install, 0.0, 1.0), Duration::ZERO);
        assert_eq!(delay(Task::EtcdJoin, 0.0, 1.0), RETRY_FLOOR);
        assert_eq!(delay(Task::Reset, 0.0, 1.0), GOING_DOWN_FLOOR);
    }

    #[test]
    fn the_table_has_every_name_once_and_scales() {
        let table = delay_table(0.5);
        assert_eq!(table.len(), TABLE.len());
        assert_eq!(table["proxmox/clone"], 1.5);
        assert!(delay_table(0.0).values().all(|seconds| *seconds == 0.0));
    }

    #[test]
    fn speed_scales_and_jitter_stays_within_its_bounds() {
        assert_eq!(delay(Task::Install, 1.0, jitter(7, 0.5)), Duration::from_secs(30));
        assert_eq!(delay(Task::Install, 0.5, jitter(7, 0.5)), Duration::from_secs(15));
        assert!(delay(Task::Install, 1.0, jitter(7, 0.0)) >= Duration::from_millis(26_999));
        assert!(delay(Task::Install, 1.0, jitter(7, 1.0)) <= Duration::from_millis(33_001));
        assert_eq!(jitter(STEADY, 0.0), 1.0, "nothing varies with this seed");
    }
}
