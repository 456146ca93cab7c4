//! When something was first so, seen by a watch of the objects as any user could.

use crate::lives::CLUSTER;
use crate::site::{CONTROL_PLANES, Site};
use butler_api::names::load_balancer_name;
use butler_api::{
    CONDITION_TARGETS_SYNCED, LoadBalancerPhase, LoadBalancerRequest, MachineRequest, MachineRole,
    find_condition,
};
use futures::StreamExt;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;

#[derive(Default)]
struct Seen {
    addresses: BTreeSet<String>,
    last_address: Option<Instant>,
    endpoint: Option<Instant>,
    complete: Option<Instant>,
}

pub(crate) struct Moments(Arc<Mutex<Seen>>);

/// Seconds after the beginning.
pub(crate) struct Figures {
    /// The last control plane had an address.
    pub(crate) last_address: f64,
    /// The load balancer was Ready: its endpoint was told.
    pub(crate) endpoint: f64,
    /// And it had all control planes behind it.
    pub(crate) complete: f64,
}

pub(crate) fn follow(site: &Site) -> Moments {
    let seen: Arc<Mutex<Seen>> = Arc::default();
    watch(site.home.api::<MachineRequest>(), {
        let seen = seen.clone();
        move |machine| addressed(&mut seen.lock(), &machine)
    });
    watch(site.home.api::<LoadBalancerRequest>(), {
        let seen = seen.clone();
        move |request| balanced(&mut seen.lock(), &request)
    });
    Moments(seen)
}

fn watch<K>(api: Api<K>, mut look: impl FnMut(K) + Send + 'static)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    tokio::spawn(async move {
        let mut changes = watcher(api, watcher::Config::default()).applied_objects().boxed();
        while let Some(Ok(object)) = changes.next().await {
            look(object);
        }
    });
}

fn addressed(seen: &mut Seen, machine: &MachineRequest) {
    let address = machine.status.as_ref().and_then(|status| status.ip_address.clone());
    if machine.spec.role != MachineRole::ControlPlane || address.is_none_or(|address| address.is_empty()) {
        return;
    }
    if seen.addresses.insert(machine.name_any()) && seen.addresses.len() == CONTROL_PLANES {
        seen.last_address = Some(Instant::now());
    }
}

fn balanced(seen: &mut Seen, request: &LoadBalancerRequest) {
    let status = request.status.clone().unwrap_or_default();
    if request.name_any() != load_balancer_name(CLUSTER) || status.phase != Some(LoadBalancerPhase::Ready) {
        return;
    }
    seen.endpoint.get_or_insert_with(Instant::now);
    let synced = find_condition(&status.conditions, CONDITION_TARGETS_SYNCED)
        .is_some_and(|told| told.is_true() && told.observed_generation == request.metadata.generation);
    if synced && request.spec.targets.len() == CONTROL_PLANES {
        seen.complete.get_or_insert_with(Instant::now);
    }
}

impl Moments {
    /// All of them; a cluster that is Ready has passed them all.
    pub(crate) fn told(&self, began: Instant) -> Figures {
        let seen = self.0.lock();
        let after = |moment: Option<Instant>| moment.unwrap().duration_since(began).as_secs_f64();
        Figures {
            last_address: after(seen.last_address),
            endpoint: after(seen.endpoint),
            complete: after(seen.complete),
        }
    }
}
