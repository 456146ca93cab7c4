//! The order of API versions: stable before beta before alpha, newer before older, other names last.

use std::cmp::{Ordering, Reverse};

/// `Less` means preferred.
pub fn compare_versions(left: &str, right: &str) -> Ordering {
    match (parse(left), parse(right)) {
        (Some(left), Some(right)) => Reverse(left).cmp(&Reverse(right)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => left.cmp(right),
    }
}

/// Stability (2 is stable), major and minor number of `v1`, `v2beta3`.
fn parse(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, tail) = rest.split_at(digits);
    let major = major.parse().ok()?;
    if tail.is_empty() {
        return Some((2, major, 0));
    }
    let (stability, minor) = match tail.strip_prefix("beta") {
        Some(minor) => (1, minor),
        None => (0, tail.strip_prefix("alpha")?),
    };
    Some((stability, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_kubernetes() {
        let expected =
            ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"];
        let mut versions = expected;
        versions.reverse();
        versions.sort_by(|left, right| compare_versions(left, right));
        assert_eq!(versions, expected);
    }
}
