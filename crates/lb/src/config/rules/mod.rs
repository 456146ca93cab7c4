//! Checks across fields: what a schema can't say.

mod listeners;
mod vips;

use super::document::Node;
use super::finding::{self, Finding, Severity};
use super::model::Config;
use std::net::IpAddr;

/// Longest path of a unix socket, without the byte at the end.
const SOCKET_PATH: usize = 107;
/// Seconds that the systemd unit and the pods in `deploy/` give a process that is to end.
const STOP_TIME: u64 = 45;
/// The default of `deregistrationDelay`.
const USUAL_DELAY: u64 = 30;

/// Collects what is found.
pub(super) struct Report<'a> {
    pub(super) root: &'a Node,
    pub(super) findings: Vec<Finding>,
}

impl Report<'_> {
    pub(super) fn error(&mut self, path: &str, text: impl AsRef<str>, help: impl Into<String>) {
        self.at(Severity::Error, path, text.as_ref(), help.into());
    }

    pub(super) fn warn(&mut self, path: &str, text: impl AsRef<str>, help: impl Into<String>) {
        self.at(Severity::Warning, path, text.as_ref(), help.into());
    }

    fn at(&mut self, severity: Severity, path: &str, text: &str, help: String) {
        let at = self.root.place(path);
        self.findings.push(Finding { at, severity, text: format!("{path}: {text}"), help });
    }

    /// A name that is there already.
    fn unique<'n>(&mut self, what: &str, names: impl Iterator<Item = (String, &'n str)>) {
        let names: Vec<(String, &str)> = names.collect();
        for (index, (path, name)) in names.iter().enumerate() {
            if let Some((first, _)) = names[..index].iter().find(|(_, other)| other == name) {
                self.error(
                    path,
                    format!("{name:?}: {first} has the name already"),
                    format!("{what} have names of their own"),
                );
            }
        }
    }
}

/// Checks a configuration.
pub(super) fn check(config: &Config, report: &mut Report<'_>) {
    if config.listeners.is_empty() && config.vips.is_empty() {
        report.error("listeners", "there are neither listeners nor vips: nothing to do", "");
    }
    listeners::check(config, report);
    vips::check(config, report);
    stop(config, report);
    if let Some(address) = config.admin.metrics.filter(|address| !address.ip().is_loopback()) {
        let text = format!("\"{address}\": metrics are served on a loopback address only");
        report.error("admin.metrics", text, format!("127.0.0.1:{}", address.port()));
    }
    if config.admin.socket.len() > SOCKET_PATH {
        report.error(
            "admin.socket",
            format!("longer than {SOCKET_PATH} bytes, which the kernel does not take"),
            "",
        );
    }
    if let Some(path) =
        config.access_log.path.as_deref().filter(|path| *path != "-" && !path.starts_with('/'))
    {
        report.error(
            "accessLog.path",
            format!("{path:?}: a path from the root is expected, or - for standard output"),
            "",
        );
    }
}

/// Who is stopped is killed when it takes too long, with addresses and connections that were to be looked after.
fn stop(config: &Config, report: &mut Report<'_>) {
    let longest = config.listeners.iter().enumerate().max_by_key(|(_, one)| one.deregistration_delay);
    let slowest = config.vips.iter().enumerate().max_by_key(|(_, vip)| vip.advert_ms);
    let delay = longest.map_or(0, |(_, listener)| listener.deregistration_delay);
    // Until a peer has the addresses, or is sure not to come: four and a half intervals.
    let hand_over_ms = slowest.map_or(0, |(_, vip)| u64::from(vip.advert_ms) * 9 / 2);
    let seconds = delay.saturating_add(hand_over_ms.div_ceil(1000));
    if seconds < STOP_TIME {
        return;
    }
    let (path, value) = match (longest, slowest) {
        (Some((i, _)), _) if delay > USUAL_DELAY => (format!("listeners[{i}].deregistrationDelay"), delay),
        (_, Some((i, vip))) => (format!("vips[{i}].advertMs"), vip.advert_ms.into()),
        _ => return,
    };
    let text = format!(
        "{value}: a stop may take {}, to hand addresses over and to let connections end; the unit and the pods allow {STOP_TIME}",
        finding::plural(seconds as usize, "second")
    );
    let help = "shorten it, or raise TimeoutStopSec of the unit and terminationGracePeriodSeconds of the pod";
    report.warn(&path, text, help);
}

/// Whether two addresses are of one family.
fn same_family(a: IpAddr, b: IpAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}
