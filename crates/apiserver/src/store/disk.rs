//! The seam between the log and the machine's disk: one flat directory, few verbs.
//!
//! What an implementation promises, and nothing more (the log is written against exactly this):
//!
//! - A write is visible to readers at once and survives a power cut only after [`DiskFile::sync`] of that file.
//! - Creating, renaming or removing a name survives a power cut only after [`Disk::sync_dir`].
//! - Before that, a power cut may keep any part of it, in any order, and may tear a sector in the middle.
//! - After a failed `sync` nothing is known about the writes it was to make durable, not even after a later `sync`
//!   that succeeds (the kernel marks such pages clean).
//!
//! [`DirDisk`] is the real one. [`SimDisk`] keeps only these promises and breaks everything else, by seed.

mod dir;
mod sim;

pub use dir::{DirDisk, DirError, DirFile};
pub use sim::{Restart, SimDisk, SimFile};

use std::io;

/// One directory of files. Clones are handles to the same directory.
pub trait Disk: Clone + Send + 'static {
    type File: DiskFile;

    /// Makes a file with no content; one that is there is emptied.
    fn create(&self, name: &str) -> io::Result<Self::File>;
    /// Opens a file that is there, for writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;
    /// The whole content of a file.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Gives a file another name, replacing what had that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// The names of all files, in no particular order.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes all creations, renames and removals so far durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// Where this directory is, for messages to people.
    fn describe(&self) -> String;
}

/// An open file of a [`Disk`].
pub trait DiskFile: Send + 'static {
    /// Writes at an offset and tells how many bytes were taken (fewer than given when the disk gets full on the way).
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize>;
    /// Cuts the file, or extends it with zeros.
    fn truncate(&self, len: u64) -> io::Result<()>;
    /// Makes all writes and the length durable.
    fn sync(&self) -> io::Result<()>;
}

/// Writes everything or fails: the loop over short writes that all callers need.
pub(crate) fn write_all_at<F: DiskFile>(file: &F, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(offset, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => {
                offset += taken as u64;
                bytes = bytes.get(taken..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether an error means that there is no room, so that the same write may succeed later.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull, WriteZero};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge | WriteZero)
}
