//! How long things take in a cluster, and which of them are over.

use crate::delays;
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Something that takes time in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// A kubelet's first words to the API.
    NodeRegisters,
    /// From the CNI's pod being ready to the kubelet's noticing.
    NetworkReady,
    /// Image pull and container start.
    PodStarts,
    /// From a running container to a passed probe.
    PodReady,
    /// A job's work.
    JobRuns,
    /// Until a silent kubelet is taken for lost.
    NodeLost,
    /// Until the pods of a lost node are given up.
    PodsEvicted,
    /// Until a virtual address is taken over from a holder that died without a word.
    AddressTakenOver,
    /// A load balancer's address, a volume.
    Provisioned,
}

/// Seconds at speed 1.
const fn seconds(wait: Wait) -> f64 {
    match wait {
        Wait::NodeRegisters => delays::NODE_REGISTERS,
        Wait::NetworkReady => delays::NETWORK_READY,
        Wait::PodStarts => delays::POD_STARTS,
        Wait::PodReady => delays::POD_READY,
        Wait::JobRuns => delays::JOB_RUNS,
        Wait::NodeLost => delays::NODE_LOST,
        Wait::PodsEvicted => delays::PODS_EVICTED,
        Wait::AddressTakenOver => delays::ADDRESS_TAKEN_OVER,
        Wait::Provisioned => delays::PROVISIONED,
    }
}

/// What is being waited for, by name. A wait that nobody asks about any more is forgotten, so that the same one later starts
/// from the beginning.
#[derive(Debug)]
pub(super) struct Clock {
    speed: f64,
    seed: u64,
    random: Random,
    now: Instant,
    /// As Kubernetes writes times.
    text: String,
    due: BTreeMap<String, Instant>,
    asked: BTreeSet<String>,
}

impl Clock {
    /// The clock of one of several clusters.
    pub(super) fn new(speed: f64, seed: u64, number: u64) -> Self {
        Self {
            speed: speed.max(0.0),
            seed,
            random: Random::new(seed ^ number),
            now: Instant::now(),
            text: timestamp(),
            due: BTreeMap::new(),
            asked: BTreeSet::new(),
        }
    }

    /// The time that holds for one round.
    pub(super) fn begin(&mut self) {
        self.now = Instant::now();
        self.text = timestamp();
        self.asked.clear();
    }

    pub(super) fn end(&mut self) {
        let asked = &self.asked;
        self.due.retain(|name, _| asked.contains(name));
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Whether a wait, which begins when it is first asked about, is over.
    pub(super) fn over(&mut self, wait: Wait, what: &str) -> bool {
        if self.speed == 0.0 {
            return true;
        }
        let name = format!("{wait:?} {what}");
        let due = match self.due.get(&name) {
            Some(due) => *due,
            None => {
                let factor = delays::jitter(self.seed, self.random.fraction());
                let length = Duration::try_from_secs_f64(seconds(wait) * self.speed * factor);
                let due = self.now + length.unwrap_or(Duration::from_secs(3600));
                self.due.insert(name.clone(), due);
                due
            }
        };
        self.asked.insert(name);
        due <= self.now
    }

    /// When the next wait ends.
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.values().filter(|due| **due > self.now).min().copied()
    }
}

fn timestamp() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_and_one_that_is_forgotten_begins_again() {
        let mut clock = Clock::new(1.0, 7, 1);
        clock.begin();
        assert!(!clock.over(Wait::PodReady, "a"));
        let due = clock.next().unwrap();
        tokio::time::sleep_until(due).await;
        clock.begin();
        assert!(clock.over(Wait::PodReady, "a"));
        clock.end();
        clock.begin();
        clock.end();
        clock.begin();
        assert!(!clock.over(Wait::PodReady, "a"), "nobody asked in between");
    }

    #[tokio::test]
    async fn nothing_takes_time_at_speed_zero() {
        let mut clock = Clock::new(0.0, 7, 1);
        clock.begin();
        assert!(clock.over(Wait::PodsEvicted, "a"));
        assert_eq!(clock.next(), None);
    }
}
