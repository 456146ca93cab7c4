//! `ApplyConfiguration`, in maintenance and on a configured node.

use super::{Answer, Apply, ApplyMode, Effect, Stage, Task, Turn};
use crate::config::{ConfigError, NodeConfig};
use std::sync::Arc;
use tonic::Code;

impl Turn {
    pub(super) fn apply(&mut self, request: Apply) {
        match self.machine.stage {
            Stage::Maintenance => self.apply_in_maintenance(request),
            Stage::Booting | Stage::Running => self.apply_configured(request),
            _ => self.refuse(Code::Unavailable, "the node is on its way to another stage"),
        }
    }

    fn apply_in_maintenance(&mut self, request: Apply) {
        if matches!(request.mode, ApplyMode::NoReboot | ApplyMode::Staged) {
            let mode = request.mode.flag();
            return self.refuse(
                Code::Unimplemented,
                format!("apply configuration --mode='{mode}' is not supported in maintenance mode"),
            );
        }
        let config = match request.config {
            Ok(config) => config,
            Err(ConfigError::Parse(why)) => {
                return self.refuse(Code::Unknown, format!("failed to parse config: {why}"));
            }
            Err(ConfigError::Invalid(why)) => {
                return self.refuse(Code::InvalidArgument, format!("configuration validation failed: {why}"));
            }
            Err(ConfigError::Runtime(why)) => {
                return self.refuse(
                    Code::InvalidArgument,
                    format!("runtime configuration validation failed: {why}"),
                );
            }
        };
        let warnings = config.warnings.clone();
        if request.dry_run {
            let details =
                "Dry run summary:\nNode is running in maintenance mode and does not have a config yet.";
            return self.answer(Answer::Applied { mode: 0, details: details.to_string(), warnings });
        }
        // The reply comes before anything takes effect, and its mode stays 0.
        self.answer(Answer::Applied { mode: 0, details: String::new(), warnings });
        if !config.complete {
            self.log("the configuration has no machine section; staying in maintenance mode");
            return;
        }
        self.machine.disk.config = Some(config);
        self.machine.stage = Stage::LeavingMaintenance;
        self.push(Effect::Start(Task::CloseMaintenance));
    }

    fn apply_configured(&mut self, request: Apply) {
        let config = match request.config {
            Ok(config) if !config.complete => {
                return self.refuse(
                    Code::InvalidArgument,
                    "the applied machine configuration doesn't contain v1alpha1 config document",
                );
            }
            Ok(config) => config,
            Err(ConfigError::Parse(why)) => return self.refuse(Code::InvalidArgument, why),
            Err(ConfigError::Invalid(why)) => {
                return self.refuse(Code::InvalidArgument, format!("configuration validation failed: {why}"));
            }
            Err(ConfigError::Runtime(why)) => {
                return self.refuse(
                    Code::InvalidArgument,
                    format!("runtime configuration validation failed: {why}"),
                );
            }
        };
        let current = self.machine.disk.config.clone();
        let needs_reboot = current.as_ref().and_then(|current| current.needs_reboot(&config));
        let mut mode = request.mode;
        if let (ApplyMode::NoReboot | ApplyMode::Try, Some(why)) = (mode, &needs_reboot) {
            return self.refuse(Code::InvalidArgument, why.clone());
        }
        let mut details = describe(mode);
        if mode == ApplyMode::Auto {
            mode = if needs_reboot.is_some() { ApplyMode::Reboot } else { ApplyMode::NoReboot };
            details = describe(mode);
            if let Some(why) = needs_reboot {
                details = format!("{details}: {why}");
            }
        }
        let warnings = config.warnings.clone();
        if request.dry_run {
            let diff = current.map_or_else(String::new, |current| current.diff(&config));
            let details =
                format!("Dry run summary:\n{details} (skipped in dry-run).\nConfig diff:\n\n{diff}");
            return self.answer(Answer::Applied { mode: mode as i32, details, warnings });
        }
        self.answer(Answer::Applied { mode: mode as i32, details, warnings });
        self.put_in_force(mode, config);
    }

    fn put_in_force(&mut self, mode: ApplyMode, config: Arc<NodeConfig>) {
        match mode {
            ApplyMode::Staged => self.machine.disk.staged = Some(config),
            ApplyMode::Reboot => {
                self.machine.disk.config = Some(config);
                self.reboot();
            }
            ApplyMode::Try => {
                self.machine.tries += 1;
                let before = self.machine.disk.config.replace(config);
                if let Some(before) = before {
                    self.machine.run.tried = Some((self.machine.tries, before));
                    self.push(Effect::Start(Task::TryTimeout(self.machine.tries)));
                }
            }
            ApplyMode::NoReboot | ApplyMode::Auto => {
                // What is applied for good ends a try.
                self.machine.run.tried = None;
                self.machine.disk.config = Some(config);
            }
        }
    }

    /// Nobody has confirmed the configuration that was being tried.
    pub(super) fn try_over(&mut self, number: u32) {
        if let Some((tried, before)) = self.machine.run.tried.take() {
            if tried == number {
                self.log("the configuration that was tried is taken back");
                self.machine.disk.config = Some(before);
            } else {
                self.machine.run.tried = Some((tried, before));
            }
        }
    }
}

fn describe(mode: ApplyMode) -> String {
    match mode {
        ApplyMode::Reboot | ApplyMode::Auto => "Applied configuration with a reboot",
        ApplyMode::NoReboot => "Applied configuration without a reboot",
        ApplyMode::Staged => "Staged configuration to be applied after the next reboot",
        ApplyMode::Try => {
            "The config is applied in 'try' mode and will be automatically reverted back in 1m0s"
        }
    }
    .to_string()
}
