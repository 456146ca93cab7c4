//! A simulated project of Google Cloud: the parts of the Compute Engine API that machines and load balancers are made with,
//! OAuth, and the permissions of Resource Manager, at the real host names.
//!
//! ```text
//!   compute.googleapis.com:443 -> serve (TLS, HTTP, gate) -> State::handle (pure: one call, one answer)
//!                                      |                        |  model: what Google's discovery document allows
//!                                      |                  operations, each with the moment it is due
//!                                      v                        v
//!                               pump: State::advance(now) -> effects -> World (power), fabric (addresses), balancers
//! ```
//!
//! Everything that the project knows is in [`State`]; a clone of it is a snapshot. Requests are checked against the discovery
//! document's own model. Changes are operations that take time, may end with an error, and are done either way. Firewall
//! rules decide what reaches a machine from outside and what health checks see; traffic between machines they do not touch.
//! What is not simulated is refused by name.

mod auth;
mod balance;
mod change;
mod disks;
mod furnish;
mod handle;
mod instances;
mod list;
mod machine_types;
mod model;
mod network;
mod operations;
mod quota;
mod read;
mod request;
mod rules;
mod serve;
mod shell;
mod site;
mod state;

pub use handle::Healths;
pub use request::{Answer, Call};
pub use shell::{Gce, GceHandle};
pub use site::{GceNames, GceSite, SiteAccount, SiteFailure, SiteImage, SiteNetwork};
pub use state::{Boot, Effect, State};

#[cfg(test)]
mod tests;
