//! Whose a resource is, written into its description: full ids, for deciding. Used where an infrastructure's tags are too
//! short for ids, or come too late.

use crate::seam::Owner;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
}
