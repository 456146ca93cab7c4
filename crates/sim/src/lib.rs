//! The simulated data centre. For now: Talos nodes that the real `talosctl` takes for real ones.
//!
//! Start with [`World`]. The life of a node is the pure function [`machine::step`]; everything with a socket is a thin shell
//! around it.
//!
//! ```text
//!   port 50000 -> serve (TLS, HTTP/2) -> api (roles, routing, methods) -> node (the shell) <-> machine::step
//!                                                                           |
//!                                               world: other nodes, etcd membership, seed, speed
//! ```
//!
//! A simulated node is strict where Talos is, and refuses by name what it does not do. It has no kernel, no kubelet and no
//! kube-apiserver behind it: services and static pods are states with a delay. Its clock is this computer's. etcd is a list
//! of members with a quorum, and holds no data. Forwarding between nodes of a world does not go over the wire.

mod api;
mod config;
mod delays;
mod etcd;
mod journal;
pub mod machine;
mod node;
mod pki;
mod random;
mod serve;
mod tls;
mod world;

pub use config::{ConfigError, NodeConfig};
pub use machine::{Media, Stage};
pub use world::{API_PORT, NodeHandle, NodeOptions, TRUSTD_PORT, World, WorldError, WorldOptions};
