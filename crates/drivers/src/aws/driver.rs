//! What machines, load balancers and the preflight share: the client, the settings, and a sense of time.

use super::client::Client;
use super::settings::Settings;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One region of AWS.
pub(crate) struct Driver {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) pace: Pace,
    /// Instances that this process launched, by the uid of their request, until they were seen to be gone.
    pub(crate) launched: Mutex<BTreeMap<String, String>>,
    /// Zone and VPC of subnets, which never change.
    pub(crate) subnets: Mutex<Vec<super::balancer::model::Subnet>>,
}

/// How soon it is worth to look again: a tenth of what has passed since the last change, so that AWS' quota of calls lasts and
/// nobody waits much longer than he must.
#[derive(Default)]
pub(crate) struct Pace(Mutex<BTreeMap<String, Instant>>);

const SOONEST: Duration = Duration::from_millis(200);
const LATEST: Duration = Duration::from_secs(5);

impl Driver {
    pub(crate) fn new(client: Client, settings: Settings) -> Self {
        Self {
            client,
            settings,
            pace: Pace::default(),
            launched: Mutex::default(),
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

    /// When to look again.
    pub(crate) fn next(&self, what: &str) -> Duration {
        let mut since = self.0.lock();
        let began = since.entry(what.to_owned()).or_insert_with(Instant::now);
        (began.elapsed() / 10).clamp(SOONEST, LATEST)
    }
}
