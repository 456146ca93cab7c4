//! Snapshots: all live entries at one revision, so that older segments can go.
//!
//! ```text
//! snapshot = "BTLRSNP" version | revision u64 | sequence u64 | floor u64 | record*
//!            | "BTLREND" version | entries u64 | crc32 of everything before
//! ```
//!
//! A snapshot is written under a temporary name, synced, renamed, and the rename is synced before anything older is
//! removed. The one before it, and the segments since, stay: they are what recovery falls back to when the newest
//! snapshot can't be read, and the history from which watches resume after a restart.

use super::codec::{self, TEMPORARY, number_in, put_record, snapshot_name, take_record, u32_at, u64_at};
use super::{Entry, SnapshotError};
use crate::store::disk::{Disk, DiskFile as _, write_all_at};
use std::io;

const MAGIC: [u8; 8] = *b"BTLRSNP\x01";
const END: [u8; 8] = *b"BTLREND\x01";
const HEAD: usize = 32;
const TRAILER: usize = 20;
const WRITE_SIZE: usize = 256 << 10;
/// Synced in steps: one sync of a large file would hold up the log's own syncs for as long as it takes.
const SYNC_EVERY: u64 = 4 << 20;

/// A snapshot to be made of the state at one revision, on whatever thread suits.
#[derive(Debug)]
#[must_use = "the segment was started for this snapshot"]
pub struct SnapshotJob<D: Disk> {
    pub(super) disk: D,
    pub(super) revision: u64,
    /// The last batch that the snapshot covers.
    pub(super) sequence: u64,
    pub(super) floor: u64,
}

/// What a finished [`SnapshotJob`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotReport {
    pub revision: u64,
    pub entries: u64,
    pub bytes: u64,
    /// Older files that were removed.
    pub removed: Vec<String>,
    /// Older files that could not be removed; the next snapshot tries again.
    pub left: Vec<String>,
}

/// A snapshot that was read back.
#[derive(Debug, Default)]
pub(super) struct Base {
    pub(super) revision: u64,
    pub(super) sequence: u64,
    pub(super) floor: u64,
    pub(super) entries: Vec<Entry>,
}

/// Gathers bytes for a file and keeps the checksum of all of them.
struct Writer<'a, F> {
    file: &'a F,
    buffer: Vec<u8>,
    crc: crc32fast::Hasher,
    written: u64,
    synced: u64,
}

// === impl SnapshotJob ===

impl<D: Disk> SnapshotJob<D> {
    /// The revision whose state [`run`](Self::run) must be given.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Writes the snapshot from the live entries as they were at [`revision`](Self::revision), then removes older files.
    pub fn run(self, entries: impl IntoIterator<Item = Entry>) -> Result<SnapshotReport, SnapshotError> {
        let name = snapshot_name(self.revision);
        let temporary = format!("{name}{TEMPORARY}");
        let (count, bytes) = self.write(&temporary, entries).inspect_err(|_| {
            // Best effort, to give the room back; opening the log removes it otherwise.
            let _ = self.disk.remove(&temporary);
        })?;
        let renamed = self.disk.rename(&temporary, &name).and_then(|()| self.disk.sync_dir());
        renamed.map_err(|source| SnapshotError::Io { action: "put in place", file: name, source })?;
        let (removed, left) = self.prune();
        Ok(SnapshotReport { revision: self.revision, entries: count, bytes, removed, left })
    }

    fn write(
        &self,
        name: &str,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<(u64, u64), SnapshotError> {
        let failed = |action| move |source| SnapshotError::Io { action, file: name.to_owned(), source };
        let file = self.disk.create(name).map_err(failed("create"))?;
        let mut out =
            Writer { file: &file, buffer: Vec::new(), crc: Default::default(), written: 0, synced: 0 };
        out.buffer.extend_from_slice(&MAGIC);
        for number in [self.revision, self.sequence, self.floor] {
            out.buffer.extend_from_slice(&number.to_le_bytes());
        }
        let mut count = 0u64;
        for entry in entries {
            self.check(&entry)?;
            put_record(&mut out.buffer, entry.revision, &entry.key, Some(&entry.value));
            count += 1;
            if out.buffer.len() >= WRITE_SIZE {
                out.flush().map_err(failed("write"))?;
            }
        }
        out.buffer.extend_from_slice(&END);
        out.buffer.extend_from_slice(&count.to_le_bytes());
        out.finish().map_err(failed("write"))?;
        let bytes = out.written;
        file.sync().map_err(failed("sync"))?;
        Ok((count, bytes))
    }

    fn check(&self, entry: &Entry) -> Result<(), SnapshotError> {
        if entry.revision > self.revision {
            let (key, got) = (entry.key.to_string(), entry.revision);
            return Err(SnapshotError::TooNew { key, got, revision: self.revision });
        }
        let size = entry.key.len().saturating_add(entry.value.len());
        if size > codec::MAX_PAYLOAD {
            let (size, limit) = (size as u64, codec::MAX_PAYLOAD as u64);
            return Err(SnapshotError::TooLarge { key: entry.key.to_string(), size, limit });
        }
        Ok(())
    }

    /// Removes what neither the newest snapshot nor the one before it needs. Any part of this may be lost in a power
    /// cut: what stays behind is ignored by recovery and removed by the next snapshot.
    fn prune(&self) -> (Vec<String>, Vec<String>) {
        let Ok(names) = self.disk.list() else { return Default::default() };
        let mut snapshots: Vec<u64> = names.iter().filter_map(|n| number_in(n, "snapshot-")).collect();
        snapshots.sort_unstable_by(|a, b| b.cmp(a));
        let Some(&previous) = snapshots.get(1) else { return Default::default() };
        let old = |name: &String| {
            number_in(name, "snapshot-").is_some_and(|revision| revision < previous)
                || number_in(name, "log-").is_some_and(|first| first <= previous)
        };
        names.into_iter().filter(old).partition(|name| self.disk.remove(name).is_ok())
    }
}

// === impl Writer ===

impl<F: crate::store::disk::DiskFile> Writer<'_, F> {
    fn flush(&mut self) -> io::Result<()> {
        self.crc.update(&self.buffer);
        self.put()?;
        if self.written - self.synced >= SYNC_EVERY {
            self.file.sync()?;
            self.synced = self.written;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.crc.update(&self.buffer);
        let crc = self.crc.clone().finalize();
        self.buffer.extend_from_slice(&crc.to_le_bytes());
        self.put()
    }

    fn put(&mut self) -> io::Result<()> {
        write_all_at(self.file, self.written, &self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

// === impl Base ===

impl Base {
    /// Reads a snapshot back, or says what is wrong with it.
    pub(super) fn decode(bytes: &[u8], revision: u64) -> Result<Self, &'static str> {
        const SHORT: &str = "it is too short";
        let body_end = bytes.len().checked_sub(TRAILER).filter(|end| *end >= HEAD).ok_or(SHORT)?;
        let (body, trailer) = bytes.split_at_checked(body_end).ok_or(SHORT)?;
        if body[..8] != MAGIC {
            return Err("it does not start as a snapshot of this version does");
        }
        if trailer[..8] != END {
            return Err("its end is missing");
        }
        if u32_at(trailer, 16) != Some(crc32fast::hash(&bytes[..bytes.len() - 4])) {
            return Err("its checksum is wrong");
        }
        const ODD: &str = "its content does not fit its checksum";
        let number = |at| u64_at(body, at).ok_or(ODD);
        let mut base =
            Self { revision: number(8)?, sequence: number(16)?, floor: number(24)?, entries: Vec::new() };
        if base.revision != revision {
            return Err("it is the snapshot of another revision than its name says");
        }
        let mut at = HEAD;
        while at < body.len() {
            let (record, next) = take_record(body, at).ok_or(ODD)?;
            let value = record.value.ok_or(ODD)?;
            base.entries.push(Entry { key: record.key, revision: record.revision, value });
            at = next;
        }
        if u64_at(trailer, 8) != Some(base.entries.len() as u64) {
            return Err("it has another number of entries than its end says");
        }
        Ok(base)
    }
}
