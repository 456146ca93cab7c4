//! The verbs on objects, one file each. They share the steps in `admit`.

mod admit;
mod create;
mod delete;
mod get;
mod list;
mod patch;
mod scale;
mod update;
mod watch;

pub(crate) use admit::{finalizers, is_deleting};
pub(crate) use delete::{
    Deletion, FOREGROUND as FOREGROUND_FINALIZER, ORPHAN as ORPHAN_FINALIZER, Propagation,
    orphans_dependents, waits_for_dependents, without_finalizer,
};
pub(crate) use list::partial;
