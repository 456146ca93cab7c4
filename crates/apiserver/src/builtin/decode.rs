//! What Go's decoder does to a built-in object: refuse values of a wrong type, and write some values in one form.
//!
//! [`check_types`] finds the first wrong value and words it as the real server does; [`normalise`] then makes the object
//! look as if it had been read into Go structs and written out again: no nulls, quantities and times in canonical form,
//! and no empty optional lists or maps.

use super::quantity;
use super::types::{MICRO_TIME, QUANTITY};
use crate::schema::{Additional, Schema, Type};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The first value of a wrong type, in the words of the real server without the leading
/// `Deployment in version "v1" cannot be handled as a Deployment: `.
pub fn check_types(schema: &Schema, object: &Value) -> Option<String> {
    let kind = struct_name(schema);
    Walk { path: Vec::new(), owner: kind }.check(schema, object)
}

/// Where the walk is: Go names the innermost struct and the path of fields, without list positions and map keys.
struct Walk<'a> {
    path: Vec<&'a str>,
    owner: String,
}

impl<'a> Walk<'a> {
    fn check(&mut self, schema: &'a Schema, value: &'a Value) -> Option<String> {
        if value.is_null() {
            return None;
        }
        if schema.int_or_string {
            let fits = value.is_string() || value.as_i64().is_some_and(|n| i32::try_from(n).is_ok());
            return if fits { None } else { self.wrong(value, "int32") };
        }
        if schema.format.as_deref() == Some(QUANTITY) {
            return quantity_problem(value);
        }
        match schema.ty? {
            Type::Object => self.check_object(schema, value),
            Type::Array => match value.as_array() {
                Some(items) => {
                    let inner = schema.items.as_deref()?;
                    items.iter().find_map(|item| self.check(inner, item))
                }
                None => self.wrong(value, &go_type(schema)),
            },
            Type::String => self.check_string(schema, value),
            Type::Integer => {
                let fits = match schema.format.as_deref() {
                    Some("int32") => value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()),
                    _ => value.as_i64().is_some(),
                };
                if fits { None } else { self.wrong(value, &go_type(schema)) }
            }
            Type::Number if !value.is_number() => self.wrong(value, &go_type(schema)),
            Type::Boolean if !value.is_boolean() => self.wrong(value, "bool"),
            Type::Number | Type::Boolean => None,
        }
    }

    fn check_object(&mut self, schema: &'a Schema, value: &'a Value) -> Option<String> {
        let Some(fields) = value.as_object() else {
            return if schema.preserve_unknown { None } else { self.wrong(value, &go_type(schema)) };
        };
        if let Additional::Of(inner) = &schema.additional {
            return fields.values().find_map(|item| self.check(inner, item));
        }
        let owner = std::mem::replace(&mut self.owner, struct_name(schema));
        let problem = fields.iter().find_map(|(name, item)| {
            let property = schema.properties.get(name)?;
            self.path.push(name);
            let problem = self.check(property, item);
            self.path.pop();
            problem
        });
        self.owner = owner;
        problem
    }

    fn check_string(&mut self, schema: &Schema, value: &Value) -> Option<String> {
        let Some(text) = value.as_str() else { return self.wrong(value, &go_type(schema)) };
        match schema.format.as_deref() {
            Some("byte") => base64_problem(text),
            Some("date-time") => time_problem(schema, text),
            _ => None,
        }
    }

    fn wrong(&self, value: &Value, expected: &str) -> Option<String> {
        let found = match value {
            Value::Null => "null".to_string(),
            Value::Bool(_) => "bool".into(),
            // A number that does not fit is shown, one where no number belongs is not.
            Value::Number(number) if expected.contains("int") && !expected.contains("uint") => {
                format!("number {number}")
            }
            Value::Number(_) => "number".into(),
            Value::String(_) => "string".into(),
            Value::Array(_) => "array".into(),
            Value::Object(_) => "object".into(),
        };
        let place = if self.path.is_empty() {
            format!("Go value of type {expected}")
        } else {
            format!("Go struct field {}.{} of type {expected}", self.owner, self.path.join("."))
        };
        Some(format!("json: cannot unmarshal {found} into {place}"))
    }
}

fn quantity_problem(value: &Value) -> Option<String> {
    let written = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    quantity::canonical(&written).is_none().then(|| quantity::PROBLEM.to_string())
}

fn base64_problem(text: &str) -> Option<String> {
    // Go skips line breaks inside of base64.
    let compact: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let error = STANDARD.decode(&compact).err()?;
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
        base64::DecodeError::InvalidLength(length) => length,
        base64::DecodeError::InvalidPadding => compact.len(),
    };
    Some(format!("illegal base64 data at input byte {at}"))
}

fn time_problem(schema: &Schema, text: &str) -> Option<String> {
    let is_micro = schema.title.as_deref() == Some(MICRO_TIME);
    let layout = if is_micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
    let (rest, wanted) = match text.parse::<jiff::Timestamp>() {
        Ok(_) if !is_micro => return None,
        Ok(_) => micro_problem(text)?,
        Err(_) => (text, "2006"),
    };
    Some(format!("parsing time {text:?} as {layout:?}: cannot parse {rest:?} as {wanted:?}"))
}

/// Times with microseconds need exactly six digits after the point.
fn micro_problem(text: &str) -> Option<(&str, &'static str)> {
    let rest = text.get(19..)?;
    let Some(fraction) = rest.strip_prefix('.') else { return Some((rest, ".000000")) };
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    match digits {
        6 => None,
        0..6 => Some((rest, ".000000")),
        _ => Some((&fraction[6..], "Z07:00")),
    }
}

fn struct_name(schema: &Schema) -> String {
    let title = schema.title.as_deref().unwrap_or_default();
    title.rsplit('.').next().unwrap_or_default().to_string()
}

/// What Go calls a type.
fn go_type(schema: &Schema) -> String {
    match schema.ty {
        _ if schema.int_or_string => "intstr.IntOrString".into(),
        _ if schema.format.as_deref() == Some(QUANTITY) => "resource.Quantity".into(),
        Some(Type::String) if schema.format.as_deref() == Some("byte") => "[]uint8".into(),
        Some(Type::String) => "string".into(),
        Some(Type::Integer) => schema.format.clone().unwrap_or_else(|| "int64".into()),
        Some(Type::Number) => "float64".into(),
        Some(Type::Boolean) => "bool".into(),
        Some(Type::Array) => format!("[]{}", schema.items.as_deref().map_or_else(String::new, go_type)),
        Some(Type::Object) => match (&schema.additional, &schema.title) {
            (Additional::Of(inner), _) if inner.format.as_deref() == Some(QUANTITY) => {
                "v1.ResourceList".into()
            }
            (Additional::Of(inner), _) => format!("map[string]{}", go_type(inner)),
            (_, Some(title)) => title.clone(),
            _ => "map[string]interface {}".into(),
        },
        None => "interface {}".into(),
    }
}

/// Brings a well-typed object into the form in which the real server stores it.
pub fn normalise(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Additional::Of(inner) = &schema.additional {
                for item in fields.values_mut() {
                    normalise(inner, item);
                }
                return;
            }
            if schema.properties.is_empty() {
                return;
            }
            fields.retain(|name, item| {
                let Some(property) = schema.properties.get(name) else { return true };
                normalise(property, item);
                !item.is_null() && (is_required(schema, name) || !is_empty_collection(property, item))
            });
        }
        Value::Array(items) => {
            if let Some(inner) = &schema.items {
                items.iter_mut().for_each(|item| normalise(inner, item));
            }
        }
        Value::String(_) | Value::Number(_) => normalise_scalar(schema, value),
        Value::Null | Value::Bool(_) => {}
    }
}

/// Fills the few defaults that the published types themselves name, inside of objects that are there.
pub(super) fn fill_defaults(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Additional::Of(inner) = &schema.additional {
                fields.values_mut().for_each(|item| fill_defaults(inner, item));
                return;
            }
            for (name, property) in &schema.properties {
                match fields.get_mut(name) {
                    Some(item) if !item.is_null() => fill_defaults(property, item),
                    _ => {
                        if let Some(default) = &property.default {
                            fields.insert(name.clone(), default.clone());
                        }
                    }
                }
            }
        }
        Value::Array(items) => {
            if let Some(inner) = &schema.items {
                items.iter_mut().for_each(|item| fill_defaults(inner, item));
            }
        }
        _ => {}
    }
}

fn is_required(schema: &Schema, name: &str) -> bool {
    schema.limits.required.iter().any(|required| required == name)
}

/// An empty list or map, which Go leaves out; an empty struct stays, because its presence may mean something.
fn is_empty_collection(schema: &Schema, value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty() && matches!(schema.additional, Additional::Of(_)),
        _ => false,
    }
}

fn normalise_scalar(schema: &Schema, value: &mut Value) {
    match schema.format.as_deref() {
        Some(QUANTITY) => {
            let written = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if let Some(canonical) = quantity::canonical(&written) {
                *value = canonical.into();
            }
        }
        Some("date-time") => {
            let parsed = value.as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
            if let Some(time) = parsed {
                let digits = if schema.title.as_deref() == Some(MICRO_TIME) { 6 } else { 0 };
                *value = rfc3339(time, digits).into();
            }
        }
        _ => {}
    }
}

/// `2020-01-01T00:00:00Z`, with that many digits of the second.
fn rfc3339(time: jiff::Timestamp, digits: usize) -> String {
    let seconds = time.as_second();
    let whole = jiff::Timestamp::from_second(seconds).unwrap_or(time);
    if digits == 0 {
        return whole.to_string();
    }
    let micros = time.subsec_microsecond();
    format!("{}.{micros:06}Z", whole.to_string().trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::load_schema;
    use serde_json::json;

    fn deployment(rest: Value) -> Option<String> {
        check_types(&load_schema("apps", "v1", "Deployment"), &rest)
    }

    #[test]
    fn wrong_types_are_worded_as_the_real_server_words_them() {
        let template = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
        for (object, expected) in [
            (
                json!({"spec": {"replicas": "x"}}),
                "string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                json!({"spec": {"replicas": 1.5}}),
                "number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                json!({"spec": {"replicas": 99_999_999_999_i64}}),
                "number 99999999999 into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (json!({"spec": "x"}), "string into Go struct field Deployment.spec of type v1.DeploymentSpec"),
            (
                template(json!({"containers": [{"name": 5}]})),
                "number into Go struct field Container.spec.template.spec.containers.name of type string",
            ),
            (
                template(json!({"containers": {}})),
                "object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
            ),
            (
                template(json!({"hostNetwork": "true"})),
                "string into Go struct field PodSpec.spec.template.spec.hostNetwork of type bool",
            ),
            (
                json!({"metadata": {"labels": {"a": 1}}}),
                "number into Go struct field ObjectMeta.metadata.labels of type string",
            ),
            (
                json!({"metadata": {"labels": ["a"]}}),
                "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
            (
                json!({"metadata": {"creationTimestamp": 5}}),
                "number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
            ),
            (json!({"metadata": []}), "array into Go struct field Deployment.metadata of type v1.ObjectMeta"),
            (
                json!({"metadata": {"finalizers": [1]}}),
                "number into Go struct field ObjectMeta.metadata.finalizers of type string",
            ),
            (
                template(json!({"containers": [{"resources": {"limits": "x"}}]})),
                "string into Go struct field ResourceRequirements.spec.template.spec.containers.resources.limits of type v1.ResourceList",
            ),
            (
                json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1.5}}}}),
                "number 1.5 into Go struct field RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32",
            ),
        ] {
            assert_eq!(deployment(object), Some(format!("json: cannot unmarshal {expected}")));
        }
    }

    #[test]
    fn special_scalars_have_their_own_words() {
        let secret = |data: Value| check_types(&load_schema("", "v1", "Secret"), &json!({"data": data}));
        assert_eq!(secret(json!({"a": "zz$"})).unwrap(), "illegal base64 data at input byte 2");
        assert_eq!(
            secret(json!({"a": 5})).unwrap(),
            "json: cannot unmarshal number into Go struct field Secret.data of type []uint8"
        );
        assert_eq!(secret(json!({"a": "YQ==", "b": null})), None);
        let lease = |time: &str| {
            check_types(
                &load_schema("coordination.k8s.io", "v1", "Lease"),
                &json!({"spec": {"renewTime": time}}),
            )
        };
        assert_eq!(
            lease("2020-01-01T00:00:00Z").unwrap(),
            r#"parsing time "2020-01-01T00:00:00Z" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#
        );
        assert_eq!(
            lease("2020-01-01T00:00:00.123456789+01:00").unwrap(),
            r#"parsing time "2020-01-01T00:00:00.123456789+01:00" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "789+01:00" as "Z07:00""#
        );
        assert_eq!(lease("2020-01-01T00:00:00.123456Z"), None);
        let bad = json!({"spec": {"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": true}}}]}}}});
        assert_eq!(deployment(bad).unwrap(), quantity::PROBLEM);
    }

    #[test]
    fn objects_are_normalised() {
        let schema = load_schema("", "v1", "Pod");
        let mut pod = json!({
            "metadata": {"name": "a", "labels": {}, "annotations": null, "creationTimestamp": "2020-01-01T01:00:00+01:00"},
            "spec": {
                "containers": [{"name": "a", "args": [], "resources": {"limits": {"cpu": 0.5, "memory": "1024Ki"}}}],
                "volumes": [{"name": "v", "emptyDir": {}}],
                "nodeSelector": {},
            },
        });
        normalise(&schema, &mut pod);
        assert_eq!(
            pod,
            json!({
                "metadata": {"name": "a", "creationTimestamp": "2020-01-01T00:00:00Z"},
                "spec": {
                    "containers": [{"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "1Mi"}}}],
                    "volumes": [{"name": "v", "emptyDir": {}}],
                },
            })
        );
        let mut lease = json!({"spec": {"renewTime": "2020-01-01T01:00:00.123456+01:00"}});
        normalise(&load_schema("coordination.k8s.io", "v1", "Lease"), &mut lease);
        assert_eq!(lease["spec"]["renewTime"], "2020-01-01T00:00:00.123456Z");
    }
}
