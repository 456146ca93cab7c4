//! GET with `watch`: a stream of changes.
//!
//! The body of the answer reads the history of the collection from where the client left off and renders what the
//! selectors let through, when the connection asks for it: no task of its own, no queue. A watch that is slower than the
//! history is long is told so (410) and ends.

use super::list::{Selection, check_options, partial};
use crate::engine::{Call, Engine};
use crate::http::media::Form;
use crate::http::reply::{Content, Frames, Reply};
use crate::status::Status;
use crate::store::{Draft, Event, EventKind, Object, WatchError, Watcher};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// How often a quiet watch is told how far it has come.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long a watch lasts when the client does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);
/// About how much of the existing objects is put into one frame.
const FRAME: usize = 64 << 10;

/// Where a watch begins.
struct Start {
    watcher: Watcher,
    /// Objects that are shown as ADDED first.
    existing: VecDeque<Arc<Object>>,
    /// A bookmark at this revision tells where the existing ones end.
    announce_end: Option<u64>,
}

/// One watch.
struct Stream {
    engine: Arc<Engine>,
    call: Call,
    selection: Selection,
    watcher: Watcher,
    existing: VecDeque<Arc<Object>>,
    announce_end: Option<u64>,
    /// When the watch has lasted as long as it may.
    over: Pin<Box<Sleep>>,
    /// When the next bookmark is due, if bookmarks are wanted.
    bookmark: Option<Pin<Box<Sleep>>>,
    /// Column definitions go out with the first row only.
    rows_sent: bool,
    /// Told that it is too late: nothing follows.
    ended: bool,
}

impl Engine {
    pub(crate) fn watch(self: &Arc<Self>, call: Call) -> Result<Reply, Status> {
        check_options(&call)?;
        let selection = Selection::read(self, &call)?;
        let timeout = match call.params.int("timeoutSeconds")? {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
            _ => DEFAULT_TIMEOUT,
        };
        let start = match self.start(&call)? {
            Ok(start) => start,
            Err(error) => return Ok(Reply::ok(Content::Stream(Frames::once(too_old(error))))),
        };
        let bookmark = || Box::pin(tokio::time::sleep(BOOKMARK_EVERY));
        let stream = Stream {
            bookmark: call.params.flag("allowWatchBookmarks").then(bookmark),
            engine: self.clone(),
            call,
            selection,
            watcher: start.watcher,
            existing: start.existing,
            announce_end: start.announce_end,
            over: Box::pin(tokio::time::sleep(timeout)),
            rows_sent: false,
            ended: false,
        };
        Ok(Reply::ok(Content::Stream(Frames::from(stream, |mut stream| async move {
            let frame = stream.next().await;
            (stream, frame)
        }))))
    }

    fn start(&self, call: &Call) -> Result<Result<Start, WatchError>, Status> {
        let p = &call.params;
        let rv = p.get("resourceVersion").unwrap_or("0");
        let from: u64 = rv.parse().map_err(|_| {
            Status::unexplained(format!(
                "resourceVersion: Invalid value: {rv:?}: strconv.ParseUint: parsing {rv:?}: invalid syntax"
            ))
        })?;
        let send_initial = p.flag("sendInitialEvents");
        if !send_initial && from > 0 {
            let watcher = match self.store.watch(call.collection(), from) {
                Ok(watcher) => watcher,
                Err(error) => return Ok(Err(error)),
            };
            return Ok(Ok(Start { watcher, existing: VecDeque::new(), announce_end: None }));
        }
        let skip = p.has("sendInitialEvents") && !send_initial;
        // Listed first, watched from the list's revision: a change in between is delivered, not lost.
        let listing = self.store.list(call.collection(), call.scope());
        let existing = if skip { VecDeque::new() } else { listing.objects.into() };
        let announce = send_initial && p.flag("allowWatchBookmarks");
        Ok(self.store.watch(call.collection(), listing.revision).map(|watcher| Start {
            watcher,
            existing,
            announce_end: announce.then_some(listing.revision),
        }))
    }
}

impl Stream {
    /// The next bytes for the client; `None` when the watch is over.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(frame) = self.next_existing() {
            return Some(frame);
        }
        if let Some(revision) = self.announce_end.take() {
            return Some(self.bookmark_line(revision, true));
        }
        while !self.ended {
            let due = async {
                match &mut self.bookmark {
                    Some(sleep) => sleep.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                events = self.watcher.next() => match events {
                    Ok(events) => {
                        if let Some(frame) = self.render_all(&events) {
                            return Some(frame);
                        }
                    }
                    Err(error) => {
                        self.ended = true;
                        return Some(too_old(error));
                    }
                },
                () = &mut self.over => return None,
                () = due => {
                    if let Some(sleep) = &mut self.bookmark {
                        sleep.as_mut().reset(Instant::now() + BOOKMARK_EVERY);
                    }
                    let revision = self.watcher.caught_up_to();
                    return Some(self.bookmark_line(revision, false));
                }
            }
        }
        None
    }

    /// A frame full of the objects that were there when the watch began.
    fn next_existing(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        while let Some(object) = self.existing.pop_front() {
            if self.in_scope(&object)
                && self.named(&object)
                && self.selection.matches(&self.engine, &self.call, &object)
            {
                out.extend_from_slice(&self.line("ADDED", &object));
            }
            if out.len() >= FRAME {
                break;
            }
        }
        (!out.is_empty()).then(|| Bytes::from(out))
    }

    fn render_all(&mut self, events: &[Arc<Event>]) -> Option<Bytes> {
        let mut lines: Vec<Bytes> = events.iter().filter_map(|event| self.render(event)).collect();
        match lines.len() {
            0 => None,
            1 => lines.pop(),
            _ => Some(Bytes::from(lines.concat())),
        }
    }

    fn in_scope(&self, object: &Object) -> bool {
        self.call.namespace.as_deref().is_none_or(|ns| ns == &*object.key.namespace)
    }

    /// What this watcher sees of a change: objects enter and leave its selection.
    fn render(&mut self, event: &Event) -> Option<Bytes> {
        if !self.in_scope(&event.object) {
            return None;
        }
        if self.selection.is_everything() && self.call.name.is_none() {
            return Some(self.event_line(event.kind, event));
        }
        let chosen = |o: &Object| self.named(o) && self.selection.matches(&self.engine, &self.call, o);
        let now = event.kind != EventKind::Deleted && chosen(&event.object);
        let before = event.previous.as_ref().is_some_and(|p| chosen(p));
        let kind = match (before, now) {
            (false, false) => return None,
            (false, true) => EventKind::Added,
            (true, true) => EventKind::Modified,
            (true, false) => EventKind::Deleted,
        };
        if kind == EventKind::Deleted
            && event.kind != EventKind::Deleted
            && let Some(previous) = &event.previous
        {
            // It left the selection: the watcher is shown what it last saw, under the revision of the change.
            let last = Draft::again(previous).seal(previous.key.clone(), event.object.revision);
            return Some(self.line(kind.as_str(), &last));
        }
        Some(self.event_line(kind, event))
    }

    /// The old paths can name the one object that is watched.
    fn named(&self, object: &Object) -> bool {
        self.call.name.as_deref().is_none_or(|name| name == &*object.key.name)
    }

    fn event_line(&mut self, kind: EventKind, event: &Event) -> Bytes {
        let plain = self.call.accepted.form == Form::Plain && self.call.entry.storage.is_none();
        if plain && kind == event.kind {
            return event.line();
        }
        self.line(kind.as_str(), &event.object)
    }

    fn line(&mut self, kind: &str, object: &Object) -> Bytes {
        if self.call.accepted.form == Form::Plain && self.call.entry.storage.is_none() {
            return crate::store::watch_line(kind, &object.json);
        }
        let value = self.engine.view(&self.call.entry, object);
        let shown = match self.call.accepted.form {
            Form::Plain => value,
            Form::Metadata => partial(&value, &self.call),
            Form::Table => self.row(value, object.revision),
        };
        crate::store::watch_line(kind, shown.to_string().as_bytes())
    }

    fn row(&mut self, value: Value, revision: u64) -> Value {
        let meta = json!({"resourceVersion": revision.to_string()});
        let first = !std::mem::replace(&mut self.rows_sent, true);
        self.engine.table(&self.call, &[value], &meta, first)
    }

    fn bookmark_line(&self, revision: u64, initial_end: bool) -> Bytes {
        let r = &self.call.entry.resource;
        let mut meta = json!({"creationTimestamp": null, "resourceVersion": revision.to_string()});
        if initial_end {
            meta["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.call.accepted.form {
            Form::Plain => json!({"kind": r.kind, "apiVersion": r.api_version(), "metadata": meta}),
            Form::Metadata => partial(&json!({"metadata": meta}), &self.call),
            Form::Table => {
                let at = json!({"resourceVersion": revision.to_string()});
                let mut table = self.engine.table(&self.call, &[], &at, false);
                table["rows"] = json!([{"cells": [], "object": {
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta}}]);
                table
            }
        };
        crate::store::watch_line("BOOKMARK", object.to_string().as_bytes())
    }
}

fn too_old(error: WatchError) -> Bytes {
    let status = Status::expired(format!("too old resource version: {} ({})", error.from, error.floor));
    crate::store::watch_line("ERROR", status.to_json().to_string().as_bytes())
}
