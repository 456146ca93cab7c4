//! Reads a LoadBalancerRequest and all that it refers to. Decides nothing.

use crate::error::ReconcileError;
use crate::external::{self, Memory, Outcome};
use crate::object::{self, Key};
use crate::runtime::Shared;
use crate::{Class, Deadlines, Failure, LoadBalancerFacts, Owner};
use crate::{owner, provider};
use butler_api::names::FINALIZER_LOAD_BALANCER_REQUEST;
use butler_api::{
    CONDITION_PROGRESSING, CONDITION_PROVISIONED, Condition, LoadBalancerRequest, LoadBalancerRequestStatus,
    Provider, find_condition,
};
use butler_drivers::Infrastructure;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::Api;

/// What is known of a load balancer.
#[derive(Debug, Clone)]
pub(crate) struct Observed {
    pub(crate) now: Timestamp,
    /// When this life of ours first saw the object.
    pub(crate) since: Timestamp,
    pub(crate) object: LoadBalancerRequest,
    pub(crate) owner: Owner,
    /// Its ClusterBootstrap is paused.
    pub(crate) paused: bool,
    /// What keeps the infrastructure from being asked at all.
    pub(crate) unusable: Option<Failure>,
    pub(crate) memory: Memory<LoadBalancerFacts>,
    /// What was asked for may not be seen for a while.
    pub(crate) lists_lag: bool,
    pub(crate) deadlines: Deadlines,
}

/// `None` when the object is gone.
pub(crate) async fn observe(
    shared: &Shared,
    api: &Api<LoadBalancerRequest>,
    name: &str,
) -> Result<Option<Observed>, ReconcileError> {
    let Some(object) = object::get(api, name).await? else { return Ok(None) };
    let namespace = object.namespace().unwrap_or_default();
    let client = &shared.context.client;
    let provided = provider::look(client, &object.spec.provider_config_ref, &namespace).await?;
    let (unusable, version) = shared.unusable(&provided, lacks);
    let now = (shared.context.clock)();
    let inputs = format!("{} {version}", object.metadata.generation.unwrap_or_default());
    let deleting = object.metadata.deletion_timestamp.is_some();
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let whole = find_condition(conditions, CONDITION_PROVISIONED).is_some_and(Condition::is_true);
    let memory = shared.balancers.change(&Key::of(&object), |memory| {
        // What an earlier life has seen counts until this one asks again.
        memory.whole |= memory.since.is_none() && whole;
        memory.look(now, inputs, deleting)
    });
    let whose = owner::of(shared, &object, Some(&object.spec.cluster_name)).await?;
    Ok(Some(Observed {
        now,
        since: memory.since.unwrap_or(now),
        owner: whose.owner,
        paused: whose.paused,
        unusable,
        memory,
        lists_lag: provider::lists_lag(&provided),
        deadlines: shared.context.deadlines,
        object,
    }))
}

fn lacks(infrastructure: &Infrastructure, provider: Provider) -> Option<Failure> {
    infrastructure.load_balancers.is_none().then(|| {
        Failure::new(
            Class::InvalidConfig,
            "LoadBalancersNotThere",
            format!("{provider} has no load balancers of its own"),
            "name a ProviderConfig of an infrastructure that has load balancers; elsewhere a control plane has a virtual IP",
        )
    })
}

impl Observed {
    pub(crate) fn deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    pub(crate) fn has_finalizer(&self) -> bool {
        self.object.finalizers().iter().any(|known| known == FINALIZER_LOAD_BALANCER_REQUEST)
    }

    fn status(&self) -> Option<&LoadBalancerRequestStatus> {
        self.object.status.as_ref()
    }

    fn told(&self, type_: &str) -> Option<&Condition> {
        find_condition(&self.status()?.conditions, type_)
    }

    /// Whether the infrastructure may have been asked for the load balancer: written down before the first time.
    pub(crate) fn requested(&self) -> bool {
        external::requested(self.status().map(|status| &status.conditions))
    }

    /// The newest that is known of it in this life.
    pub(crate) fn facts(&self) -> Option<&LoadBalancerFacts> {
        match &self.memory.last {
            Some(Outcome::Ready(facts)) => Some(facts),
            Some(Outcome::Working { known, .. }) => known.as_ref(),
            _ => None,
        }
    }

    /// Whether all of it was there once. Its endpoint may be known long before.
    pub(crate) fn was_ready(&self) -> bool {
        self.status().is_some_and(super::was_ready)
    }

    /// Whether it was told, about this very spec, that it takes too long.
    pub(crate) fn told_late(&self) -> bool {
        self.status().is_some_and(|status| {
            status.failure_reason.as_deref() == Some(super::plan::LATE)
                && status.observed_generation == self.object.metadata.generation
        })
    }

    /// When the work that is under way began: at the change to "it goes on", and never before this life of ours.
    pub(crate) fn began(&self) -> Timestamp {
        let told = self.told(CONDITION_PROGRESSING).filter(|condition| condition.is_true());
        told.map_or(self.now, |condition| condition.last_transition_time.0.max(self.since))
    }

    /// Until when its absence is not believed.
    pub(crate) fn unsettled(&self, now: Timestamp) -> Option<Timestamp> {
        self.memory.unsettled(now, self.lists_lag, self.deadlines.settling)
    }

    /// The operation that is under way.
    pub(crate) fn operation(&self) -> Option<String> {
        self.memory.operation(self.status().and_then(|status| status.operation.as_ref()))
    }
}
