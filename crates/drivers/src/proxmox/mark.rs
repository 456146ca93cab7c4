//! Whose a virtual machine is: tags for looking, full ids in its description for deciding.
//!
//! A clone has its description before it has tags, and tags are short, so only the description counts as proof.

use crate::seam::Owner;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The mark in a description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Mark {
    pub(crate) cluster: String,
    #[serde(rename = "clusterUID")]
    pub(crate) cluster_uid: String,
    #[serde(rename = "objectUID")]
    pub(crate) object_uid: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
}

/// The line that carries it.
#[derive(Serialize, Deserialize)]
struct Line {
    butler: Mark,
}

impl Mark {
    pub(crate) fn new(owner: &Owner, labels: &BTreeMap<String, String>) -> Self {
        Self {
            cluster: owner.cluster.clone(),
            cluster_uid: owner.cluster_uid.clone(),
            object_uid: owner.object_uid.clone(),
            labels: labels.clone(),
        }
    }

    /// A description that carries the mark.
    pub(crate) fn describe(&self) -> String {
        let line = serde_json::to_string(&Line { butler: self.clone() }).unwrap_or_default();
        format!(
            "Made by Butler for the cluster {}. The next line says whose it is: leave it.\n{line}",
            self.cluster
        )
    }

    /// The mark in a description, if it has one.
    pub(crate) fn read(description: &str) -> Option<Self> {
        description
            .lines()
            .filter(|line| line.trim_start().starts_with('{'))
            .find_map(|line| serde_json::from_str::<Line>(line.trim()).ok())
            .map(|line| line.butler)
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner {
            cluster: self.cluster.clone(),
            cluster_uid: self.cluster_uid.clone(),
            object_uid: self.object_uid.clone(),
        }
    }

    /// Whether it is the mark of that owner.
    pub(crate) fn is_of(&self, owner: &Owner) -> bool {
        self.cluster_uid == owner.cluster_uid && self.object_uid == owner.object_uid
    }
}

/// Tags of an owner's machines: ours, the cluster's, the machine's.
pub(crate) fn tags(owner: &Owner) -> BTreeSet<String> {
    [OURS.to_owned(), tag(&owner.cluster_uid), tag(&owner.object_uid)].into()
}

/// The tag that everything of ours carries.
pub(crate) const OURS: &str = "butler";

/// The tag of a uid.
pub(crate) fn tag(uid: &str) -> String {
    let short: String = uid.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("butler-{}", short.to_ascii_lowercase())
}

/// Tags as Proxmox writes them: separated by `;`, and by `,` or a space in older configurations.
pub(crate) fn split_tags(text: &str) -> BTreeSet<String> {
    text.split([';', ',', ' ']).filter(|tag| !tag.is_empty()).map(str::to_ascii_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_a_description_with_other_words() {
        let owner = Owner { cluster: "mgmt".into(), cluster_uid: "c-1".into(), object_uid: "o-1".into() };
        let mark = Mark::new(&owner, &BTreeMap::from([("role".to_owned(), "worker".to_owned())]));
        let text = format!("seen by the night shift\n{}\n\n", mark.describe());
        assert_eq!(Mark::read(&text), Some(mark.clone()));
        assert!(mark.is_of(&owner) && mark.owner() == owner);
        assert_eq!(Mark::read("{\"butler\": 1}\nmade by hand"), None);
    }

    #[test]
    fn tags_are_what_proxmox_allows() {
        let owner = Owner {
            cluster: "mgmt".into(),
            cluster_uid: "0F8FAD5B-D9CB-469F-A165-70867728950E".into(),
            object_uid: "7c9e6679-7425-40de-944b-e07fc1f90ae7".into(),
        };
        assert_eq!(split_tags("butler,butler-7c9e6679 butler-0f8fad5b"), tags(&owner));
    }
}
