//! Whose a resource is: tags that are there from its creation. Both uids decide; the rest is for people and other tools.

use super::client::{Params, param};
use super::xml::Element;
use crate::seam::Owner;
use butler_api::names;
use std::collections::BTreeMap;

/// Tags of a resource.
pub(crate) type Tags = BTreeMap<String, String>;

/// The uid of the ClusterBootstrap.
pub(crate) const CLUSTER_UID: &str = "butler.butlerlabs.dev/cluster-uid";
/// The uid of the object that asked for it.
pub(crate) const OBJECT_UID: &str = "butler.butlerlabs.dev/object-uid";
/// On a target group: a target that we registered, and its address. Targets have no tags of their own.
pub(crate) const TARGET: &str = "butler.butlerlabs.dev/target/";

/// AWS takes no more than 50; these leave room for those that others add.
const MOST_LABELS: usize = 30;

/// The tags of something of ours.
pub(crate) fn ours(owner: &Owner, name: &str, labels: &BTreeMap<String, String>) -> Tags {
    let legal = |text: &str| text.chars().all(|c| c.is_alphanumeric() || " +-=._:/@".contains(c));
    let mut tags: Tags = labels
        .iter()
        .filter(|(key, value)| {
            !key.starts_with("aws:") && key.len() <= 128 && value.len() <= 256 && legal(key) && legal(value)
        })
        .take(MOST_LABELS)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    tags.extend([
        ("Name".to_owned(), name.to_owned()),
        (names::LABEL_MANAGED_BY.to_owned(), names::MANAGED_BY.to_owned()),
        (names::LABEL_CLUSTER.to_owned(), owner.cluster.clone()),
        (CLUSTER_UID.to_owned(), owner.cluster_uid.clone()),
        (OBJECT_UID.to_owned(), owner.object_uid.clone()),
    ]);
    tags
}

/// Whether tags say that something is an owner's.
pub(crate) fn is_of(tags: &Tags, owner: &Owner) -> bool {
    tags.get(CLUSTER_UID) == Some(&owner.cluster_uid) && tags.get(OBJECT_UID) == Some(&owner.object_uid)
}

/// Whose something is, as its tags say.
pub(crate) fn owner(tags: &Tags) -> Option<Owner> {
    Some(Owner {
        cluster: tags.get(names::LABEL_CLUSTER).cloned().unwrap_or_default(),
        cluster_uid: tags.get(CLUSTER_UID)?.clone(),
        object_uid: tags.get(OBJECT_UID)?.clone(),
    })
}

/// For people: whose something is that is not ours.
pub(crate) fn whose(tags: &Tags) -> String {
    match owner(tags) {
        Some(owner) => {
            format!("it belongs to another request of the cluster {} ({})", owner.cluster, owner.cluster_uid)
        }
        None => "it is not ours".to_owned(),
    }
}

/// As parameters: `Prefix.Tag.1.Key` ...
pub(crate) fn params(prefix: &str, tags: &Tags) -> Params {
    let pairs = tags.iter().enumerate().flat_map(|(index, (key, value))| {
        let at = format!("{prefix}.{}", index + 1);
        [param(format!("{at}.Key"), key), param(format!("{at}.Value"), value)]
    });
    pairs.collect()
}

/// EC2: tags that something gets at its creation.
pub(crate) fn specification(index: usize, kind: &str, tags: &Tags) -> Params {
    let at = format!("TagSpecification.{index}");
    let mut all = vec![param(format!("{at}.ResourceType"), kind)];
    all.extend(params(&format!("{at}.Tag"), tags));
    all
}

/// EC2's form of tags in an answer.
pub(crate) fn of_ec2(element: &Element) -> Tags {
    element.list("tagSet").map(|tag| (tag.string("key"), tag.string("value"))).collect()
}

/// EC2: a filter for what carries an owner's tags.
pub(crate) fn filter(owner: &Owner) -> Params {
    filters(&[
        (format!("tag:{OBJECT_UID}").as_str(), owner.object_uid.as_str()),
        (format!("tag:{CLUSTER_UID}").as_str(), owner.cluster_uid.as_str()),
    ])
}

/// EC2: all of these have to hold.
pub(crate) fn filters(pairs: &[(&str, &str)]) -> Params {
    let pairs = pairs.iter().enumerate().flat_map(|(index, (name, value))| {
        let at = format!("Filter.{}", index + 1);
        [param(format!("{at}.Name"), *name), param(format!("{at}.Value.1"), *value)]
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_uids_decide() {
        let mine = Owner { cluster: "m".into(), cluster_uid: "c".into(), object_uid: "o".into() };
        let tags = ours(&mine, "m-cp-0", &BTreeMap::from([("role".to_owned(), "x".to_owned())]));
        assert!(is_of(&tags, &mine) && owner(&tags) == Some(mine.clone()));
        assert!(!is_of(&tags, &Owner { object_uid: "p".into(), ..mine.clone() }));
        assert!(!is_of(&tags, &Owner { cluster_uid: "d".into(), ..mine.clone() }));
        assert!(!is_of(&Tags::from([("Name".to_owned(), "m-cp-0".to_owned())]), &mine));
    }

    #[test]
    fn labels_that_aws_refuses_are_left_out() {
        let mine = Owner { cluster: "m".into(), cluster_uid: "c".into(), object_uid: "o".into() };
        let labels = BTreeMap::from([
            ("aws:x".to_owned(), "1".to_owned()),
            ("a{b".to_owned(), "1".to_owned()),
            ("fine".to_owned(), "1".to_owned()),
            (OBJECT_UID.to_owned(), "stolen".to_owned()),
        ]);
        let tags = ours(&mine, "n", &labels);
        assert!(tags.contains_key("fine") && !tags.contains_key("aws:x") && !tags.contains_key("a{b"));
        assert_eq!(tags[OBJECT_UID], "o", "a label never says whose it is");
    }
}
