//! Turns as lines for people. Pure.

use super::model::{Balancer, Machine, Turn, summary};
use super::obstacle::left;
use jiff::Timestamp;
use std::time::Duration;

/// How lines look.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Style {
    pub(super) colour: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }
}

/// The lines of a turn.
pub(super) fn lines(turn: &Turn, elapsed: Duration, style: Style) -> Vec<String> {
    let stamp = style.dim(&format!("[{:>7}]", duration(elapsed)));
    let line = |text: String| format!("{stamp} {text}");
    match turn {
        Turn::Start { cluster, provider, control_planes, workers, simulated } => {
            let mark = if *simulated { "SIMULATED " } else { "" };
            let workers = match workers {
                0 => String::new(),
                1 => " and 1 worker".to_owned(),
                more => format!(" and {more} workers"),
            };
            let planes = if *control_planes == 1 { "control plane" } else { "control planes" };
            vec![style.bold(&format!("{cluster} on {mark}{provider}: {control_planes} {planes}{workers}"))]
        }
        Turn::Phase { phase } => vec![line(style.bold(phase))],
        Turn::Machine(machine) => vec![line(machine_line(machine, style))],
        Turn::LoadBalancer(balancer) => vec![line(balancer_line(balancer, style))],
        Turn::Addon { addon, installed, total } => {
            vec![line(format!("  addon {addon} {} ({installed} of {total})", style.green("installed")))]
        }
        Turn::AddonsKnown { installed, total } => {
            vec![line(format!("  {installed} of {total} addons are installed already"))]
        }
        Turn::Wait { message, until, .. } => {
            let left = left(*until, Timestamp::now());
            vec![line(style.dim(&format!("  {}{left}", summary(message))))]
        }
        Turn::Check { check, verdict, detail, remedy } => {
            let mut lines = vec![line(style.red(&format!("{verdict}  {check}: {detail}")))];
            lines.extend(what_to_do(remedy));
            lines
        }
        Turn::Warning(warning) => {
            let text = format!("  {}: {}: {}", warning.object, warning.reason, warning.message);
            vec![line(style.red(&text))]
        }
        Turn::Failure { reason, message, remedy } => {
            let mut lines = vec![line(style.red(&format!("failed: {reason}: {message}")))];
            lines.extend(what_to_do(remedy));
            lines
        }
        Turn::Done { cluster, endpoint, .. } => {
            vec![line(style.green(&format!("{cluster} is ready at {endpoint} after {}", duration(elapsed))))]
        }
        Turn::Stopped { why, remedy, next } => {
            let mut lines = vec![line(why.clone())];
            lines.extend(remedy.as_deref().and_then(what_to_do));
            lines.push(format!("    {next}"));
            lines
        }
        Turn::Gone { cluster } => vec![line(style.green(&format!("{cluster} is gone")))],
    }
}

fn what_to_do(remedy: &str) -> Option<String> {
    (!remedy.is_empty()).then(|| format!("    what to do: {remedy}"))
}

fn machine_line(machine: &Machine, style: Style) -> String {
    let mut text = format!("  machine {} {}", machine.name, machine.phase);
    if let Some(address) = &machine.address {
        text.push_str(&format!(" {address}"));
    }
    if machine.ready {
        text.push_str(&format!(", {}", style.green("joined")));
    } else if machine.configured {
        text.push_str(", configured");
    }
    if let Some(trouble) = &machine.trouble {
        text.push_str(&format!(": {}", style.red(trouble)));
    }
    text
}

fn balancer_line(balancer: &Balancer, style: Style) -> String {
    let mut text = format!("  load balancer {} {}", balancer.name, balancer.phase);
    if let Some(endpoint) = &balancer.endpoint {
        text.push_str(&format!(" {endpoint}"));
    }
    if balancer.targets > 0 || balancer.registered > 0 {
        text.push_str(&format!(", {} of {} targets", balancer.registered, balancer.targets));
    }
    // That none is says nothing before the nodes are up, and is looked at seldom afterwards.
    if balancer.healthy > 0 {
        text.push_str(&format!(", {}", style.green(&format!("{} healthy", balancer.healthy))));
    }
    if let Some(trouble) = &balancer.trouble {
        text.push_str(&format!(": {}", style.red(trouble)));
    }
    text
}

/// A time span as people write it: `0.4s`, `12.3s`, `4m05s`, `1h02m`.
pub(crate) fn duration(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..60 => format!("{:.1}s", (span.as_millis() / 100) as f64 / 10.0),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Progress, Snapshot};
    use super::*;
    use butler_api::{ClusterBootstrap, MachineRequest};
    use serde_json::{Value, json};

    fn bootstrap(status: Value) -> ClusterBootstrap {
        let pool = json!({"replicas": 1, "cpu": 1, "memoryMB": 2048, "diskGB": 20});
        serde_json::from_value(json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ClusterBootstrap", "metadata": {"name": "m"},
            "spec": {"provider": "proxmox", "providerRef": {"name": "p"}, "cluster": {"name": "m", "controlPlane": pool},
                "network": {"podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12"}, "talos": {"version": "v1.9.2", "schematic": "s"}},
            "status": status,
        }))
        .unwrap()
    }

    fn machine(status: Value) -> MachineRequest {
        serde_json::from_value(json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "MachineRequest", "metadata": {"name": "m-cp-0"},
            "spec": {"providerRef": {"name": "p"}, "machineName": "m-cp-0", "role": "control-plane", "cpu": 1, "memoryMB": 2048, "diskGB": 20},
            "status": status,
        }))
        .unwrap()
    }

    fn progressing(reason: &str, message: &str) -> Value {
        json!([{"type": "Progressing", "status": "True", "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    }

    /// A whole bootstrap in plain lines.
    #[test]
    fn golden_lines() {
        let mut progress = Progress::default();
        let mut told = lines(
            &Turn::Start {
                cluster: "m".into(),
                provider: "proxmox".into(),
                control_planes: 1,
                workers: 0,
                simulated: false,
            },
            Duration::ZERO,
            Style::default(),
        );
        let mut second = 0;
        let mut show = |cluster: Value, of_machine: Option<Value>| {
            let machines = of_machine.map(|status| ("m-cp-0".to_owned(), machine(status)));
            let snapshot = Snapshot {
                bootstrap: Some(bootstrap(cluster)),
                machines: machines.into_iter().collect(),
                ..Snapshot::default()
            };
            second += 1;
            for turn in progress.turns(&snapshot) {
                told.extend(lines(&turn, Duration::from_millis(second * 1500), Style::default()));
            }
        };
        show(json!({"phase": "Pending"}), None);
        let waiting = progressing("MachinesRunning", "waiting until 10:30:00 for m-cp-0 to get an address");
        show(
            json!({"phase": "ProvisioningMachines", "conditions": waiting}),
            Some(json!({"phase": "Creating"})),
        );
        show(
            json!({"phase": "ProvisioningMachines", "conditions": waiting}),
            Some(
                json!({"phase": "Creating", "failureReason": "StorageFull", "failureMessage": "local-lvm has no room"}),
            ),
        );
        let running = json!({"phase": "Running", "ipAddress": "10.0.0.1"});
        show(json!({"phase": "ConfiguringTalos"}), Some(running.clone()));
        let joined =
            json!([{"name": "m-cp-0", "role": "control-plane", "talosConfigured": true, "ready": true}]);
        show(
            json!({"phase": "InstallingAddons", "machines": joined, "addonsInstalled": {"cilium": true, "longhorn": false}}),
            Some(running.clone()),
        );
        show(
            json!({"phase": "Failed", "machines": joined, "failureReason": "AddonNotReady", "failureMessage": "longhorn: x is not ready", "failureRemedy": "look at it", "addonsInstalled": {"cilium": true, "longhorn": false}}),
            Some(running),
        );
        let expected = "\
m on proxmox: 1 control plane
[   1.5s] Pending
[   3.0s] ProvisioningMachines
[   3.0s]   machine m-cp-0 Creating
[   3.0s]   waiting until 10:30:00 for m-cp-0 to get an address
[   4.5s]   machine m-cp-0 Creating: StorageFull: local-lvm has no room
[   6.0s] ConfiguringTalos
[   6.0s]   machine m-cp-0 Running 10.0.0.1
[   7.5s] InstallingAddons
[   7.5s]   machine m-cp-0 Running 10.0.0.1, joined
[   7.5s]   addon cilium installed (1 of 2)
[   9.0s] Failed
[   9.0s] failed: AddonNotReady: longhorn: x is not ready
    what to do: look at it";
        assert_eq!(told.join("\n"), expected);
    }

    #[test]
    fn a_load_balancer_is_told_from_its_beginning_to_its_end() {
        let mut progress = Progress::default();
        let mut told = Vec::new();
        let mut show = |status: Option<Value>, targets: usize| {
            let targets: Vec<Value> = (0..targets).map(|n| json!({"ip": format!("10.0.0.{n}")})).collect();
            let balancers = status.map(|status| {
                let request = json!({
                    "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "LoadBalancerRequest", "metadata": {"name": "m-lb"},
                    "spec": {"clusterName": "m", "providerConfigRef": {"name": "p"}, "targets": targets}, "status": status,
                });
                ("m-lb".to_owned(), serde_json::from_value(request).unwrap())
            });
            let snapshot = Snapshot { balancers: balancers.into_iter().collect(), ..Snapshot::default() };
            for turn in progress.turns(&snapshot) {
                told.extend(lines(&turn, Duration::ZERO, Style::default()));
            }
        };
        show(Some(json!({})), 0);
        let refused = json!({"phase": "Creating", "failureReason": "QuotaExceeded", "failureMessage": "no address is left"});
        show(Some(refused.clone()), 0);
        show(Some(refused), 0);
        let ports = json!([{"port": 50000, "registered": 1, "healthy": 1}, {"port": 6443, "registered": 2, "healthy": 0}]);
        show(
            Some(
                json!({"phase": "Ready", "endpoint": "35.1.2.3", "registeredTargets": 2, "listeners": ports}),
            ),
            3,
        );
        show(None, 0);
        assert_eq!(
            told,
            [
                "[   0.0s]   load balancer m-lb Pending",
                "[   0.0s]   load balancer m-lb Creating: QuotaExceeded: no address is left",
                "[   0.0s]   load balancer m-lb Ready 35.1.2.3, 2 of 3 targets",
                "[   0.0s]   load balancer m-lb Deleted",
            ]
        );
    }

    #[test]
    fn the_same_picture_twice_says_nothing() {
        let mut progress = Progress::default();
        let snapshot =
            Snapshot { bootstrap: Some(bootstrap(json!({"phase": "Pending"}))), ..Snapshot::default() };
        assert_eq!((progress.turns(&snapshot).len(), progress.turns(&snapshot).len()), (1, 0));
    }

    #[test]
    fn waits_are_told_by_their_first_and_not_again_for_details() {
        let mut progress = Progress::default();
        let mut told = Vec::new();
        for message in
            ["waiting for a to start: task 1; b", "waiting for a to start: task 2; b", "waiting for b"]
        {
            let status = json!({"conditions": progressing("MachinesRunning", message)});
            let snapshot = Snapshot { bootstrap: Some(bootstrap(status)), ..Snapshot::default() };
            for turn in progress.turns(&snapshot) {
                told.extend(lines(&turn, Duration::ZERO, Style::default()));
            }
        }
        assert_eq!(told, ["[   0.0s]   waiting for a to start (and 1 more)", "[   0.0s]   waiting for b"]);
    }

    /// What was waited for and is there must not be the last that is said.
    #[test]
    fn a_wait_that_is_over_does_not_stay_the_last_line() {
        let (mut progress, mut told) = (Progress::default(), Vec::new());
        let (machine, balancer) = ("the machine a to run", "the load balancer lb to be ready");
        let both = format!("{balancer}: it starts; {machine}");
        for what in [machine, &both, machine, &both, machine, machine] {
            let status =
                json!({"conditions": progressing("MachinesRunning", &format!("waiting for {what}"))});
            let snapshot = Snapshot { bootstrap: Some(bootstrap(status)), ..Snapshot::default() };
            for turn in progress.turns(&snapshot) {
                told.extend(lines(&turn, Duration::ZERO, Style::default()));
            }
        }
        let expected = [
            "[   0.0s]   waiting for the machine a to run",
            "[   0.0s]   waiting for the load balancer lb to be ready (and 1 more)",
            "[   0.0s]   waiting for the machine a to run",
        ];
        assert_eq!(told, expected, "and nothing is told for ever");
    }

    #[test]
    fn a_pause_and_a_deletion_are_said() {
        let paused = json!([{"type": "Progressing", "status": "False", "reason": "Paused", "message": "waiting for spec.paused to be false",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        let snapshot = |status: Value| Snapshot { bootstrap: Some(bootstrap(status)), ..Snapshot::default() };
        let told = |mut progress: Progress, status: Value| -> Vec<String> {
            let turns = progress.turns(&snapshot(status));
            turns.iter().flat_map(|turn| lines(turn, Duration::ZERO, Style::default())).collect()
        };
        let said = told(Progress::default(), json!({"phase": "Pending", "conditions": paused}));
        assert_eq!(
            said[1],
            "[   0.0s]   paused, nothing is done: set paused to false in the file, and run the same command again"
        );
        let deleting = Progress::take_down();
        let waits = progressing("Deleting", "waiting for the machine a to go until 2026-01-01T00:00:00Z");
        let said = told(deleting, json!({"phase": "ProvisioningMachines", "conditions": waits}));
        assert_eq!(
            said,
            ["[   0.0s] Deleting", "[   0.0s]   waiting for the machine a to go (the time for it is over)"]
        );
    }

    #[test]
    fn spans_of_time() {
        let shown = [0.04, 0.45, 59.99, 60.0, 245.0, 3720.0].map(|s| duration(Duration::from_secs_f64(s)));
        assert_eq!(shown, ["0.0s", "0.4s", "59.9s", "1m00s", "4m05s", "1h02m"]);
    }

    #[test]
    fn json_turns_carry_their_kind_and_times() {
        let turn = Turn::Addon { addon: "cilium".into(), installed: 1, total: 2 };
        let value = super::super::json::value(&turn, Duration::from_millis(1234));
        assert_eq!((value["event"].as_str(), value["addon"].as_str()), (Some("addon"), Some("cilium")));
        assert_eq!((value["elapsedSeconds"].as_f64(), value["time"].is_string()), (Some(1.234), true));
        let start = Turn::Start {
            cluster: "m".into(),
            provider: "p".into(),
            control_planes: 3,
            workers: 2,
            simulated: true,
        };
        assert_eq!(super::super::json::value(&start, Duration::ZERO)["controlPlanes"], 3);
    }
}
