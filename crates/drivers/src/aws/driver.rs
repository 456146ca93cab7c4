//! What machines, load balancers and the preflight share: the client, the settings, and a sense of time.

use super::client::Client;
use super::machine::model::{Image, Instance};
use super::settings::Settings;
use crate::together::Questions;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// One region of AWS.
pub(crate) struct Driver {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) pace: Pace,
    pub(crate) launches: Launches,
    pub(crate) doubts: Doubts,
    /// All instances of a cluster, by its uid.
    pub(crate) listings: Questions<Vec<Instance>>,
    /// Images by what they are looked for with.
    pub(crate) images: Questions<Vec<Image>>,
    /// Zone and VPC of subnets, which never change.
    pub(crate) subnets: Mutex<Vec<super::balancer::model::Subnet>>,
}

/// How soon it is worth to look again: after twice the time that has passed since the last change, so that what is quick is seen
/// at once and AWS' quota of calls lasts; never later than the caller allows, or than an eighth of that time.
#[derive(Default)]
pub(crate) struct Pace(Mutex<BTreeMap<String, Instant>>);

/// Since when something of our name is seen without any tag, by the uid of the request. Things are made with their tags, but the
/// tags may be seen later than the thing: only what stays without is somebody else's.
#[derive(Default)]
pub(crate) struct Doubts(Mutex<BTreeMap<String, Instant>>);

/// So long something of our name may be without tags.
const TAGS_ARRIVE: Duration = Duration::from_secs(15);

impl Doubts {
    pub(crate) fn arise(&self, uid: &str) {
        self.0.lock().entry(uid.to_owned()).or_insert_with(Instant::now);
    }

    pub(crate) fn end(&self, uid: &str) {
        self.0.lock().remove(uid);
    }

    /// Whether what has no tags is somebody else's by now.
    pub(crate) fn are_over(&self, uid: &str) -> bool {
        self.0.lock().get(uid).is_some_and(|since| since.elapsed() >= TAGS_ARRIVE)
    }
}

/// What launches have said that no look shows, by the uid of their request.
#[derive(Default)]
pub(crate) struct Launches(Mutex<BTreeMap<String, Launched>>);

#[derive(Default)]
struct Launched {
    /// An instance that this process launched and nobody has seen yet.
    unseen: Option<(String, Instant)>,
    /// What tells that tokens are used up: instances that have ended.
    spent: BTreeSet<String>,
    /// Since when a token is refused although nothing shows what it was used for.
    refused: Option<Instant>,
    /// Instances whose death was told.
    told: BTreeSet<String>,
}

/// An instance that was launched is seen within this time, or it has ended since.
const SEEN_BY_THEN: Duration = Duration::from_secs(60);

impl Launches {
    fn with<T>(&self, uid: &str, change: impl FnOnce(&mut Launched) -> T) -> T {
        change(self.0.lock().entry(uid.to_owned()).or_default())
    }

    pub(crate) fn launched(&self, uid: &str, instance: &str) {
        self.with(uid, |kept| {
            (kept.unseen, kept.refused) = (Some((instance.to_owned(), Instant::now())), None);
        });
    }

    /// What was seen once needs no memory.
    pub(crate) fn saw<'a>(&self, uid: &str, mut instances: impl Iterator<Item = &'a String>) {
        self.with(uid, |kept| {
            if let Some((unseen, _)) = &kept.unseen
                && instances.any(|id| id == unseen)
            {
                kept.unseen = None;
            }
        });
    }

    /// An instance that has to be seen before its absence is believed.
    pub(crate) fn unseen(&self, uid: &str) -> Option<String> {
        self.with(uid, |kept| {
            kept.unseen.take_if(|(_, since)| since.elapsed() >= SEEN_BY_THEN);
            kept.unseen.as_ref().map(|(id, _)| id.clone())
        })
    }

    /// A token gives an instance that has ended: the next one has to be another.
    pub(crate) fn is_spent(&self, uid: &str, by: &str) {
        self.with(uid, |kept| {
            kept.spent.insert(by.to_owned());
            kept.refused = None;
        });
    }

    /// A token was used for something else. When nothing is seen of that for long, it has ended.
    pub(crate) fn is_refused(&self, uid: &str) {
        self.with(uid, |kept| {
            if kept.refused.get_or_insert_with(Instant::now).elapsed() >= SEEN_BY_THEN {
                kept.spent.insert(format!("refused {}", kept.spent.len()));
                kept.refused = None;
            }
        });
    }

    pub(crate) fn spent(&self, uid: &str) -> BTreeSet<String> {
        self.with(uid, |kept| kept.spent.clone())
    }

    pub(crate) fn tell(&self, uid: &str, instance: String) {
        self.with(uid, |kept| kept.told.insert(instance));
    }

    pub(crate) fn told(&self, uid: &str) -> BTreeSet<String> {
        self.with(uid, |kept| kept.told.clone())
    }

    pub(crate) fn forget(&self, uid: &str) {
        self.0.lock().remove(uid);
    }
}

const SOONEST: Duration = Duration::from_millis(200);
const LATEST: Duration = Duration::from_secs(5);
/// Between two looks at an instance that starts, which takes seconds.
pub(crate) const INSTANCE: Duration = Duration::from_millis(1500);

impl Driver {
    pub(crate) fn new(client: Client, settings: Settings) -> Self {
        Self {
            client,
            settings,
            pace: Pace::default(),
            launches: Launches::default(),
            doubts: Doubts::default(),
            listings: Questions::default(),
            images: Questions::default(),
            subnets: Mutex::default(),
        }
    }
}

impl Pace {
    /// Something was changed.
    pub(crate) fn begin(&self, what: &str) {
        self.0.lock().insert(what.to_owned(), Instant::now());
    }

    /// There is nothing left to wait for.
    pub(crate) fn over(&self, what: &str) {
        self.0.lock().remove(what);
    }

    /// When to look again, `usual` at the latest at first.
    pub(crate) fn next(&self, what: &str, usual: Duration) -> Duration {
        let mut since = self.0.lock();
        let began = since.entry(what.to_owned()).or_insert_with(Instant::now);
        pause(began.elapsed(), usual)
    }
}

fn pause(passed: Duration, usual: Duration) -> Duration {
    let longest = (passed / 8).max(usual).min(LATEST);
    passed.clamp(SOONEST, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often something is looked at until it is so, and how late that is seen.
    fn looks(takes: f64, usual: Duration) -> (u32, f64) {
        let (mut at, mut looks) = (Duration::ZERO, 0);
        while at.as_secs_f64() < takes {
            at += pause(at, usual);
            looks += 1;
        }
        (looks, at.as_secs_f64() - takes)
    }

    #[test]
    fn looks_are_few_and_nobody_waits_long() {
        let (number, late) = looks(8.0, INSTANCE);
        assert!(number <= 9 && late <= 1.5, "an instance: {number} looks, {late} s late");
        let (number, late) = looks(120.0, LATEST);
        assert!(number <= 30 && late <= 5.0, "a load balancer: {number} looks, {late} s late");
        assert_eq!(pause(Duration::ZERO, LATEST), SOONEST);
        assert_eq!(pause(Duration::from_secs(3600), INSTANCE), LATEST);
    }
}
