//! The seam between the store and what makes its writes durable.

use super::CollectionName;
use super::history::Event;
use std::sync::Arc;

/// Why a batch is not durable.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// Nothing of the batch was kept; a later batch may succeed.
    #[error("the disk is full: {0}")]
    Full(String),
    /// As above, for another reason.
    #[error("{0}")]
    Refused(String),
    /// It is unknown what reached the disk: no further writes until the server is started again.
    #[error("{0}")]
    Broken(String),
}

/// Takes batches, one at a time, and returns when they are durable.
pub trait Journal: Send + 'static {
    fn append(&mut self, batch: &[(CollectionName, Arc<Event>)]) -> Result<(), JournalError>;

    /// Called between batches with a view of the visible state: the place for snapshots.
    fn tidy(&mut self, _view: &dyn View) {}

    /// `true` when `append` does no IO: the store then needs no thread for it.
    fn is_instant(&self) -> bool {
        false
    }
}

/// The visible state, as a journal may look at it.
pub trait View {
    fn revision(&self) -> u64;
    /// Every object there is.
    fn objects(&self) -> Vec<(CollectionName, Arc<super::Object>)>;
}

/// Keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryJournal;

impl Journal for MemoryJournal {
    fn append(&mut self, _batch: &[(CollectionName, Arc<Event>)]) -> Result<(), JournalError> {
        Ok(())
    }

    fn is_instant(&self) -> bool {
        true
    }
}
