//! Words that Kubernetes puts rules on: labels, annotations, taints.

/// A label's or annotation's key: an optional domain, a slash, a name.
pub(super) fn check_key(key: &str) -> Result<(), String> {
    let (prefix, name) = match key.split_once('/') {
        None => (None, key),
        Some((_, rest)) if rest.contains('/') => {
            return Err(format!("invalid format: too many slashes: {key:?}"));
        }
        Some((prefix, name)) => (Some(prefix), name),
    };
    match prefix {
        Some("") => return Err(format!("prefix cannot be empty: {key:?}")),
        Some(prefix) if !is_subdomain(prefix) => return Err(format!("prefix {prefix:?} is invalid")),
        _ => {}
    }
    match name {
        "" => Err(format!("name cannot be empty: {key:?}")),
        name if name.len() > 63 => Err(format!("name is too long: {key:?} (limit is 63)")),
        name if !is_name(name) => Err(format!("name {name:?} is invalid")),
        _ => Ok(()),
    }
}

pub(super) fn check_value(value: &str) -> Result<(), String> {
    match value {
        "" => Ok(()),
        value if value.len() > 63 => Err(format!("label value length exceeds limit of 63: {value:?}")),
        value if !is_name(value) => Err(format!("label value {value:?} is invalid")),
        _ => Ok(()),
    }
}

/// `value:Effect`, or the effect alone.
pub(super) fn check_taint(taint: &str) -> Result<(), String> {
    let (value, effect) =
        taint.split_once(':').map_or((None, taint), |(value, effect)| (Some(value), effect));
    if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
        return Err(format!("invalid taint effect: {effect:?}"));
    }
    value.map_or(Ok(()), check_value)
}

fn is_name(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// A DNS name in small letters.
pub(super) fn is_subdomain(text: &str) -> bool {
    let label = |label: &str| {
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty() && label.chars().all(good) && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// What Talos takes for a DNS name: underscores are fine, and so is a dot at the end.
pub(super) fn is_dns_domain(text: &str) -> bool {
    let text = text.strip_suffix(['.', '_']).unwrap_or(text);
    let label = |label: &str| {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        (1..=63).contains(&label.len()) && label.chars().all(good) && !label.starts_with('-')
    };
    text.len() <= 255 && text.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_values_and_taints() {
        for good in ["a", "example.com/a", "a.b-c_d", "A1"] {
            assert_eq!(check_key(good), Ok(()), "{good}");
        }
        for bad in ["", "/a", "a/", "a/b/c", "Ex.com/a", "-a", "a-", "ü", &"x".repeat(64)] {
            assert!(check_key(bad).is_err(), "{bad}");
        }
        assert!(check_value("").is_ok() && check_value("a.b").is_ok());
        assert!(check_value("a b").is_err() && check_value(&"x".repeat(64)).is_err());
        for good in ["NoSchedule", ":NoExecute", "v:PreferNoSchedule"] {
            assert_eq!(check_taint(good), Ok(()), "{good}");
        }
        for bad in ["", "v", "v:Never", "a b:NoSchedule"] {
            assert!(check_taint(bad).is_err(), "{bad}");
        }
        assert!(
            is_dns_domain("cluster.local")
                && is_dns_domain("a_b.")
                && !is_dns_domain("a b")
                && !is_dns_domain("")
        );
    }
}
