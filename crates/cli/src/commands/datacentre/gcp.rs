//! The project of Google Cloud that a bootstrap file describes.

use crate::config::Settings;
use crate::exit::{Ended, Exit};
use crate::talos::files;
use anyhow::{Context as _, Result};
use butler_api::GcpConfig;
use butler_sim::gce::{GceNames, GceSite};
use std::path::Path;

/// Key of the credentials.
const KEY: &str = "serviceAccountKey";
/// A name in place of a file: the metadata server, which a rehearsal has no way to.
const METADATA: &str = "metadata";

/// The site, and its key where the user has none.
pub(super) fn site(settings: &mut Settings, gcp: &GcpConfig) -> Result<GceSite> {
    let theirs = settings.credentials.get(KEY).filter(|key| key.trim() != METADATA).map(ToOwned::to_owned);
    let mut site = GceSite::for_config(&names(settings, gcp, theirs));
    if site.accounts.iter().all(|account| account.public_key.is_empty() && account.refresh_token.is_none()) {
        // What the user has is no key that anybody could use; a rehearsal takes whatever there is.
        site = GceSite::for_config(&names(settings, gcp, None));
    }
    let key = site.service_account_key().map(ToOwned::to_owned);
    let key = key.ok_or_else(|| Ended::error(Exit::General, "no key could be made for the rehearsal"))?;
    settings.credentials.0.insert(KEY.to_owned(), key);
    Ok(site)
}

fn names(settings: &Settings, gcp: &GcpConfig, key: Option<String>) -> GceNames {
    let spec = &settings.bootstrap.spec;
    let options = spec.control_plane_load_balancer.as_ref().and_then(|balancer| balancer.options.as_ref());
    GceNames {
        project: gcp.project_id.clone(),
        region: gcp.region.clone(),
        zones: gcp.zones.iter().chain(gcp.zone.iter()).cloned().collect(),
        network: gcp.network.clone(),
        subnetwork: gcp.subnetwork.clone(),
        image_project: gcp.image_project.clone(),
        image: gcp.image.clone(),
        image_family: gcp.image_family.clone(),
        talos_version: Some(spec.talos.version.clone()),
        service_account: gcp.service_account.clone(),
        key,
        // Whoever wants nothing public has a way into the network.
        vpn: !gcp.external_address || options.is_some_and(|options| options.internal),
        ..GceNames::default()
    }
}

/// Writes the key to a file, and says what to export.
pub(super) fn exports(settings: &Settings, path: &Path) -> Result<String> {
    let key = settings.credentials.get(KEY).unwrap_or_default();
    files::write_one(path, key, true).with_context(|| format!("cannot write {}", path.display()))?;
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok(format!("export GOOGLE_APPLICATION_CREDENTIALS={}", path.display()))
}
