//! The configuration file: types, reading with line numbers, checks across fields, JSON schema.
//!
//! ```text
//!   text --document--> tree with places --shape (schema)--> keys, types, limits, forms
//!                          |                                      |
//!                          +----------- rules, files <--- Config (model)
//!                                            |
//!                                         findings, all of them, in the order of the file
//! ```

mod document;
mod files;
mod finding;
mod formats;
mod model;
mod read;
mod rules;
mod schema;
mod shape;
#[cfg(test)]
mod tests;

pub use finding::{Finding, Mark, Severity, has_errors, report};
pub(crate) use formats::parse_prefix;
pub(crate) use model::UNREADY_IDLE;
pub use model::*;
pub use read::{Loaded, ReadError, admin_socket, check, load, shown};
pub use schema::json_schema;
