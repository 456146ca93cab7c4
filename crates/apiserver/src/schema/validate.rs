//! Validation of a value against a schema, in the order and the words of Kubernetes' OpenAPI validator.
//!
//! All problems are reported, not the first one. With an old object at hand, problems under a value that did not
//! change are dropped again (see [`super::ratchet`]). A count of the checks made runs along, because of several failed
//! `anyOf`/`oneOf` branches Kubernetes reports the one that got furthest.

use super::node::{Node, Types, checked_format, wrong_type};
use super::numbers::{Num, go_float, shown};
use super::path::{Path, WHOLE};
use super::ratchet::Old;
use super::{Branch, Limits, Schema, Type, embedded, formats, lists};
use crate::status::{FieldError, FieldProblem};
use serde_json::{Map, Number, Value};

/// Validates a new object.
pub fn validate(schema: &Schema, object: &Value) -> Vec<FieldError> {
    let mut walk = Walk::default();
    walk.node(schema, object, None, &Path::Root);
    walk.finish()
}

/// Validates a changed object: what was wrong before and did not change is let through.
pub fn validate_update(schema: &Schema, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut walk = Walk::default();
    walk.node(schema, new, Some(Old { schema, value: old }), &Path::Root);
    walk.ratchet_lists(schema, old);
    walk.finish()
}

/// Validates a write to the status: of both objects only the status is looked at, and messages speak of its fields.
pub fn validate_status_update(schema: &Schema, new: &Value, old: &Value) -> Vec<FieldError> {
    let (Some(of_status), Some(status)) = (schema.properties.get("status"), new.get("status")) else {
        return Vec::new();
    };
    let mut walk = Walk::default();
    let old_status = old.get("status").map(|value| Old { schema: of_status, value });
    walk.node(&**of_status, status, old_status, &Path::Root);
    walk.ratchet_lists(of_status, old.get("status").unwrap_or(&Value::Null));
    // Embedded resources are checked on the main path only.
    walk.embedded.clear();
    let mut errors = walk.finish();
    for error in &mut errors {
        error.field = match error.field.as_str() {
            WHOLE => "status".to_string(),
            inner => format!("status.{inner}"),
        };
    }
    errors
}

/// The OpenAPI part alone: what is asked of a default.
pub(crate) fn validate_value(schema: &Schema, value: &Value) -> Vec<FieldError> {
    let mut walk = Walk::default();
    walk.node(schema, value, None, &Path::Root);
    walk.lists.clear();
    walk.finish()
}

/// One walk over a value.
#[derive(Default)]
struct Walk {
    errors: Vec<FieldError>,
    /// Problems of embedded resources, which do not ratchet.
    embedded: Vec<FieldError>,
    /// Problems of sets and list maps.
    lists: Vec<FieldError>,
    checks: u64,
}

impl Walk {
    /// The same problem can be found on several ways; it is reported once.
    fn finish(mut self) -> Vec<FieldError> {
        if !self.errors.is_empty() {
            self.errors = self.unique();
        }
        self.errors.append(&mut self.embedded);
        self.errors.append(&mut self.lists);
        self.errors
    }

    /// Sets and list maps ratchet as a whole: they count only when the old object's were all in order.
    fn ratchet_lists(&mut self, schema: &Schema, old: &Value) {
        if self.lists.is_empty() {
            return;
        }
        let mut before = Walk::default();
        before.node(schema, old, None, &Path::Root);
        if !before.lists.is_empty() {
            self.lists.clear();
        }
    }

    fn unique(&mut self) -> Vec<FieldError> {
        let mut out: Vec<FieldError> = Vec::with_capacity(self.errors.len());
        for error in self.errors.drain(..) {
            if !out.contains(&error) {
                out.push(error);
            }
        }
        out
    }

    fn node<N: Node>(&mut self, node: &N, value: &Value, old: Option<Old<'_>>, path: &Path<'_>) {
        let before = self.errors.len();
        self.checks_of(node, value, old, path);
        if self.errors.len() > before && old.is_some_and(|old| old.equals(value)) {
            self.errors.truncate(before);
        }
    }

    fn checks_of<N: Node>(&mut self, node: &N, value: &Value, old: Option<Old<'_>>, path: &Path<'_>) {
        let limits = node.limits();
        let types = node.types();
        let format = checked_format(types, node.format());
        if value.is_null() {
            self.null(types, node.nullable(), path);
            self.enumeration(limits, value, path);
            return;
        }
        if types != Types::Any || format.is_some() {
            let wrong = wrong_type(types, format, value);
            self.checks += if wrong.is_some() { 1 } else { 2 };
            if let Some((expected, found)) = wrong {
                self.push(FieldProblem::TypeInvalid, path, found.into(), |at| {
                    format!("{at} in body must be of type {expected}: {found:?}")
                });
            }
        }
        self.junctors(limits, value, old, path);
        self.checks += 2;
        match value {
            Value::String(text) => self.string(limits, format, text, path),
            Value::Number(number) => self.number(limits, types.one(), format, number, path),
            Value::Array(items) => self.array(node, items, old, path),
            _ => {}
        }
        self.enumeration(limits, value, path);
        self.checks += 1;
        if let Value::Object(map) = value {
            self.object(node, map, old, path);
            self.checks += 1;
        }
        self.checks += 1;
    }

    fn null(&mut self, types: Types, nullable: bool, path: &Path<'_>) {
        if types == Types::Any || nullable {
            self.checks += 1;
            return;
        }
        self.push(FieldProblem::TypeInvalid, path, "null".into(), |at| {
            format!("{at} in body must be of type {}: \"null\"", types.names())
        });
    }

    fn enumeration(&mut self, limits: &Limits, value: &Value, path: &Path<'_>) {
        let Some(allowed) = limits.enumeration.as_deref().filter(|list| !list.is_empty()) else { return };
        if !value.is_null() && allowed.iter().any(|one| same(one, value)) {
            return;
        }
        let texts: Vec<String> = allowed
            .iter()
            .map(|one| one.as_str().map_or_else(|| one.to_string(), ToString::to_string))
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        self.errors.push(FieldError::not_supported(name_of(path), shown(value), &texts));
    }

    fn string(&mut self, limits: &Limits, format: Option<&str>, text: &str, path: &Path<'_>) {
        self.checks += 1;
        self.text_limits(limits, text, path);
        let Some(format) = format else { return };
        if let Some(valid) = formats::check(format, text) {
            self.checks += 1;
            if !valid {
                self.push(FieldProblem::TypeInvalid, path, text.into(), |at| {
                    format!("{at} in body must be of type {format}: {text:?}")
                });
            }
        }
    }

    /// Only the first of these is reported.
    fn text_limits(&mut self, limits: &Limits, text: &str, path: &Path<'_>) {
        if limits.max_length.is_some() || limits.min_length.is_some() {
            let length = text.chars().count() as u64;
            if let Some(max) = limits.max_length.filter(|max| length > *max) {
                let unit = if max == 1 { "byte" } else { "bytes" };
                self.errors.push(FieldError::new(
                    FieldProblem::TooLong,
                    name_of(path),
                    Value::Null,
                    format!("may not be more than {max} {unit}"),
                ));
                return;
            }
            if let Some(min) = limits.min_length.filter(|min| length < *min) {
                return self.invalid(path, text.into(), |at| {
                    format!("{at} in body should be at least {min} chars long")
                });
            }
        }
        if let Some(pattern) = limits.pattern.as_ref().filter(|p| !p.regex.is_match(text)) {
            self.invalid(path, text.into(), |at| format!("{at} in body should match '{}'", pattern.source));
        }
    }

    fn number(
        &mut self,
        limits: &Limits,
        ty: Option<Type>,
        format: Option<&str>,
        number: &Number,
        path: &Path<'_>,
    ) {
        self.checks += 2;
        // A format counts here only for the two numeric types.
        let format = format.filter(|_| matches!(ty, Some(Type::Integer | Type::Number)));
        let value = Num::from(number);
        self.range("Checked", value, ty, format, path);
        if let Some(factor) = limits.multiple_of {
            self.range("MultipleOf", Num::Float(factor), ty, format, path);
            self.multiple_of(value, factor, number, path);
        }
        // The bounds are floats; against an integer Kubernetes compares their whole part.
        let (data, whole) = (value.as_f64(), matches!(value, Num::Int(_)));
        let bound = |limit: f64| if whole { limit.trunc() } else { limit };
        if let Some(min) = limits.minimum {
            self.range("Minimum boundary", Num::Float(min), ty, format, path);
            let (min, strict) = (bound(min), limits.exclusive_minimum);
            if data < min || (strict && data <= min) {
                let words = if strict { "greater than" } else { "greater than or equal to" };
                self.invalid(path, shown(&Value::Number(number.clone())), |at| {
                    format!("{at} in body should be {words} {}", go_float(min))
                });
            }
        }
        if let Some(max) = limits.maximum {
            self.range("Maximum boundary", Num::Float(max), ty, format, path);
            let (max, strict) = (bound(max), limits.exclusive_maximum);
            if data > max || (strict && data >= max) {
                let words = if strict { "less than" } else { "less than or equal to" };
                self.invalid(path, shown(&Value::Number(number.clone())), |at| {
                    format!("{at} in body should be {words} {}", go_float(max))
                });
            }
        }
    }

    fn multiple_of(&mut self, value: Num, factor: f64, number: &Number, path: &Path<'_>) {
        let fits = match value {
            Num::Int(int) if factor >= 1.0 => int % (factor as i64) == 0,
            Num::Int(_) if factor <= 0.0 => true,
            _ => {
                let ratio = value.as_f64() / factor;
                (ratio - ratio.round()).abs() < 1e-9
            }
        };
        if !fits {
            self.invalid(path, shown(&Value::Number(number.clone())), |at| {
                format!("{at} in body should be a multiple of {}", go_float(factor))
            });
        }
    }

    fn range(&mut self, what: &str, value: Num, ty: Option<Type>, format: Option<&str>, path: &Path<'_>) {
        if value.fits(ty, format) {
            return;
        }
        let name = ty.map_or("", Type::name);
        let format = format.map_or_else(|| "(default format)".to_string(), |f| format!("with format {f}"));
        let at = path.dotted();
        self.whole(format!("{what} value must be of type {name} {format} in {at}"));
    }

    fn array<N: Node>(&mut self, node: &N, items: &[Value], old: Option<Old<'_>>, path: &Path<'_>) {
        if let Some(item_node) = node.items() {
            for (index, item) in items.iter().enumerate() {
                let old_item = old.and_then(|old| old.item(item));
                self.node(item_node, item, old_item, &path.index(index));
            }
        }
        if let Some(schema) = node.structural() {
            lists::check(schema, items, path, &mut self.lists);
        }
        let limits = node.limits();
        let size = items.len() as u64;
        if let Some(min) = limits.min_items.filter(|min| size < *min) {
            self.invalid(path, size.into(), |at| format!("{at} in body should have at least {min} items"));
        }
        if let Some(max) = limits.max_items.filter(|max| size > *max) {
            self.too_many(path, size, max);
        }
        if limits.unique_items && items.iter().enumerate().any(|(i, item)| items[..i].contains(item)) {
            self.invalid(path, "".into(), |at| format!("{at} in body shouldn't contain duplicates"));
        }
        self.checks += 2;
    }

    fn object<N: Node>(&mut self, node: &N, map: &Map<String, Value>, old: Option<Old<'_>>, path: &Path<'_>) {
        if !path.is_root() && node.structural().is_some_and(|s| s.embedded_resource) {
            embedded::check(map, path, &mut self.embedded);
        }
        let limits = node.limits();
        let size = map.len() as u64;
        if let Some(min) = limits.min_properties.filter(|min| size < *min) {
            self.invalid(path, size.into(), |at| {
                format!("{at} in body should have at least {min} properties")
            });
        }
        if let Some(max) = limits.max_properties.filter(|max| size > *max) {
            self.too_many(path, size, max);
        }
        for (key, value) in map {
            // A change of type cannot be told from the objects, so these two are always checked.
            let ratchet = !(path.is_root() && matches!(key.as_str(), "apiVersion" | "kind"));
            let old_child = old.filter(|_| ratchet).and_then(|old| old.key(key));
            if let Some(child) = node.property(key) {
                self.node(child, value, old_child, &path.field(key));
            } else if let Some(child) = node.values() {
                self.node(child, value, old_child, &path.key(key));
            }
        }
        for name in &limits.required {
            if !map.contains_key(name) {
                self.errors.push(FieldError::required(path.field(name).dotted(), ""));
            }
        }
    }

    fn junctors(&mut self, limits: &Limits, value: &Value, old: Option<Old<'_>>, path: &Path<'_>) {
        if !limits.any_of.is_empty() {
            self.any_of(&limits.any_of, value, old, path);
        }
        if !limits.one_of.is_empty() {
            self.one_of(&limits.one_of, value, old, path);
        }
        if !limits.all_of.is_empty() {
            let mut valid = 0;
            for branch in &limits.all_of {
                let walk = Walk::branch(branch, value, old, path);
                valid += usize::from(walk.errors.is_empty());
                self.merge(walk);
            }
            if valid != limits.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                self.whole(format!("{:?} must validate all the schemas (allOf){none}", path.dotted()));
            }
        }
        if let Some(not) = &limits.not
            && Walk::branch(not, value, old, path).errors.is_empty()
        {
            self.whole(format!("{:?} must not validate the schema (not)", path.dotted()));
        }
    }

    fn any_of(&mut self, branches: &[Branch], value: &Value, old: Option<Old<'_>>, path: &Path<'_>) {
        let mut best: Option<Walk> = None;
        for branch in branches {
            let walk = Walk::branch(branch, value, old, path);
            if walk.errors.is_empty() {
                return self.merge(walk);
            }
            if best.as_ref().is_none_or(|b| walk.checks > b.checks) {
                best = Some(walk);
            }
        }
        self.whole(format!("{:?} must validate at least one schema (anyOf)", path.dotted()));
        self.merge(best.unwrap_or_default());
    }

    fn one_of(&mut self, branches: &[Branch], value: &Value, old: Option<Old<'_>>, path: &Path<'_>) {
        let mut best: Option<Walk> = None;
        let mut first_valid: Option<Walk> = None;
        let mut valid = 0;
        for branch in branches {
            let walk = Walk::branch(branch, value, old, path);
            if walk.errors.is_empty() {
                valid += 1;
                best = None;
                first_valid.get_or_insert(walk);
            } else if valid == 0 && best.as_ref().is_none_or(|b| walk.checks > b.checks) {
                best = Some(walk);
            }
        }
        if valid == 1 {
            return self.merge(first_valid.unwrap_or_default());
        }
        let found = if valid == 0 {
            "Found none valid".to_string()
        } else {
            format!("Found {valid} valid alternatives")
        };
        self.whole(format!("{:?} must validate one and only one schema (oneOf). {found}", path.dotted()));
        self.merge(best.unwrap_or_default());
    }

    fn branch(branch: &Branch, value: &Value, old: Option<Old<'_>>, path: &Path<'_>) -> Walk {
        let mut walk = Walk::default();
        walk.checks_of(branch, value, old, path);
        walk
    }

    fn merge(&mut self, mut other: Walk) {
        self.errors.append(&mut other.errors);
        self.checks += other.checks;
    }

    fn push(
        &mut self,
        problem: FieldProblem,
        path: &Path<'_>,
        value: Value,
        detail: impl FnOnce(&str) -> String,
    ) {
        let at = path.dotted();
        let detail = detail(&at);
        self.errors.push(FieldError::new(problem, name_of(path), value, detail));
    }

    fn invalid(&mut self, path: &Path<'_>, value: Value, detail: impl FnOnce(&str) -> String) {
        self.push(FieldProblem::Invalid, path, value, detail);
    }

    /// Problems that Kubernetes reports without a field.
    fn whole(&mut self, detail: String) {
        self.errors.push(FieldError::invalid(WHOLE, "".into(), detail));
    }

    fn too_many(&mut self, path: &Path<'_>, size: u64, max: u64) {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        self.errors.push(FieldError::new(FieldProblem::TooMany, name_of(path), size.into(), detail));
    }
}

fn name_of(path: &Path<'_>) -> String {
    let dotted = path.dotted();
    if dotted.is_empty() { WHOLE.to_string() } else { dotted }
}

/// Equality in an enumeration: numbers by value.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Num::from(a).as_f64() == Num::from(b).as_f64(),
        _ => a == b,
    }
}
