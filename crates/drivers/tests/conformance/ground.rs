//! What every simulated world has, whatever its infrastructure: a network with machines, a gate, a CA, a journal.

use butler_api::{DiskSpec, MachineRole};
use butler_drivers::{Call, Connection, MachineWanted, Outcome, Owner, Recorder, StaticAddress};
use butler_sim::{Fabric, Gate, Network, Place, SimCa, World, WorldOptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

/// Keeps what it is told.
#[derive(Default)]
pub(crate) struct Journal(pub(crate) Mutex<Vec<Call>>);

impl Recorder for Journal {
    fn record(&self, call: Call) {
        self.0.lock().unwrap().push(call);
    }
}

impl Journal {
    /// What it says of calls that failed.
    pub(crate) fn failures(&self) -> Vec<String> {
        let told = |call: &Call| match &call.outcome {
            Outcome::Failed { message, .. } => Some(message.clone()),
            Outcome::Ok(_) => None,
        };
        self.0.lock().unwrap().iter().filter_map(told).collect()
    }
}

pub(crate) struct Ground {
    pub(crate) world: World,
    pub(crate) fabric: Fabric,
    pub(crate) gate: Gate,
    pub(crate) ca: SimCa,
    pub(crate) journal: Arc<Journal>,
}

impl Ground {
    pub(crate) const SEED: u64 = 7;

    pub(crate) fn new() -> Self {
        // The same in all worlds: making its keys takes longer than most of the tests.
        static CA: OnceLock<SimCa> = OnceLock::new();
        let fabric = Fabric::default();
        Self {
            world: World::on(Network::Fabric(fabric.clone()), WorldOptions { speed: 0.0, seed: Self::SEED }),
            fabric,
            gate: Gate::default(),
            ca: CA.get_or_init(|| SimCa::generate().unwrap()).clone(),
            journal: Arc::default(),
        }
    }

    /// Where its infrastructure is put.
    pub(crate) fn place(&self) -> Place {
        Place {
            world: self.world.clone(),
            fabric: self.fabric.clone(),
            gate: self.gate.clone(),
            ca: self.ca.clone(),
            speed: 0.0,
        }
    }

    /// Trusts it and tells its journal. How to get there is to be added.
    pub(crate) fn connection(&self) -> Connection {
        Connection {
            ca_pem: Some(self.ca.pem().to_owned()),
            recorder: self.journal.clone(),
            ..Connection::default()
        }
    }
}

pub(crate) fn owner(object_uid: &str) -> Owner {
    Owner {
        cluster: "butler".to_owned(),
        cluster_uid: "c0ffee00-1111-4222-8333-444455556666".to_owned(),
        object_uid: object_uid.to_owned(),
    }
}

/// A machine with this address and one further disk.
pub(crate) fn machine(name: &str, number: u8, address: StaticAddress) -> MachineWanted {
    MachineWanted {
        owner: owner(&format!("{number:08x}-aaaa-4bbb-8ccc-ddddeeeeffff")),
        name: name.to_owned(),
        role: MachineRole::ControlPlane,
        cpu: 4,
        memory_mb: 4096,
        disk_gb: 40,
        extra_disks: vec![DiskSpec { size_gb: 20, storage_class: None }],
        image: None,
        user_data: None,
        static_address: Some(address),
        labels: BTreeMap::new(),
    }
}
