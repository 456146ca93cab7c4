//! Whole bootstraps in simulated clouds: from nothing to a cluster behind its load balancer, and back to nothing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod aws;
mod faults;
mod gcp;
#[path = "../lives/mod.rs"]
mod lives;
mod site;
mod stories;
#[path = "../support/mod.rs"]
mod support;
