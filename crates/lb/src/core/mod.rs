//! What the load balancer decides, without a clock, a socket or a thread: time is an argument, and what is to be done is
//! a return value. The same code runs behind real sockets and under the seeded simulation in `tests/`.
//!
//! `Pool` is one listener's backends; `vrrp::Router` elects who holds an address; `bfd::Session` notices within
//! milliseconds that a peer is gone; `auth`, `proxy` and `neighbour` read and write bytes.

pub mod auth;
pub mod bfd;
mod checksum;
pub mod neighbour;
mod pool;
pub mod proxy;
mod random;
pub mod vrrp;

pub use pool::{BackendId, BackendStatus, Change, Closing, Known, Manner, Pick, Pool, State, Verdict};
pub use random::Random;

/// Microseconds since a moment of the caller's choice that does not change while it runs. Never goes back.
pub type Time = u64;

/// A second, as a span of `Time`.
pub const SECOND: Time = 1_000_000;
/// A millisecond, as a span of `Time`.
pub const MILLISECOND: Time = 1000;
/// A deadline that never comes.
pub const NEVER: Time = Time::MAX;
