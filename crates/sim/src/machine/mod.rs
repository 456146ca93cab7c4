//! The life of a simulated Talos machine, as a pure function: [`step`] takes a state and something that happens, and gives
//! the next state and what is to be done. It reads no clock, opens no socket and draws no random number.
//!
//! ```text
//!            power on            no configuration           apply accepted
//!   Off ------------> PoweringOn ---------------> Maintenance ------------> LeavingMaintenance
//!    ^                 |   ^   ^                       ^                     | port closed    |
//!    |                 |   |   |                       |                     | (ISO)          | (disk image)
//!    |   configuration |   |   | Reboot done           | partial             v                |
//!    |   on disk       |   |   |                       | configuration   Installing           |
//!    |                 |   |   |                       +---------------------|                |
//!    |                 |   |   +------------ Rebooting <----- written -------+                |
//!    |                 v   |                  ^  ^  ^                                         |
//!    |               Booting <----------------|--|--|-----------------------------------------+
//!    |                 |  control plane: apid at once, etcd waits for Bootstrap or a cluster to join
//!    |                 |  worker: apid when a control plane's trustd has signed
//!    |                 v                      |  |  |
//!    |              Running --- Reboot / Apply+reboot  |
//!    |                 |  \-- Upgrade --> Upgrading    | (version changed)
//!    |                 |   \- Reset ----> Resetting ---+ (reboot)
//!    |                 |                      |
//!    |                 +-- Shutdown --> ShuttingDown
//!    |                                        |
//!    +----------------------------------------+ (no reboot)          PowerOff leads from every stage to Off
//!
//!   etcd, on a control plane, inside Booting and Running:
//!
//!   Stopped --(time synced, empty directory)--> Joining --Bootstrap--> Bootstrapping --data written--+
//!      |                                          | cluster found (as learner)                       |
//!      |                                          v                                                  v
//!      +---------(directory has data)---------> Starting <-------------------------------------------+
//!                                                 |
//!                                                 v                  removed from the cluster
//!                                    Running(learner) --promoted--> Running(voter) ---------> Failed
//! ```
//!
//! Delays live in `delays.rs`; what Talos answers and says is in the file of the request it answers.

mod apply;
mod boot;
mod down;
mod etcd;
mod input;
#[cfg(test)]
mod properties;
mod state;
mod status;
#[cfg(test)]
mod tests;

pub use input::{Action, Answer, Apply, ApplyMode, Effect, EtcdCall, Event, Input, Port, Task};
pub use state::{Disk, Etcd, Machine, Media, Member, Role, Run, ServiceState, Stage, Then, Wipe};
pub use status::{MachineStatus, Unmet};

use tonic::Code;

/// What happens next.
#[must_use]
pub fn step(machine: Machine, input: Input) -> (Machine, Vec<Effect>) {
    let mut turn = Turn { machine, effects: Vec::new() };
    turn.take(input);
    (turn.machine, turn.effects)
}

/// A step that is being worked out.
struct Turn {
    machine: Machine,
    effects: Vec<Effect>,
}

impl Turn {
    fn take(&mut self, input: Input) {
        match input {
            Input::PowerOn => self.power_on(),
            Input::PowerOff => self.power_off(),
            Input::Done(task, boot) if boot == self.machine.boot => self.done(task),
            // Begun by a boot that is over.
            Input::Done(..) => {}
            Input::Apply(request) => self.apply(request),
            Input::Bootstrap => self.bootstrap(),
            Input::Reboot { actor } => self.request_reboot(actor),
            Input::Shutdown { actor } => self.request_shutdown(actor),
            Input::Reset { actor, graceful, reboot, wipe } => {
                self.request_reset(actor, graceful, reboot, wipe)
            }
            Input::Upgrade { actor, version, stage } => self.request_upgrade(actor, version, stage),
            Input::Certified(boot) if boot == self.machine.boot => self.open_apid(),
            Input::Certified(_) => {}
            Input::EtcdMember { member, learner } => self.etcd_member(member, learner),
            Input::EtcdNotFound => self.etcd_not_found(),
            Input::EtcdStarted { learner } => self.etcd_started(learner),
            Input::EtcdPromoted => self.etcd_promoted(),
            Input::EtcdNotPromoted => self.etcd_not_promoted(),
            Input::EtcdRemoved => self.etcd_removed(),
            Input::EtcdLeft(outcome) => self.etcd_left(outcome),
            Input::KubernetesReady(ready) => self.machine.kubernetes_ready = Some(ready),
        }
    }

    fn done(&mut self, task: Task) {
        match task {
            Task::Boot => self.booted(),
            Task::CloseMaintenance => self.leave_maintenance(),
            Task::Install => self.installed(),
            Task::Reboot => self.rebooted(),
            Task::Apid => self.open_apid(),
            Task::Cri => self.cri_up(),
            Task::TimeSync => self.time_synced(),
            Task::Kubelet => self.kubelet_up(),
            Task::EtcdJoin => self.etcd_look(),
            Task::EtcdData => self.etcd_write(),
            Task::EtcdStart => self.etcd_process(),
            Task::EtcdPromote => self.etcd_promote(),
            Task::StaticPods => self.machine.run.static_pods = self.machine.stage == Stage::Running,
            Task::Reset | Task::Upgrade | Task::Shutdown => self.sequence_over(),
            Task::TryTimeout(number) => self.try_over(number),
        }
    }

    fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn answer(&mut self, answer: Answer) {
        self.push(Effect::Answer(answer));
    }

    fn refuse(&mut self, code: Code, message: impl Into<String>) {
        self.answer(Answer::refused(code, message));
    }

    fn log(&mut self, line: impl Into<String>) {
        self.push(Effect::Log(line.into()));
    }

    fn emit(&mut self, event: Event) {
        self.push(Effect::Emit(event));
    }

    fn sequence(&mut self, name: &'static str, action: Action) {
        self.emit(Event::Sequence { name, action, error: None });
    }

    fn task(&mut self, name: &'static str, action: Action) {
        self.emit(Event::Task { name, action });
    }

    /// Moves a service into a state and tells the event stream.
    fn service(&mut self, id: &'static str, state: ServiceState, message: impl Into<String>) {
        self.machine.run.services.insert(id, state);
        self.emit(Event::Service { id, state, message: message.into(), healthy: None });
    }

    /// A service that runs and has passed its first health check.
    fn service_healthy(&mut self, id: &'static str, started: impl Into<String>) {
        self.service(id, ServiceState::Running, started);
        self.emit(Event::Service {
            id,
            state: ServiceState::Running,
            message: "Health check successful".to_string(),
            healthy: Some(true),
        });
    }
}
