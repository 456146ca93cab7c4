//! Help from the schema: what a field is, and which fields there are.

use butler_apiserver::schema::{Additional, Schema};

/// What the schema says about a field.
pub(crate) fn field(root: &Schema, path: &str) -> String {
    walk(root, path).and_then(|schema| schema.description.clone()).unwrap_or_default()
}

/// What could be meant by a field that does not exist.
pub(crate) fn unknown(root: &Schema, path: &str) -> String {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let Some(schema) = walk(root, parent) else { return String::new() };
    let mut names: Vec<&str> = schema.properties.keys().map(String::as_str).collect();
    if parent.is_empty() {
        names.extend(["apiVersion", "kind", "metadata"]);
    }
    let near = names.iter().map(|other| (distance(name, other), other)).min();
    match near {
        Some((steps, other)) if steps <= 2.max(name.len() / 3) => format!("did you mean {other}?"),
        _ if names.is_empty() => String::new(),
        _ => format!("the fields here are {}", names.join(", ")),
    }
}

/// The schema of a field.
pub(crate) fn walk<'s>(root: &'s Schema, path: &str) -> Option<&'s Schema> {
    let mut schema = root;
    for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
        schema = match (step.strip_suffix(']'), &schema.items, &schema.additional) {
            (Some(_), Some(items), _) => items,
            (_, _, Additional::Of(values)) => values,
            _ => schema.properties.get(step.trim_end_matches(']'))?,
        };
    }
    Some(schema)
}

/// Levenshtein's distance, without regard to case: `podCidr` is no distance from `podCIDR`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.to_lowercase(), b.to_lowercase());
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let change = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distances() {
        assert_eq!(distance("vip", "vip"), 0);
        assert_eq!(distance("podCidr", "podCIDR"), 0);
        assert_eq!(distance("vipp", "vip"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
