//! The data plane: accepts, chooses, connects, copies. One thread per core, each with its own listening sockets and its own
//! epoll, as few of them in use as have the time; one more for health checks.
//!
//! ```text
//! balancer  the handle: start, drain, stop         apply    reload           status   how things are
//! worker    a thread's loop      arrive, preface   a connection's way in      depart, farewell   its way out
//! spread    how many threads are in use            handover   a connection's way to another thread
//! mover     bytes                link, slab, wheel, turns   what a thread keeps of its connections
//! health    checks, and what pools ask for in time
//! shared    what threads share of a listener       inbox, counters, access   how they hear and tell
//! ```

mod access;
mod apply;
mod arrive;
mod balancer;
mod bell;
mod clock;
mod counters;
mod depart;
mod farewell;
mod handover;
mod health;
mod inbox;
mod link;
mod mover;
mod preface;
mod settings;
mod shared;
mod slab;
mod sockets;
mod spread;
mod status;
#[cfg(test)]
mod tests;
mod turns;
mod wheel;
mod worker;

pub use balancer::{Handle, LoadBalancer, Options, StartError, UnknownError};
pub use counters::Totals;
pub use health::TargetError;
pub use mover::Tuning;
pub use status::{BackendReport, ListenerReport, Status};
