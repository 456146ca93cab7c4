//! What the kernel must allow us, said by name where it does not, and everything else given up.

use rustix::thread::{CapabilitySet, CapabilitySets};

/// What a load balancer needs, and what it needs it for.
const NEEDED: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::NET_ADMIN, "NET_ADMIN"),
    (CapabilitySet::NET_RAW, "NET_RAW"),
    (CapabilitySet::NET_BIND_SERVICE, "NET_BIND_SERVICE"),
];

/// Not needed, but kept where it is there: lets adverts leave in time on a busy machine.
const OPTIONAL: CapabilitySet = CapabilitySet::SYS_NICE;

/// A capability could not be read or given up.
#[derive(Debug, thiserror::Error)]
#[error("{operation} the capabilities of this process: {source}")]
pub struct CapabilityError {
    operation: &'static str,
    source: rustix::io::Errno,
}

/// The names of the capabilities that are needed to hold a virtual address (and to listen on low ports) and are not there.
pub fn missing_capabilities() -> Result<Vec<&'static str>, CapabilityError> {
    let have = current()?.effective;
    Ok(missing_from(have))
}

/// Gives up every capability but those that a load balancer needs, for good: also programs that this one started could
/// not get them back. Call it before threads are started: each thread has its own.
pub fn drop_other_capabilities() -> Result<(), CapabilityError> {
    let failed = |source| CapabilityError { operation: "drop", source };
    let sets = current()?;
    let kept = needed() | OPTIONAL;
    // Only with SETPCAP may the bound be narrowed; without it nothing beyond the bound was ours to begin with.
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(kept).iter() {
            match rustix::thread::remove_capability_from_bounding_set(capability) {
                // A kernel that is older than the newest capability.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }
    rustix::thread::set_no_new_privs(true).map_err(failed)?;
    let narrowed = CapabilitySets {
        effective: sets.effective & kept,
        permitted: sets.permitted & kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, narrowed).map_err(failed)
}

fn current() -> Result<CapabilitySets, CapabilityError> {
    rustix::thread::capabilities(None).map_err(|source| CapabilityError { operation: "read", source })
}

fn needed() -> CapabilitySet {
    NEEDED.iter().fold(CapabilitySet::empty(), |all, (capability, _)| all | *capability)
}

fn missing_from(have: CapabilitySet) -> Vec<&'static str> {
    NEEDED.iter().filter(|(capability, _)| !have.contains(*capability)).map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(missing_from(CapabilitySet::empty()), ["NET_ADMIN", "NET_RAW", "NET_BIND_SERVICE"]);
        assert_eq!(missing_from(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW), ["NET_BIND_SERVICE"]);
        assert!(missing_from(CapabilitySet::all()).is_empty());
    }

    #[test]
    fn a_thread_that_dropped_the_rest_keeps_only_what_is_needed() {
        // A thread of its own: capabilities are per thread, and the bounding set with them.
        let after = std::thread::spawn(|| {
            drop_other_capabilities().unwrap();
            (rustix::thread::capabilities(None).unwrap(), rustix::thread::no_new_privs().unwrap())
        })
        .join()
        .unwrap();
        assert!((needed() | OPTIONAL).contains(after.0.permitted));
        assert!(after.1);
    }
}
