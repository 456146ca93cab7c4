//! From a field path of Kubernetes (`spec.listeners[0].port`, `metadata.labels[a.b/c]`) to a place in the file.

use super::document::{Data, Mark, Node};

/// Where a path leads.
#[derive(Debug, PartialEq)]
pub(crate) struct Place {
    /// The last key on the way that is in the file, or the beginning of the object.
    pub(crate) key: Mark,
    /// Its value.
    pub(crate) value: Mark,
    /// Whether the path was walked to its end; otherwise the field is missing.
    pub(crate) whole: bool,
}

/// Follows a path as far as the file has it.
pub(crate) fn find(root: &Node, path: &str) -> Place {
    let mut place = Place { key: root.at, value: root.at, whole: false };
    let (mut node, mut rest) = (root, path);
    loop {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        if rest.is_empty() {
            return Place { whole: true, ..place };
        }
        match &node.data {
            Data::Map(entries) => {
                // A key may hold dots, so the longest key that fits is the one that is meant.
                let fitting =
                    entries.iter().filter_map(|(key, value)| Some((after(rest, &key.name)?, key, value)));
                let Some((tail, key, value)) = fitting.min_by_key(|(tail, _, _)| tail.len()) else {
                    return place;
                };
                (place.key, place.value) = (key.at, value.at);
                (node, rest) = (value, tail);
            }
            Data::List(items) => {
                let index = rest.strip_prefix('[').and_then(|text| text.split_once(']'));
                let Some((index, tail)) = index else { return place };
                let Some(item) = index.parse::<usize>().ok().and_then(|index| items.get(index)) else {
                    return place;
                };
                (place.key, place.value) = (item.at, item.at);
                (node, rest) = (item, tail);
            }
            Data::Scalar(_) => return place,
        }
    }
}

/// What comes after a key, written `key` or `[key]`, at the beginning of a path.
fn after<'a>(path: &'a str, key: &str) -> Option<&'a str> {
    if let Some(tail) =
        path.strip_prefix('[').and_then(|rest| rest.strip_prefix(key)).and_then(|rest| rest.strip_prefix(']'))
    {
        return Some(tail);
    }
    path.strip_prefix(key).filter(|tail| tail.is_empty() || tail.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::super::document::parse;
    use super::*;

    fn at(path: &str) -> (u64, u64, bool) {
        let text = "a:\n  b:\n  - c: 1\n  - c: 2\n  x.w/z: 3\n  x: {w: 4}\n";
        let place = find(parse(text)[0].as_ref().unwrap(), path);
        (place.value.line, place.value.column, place.whole)
    }

    #[test]
    fn paths_lead_to_places() {
        assert_eq!(at("a.b[1].c"), (4, 8, true));
        assert_eq!(at("a[x.w/z]"), (5, 10, true));
        assert_eq!(at("a.x.w/z"), (5, 10, true));
        assert_eq!(at("a.x.w"), (6, 10, true));
        assert_eq!(at(""), (1, 1, true));
    }

    #[test]
    fn what_is_missing_is_shown_at_what_is_there() {
        assert_eq!(at("a.b[1].d"), (4, 5, false));
        assert_eq!(at("a.b[7]"), (3, 5, false));
        assert_eq!(at("q.r"), (1, 1, false));
        assert_eq!(at("a.x.w.deeper"), (6, 10, false));
    }
}
