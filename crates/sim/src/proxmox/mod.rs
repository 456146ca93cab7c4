//! A simulated Proxmox VE 8: its REST API, strict and slow like the real one, with machines of the [`World`](crate::World)
//! behind its virtual machines.
//!
//! ```text
//!   address:8006 -> serve (TLS, HTTP, gate) -> State::handle (pure: one call, one answer)
//!                        |                        |
//!                        |                  tasks, each with the moment it is due
//!                        v                        v
//!                 pump: State::advance(now) -> effects -> World (power on, off, remove) -> State::booted
//! ```
//!
//! Everything that Proxmox knows is in [`State`]; a clone of it is a snapshot. What is not simulated (containers, snapshots,
//! backups, migration, HA, pending changes, snippets) is refused by name.

mod agent;
mod auth;
mod before;
mod clone;
mod cluster;
mod config;
mod console;
mod files;
mod furnish;
mod power;
mod request;
mod route;
mod schema;
mod serve;
mod shell;
mod site;
mod state;
mod tasks;
mod vms;
mod volumes;
mod work;

pub use request::{Answer, Call};
pub use shell::{Proxmox, ProxmoxHandle};
pub use site::{
    ProxmoxSite, Secret, SiteAcl, SiteImage, SiteNames, SiteNetwork, SiteNode, SiteStorage, SiteTemplate,
    SiteToken, SiteUser, SiteVm,
};
pub use state::{Boot, Effect, State};

#[cfg(test)]
mod tests;
