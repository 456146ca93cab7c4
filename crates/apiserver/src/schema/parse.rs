//! From the JSON of a CRD's `openAPIV3Schema` to a [`Schema`].
//!
//! Only what cannot be represented is refused here (a value of the wrong JSON type, an unknown type name, a pattern
//! that does not compile, absurd nesting). Whether the schema is structural is another question, see [`crate::crd`].

use super::path::Path;
use super::{Additional, Branch, Limits, ListType, Pattern, Rule, Schema, Type, pattern};
use crate::status::FieldError;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Deeper schemas are refused: all walks recurse along them.
const MAX_DEPTH: usize = 100;

/// Parses `openAPIV3Schema`; problems are named relative to it.
pub fn parse(openapi_v3_schema: &Value) -> Result<Arc<Schema>, Vec<FieldError>> {
    parse_at("openAPIV3Schema", openapi_v3_schema)
}

/// The same, with `base` as the path of the schema in its CRD.
pub fn parse_at(base: &str, openapi_v3_schema: &Value) -> Result<Arc<Schema>, Vec<FieldError>> {
    let mut parser = Parser::default();
    let schema = parser.schema(openapi_v3_schema, &Path::Base(base));
    if parser.errors.is_empty() { Ok(Arc::new(schema)) } else { Err(parser.errors) }
}

#[derive(Default)]
struct Parser {
    errors: Vec<FieldError>,
    depth: usize,
}

/// One JSON object of the schema, with the reader's complaints.
struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: &'a Path<'a>,
    errors: &'a mut Vec<FieldError>,
}

impl<'a> Fields<'a> {
    /// `None` for absent and null alike.
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    fn read<T>(&mut self, key: &str, what: &str, convert: impl Fn(&'a Value) -> Option<T>) -> Option<T> {
        let value = self.get(key)?;
        let converted = convert(value);
        if converted.is_none() {
            let field = self.path.field(key).bracketed();
            self.errors.push(FieldError::invalid(field, value.clone(), format!("must be {what}")));
        }
        converted
    }

    fn text(&mut self, key: &str) -> Option<String> {
        self.read(key, "a string", |v| v.as_str().map(String::from)).filter(|s| !s.is_empty())
    }

    fn flag(&mut self, key: &str) -> bool {
        self.read(key, "a boolean", Value::as_bool).unwrap_or_default()
    }

    fn count(&mut self, key: &str) -> Option<u64> {
        self.read(key, "a non-negative integer", |v| {
            v.as_u64().or_else(|| v.as_f64().filter(|f| f.fract() == 0.0 && *f >= 0.0).map(|f| f as u64))
        })
    }

    fn number(&mut self, key: &str) -> Option<f64> {
        self.read(key, "a number", Value::as_f64)
    }

    fn texts(&mut self, key: &str) -> Vec<String> {
        self.read(key, "a list of strings", |v| {
            v.as_array()?.iter().map(|item| item.as_str().map(String::from)).collect()
        })
        .unwrap_or_default()
    }

    fn ty(&mut self) -> Option<Type> {
        let name = self.text("type")?;
        let ty = Type::of(&name);
        if ty.is_none() {
            let names = ["array", "boolean", "integer", "number", "object", "string"];
            self.errors.push(FieldError::not_supported(
                self.path.field("type").bracketed(),
                name.into(),
                &names,
            ));
        }
        ty
    }

    fn pattern(&mut self) -> Option<Pattern> {
        let source = self.text("pattern")?;
        match pattern::compile(&source) {
            Ok(pattern) => Some(pattern),
            Err(why) => {
                let detail = format!("must be a valid regular expression, but isn't: {why}");
                let field = self.path.field("pattern").bracketed();
                self.errors.push(FieldError::invalid(field, source.into(), detail));
                None
            }
        }
    }
}

impl Parser {
    /// The object at `path`, one level deeper; an empty one when there is none.
    fn object<'v>(&mut self, value: &'v Value, path: &Path<'_>) -> Option<&'v Map<String, Value>> {
        if self.depth >= MAX_DEPTH {
            let detail = format!("must not be nested more than {MAX_DEPTH} levels deep");
            self.errors.push(FieldError::forbidden(path.bracketed(), detail));
            return None;
        }
        let map = value.as_object();
        if map.is_none() {
            let detail = "must be a schema, which is an object";
            self.errors.push(FieldError::invalid(path.bracketed(), value.clone(), detail));
        }
        map
    }

    fn schema(&mut self, value: &Value, path: &Path<'_>) -> Schema {
        let Some(map) = self.object(value, path) else { return Schema::default() };
        self.depth += 1;
        let mut fields = Fields { map, path, errors: &mut self.errors };
        let mut schema = Schema {
            ty: fields.ty(),
            format: fields.text("format"),
            title: fields.text("title"),
            description: fields.text("description"),
            nullable: fields.flag("nullable"),
            default: fields.get("default").cloned(),
            int_or_string: fields.flag("x-kubernetes-int-or-string"),
            preserve_unknown: fields.flag("x-kubernetes-preserve-unknown-fields"),
            embedded_resource: fields.flag("x-kubernetes-embedded-resource"),
            list_map_keys: fields.texts("x-kubernetes-list-map-keys"),
            list_type: match fields.text("x-kubernetes-list-type").as_deref() {
                Some("set") => ListType::Set,
                Some("map") => ListType::Map,
                _ => ListType::Atomic,
            },
            atomic_map: fields.text("x-kubernetes-map-type").as_deref() == Some("atomic"),
            rules: fields.read("x-kubernetes-validations", "a list of rules", rules).unwrap_or_default(),
            ..Schema::default()
        };
        let properties = path.field("properties");
        for (name, child) in self.properties(map, &properties) {
            schema.properties.insert(name.clone(), Arc::new(self.schema(child, &properties.key(name))));
        }
        schema.items =
            map.get("items").filter(|v| !v.is_null()).map(|v| Arc::new(self.schema(v, &path.field("items"))));
        schema.additional = match map.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => Additional::Nothing,
            Some(Value::Bool(true)) => Additional::Anything,
            Some(values) => {
                Additional::Of(Arc::new(self.schema(values, &path.field("additionalProperties"))))
            }
        };
        schema.limits = self.limits(map, path);
        self.depth -= 1;
        schema
    }

    fn properties<'v>(
        &mut self,
        map: &'v Map<String, Value>,
        path: &Path<'_>,
    ) -> impl Iterator<Item = (&'v String, &'v Value)> + use<'v> {
        let found = map.get("properties").filter(|v| !v.is_null());
        if let Some(other) = found.filter(|v| !v.is_object()) {
            self.errors.push(FieldError::invalid(path.bracketed(), other.clone(), "must be an object"));
        }
        found.and_then(Value::as_object).into_iter().flatten()
    }

    fn limits(&mut self, map: &Map<String, Value>, path: &Path<'_>) -> Limits {
        let mut fields = Fields { map, path, errors: &mut self.errors };
        let mut limits = Limits {
            required: fields.texts("required"),
            enumeration: fields.read("enum", "a list", |v| v.as_array().cloned()),
            pattern: fields.pattern(),
            min_length: fields.count("minLength"),
            max_length: fields.count("maxLength"),
            minimum: fields.number("minimum"),
            exclusive_minimum: fields.flag("exclusiveMinimum"),
            maximum: fields.number("maximum"),
            exclusive_maximum: fields.flag("exclusiveMaximum"),
            multiple_of: fields.number("multipleOf"),
            min_items: fields.count("minItems"),
            max_items: fields.count("maxItems"),
            unique_items: fields.flag("uniqueItems"),
            min_properties: fields.count("minProperties"),
            max_properties: fields.count("maxProperties"),
            ..Limits::default()
        };
        limits.all_of = self.branches(map, "allOf", path);
        limits.any_of = self.branches(map, "anyOf", path);
        limits.one_of = self.branches(map, "oneOf", path);
        limits.not =
            map.get("not").filter(|v| !v.is_null()).map(|v| Box::new(self.branch(v, &path.field("not"))));
        limits
    }

    fn branches(&mut self, map: &Map<String, Value>, key: &str, path: &Path<'_>) -> Vec<Branch> {
        let here = path.field(key);
        match map.get(key) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => {
                list.iter().enumerate().map(|(index, v)| self.branch(v, &here.index(index))).collect()
            }
            Some(other) => {
                self.errors.push(FieldError::invalid(here.bracketed(), other.clone(), "must be a list"));
                Vec::new()
            }
        }
    }

    fn branch(&mut self, value: &Value, path: &Path<'_>) -> Branch {
        let Some(map) = self.object(value, path) else { return Branch::default() };
        self.depth += 1;
        let mut fields = Fields { map, path, errors: &mut self.errors };
        let (ty, format) = (fields.ty(), fields.text("format"));
        let here = path.field("properties");
        let mut properties = BTreeMap::new();
        for (name, child) in self.properties(map, &here) {
            properties.insert(name.clone(), self.branch(child, &here.key(name)));
        }
        let sub = |key: &str| map.get(key).filter(|v| v.is_object());
        let additional = sub("additionalProperties")
            .map(|v| Box::new(self.branch(v, &path.field("additionalProperties"))));
        let items = sub("items").map(|v| Box::new(self.branch(v, &path.field("items"))));
        let limits = self.limits(map, path);
        self.depth -= 1;
        Branch { ty, format, limits, properties, additional, items }
    }
}

fn rules(value: &Value) -> Option<Vec<Rule>> {
    value.as_array()?.iter().map(rule).collect()
}

fn rule(value: &Value) -> Option<Rule> {
    let map = value.as_object()?;
    let text = |key: &str| match map.get(key) {
        None | Some(Value::Null) => Some(None),
        Some(Value::String(text)) => Some((!text.is_empty()).then(|| text.clone())),
        Some(_) => None,
    };
    Some(Rule {
        rule: text("rule")?.unwrap_or_default(),
        message: text("message")?,
        message_expression: text("messageExpression")?,
        reason: text("reason")?,
        field_path: text("fieldPath")?,
        optional_old_self: match map.get("optionalOldSelf") {
            None | Some(Value::Null) => None,
            Some(flag) => Some(flag.as_bool()?),
        },
    })
}
