//! `butler-lb check`.

use super::{Exit, output};
use butler_lb::config::{Config, Loaded, load, report, shown};
use std::path::Path;

pub(super) fn run(file: &Path) -> Exit {
    match load(file) {
        Ok(Loaded { config, warnings }) => {
            report(&shown(file), &warnings).iter().for_each(|line| output::line(line));
            output::line(&format!("{}: ok ({})", shown(file), summary(&config)));
            Exit::Ok
        }
        Err(error) => {
            output::unusable(&error);
            Exit::Usage
        }
    }
}

/// `2 listeners, 1 vip`.
fn summary(config: &Config) -> String {
    let count = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    format!("{}, {}", count(config.listeners.len(), "listener"), count(config.vips.len(), "vip"))
}
