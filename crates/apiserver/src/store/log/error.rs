//! What can go wrong, in words that tell an operator which file, what it means and what to do.

use std::io;

/// Why a log could not be opened. Nothing was changed on disk that a copy of the folder would be needed for.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("can't {action} {folder}/{file}")]
    Io { action: &'static str, folder: String, file: String, source: io::Error },
    /// A batch that was acknowledged can't be read, and later ones can.
    #[error(
        "{folder}/{file} is damaged at byte {offset}: {what}. A power cut does not do this: the disk, or another \
         program, changed data that was stored safely. Changes from revision {from} {} are affected. Restore the \
         folder {folder} from a copy. Or, to give up everything from revision {from} on: copy the folder, run \
         `truncate -s {offset} {file}` in it{}, and start again",
        until(*to), then_remove(later)
    )]
    Damaged {
        folder: String,
        file: String,
        offset: u64,
        what: Box<str>,
        /// The first revision that can't be read.
        from: u64,
        /// The last one that can't be read, where that is known.
        to: Option<u64>,
        /// Segments after this one.
        later: Box<[String]>,
    },
    /// A whole segment, or its head, is not usable.
    #[error(
        "{folder}/{file} can't be used: {what}. It holds the changes from revision {from} on, and everything after \
         it builds on it. Restore the folder {folder} from a copy"
    )]
    Segment { folder: String, file: String, what: String, from: u64 },
    #[error(
        "{folder}/{file} is missing: it holds the changes from revision {from} on. Put it back, or restore the folder \
         {folder} from a copy. To give those changes up, make an empty file of that name{}, and start again",
        then_remove(later)
    )]
    Missing { folder: String, file: String, from: u64, later: Vec<String> },
    /// A snapshot is bad, and what it was made from is gone.
    #[error(
        "{folder}/{file} is damaged ({what}), and the older files reach only to revision {reached}. Restore the \
         folder {folder} from a copy. Or, to go back to revision {reached}: move {file} away{}, and start again",
        then_remove(later)
    )]
    Snapshot { folder: String, file: String, what: String, reached: u64, later: Vec<String> },
}

/// Why a batch was not stored. In every case none of it was acknowledged.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error(
        "{file}: no room on the disk for {needed} bytes; nothing was written, and writes go on when there is room"
    )]
    Full { file: String, needed: u64 },
    #[error("{file}: can't write a batch of {needed} bytes; it was taken back")]
    Write { file: String, needed: u64, source: io::Error },
    /// After a failed sync the kernel may show data that the disk does not have, so nothing may build on it.
    #[error(
        "{file}: the disk failed to store a batch ({cause}), so it is not known any more what the disk holds; no \
         further write is accepted: mend the disk, then restart"
    )]
    Poisoned { file: String, cause: String },
    #[error("a batch of {needed} bytes is above the limit of {limit}")]
    TooLarge { needed: u64, limit: u64 },
    #[error("revision {got} does not follow revision {last}")]
    Order { last: u64, got: u64 },
}

/// Why no new segment was started. Unless the log is poisoned, the old one goes on.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error("can't start the log segment {file}; the old one goes on")]
    Start { file: String, source: io::Error },
    #[error("can't snapshot at revision {got}: the log is at {last}")]
    Order { last: u64, got: u64 },
    #[error(transparent)]
    Poisoned(#[from] AppendError),
}

/// Why a snapshot was not made. The older files are still there, so nothing is lost.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("can't {action} {file}; the log goes on growing until a snapshot succeeds")]
    Io { action: &'static str, file: String, source: io::Error },
    #[error("{key} has revision {got}, later than the snapshot's {revision}")]
    TooNew { key: String, got: u64, revision: u64 },
    #[error("{key} has {size} bytes, above the limit of {limit}")]
    TooLarge { key: String, size: u64, limit: u64 },
}

fn until(to: Option<u64>) -> String {
    to.map_or_else(|| "on".to_owned(), |to| format!("to {to}"))
}

fn then_remove(later: &[String]) -> String {
    if later.is_empty() { String::new() } else { format!(", move {} away", later.join(", ")) }
}
