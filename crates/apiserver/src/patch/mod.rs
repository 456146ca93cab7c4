//! The patch forms of Kubernetes beside apply: a list of operations, a partial object, and a partial object that knows
//! how lists merge.
//!
//! All of them are pure: an object in, an object or a refusal out.

mod json;
mod merge;
mod order;
mod strategic;
mod syntax;

pub use json::JsonPatch;
pub use merge::{merge_patch, parse_merge_patch};
pub use strategic::{parse_strategic_patch, strategic_patch};
