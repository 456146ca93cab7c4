//! The difference of two objects, as sets of paths, in one walk.

use super::element::PathElement;
use super::fieldset::FieldSet;
use super::shape::{ListTy, Shape, Ty};
use super::typed::index;
use crate::schema::Schema;
use serde_json::{Map, Value};

/// What a change did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

/// The side that was there before.
#[derive(Debug, Clone, Copy)]
pub(super) enum Before<'v> {
    Absent,
    /// A built-in kind's empty object: in Kubernetes, structs that are not pointers are there from the start, so a
    /// create does not add them.
    Zero,
    Value(&'v Value),
}

/// What happened to the place itself, as against what is below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Same,
    Added,
    Modified,
    Removed,
}

/// Compares two objects of one type.
pub fn compare(ty: Ty<'_>, old: &Value, new: &Value) -> Comparison {
    compare_from(ty, Before::Value(old), new)
}

pub(super) fn compare_from(ty: Ty<'_>, old: Before<'_>, new: &Value) -> Comparison {
    let mut out = Comparison::default();
    walk(ty, old, Some(new), &mut out);
    out
}

// === impl Comparison ===

impl Comparison {
    pub fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// What was written: added or modified.
    pub fn written(&self) -> FieldSet {
        if self.added.is_empty() { self.modified.clone() } else { self.modified.union(&self.added) }
    }

    pub(super) fn map(self, keep: impl Fn(FieldSet) -> FieldSet) -> Self {
        Self { added: keep(self.added), modified: keep(self.modified), removed: keep(self.removed) }
    }

    fn attach(&mut self, element: impl FnOnce() -> PathElement, mark: Mark, below: Comparison) {
        if mark == Mark::Same && below.is_same() {
            return;
        }
        let element = element();
        self.added.push(element.clone(), mark == Mark::Added, below.added);
        self.modified.push(element.clone(), mark == Mark::Modified, below.modified);
        self.removed.push(element, mark == Mark::Removed, below.removed);
    }

    fn settle(&mut self) {
        self.added.settle();
        self.modified.settle();
        self.removed.settle();
    }
}

fn walk(ty: Ty<'_>, old: Before<'_>, new: Option<&Value>, out: &mut Comparison) -> Mark {
    let old_shape = match old {
        Before::Value(old) => Some(ty.shape(old)),
        _ => None,
    };
    let new_shape = new.map(|new| ty.shape(new));
    match (old_shape, new_shape) {
        (None, None) => Mark::Same,
        (Some(shape), None) | (None, Some(shape)) => walk_shape(shape, old, new, out),
        (Some(a), Some(b)) if std::mem::discriminant(&a) == std::mem::discriminant(&b) => {
            walk_shape(b, old, new, out)
        }
        // The kind of value changed: all that was there is gone, all that is there is new, and the place is modified
        // where one of the two was a leaf.
        (Some(a), Some(b)) => {
            let before = walk_shape(a, old, new, out);
            let after = walk_shape(b, old, new, out);
            if before == Mark::Modified || after == Mark::Modified { Mark::Modified } else { Mark::Same }
        }
    }
}

fn walk_shape(shape: Shape<'_>, old: Before<'_>, new: Option<&Value>, out: &mut Comparison) -> Mark {
    match shape {
        Shape::Leaf => leaf(old, new),
        Shape::Map(map) => {
            if let Before::Zero = old {
                return walk_from_zero(map, new, out);
            }
            let (before, after) = (as_map(old), new.and_then(Value::as_object));
            if before.is_none_or(Map::is_empty) && after.is_none_or(Map::is_empty) {
                return leaf(old, new);
            }
            walk_maps(map, before, after, out);
            presence(old, new)
        }
        Shape::List(list) => {
            let before = match old {
                Before::Value(Value::Array(items)) => items.as_slice(),
                _ => &[],
            };
            let after = new.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            if before.is_empty() && after.is_empty() {
                return leaf(old, new);
            }
            if before != after {
                walk_lists(&list, before, after, out);
            }
            presence(old, new)
        }
    }
}

fn as_map(side: Before<'_>) -> Option<&Map<String, Value>> {
    match side {
        Before::Value(Value::Object(map)) => Some(map),
        _ => None,
    }
}

fn presence(old: Before<'_>, new: Option<&Value>) -> Mark {
    match (old, new) {
        (Before::Absent, _) => Mark::Added,
        (_, None) => Mark::Removed,
        _ => Mark::Same,
    }
}

fn leaf(old: Before<'_>, new: Option<&Value>) -> Mark {
    match (old, new) {
        (Before::Value(old), Some(new)) if old == new => Mark::Same,
        (Before::Zero, Some(new)) if new.as_object().is_some_and(Map::is_empty) => Mark::Same,
        (Before::Absent, _) => Mark::Added,
        (_, None) => Mark::Removed,
        _ => Mark::Modified,
    }
}

/// Both maps are sorted by key: one walk.
fn walk_maps(
    map: Ty<'_>,
    before: Option<&Map<String, Value>>,
    after: Option<&Map<String, Value>>,
    out: &mut Comparison,
) {
    let mut left = before.into_iter().flatten().peekable();
    let mut right = after.into_iter().flatten().peekable();
    loop {
        let take_left = match (left.peek(), right.peek()) {
            (None, None) => return,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        let old = if take_left.is_le() { left.next() } else { None };
        let new = if take_left.is_ge() { right.next() } else { None };
        let Some((name, _)) = old.or(new) else { return };
        let (old, new) = (old.map_or(Before::Absent, |(_, v)| Before::Value(v)), new.map(|(_, v)| v));
        field(map, name, old, new, out);
    }
}

fn field(map: Ty<'_>, name: &str, old: Before<'_>, new: Option<&Value>, out: &mut Comparison) {
    // A scalar that did not change is by far the most common case: it needs no type.
    if let (Before::Value(old), Some(new)) = (old, new)
        && !old.is_object()
        && !old.is_array()
        && old == new
    {
        return;
    }
    let ty = map.field(name).map_or(Ty::Deduced, |(ty, _)| ty);
    let mut below = Comparison::default();
    let mark = walk(ty, old, new, &mut below);
    out.attach(|| PathElement::field(name), mark, below);
}

/// The fields that hold a struct, not a pointer to one, in the built-in kinds: as far down as there are only such fields
/// above them. OpenAPI marks them by the default `{}`, a schema without defaults has only the name.
const STRUCTS: [&str; 27] = [
    "acceptedNames",
    "daemonEndpoints",
    "deprecatedSource",
    "devices",
    "involvedObject",
    "jobTemplate",
    "kubeletEndpoint",
    "loadBalancer",
    "metadata",
    "names",
    "nodeInfo",
    "podSelector",
    "pool",
    "priorityLevelConfiguration",
    "regarding",
    "resources",
    "roleRef",
    "scaleTargetRef",
    "source",
    "spec",
    "status",
    "strategy",
    "target",
    "template",
    "updateStrategy",
    "user",
    "userInfo",
];

/// A create of a built-in kind. Slices and maps that are required are there from the start too, as null.
fn walk_from_zero(map: Ty<'_>, new: Option<&Value>, out: &mut Comparison) -> Mark {
    const NULL: &Value = &Value::Null;
    let Some(Value::Object(after)) = new else { return leaf(Before::Zero, new) };
    for (name, new) in after {
        let old = match map {
            Ty::Known { schema, .. } if is_struct(schema, name) => Before::Zero,
            Ty::Known { schema, .. } if schema.limits.required.contains(name) => Before::Value(NULL),
            _ => Before::Absent,
        };
        field(map, name, old, Some(new), out);
    }
    Mark::Same
}

fn is_struct(parent: &Schema, name: &str) -> bool {
    let of = |ty: &str| parent.title.as_deref().is_some_and(|title| title.ends_with(ty));
    let default = parent.properties.get(name).and_then(|s| s.default.as_ref());
    match name {
        _ if default.and_then(Value::as_object).is_some_and(Map::is_empty) => true,
        // The two names that are structs in one kind and pointers in another.
        "resources" => parent.properties.contains_key("accessModes"),
        "template" => !of("ReplicationControllerSpec"),
        _ => STRUCTS.binary_search(&name).is_ok(),
    }
}

fn walk_lists(list: &ListTy<'_>, before: &[Value], after: &[Value], out: &mut Comparison) {
    let old = index(list, before);
    let mut new = index(list, after);
    for (element, left) in old {
        let right = new.remove(&element).unwrap_or_default();
        item(list, element, &left, &right, out);
    }
    for (element, right) in new {
        item(list, element, &[], &right, out);
    }
    out.settle();
}

fn item(list: &ListTy<'_>, element: PathElement, left: &[&Value], right: &[&Value], out: &mut Comparison) {
    let mut one = |old: Option<&&Value>, new: Option<&&Value>| {
        let mut below = Comparison::default();
        let old = old.map_or(Before::Absent, |v| Before::Value(v));
        let mark = walk(list.items, old, new.copied(), &mut below);
        out.attach(|| element.clone(), mark, below);
    };
    // Items that are there twice can't be told apart, so they are compared and owned as one.
    match (left.len(), right.len()) {
        (0 | 1, 0 | 1) => one(left.first(), right.first()),
        (0 | 1, _) => {
            if let Some(old) = left.first() {
                one(Some(old), None);
            }
            merge_mark(out, element, Mark::Added);
        }
        (_, 0 | 1) => {
            if let Some(new) = right.first() {
                one(None, Some(new));
            }
            merge_mark(out, element, Mark::Removed);
        }
        _ if left != right => merge_mark(out, element, Mark::Modified),
        _ => {}
    }
}

/// Marks an element that may be in the sets already.
fn merge_mark(out: &mut Comparison, element: PathElement, mark: Mark) {
    let set = match mark {
        Mark::Added => &mut out.added,
        Mark::Removed => &mut out.removed,
        _ => &mut out.modified,
    };
    let mut one = FieldSet::new();
    one.push(element, true, FieldSet::new());
    *set = set.union(&one);
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
