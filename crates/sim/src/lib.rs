//! The simulated data centre: machines, what they run on (Proxmox, Google Cloud, AWS), the clusters that they form,
//! and their network.
//!
//! Start with [`DataCentre`], or with [`World`] for Talos nodes alone on this computer's own network.
//!
//! ```text
//!   outside -> proxy (CONNECT) -> fabric: addresses, names, virtual addresses
//!                                   |
//!        +--------------------------+---------------------------+
//!        v                          v                           v
//!   proxmox, gce, aws         Talos nodes :50000          Kubernetes :6443   (balancer: listeners in front of both)
//!        |   power                  |  machine::step            |
//!        +-------------> world <----+---------------------------+
//!
//!   gate: every call from outside passes it (call log, faults by script, checkpoints)
//! ```
//!
//! The life of a node is the pure function [`machine::step`]; everything with a socket is a thin shell around it. A simulated
//! node is strict where Talos is, and refuses by name what it does not do. It has no kernel: services and static pods are
//! states with a delay (`delays.rs`). Its clock is this computer's. etcd is a list of members with a quorum, and holds no
//! data. Forwarding between nodes of a world does not go over the wire.

mod api;
pub mod aws;
pub mod balancer;
mod ca;
mod calm;
pub mod cluster;
mod config;
mod datacentre;
mod delays;
mod disks;
mod etcd;
mod fabric;
mod gate;
pub mod gce;
mod infrastructure;
mod journal;
pub mod machine;
mod node;
mod pki;
pub mod proxmox;
mod proxy;
mod random;
mod serve;
mod tls;
mod urlencoded;
mod world;

pub use ca::{CaError, SimCa};
pub use config::{ConfigError, NodeConfig};
pub use datacentre::{BranchOptions, DataCentre, DataCentreError, DataCentreOptions, Snapshot};
pub use delays::delay_table;
pub use fabric::{Fabric, FabricListener, Listener, Network, Stream};
pub use gate::{
    Call, CallRule, Checkpoint, Fault, FaultScript, Frozen, Gate, GateState, Leaving, LoggedCall,
    MachineFault, MachineRule, Matcher, Moment, Pattern, Progress, RandomFaults, SYSTEMS, ScriptProblem,
    Ticket, Verdict,
};
pub use infrastructure::{Place, StartError};
pub use machine::{Media, Stage};
pub use proxy::Proxy;
pub use world::{API_PORT, NodeHandle, NodeOptions, TRUSTD_PORT, World, WorldError, WorldOptions};
