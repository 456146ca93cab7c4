//! What a node has to tell of its present boot: events, kernel log, service histories. A reboot forgets all of it.

use crate::machine::{Action, Event, MachineStatus, ServiceState};
use butler_talos::api::EVENT_TYPE_PREFIX;
use butler_talos::api::common;
use butler_talos::api::machine as proto;
use jiff::Timestamp;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// One event as it goes over the wire, and when it was.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) event: proto::Event,
    pub(crate) at: Timestamp,
}

#[derive(Debug, Clone)]
pub(crate) struct ServiceRecord {
    pub(crate) state: ServiceState,
    pub(crate) healthy: Option<bool>,
    pub(crate) health_message: String,
    pub(crate) health_changed: Timestamp,
    pub(crate) history: Vec<(Timestamp, ServiceState, String)>,
}

/// What a journal holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pages {
    /// Counts boots; a reader of an older one has come to its end.
    boot: u64,
    boot_id: String,
    events: Vec<Recorded>,
    log: Vec<String>,
    services: BTreeMap<&'static str, ServiceRecord>,
}

#[derive(Debug)]
pub(crate) struct Journal {
    pages: Mutex<Pages>,
    changed: watch::Sender<u64>,
}

impl Journal {
    #[cfg(test)]
    fn new() -> Self {
        Self::from_pages(Pages::default())
    }

    /// A journal that goes on from these pages.
    pub(crate) fn from_pages(pages: Pages) -> Self {
        Self { pages: Mutex::new(pages), changed: watch::Sender::new(0) }
    }

    pub(crate) fn copy(&self) -> Pages {
        self.pages().clone()
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Fires at every change.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// A new boot: blank pages.
    pub(crate) fn begin(&self, boot_id: String) {
        let mut pages = self.pages();
        *pages = Pages { boot: pages.boot + 1, boot_id, ..Pages::default() };
        drop(pages);
        self.tell();
    }

    pub(crate) fn boot(&self) -> u64 {
        self.pages().boot
    }

    pub(crate) fn boot_id(&self) -> String {
        self.pages().boot_id.clone()
    }

    pub(crate) fn log(&self, line: &str) {
        let stamp = Timestamp::now();
        self.pages().log.push(format!("kern: info: [{stamp}]: [talos] {line}\n"));
        self.tell();
    }

    pub(crate) fn event(&self, id: String, actor: &str, event: &Event) {
        let now = Timestamp::now();
        if let Event::Service { id, state, message, healthy } = event {
            self.record_service(now, id, *state, message, *healthy);
        }
        let (name, bytes) = encode(event, now);
        self.push(id, actor, name, bytes, now);
    }

    pub(crate) fn machine_status(&self, id: String, actor: &str, status: &MachineStatus) {
        use proto::machine_status_event::{MachineStatus as Status, machine_status::UnmetCondition};
        let unmet = status.unmet.iter();
        let event = proto::MachineStatusEvent {
            stage: status.stage.talos_number(),
            status: Some(Status {
                ready: status.ready,
                unmet_conditions: unmet
                    .map(|one| UnmetCondition { name: one.name.to_string(), reason: one.reason.clone() })
                    .collect(),
            }),
        };
        self.push(id, actor, "MachineStatusEvent", event.encode_to_vec(), Timestamp::now());
    }

    fn push(&self, id: String, actor: &str, name: &str, value: Vec<u8>, at: Timestamp) {
        let data = prost_types::Any { type_url: format!("{EVENT_TYPE_PREFIX}{name}"), value };
        let event = proto::Event { metadata: None, data: Some(data), id, actor_id: actor.to_string() };
        self.pages().events.push(Recorded { event, at });
        self.tell();
    }

    fn record_service(
        &self,
        now: Timestamp,
        id: &'static str,
        state: ServiceState,
        message: &str,
        healthy: Option<bool>,
    ) {
        let mut pages = self.pages();
        let record = pages.services.entry(id).or_insert_with(|| ServiceRecord {
            state,
            healthy: None,
            health_message: String::new(),
            health_changed: now,
            history: Vec::new(),
        });
        if record.state != state {
            record.healthy = None;
        }
        record.state = state;
        record.history.push((now, state, message.to_string()));
        if let Some(healthy) = healthy {
            record.healthy = Some(healthy);
            record.health_changed = now;
            record.health_message = if healthy { String::new() } else { message.to_string() };
        }
    }

    /// The events of `boot` from number `from` on; `None` when that boot is over.
    pub(crate) fn events_from(&self, boot: u64, from: usize) -> Option<Vec<Recorded>> {
        let pages = self.pages();
        (pages.boot == boot).then(|| pages.events.iter().skip(from).cloned().collect())
    }

    /// The log lines of `boot` from number `from` on; `None` when that boot is over.
    pub(crate) fn log_from(&self, boot: u64, from: usize) -> Option<Vec<String>> {
        let pages = self.pages();
        (pages.boot == boot).then(|| pages.log.iter().skip(from).cloned().collect())
    }

    pub(crate) fn services(&self) -> BTreeMap<&'static str, ServiceRecord> {
        self.pages().services.clone()
    }
}

/// The message's name and its bytes.
fn encode(event: &Event, now: Timestamp) -> (&'static str, Vec<u8>) {
    match event {
        Event::Sequence { name, action, error } => {
            let error = error.as_ref().map(|message| common::Error {
                code: common::Code::Fatal.into(),
                message: message.clone(),
                details: Vec::new(),
            });
            let event = proto::SequenceEvent { sequence: (*name).to_string(), action: *action as i32, error };
            ("SequenceEvent", event.encode_to_vec())
        }
        Event::Phase { name, action } => {
            let event = proto::PhaseEvent { phase: (*name).to_string(), action: short(*action) };
            ("PhaseEvent", event.encode_to_vec())
        }
        Event::Task { name, action } => {
            let event = proto::TaskEvent { task: (*name).to_string(), action: short(*action) };
            ("TaskEvent", event.encode_to_vec())
        }
        Event::Service { id, state, message, healthy } => {
            let event = proto::ServiceStateEvent {
                service: (*id).to_string(),
                action: state.number(),
                message: message.clone(),
                health: Some(proto::ServiceHealth {
                    unknown: healthy.is_none(),
                    healthy: healthy.unwrap_or(false),
                    last_message: String::new(),
                    last_change: Some(stamp(now)),
                }),
            };
            ("ServiceStateEvent", event.encode_to_vec())
        }
    }
}

/// Phases and tasks have no `NOOP` before `START`.
fn short(action: Action) -> i32 {
    i32::from(action == Action::Stop)
}

pub(crate) fn stamp(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp { seconds: at.as_second(), nanos: at.subsec_nanosecond() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(state: ServiceState, healthy: Option<bool>) -> Event {
        Event::Service { id: "etcd", state, message: "m".into(), healthy }
    }

    #[test]
    fn a_new_boot_ends_the_readers_of_the_old_one() {
        let journal = Journal::new();
        journal.begin("a".into());
        let boot = journal.boot();
        journal.event("1".into(), "", &service(ServiceState::Preparing, None));
        assert_eq!(journal.events_from(boot, 0).unwrap().len(), 1);
        assert_eq!(journal.events_from(boot, 1).unwrap().len(), 0);
        journal.begin("b".into());
        assert!(journal.events_from(boot, 0).is_none());
        assert!(journal.services().is_empty());
        assert_eq!(journal.boot_id(), "b");
    }

    #[test]
    fn health_is_unknown_again_when_the_state_changes() {
        let journal = Journal::new();
        journal.begin("a".into());
        journal.event("1".into(), "", &service(ServiceState::Running, None));
        journal.event("2".into(), "", &service(ServiceState::Running, Some(true)));
        assert_eq!(journal.services()["etcd"].healthy, Some(true));
        journal.event("3".into(), "", &service(ServiceState::Finished, None));
        assert_eq!(journal.services()["etcd"].healthy, None);
        assert_eq!(journal.services()["etcd"].history.len(), 3);
    }
}
