//! Runs a bootstrap: opens its state, puts its objects, lets the controllers work, follows them, and keeps what came of it.
//!
//! ```text
//!   Home/Folder (lock) -> Objects (embedded API, or another cluster's) -> put -> Workers (controllers + follower)
//!                                                                                  |
//!                              drive: snapshots -> Speaker -> Outcome  <-----------+
//!                              keep:  kubeconfig, talosconfig, inventory
//! ```

mod api;
mod changes;
mod drive;
mod dry;
mod folder;
mod follow;
mod keep;
mod preflight;
mod put;
mod session;
mod signals;
mod work;

pub(crate) use api::Objects;
pub(crate) use changes::Made;
pub(crate) use drive::{Goal, Outcome, drive};
pub(crate) use dry::dry_workers;
pub(crate) use folder::{Home, scratch_folder};
pub(crate) use keep::Kept;
pub(crate) use preflight::wanted;
pub(crate) use put::{afresh, put_credentials, put_inputs};
pub(crate) use session::{Session, not_in_time};
pub(crate) use signals::Signals;
pub(crate) use work::{Elsewhere, Reach, Workers};
