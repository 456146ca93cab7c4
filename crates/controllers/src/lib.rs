//! Will: controllers that observe, plan, act and report.
//!
//! Every controller is the same five files: `observe.rs`, `plan.rs`, `act.rs`, `status.rs`, `mod.rs`. Plans and statuses are
//! pure. They speak to our own objects only through a `kube::Client`. Start with `bootstrap/mod.rs`: it draws the whole way
//! from machines to a cluster.

pub mod addons;
mod bootstrap;
mod context;
mod deadlines;
mod error;
mod external;
mod image;
mod loadbalancer;
mod machine;
mod object;
mod owner;
mod provider;
mod report;
mod runtime;
mod step;
mod told;

pub use bootstrap::planned_load_balancer;
pub use context::{Clock, Context, Infrastructures, RealInfrastructures};
pub use deadlines::Deadlines;
pub use error::RunError;
pub use runtime::{Scope, run, run_for};
pub use step::{Awaited, Step, Wait};

pub(crate) use butler_drivers::{
    Class, Failure, ImageFacts, ImageWanted, LoadBalancerFacts, LoadBalancerWanted, MachineFacts,
    MachineTarget, MachineWanted, Operation, Owner, Profile, Progress, StaticAddress,
};
