//! Talos without talosctl: machine config, secrets, API client.
//!
//! Where to start reading: `intent.rs` (what a node is to be), `render/` (intent to documents, per contract), `validate/`
//! (what is wrong with a config), `secrets.rs` and `pki/` (everything that is signed or drawn), `client/` (speaks to nodes).

pub mod api;
pub mod client;
mod config;
mod contract;
mod fields;
mod intent;
mod kubeconfig;
mod patch;
pub mod pki;
mod render;
mod secret;
mod secrets;
mod talosconfig;
mod validate;
mod yaml;

pub use config::{Document, DocumentId, MachineConfig};
pub use contract::{Contract, KubernetesVersion, TalosVersion, VersionError};
pub use intent::{
    API_PORT, Cidr, ClusterIntent, Cni, Endpoint, ExtraDisk, InstallDisk, Installer, IntentError,
    KUBE_PRISM_PORT, Link, LinkName, Mirror, NodeIntent, Role, Route,
};
pub use kubeconfig::admin_kubeconfig;
pub use patch::{Patch, PatchError, apply_patches};
pub use render::{RenderError, render};
pub use secret::Secret;
pub use secrets::{EncryptionSecret, Generated, SecretsBundle, SecretsError};
pub use talosconfig::{ADMIN, TalosContext, Talosconfig, TalosconfigError, client_certificate};
pub use validate::{
    Mode, Problem, Severity, Source, check_cluster, check_together, contract_of, validate, validate_text,
};
pub use yaml::Mark;
