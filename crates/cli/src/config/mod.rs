//! The bootstrap file: from its text to the objects of a bootstrap, or to everything that is wrong with it.
//!
//! ```text
//!   text --document--> tree with places --schema--> unknown keys, types, limits
//!                          |                             |
//!                          +--- environment BUTLER_* --->+--objects--> ClusterBootstrap, ProviderConfig, ButlerConfig
//!                          +--- credentials (env, files, fields) ----> Secret          |
//!                                                        problems of objects <---------+  led back to lines of the file
//! ```
//!
//! Nothing here talks to anybody; files beside the bootstrap file are read through [`Surroundings`].

mod check;
#[cfg(test)]
mod cloud_tests;
mod credentials;
mod environment;
mod objects;
mod own_rules;
mod places;
#[cfg(test)]
mod reference;
mod schema;
#[cfg(test)]
mod tests;

pub(crate) use check::check;
pub(crate) use credentials::from_environment;
pub(crate) use schema::Schemas;

use crate::validate::{self, Finding};
use anyhow::{Result, anyhow};
use butler_api::{ButlerConfig, ClusterBootstrap, Provider, ProviderConfig};
use butler_drivers::Credentials;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A bootstrap, as its file and its surroundings describe it. Holds credentials, so it can't be printed.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) provider: Provider,
    pub(crate) bootstrap: ClusterBootstrap,
    pub(crate) provider_config: ProviderConfig,
    /// There when the file names an image factory or a tenancy mode.
    pub(crate) butler_config: Option<ButlerConfig>,
    pub(crate) credentials: Credentials,
    /// How everything is reached, when not directly.
    pub(crate) proxy: Option<String>,
    pub(crate) host_aliases: BTreeMap<String, IpAddr>,
}

/// Whether a bootstrap can do without credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// It talks to the infrastructure.
    Credentials,
    /// It only plans; what is missing is a warning.
    NoCredentials,
    /// It rehearses, and the simulated data centre takes whatever there is.
    AnyCredentials,
}

/// What a file is read among: variables and other files.
pub(crate) struct Surroundings {
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) home: PathBuf,
    /// Paths in the file are relative to it.
    pub(crate) folder: PathBuf,
}

/// A file that was checked.
pub(crate) struct Checked {
    /// There unless something is wrong.
    pub(crate) settings: Option<Settings>,
    pub(crate) findings: Vec<Finding>,
}

impl Settings {
    /// Name of the cluster.
    pub(crate) fn cluster(&self) -> &str {
        &self.bootstrap.spec.cluster.name
    }

    /// Whether the bootstrap is going to bring an image: by the rules of the ClusterBootstrap's controller.
    pub(crate) fn brings_image(&self) -> bool {
        let factory = self.butler_config.as_ref().and_then(|config| config.spec.image_factory.as_ref());
        let schematic = &self.bootstrap.spec.talos.schematic;
        factory.is_some_and(|factory| !factory.url.is_empty() && factory.auto_sync && !schematic.is_empty())
    }

    /// Name of the Secret with the credentials.
    pub(crate) fn credentials_name(&self) -> &str {
        &self.provider_config.spec.credentials_ref.name
    }
}

impl Surroundings {
    /// Those of this process, for a file.
    pub(crate) fn of(file: &Path) -> Surroundings {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        Surroundings {
            variables: std::env::vars_os()
                .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
                .collect(),
            home: home(),
            folder: folder.unwrap_or(Path::new(".")).to_owned(),
        }
    }

    /// A variable, unless it is empty.
    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).filter(|value| !value.is_empty()).cloned()
    }

    /// A path as the user means it: `~` is the home, everything else is relative to the bootstrap file.
    fn path(&self, path: &Path) -> PathBuf {
        match path.strip_prefix("~") {
            Ok(rest) => self.home.join(rest),
            Err(_) => self.folder.join(path),
        }
    }

    fn read(&self, path: &Path, failed: &mut dyn FnMut(String)) -> Option<String> {
        let whole = self.path(path);
        match validate::read(&whole.to_string_lossy()) {
            Ok(text) => Some(text),
            Err(why) => {
                failed(format!("{:?}: cannot read it: {why}", whole.display().to_string()));
                None
            }
        }
    }

    fn is_there(&self, path: &Path) -> bool {
        self.path(path).exists()
    }

    fn mode(&self, path: &Path) -> Option<u32> {
        std::fs::metadata(self.path(path)).ok().map(|about| about.permissions().mode() & 0o7777)
    }
}

/// The user's home, or the current folder when there is none.
pub(crate) fn home() -> PathBuf {
    std::env::home_dir().filter(|home| !home.as_os_str().is_empty()).unwrap_or_else(|| PathBuf::from("."))
}

/// The bootstrap file: as named, else the first of the usual places.
pub(crate) fn locate(named: Option<&Path>, butler_home: &Path) -> Result<PathBuf> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let usual = [PathBuf::from("bootstrap.yaml"), butler_home.join("bootstrap.yaml")];
    usual.iter().find(|path| path.exists()).cloned().ok_or_else(|| {
        anyhow!(
            "there is no bootstrap file: neither ./bootstrap.yaml nor {}. Name one with --config",
            usual[1].display()
        )
    })
}
