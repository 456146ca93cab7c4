//! The durable log: what was acknowledged survives a power cut.
//!
//! The store's writes arrive as batches of [`Record`]s. [`Log::append`] writes a batch with its checksums and syncs it
//! before it returns, and the caller sends the next one only then: many writers share one sync (group commit), and at
//! any time at most one batch is unsynced. Now and then the caller starts a new segment with [`Log::rotate`] and has the
//! returned [`SnapshotJob`] run on another thread while appends go on.
//!
//! ```text
//!   snapshot-<revision>      all live entries at that revision
//!   log-<first revision>     batches since then, up to the next segment
//!   LOCK                     held while a server runs
//! ```
//!
//! `codec.rs` knows the bytes, `recover.rs` decides what they mean at start, `snapshot.rs` writes and reads snapshots.

mod codec;
mod error;
mod recover;
mod snapshot;
#[cfg(test)]
mod tests;

pub use error::{AppendError, OpenError, RotateError, SnapshotError};
pub use snapshot::{SnapshotJob, SnapshotReport};

use super::disk::{Disk, DiskFile as _, is_full, write_all_at};
use bytes::Bytes;
use codec::{SEGMENT_HEAD, SegmentHead, segment_name};
use recover::{Current, Found};
use std::io;
use std::sync::Arc;

/// A change: a key got a value, or lost it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub revision: u64,
    pub key: Arc<str>,
    /// `None`: deleted.
    pub value: Option<Bytes>,
}

/// A live key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Arc<str>,
    /// Of its last change.
    pub revision: u64,
    pub value: Bytes,
}

/// What was found on disk.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The highest revision that was ever acknowledged; new ones are above it.
    pub revision: u64,
    /// The live entries, sorted by key.
    pub entries: Vec<Entry>,
    /// The revision of the snapshot that was read; 0 without one.
    pub base_revision: u64,
    /// What the keys that changed after `base_revision` held at it: with this the changes since can be told with their
    /// before and after.
    pub superseded: Vec<Entry>,
    /// Every change with a revision above `floor`, in order, deletions included.
    pub tail: Vec<Record>,
    /// The oldest revision from which a watch can resume.
    pub floor: u64,
    /// The torn last batch, if there was one. It was not acknowledged (or, if no power was cut, the medium is failing).
    pub cut: Option<CutTail>,
    /// Snapshots that could not be read and were not needed; set aside under the prefix `damaged-`.
    pub bad_snapshots: Vec<String>,
}

/// A torn last batch that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutTail {
    pub file: String,
    pub offset: u64,
    pub bytes: u64,
    /// The last revision before the cut.
    pub after_revision: u64,
}

/// How a log uses its disk.
#[derive(Debug, Clone)]
pub struct Options {
    /// Segments grow by this many bytes of zeros at a time, so that most batches overwrite blocks that are allocated
    /// already: their sync then has no metadata to write. Zero turns it off. Measured in docs/adr/0002-append-log.md.
    pub fill_ahead: u64,
}

/// An open log. One thread at a time appends.
#[derive(Debug)]
pub struct Log<D: Disk> {
    disk: D,
    options: Options,
    file: D::File,
    name: String,
    first_revision: u64,
    /// Where the next batch goes.
    end: u64,
    /// The length of the file: zeros from `end` to here.
    allocated: u64,
    next_sequence: u64,
    last_revision: u64,
    bytes_since_snapshot: u64,
    /// Kept between batches.
    buffer: Vec<u8>,
    /// Set for good by the first failed sync.
    poisoned: Option<String>,
}

/// A batch larger than this gives its memory back afterwards.
const KEEP_BUFFER: usize = 4 << 20;

// === impl CutTail ===

impl std::fmt::Display for CutTail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, offset, bytes, after_revision } = self;
        write!(
            f,
            "cut an incomplete batch of {bytes} bytes off {file} at byte {offset}, after revision {after_revision}: "
        )?;
        write!(f, "normal after a power cut or a full disk, as nobody was told that it was stored")
    }
}

// === impl Options ===

impl Default for Options {
    fn default() -> Self {
        Self { fill_ahead: 256 << 10 }
    }
}

// === impl Log ===

impl<D: Disk> Log<D> {
    /// Reads what is on the disk, mends a torn tail, and makes the log ready for appends.
    pub fn open(disk: D) -> Result<(Self, Recovered), OpenError> {
        Self::open_with(disk, Options::default())
    }

    pub fn open_with(disk: D, options: Options) -> Result<(Self, Recovered), OpenError> {
        let found = recover::recover(&disk)?;
        let folder = disk.describe();
        let failed = |action, file: &str| {
            let (folder, file) = (folder.clone(), file.to_owned());
            move |source| OpenError::Io { action, folder, file, source }
        };
        tidy(&disk, &found).map_err(failed("tidy up", ""))?;
        let Found { recovered, next_sequence, current, bytes_since_snapshot, .. } = found;
        let (name, first_revision) = match &current {
            Some(current) => (current.name.clone(), current.first_revision),
            None => {
                let next = recovered.revision.saturating_add(1);
                (segment_name(next), next)
            }
        };
        let head = SegmentHead { first_revision, first_sequence: next_sequence };
        let (file, end) = match current {
            Some(current) => resume(&disk, current).map_err(failed("mend", &name))?,
            None => {
                let file = start_segment(&disk, &name, head).map_err(failed("start", &name))?;
                (file, SEGMENT_HEAD as u64)
            }
        };
        let log = Self {
            disk,
            options,
            file,
            name,
            first_revision,
            end,
            allocated: end,
            next_sequence,
            last_revision: recovered.revision,
            bytes_since_snapshot,
            buffer: Vec::new(),
            poisoned: None,
        };
        Ok((log, recovered))
    }

    /// Stores a batch. When this returns `Ok`, it survives a power cut; otherwise none of it was acknowledged.
    pub fn append(&mut self, records: &[Record]) -> Result<(), AppendError> {
        self.check_poison()?;
        let Some(last_revision) = self.check(records)? else { return Ok(()) };
        codec::encode_batch(&mut self.buffer, self.next_sequence, records);
        let length = self.buffer.len() as u64;
        if let Err(source) = self.write_batch() {
            return Err(self.take_back(length, source));
        }
        if let Err(source) = self.file.sync() {
            return Err(self.poison(&source));
        }
        self.end += length;
        self.next_sequence += 1;
        self.last_revision = last_revision;
        self.bytes_since_snapshot += length;
        if self.buffer.capacity() > KEEP_BUFFER {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    /// Starts a new segment for a snapshot of the state at `revision` (the last one appended, or above it: revisions up
    /// to it are then never used again). `floor` is the oldest revision from which watches may still resume.
    ///
    /// Call it between batches. Appends go on at once; the job may run at any later time, on any thread.
    pub fn rotate(&mut self, revision: u64, floor: u64) -> Result<SnapshotJob<D>, RotateError> {
        self.check_poison()?;
        if revision < self.last_revision {
            return Err(RotateError::Order { last: self.last_revision, got: revision });
        }
        // An empty segment that starts at the right place is as good as a new one (and would have the same name).
        if self.first_revision != revision + 1 {
            self.start_next(revision + 1)?;
        }
        self.last_revision = revision;
        self.bytes_since_snapshot = 0;
        let sequence = self.next_sequence - 1;
        Ok(SnapshotJob { disk: self.disk.clone(), revision, sequence, floor: floor.min(revision) })
    }

    /// Bytes of batches that a restart would have to read on top of the newest snapshot (counted from [`Self::rotate`] on).
    pub fn bytes_since_snapshot(&self) -> u64 {
        self.bytes_since_snapshot
    }

    /// The last revision that is durable.
    pub fn revision(&self) -> u64 {
        self.last_revision
    }

    /// Whether a failed sync has ended this log's life; see [`AppendError::Poisoned`].
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.is_some()
    }

    fn check_poison(&self) -> Result<(), AppendError> {
        let Some(cause) = &self.poisoned else { return Ok(()) };
        Err(AppendError::Poisoned { file: self.path(), cause: cause.clone() })
    }

    /// The last revision of a batch that may be appended; `None` for an empty one.
    fn check(&self, records: &[Record]) -> Result<Option<u64>, AppendError> {
        let mut last = self.last_revision;
        let mut needed = 0usize;
        for record in records {
            if record.revision <= last {
                return Err(AppendError::Order { last, got: record.revision });
            }
            last = record.revision;
            needed = needed.saturating_add(codec::record_len(record));
        }
        if needed > codec::MAX_PAYLOAD {
            return Err(AppendError::TooLarge { needed: needed as u64, limit: codec::MAX_PAYLOAD as u64 });
        }
        Ok((!records.is_empty()).then_some(last))
    }

    /// Writes the batch in the buffer, and zeros ahead of the next ones when it does not fit into those that are there.
    fn write_batch(&mut self) -> io::Result<()> {
        let batch_end = self.end + self.buffer.len() as u64;
        let batch_len = self.buffer.len();
        if batch_end <= self.allocated || self.options.fill_ahead == 0 {
            write_all_at(&self.file, self.end, &self.buffer)?;
            self.allocated = self.allocated.max(batch_end);
            return Ok(());
        }
        let filled = batch_end.next_multiple_of(self.options.fill_ahead);
        self.buffer.resize((filled - self.end) as usize, 0);
        match write_all_at(&self.file, self.end, &self.buffer) {
            Ok(()) => self.allocated = filled,
            Err(error) if is_full(&error) => {
                // The zeros are only for speed: without them there may be room.
                write_all_at(&self.file, self.end, &self.buffer[..batch_len])?;
                self.file.truncate(batch_end)?;
                self.allocated = batch_end;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes what a failed write left behind, so that the next batch finds the file as if it had never been tried.
    fn take_back(&mut self, needed: u64, source: io::Error) -> AppendError {
        if let Err(error) = self.file.truncate(self.end).and_then(|()| self.file.sync()) {
            return self.poison(&error);
        }
        self.allocated = self.end;
        let file = self.path();
        if is_full(&source) {
            AppendError::Full { file, needed }
        } else {
            AppendError::Write { file, needed, source }
        }
    }

    fn poison(&mut self, source: &io::Error) -> AppendError {
        let cause = source.to_string();
        self.poisoned = Some(cause.clone());
        AppendError::Poisoned { file: self.path(), cause }
    }

    fn start_next(&mut self, first_revision: u64) -> Result<(), RotateError> {
        let name = segment_name(first_revision);
        let head = SegmentHead { first_revision, first_sequence: self.next_sequence };
        let file = match start_segment(&self.disk, &name, head) {
            Ok(file) => file,
            Err(source) => {
                // A half-made segment must not be taken for the log's end once the old one has grown further.
                let undone =
                    self.disk.remove(&name).or_else(ignore_absence).and_then(|()| self.disk.sync_dir());
                return Err(match undone {
                    Ok(()) => RotateError::Start { file: name, source },
                    Err(error) => RotateError::Poisoned(self.poison(&error)),
                });
            }
        };
        // Gives back the zeros of the finished segment; if that fails, they only take up room.
        let _ = self.file.truncate(self.end);
        (self.file, self.name, self.first_revision) = (file, name, first_revision);
        (self.end, self.allocated) = (SEGMENT_HEAD as u64, SEGMENT_HEAD as u64);
        Ok(())
    }

    fn path(&self) -> String {
        format!("{}/{}", self.disk.describe(), self.name)
    }
}

fn ignore_absence(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// Removes what was half made, and sets unreadable snapshots aside.
fn tidy<D: Disk>(disk: &D, found: &Found) -> io::Result<()> {
    for name in disk.list()? {
        if name.starts_with("snapshot-") && name.ends_with(codec::TEMPORARY) {
            disk.remove(&name)?;
        }
    }
    // Before a segment of another name is started: two last ones could not be told apart.
    if let Some(name) = &found.unstarted {
        disk.remove(name)?;
    }
    for name in &found.bad_snapshots {
        disk.rename(name, &format!("damaged-{name}"))?;
    }
    // Also for names that an earlier process made and could not sync any more: recovery has just relied on them.
    disk.sync_dir()
}

/// Makes a segment that is durable with its name before anything is appended to it.
fn start_segment<D: Disk>(disk: &D, name: &str, head: SegmentHead) -> io::Result<D::File> {
    let file = disk.create(name)?;
    write_all_at(&file, 0, &codec::encode_segment_head(head))?;
    file.sync()?;
    disk.sync_dir()?;
    Ok(file)
}

/// Opens the last segment for appends: cuts the torn batch off, and makes durable what recovery has relied on.
fn resume<D: Disk>(disk: &D, current: Current) -> io::Result<(D::File, u64)> {
    let file = disk.open(&current.name)?;
    // Zeros go, too: after a failed sync the kernel may show zeros where the disk has something else.
    if current.length > current.end {
        file.truncate(current.end)?;
    }
    // The last batch may have been read from the kernel's memory only: written but not synced when a process was killed,
    // or given up by the kernel after a failed sync. It was counted in, so it is written again and synced.
    let (at, piece) = &current.last_piece;
    write_all_at(&file, *at, piece)?;
    file.sync()?;
    Ok((file, current.end))
}
