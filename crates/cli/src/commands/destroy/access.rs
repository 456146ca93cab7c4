//! The way to the infrastructure when a cluster is taken down: as it was stored, or as the user mends it.

use super::super::load::load;
use crate::config::{self, Need, Settings};
use crate::engine::{Home, Objects, Reach, put_credentials, put_inputs};
use crate::exit::{Ended, Exit};
use crate::output;
use crate::recorder::Redactor;
use anyhow::{Context as _, Result};
use butler_api::{ClusterBootstrap, LoadBalancerRequest, ProviderConfig, names};
use butler_drivers::{Class, Credentials, Failure, SharedRecorder};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use std::path::Path;

/// What is stored about the infrastructure of a cluster, and what the environment says instead.
pub(super) struct Access {
    config: ProviderConfig,
    stored: Credentials,
    environment: Option<Credentials>,
}

/// Takes settings and credentials of a bootstrap file in place of those that are stored.
pub(super) async fn replace(
    file: &Path,
    cluster: &str,
    home: &Home,
    objects: &Objects,
    reach: &mut Reach,
) -> Result<()> {
    let settings = load(Some(file), None, Need::Credentials, home)?;
    if settings.cluster() != cluster {
        // One that is set for all commands is not meant for this one.
        if std::env::var_os("BUTLER_CONFIG").is_some_and(|always| always == file.as_os_str()) {
            return Ok(());
        }
        let text = format!("{} is the file of {}, not of {cluster}", file.display(), settings.cluster());
        return Err(Ended::error(Exit::Usage, text));
    }
    put_inputs(&objects.client, &settings).await?;
    protection(&objects.client, &settings).await?;
    *reach = Reach { objects: reach.objects.take(), ..Reach::of(&settings) };
    match &objects.folder {
        Some(folder) => reach.keep(folder),
        None => Ok(()),
    }
}

/// A load balancer that is protected against deletion goes once the file says that it is not: nothing else can tell a controller
/// that is taking it down.
async fn protection(client: &Client, settings: &Settings) -> Result<()> {
    let api: Api<LoadBalancerRequest> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
    let name = names::load_balancer_name(settings.cluster());
    let Some(there) = api.get_opt(&name).await.context("cannot look for the load balancer")? else {
        return Ok(());
    };
    let balancer = settings.bootstrap.spec.control_plane_load_balancer.as_ref();
    let wanted =
        balancer.and_then(|balancer| balancer.options.as_ref()).is_some_and(|o| o.deletion_protection);
    if !wanted && there.spec.options.is_some_and(|options| options.deletion_protection) {
        let change = serde_json::json!({"spec": {"options": {"deletionProtection": false}}});
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&change))
            .await
            .with_context(|| format!("cannot change the LoadBalancerRequest {name}"))?;
    }
    Ok(())
}

impl Access {
    /// Reads what is stored. `None`: there is nothing, so nothing of it can be wrong.
    pub(super) async fn read(client: &Client, bootstrap: &ClusterBootstrap) -> Result<Option<Access>> {
        let configs: Api<ProviderConfig> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
        let config = configs.get_opt(&bootstrap.spec.provider_ref.name).await;
        let Some(config) = config.context("cannot read the ProviderConfig")? else { return Ok(None) };
        let secrets: Api<Secret> = Api::namespaced(client.clone(), names::SYSTEM_NAMESPACE);
        let secret = secrets.get_opt(&config.spec.credentials_ref.name).await;
        let data = secret.context("cannot read the credentials")?.and_then(|secret| secret.data);
        let values = data.unwrap_or_default().into_iter();
        let stored =
            values.filter_map(|(key, value)| Some((key, String::from_utf8(value.0).ok()?))).collect();
        let environment = config::from_environment(bootstrap.spec.provider);
        Ok(Some(Access { config, stored: Credentials(stored), environment }))
    }

    /// Knows all secrets of this.
    pub(super) fn redactor(&self, proxy: Option<&str>) -> Redactor {
        let environment = self.environment.iter().map(|credentials| Redactor::of(credentials, None));
        environment.fold(Redactor::of(&self.stored, proxy), Redactor::and)
    }

    /// Tries the credentials. When those that are stored are refused and the environment has others that are taken, those are
    /// stored; otherwise the refusal is said at once, since waiting would not help.
    pub(super) async fn check(
        &self,
        client: &Client,
        bootstrap: &ClusterBootstrap,
        reach: &Reach,
        recorder: &SharedRecorder,
    ) -> Result<()> {
        let uid = bootstrap.uid();
        let Some(refusal) = self.refusal(&self.stored, uid.as_deref(), reach, recorder).await else {
            return Ok(());
        };
        if let Some(others) = &self.environment {
            let mut credentials = self.stored.0.clone();
            credentials.retain(|key, _| key == "ca.crt");
            credentials.extend(others.0.clone());
            let credentials = Credentials(credentials);
            if self.refusal(&credentials, uid.as_deref(), reach, recorder).await.is_none() {
                let name = &self.config.spec.credentials_ref.name;
                put_credentials(client, name, &bootstrap.spec.cluster.name, &credentials).await?;
                output::note(
                    "the stored credentials are refused; those of the environment are taken, and stored",
                );
                return Ok(());
            }
        }
        let cluster = bootstrap.name_any();
        let text = format!(
            "{}: {}; nothing was touched. Give credentials that are taken, in the environment or with the bootstrap file: \
             butleradm destroy {cluster} --config FILE",
            refusal.reason, refusal.message
        );
        Err(Ended::error(Exit::Failed, text))
    }

    /// Why credentials are no good, if it is that. Whatever else is in the way, the controllers deal with.
    async fn refusal(
        &self,
        credentials: &Credentials,
        uid: Option<&str>,
        reach: &Reach,
        recorder: &SharedRecorder,
    ) -> Option<Failure> {
        let connection = reach.connection(recorder);
        match butler_drivers::connect(&self.config.spec, credentials, &connection) {
            Ok(infrastructure) => {
                let failure = infrastructure.machines.owned(uid).await.err()?;
                (failure.class == Class::Auth).then_some(failure)
            }
            Err(failure) => Some(failure),
        }
    }
}
