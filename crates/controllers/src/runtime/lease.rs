//! A Lease per ClusterBootstrap, so that two runs of the controllers never work on the same one.

use crate::error::{RunError, is_absent, is_conflict};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// How long a Lease counts after it was last renewed.
const LIFE: Duration = Duration::from_secs(30);
/// How often somebody may come in between before it is given up.
const TRIES: usize = 5;

/// A Lease that is held.
pub(crate) struct Claim {
    api: Api<Lease>,
    name: String,
    holder: String,
    clock: crate::Clock,
}

impl Claim {
    /// Takes the Lease of a ClusterBootstrap, unless somebody else holds it.
    pub(crate) async fn take(
        client: &kube::Client,
        namespace: &str,
        cluster: &str,
        holder: &str,
        clock: crate::Clock,
    ) -> Result<Claim, RunError> {
        let claim = Claim {
            api: Api::namespaced(client.clone(), namespace),
            name: format!("butler-{cluster}"),
            holder: holder.to_owned(),
            clock,
        };
        for _ in 0..TRIES {
            if claim.write(true).await? {
                return Ok(claim);
            }
        }
        Err(RunError::LeaseContested { name: claim.name })
    }

    /// Renews it until `end`; what keeps it from being renewed comes back at once.
    pub(crate) async fn keep(&self, end: &CancellationToken) -> Result<(), RunError> {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = end.cancelled() => return Ok(()),
                () = sleep(LIFE / 3) => {}
            }
            match self.write(true).await {
                Ok(true) => renewed = Instant::now(),
                Ok(false) => {}
                Err(error @ RunError::Held { .. }) => return Err(error),
                // Our own API may be away for a moment; nobody else can take it meanwhile.
                Err(error) if renewed.elapsed() > LIFE => return Err(error),
                Err(error) => tracing::warn!(%error, lease = self.name, "will be renewed again"),
            }
        }
    }

    /// Lets others have it at once.
    pub(crate) async fn release(&self) {
        if let Err(error) = self.write(false).await {
            tracing::warn!(%error, lease = self.name, "could not be released, and ends by itself");
        }
    }

    /// Writes the Lease as held or as free; `false` when somebody wrote it in between.
    async fn write(&self, held: bool) -> Result<bool, RunError> {
        let now = (self.clock)();
        let known = self.api.get_opt(&self.name).await.map_err(|source| self.failed(source))?;
        let old = known.as_ref().and_then(|lease| lease.spec.clone());
        if let Some((holder, until)) = old.as_ref().and_then(|spec| other(spec, &self.holder, now)) {
            return Err(RunError::Held { name: self.name.clone(), holder, until });
        }
        let spec = self.spec(old, held, now);
        let params = PostParams::default();
        let done = match known {
            Some(lease) => self.api.replace(&self.name, &params, &Lease { spec: Some(spec), ..lease }).await,
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                self.api.create(&params, &Lease { metadata, spec: Some(spec) }).await
            }
        };
        match done {
            Ok(_) => Ok(true),
            Err(error) if is_conflict(&error) || is_absent(&error) => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn spec(&self, old: Option<LeaseSpec>, held: bool, now: Timestamp) -> LeaseSpec {
        let old = old.unwrap_or_default();
        let ours = old.holder_identity.as_deref() == Some(&self.holder);
        LeaseSpec {
            holder_identity: held.then(|| self.holder.clone()),
            acquire_time: old.acquire_time.clone().filter(|_| ours).or(Some(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            lease_duration_seconds: i32::try_from(LIFE.as_secs()).ok(),
            ..old
        }
    }

    fn failed(&self, source: kube::Error) -> RunError {
        RunError::Lease { name: self.name.clone(), source: Box::new(source) }
    }
}

/// Who else holds a Lease, and until when.
fn other(spec: &LeaseSpec, own: &str, now: Timestamp) -> Option<(String, Timestamp)> {
    let holder = spec.holder_identity.clone().filter(|holder| !holder.is_empty() && holder != own)?;
    let life =
        Duration::from_secs(spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(0));
    let until = spec.renew_time.as_ref()?.0.checked_add(life).ok()?;
    (until > now).then_some((holder, until))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_keeps_others_out_while_it_lives() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let spec = |holder: &str| LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Some(MicroTime(at(100))),
            lease_duration_seconds: Some(30),
            ..LeaseSpec::default()
        };
        assert_eq!(other(&spec("them"), "us", at(129)), Some(("them".to_owned(), at(130))));
        assert_eq!(other(&spec("them"), "us", at(130)), None, "it has run out");
        assert_eq!(other(&spec("us"), "us", at(101)), None);
        assert_eq!(other(&spec(""), "us", at(101)), None, "it was released");
        assert_eq!(other(&LeaseSpec::default(), "us", at(101)), None);
    }
}
