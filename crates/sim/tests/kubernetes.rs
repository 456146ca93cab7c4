//! Clusters on a simulated network: from machines to a Kubernetes that clients take for a real one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

#[path = "kubernetes/site.rs"]
mod site;

#[path = "kubernetes/access.rs"]
mod access;
#[path = "kubernetes/addresses.rs"]
mod addresses;
#[path = "kubernetes/life.rs"]
mod life;
#[path = "kubernetes/many.rs"]
mod many;
#[path = "kubernetes/workloads.rs"]
mod workloads;
