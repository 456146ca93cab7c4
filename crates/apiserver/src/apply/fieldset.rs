//! Sets of paths: what a manager owns, what a change touched.
//!
//! A set is a tree. A node may be in the set itself (`owned`), and may have nodes below it that are. Nodes are kept
//! sorted, so every operation is one merge walk over two sorted lists. No node is ever empty (neither owned nor with
//! anything below), so equal sets are equal trees.

use super::element::{BadElement, PathElement, path_text};
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::fmt;

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) element: PathElement,
    pub(super) owned: bool,
    pub(super) below: FieldSet,
}

// === impl Node ===

impl Node {
    /// `None` for a node that would say nothing.
    fn some(element: &PathElement, owned: bool, below: FieldSet) -> Option<Self> {
        (owned || !below.is_empty()).then(|| Self { element: element.clone(), owned, below })
    }
}

// === impl FieldSet ===

impl FieldSet {
    pub fn new() -> Self {
        Self::default()
    }

    /// The set that holds these paths, each given by its field names.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut out = Self::new();
        for path in paths {
            out.insert(&path.iter().map(|name| PathElement::field(*name)).collect::<Vec<_>>());
        }
        out
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many paths are in the set.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|n| usize::from(n.owned) + n.below.len()).sum()
    }

    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let node = self.entry(first);
        if rest.is_empty() {
            node.owned = true;
        } else {
            node.below.insert(rest);
        }
    }

    /// Whether exactly this path is in the set.
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.find(last).is_some_and(|n| n.owned),
            [first, rest @ ..] => self.find(first).is_some_and(|n| n.below.has(rest)),
        }
    }

    /// Whether the element is in the set, as a path of length one.
    pub fn has_element(&self, element: &PathElement) -> bool {
        self.find(element).is_some_and(|n| n.owned)
    }

    /// What is in the set below an element.
    pub fn below(&self, element: &PathElement) -> Option<&FieldSet> {
        self.find(element).map(|n| &n.below).filter(|s| !s.is_empty())
    }

    /// Whether every path of `other` is in this set.
    pub fn contains(&self, other: &Self) -> bool {
        other.nodes.iter().all(|theirs| {
            self.find(&theirs.element)
                .is_some_and(|ours| (ours.owned || !theirs.owned) && ours.below.contains(&theirs.below))
        })
    }

    pub fn union(&self, other: &Self) -> Self {
        self.zip(other, |a, b| match (a, b) {
            (Some(a), Some(b)) => Node::some(&a.element, a.owned || b.owned, a.below.union(&b.below)),
            (one, two) => one.or(two).cloned(),
        })
    }

    pub fn intersection(&self, other: &Self) -> Self {
        self.zip(other, |a, b| {
            let (a, b) = (a?, b?);
            Node::some(&a.element, a.owned && b.owned, a.below.intersection(&b.below))
        })
    }

    /// The paths that are not in `other`. A path in `other` says nothing of the paths below it.
    pub fn difference(&self, other: &Self) -> Self {
        self.zip(other, |a, b| match (a, b) {
            (Some(a), Some(b)) => Node::some(&a.element, a.owned && !b.owned, a.below.difference(&b.below)),
            (a, _) => a.cloned(),
        })
    }

    /// The paths that are neither in `other` nor below a path that is.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.zip(other, |a, b| match (a, b) {
            (Some(_), Some(b)) if b.owned => None,
            (Some(a), Some(b)) => Node::some(&a.element, a.owned, a.below.recursive_difference(&b.below)),
            (a, _) => a.cloned(),
        })
    }

    /// The paths that have no other path of the set below them.
    pub fn leaves(&self) -> Self {
        let keep = |n: &Node| Node::some(&n.element, n.owned && n.below.is_empty(), n.below.leaves());
        Self { nodes: self.nodes.iter().filter_map(keep).collect() }
    }

    /// The part of the set at and below one field.
    pub fn only_field(&self, name: &str) -> Self {
        let element = PathElement::field(name);
        Self { nodes: self.find(&element).cloned().into_iter().collect() }
    }

    /// All paths, in the order in which Kubernetes lists them: at each level, first what is in the set itself, then
    /// what is below.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, out: &mut Vec<Vec<PathElement>>) {
        for node in self.nodes.iter().filter(|n| n.owned) {
            let mut path = prefix.clone();
            path.push(node.element.clone());
            out.push(path);
        }
        for node in self.nodes.iter().filter(|n| !n.below.is_empty()) {
            prefix.push(node.element.clone());
            node.below.collect(prefix, out);
            prefix.pop();
        }
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Adds a node that the caller knows to sort last; [`FieldSet::settle`] repairs the order where it may not.
    pub(super) fn push(&mut self, element: PathElement, owned: bool, below: FieldSet) {
        if owned || !below.is_empty() {
            self.nodes.push(Node { element, owned, below });
        }
    }

    /// Restores the order after pushes in another order. Elements must be distinct.
    pub(super) fn settle(&mut self) {
        if !self.nodes.is_sorted_by(|a, b| a.element < b.element) {
            self.nodes.sort_by(|a, b| a.element.cmp(&b.element));
        }
    }

    fn find(&self, element: &PathElement) -> Option<&Node> {
        self.nodes.binary_search_by(|n| n.element.cmp(element)).ok().map(|i| &self.nodes[i])
    }

    fn entry(&mut self, element: &PathElement) -> &mut Node {
        let at = match self.nodes.binary_search_by(|n| n.element.cmp(element)) {
            Ok(at) => at,
            Err(at) => {
                let node = Node { element: element.clone(), owned: false, below: Self::new() };
                self.nodes.insert(at, node);
                at
            }
        };
        &mut self.nodes[at]
    }

    /// One walk over both sorted lists; `pick` says what becomes of each element.
    fn zip(&self, other: &Self, pick: impl Fn(Option<&Node>, Option<&Node>) -> Option<Node>) -> Self {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let (mut i, mut j) = (0, 0);
        loop {
            let picked = match (self.nodes.get(i), other.nodes.get(j)) {
                (None, None) => break,
                (Some(a), None) => {
                    i += 1;
                    pick(Some(a), None)
                }
                (None, Some(b)) => {
                    j += 1;
                    pick(None, Some(b))
                }
                (Some(a), Some(b)) => match a.element.cmp(&b.element) {
                    Ordering::Less => {
                        i += 1;
                        pick(Some(a), None)
                    }
                    Ordering::Greater => {
                        j += 1;
                        pick(None, Some(b))
                    }
                    Ordering::Equal => {
                        i += 1;
                        j += 1;
                        pick(Some(a), Some(b))
                    }
                },
            };
            nodes.extend(picked);
        }
        Self { nodes }
    }
}

// The `fieldsV1` form.
impl FieldSet {
    /// As an object, as `managedFields` hold it.
    pub fn to_fields_v1(&self) -> Value {
        Value::Object(self.to_object(false))
    }

    fn to_object(&self, with_self: bool) -> Map<String, Value> {
        let mut out = Map::new();
        if with_self && !self.is_empty() {
            out.insert(".".into(), Value::Object(Map::new()));
        }
        for node in &self.nodes {
            out.insert(node.element.encode(), Value::Object(node.below.to_object(node.owned)));
        }
        out
    }

    /// As text, byte for byte as Kubernetes stores it: by element order, which for numbers in keys is not the order of
    /// the text.
    pub fn to_fields_v1_text(&self) -> String {
        let mut out = String::from("{");
        self.write_text(false, &mut out);
        out.push('}');
        out
    }

    fn write_text(&self, with_self: bool, out: &mut String) {
        let mut comma = false;
        if with_self && !self.is_empty() {
            out.push_str("\".\":{}");
            comma = true;
        }
        for node in &self.nodes {
            if comma {
                out.push(',');
            }
            comma = true;
            out.push_str(&Value::String(node.element.encode()).to_string());
            out.push_str(":{");
            node.below.write_text(node.owned, out);
            out.push('}');
        }
    }

    /// Reads the `fieldsV1` form. Elements of a kind that we do not know are left out, as Kubernetes does.
    pub fn from_fields_v1(fields: &Value) -> Result<Self, String> {
        Self::read(fields).map(|(set, _)| set)
    }

    /// The set, and whether it says `.` of itself.
    fn read(fields: &Value) -> Result<(Self, bool), String> {
        let Value::Object(map) = fields else {
            return Err(format!("expected an object of fields, got {fields}"));
        };
        let mut with_self = false;
        let mut out = Self::new();
        for (key, value) in map {
            if key == "." {
                with_self = true;
                continue;
            }
            let element = match PathElement::decode(key) {
                Ok(element) => element,
                Err(BadElement::UnknownKind) => continue,
                Err(bad) => return Err(bad.to_string()),
            };
            let (below, owned) = Self::read(value)?;
            let owned = owned || below.is_empty();
            out.push(element, owned, below);
        }
        out.settle();
        // Two spellings of one element (1 and 1.0) must not become two nodes.
        out.nodes.dedup_by(|b, a| {
            let same = a.element == b.element;
            if same {
                a.owned |= b.owned;
                a.below = a.below.union(&b.below);
            }
            same
        });
        Ok((out, with_self))
    }
}

impl fmt::Display for FieldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.paths().iter().map(|p| path_text(p)).collect();
        f.write_str(&lines.join("\n"))
    }
}

#[cfg(test)]
#[path = "fieldset_tests.rs"]
mod tests;
