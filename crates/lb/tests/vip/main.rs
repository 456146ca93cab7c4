//! Virtual addresses in real networks: hosts in network namespaces, real adverts, real neighbour caches, and a client that
//! says who answers. Needs root; without it every test says that it was skipped.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test fails by panicking, and says why it was skipped"
)]

mod agent;
mod changes;
mod container;
mod idle;
mod lab;
mod ours;
mod peers;
mod whole;
