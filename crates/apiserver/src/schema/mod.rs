//! Schemas: the shared model, and the walks over it.
//!
//! [`parse`] reads a CRD's schema, [`to_openapi`] publishes it again. On the write path an object is pruned
//! ([`prune`], [`unknown_fields`]), defaulted ([`apply_defaults`]) and validated ([`validate`], [`validate_update`],
//! and the metadata functions). No walk recurses deeper than the schema, which [`parse`] bounds.

mod bind;
mod budget;
mod cel;
mod defaults;
mod embedded;
mod formats;
mod lists;
mod meta;
mod meta_shape;
mod model;
pub mod names;
mod node;
mod numbers;
mod parse;
mod path;
mod pattern;
mod prune;
mod publish;
mod ratchet;
mod rules;
mod validate;

pub use defaults::apply_defaults;
pub use meta::{NameStyle, finalizer_warnings, validate_meta, validate_meta_named, validate_meta_update};
pub use meta_shape::{decode_meta, decode_meta_of};
pub use model::{Additional, Branch, Limits, ListType, Pattern, Rule, Schema, Type};
pub use parse::{parse, parse_at};
pub use prune::{prune, unknown_fields};
pub use publish::to_openapi;
pub use rules::{Rules, validate_rules};
pub use validate::{validate, validate_status_update, validate_update};

// For the CRD checks, which speak of the same places and values.
pub(crate) use node::is_checked_format;
pub(crate) use path::Path;
pub(crate) use pattern::compile as compile_pattern;
pub(crate) use prune::prune_value;
pub(crate) use rules::field_path;
pub(crate) use validate::validate_value;

#[cfg(test)]
mod tests;
