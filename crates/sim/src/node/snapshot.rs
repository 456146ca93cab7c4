//! A machine as plain data, with what it was in the middle of; and how it goes on from there.

use super::{Keeper, Node, SignedIdentity, trust};
use crate::journal::Pages;
use crate::machine::{Machine, Port, Role, Stage, Task};
use crate::world::{NodeOptions, Shared, WorldError};
use std::sync::Arc;

/// Everything that a node is. Certificates are kept: a client that has pinned one knows the node again.
#[derive(Debug, Clone)]
pub(crate) struct NodeSnapshot {
    pub(super) options: NodeOptions,
    pub(super) machine: Machine,
    /// Started and not ended.
    pub(super) outstanding: Vec<Task>,
    pub(super) maintenance: Option<(Arc<SignedIdentity>, String)>,
    pub(super) signed: Option<Arc<SignedIdentity>>,
    pub(super) journal: Pages,
}

impl NodeSnapshot {
    /// A machine that was never on.
    pub(super) fn new(options: NodeOptions, machine: Machine) -> Self {
        let journal = Pages::default();
        Self { options, machine, outstanding: Vec::new(), maintenance: None, signed: None, journal }
    }
}

impl Node {
    /// The machine as it is. The world has to be still.
    pub(crate) fn snapshot(&self) -> NodeSnapshot {
        let machine = self.machine();
        let faces = self.faces();
        let of_this_boot = faces.outstanding.iter().filter(|(_, boot)| *boot == machine.boot);
        NodeSnapshot {
            options: self.options.clone(),
            outstanding: of_this_boot.map(|(task, _)| *task).collect(),
            maintenance: faces.maintenance.clone(),
            signed: faces.signed.clone(),
            journal: self.journal.copy(),
            machine: Machine::clone(&machine),
        }
    }

    /// A machine that goes on from a snapshot.
    pub(crate) async fn restore(from: NodeSnapshot, world: &Arc<Shared>) -> Result<Arc<Self>, WorldError> {
        Self::launch(from, world).await
    }
}

impl Keeper {
    /// Takes up what the machine was in the middle of: open ports, tasks, the wait for a certificate. A task takes its whole
    /// time again: how much of it had passed is nobody's business but the clock's.
    pub(super) async fn resume(&mut self, world: &Arc<Shared>, outstanding: Vec<Task>) {
        let machine = &self.machine;
        let mut ports = Vec::new();
        if matches!(machine.stage, Stage::Maintenance | Stage::LeavingMaintenance) {
            ports.push(Port::Maintenance);
        }
        if machine.serves_apid() {
            ports.push(Port::Apid);
            if machine.is_control_plane() {
                ports.push(Port::Trustd);
            }
        }
        let waits_for_certificate =
            machine.stage == Stage::Booting && !machine.run.apid && machine.role() == Some(Role::Worker);
        self.take_address(world);
        for port in ports {
            self.serve(world, port).await;
        }
        if waits_for_certificate {
            tokio::spawn(trust::request(self.node.clone(), self.machine.boot));
        }
        for task in outstanding {
            self.start(world, task);
        }
    }
}
