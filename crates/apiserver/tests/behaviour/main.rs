//! The behaviour suite of the embedded Kubernetes API.
//!
//! Every test knows nothing but a kubeconfig, so the same expectations run against the embedded server (ordinary
//! `cargo test`) and against a real kube-apiserver with etcd and kube-controller-manager (`cargo xtask conformance`,
//! which sets `BUTLER_CONFORMANCE_KUBECONFIG`). What is asserted here is what the real server does; where the embedded
//! one keeps a difference, the difference is in `docs/apiserver-differences.md`.

// Tests may give up; clippy knows only functions marked as tests, not the helpers between them.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod harness;

mod access;
mod apply_basics;
mod apply_conflicts;
mod bad_input;
mod builtins;
mod clients;
mod crd_lifecycle;
mod crd_refusals;
mod crd_rules;
mod crd_schemas;
mod creates;
mod deletes;
mod discovery;
mod fixtures;
mod garbage;
mod lists;
mod namespaces;
mod openapi;
mod patches;
mod protobuf;
mod representations;
mod subresources;
mod updates;
mod watches;
