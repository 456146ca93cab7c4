//! Who owns which field of an object, and what an apply makes of it.
//!
//! Reading order: `element` and `fieldset` (paths and sets of them), `shape` (what the schema says about ownership),
//! `typed`, `compare` and `merge` (the walks over objects), `entries` (`managedFields`), `managed` and `applying` (the rules).

mod applying;
mod compare;
mod element;
mod entries;
mod fieldset;
mod last_applied;
mod managed;
mod merge;
mod shape;
mod typed;

#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
pub(crate) mod test_support;

pub use applying::{ApplyError, Conflict, apply};
pub use compare::{Comparison, compare};
pub use element::{BadElement, PathElement, path_text};
pub use entries::{Manager, Operation};
pub use fieldset::FieldSet;
pub use managed::{Request, Reset, manager_from_user_agent, restore_times, track_update};
pub use merge::merge;
pub use shape::{Ty, object_meta_schema, with_meta};
pub use typed::{errors_text, extract_items, field_set, remove_items, type_errors};

pub(crate) use typed::{go_type, go_value};
