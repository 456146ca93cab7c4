//! The runtime API: status, drain, reload and metrics, as HTTP/1.1 on a unix socket; metrics alone also on a loopback port.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /v1/status` | everything as JSON ([`Status`]) |
//! | `POST /v1/drain?listener=L&backend=B` | no new connections for a backend; `&undo=true` takes it back |
//! | `POST /v1/reload` | reads the file again; a wrong one changes nothing |
//! | `GET /metrics` | the same numbers for Prometheus |
//! | `GET /healthz` | answers as long as the process does |
//! | `GET /readyz` | 200 when every listener has a healthy backend, 503 otherwise |

mod client;
#[cfg(fuzzing)]
pub mod fuzzing;
mod http;
mod metrics;
mod routes;
mod server;
mod status;

pub use client::{Answer, ClientError, request};
pub use metrics::metrics;
pub use routes::{Control, Drain, Refusal};
pub use server::{Server, ServerError, Sockets};
pub use status::{
    BackendState, BackendStatus, BfdStatus, ListenerStatus, Status, Threads, TrackStatus, VipState, VipStatus,
};

#[cfg(test)]
mod tests;
