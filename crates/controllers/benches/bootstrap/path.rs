//! The critical path of a bootstrap on the delay table: what would still take this long if all our own work took no time.
//!
//! All machines go through the same steps side by side, so that only the joins of etcd make a difference between them: one
//! learner at a time, so that the third control plane is the last node of all. The pod network is ready before that one comes,
//! and with it everything that needs nothing else. MetalLB has a daemon on every node and so waits for the last one, and
//! Traefik waits for MetalLB. All else is over by then.
//!
//! ```text
//! clone, copy, set up, grow, start, boot, agent      every machine
//! config taken, boot with it: the Talos API          every machine
//! etcd data, etcd                                    first control plane
//! next look, etcd, promoted                          second
//! next look, etcd, Kubernetes, node, MetalLB         third
//! Traefik                                            a worker
//! ```

use butler_sim::delay_table;

/// The template's disk, and how fast it is copied.
const DISK: f64 = (10_u64 << 30) as f64;
const COPY_RATE: f64 = 500e6;

/// Rows with their seconds, in order.
pub(crate) fn critical(speed: f64) -> Vec<(String, f64)> {
    let mut rows = machine(speed);
    rows.extend(talos(speed));
    rows.extend(etcd(speed));
    let table = delay_table(speed);
    for name in ["machine/static-pods", "kubernetes/node-registers"] {
        rows.push((name.to_owned(), table[name]));
    }
    for addon in ["MetalLB", "Traefik"] {
        for name in ["kubernetes/pod-starts", "kubernetes/pod-ready"] {
            rows.push((format!("{name} ({addon})"), table[name]));
        }
    }
    rows
}

/// Until a machine has an address.
pub(crate) fn machine(speed: f64) -> Vec<(String, f64)> {
    let mut rows = named(
        speed,
        &[
            "proxmox/clone",
            "proxmox/change",
            "proxmox/change",
            "proxmox/start",
            "machine/boot",
            "proxmox/agent",
        ],
    );
    rows.insert(1, ("copy of the template's disk".to_owned(), DISK / COPY_RATE * speed));
    rows
}

/// From the config to an API that takes the call to make etcd.
pub(crate) fn talos(speed: f64) -> Vec<(String, f64)> {
    named(speed, &["machine/close-maintenance", "machine/apid"])
}

/// Until etcd runs on the third control plane.
pub(crate) fn etcd(speed: f64) -> Vec<(String, f64)> {
    let table = delay_table(speed);
    // Counted from the moment at which a machine boots with its config, as its loop is.
    let look =
        Looks { first: table["machine/cri"] + table["machine/time-sync"], every: table["machine/etcd-join"] };
    let mut rows = named(speed, &["machine/etcd-data", "machine/etcd-start"]);
    let mut now = table["machine/apid"] + table["machine/etcd-data"] + table["machine/etcd-start"];
    let waits = look.after(now) - now;
    rows.push(("until the second looks for etcd".to_owned(), waits));
    now += waits;
    for name in ["machine/etcd-start", "machine/etcd-promote"] {
        rows.push((name.to_owned(), table[name]));
        now += table[name];
    }
    rows.push(("until the third looks for etcd".to_owned(), look.after(now) - now));
    rows.push(("machine/etcd-start".to_owned(), table["machine/etcd-start"]));
    rows
}

/// A loop that looks for something from time to time.
struct Looks {
    first: f64,
    every: f64,
}

impl Looks {
    /// The first look at or after a moment.
    fn after(&self, moment: f64) -> f64 {
        if self.every <= 0.0 {
            return moment;
        }
        let rounds = ((moment - self.first) / self.every - 1e-9).ceil().max(1.0);
        self.first + rounds * self.every
    }
}

pub(crate) fn named(speed: f64, names: &[&'static str]) -> Vec<(String, f64)> {
    let table = delay_table(speed);
    names.iter().map(|name| ((*name).to_owned(), table[name])).collect()
}
