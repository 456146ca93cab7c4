//! The load balancer: moves bytes, checks health, holds a virtual IP. Knows nothing of Kubernetes objects.
//!
//! State and choice are pure (`core/`), driven by a seeded simulation in tests; sockets, splice and netlink are thin shells.
#![warn(missing_docs)]

pub mod admin;
pub mod config;
pub mod core;
pub mod forward;
pub mod render;
mod sys;
mod trust;

/// Shared with the tests beside the crate.
#[cfg(test)]
#[path = "../tests/support/skipped.rs"]
mod skipped;
pub mod vip;
