//! The load balancer: moves bytes, checks health, holds a virtual IP. Knows nothing of Kubernetes objects.
//!
//! State and choice are pure (`core/`), driven by a seeded simulation in tests; sockets, splice and netlink are thin shells.
#![warn(missing_docs)]

pub mod admin;
pub mod config;
pub mod core;
pub mod forward;
pub mod render;
pub mod vip;
