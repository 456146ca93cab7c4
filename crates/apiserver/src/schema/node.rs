//! What schemas and the branches of logical junctors have in common, and the type check on them.

use super::numbers::Num;
use super::{Additional, Branch, Limits, Schema, Type, formats};
use serde_json::Value;

/// What schemas and branches have in common.
pub(super) trait Node: Sized {
    fn types(&self) -> Types;
    fn format(&self) -> Option<&str>;
    fn nullable(&self) -> bool;
    fn limits(&self) -> &Limits;
    fn property(&self, name: &str) -> Option<&Self>;
    fn values(&self) -> Option<&Self>;
    fn items(&self) -> Option<&Self>;
    /// The schema proper: list types and embedded resources are checked there, never in a branch.
    fn structural(&self) -> Option<&Schema>;
}

impl Node for Schema {
    fn structural(&self) -> Option<&Schema> {
        Some(self)
    }
    fn types(&self) -> Types {
        if self.int_or_string { Types::IntOrString } else { self.ty.map_or(Types::Any, Types::One) }
    }
    fn format(&self) -> Option<&str> {
        self.format.as_deref()
    }
    fn nullable(&self) -> bool {
        self.nullable
    }
    fn limits(&self) -> &Limits {
        &self.limits
    }
    fn property(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).map(|s| &**s)
    }
    fn values(&self) -> Option<&Self> {
        match &self.additional {
            Additional::Of(values) => Some(values),
            _ => None,
        }
    }
    fn items(&self) -> Option<&Self> {
        self.items.as_deref()
    }
}

impl Node for Branch {
    fn structural(&self) -> Option<&Schema> {
        None
    }
    fn types(&self) -> Types {
        self.ty.map_or(Types::Any, Types::One)
    }
    fn format(&self) -> Option<&str> {
        self.format.as_deref()
    }
    fn nullable(&self) -> bool {
        false
    }
    fn limits(&self) -> &Limits {
        &self.limits
    }
    fn property(&self, name: &str) -> Option<&Self> {
        self.properties.get(name)
    }
    fn values(&self) -> Option<&Self> {
        self.additional.as_deref()
    }
    fn items(&self) -> Option<&Self> {
        self.items.as_deref()
    }
}

/// The types that a value may have.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Types {
    Any,
    One(Type),
    IntOrString,
}

impl Types {
    pub(super) fn allow(self, ty: Type) -> bool {
        match self {
            Types::Any => false,
            Types::One(one) => one == ty,
            Types::IntOrString => matches!(ty, Type::Integer | Type::String),
        }
    }

    pub(super) fn one(self) -> Option<Type> {
        match self {
            Types::One(ty) => Some(ty),
            _ => None,
        }
    }

    pub(super) fn names(self) -> &'static str {
        match self {
            Types::Any => "",
            Types::One(ty) => ty.name(),
            Types::IntOrString => "integer,string",
        }
    }
}

/// The format, if it is one that is checked for the type.
pub(super) fn checked_format(types: Types, format: Option<&str>) -> Option<&str> {
    let format = format?;
    let checked = match types {
        Types::Any | Types::IntOrString | Types::One(Type::String) => formats::is_known(format),
        Types::One(Type::Integer) => matches!(format, "int32" | "int64"),
        Types::One(Type::Number) => matches!(format, "float" | "double"),
        Types::One(_) => false,
    };
    checked.then_some(format)
}

/// What was expected and what was found, if the type is wrong.
pub(super) fn wrong_type(
    types: Types,
    format: Option<&str>,
    value: &Value,
) -> Option<(String, &'static str)> {
    let (ty, native_format) = match value {
        Value::Null => return None,
        Value::Bool(_) => (Type::Boolean, ""),
        Value::String(_) => (Type::String, ""),
        Value::Array(_) => (Type::Array, ""),
        Value::Object(_) => (Type::Object, ""),
        Value::Number(number) => match Num::from(number) {
            Num::Int(_) => (Type::Integer, "int64"),
            Num::Float(_) => (Type::Number, "float64"),
        },
    };
    let whole_float = ty == Type::Number
        && types.allow(Type::Integer)
        && matches!(value, Value::Number(n) if Num::from(n).is_whole());
    let fits = types.allow(ty) || whole_float || (ty == Type::Integer && types.allow(Type::Number));
    let listlike = matches!(ty, Type::String | Type::Array);
    match format {
        Some(format) if !listlike && !fits && native_format != format => {
            return Some((format.to_string(), native_format));
        }
        // Kubernetes leaves texts and lists under a text format to the format check.
        Some(_) if listlike && !types.allow(Type::Number) && !types.allow(Type::Integer) => return None,
        _ => {}
    }
    (!fits).then(|| (types.names().to_string(), ty.name()))
}

/// Whether a format is one that is checked, for the type of that name (empty for any).
pub(crate) fn is_checked_format(ty: &str, format: &str) -> bool {
    checked_format(Type::of(ty).map_or(Types::Any, Types::One), Some(format)).is_some()
}
