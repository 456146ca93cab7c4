//! What a CRD's schema may say beyond being structural: list and map types, defaults, rules.

use super::structural;
use super::view::View;
use crate::schema::{Path, Rules, Schema, field_path, parse_at, prune_value, validate_value};
use crate::status::FieldError;
use serde_json::Value;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Fields allowed at the root when there is a status subresource: JSON name, and the name that Kubernetes prints.
const AT_ROOT: [(&str, &str); 22] = [
    ("description", "Description"),
    ("type", "Type"),
    ("format", "Format"),
    ("title", "Title"),
    ("maximum", "Maximum"),
    ("exclusiveMaximum", "ExclusiveMaximum"),
    ("minimum", "Minimum"),
    ("exclusiveMinimum", "ExclusiveMinimum"),
    ("maxLength", "MaxLength"),
    ("minLength", "MinLength"),
    ("pattern", "Pattern"),
    ("maxItems", "MaxItems"),
    ("minItems", "MinItems"),
    ("uniqueItems", "UniqueItems"),
    ("multipleOf", "MultipleOf"),
    ("required", "Required"),
    ("items", "Items"),
    ("properties", "Properties"),
    ("externalDocs", "ExternalDocs"),
    ("example", "Example"),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields"),
    ("x-kubernetes-validations", "XValidations"),
];

/// Checks one `openAPIV3Schema` at `base`.
pub(super) fn check(schema: &Value, base: &str, has_status: bool, errors: &mut Vec<FieldError>) {
    let path = Path::Base(base);
    let before = errors.len();
    if has_status {
        check_root(schema, &path, errors);
    }
    if schema.flag("nullable") {
        let field = path.field("nullable").bracketed();
        errors.push(FieldError::forbidden(field, "nullable cannot be true at the root"));
    }
    let mut parsed = None;
    if structural::is_readable(schema) {
        let problems = structural::check(schema, &path);
        if problems.is_empty() {
            match parse_at(base, schema) {
                Ok(tree) => {
                    check_defaults(&tree, &path, true, errors);
                    parsed = Some(tree);
                }
                // Unknown types are reported below, by the walk.
                Err(problems) => errors.extend(problems.into_iter().filter(|e| !e.field.ends_with(".type"))),
            }
        } else {
            errors.extend(problems);
        }
    }
    Walk { inside_meta: false, no_defaults: None }.node(schema, &path, true, errors);
    if let (true, Some(tree)) = (errors.len() == before, parsed) {
        errors.extend(Rules::compile_at(base, &tree).1);
    }
}

fn check_root(schema: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(map) = schema.as_object() else { return };
    for key in map.keys() {
        let ty = schema.text("type");
        if key == "type" && ty != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            errors.push(FieldError::invalid(path.field("type").bracketed(), ty.into(), detail));
            return;
        }
        if !AT_ROOT.iter().any(|(name, _)| name == key) {
            let names = AT_ROOT.map(|(_, printed)| printed).join(" ");
            let detail = format!(
                "only [{names}] fields are allowed at the root of the schema if the status subresource is enabled"
            );
            errors.push(FieldError::invalid(path.bracketed(), Value::Null, detail).without_value());
            return;
        }
    }
}

/// A default must be a value that its own schema accepts.
fn check_defaults(schema: &Schema, path: &Path<'_>, root: bool, errors: &mut Vec<FieldError>) {
    if let Some(default) = &schema.default {
        check_default(schema, default, &path.field("default").bracketed(), errors);
    }
    if let Some(items) = &schema.items {
        check_defaults(items, &path.field("items"), false, errors);
    }
    let properties = path.field("properties");
    for (name, property) in &schema.properties {
        // Defaults of the three type fields at the root are refused as such.
        if !(root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata")) {
            check_defaults(property, &properties.key(name), false, errors);
        }
    }
}

fn check_default(schema: &Schema, default: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let before = errors.len();
    let mut pruned = default.clone();
    prune_value(schema, &mut pruned);
    if pruned != *default {
        errors.push(FieldError::invalid(at, default.clone(), "must not have unknown fields"));
    }
    errors.extend(placed(validate_value(schema, default), at));
    if errors.len() == before {
        let (rules, broken) = Rules::compile(schema);
        // Rules that do not compile are reported where they stand.
        if broken.is_empty() {
            let mut problems = rules.check(default, Some(default));
            if problems.is_empty() {
                problems = rules.check(default, None);
            }
            errors.extend(placed(problems, at));
        }
    }
}

/// Moves problems of a value to where the value is.
fn placed(errors: Vec<FieldError>, at: &str) -> impl Iterator<Item = FieldError> {
    errors.into_iter().map(move |mut error| {
        error.field = match error.field.as_str() {
            "<nil>" => at.to_string(),
            inner if inner.starts_with('[') => format!("{at}{inner}"),
            inner => format!("{at}.{inner}"),
        };
        error
    })
}

/// What the place of a node forbids.
#[derive(Clone, Copy)]
struct Walk<'a> {
    inside_meta: bool,
    /// Why there may be no default.
    no_defaults: Option<&'a str>,
}

impl Walk<'_> {
    fn node(self, s: &Value, path: &Path<'_>, root: bool, errors: &mut Vec<FieldError>) {
        self.supported(s, path, errors);
        if s.flag("uniqueItems") {
            errors.push(FieldError::forbidden(
                path.field("uniqueItems").bracketed(),
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
            ));
        }
        self.additional(s, path, errors);
        self.properties(s, path, root, errors);
        if let Some(not) = s.some("not") {
            self.node(not, &path.field("not"), false, errors);
        }
        for key in ["allOf", "oneOf", "anyOf"] {
            let here = path.field(key);
            for (index, branch) in s.list(key).iter().enumerate() {
                self.node(branch, &here.index(index), false, errors);
            }
        }
        if let Some(items) = s.some("items").filter(|items| items.is_object()) {
            self.node(items, &path.field("items"), false, errors);
        }
        if s.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
            let field = path.field("x-kubernetes-preserve-unknown-fields").bracketed();
            errors.push(FieldError::invalid(field, false.into(), "must be true or undefined"));
        }
        map_type(s, path, errors);
        list_type(s, path, errors);
        list_map(s, path, errors);
        map_keys(s, path, errors);
        rules(s, path, errors);
    }

    fn supported(self, s: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
        let ty = s.text("type");
        if !ty.is_empty() && !TYPES.contains(&ty) {
            errors.push(FieldError::not_supported(path.field("type").bracketed(), ty.into(), &TYPES));
        }
        let mut forbid = |key: &str, detail: String| {
            errors.push(FieldError::forbidden(path.field(key).bracketed(), detail));
        };
        if let (Some(_), Some(why)) = (s.some("default"), self.no_defaults) {
            forbid("default", format!("must not be set {why}"));
        }
        for key in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
            let empty = match s.some(key) {
                None => true,
                Some(Value::String(text)) => text.is_empty(),
                Some(Value::Object(map)) => map.is_empty(),
                Some(_) => false,
            };
            if !empty {
                forbid(key, format!("{key} is not supported"));
            }
        }
        if ty == "null" {
            forbid("type", "type cannot be set to null, use nullable as an alternative".to_string());
        }
        if s.get("items").is_some_and(Value::is_array) {
            forbid("items", "items must be a schema object and not an array".to_string());
        }
        if self.inside_meta && s.flag("x-kubernetes-embedded-resource") {
            forbid("x-kubernetes-embedded-resource", "must not be used inside of resource meta".to_string());
        }
    }

    fn additional(self, s: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
        let Some(additional) = s.some("additionalProperties") else { return };
        let here = path.field("additionalProperties");
        if !s.map("properties").is_empty() && additional != &Value::Bool(true) {
            let detail = "additionalProperties and properties are mutual exclusive";
            errors.push(FieldError::forbidden(here.bracketed(), detail));
        }
        if additional.is_object() {
            let why = "inside additionalProperties applying to object metadata";
            let below = if self.inside_meta { Walk { no_defaults: Some(why), ..self } } else { self };
            below.node(additional, &here, false, errors);
        }
    }

    fn properties(self, s: &Value, path: &Path<'_>, root: bool, errors: &mut Vec<FieldError>) {
        let here = path.field("properties");
        let is_resource = root || s.flag("x-kubernetes-embedded-resource");
        for (name, property) in s.map("properties") {
            let why = format!("in top-level {name}");
            let mut below = self;
            if is_resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
                below =
                    Walk { inside_meta: true, no_defaults: if root { Some(&why) } else { self.no_defaults } };
            }
            below.node(property, &here.key(name), false, errors);
        }
    }
}

/// The type that a list or map type asks for.
fn needs_type(s: &Value, path: &Path<'_>, wanted: &str, because: &str, errors: &mut Vec<FieldError>) -> bool {
    let ty = s.text("type");
    let detail = format!("must be {wanted} if {because} is specified");
    let field = path.field("type").bracketed();
    if ty.is_empty() {
        errors.push(FieldError::required(field, detail));
    } else if ty != wanted {
        errors.push(FieldError::invalid(field, ty.into(), detail));
    }
    ty == wanted
}

fn map_type(s: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let key = "x-kubernetes-map-type";
    if s.some(key).is_none() {
        return;
    }
    needs_type(s, path, "object", key, errors);
    if !matches!(s.text(key), "atomic" | "granular") {
        let field = path.field(key).bracketed();
        errors.push(FieldError::not_supported(field, s.text(key).into(), &["atomic", "granular"]));
    }
}

fn list_type(s: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let key = "x-kubernetes-list-type";
    let kind = s.text(key);
    if s.some(key).is_some() {
        if needs_type(s, path, "array", key, errors) && kind == "set" {
            set_items(s, path, errors);
        }
        if !matches!(kind, "atomic" | "set" | "map") {
            let field = path.field(key).bracketed();
            errors.push(FieldError::not_supported(field, kind.into(), &["atomic", "set", "map"]));
        }
    }
    if s.list("x-kubernetes-list-map-keys").is_empty() {
        return;
    }
    let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
    let field = path.field(key).bracketed();
    match s.some(key) {
        None => errors.push(FieldError::required(field, detail)),
        Some(_) if kind != "map" => errors.push(FieldError::invalid(field, kind.into(), detail)),
        Some(_) => {}
    }
}

/// The items of a set are compared as wholes.
fn set_items(s: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let Some(items) = s.some("items") else { return };
    let (list, map) = ("x-kubernetes-list-type", "x-kubernetes-map-type");
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let of_items = path.field("items");
    match items.text("type") {
        "array" if items.some(list).is_some() && items.text(list) != "atomic" => {
            let field = of_items.field(list).bracketed();
            errors.push(FieldError::invalid(field, items.text(list).into(), detail));
        }
        "object" if items.text(map) != "atomic" => {
            let value = items.some(list).cloned().unwrap_or(Value::Null);
            errors.push(FieldError::invalid(of_items.field(map).bracketed(), value, detail));
        }
        _ => {}
    }
}

fn list_map(s: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if s.text("x-kubernetes-list-type") != "map" {
        return;
    }
    let of_keys = path.field("x-kubernetes-list-map-keys").bracketed();
    let keys = s.list("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(FieldError::required(of_keys.clone(), detail));
    }
    let of_items = path.field("items");
    let Some(items) = s.some("items").filter(|items| items.is_object()) else {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(FieldError::required(of_items.bracketed(), detail));
        return;
    };
    let ty = items.text("type");
    if ty != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(FieldError::invalid(of_items.field("type").bracketed(), ty.into(), detail));
        return;
    }
    let shown = || Value::Array(keys.to_vec());
    let names = s.texts("x-kubernetes-list-map-keys");
    let properties = of_items.field("properties");
    for (index, name) in names.iter().enumerate() {
        match items.map("properties").get(*name).map(|property| property.text("type")) {
            None => {
                let detail = "entries must all be names of item properties";
                errors.push(FieldError::invalid(of_keys.clone(), shown(), detail));
            }
            Some("array" | "object") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let field = properties.key(name);
                errors.push(FieldError::invalid(field.field("type").bracketed(), ty.into(), detail));
            }
            Some(_) => {}
        }
        if names[..index].contains(name) {
            errors.push(FieldError::invalid(of_keys.clone(), shown(), "must not contain duplicate entries"));
        }
    }
}

/// The keys of a list map must always be there, or items could not be told apart.
fn map_keys(s: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let kind = s.text("x-kubernetes-list-type");
    let Some(items) = s.some("items").filter(|_| matches!(kind, "set" | "map")) else { return };
    let of_items = path.field("items");
    if items.flag("nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {kind}");
        errors.push(FieldError::forbidden(of_items.field("nullable").bracketed(), detail));
    }
    if kind != "map" {
        return;
    }
    let required = items.texts("required");
    let properties = of_items.field("properties");
    for name in s.texts("x-kubernetes-list-map-keys") {
        let Some(property) = items.map("properties").get(name) else { continue };
        let here = properties.key(name);
        if !required.contains(&name) && property.some("default").is_none() {
            errors.push(FieldError::required(
                here.field("default").bracketed(),
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ));
        }
        if property.flag("nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(here.field("nullable").bracketed(), detail));
        }
    }
}

fn rules(s: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let here = path.field("x-kubernetes-validations");
    for (index, rule) in s.list("x-kubernetes-validations").iter().enumerate() {
        rule_texts(s, rule, &here.index(index), errors);
    }
}

/// The parts of a rule that are not CEL.
fn rule_texts(s: &Value, rule: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let breaks = |text: &str| text.contains(['\n', '\r']);
    let (expression, message) = (rule.text("rule").trim(), rule.text("message"));
    let field = |key: &str| path.field(key).bracketed();
    if expression.is_empty() {
        errors.push(FieldError::required(field("rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        errors.push(FieldError::invalid(field("message"), message.into(), "must be non-empty if specified"));
    } else if breaks(message.trim()) {
        errors.push(FieldError::invalid(field("message"), message.into(), "must not contain line breaks"));
    } else if breaks(expression) && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(field("message"), detail));
    }
    let dynamic = rule.text("messageExpression");
    if !dynamic.is_empty() && dynamic.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(field("messageExpression"), detail));
    }
    let reasons = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
    if let Some(reason) = rule.some("reason").and_then(Value::as_str).filter(|r| !reasons.contains(r)) {
        errors.push(FieldError::not_supported(field("reason"), reason.into(), &reasons));
    }
    let target = rule.text("fieldPath");
    if target.is_empty() {
        return;
    }
    if target.trim().is_empty() {
        errors.push(FieldError::invalid(field("fieldPath"), target.into(), "must be non-empty if specified"));
    }
    if breaks(target) {
        errors.push(FieldError::invalid(field("fieldPath"), target.into(), "must not contain line breaks"));
    }
    if parse_at("", s).is_ok_and(|schema| field_path(&schema, target).is_none()) {
        errors.push(FieldError::invalid(field("fieldPath"), target.into(), "must be a valid path"));
    }
}
