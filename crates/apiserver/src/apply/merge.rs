//! Merging an applied configuration into the live object.

use super::element::PathElement;
use super::shape::{ListTy, Shape, Ty};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Puts everything that `config` says into `live`. Nothing is removed by it.
pub fn merge(ty: Ty<'_>, live: &mut Value, config: &Value) {
    match ty.shape(config) {
        Shape::Leaf => *live = config.clone(),
        Shape::Map(map) => {
            let Some(applied) = config.as_object().filter(|m| !m.is_empty()) else {
                // An empty or null map takes nothing away from one that has entries.
                if live.as_object().is_none_or(Map::is_empty) {
                    *live = config.clone();
                }
                return;
            };
            let Value::Object(fields) = live else {
                *live = config.clone();
                return;
            };
            for (name, value) in applied {
                match fields.get_mut(name) {
                    Some(mine) => merge(map.field(name).map_or(Ty::Deduced, |(ty, _)| ty), mine, value),
                    None => {
                        fields.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        Shape::List(list) => {
            let Some(applied) = config.as_array().filter(|l| !l.is_empty()) else {
                if live.as_array().is_none_or(Vec::is_empty) {
                    *live = config.clone();
                }
                return;
            };
            match live {
                Value::Array(items) if !items.is_empty() => {
                    let before = std::mem::take(items);
                    *items = ListMerge::new(list, before, applied).run();
                }
                other => *other = config.clone(),
            }
        }
    }
}

/// The merge of two lists. The applied order wins among the items that were applied; items that only the live list has
/// keep their place relative to the live items around them.
struct ListMerge<'a, 'c> {
    list: ListTy<'a>,
    live: Vec<(Option<PathElement>, Option<Value>)>,
    /// Where the one live item of a key is. `None`: there are several, and none is merged with.
    live_at: BTreeMap<PathElement, Option<usize>>,
    applied: Vec<(PathElement, &'c Value)>,
    out: Vec<Value>,
}

impl<'a, 'c> ListMerge<'a, 'c> {
    fn new(list: ListTy<'a>, live: Vec<Value>, applied: &'c [Value]) -> Self {
        let live: Vec<_> = live.into_iter().map(|item| (list.element(&item).ok(), Some(item))).collect();
        let mut live_at = BTreeMap::new();
        for (at, (element, _)) in live.iter().enumerate() {
            if let Some(element) = element {
                live_at.entry(element.clone()).and_modify(|one| *one = None).or_insert(Some(at));
            }
        }
        let applied: Vec<_> =
            applied.iter().filter_map(|item| Some((list.element(item).ok()?, item))).collect();
        let out = Vec::with_capacity(live.len().max(applied.len()));
        Self { list, live, live_at, applied, out }
    }

    fn run(mut self) -> Vec<Value> {
        let wanted: BTreeSet<PathElement> = self.applied.iter().map(|(e, _)| e.clone()).collect();
        // The applied items that the live list has too, in the order in which they are to come out.
        let shared: Vec<PathElement> =
            self.applied.iter().map(|(e, _)| e).filter(|e| self.live_at.contains_key(e)).cloned().collect();
        let mut next_shared = 0;
        let mut merged = BTreeSet::new();
        let (mut l, mut r) = (0, 0);
        while l < self.live.len() || r < self.applied.len() {
            if l < self.live.len() {
                let element = self.live[l].0.clone();
                let in_both = element.as_ref().filter(|e| wanted.contains(e));
                let Some(element) = in_both else {
                    self.out.extend(self.live[l].1.take());
                    l += 1;
                    continue;
                };
                if r < self.applied.len() {
                    if *element == self.applied[r].0 {
                        merged.insert(element.clone());
                        self.emit(r);
                        l += 1;
                        r += 1;
                        next_shared += 1;
                        continue;
                    }
                    if shared.get(next_shared).is_some_and(|next| next != element) {
                        // It comes out later, in the applied order.
                        l += 1;
                        continue;
                    }
                }
                if merged.contains(element) {
                    l += 1;
                }
            }
            if r < self.applied.len() {
                let element = self.applied[r].0.clone();
                self.emit(r);
                if shared.get(next_shared) == Some(&element) {
                    next_shared += 1;
                }
                merged.insert(element);
                r += 1;
            }
        }
        self.out
    }

    /// The applied item, merged into its live counterpart.
    fn emit(&mut self, at: usize) {
        let (element, config) = &self.applied[at];
        let mine = self.live_at.get(element).copied().flatten().and_then(|at| self.live[at].1.take());
        let merged = match mine {
            Some(mut mine) => {
                merge(self.list.items, &mut mine, config);
                mine
            }
            None => (*config).clone(),
        };
        self.out.push(merged);
    }
}
