//! The nouns of Butler: custom resource types, their defaults, limits and names, and validation across fields.
//!
//! Nothing here does IO, reads a clock or waits. Structural limits are in the CRDs ([`crds`]) and enforced by whichever API
//! server holds the objects; what a schema cannot say is in [`Validate`], which reports all problems at once.
#![warn(missing_docs)]
// `KubeSchema` repeats each struct, `pub` and all, inside a function body.
#![allow(unreachable_pub)]
// Clippy takes the `type_` of two printer columns for one attribute that is given twice.
#![allow(clippy::duplicated_attributes)]

mod addon;
mod bootstrap;
mod common;
mod conditions;
mod config;
mod crds;
mod exposure;
mod image;
mod loadbalancer;
mod machine;
mod machine_load_balancer;
pub mod names;
mod provider;
mod tenancy;
mod validation;
mod values;

pub use addon::*;
pub use bootstrap::*;
pub use common::*;
pub use conditions::*;
pub use config::*;
pub use crds::*;
pub use exposure::*;
pub use image::*;
pub use loadbalancer::*;
pub use machine::*;
pub use machine_load_balancer::*;
pub use provider::*;
pub use tenancy::*;
pub use validation::*;
pub use values::*;
