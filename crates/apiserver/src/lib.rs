//! An embedded Kubernetes API: it remembers objects and tells watchers.
//!
//! `kubectl`, kube-rs and controllers speak to it as to a small cluster. What it does not do it refuses by name; the list is
//! `docs/apiserver-differences.md`. It knows no custom kinds of its own: CRDs bring theirs.
//!
//! Start with [`Server`]; the way of a request through the modules is drawn in `ARCHITECTURE.md`.

pub mod apply;
pub mod auth;
pub mod builtin;
mod controllers;
pub mod crd;
pub mod discovery;
mod engine;
mod http;
pub mod patch;
mod protobuf;
mod random;
pub mod resource;
pub mod schema;
mod select;
pub mod serve;
mod server;
pub mod status;
pub mod store;
pub mod table;
mod verbs;

pub use auth::User;
pub use http::{ApiService, Body};
pub use server::{Api, Options, Running, Server, ServerError};
pub use store::HistoryLimits;
