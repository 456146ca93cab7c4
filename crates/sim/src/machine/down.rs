//! What takes a configured node down: reboot, shutdown, reset, upgrade.

use super::{Action, Answer, Effect, Etcd, EtcdCall, ServiceState, Stage, Task, Then, Turn, Wipe};
use tonic::Code;

/// The task that takes all services down, by the name that clients look for.
const STOP_SERVICES: &str = "stopAllServices";

impl Turn {
    /// Whether a new sequence may start; if not, the caller is told.
    fn may_begin(&mut self) -> bool {
        match self.machine.stage {
            Stage::Booting | Stage::Running => true,
            Stage::Maintenance | Stage::LeavingMaintenance => {
                self.refuse(Code::Unimplemented, "API is not implemented in maintenance mode");
                false
            }
            _ => {
                self.refuse(Code::FailedPrecondition, "another sequence is in progress");
                false
            }
        }
    }

    pub(super) fn request_reboot(&mut self, actor: String) {
        if !self.may_begin() {
            return;
        }
        self.answer(Answer::Done);
        self.machine.run.actor = actor;
        self.reboot();
    }

    /// The reboot sequence, whoever asked for it.
    pub(super) fn reboot(&mut self) {
        self.sequence("reboot", Action::Start);
        self.stop_services();
        self.go_down();
    }

    pub(super) fn request_shutdown(&mut self, actor: String) {
        if !self.may_begin() {
            return;
        }
        self.answer(Answer::Done);
        self.begin(Stage::ShuttingDown, Then::Shutdown, actor);
        self.stop_services_then_end();
    }

    pub(super) fn request_reset(&mut self, actor: String, graceful: bool, reboot: bool, wipe: Wipe) {
        if !self.may_begin() {
            return;
        }
        self.answer(Answer::Done);
        self.log(format!("reset request received. actorID: {actor}"));
        self.begin(Stage::Resetting, Then::Reset { wipe, reboot }, actor);
        if graceful { self.leave_etcd_then_end() } else { self.stop_services_then_end() }
    }

    /// The EPHEMERAL partition, and with it etcd, survives an upgrade (from Talos 1.8 on, whatever `preserve` says).
    pub(super) fn request_upgrade(&mut self, actor: String, version: String, stage: bool) {
        if !self.may_begin() {
            return;
        }
        self.answer(Answer::Done);
        if stage {
            self.machine.disk.staged_version = Some(version);
            self.machine.run.actor = actor;
            return self.reboot();
        }
        self.begin(Stage::Upgrading, Then::Upgrade { version }, actor);
        self.stop_services_then_end();
    }

    fn begin(&mut self, stage: Stage, then: Then, actor: String) {
        self.machine.stage = stage;
        self.machine.run.then = Some(then);
        self.machine.run.actor = actor;
        let name = self.sequence_name();
        self.sequence(name, Action::Start);
    }

    /// The name of the sequence under way, as it stands in events.
    pub(super) fn sequence_name(&self) -> &'static str {
        match self.machine.run.then {
            Some(Then::Reset { .. }) => "reset",
            Some(Then::Upgrade { .. }) => "upgrade",
            Some(Then::Shutdown) => "shutdown",
            None => "noop",
        }
    }

    fn leave_etcd_then_end(&mut self) {
        match (&self.machine.run.etcd, self.machine.disk.etcd) {
            (Etcd::Running { .. }, Some(member)) => {
                self.task("leaveEtcd", Action::Start);
                self.push(Effect::Etcd(EtcdCall::Leave(member)));
            }
            _ => self.stop_services_then_end(),
        }
    }

    /// Clients that follow a reset or a shutdown wait for this very task, so it lasts as long as the sequence: one that
    /// subscribes while its call is under way still sees the end. Those that follow a reboot or an upgrade start over when
    /// they see it, without looking back; a machine that is up again in no time would then have told them everything too
    /// early, so there it is left out.
    fn stops_are_told(&self) -> bool {
        matches!(self.machine.run.then, Some(Then::Reset { .. } | Then::Shutdown))
    }

    fn stop_services(&mut self) {
        if self.stops_are_told() {
            self.task(STOP_SERVICES, Action::Start);
        }
        for id in ["kubelet", "cri", "etcd"] {
            if self.machine.run.services.get(id) == Some(&ServiceState::Running) {
                self.service(id, ServiceState::Finished, "Service finished successfully");
            }
        }
    }

    pub(super) fn stop_services_then_end(&mut self) {
        let task = match self.machine.run.then {
            Some(Then::Reset { .. }) => Task::Reset,
            Some(Then::Upgrade { .. }) => Task::Upgrade,
            Some(Then::Shutdown) => Task::Shutdown,
            None => return,
        };
        self.stop_services();
        self.push(Effect::Start(task));
    }

    /// The disk is wiped or written, the services are down.
    pub(super) fn sequence_over(&mut self) {
        let Some(then) = self.machine.run.then.clone() else { return };
        if self.stops_are_told() {
            self.task(STOP_SERVICES, Action::Stop);
        }
        let name = self.sequence_name();
        self.sequence(name, Action::Stop);
        match then {
            Then::Shutdown => self.power_off_softly(),
            Then::Upgrade { version } => {
                self.machine.disk.installed = Some(version);
                self.go_down();
            }
            Then::Reset { wipe, reboot } => {
                // The member stops before its data go: afterwards nobody knows which one it was.
                if reboot {
                    self.go_down();
                } else {
                    self.power_off_softly();
                }
                self.wipe(wipe);
            }
        }
    }

    fn wipe(&mut self, wipe: Wipe) {
        let disk = &mut self.machine.disk;
        if wipe.everything || wipe.state {
            disk.config = None;
            disk.staged = None;
        }
        if wipe.everything || wipe.ephemeral {
            disk.etcd = None;
        }
        if wipe.everything {
            disk.installed = None;
            disk.staged_version = None;
        }
    }

    fn power_off_softly(&mut self) {
        let effects = std::mem::take(&mut self.effects);
        self.power_off();
        // The connections are closed in order, unlike at a pulled plug.
        let softened = std::mem::take(&mut self.effects).into_iter().map(|effect| match effect {
            Effect::Close { .. } => Effect::Close { graceful: true },
            other => other,
        });
        self.effects = effects.into_iter().chain(softened).collect();
    }
}
