//! Objects as rows: the tables that `kubectl get` prints.
//!
//! Built-in kinds have the columns of the real server, custom resources those of their CRD. Cells are small JSON values;
//! each row also carries the object's metadata, or the object, or nothing, as the client asked.

mod age;
mod cells;
mod columns;
mod jsonpath;
mod network;
mod pod;
mod view;

pub use jsonpath::{Path, PathError, eval};
pub use view::selector_words;

use crate::resource::{Column, Resource};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use view::View;

/// What a row carries beside its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IncludeObject {
    #[default]
    Metadata,
    None,
    Object,
}

/// How the table is to be made.
#[derive(Debug, Clone, Copy)]
pub struct TableOptions<'a> {
    pub include: IncludeObject,
    /// The `metadata` of the list (or of the object, of which only resourceVersion is taken).
    pub list_metadata: &'a Value,
    /// Whether column definitions are written: in a watch, only the first event has them.
    pub with_columns: bool,
    pub now: Timestamp,
}

impl IncludeObject {
    /// The value of the query parameter `includeObject`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "" | "Metadata" => Some(Self::Metadata),
            "None" => Some(Self::None),
            "Object" => Some(Self::Object),
            _ => None,
        }
    }
}

/// A `meta.k8s.io/v1` Table of the objects. Objects must carry their own kind and apiVersion.
pub fn render<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Value>,
    options: &TableOptions<'_>,
) -> Value {
    let printer = Printer::new(resource, options.now);
    let rows: Vec<Value> = objects
        .map(|object| json!({"cells": printer.cells(object), "object": carried(object, options.include)}))
        .collect();
    let mut metadata = Map::new();
    for name in ["resourceVersion", "continue", "remainingItemCount"] {
        if let Some(value) = options.list_metadata.get(name) {
            metadata.insert(name.into(), value.clone());
        }
    }
    let columns = if options.with_columns { printer.definitions() } else { Value::Null };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns,
        "rows": rows,
    })
}

fn carried(object: &Value, include: IncludeObject) -> Value {
    match include {
        IncludeObject::None => Value::Null,
        IncludeObject::Object => object.clone(),
        IncludeObject::Metadata => json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
        }),
    }
}

/// Makes the cells of one resource's objects; paths are parsed once.
pub(crate) enum Printer<'r> {
    Builtin { resource: &'r Resource, now: Timestamp },
    Custom { columns: Vec<(Column, Option<Path>)>, now: Timestamp },
}

impl<'r> Printer<'r> {
    pub(crate) fn new(resource: &'r Resource, now: Timestamp) -> Self {
        if !resource.is_custom() {
            return Self::Builtin { resource, now };
        }
        let mut columns = resource.columns.clone();
        if columns.is_empty() {
            columns.push(Column {
                name: "Age".into(),
                ty: "date".into(),
                format: String::new(),
                description: String::new(),
                priority: 0,
                json_path: ".metadata.creationTimestamp".into(),
            });
        }
        let columns = columns.into_iter().map(|c| (Path::parse(&c.json_path).ok(), c)).map(|(p, c)| (c, p));
        Self::Custom { columns: columns.collect(), now }
    }

    pub(crate) fn definitions(&self) -> Value {
        match self {
            Self::Builtin { resource, .. } => columns::columns(&resource.group, &resource.kind)
                .iter()
                .map(|column| {
                    json!({"name": column.name, "type": column.ty, "format": column.format,
                        "description": columns::describe(column.name), "priority": column.priority})
                })
                .collect(),
            Self::Custom { columns, .. } => {
                let name = json!({"name": "Name", "type": "string", "format": "name",
                    "description": columns::describe("Name"), "priority": 0});
                let rest = columns.iter().map(|(column, _)| {
                    let description = if column.description.is_empty() {
                        format!("value at {}", column.json_path)
                    } else {
                        column.description.clone()
                    };
                    json!({"name": column.name, "type": column.ty, "format": column.format,
                        "description": description, "priority": column.priority})
                });
                std::iter::once(name).chain(rest).collect()
            }
        }
    }

    pub(crate) fn cells(&self, object: &Value) -> Vec<Value> {
        match self {
            Self::Builtin { resource, now } => {
                cells::cells(&resource.group, &resource.kind, View::new(object, *now))
            }
            Self::Custom { columns, now } => {
                let name = object.pointer("/metadata/name").cloned().unwrap_or_default();
                let rest = columns.iter().map(|(column, path)| {
                    let found = path.as_ref().map(|path| path.eval(object)).unwrap_or_default();
                    custom_cell(&column.ty, found.first().copied(), *now)
                });
                std::iter::once(name).chain(rest).collect()
            }
        }
    }
}

/// The first value at a column's path in the column's type; null if there is none or it is of another type.
fn custom_cell(ty: &str, value: Option<&Value>, now: Timestamp) -> Value {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Value::Null };
    match ty {
        "integer" => match value.as_i64() {
            Some(number) => number.into(),
            // A fraction is cut off.
            None => value.as_f64().map_or(Value::Null, |number| (number.trunc() as i64).into()),
        },
        "number" => {
            if value.is_number() {
                value.clone()
            } else {
                Value::Null
            }
        }
        "boolean" => {
            if value.is_boolean() {
                value.clone()
            } else {
                Value::Null
            }
        }
        "date" => age::since(value, now).into(),
        _ => match value {
            Value::String(_) => value.clone(),
            other => other.to_string().into(),
        },
    }
}

#[cfg(test)]
mod tests;
