//! Names as Google wants them, labels, and the ids that make a repeated request known as such.

use aws_lc_rs::digest;
use butler_api::names::with_suffix;
use std::collections::BTreeMap;

/// Longest name of anything.
const LIMIT: usize = 63;

/// Label keys of what is ours.
pub(crate) const LABEL_CLUSTER: &str = "butler-cluster";
pub(crate) const LABEL_CLUSTER_UID: &str = "butler-cluster-uid";
pub(crate) const LABEL_OBJECT_UID: &str = "butler-object-uid";

/// A name that Google takes, made from one of ours: itself, where it is good enough. Google wants a letter first.
pub(crate) fn google_name(ours: &str) -> String {
    let plain: String = ours
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' })
        .collect();
    let plain = plain.trim_matches('-');
    let good = plain == ours && plain.starts_with(|c: char| c.is_ascii_lowercase());
    if good && ours.len() <= LIMIT {
        return ours.to_owned();
    }
    let letter = if plain.starts_with(|c: char| c.is_ascii_lowercase()) { "" } else { "b-" };
    // What was changed gets a mark of the whole, so that two names that become alike stay apart.
    let mark = if good { String::new() } else { format!("-{}", &hex(&sha256(&[ours]))[..6]) };
    with_suffix(&format!("{letter}{plain}{mark}"), "", LIMIT)
}

/// A stem and a suffix, as one name that Google takes.
pub(crate) fn google_name_with(stem: &str, suffix: &str) -> String {
    with_suffix(&google_name(stem), suffix, LIMIT)
}

/// Labels as Google takes them: keys and values of lower-case letters, digits, dashes and underscores.
pub(crate) fn labels(ours: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let clean = |text: &str| -> String {
        text.to_lowercase()
            .chars()
            .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' { c } else { '_' })
            .take(LIMIT)
            .collect()
    };
    let begins = |key: &str| key.starts_with(|c: char| c.is_ascii_lowercase());
    ours.iter()
        .map(|(key, value)| (clean(key), clean(value)))
        .map(|(key, value)| if begins(&key) { (key, value) } else { (format!("l{key}"), value) })
        .collect()
}

/// The id of a request. The same change for the same object has the same id, so that a repetition after a lost answer is
/// known as one. `turn` sets a change apart from an earlier one that was answered and has been undone since.
pub(crate) fn request_id(object_uid: &str, step: &str, body: &str, turn: u64) -> String {
    let mut bytes = sha256(&[object_uid, step, body, &turn.to_string()]);
    // The bits that make it a UUID of the name-based kind.
    bytes[6] = (bytes[6] & 0x0f) | 0x50;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = hex(&bytes[..16]);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The number at the end of a name; one that stays the same where there is none.
pub(crate) fn number_of(name: &str) -> usize {
    let tail = name.rsplit('-').next().unwrap_or(name);
    tail.parse::<usize>().unwrap_or_else(|_| usize::from(sha256(&[name])[0]))
}

/// What comes behind `projects/` in a URL: the part by which two URLs of one thing are the same.
pub(crate) fn tail(url: &str) -> &str {
    url.rsplit_once("projects/").map_or(url, |(_, tail)| tail)
}

/// The last part of a URL.
pub(crate) fn last(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}

fn sha256(parts: &[&str]) -> Vec<u8> {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part.as_bytes());
        // A byte that no part holds: ("ab", "c") is not ("a", "bc").
        context.update(&[0]);
    }
    context.finish().as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_google_takes() {
        assert_eq!(google_name("butler-mgmt-cp-0"), "butler-mgmt-cp-0");
        let digit = google_name("1st-cp-0");
        assert!(digit.starts_with("b-1st-cp-0-"), "{digit}");
        assert_ne!(
            digit,
            google_name("b-1st-cp-0"),
            "a changed name is not that of somebody who has it as it is"
        );
        assert_eq!(google_name("a.b").len(), "a-b".len() + 7);
        let long = google_name_with(&"a".repeat(63), "-fwd");
        assert!(long.len() == 63 && long.ends_with("-fwd"), "{long}");
        for name in [digit, long, google_name("9"), google_name_with("x", "-hc")] {
            assert!(name.len() <= 63 && name.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'), "{name}");
        }
    }

    #[test]
    fn labels_are_what_google_takes() {
        let ours = BTreeMap::from([
            ("butler.butlerlabs.dev/cluster".to_owned(), "Mgmt".to_owned()),
            ("9lives".to_owned(), String::new()),
        ]);
        let expected = [("butler_butlerlabs_dev_cluster", "mgmt"), ("l9lives", "")];
        assert_eq!(labels(&ours), expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }

    #[test]
    fn requests_are_known_again() {
        let id = request_id("u", "insert a", "{}", 0);
        assert_eq!(id, request_id("u", "insert a", "{}", 0));
        for other in [request_id("v", "insert a", "{}", 0), request_id("u", "insert a", "{}", 1)] {
            assert_ne!(id, other);
        }
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!((parts.as_slice(), id.as_bytes()[14]), (&[8, 4, 4, 4, 12][..], b'5'));
    }

    #[test]
    fn urls_of_one_thing_are_the_same() {
        let full = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instances/i";
        assert_eq!((tail(full), last(full)), ("p/zones/z/instances/i", "i"));
        assert_eq!(tail("projects/p/zones/z/instances/i"), tail(full));
        assert_eq!(number_of("m-cp-2"), 2);
        assert_eq!(number_of("odd"), number_of("odd"));
    }
}
