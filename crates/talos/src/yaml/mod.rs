//! YAML in and out: trees that remember where everything stands, and text in the shape that Talos writes.

mod read;
mod write;

pub use read::Mark;
pub(crate) use read::{Data, Node, Scalar, parse};
pub(crate) use write::{Order, write};
