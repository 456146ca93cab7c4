//! `x-kubernetes-validations`: CEL rules, compiled once per schema.
//!
//! [`Rules`] mirrors the schema's tree but keeps only the branches that hold rules, so a schema without rules costs
//! nothing and an object is walked only where there is something to check.

use super::bind::bind;
use super::budget;
use super::cel::{Expression, Scope, with_scope};
use super::path::{Path, WHOLE};
use super::ratchet::Old;
use super::{Additional, ListType, Rule, Schema};
use crate::status::{FieldError, FieldProblem};
use kube_cel::cel::Value as Cel;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longer results of a `messageExpression` are not used.
const LONGEST_MESSAGE: usize = 5 << 10;

/// The compiled rules of one schema.
#[derive(Debug, Default)]
pub struct Rules {
    root: Option<Node>,
}

#[derive(Debug)]
struct Node {
    schema: Arc<Schema>,
    rules: Vec<Compiled>,
    properties: BTreeMap<String, Node>,
    values: Option<Box<Node>>,
    items: Option<Box<Node>>,
}

#[derive(Debug)]
struct Compiled {
    rule: Rule,
    condition: Expression,
    message: Option<Expression>,
    /// `fieldPath` as it is printed.
    field: Option<String>,
    /// How deep comprehensions are nested in the condition.
    nesting: u32,
}

/// About how many steps of comprehensions a rule may take on one value. The library has no budget of its own, and a rule
/// that loops over a long list within itself would hold a thread for hours.
const BUDGET: u64 = 20_000_000;

/// Compiles and checks in one go, for occasional use.
pub fn validate_rules(schema: &Schema, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let (rules, mut errors) = Rules::compile(schema);
    errors.extend(rules.check(new, old));
    errors
}

/// What Kubernetes adds when an object is too broken for its rules to be looked at.
fn blocked(errors: &[FieldError]) -> bool {
    errors.iter().any(|error| {
        matches!(
            error.problem,
            FieldProblem::NotSupported
                | FieldProblem::Required
                | FieldProblem::TooLong
                | FieldProblem::TooMany
                | FieldProblem::TypeInvalid
        )
    })
}

impl Rules {
    /// Compiles all rules; those that do not compile are reported and left out. Paths are relative to the schema.
    pub fn compile(schema: &Schema) -> (Rules, Vec<FieldError>) {
        Self::compile_at("openAPIV3Schema", schema)
    }

    /// The same, with `base` as the path of the schema in its CRD.
    pub fn compile_at(base: &str, schema: &Schema) -> (Rules, Vec<FieldError>) {
        let mut errors = Vec::new();
        // The common case first: nothing to compile, nothing to copy.
        if !has_rules(schema) {
            return (Rules::default(), errors);
        }
        let root = compile_node(&Arc::new(schema.clone()), &Path::Base(base), None, &mut errors);
        (Rules { root }, errors)
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Checks an object; `old` is the one it replaces.
    pub fn check(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        if let Some(root) = &self.root {
            let old = old.map(|value| Old { schema: &root.schema, value });
            let place = Place { value: new, old, nearest: old.map(|old| (old, new)), path: Path::Root };
            root.check(&place, &mut errors);
        }
        errors
    }

    /// Checks after all other validation: rules are not run on an object that is broken already, and that is said.
    pub fn check_after(&self, errors: &mut Vec<FieldError>, new: &Value, old: Option<&Value>) {
        if self.root.is_none() {
            return;
        }
        if blocked(errors) {
            errors.push(FieldError::invalid(
                WHOLE,
                Value::Null,
                "some validation rules were not checked because the object was invalid; correct the existing errors \
                 to complete validation",
            ));
        } else {
            errors.extend(self.check(new, old));
        }
    }
}

fn has_rules(schema: &Schema) -> bool {
    !schema.rules.is_empty()
        || schema.properties.values().any(|s| has_rules(s))
        || schema.items.as_deref().is_some_and(has_rules)
        || matches!(&schema.additional, Additional::Of(values) if has_rules(values))
}

/// `unmatched` is the list above, if any, whose items have no old selves.
fn compile_node(
    schema: &Arc<Schema>,
    path: &Path<'_>,
    unmatched: Option<&Path<'_>>,
    errors: &mut Vec<FieldError>,
) -> Option<Node> {
    let mut rules = Vec::new();
    let here = path.field("x-kubernetes-validations");
    for (index, rule) in schema.rules.iter().enumerate() {
        let compiled = compile_rule(schema, rule, &here.index(index), errors);
        if let Some(compiled) = &compiled {
            check_old_self(compiled, &here.index(index), unmatched, errors);
        }
        rules.extend(compiled);
    }
    let mut properties = BTreeMap::new();
    let of_properties = path.field("properties");
    for (name, property) in &schema.properties {
        if let Some(node) = compile_node(property, &of_properties.key(name), unmatched, errors) {
            properties.insert(name.clone(), node);
        }
    }
    let below = unmatched.or((schema.list_type != ListType::Map).then_some(path));
    let items = schema.items.as_ref().and_then(|s| compile_node(s, &path.field("items"), below, errors));
    let values = match &schema.additional {
        Additional::Of(values) => {
            compile_node(values, &path.field("additionalProperties"), unmatched, errors)
        }
        _ => None,
    };
    let empty = rules.is_empty() && properties.is_empty() && items.is_none() && values.is_none();
    (!empty).then(|| Node {
        schema: Arc::clone(schema),
        rules,
        properties,
        values: values.map(Box::new),
        items: items.map(Box::new),
    })
}

fn compile_rule(
    schema: &Schema,
    rule: &Rule,
    path: &Path<'_>,
    errors: &mut Vec<FieldError>,
) -> Option<Compiled> {
    let mut refuse = |field: &str, why: String| {
        errors.push(FieldError::invalid(path.field(field).bracketed(), shown(rule), why));
    };
    let condition = match Expression::compile(&rule.rule) {
        Ok(condition) => condition,
        Err(why) => {
            refuse("rule", format!("compilation failed: {why}"));
            return None;
        }
    };
    let message = match rule.message_expression.as_deref().map(Expression::compile).transpose() {
        Ok(message) => message,
        Err(why) => {
            refuse("messageExpression", format!("messageExpression compilation failed: {why}"));
            return None;
        }
    };
    let field = rule.field_path.as_deref().and_then(|text| field_path(schema, text));
    let nesting = budget::nesting(&rule.rule);
    Some(Compiled { rule: rule.clone(), condition, message, field, nesting })
}

fn check_old_self(
    compiled: &Compiled,
    path: &Path<'_>,
    unmatched: Option<&Path<'_>>,
    errors: &mut Vec<FieldError>,
) {
    let rule = &compiled.rule;
    match (compiled.condition.uses_old_self, unmatched, rule.optional_old_self) {
        (true, Some(list), _) => {
            let detail = format!(
                "oldSelf cannot be used on the uncorrelatable portion of the schema within {}",
                list.bracketed()
            );
            errors.push(FieldError::invalid(
                path.field("rule").bracketed(),
                rule.rule.as_str().into(),
                detail,
            ));
        }
        (false, _, Some(optional)) => {
            let field = path.field("optionalOldSelf").bracketed();
            errors.push(FieldError::invalid(
                field,
                optional.into(),
                "may not be set if oldSelf is not used in rule",
            ));
        }
        _ => {}
    }
}

/// A rule as Kubernetes shows it in an error.
fn shown(rule: &Rule) -> Value {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    serde_json::json!({
        "Rule": rule.rule, "Message": text(&rule.message), "MessageExpression": text(&rule.message_expression),
        "Reason": rule.reason, "FieldPath": text(&rule.field_path), "OptionalOldSelf": rule.optional_old_self,
    })
}

/// A `fieldPath` (`.a.b`, `.a['b.c']`) in the form of an error's path; `None` when it leads nowhere.
pub(crate) fn field_path(schema: &Schema, text: &str) -> Option<String> {
    let mut out = String::new();
    let mut at = schema;
    let mut rest = text;
    while !rest.is_empty() {
        let name;
        if let Some(quoted) = rest.strip_prefix("['") {
            let end = quoted.find("']")?;
            name = quoted[..end].replace("\\'", "'");
            rest = &quoted[end + 2..];
        } else {
            let plain = rest.strip_prefix('.')?;
            let end = plain.find(['.', '[']).unwrap_or(plain.len());
            name = plain[..end].to_string();
            rest = &plain[end..];
        }
        if let Some(property) = at.properties.get(&name) {
            if !out.is_empty() {
                out.push('.');
            }
            out.push_str(&name);
            at = property;
        } else if let (true, Additional::Of(values)) = (at.properties.is_empty(), &at.additional) {
            out.push_str(&format!("[{name}]"));
            at = values;
        } else {
            return None;
        }
    }
    (!out.is_empty()).then_some(out)
}

/// One value on the way down.
struct Place<'a> {
    value: &'a Value,
    /// What it replaces.
    old: Option<Old<'a>>,
    /// The closest value from here upwards that replaces another one, with its old self: rules on what did not change
    /// are let through.
    nearest: Option<(Old<'a>, &'a Value)>,
    path: Path<'a>,
}

impl<'a> Place<'a> {
    fn child(&'a self, value: &'a Value, old: Option<Old<'a>>, path: Path<'a>) -> Place<'a> {
        Place { value, old, nearest: old.map(|old| (old, value)).or(self.nearest), path }
    }

    fn unchanged(&self) -> bool {
        self.nearest.is_some_and(|(old, new)| old.equals(new))
    }
}

impl Node {
    fn check(&self, place: &Place<'_>, errors: &mut Vec<FieldError>) {
        if place.value.is_null() {
            return;
        }
        if !self.rules.is_empty() {
            self.check_here(place, errors);
        }
        match place.value {
            Value::Object(map) => {
                for (key, value) in map {
                    let old = place.old.and_then(|old| old.key(key));
                    if let Some(node) = self.properties.get(key) {
                        node.check(&place.child(value, old, place.path.field(key)), errors);
                    } else if let Some(node) = &self.values {
                        node.check(&place.child(value, old, place.path.key(key)), errors);
                    }
                }
            }
            Value::Array(items) => {
                let Some(node) = &self.items else { return };
                for (index, item) in items.iter().enumerate() {
                    let old = place.old.and_then(|old| old.item(item));
                    node.check(&place.child(item, old, place.path.index(index)), errors);
                }
            }
            _ => {}
        }
    }

    fn check_here(&self, place: &Place<'_>, errors: &mut Vec<FieldError>) {
        let root = place.path.is_root();
        let old = place.old.map(|old| old.value).filter(|old| !old.is_null());
        let due = |rule: &Compiled| {
            old.is_some() || !rule.condition.uses_old_self || rule.rule.optional_old_self == Some(true)
        };
        if !self.rules.iter().any(due) {
            return;
        }
        // Binding copies the value; the old one is bound only for rules that look at it.
        let needs_old = self.rules.iter().any(|r| r.uses_old());
        let this = bind(&self.schema, place.value, root);
        let old = old.filter(|_| needs_old).map(|old| bind(&self.schema, old, root));
        with_scope(this, old, |scope| {
            let found = self.rules.iter().filter(|rule| due(rule));
            errors.extend(found.filter_map(|rule| rule.check(&self.schema, scope, place)));
        });
    }
}

impl Compiled {
    fn uses_old(&self) -> bool {
        self.condition.uses_old_self || self.message.as_ref().is_some_and(|m| m.uses_old_self)
    }

    fn check(&self, schema: &Schema, scope: &Scope<'_>, place: &Place<'_>) -> Option<FieldError> {
        let optional = self.rule.optional_old_self == Some(true);
        if self.nesting > 0 && budget::steps(place.value, self.nesting) > BUDGET {
            let why = "validation failed due to running out of cost budget, no further validation rules will be run";
            return Some(self.violation(schema, why.to_string(), place));
        }
        let outcome = match self.condition.evaluate(scope, optional) {
            Ok(Cel::Bool(true)) => return None,
            Ok(Cel::Bool(false)) => Ok(()),
            Ok(_) => Err("cel expression must evaluate to a bool".to_string()),
            Err(why) => Err(why),
        };
        if let Err(why) = outcome {
            let name = if schema.int_or_string { "" } else { schema.ty.map_or("", |ty| ty.name()) };
            return Some(FieldError::invalid(place.path.bracketed(), name.into(), self.failure(&why)));
        }
        // Only rules that compare with the old value see a change in what did not change.
        if !self.condition.uses_old_self && place.unchanged() {
            return None;
        }
        Some(self.violation(schema, self.message_for(scope, optional), place))
    }

    /// A rule that could not be evaluated counts as broken.
    fn failure(&self, why: &str) -> String {
        let name = self.rule.message.as_deref().unwrap_or(&self.rule.rule).trim();
        if why.starts_with("no such overload") {
            format!(
                "'{why}': call arguments did not match a supported operator, function or macro signature for rule: \
                 {name}"
            )
        } else {
            format!("{why} evaluating rule: {name}")
        }
    }

    fn message_for(&self, scope: &Scope<'_>, optional: bool) -> String {
        let dynamic = self.message.as_ref().and_then(|message| match message.evaluate(scope, optional) {
            Ok(Cel::String(text)) => Some(text.trim().to_string()),
            _ => None,
        });
        let usable =
            |text: &String| !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n');
        dynamic.filter(usable).unwrap_or_else(|| match &self.rule.message {
            Some(message) => message.trim().to_string(),
            None => format!("failed rule: {}", self.rule.rule.trim()),
        })
    }

    fn violation(&self, schema: &Schema, message: String, place: &Place<'_>) -> FieldError {
        let base = place.path.bracketed();
        let field = match &self.field {
            None => base,
            Some(field) if place.path.is_root() => field.clone(),
            Some(field) if field.starts_with('[') => format!("{base}{field}"),
            Some(field) => format!("{base}.{field}"),
        };
        let error = match self.rule.reason.as_deref() {
            Some("FieldValueForbidden") => return FieldError::forbidden(field, message),
            Some("FieldValueRequired") => return FieldError::required(field, message),
            Some("FieldValueDuplicate") => {
                FieldError::new(FieldProblem::Duplicate, field, place.value.clone(), "")
            }
            _ => FieldError::invalid(field, place.value.clone(), message),
        };
        let compound = matches!(schema.ty, Some(super::Type::Object | super::Type::Array));
        if compound { error.without_value() } else { error }
    }
}
