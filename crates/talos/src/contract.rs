//! Which Talos a config is for.
//!
//! The config format changes with the minor version only. A [`Contract`] is one such minor: what it emits, which documents
//! it knows, which Kubernetes it runs. A minor that is not in the table is refused by name, because a config that is
//! nearly right fails on the node, late and badly explained.

use std::fmt;
use std::str::FromStr;

/// A Talos version such as `v1.9.2` or `v1.13.0-beta.1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TalosVersion {
    contract: Contract,
    patch: u32,
    /// With its dash, or empty.
    suffix: String,
}

/// A Kubernetes version such as `1.32.3`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KubernetesVersion {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
    suffix: String,
}

/// The config format of one Talos minor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Contract {
    V1_9,
    V1_10,
    V1_11,
    V1_12,
    V1_13,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    #[error("{text:?} is not a {what} version: it has the form {form}")]
    NotAVersion { what: &'static str, text: String, form: &'static str },
    #[error(
        "Talos {major}.{minor} is not supported: its config format is not known here (supported: 1.9 to 1.13)"
    )]
    UnknownMinor { major: u32, minor: u32 },
}

// === impl Contract ===

impl Contract {
    pub const ALL: [Contract; 5] = [Self::V1_9, Self::V1_10, Self::V1_11, Self::V1_12, Self::V1_13];
    /// What `talos gen` writes when it is not told a version.
    pub const LATEST: Contract = Self::V1_13;

    /// From `v1.9.2`, `1.9.2`, `v1.9` or `1.9`.
    pub fn parse(version: &str) -> Result<Contract, VersionError> {
        let (major, minor, _, _) = numbers(version).ok_or_else(|| not_talos(version))?;
        Self::ALL
            .into_iter()
            .find(|contract| major == 1 && contract.minor() == minor)
            .ok_or(VersionError::UnknownMinor { major, minor })
    }

    pub fn minor(self) -> u32 {
        match self {
            Self::V1_9 => 9,
            Self::V1_10 => 10,
            Self::V1_11 => 11,
            Self::V1_12 => 12,
            Self::V1_13 => 13,
        }
    }

    /// The release of this minor that is used when only the minor is named.
    pub fn default_talos(self) -> TalosVersion {
        let patch = match self {
            Self::V1_9 => 5,
            Self::V1_10 => 6,
            Self::V1_11 => 6,
            Self::V1_12 => 7,
            Self::V1_13 => 9,
        };
        TalosVersion { contract: self, patch, suffix: String::new() }
    }

    /// The Kubernetes that this minor brings by itself.
    pub fn default_kubernetes(self) -> KubernetesVersion {
        let (minor, patch) = match self {
            Self::V1_9 => (32, 3),
            Self::V1_10 => (33, 3),
            Self::V1_11 => (34, 1),
            Self::V1_12 => (35, 4),
            Self::V1_13 => (36, 3),
        };
        KubernetesVersion { major: 1, minor, patch, suffix: String::new() }
    }

    /// The Kubernetes minors that run on it, first and last.
    pub fn kubernetes_minors(self) -> (u32, u32) {
        match self {
            Self::V1_9 => (27, 32),
            Self::V1_10 => (28, 33),
            Self::V1_11 => (29, 34),
            Self::V1_12 => (30, 35),
            Self::V1_13 => (31, 36),
        }
    }

    pub fn supports(self, kubernetes: &KubernetesVersion) -> bool {
        let (first, last) = self.kubernetes_minors();
        kubernetes.major == 1 && (first..=last).contains(&kubernetes.minor)
    }

    /// Disks that are not the system's are documents (`UserVolumeConfig`) instead of `machine.disks`.
    pub fn has_user_volumes(self) -> bool {
        self >= Self::V1_10
    }

    /// Host name, links, addresses, time servers, registries and the VIP are documents of their own.
    pub fn has_network_documents(self) -> bool {
        self >= Self::V1_12
    }

    /// `machine.network` is no longer emitted when it is empty.
    pub(crate) fn drops_empty_network(self) -> bool {
        self >= Self::V1_13
    }

    pub(crate) fn from_minor(minor: u32) -> Option<Contract> {
        Self::ALL.into_iter().find(|contract| contract.minor() == minor)
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor())
    }
}

impl FromStr for Contract {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Contract, VersionError> {
        Contract::parse(text)
    }
}

// === impl TalosVersion ===

impl TalosVersion {
    /// From `v1.9.2` or `1.9.2`; `1.9` stands for that minor's newest release known here.
    pub fn parse(text: &str) -> Result<TalosVersion, VersionError> {
        let contract = Contract::parse(text)?;
        match numbers(text) {
            Some((_, _, Some(patch), suffix)) => Ok(TalosVersion { contract, patch, suffix }),
            Some((_, _, None, suffix)) if suffix.is_empty() => Ok(contract.default_talos()),
            _ => Err(not_talos(text)),
        }
    }

    pub fn contract(&self) -> Contract {
        self.contract
    }
}

impl fmt::Display for TalosVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}.{}{}", self.contract, self.patch, self.suffix)
    }
}

impl FromStr for TalosVersion {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<TalosVersion, VersionError> {
        TalosVersion::parse(text)
    }
}

// === impl KubernetesVersion ===

impl KubernetesVersion {
    /// From `1.32.3` or `v1.32.3`.
    pub fn parse(text: &str) -> Result<KubernetesVersion, VersionError> {
        match numbers(text) {
            Some((major, minor, Some(patch), suffix)) => {
                Ok(KubernetesVersion { major, minor, patch, suffix })
            }
            _ => Err(VersionError::NotAVersion { what: "Kubernetes", text: text.into(), form: "1.32.3" }),
        }
    }

    /// From the tag of an image such as `registry.k8s.io/kube-apiserver:v1.32.3`, with or without a digest after it.
    pub(crate) fn of_image(image: &str) -> Option<KubernetesVersion> {
        let (_, tag) = image.rsplit_once(":v")?;
        KubernetesVersion::parse(tag.split('@').next().unwrap_or(tag)).ok()
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}{}", self.major, self.minor, self.patch, self.suffix)
    }
}

impl FromStr for KubernetesVersion {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<KubernetesVersion, VersionError> {
        KubernetesVersion::parse(text)
    }
}

fn not_talos(text: &str) -> VersionError {
    VersionError::NotAVersion { what: "Talos", text: text.into(), form: "v1.9.2" }
}

/// Major, minor, patch if there is one, and what follows a dash or a plus (with it).
fn numbers(text: &str) -> Option<(u32, u32, Option<u32>, String)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (core, suffix) = text.split_at(end);
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+');
    if suffix.len() == 1 || !suffix.chars().all(good) {
        return None;
    }
    let mut parts = core.split('.').map(|part| {
        // `+1` and `01` are no version numbers.
        let plain = part.chars().all(|c| c.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
        plain.then(|| part.parse::<u32>().ok()).flatten()
    });
    let (major, minor) = (parts.next()??, parts.next()??);
    let patch = match parts.next() {
        None => None,
        Some(part) => Some(part?),
    };
    parts.next().is_none().then(|| (major, minor, patch, suffix.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        for (text, shown) in [
            ("v1.9.2", "v1.9.2"),
            ("1.13.0", "v1.13.0"),
            ("v1.12.0-beta.1", "v1.12.0-beta.1"),
            ("1.10", "v1.10.6"),
        ] {
            assert_eq!(TalosVersion::parse(text).unwrap().to_string(), shown);
        }
        assert_eq!(KubernetesVersion::parse("v1.32.3").unwrap().to_string(), "1.32.3");
        for bad in
            ["", "v", "1", "one.two", "1.9.", "1.9.2.3", "1.09.1", "1.9.2-", "1.9-rc", "1.9.+2", "1.9.2-ü"]
        {
            assert!(TalosVersion::parse(bad).is_err(), "{bad:?}");
            assert!(KubernetesVersion::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_unknown_minor_is_refused_by_name() {
        for (text, name) in [("v1.8.4", "1.8"), ("v1.14.0", "1.14"), ("2.9.0", "2.9")] {
            let error = Contract::parse(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("Talos {name} is not supported")), "{error}");
        }
    }

    #[test]
    fn each_minor_runs_its_own_default_and_not_the_next() {
        for contract in Contract::ALL {
            let own = contract.default_kubernetes();
            assert!(contract.supports(&own), "{contract}");
            assert_eq!(own.minor, contract.kubernetes_minors().1);
            assert!(!contract.supports(&KubernetesVersion { minor: own.minor + 1, ..own }));
            assert_eq!(Contract::from_minor(contract.minor()), Some(contract));
        }
    }

    #[test]
    fn a_version_is_found_in_an_image() {
        let version = |image| KubernetesVersion::of_image(image).map(|v| v.to_string());
        assert_eq!(version("registry.k8s.io/kube-apiserver:v1.32.3"), Some("1.32.3".into()));
        assert_eq!(version("host:5000/kubelet:v1.32.3@sha256:0123"), Some("1.32.3".into()));
        assert_eq!(version("host:5000/kubelet@sha256:0123"), None);
        assert_eq!(version("kubelet:latest"), None);
    }
}
