//! The rules for names, with the sentences that Kubernetes answers when they are broken.
//!
//! Each function returns what is wrong; an empty list means that the name is fine. The checks are written out by hand:
//! they run on every write, for every label.

const LABEL_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_FORM: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const DNS1035_FORM: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const KEY_FORM: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// A DNS subdomain: the usual rule for names.
pub fn dns1123_subdomain(name: &str) -> Vec<String> {
    subdomain_in(name, "characters")
}

/// A DNS label: namespaces.
pub fn dns1123_label(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    too_long(name, 63, "characters", &mut problems);
    if !is_label(name) {
        problems.push(if is_subdomain(name) {
            "must not contain dots".to_string()
        } else {
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
             and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '"
                .to_string()
                + LABEL_FORM
                + "')"
        });
    }
    problems
}

/// A label that starts with a letter: plural names, kinds, service names.
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut problems = Vec::new();
    too_long(name, 63, "characters", &mut problems);
    if !(is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase())) {
        problems.push(format!(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '{DNS1035_FORM}')"
        ));
    }
    problems
}

/// A label key, annotation key or finalizer: `name` or `example.com/name`.
pub fn qualified_name(text: &str) -> Vec<String> {
    let form = || {
        format!(
            "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
             character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{KEY_FORM}')"
        )
    };
    let mut problems = Vec::new();
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                form()
            )];
        }
        Some((prefix, name)) => (Some(prefix), name),
    };
    match prefix {
        Some("") => problems.push("prefix part must be non-empty".to_string()),
        Some(prefix) => {
            problems.extend(subdomain_in(prefix, "bytes").into_iter().map(|p| format!("prefix part {p}")));
        }
        None => {}
    }
    if name.is_empty() {
        problems.push("name part must be non-empty".to_string());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_string());
    }
    if !is_key(name) {
        problems.push(format!("name part {}", form()));
    }
    problems
}

/// The value of a label.
pub fn label_value(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    too_long(value, 63, "bytes", &mut problems);
    if !value.is_empty() && !is_key(value) {
        problems.push(format!(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
             for validation is '({KEY_FORM})?')"
        ));
    }
    problems
}

/// The laxest rule: anything that can stand between two slashes of a URL.
pub fn path_segment(name: &str, prefix_only: bool) -> Vec<String> {
    if !prefix_only && matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    ["/", "%"]
        .into_iter()
        .filter(|bad| name.contains(bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// What a `generateName` must be: the rule of the name, but a trailing dash is fine since something follows it.
pub fn generated(prefix: &str, rule: fn(&str) -> Vec<String>) -> Vec<String> {
    match prefix.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => rule(&format!("{rest}a")),
        _ => rule(prefix),
    }
}

fn subdomain_in(name: &str, unit: &str) -> Vec<String> {
    let mut problems = Vec::new();
    too_long(name, 253, unit, &mut problems);
    if !is_subdomain(name) {
        problems.push(format!(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '{SUBDOMAIN_FORM}')"
        ));
    }
    problems
}

fn too_long(text: &str, limit: usize, unit: &str, problems: &mut Vec<String>) {
    if text.len() > limit {
        problems.push(format!("must be no more than {limit} {unit}"));
    }
}

fn is_label(text: &str) -> bool {
    framed(text, |b| b.is_ascii_lowercase() || b.is_ascii_digit(), |b| b == b'-')
}

pub(crate) fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_key(text: &str) -> bool {
    framed(text, |b| b.is_ascii_alphanumeric(), |b| matches!(b, b'-' | b'_' | b'.'))
}

/// Not empty, `inner` characters only between two `outer` ones.
fn framed(text: &str, outer: fn(u8) -> bool, inner: fn(u8) -> bool) -> bool {
    match text.as_bytes() {
        [] => false,
        [one] => outer(*one),
        [first, middle @ .., last] => {
            outer(*first) && outer(*last) && middle.iter().all(|b| outer(*b) || inner(*b))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_names_pass() {
        assert!(dns1123_subdomain("a.b-c.1").is_empty());
        assert!(dns1123_label("kube-system").is_empty());
        assert!(dns1035_label("widgets").is_empty());
        assert!(qualified_name("example.com/My.Name_1").is_empty());
        assert!(label_value("").is_empty());
        assert!(path_segment("A:b", false).is_empty());
        assert!(generated("web-", dns1123_subdomain).is_empty());
    }

    #[test]
    fn bad_names_are_explained() {
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns1123_label(&"a".repeat(64)), ["must be no more than 63 characters"]);
        assert_eq!(label_value(&"a".repeat(64)), ["must be no more than 63 bytes"]);
        assert!(dns1035_label("1a")[0].starts_with("a DNS-1035 label must consist of"));
        assert_eq!(qualified_name("/a"), ["prefix part must be non-empty"]);
        assert_eq!(qualified_name("a/").len(), 2);
        assert!(qualified_name("a/b/c")[0].starts_with("a valid label key must consist"));
        assert_eq!(path_segment("a/b%", false), ["may not contain '/'", "may not contain '%'"]);
        assert_eq!(path_segment("..", false), ["may not be '..'"]);
        assert_eq!(generated("-", dns1123_subdomain).len(), 1);
        // Sentences that wrap in the source must not carry the line break.
        for text in dns1123_label("_").iter().chain(&label_value("_")).chain(&qualified_name("_")) {
            assert!(!text.contains("  a") && !text.contains('\n'), "{text}");
        }
    }
}
