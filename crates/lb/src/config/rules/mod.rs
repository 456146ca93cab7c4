//! Checks across fields: what a schema can't say.

mod listeners;
mod vips;

use super::document::Node;
use super::finding::{Finding, Severity};
use super::model::Config;
use std::net::IpAddr;

/// Longest path of a unix socket, without the byte at the end.
const SOCKET_PATH: usize = 107;

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

/// Whether two addresses are of one family.
fn same_family(a: IpAddr, b: IpAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}
