//! etcd on a control plane: waiting, bootstrap, join, promotion, removal.

use super::{Action, Effect, Etcd, EtcdCall, Member, Role, ServiceState, Stage, Task, Turn};
use super::{Answer, Event};
use tonic::Code;

impl Turn {
    /// Time is in sync, so etcd may start: with the data of an earlier boot, or by looking for a cluster.
    pub(super) fn start_etcd(&mut self) {
        self.service("etcd", ServiceState::Preparing, "Running pre state");
        if self.machine.disk.etcd.is_some() {
            self.machine.run.etcd = Etcd::Starting;
            self.push(Effect::Start(Task::EtcdStart));
        } else {
            self.machine.run.etcd = Etcd::Joining;
            self.push(Effect::Start(Task::EtcdJoin));
        }
    }

    /// The checks of `Bootstrap`, in the order in which Talos makes them. They look at this node alone: a second control
    /// plane with an empty directory takes the call, and makes a second cluster.
    pub(super) fn bootstrap(&mut self) {
        let run = &self.machine.run;
        if !matches!(self.machine.stage, Stage::Booting | Stage::Running) || !run.cri {
            return self.refuse(Code::FailedPrecondition, "bootstrap is not available yet");
        }
        if self.machine.role() == Some(Role::Worker) {
            return self
                .refuse(Code::FailedPrecondition, "bootstrap can only be performed on a control plane node");
        }
        if !run.time_synced {
            return self.refuse(Code::FailedPrecondition, "time is not in sync yet");
        }
        if self.machine.disk.etcd.is_some() {
            return self.refuse(Code::AlreadyExists, "etcd data directory is not empty");
        }
        self.answer(Answer::Done);
        self.log("bootstrap request received");
        self.service("etcd", ServiceState::Finished, "Bootstrap requested");
        self.service("etcd", ServiceState::Starting, "Starting service");
        self.service("etcd", ServiceState::Preparing, "Running pre state");
        // A second call before the first byte is written is not caught by the check above, here as in Talos: it only
        // repeats the switch.
        self.machine.run.etcd = Etcd::Bootstrapping;
        self.push(Effect::Start(Task::EtcdData));
    }

    /// One round of the join loop.
    pub(super) fn etcd_look(&mut self) {
        if self.machine.run.etcd == Etcd::Joining {
            self.push(Effect::Etcd(EtcdCall::Join));
        }
    }

    pub(super) fn etcd_not_found(&mut self) {
        if self.machine.run.etcd == Etcd::Joining {
            self.push(Effect::Start(Task::EtcdJoin));
        }
    }

    pub(super) fn etcd_write(&mut self) {
        if self.machine.run.etcd == Etcd::Bootstrapping && self.machine.disk.etcd.is_none() {
            self.push(Effect::Etcd(EtcdCall::Create));
        }
    }

    pub(super) fn etcd_member(&mut self, member: Member, learner: bool) {
        if !matches!(self.machine.run.etcd, Etcd::Joining | Etcd::Bootstrapping) {
            return;
        }
        self.machine.disk.etcd = Some(member);
        self.machine.run.etcd = Etcd::Starting;
        if learner {
            self.log("joined the etcd cluster as a learner");
        }
        self.push(Effect::Start(Task::EtcdStart));
    }

    /// The image is pulled, the process starts: the cluster says what this member is.
    pub(super) fn etcd_process(&mut self) {
        if let (Etcd::Starting, Some(member)) = (&self.machine.run.etcd, self.machine.disk.etcd) {
            self.push(Effect::Etcd(EtcdCall::Start(member)));
        }
    }

    pub(super) fn etcd_started(&mut self, learner: bool) {
        if self.machine.run.etcd != Etcd::Starting {
            return;
        }
        self.machine.run.etcd = Etcd::Running { learner };
        self.service_healthy("etcd", "Started task etcd (PID 1846) for container etcd");
        if learner {
            self.push(Effect::Start(Task::EtcdPromote));
        }
        self.maybe_running();
    }

    pub(super) fn etcd_promote(&mut self) {
        if let (Etcd::Running { learner: true }, Some(member)) =
            (&self.machine.run.etcd, self.machine.disk.etcd)
        {
            self.push(Effect::Etcd(EtcdCall::Promote(member)));
        }
    }

    pub(super) fn etcd_promoted(&mut self) {
        if self.machine.run.etcd == (Etcd::Running { learner: true }) {
            self.machine.run.etcd = Etcd::Running { learner: false };
        }
    }

    pub(super) fn etcd_not_promoted(&mut self) {
        if self.machine.run.etcd == (Etcd::Running { learner: true }) {
            self.push(Effect::Start(Task::EtcdPromote));
        }
    }

    /// Another node has removed this member: its process ends, and does not come back with these data.
    pub(super) fn etcd_removed(&mut self) {
        if !matches!(self.machine.run.etcd, Etcd::Running { .. } | Etcd::Starting) {
            return;
        }
        let why = "the member has been permanently removed from the cluster".to_string();
        self.machine.run.etcd = Etcd::Failed(why.clone());
        self.machine.run.services.insert("etcd", ServiceState::Failed);
        self.emit(Event::Service {
            id: "etcd",
            state: ServiceState::Failed,
            message: why,
            healthy: Some(false),
        });
    }

    /// What came of leaving the cluster, which a graceful reset does first.
    pub(super) fn etcd_left(&mut self, outcome: Result<(), String>) {
        if self.machine.run.then.is_none() {
            return;
        }
        match outcome {
            Ok(()) => {
                self.machine.disk.etcd = None;
                self.machine.run.etcd = Etcd::Stopped;
                self.service("etcd", ServiceState::Finished, "Service finished successfully");
                self.task("leaveEtcd", Action::Stop);
                self.stop_services_then_end();
            }
            Err(why) => {
                // The sequence fails and the node goes on as it was.
                let name = self.sequence_name();
                self.machine.run.then = None;
                self.machine.stage = Stage::Booting;
                self.emit(Event::Sequence {
                    name,
                    action: Action::Noop,
                    error: Some(format!("failed to leave etcd cluster: {why}")),
                });
                self.maybe_running();
            }
        }
    }
}
