//! A model of the same bootstrap with the fixed waits of the first Butler, on the same delay table. Nothing of it is run.
//!
//! It is kind to that flow: calls take no time, nothing fails, every pause ends at the first look that can succeed, and the
//! pauses of the command line before the bootstrap begins are left out.

use crate::path;
use butler_sim::delay_table;

/// A machine's own controller looks again; the bootstrap looks at its machines again.
const MACHINE_POLL: f64 = 10.0;
const MACHINES_POLL: f64 = 15.0;
/// Configs are applied one machine after another, and then the controller comes back.
const APPLIED: f64 = 5.0;
/// Between two tries to make etcd.
const BOOTSTRAP_RETRY: f64 = 10.0;
/// An addon's step that failed, for one since the API is not there yet.
const STEP_RETRY: f64 = 5.0;
/// How often a release is looked at while it is waited for.
const RELEASE_POLL: f64 = 2.0;
/// How often the command line looks.
const CLI_POLL: f64 = 5.0;

/// Rows with their seconds, in order. Fixed waits do not scale with the speed.
pub(crate) fn modelled(speed: f64) -> Vec<(String, f64)> {
    let sum = |rows: &[(String, f64)]| rows.iter().map(|(_, seconds)| seconds).sum::<f64>();
    let named = |names: &[&'static str]| sum(&path::named(speed, names));
    let table = delay_table(speed);
    let mut model = Model::default();
    let up = next(next(sum(&path::machine(speed)), MACHINE_POLL), MACHINES_POLL);
    model.add("machines up: looked at every 10 s, and every 15 s again", up);
    model.add("configs applied, controller comes back after 5 s", APPLIED);
    let answers = (sum(&path::talos(speed)) - APPLIED).max(0.0);
    model.add("etcd asked for every 10 s", next(answers, BOOTSTRAP_RETRY));
    let made = model.now;
    let api = named(&["machine/etcd-data", "machine/etcd-start", "machine/static-pods"]);
    model.add("Kubernetes: first step of the addons every 5 s", next(api, STEP_RETRY));
    // Pods need workers with a network.
    let pods = named(&["kubernetes/pod-starts", "kubernetes/pod-ready"]);
    let worker = table["kubernetes/node-registers"] + pods + table["kubernetes/network-ready"];
    model.release("cert-manager", worker + pods);
    // The speakers of MetalLB run on every node, the last one included.
    let last =
        made + sum(&path::etcd(speed)) + table["machine/static-pods"] + table["kubernetes/node-registers"];
    model.release("metallb", pods.max(last + pods - model.now));
    for addon in ["traefik", "steward", "capi", "flux", "butler-controller", "butler-console"] {
        model.release(addon, pods);
    }
    model.add("seen by the command line, every 5 s", next(model.now, CLI_POLL) - model.now);
    model.rows
}

#[derive(Default)]
struct Model {
    now: f64,
    rows: Vec<(String, f64)>,
}

impl Model {
    fn add(&mut self, name: &str, seconds: f64) {
        self.now += seconds;
        self.rows.push((name.to_owned(), seconds));
    }

    /// One addon after another, each waited for.
    fn release(&mut self, addon: &str, seconds: f64) {
        self.add(&format!("{addon}: waited for, looked at every 2 s"), next(seconds, RELEASE_POLL));
    }
}

/// When something is seen that is looked at every so often.
fn next(seconds: f64, every: f64) -> f64 {
    (seconds / every - 1e-9).ceil().max(0.0) * every
}
