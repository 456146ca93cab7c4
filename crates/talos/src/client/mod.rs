//! The client of the Talos API: connections, calls, waits, and the guard of the bootstrap.
//!
//! Start reading at [`Node`] (`probe.rs`), which knows a node's address and our credentials; [`Client`] (`session.rs`) is one
//! connection with its typed calls; `wait.rs` waits; `guard.rs` decides whether etcd may be bootstrapped.

mod address;
mod error;
mod guard;
mod knock;
mod kubeconfig;
mod open;
mod probe;
mod redact;
mod session;
mod status;
mod stream;
mod tls;
mod wait;
mod wire;

#[cfg(test)]
mod test_node;
#[cfg(test)]
mod tests;

pub use address::{Malformed, NodeAddress, Proxy, Settings, TALOS_PORT};
pub use error::{ClientError, ErrorClass, status_class};
pub use guard::{Decision, Observation, Refusal, Seen, bootstrap_guard, decide, observe};
pub use knock::{Knocked, knock};
pub use probe::{Node, NodeState, Owner};
pub use session::{Applied, Client, ResetOptions};
pub use status::MachineStatus;
pub use stream::{Chunks, Messages, NodeEvent, ResourceEvent, ResourceEvents};
pub use tls::{Access, Credentials, Fingerprint};
pub use wait::{
    Wait, WaitError, bootstrap_when_ready, service_is_up, wait_until_answering, wait_until_configured,
    wait_until_etcd, wait_until_gone, wait_until_maintenance, wait_until_service, wait_until_status,
};

pub(crate) use redact::{masked, shown_key};
