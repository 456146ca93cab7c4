//! The commands of a bootstrap as a user runs them, on a simulated data centre.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod clouds;
mod proxmox;
mod user;
