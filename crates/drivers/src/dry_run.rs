//! A dry run: an infrastructure that makes no call, decides by the real plans, and writes down what they would change.

use crate::aws::recording::AwsRecording;
use crate::change::PlannedChange;
use crate::failure::{Class, Failure};
use crate::gcp::GcpRecording;
use crate::proxmox::recording::ProxmoxRecording;
use crate::seam::{
    Finding, Infrastructure, LoadBalancerFacts, LoadBalancerWanted, LoadBalancers, Operation, OwnedResource,
    Preflight, PreflightWanted, Progress, Verdict,
};
use async_trait::async_trait;
use butler_api::{Provider, ProviderConfigSpec};
use std::sync::Arc;

/// What a dry run has recorded. Clones are the same recording.
#[derive(Clone)]
pub struct Recording {
    recorded: Arc<dyn Recorded>,
    targets: usize,
}

/// An infrastructure that is only thought of.
pub(crate) trait Recorded: Send + Sync {
    /// The infrastructure to hand to controllers.
    fn infrastructure(self: Arc<Self>) -> Infrastructure;

    /// Every change so far, in the order in which it was planned.
    fn changes(&self) -> Vec<PlannedChange>;
}

/// The preflight of a dry run, which is none.
pub(crate) struct NothingAsked;

#[async_trait]
impl Preflight for NothingAsked {
    async fn check(&self, _wanted: &PreflightWanted) -> Vec<Finding> {
        vec![Finding {
            check: "everything".to_owned(),
            verdict: Verdict::Skip,
            detail: "a dry run makes no call".to_owned(),
            remedy: "run butleradm doctor".to_owned(),
        }]
    }
}

impl Recording {
    /// A recording for the infrastructure that a ProviderConfig describes, taken to be empty but for what the ProviderConfig
    /// names (a template, say).
    ///
    /// # Errors
    /// `InvalidConfig` when settings are missing or the infrastructure is not built yet.
    pub fn new(config: &ProviderConfigSpec) -> Result<Self, Failure> {
        let recorded: Arc<dyn Recorded> = match config.provider {
            Provider::Aws => Arc::new(AwsRecording::new(config)?),
            Provider::Gcp => Arc::new(GcpRecording::new(config)?),
            Provider::Proxmox => Arc::new(ProxmoxRecording::new(config)?),
            other => return Err(not_built(other)),
        };
        Ok(Self { recorded, targets: 0 })
    }

    /// Load balancers get their targets when there are so many. They come one by one and in any order, and two dry runs of
    /// the same thing should say the same.
    #[must_use]
    pub fn with_targets(self, targets: usize) -> Self {
        Self { targets, ..self }
    }

    /// The infrastructure to hand to controllers.
    pub fn infrastructure(&self) -> Infrastructure {
        let mut infrastructure = Arc::clone(&self.recorded).infrastructure();
        let targets = self.targets;
        infrastructure.load_balancers = infrastructure
            .load_balancers
            .map(|inner| Arc::new(AllAtOnce { inner, targets }) as Arc<dyn LoadBalancers>);
        infrastructure
    }

    /// Every change so far, in the order in which it was planned.
    pub fn changes(&self) -> Vec<PlannedChange> {
        self.recorded.changes()
    }
}

/// A model does everything at once, so a wait would never end.
pub(crate) fn stuck(what: &str) -> Failure {
    Failure::new(
        Class::Terminal,
        "DryRunStuck",
        format!("the dry run waits for {what}"),
        "report this as a bug",
    )
}

/// Load balancers that have no targets before they have all of them.
struct AllAtOnce {
    inner: Arc<dyn LoadBalancers>,
    targets: usize,
}

#[async_trait]
impl LoadBalancers for AllAtOnce {
    async fn ensure(
        &self,
        wanted: &LoadBalancerWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<LoadBalancerFacts>, Failure> {
        let mut wanted = wanted.clone();
        if wanted.spec.targets.len() < self.targets {
            wanted.spec.targets.clear();
        }
        self.inner.ensure(&wanted, operation).await
    }

    async fn delete(
        &self,
        wanted: &LoadBalancerWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        self.inner.delete(wanted, operation).await
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        self.inner.owned(cluster_uid).await
    }
}

/// The number in a machine's placeholders (addresses, ids). It follows from the name alone, as long as nobody has it: machines are
/// planned in any order.
pub(crate) fn placeholder(name: &str, taken: impl Fn(u8) -> bool) -> u8 {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let number: u64 = name[name.len() - digits..].parse().unwrap_or(0);
    let first = if name.contains("-cp-") { 1 } else { 101 };
    let first = u8::try_from(number % 100).unwrap_or(0) + first;
    (first..u8::MAX).chain(1..first).find(|number| !taken(*number)).unwrap_or(u8::MAX)
}

pub(crate) fn not_built(provider: Provider) -> Failure {
    Failure::new(
        Class::InvalidConfig,
        "ProviderNotBuilt",
        format!("the infrastructure {provider} is not built yet"),
        "use one that is: proxmox, gcp, aws",
    )
}

#[cfg(test)]
mod tests {
    use super::placeholder;

    #[test]
    fn placeholders_follow_from_names() {
        let free = |name| placeholder(name, |_| false);
        assert_eq!(["m-cp-0", "m-cp-2", "m-worker-0", "m-worker-12"].map(free), [1, 3, 101, 113]);
        assert_eq!(free("odd"), 101);
        assert_eq!(placeholder("m-cp-100", |taken| taken == 1), 2);
        assert_eq!(placeholder("m-worker-99", |taken| taken >= 200), 1);
        assert_eq!(placeholder("m-cp-0", |_| true), u8::MAX);
    }
}
