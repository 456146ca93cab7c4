//! The store's journal on disk: objects to log records and back, and the snapshots that keep the log short.

use super::disk::{DirDisk, DirError, Disk};
use super::history::{Event, EventKind};
use super::journal::{Journal, JournalError, View};
use super::log::{self, AppendError, Entry, Log, Record, Recovered};
use super::object::{Draft, Key, Object};
use super::{CollectionName, Restored};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A snapshot is not worth its writing before the log has grown by this much.
const SNAPSHOT_AT_LEAST: u64 = 8 << 20;

/// Why a data directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    #[error(transparent)]
    Directory(#[from] DirError),
    #[error(transparent)]
    Log(#[from] log::OpenError),
    #[error(
        "the record of {key} at revision {revision} is intact but holds no object that this version can read; \
         it was written by another version, or the folder is not one of this program's"
    )]
    NotAnObject { key: String, revision: u64 },
}

/// A [`Journal`] on a disk.
pub struct Durable<D: Disk = DirDisk> {
    log: Log<D>,
    /// At most one snapshot is written at a time.
    snapshotting: Arc<AtomicBool>,
    /// How far the log must have grown before a snapshot is thought of again.
    think_at: u64,
}

impl Durable {
    /// Locks and reads the directory; makes it when it is missing.
    pub fn open(directory: &Path) -> Result<(Self, Restored), DurableError> {
        Self::on(DirDisk::open(directory)?)
    }
}

impl<D: Disk> Durable<D> {
    /// Reads what is on the disk.
    pub fn on(disk: D) -> Result<(Self, Restored), DurableError> {
        let (log, recovered) = Log::open(disk)?;
        if let Some(cut) = &recovered.cut {
            tracing::warn!("{cut}");
        }
        for name in &recovered.bad_snapshots {
            tracing::warn!(name, "a snapshot could not be read and was not needed; it was set aside");
        }
        let restored = restore(recovered)?;
        Ok((Self { log, snapshotting: Arc::default(), think_at: SNAPSHOT_AT_LEAST }, restored))
    }
}

fn disk_key(collection: &str, key: &Key) -> Arc<str> {
    format!("{collection}/{}/{}", key.namespace, key.name).into()
}

fn parse_key(text: &str) -> Option<(CollectionName, Key)> {
    let mut parts = text.splitn(3, '/');
    let (collection, namespace, name) = (parts.next()?, parts.next()?, parts.next()?);
    Some((collection.into(), Key::new(namespace, name)))
}

fn parse(
    key: &Arc<str>,
    revision: u64,
    value: &bytes::Bytes,
) -> Result<(CollectionName, Object), DurableError> {
    let parsed = parse_key(key).and_then(|(collection, key)| {
        let object = Object::decode(key, revision, value)?;
        Some((collection, object))
    });
    parsed.ok_or_else(|| DurableError::NotAnObject { key: key.to_string(), revision })
}

/// The past as the store wants it: what there is, and the recent changes with what was before each.
fn restore(recovered: Recovered) -> Result<Restored, DurableError> {
    let Recovered { revision, entries, base_revision, superseded, tail, floor, .. } = recovered;
    let floor = floor.max(base_revision);
    let mut before: HashMap<Arc<str>, Arc<Object>> = HashMap::new();
    for entry in &superseded {
        before.insert(entry.key.clone(), Arc::new(parse(&entry.key, entry.revision, &entry.value)?.1));
    }
    let mut recent = Vec::new();
    for record in tail.iter().filter(|r| r.revision > floor) {
        let previous = before.remove(&record.key);
        let (collection, event) = match &record.value {
            Some(value) => {
                let (collection, object) = parse(&record.key, record.revision, value)?;
                let object = Arc::new(object);
                before.insert(record.key.clone(), object.clone());
                let kind = if previous.is_some() { EventKind::Modified } else { EventKind::Added };
                (collection, Event::new(kind, object, previous))
            }
            None => {
                let (Some(previous), Some((collection, key))) = (previous, parse_key(&record.key)) else {
                    return Err(DurableError::NotAnObject {
                        key: record.key.to_string(),
                        revision: record.revision,
                    });
                };
                let object = Arc::new(Draft::again(&previous).seal(key, record.revision));
                (collection, Event::new(EventKind::Deleted, object, Some(previous)))
            }
        };
        recent.push((collection, event));
    }
    let mut objects = Vec::with_capacity(entries.len());
    for entry in &entries {
        let known = before.get(&entry.key).filter(|o| o.revision == entry.revision);
        let held = match (known, parse_key(&entry.key)) {
            (Some(object), Some((collection, _))) => (collection, object.clone()),
            _ => {
                let (collection, object) = parse(&entry.key, entry.revision, &entry.value)?;
                (collection, Arc::new(object))
            }
        };
        objects.push(held);
    }
    Ok(Restored { revision, objects, recent, floor })
}

impl<D: Disk> Journal for Durable<D> {
    fn append(&mut self, batch: &[(CollectionName, Arc<Event>)]) -> Result<(), JournalError> {
        let records: Vec<Record> = batch
            .iter()
            .map(|(collection, event)| Record {
                revision: event.object.revision,
                key: disk_key(collection, &event.object.key),
                value: (event.kind != EventKind::Deleted).then(|| event.object.encode()),
            })
            .collect();
        self.log.append(&records).map_err(|error| match &error {
            AppendError::Poisoned { .. } => JournalError::Broken(error.to_string()),
            AppendError::Full { .. } => JournalError::Full(error.to_string()),
            _ => JournalError::Refused(error.to_string()),
        })
    }

    fn tidy(&mut self, view: &dyn View) {
        let grown = self.log.bytes_since_snapshot();
        if grown < self.think_at || self.snapshotting.load(Ordering::Acquire) {
            return;
        }
        let objects = view.objects();
        let live: usize = objects.iter().map(|(_, o)| o.json.len()).sum();
        // Twice the live data: each byte is then rewritten by snapshots at most once per byte that was logged.
        let worth_it = 2 * live as u64;
        if grown < worth_it {
            self.think_at = worth_it;
            return;
        }
        self.think_at = SNAPSHOT_AT_LEAST;
        let job = match self.log.rotate(view.revision(), view.revision()) {
            Ok(job) => job,
            Err(error) => {
                tracing::warn!(%error, "a snapshot could not be started; the log goes on growing");
                return;
            }
        };
        self.snapshotting.store(true, Ordering::Release);
        let done = self.snapshotting.clone();
        let write = move || {
            let entries = objects.iter().map(|(collection, object)| Entry {
                key: disk_key(collection, &object.key),
                revision: object.revision,
                value: object.encode(),
            });
            match job.run(entries) {
                Ok(report) => tracing::debug!(?report, "snapshot written"),
                Err(error) => {
                    tracing::warn!(%error, "a snapshot was not written; the log still holds everything")
                }
            }
            done.store(false, Ordering::Release);
        };
        if let Err(error) = std::thread::Builder::new().name("snapshot".into()).spawn(write) {
            tracing::warn!(%error, "cannot start a thread for the snapshot");
            self.snapshotting.store(false, Ordering::Release);
        }
    }
}
