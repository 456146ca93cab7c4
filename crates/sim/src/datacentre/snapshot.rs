//! A data centre as plain data: taken between two calls, cheap to copy, and good for any number of branches.
//!
//! ```text
//!   gate.hold_at(k, Before) ... reached -> snapshot()          call k has not happened
//!   gate.hold_at(k, After)  ... reached -> snapshot()          call k has happened, and nobody knows
//! ```
//!
//! Three things are stopped, in this order: the gate (calls under way end first), the infrastructures' own tasks,
//! the machines. A branch
//! has its own network and its own copies of all keys and certificates, so that clients recognise what they knew.

use super::infrastructures::{Healths, Sites, States};
use super::{DataCentre, Ground};
use crate::ca::SimCa;
use crate::cluster::ClustersState;
use crate::fabric::{Fabric, FabricState};
use crate::gate::{FaultScript, Gate, GateState};
use crate::world::{WorldOptions, WorldSnapshot};
use std::fmt;
use std::sync::Arc;

/// A data centre at one moment. Clones share everything.
#[derive(Clone)]
pub struct Snapshot {
    pub(super) contents: Arc<Contents>,
}

pub(super) struct Contents {
    gate: GateState,
    fabric: FabricState,
    ca: SimCa,
    options: WorldOptions,
    pub(super) world: WorldSnapshot,
    pub(super) sites: Sites,
    pub(super) states: States,
    pub(super) healths: Healths,
    clusters: ClustersState,
}

// By hand: it holds keys.
impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("calls", &self.contents.gate.count).finish_non_exhaustive()
    }
}

impl Snapshot {
    /// The number of the last call that it knows of.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.contents.gate.count
    }

    /// What a branch of it stands on.
    pub(super) fn ground(&self, faults: FaultScript) -> Ground {
        let Contents { gate, fabric, ca, options, clusters, .. } = &*self.contents;
        let gate = Gate::resume(faults, gate.clone());
        Ground::new(Fabric::import(fabric), gate, ca.clone(), *options, clusters.clone())
    }
}

impl DataCentre {
    /// Copies everything, between two calls. Calls that are held or hang don't keep it waiting; all others do.
    pub async fn snapshot(&self) -> Snapshot {
        let frozen = self.gate.freeze().await;
        let contents = loop {
            // An infrastructure switches machines on and off by itself; only if it did nothing until the machines stood still do the
            // two fit together.
            let before = self.infrastructures.settled().await;
            let still = self.world.still().await;
            let states = self.infrastructures.states();
            if states != before {
                drop(still);
                tokio::task::yield_now().await;
                continue;
            }
            break Contents {
                gate: self.gate.state(),
                fabric: self.fabric.export(),
                ca: self.ca.clone(),
                options: self.options,
                world: self.world.snapshot(&still),
                sites: self.sites.clone(),
                clusters: self.clusters.export(),
                healths: self.infrastructures.healths(),
                states,
            };
        };
        drop(frozen);
        Snapshot { contents: Arc::new(contents) }
    }
}
