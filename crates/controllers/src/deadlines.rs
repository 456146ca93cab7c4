//! Every limit of time in one place. Each milestone's deadline counts from the moment at which the one before it was
//! reached, or at which work began again.

use std::time::Duration;

/// How long each milestone may take before it is reported as failed, and how often what is done is looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Until the boot image is on the infrastructure.
    pub image: Duration,
    /// Until all machines are up and have an address.
    pub machines: Duration,
    /// Until a load balancer has all its parts.
    pub load_balancer: Duration,
    /// Until all machines have taken their config.
    pub talos: Duration,
    /// Until etcd runs on the first control plane.
    pub etcd: Duration,
    /// Until the Kubernetes API answers.
    pub kubernetes: Duration,
    /// Until all addons and nodes are ready, the endpoint answers, and etcd votes on every control plane.
    pub addons: Duration,
    /// Until everything is gone after a deletion.
    pub deletion: Duration,
    /// For one call to the new cluster's API, until its answer begins.
    pub call: Duration,
    /// How often things that are as they should be are looked at.
    pub resync: Duration,
    /// How often something is tried again that only a person can mend.
    pub slow_retry: Duration,
    /// The longest pause between two tries of something that mends itself.
    pub longest_retry: Duration,
    /// How long something that was asked for may not be seen, where an infrastructure's lists are behind: before that, what is to
    /// go is not believed to be absent.
    pub settling: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        Self {
            image: minutes(45),
            machines: minutes(30),
            load_balancer: minutes(15),
            talos: minutes(20),
            etcd: minutes(15),
            kubernetes: minutes(15),
            addons: minutes(45),
            deletion: minutes(30),
            call: Duration::from_secs(30),
            resync: Duration::from_secs(30),
            slow_retry: Duration::from_secs(30),
            longest_retry: Duration::from_secs(15),
            settling: Duration::from_secs(30),
        }
    }
}

/// Something that is as it should be is looked at so many times less often than what is not.
const CALM: u32 = 4;

impl Deadlines {
    /// How often something is looked at that was found as it should be, and that nothing is expected of.
    pub(crate) fn calm(&self) -> Duration {
        self.resync.saturating_mul(CALM)
    }
}

/// The pause before the next try after `failures` failures in a row: 100 ms, doubled each time.
pub(crate) fn backoff(failures: u32, longest: Duration) -> Duration {
    let doubled = 2u32.saturating_pow(failures.saturating_sub(1).min(20));
    Duration::from_millis(100).saturating_mul(doubled).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let longest = Duration::from_secs(5);
        let millis: Vec<u128> = (0..9).map(|failures| backoff(failures, longest).as_millis()).collect();
        assert_eq!(millis, [100, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(backoff(u32::MAX, longest), longest);
    }
}
