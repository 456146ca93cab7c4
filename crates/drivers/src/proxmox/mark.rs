//! Whose a virtual machine is: tags for looking, full ids in its description for deciding.
//!
//! A clone has its description before it has tags, and tags are short, so only the description counts as proof.

pub(crate) use crate::mark::Mark;
use crate::seam::Owner;
use std::collections::BTreeSet;

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
    fn tags_are_what_proxmox_allows() {
        let owner = Owner {
            cluster: "mgmt".into(),
            cluster_uid: "0F8FAD5B-D9CB-469F-A165-70867728950E".into(),
            object_uid: "7c9e6679-7425-40de-944b-e07fc1f90ae7".into(),
        };
        assert_eq!(split_tags("butler,butler-7c9e6679 butler-0f8fad5b"), tags(&owner));
    }
}
