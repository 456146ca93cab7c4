//! The order of a merged list: the items that the patch speaks of in the patch's order, the others where they were.

use serde_json::Value;
use std::collections::HashMap;

/// How items of a list are told apart: by a field, or as they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity<'a>(pub(super) Option<&'a str>);

/// Where each item of a list is. Lists may be long, so nothing here looks for an item by walking.
#[derive(Debug)]
pub(super) struct Places<'a> {
    id: Identity<'a>,
    first: HashMap<String, usize>,
}

/// Beyond this many items, the real server's sort takes another path, which is not followed.
const MAX_INSERTION_SORT: usize = 1_000;

// === impl Identity ===

impl<'a> Identity<'a> {
    /// `None`: the item lacks the field.
    pub(super) fn of(self, item: &Value) -> Option<String> {
        match self.0 {
            Some(key) => item.get(key).map(ToString::to_string),
            None => Some(item.to_string()),
        }
    }

    pub(super) fn same(self, a: &Value, b: &Value) -> bool {
        self.of(a).is_some_and(|a| self.of(b) == Some(a))
    }

    pub(super) fn places(self, list: &[Value]) -> Places<'a> {
        let mut places = Places { id: self, first: HashMap::with_capacity(list.len()) };
        for (at, item) in list.iter().enumerate() {
            places.add(item, at);
        }
        places
    }
}

// === impl Places ===

impl Places<'_> {
    pub(super) fn get(&self, item: &Value) -> Option<usize> {
        self.first.get(&self.id.of(item)?).copied()
    }

    /// Whether the item is the first of its kind.
    pub(super) fn add(&mut self, item: &Value, at: usize) -> bool {
        match self.id.of(item) {
            Some(key) if !self.first.contains_key(&key) => self.first.insert(key, at).is_none(),
            _ => false,
        }
    }
}

/// Puts `merged` into order. `wanted` is the patch's order, `before` the live one.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    before: &[Value],
    id: Identity<'_>,
) -> Vec<Value> {
    let (wanted, before) = (id.places(wanted), id.places(before));
    let mut named = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        match wanted.get(&item) {
            Some(at) => named.push((Some(at), item)),
            None => others.push((before.get(&item), item)),
        }
    }
    sort(&mut named);
    sort(&mut others);

    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().map(|(_, item)| (before.get(&item), item)).peekable();
    let mut others = others.into_iter().peekable();
    loop {
        let next = match (others.peek(), named.peek()) {
            // An item of the live list goes first only where both were there and it was in front.
            (Some((Some(other), _)), Some((Some(name), _))) if other < name => others.next(),
            (_, Some(_)) => named.next(),
            (Some(_), None) => others.next(),
            (None, None) => return out,
        };
        out.extend(next.map(|(_, item)| item));
    }
}

/// By place. An item that has none counts as less than its neighbour whichever way they are compared, so the outcome
/// depends on how one sorts: as the real server does, by insertion.
fn sort(items: &mut [(Option<usize>, Value)]) {
    if items.len() > MAX_INSERTION_SORT || items.iter().all(|(at, _)| at.is_some()) {
        items.sort_by_key(|(at, _)| *at);
        return;
    }
    for end in 1..items.len() {
        for at in (1..=end).rev() {
            let in_order = matches!((items[at].0, items[at - 1].0), (Some(a), Some(b)) if a >= b);
            if in_order {
                break;
            }
            items.swap(at, at - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(text: &str) -> Vec<Value> {
        text.chars().map(|c| json!(c.to_string())).collect()
    }

    #[test]
    fn order_of_the_patch_wins_and_the_rest_keeps_its_place() {
        for (merged, wanted, before, out) in [
            ("abc", "cb", "abc", "acb"),
            ("abcd", "d", "abc", "dabc"),
            ("abcd", "ad", "abc", "adbc"),
            ("abc", "", "abc", "abc"),
            ("abc", "cab", "", "cab"),
            ("cd", "", "d", "dc"),
        ] {
            let arranged = arrange(list(merged), &list(wanted), &list(before), Identity(None));
            assert_eq!(arranged, list(out), "{merged} {wanted} {before}");
        }
    }

    #[test]
    fn long_lists_take_no_long_time() {
        let many: Vec<Value> = (0..50_000).map(|i| json!({"name": format!("n{i}")})).collect();
        let reversed: Vec<Value> = many.iter().rev().cloned().collect();
        let id = Identity(Some("name"));
        assert_eq!(arrange(many.clone(), &reversed, &many, id), reversed);
        assert_eq!(arrange(many.clone(), &[], &[], id).len(), many.len());
    }
}
