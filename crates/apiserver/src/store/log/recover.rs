//! Reading a log back: which files count, what is a torn tail, what is damage.
//!
//! ```text
//!   snapshot-A          snapshot-B                     A: the one before, B: the newest readable one ("base")
//!       log-A+1 .. log-B    log-B+1 ..  last           history from A on; state = B + everything after
//!   `--- may be damaged --'`-- must be whole --'^ only here, at the very end, may a batch be cut
//! ```
//!
//! Only one batch at a time is ever unsynced, so a power cut can spoil only the last one. A batch that can't be read is
//! therefore torn if nothing readable comes after it, and damage if something does. (A flipped bit in the very last
//! batch can't be told from a torn write; it is cut, and the cut is reported.) This file only reads; `log.rs` mends.

use super::codec::{self, BATCH_HEAD, SEGMENT_HEAD, number_in, segment_name, snapshot_name};
use super::snapshot::Base;
use super::{CutTail, Entry, OpenError, Record, Recovered};
use crate::store::disk::Disk;
use std::collections::BTreeMap;
use std::sync::Arc;

/// All that is needed to go on.
pub(super) struct Found {
    pub(super) recovered: Recovered,
    pub(super) next_sequence: u64,
    /// The segment to go on with; `None`: a new one is to be started.
    pub(super) current: Option<Current>,
    pub(super) bytes_since_snapshot: u64,
    /// Snapshots that can't be read and were not needed.
    pub(super) bad_snapshots: Vec<String>,
    /// A segment that was being started when the machine went down.
    pub(super) unstarted: Option<String>,
}

/// The last segment.
pub(super) struct Current {
    pub(super) name: String,
    pub(super) first_revision: u64,
    /// Where the next batch goes.
    pub(super) end: u64,
    /// The length of the file; beyond `end` there are zeros, or a torn batch.
    pub(super) length: u64,
    /// The last piece that was written (a batch, or the head if there is none) and where: it is the one that may be in
    /// the kernel's memory only.
    pub(super) last_piece: (u64, Vec<u8>),
}

/// What is wrong with a segment, and where.
struct Problem {
    offset: usize,
    what: String,
    from: u64,
    to: Option<u64>,
    /// Whether cutting the file at the offset would help.
    cuttable: bool,
}

/// How a segment's bytes end.
enum Rest {
    /// At the end of the file, or with zeros up to it.
    Clean,
    Torn,
}

/// One segment, read through.
struct Scan {
    end: usize,
    next_sequence: u64,
    last_revision: u64,
    last_piece: (usize, usize),
    rest: Rest,
}

struct Reader<'a, D> {
    disk: &'a D,
    base: Base,
    /// First revisions of all segments, rising.
    segments: Vec<u64>,
    records: Vec<Record>,
    /// The history in `records` is complete from here on.
    floor: Option<u64>,
    expected_sequence: Option<u64>,
    last_revision: u64,
    bytes_since_snapshot: u64,
    cut: Option<CutTail>,
    current: Option<Current>,
    unstarted: Option<String>,
    /// The last segment's bytes, once read: it is looked at twice.
    last_bytes: Vec<u8>,
}

/// Revisions of snapshots that can't be read, and why not.
type BadSnapshots = Vec<(u64, &'static str)>;

pub(super) fn recover<D: Disk>(disk: &D) -> Result<Found, OpenError> {
    let folder = disk.describe();
    let names = disk.list().map_err(|source| io_error(disk, "list the files of", "", source))?;
    let numbers = |prefix| {
        let mut numbers: Vec<u64> = names.iter().filter_map(|n| number_in(n, prefix)).collect();
        numbers.sort_unstable();
        numbers
    };
    let (base, bad) = newest_snapshot(disk, &numbers("snapshot-"))?;
    let mut reader = Reader {
        disk,
        base,
        last_revision: 0,
        segments: numbers("log-"),
        records: Vec::new(),
        floor: None,
        expected_sequence: None,
        bytes_since_snapshot: 0,
        cut: None,
        current: None,
        unstarted: None,
        last_bytes: Vec::new(),
    };
    reader.read_segments()?;
    if let Some((revision, what)) = bad.iter().find(|(revision, _)| *revision > reader.last_revision) {
        let (file, what) = (snapshot_name(*revision), (*what).to_owned());
        let later = reader.segments.iter().filter(|s| **s > *revision).map(|s| segment_name(*s)).collect();
        return Err(OpenError::Snapshot { folder, file, what, reached: reader.last_revision, later });
    }
    Ok(reader.finish(bad.into_iter().map(|(revision, _)| snapshot_name(revision)).collect()))
}

/// The newest snapshot that can be read, and those above it that can't. Without any, the state before revision 1.
fn newest_snapshot<D: Disk>(disk: &D, revisions: &[u64]) -> Result<(Base, BadSnapshots), OpenError> {
    let mut bad = Vec::new();
    for revision in revisions.iter().rev().copied() {
        let name = snapshot_name(revision);
        let bytes = disk.read(&name).map_err(|source| io_error(disk, "read", &name, source))?;
        match Base::decode(&bytes, revision) {
            Ok(base) => return Ok((base, bad)),
            Err(what) => bad.push((revision, what)),
        }
    }
    Ok((Base::default(), bad))
}

fn io_error<D: Disk>(disk: &D, action: &'static str, file: &str, source: std::io::Error) -> OpenError {
    OpenError::Io { action, folder: disk.describe(), file: file.to_owned(), source }
}

// === impl Reader ===

impl<D: Disk> Reader<'_, D> {
    fn read_segments(&mut self) -> Result<(), OpenError> {
        let mut usable = self.segments.clone();
        if let Some(last) = usable.last().copied() {
            self.last_bytes = self.read(&segment_name(last))?;
            if self.was_being_started(last) {
                self.unstarted = Some(segment_name(last));
                usable.pop();
            }
        }
        let first_needed = self.base.revision.saturating_add(1);
        let needed = usable.iter().find(|s| **s >= first_needed).copied();
        // Without any, the only one may just be being started, or the folder is new.
        let restarted = self.unstarted.is_some() && self.segments.last() == Some(&first_needed);
        let fresh = self.segments.is_empty() && self.base.revision == 0;
        if needed != Some(first_needed) && !(needed.is_none() && (restarted || fresh)) {
            return Err(self.missing(first_needed));
        }
        let last = usable.last().copied().filter(|_| self.unstarted.is_none());
        for first in usable {
            self.read_segment(first, last == Some(first))?;
        }
        self.last_revision = self.last_revision.max(self.base.revision);
        Ok(())
    }

    /// Whether the last segment, shorter than its head, was being started when the power went: it never held anything.
    fn was_being_started(&self, last: u64) -> bool {
        let bytes = &self.last_bytes;
        // A snapshot is made only after its segment was started for good. An empty file is the operator's way of saying
        // that the lost changes are given up.
        let leaned_on = self.base.revision > 0 && last <= self.base.revision.saturating_add(1);
        bytes.is_empty()
            || (bytes.len() <= SEGMENT_HEAD && codec::segment_head(bytes).is_none() && !leaned_on)
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, OpenError> {
        self.disk.read(name).map_err(|source| io_error(self.disk, "read", name, source))
    }

    /// Reads one segment. Nothing was started after the last one, so only its last batch may be a torn one.
    fn read_segment(&mut self, first: u64, is_last: bool) -> Result<(), OpenError> {
        let name = segment_name(first);
        let bytes = if is_last { std::mem::take(&mut self.last_bytes) } else { self.read(&name)? };
        let needed = first > self.base.revision;
        if first == self.base.revision.saturating_add(1) {
            // From here on the base counts; what came before is history, and may end early.
            let follows = self.expected_sequence == Some(self.base.sequence.saturating_add(1));
            if !follows && self.base.revision > 0 {
                self.forget_history();
            }
            self.expected_sequence = Some(self.base.sequence.saturating_add(1));
            self.last_revision = self.base.revision;
        }
        let before = self.records.len();
        let scan = match self.scan(&bytes, first) {
            Ok(Scan { rest: Rest::Torn, end, last_revision, .. }) if !is_last => Err(Problem {
                offset: end,
                what: "the batch there can't be read, and the log went on in a later file".to_owned(),
                from: last_revision.saturating_add(1),
                to: self
                    .segments
                    .iter()
                    .find(|s| **s > first)
                    .map(|next| (next - 1).max(last_revision.saturating_add(1))),
                cuttable: true,
            }),
            other => other,
        };
        match scan {
            Ok(scan) => {
                if needed {
                    self.bytes_since_snapshot += (scan.end - SEGMENT_HEAD) as u64;
                }
                self.accept(name, first, &bytes, scan, is_last);
                Ok(())
            }
            Err(problem) if needed => Err(self.refuse(name, first, problem)),
            Err(_) => {
                // The base covers it; only watches that would resume from before the base notice.
                self.records.truncate(before);
                self.forget_history();
                Ok(())
            }
        }
    }

    fn forget_history(&mut self) {
        self.records.clear();
        self.floor = None;
        self.expected_sequence = None;
    }

    fn accept(&mut self, name: String, first: u64, bytes: &[u8], scan: Scan, is_last: bool) {
        self.floor.get_or_insert(first.saturating_sub(1));
        self.expected_sequence = Some(scan.next_sequence);
        self.last_revision = scan.last_revision;
        if !is_last {
            return;
        }
        if matches!(scan.rest, Rest::Torn) {
            self.cut = Some(CutTail {
                file: name.clone(),
                offset: scan.end as u64,
                bytes: (bytes.len() - scan.end) as u64,
                after_revision: scan.last_revision,
            });
        }
        let (piece_at, piece_end) = scan.last_piece;
        self.current = Some(Current {
            name,
            first_revision: first,
            end: scan.end as u64,
            length: bytes.len() as u64,
            last_piece: (piece_at as u64, bytes.get(piece_at..piece_end).unwrap_or_default().to_vec()),
        });
    }

    /// Takes all batches of a segment into `records`.
    fn scan(&mut self, bytes: &[u8], first: u64) -> Result<Scan, Problem> {
        let unusable =
            |what: &str| Problem { offset: 0, what: what.to_owned(), from: first, to: None, cuttable: false };
        let head = codec::segment_head(bytes).ok_or_else(|| unusable("its head can't be read"))?;
        if head.first_revision != first {
            return Err(unusable("it is the segment of another revision than its name says"));
        }
        if self.expected_sequence.is_some_and(|expected| expected != head.first_sequence) {
            return Err(unusable("it does not follow the one before it: changes in between are missing"));
        }
        let mut scan = Scan {
            end: SEGMENT_HEAD,
            next_sequence: head.first_sequence,
            // A revision may be skipped between segments, never within what was written.
            last_revision: self.last_revision.max(first.saturating_sub(1)),
            last_piece: (0, SEGMENT_HEAD),
            rest: Rest::Clean,
        };
        while let Some((records, end)) = next_batch(bytes, &scan)? {
            scan.last_revision = records.last().map_or(scan.last_revision, |r| r.revision);
            scan.last_piece = (scan.end, end);
            scan.end = end;
            scan.next_sequence = scan.next_sequence.saturating_add(1);
            self.records.extend(records);
        }
        if bytes[scan.end..].iter().any(|b| *b != 0) {
            scan.rest = Rest::Torn;
        }
        Ok(scan)
    }

    fn refuse(&self, file: String, first: u64, problem: Problem) -> OpenError {
        let Problem { offset, what, from, to, cuttable } = problem;
        let folder = self.disk.describe();
        if !cuttable {
            return OpenError::Segment { folder, file, what, from };
        }
        let (offset, what, later) = (offset as u64, what.into(), self.later(first).into());
        OpenError::Damaged { folder, file, offset, what, from, to, later }
    }

    fn missing(&self, first: u64) -> OpenError {
        let (folder, file) = (self.disk.describe(), segment_name(first));
        OpenError::Missing { folder, file, from: first, later: self.later(first) }
    }

    fn later(&self, first: u64) -> Vec<String> {
        self.segments.iter().filter(|s| **s > first).map(|s| segment_name(*s)).collect()
    }

    fn finish(self, bad_snapshots: Vec<String>) -> Found {
        let base_revision = self.base.revision;
        let floor = self.floor.unwrap_or(base_revision).max(self.base.floor.min(base_revision));
        let mut state: BTreeMap<Arc<str>, Entry> =
            self.base.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        let mut superseded = Vec::new();
        for record in self.records.iter().filter(|r| r.revision > base_revision) {
            let Record { revision, key, value } = record.clone();
            let before = match value {
                Some(value) => state.insert(key.clone(), Entry { key, revision, value }),
                None => state.remove(&key),
            };
            superseded.extend(before.filter(|b| b.revision <= base_revision));
        }
        let mut tail = self.records;
        tail.retain(|r| r.revision > floor);
        let recovered = Recovered {
            revision: self.last_revision,
            entries: state.into_values().collect(),
            base_revision,
            superseded,
            tail,
            floor,
            cut: self.cut,
            bad_snapshots: bad_snapshots.clone(),
        };
        Found {
            recovered,
            next_sequence: self.expected_sequence.unwrap_or(0).max(self.base.sequence.saturating_add(1)),
            current: self.current,
            bytes_since_snapshot: self.bytes_since_snapshot,
            bad_snapshots,
            unstarted: self.unstarted,
        }
    }
}

/// The batch at the end of what was scanned: its records and where it ends, `None` if there is none that counts.
fn next_batch(bytes: &[u8], scan: &Scan) -> Result<Option<(Vec<Record>, usize)>, Problem> {
    let damage = |what: String, to| Problem {
        offset: scan.end,
        what,
        from: scan.last_revision.saturating_add(1),
        to,
        cuttable: true,
    };
    // Only a head with the expected number tells the length of what is to be skipped.
    let head = codec::batch_head(bytes, scan.end).filter(|head| head.sequence == scan.next_sequence);
    let payload = head.and_then(|head| Some((head, codec::batch_payload(bytes, scan.end, head)?)));
    if let Some((head, payload)) = payload {
        // The checksums are right, so this is not torn: it was written so.
        let records = codec::batch_records(payload, head)
            .filter(|records| records.first().is_some_and(|r| r.revision > scan.last_revision))
            .ok_or_else(|| damage("the batch there is whole but makes no sense".to_owned(), None))?;
        return Ok(Some((records, scan.end + BATCH_HEAD + head.length)));
    }
    let search_from = head.map_or(scan.end, |head| scan.end.saturating_add(BATCH_HEAD + head.length));
    match codec::find_batch_after(bytes, search_from, scan.next_sequence) {
        Some((at, next)) => {
            let what = format!("the batch there can't be read, but a later one at byte {at} can");
            Err(damage(what, Some(next.first_revision.saturating_sub(1))))
        }
        None => Ok(None),
    }
}
