//! What must be so for this machine to be fit: a listener of ours, an interface, an API server on this machine.
//!
//! The first two are looked at by the thread that holds the addresses. An API server can take its time to answer, so each
//! has a thread that asks it, and adverts never wait for it.

use super::machine::Machine;
use super::wake::Waker;
use crate::config::{Track, TrackCheck};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Between two questions to an API server, and as long as it may take to answer.
const ASK_EVERY: Duration = Duration::from_millis(500);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Answers of one kind in a row that are believed.
const IN_A_ROW: u32 = 2;

const UNKNOWN: u8 = 0;
const BAD: u8 = 1;
const GOOD: u8 = 2;

/// Asks an API server whether it is ready, within the given time.
pub(super) type Probe = Arc<dyn Fn(&str, Duration) -> bool + Send + Sync>;

/// Everything that is looked at for one virtual address.
#[derive(Debug)]
pub(super) struct Tracks {
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    check: TrackCheck,
    /// Of an API server: the thread that asks it.
    asker: Option<Asker>,
    known: Option<bool>,
    told: Option<bool>,
}

/// A thread that asks an API server. It ends when this is dropped.
struct Asker {
    result: Arc<AtomicU8>,
    stop: Option<mpsc::Sender<()>>,
}

/// Believes an answer only when it comes several times in a row.
#[derive(Debug, Default)]
struct Believer {
    believed: Option<bool>,
    other: u32,
}

// === impl Tracks ===

impl Tracks {
    pub(super) fn new(tracks: &[Track], probe: &Probe, waker: &Waker) -> std::io::Result<Self> {
        let entries = tracks.iter().map(|track| {
            let asker = match &track.check {
                TrackCheck::LocalApiserver(url) => Some(Asker::start(url, probe.clone(), waker.clone())?),
                TrackCheck::Listener(_) | TrackCheck::Interface(_) => None,
            };
            Ok(Entry { check: track.check.clone(), asker, known: None, told: None })
        });
        Ok(Self { entries: entries.collect::<std::io::Result<_>>()? })
    }

    /// Goes on with those who ask already: what they believe holds until it has been heard otherwise several times.
    pub(super) fn take_over(&mut self, former: &mut Tracks) {
        for entry in self.entries.iter_mut().filter(|entry| entry.asker.is_some()) {
            let same = |old: &&mut Entry| old.asker.is_some() && old.check == entry.check;
            if let Some(old) = former.entries.iter_mut().find(same) {
                (entry.asker, entry.known) = (old.asker.take(), old.known);
            }
        }
    }

    /// Whether someone has to look now and then: nobody tells us of a listener.
    pub(super) fn need_polling(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.check, TrackCheck::Listener(_)))
    }

    pub(super) fn poll(&mut self, machine: &Machine, listener_ready: &dyn Fn(&str) -> bool) {
        for entry in &mut self.entries {
            entry.known = match (&entry.check, &entry.asker) {
                (TrackCheck::Listener(name), _) => Some(listener_ready(name)),
                (TrackCheck::Interface(name), _) => Some(machine.interface(name).is_some_and(|i| i.up)),
                (TrackCheck::LocalApiserver(_), Some(asker)) => asker.result(),
                (TrackCheck::LocalApiserver(_), None) => None,
            };
        }
    }

    /// What is different since the last call, by index.
    pub(super) fn take_changes(&mut self) -> Vec<(usize, bool)> {
        let mut changes = Vec::new();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if entry.told != entry.known {
                entry.told = entry.known;
                changes.extend(entry.known.map(|good| (index, good)));
            }
        }
        changes
    }

    /// What is known to be so.
    pub(super) fn good(&self) -> Vec<bool> {
        self.entries.iter().map(|entry| entry.known == Some(true)).collect()
    }

    pub(super) fn name(&self, index: usize) -> String {
        match self.entries.get(index).map(|entry| &entry.check) {
            Some(TrackCheck::Listener(name)) => format!("listener {name}"),
            Some(TrackCheck::LocalApiserver(url)) => format!("API server {url}"),
            Some(TrackCheck::Interface(name)) => format!("interface {name}"),
            None => String::new(),
        }
    }
}

// === impl Asker ===

impl Asker {
    fn start(url: &str, probe: Probe, waker: Waker) -> std::io::Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let result = Arc::new(AtomicU8::new(UNKNOWN));
        let (url, shared) = (url.to_owned(), result.clone());
        thread::Builder::new().name("vip-track".to_owned()).spawn(move || {
            let mut believer = Believer::default();
            loop {
                if let Some(good) = believer.hear(probe(&url, ANSWER_WITHIN)) {
                    shared.store(if good { GOOD } else { BAD }, Ordering::Relaxed);
                    waker.wake();
                }
                if stopped.recv_timeout(ASK_EVERY) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Self { result, stop: Some(stop) })
    }

    fn result(&self) -> Option<bool> {
        match self.result.load(Ordering::Relaxed) {
            GOOD => Some(true),
            BAD => Some(false),
            _ => None,
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        // Not waited for: it may be in the middle of a question.
        drop(self.stop.take());
    }
}

impl fmt::Debug for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("result", &self.result()).finish_non_exhaustive()
    }
}

// === impl Believer ===

impl Believer {
    /// What is believed from now on, where that is new.
    fn hear(&mut self, good: bool) -> Option<bool> {
        if self.believed == Some(good) {
            self.other = 0;
            return None;
        }
        // The first bad answer counts at once: nothing is claimed that has never been so.
        self.other += 1;
        if self.other < IN_A_ROW && (good || self.believed.is_some()) {
            return None;
        }
        *self = Self { believed: Some(good), other: 0 };
        Some(good)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// An API server that the test makes ready or not.
    fn switch(on: &Arc<AtomicBool>) -> Probe {
        let on = on.clone();
        Arc::new(move |_, _| on.load(Ordering::Relaxed))
    }

    #[test]
    fn an_answer_is_believed_when_it_comes_twice() {
        let mut believer = Believer::default();
        let heard: Vec<_> =
            [true, true, false, true, false, false, true, true].map(|good| believer.hear(good)).into();
        let expected = [None, Some(true), None, None, None, Some(false), None, Some(true)];
        assert_eq!(heard, expected);
        assert_eq!(Believer::default().hear(false), Some(false));
    }

    #[test]
    fn who_asks_already_goes_on_after_a_reload() {
        let waker = Waker::new().unwrap();
        let ready = Arc::new(AtomicBool::new(true));
        let track = |url: &str| Track { check: TrackCheck::LocalApiserver(url.to_owned()), weight: 0 };
        let (same, other) = ("https://127.0.0.1:6443/readyz", "https://127.0.0.1:6444/readyz");
        let machine = Machine::look().unwrap();
        let mut former = Tracks::new(&[track(same)], &switch(&ready), &waker).unwrap();
        waker.wait();
        former.poll(&machine, &|_| false);
        assert_eq!(former.good(), [true]);
        // One bad answer after the reload: of the one that is known it is not believed, of the other it is.
        let never: Probe = Arc::new(|_, _| false);
        let mut tracks = Tracks::new(&[track(other), track(same)], &never, &waker).unwrap();
        tracks.take_over(&mut former);
        let mut changes = Vec::new();
        // Who has been replaced before it was asked may wake us too.
        for _ in 0..2_000 {
            tracks.poll(&machine, &|_| false);
            changes.extend(tracks.take_changes());
            if changes.len() > 1 {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        changes.sort_unstable();
        assert_eq!(changes, [(0, false), (1, true)]);
    }

    #[test]
    fn an_api_server_is_asked_by_a_thread_and_the_change_wakes() {
        let waker = Waker::new().unwrap();
        let ready = Arc::new(AtomicBool::new(true));
        let check = TrackCheck::LocalApiserver("https://127.0.0.1:6443/readyz".to_owned());
        let tracks =
            [Track { check, weight: 0 }, Track { check: TrackCheck::Interface("lo".into()), weight: 5 }];
        let mut tracks = Tracks::new(&tracks, &switch(&ready), &waker).unwrap();
        let machine = Machine::look().unwrap();
        waker.wait();
        tracks.poll(&machine, &|_| false);
        let lo = machine.interface("lo").is_some_and(|i| i.up);
        assert_eq!(tracks.take_changes(), [(0, true), (1, lo)]);
        ready.store(false, Ordering::Relaxed);
        waker.wait();
        tracks.poll(&machine, &|_| false);
        assert_eq!(tracks.take_changes(), [(0, false)]);
        assert!(!tracks.need_polling());
    }
}
