//! The infrastructure that an object refers to: its ProviderConfig, the credentials beside it, and the connection.

use crate::error::ReconcileError;
use crate::object;
use crate::{Class, Context, Failure, Profile};
use butler_api::{ProviderConfig, ProviderReference};
use butler_drivers::{Credentials, Infrastructure};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::Api;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

/// A ProviderConfig with its credentials.
#[derive(Clone)]
pub(crate) struct Provided {
    pub(crate) config: ProviderConfig,
    pub(crate) credentials: Credentials,
    /// As they are in the Secret.
    pub(crate) raw: BTreeMap<String, Vec<u8>>,
    /// Changes with either of the two objects.
    pub(crate) version: String,
}

/// A ProviderConfig with its credentials, or what is missing.
pub(crate) type ProviderSight = Result<Arc<Provided>, Failure>;

/// Connections that are kept, so that sessions and sockets are used again.
#[derive(Default)]
pub(crate) struct Connections {
    known: Mutex<HashMap<String, (String, Infrastructure)>>,
}

impl fmt::Debug for Provided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provided").field("version", &self.version).finish_non_exhaustive()
    }
}

/// Whether what was asked for there may not be seen for a while.
pub(crate) fn lists_lag(provided: &ProviderSight) -> bool {
    provided.as_ref().is_ok_and(|provided| Profile::of(provided.config.spec.provider).lists_lag)
}

/// Reads both objects.
pub(crate) async fn look(
    client: &kube::Client,
    reference: &ProviderReference,
    namespace: &str,
) -> Result<ProviderSight, ReconcileError> {
    let place = reference.namespace.as_deref().unwrap_or(namespace);
    let configs: Api<ProviderConfig> = Api::namespaced(client.clone(), place);
    let Some(config) = object::get(&configs, &reference.name).await? else {
        return Ok(Err(Failure::new(
            Class::InvalidConfig,
            "ProviderConfigNotFound",
            format!("there is no ProviderConfig {place}/{}", reference.name),
            "create it, or name another one in providerRef",
        )));
    };
    let secret_ref = &config.spec.credentials_ref;
    let secret_place = secret_ref.namespace.as_deref().unwrap_or(place);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), secret_place);
    let Some(secret) = object::get(&secrets, &secret_ref.name).await? else {
        return Ok(Err(Failure::new(
            Class::Auth,
            "CredentialsNotFound",
            format!(
                "there is no Secret {secret_place}/{} with the credentials of ProviderConfig {place}/{}",
                secret_ref.name, reference.name
            ),
            "create the Secret, or name another one in credentialsRef",
        )));
    };
    Ok(Ok(Arc::new(provided(config, &secret))))
}

fn provided(config: ProviderConfig, secret: &Secret) -> Provided {
    let raw: BTreeMap<String, Vec<u8>> =
        secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect();
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).trim_end_matches('\n').to_owned();
    let mut keys: BTreeMap<String, String> =
        raw.iter().map(|(key, value)| (key.clone(), text(value))).collect();
    // A reference may name the one key that holds everything, under whatever name.
    if let Some(key) = &config.spec.credentials_ref.key
        && let Some(value) = keys.get(key).cloned()
    {
        keys.entry("kubeconfig".to_owned()).or_insert(value);
    }
    let version = format!(
        "{}:{} {}:{}",
        config.uid().unwrap_or_default(),
        config.metadata.generation.unwrap_or_default(),
        secret.uid().unwrap_or_default(),
        secret.resource_version().unwrap_or_default(),
    );
    Provided { config, credentials: Credentials(keys), raw, version }
}

impl Connections {
    /// The connection to an infrastructure; makes no call.
    pub(crate) fn connect(&self, context: &Context, provided: &Provided) -> Result<Infrastructure, Failure> {
        let uid = provided.config.uid().unwrap_or_default();
        let known = self.known.lock().get(&uid).cloned();
        if let Some((version, infrastructure)) = known
            && version == provided.version
        {
            return Ok(infrastructure);
        }
        let made = context.infrastructures.connect(&provided.config.spec, &provided.credentials)?;
        self.known.lock().insert(uid, (provided.version.clone(), made.clone()));
        Ok(made)
    }
}
