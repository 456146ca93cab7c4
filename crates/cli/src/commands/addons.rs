//! The addons of a bootstrap before there is a cluster: which have a source, which are stand-ins, and stand-ins as a bundle.

use crate::config::Settings;
use anyhow::{Context as _, Result};
use butler_api::names;
use butler_controllers::addons::{self, Bundle, Part, PlannedAddon, Site, Sources, StandIns};
use butler_drivers::Profile;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What to do about an addon without a source.
pub(super) const REMEDY: &str = "give a bundle of their manifests with --bundle (docs/bootstrap.md, Addons, says how to make one), or switch them off in the file";

/// Calls `f` with the site, as far as it is known before there are machines.
fn with_site<T>(settings: &Settings, f: impl FnOnce(&Site<'_>) -> T) -> T {
    let profile = Profile::of(settings.provider);
    let spec = &settings.bootstrap.spec;
    f(&Site {
        spec,
        name: settings.cluster(),
        namespace: names::SYSTEM_NAMESPACE,
        profile: &profile,
        endpoint: spec.network.vip.as_deref().unwrap_or_default(),
        provider_config: &settings.provider_config,
        credentials: &BTreeMap::new(),
        machines: &[],
        multi_tenancy: settings.butler_config.as_ref().map(|config| config.spec.multi_tenancy.mode),
    })
}

/// Addons that are to be installed and that a test holds for, by name.
fn those(settings: &Settings, test: impl Fn(&Part) -> bool) -> Vec<PlannedAddon> {
    with_site(settings, |site| {
        let planned = addons::plan(site).into_iter().filter(|addon| addon.skipped.is_none());
        planned.filter(|addon| addons::parts(addon.name, site).iter().any(&test)).collect()
    })
}

/// Addons that are to be installed and have no source, with their versions.
pub(super) fn missing(settings: &Settings, sources: &dyn Sources) -> Vec<String> {
    let missing = those(settings, |part| sources.objects(part).is_err());
    missing.iter().map(|addon| format!("{} {}", addon.name, addon.version)).collect()
}

/// Addons that are not themselves.
pub(super) fn stand_ins(settings: &Settings, sources: &dyn Sources) -> Vec<String> {
    let stand_ins = those(settings, |part| sources.describe(part).starts_with("STAND-IN"));
    stand_ins.iter().map(|addon| addon.name.to_owned()).collect()
}

/// A bundle of stand-ins for everything that needs a source, as a file.
pub(super) fn stand_in_bundle(settings: &Settings) -> Result<String> {
    let parts = with_site(settings, |site| {
        let planned = addons::plan(site).into_iter().filter(|addon| addon.skipped.is_none());
        planned.flat_map(|addon| addons::parts(addon.name, site)).collect::<Vec<_>>()
    });
    let mut entries: Vec<Value> = Vec::new();
    for part in parts {
        let objects = StandIns.objects(&part).map_err(super::failure)?;
        let known =
            entries.iter().any(|entry| entry["addon"] == part.addon && entry["version"] == part.version);
        if !known {
            entries.push(json!({"addon": part.addon, "version": part.version, "standIn": true,
                "sha256": Bundle::digest(&objects), "objects": objects}));
        }
    }
    let bundle = json!({"apiVersion": format!("{}/{}", names::GROUP, names::VERSION), "kind": "AddonBundle", "entries": entries});
    serde_saphyr::to_string(&bundle).context("cannot write the bundle as YAML")
}
