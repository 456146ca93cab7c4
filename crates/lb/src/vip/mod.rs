//! Holds virtual addresses: the sockets around the election of `core::vrrp` and the peers' heartbeat of `core::bfd`.
//!
//! ```text
//!   Vips (handle) --commands--> agent: one thread, real-time where allowed; waits for sockets and deadlines only
//!                                 |- member     one virtual address: election + sockets + what it decides, done
//!                                 |    wire       adverts out and in, announcements        ip, sys
//!                                 |    track      listener, interface, API server (a thread each: apiserver)
//!                                 |- machine    interfaces and addresses, as the kernel tells them: netlink
//!                                 |- bfd        heartbeats of peers
//!                                 |- lifeline   a quiet connection to the holder that ends when its process does
//!                                 +--orders---> resets: a second thread; tells peers of connections (connections), and
//!                                               clients of a lost holder that theirs are gone
//! ```

mod agent;
mod apiserver;
mod bfd;
mod capabilities;
mod connections;
mod diag;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handle;
mod ip;
mod lifeline;
mod machine;
mod member;
mod netlink;
mod refusals;
mod renewer;
mod resets;
mod rivals;
mod seal;
mod status;
mod track;
mod wake;
mod wire;

pub use crate::core::vrrp::Role;
pub use capabilities::{CapabilityError, drop_other_capabilities, missing_capabilities};
pub use handle::{Change, ListenerReady, Lost, Vips};
pub use status::{BfdStatus, Failed, TrackStatus, VipStatus};
