//! Fields that the schema does not know: finding them and removing them.
//!
//! `apiVersion`, `kind` and `metadata` are known at the root and in embedded resources; inside metadata the fields of
//! `ObjectMeta` are known, whatever the schema says.

use super::path::Path;
use super::{Additional, Schema, meta_shape};
use serde_json::Value;

/// The paths that [`prune`] would remove, in Kubernetes' order: those in metadata, the fields, those in the metadata of
/// embedded resources.
pub fn unknown_fields(schema: &Schema, object: &Value) -> Vec<String> {
    let mut found = Found::default();
    find(Place { schema: Some(schema), root: true, keep: false }, object, &Path::Root, &mut found);
    found.fields.sort();
    found.embedded.sort();
    found.metadata.append(&mut found.fields);
    found.metadata.append(&mut found.embedded);
    found.metadata
}

#[derive(Default)]
struct Found {
    metadata: Vec<String>,
    fields: Vec<String>,
    embedded: Vec<String>,
}

/// Removes what the schema does not know.
pub fn prune(schema: &Schema, object: &mut Value) {
    remove(Place { schema: Some(schema), root: true, keep: false }, object);
}

/// The same for a value that is not a resource.
pub(crate) fn prune_value(schema: &Schema, value: &mut Value) {
    remove(Place::of(Some(schema)), value);
}

/// What governs one value.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// Without a schema, only scalars are known.
    schema: Option<&'a Schema>,
    root: bool,
    /// Items of a list that preserves unknown fields preserve theirs too.
    keep: bool,
}

/// What the schema says about one key of an object.
enum Known<'a> {
    /// `apiVersion` or `kind`.
    TypeField,
    Metadata,
    Yes(Option<&'a Schema>),
    /// Unknown, but kept.
    Kept,
    No,
}

impl<'a> Place<'a> {
    fn of(schema: Option<&'a Schema>) -> Self {
        Self { schema, root: false, keep: false }
    }

    fn key(self, schema: &'a Schema, key: &str) -> Known<'a> {
        if self.root || schema.embedded_resource {
            match key {
                "apiVersion" | "kind" => return Known::TypeField,
                "metadata" => return Known::Metadata,
                _ => {}
            }
        }
        if let Some(property) = schema.properties.get(key) {
            return Known::Yes(Some(property));
        }
        match &schema.additional {
            Additional::Of(values) => Known::Yes(Some(values)),
            Additional::Anything => Known::Yes(None),
            Additional::Nothing if schema.preserve_unknown || self.keep => Known::Kept,
            Additional::Nothing => Known::No,
        }
    }

    /// What governs the items of a list here; `None` when all of them stay as they are.
    fn items(self) -> Option<Place<'a>> {
        let keep = self.keep || self.schema.is_some_and(|s| s.preserve_unknown);
        let schema = self.schema.and_then(|s| s.items.as_deref());
        (schema.is_some() || !keep).then_some(Place { schema, root: false, keep })
    }
}

fn find(place: Place<'_>, value: &Value, path: &Path<'_>, found: &mut Found) {
    match (value, place.schema) {
        (Value::Object(map), None) => found.fields.extend(map.keys().map(|k| path.field(k).dotted())),
        (Value::Object(map), Some(schema)) => {
            for (key, child) in map {
                let here = path.field(key);
                match place.key(schema, key) {
                    Known::TypeField | Known::Kept => {}
                    Known::Metadata if place.root => {
                        meta_shape::find_unknown(child, &here, &mut found.metadata)
                    }
                    Known::Metadata => meta_shape::find_unknown(child, &here, &mut found.embedded),
                    Known::Yes(sub) => find(Place::of(sub), child, &here, found),
                    Known::No => found.fields.push(here.dotted()),
                }
            }
        }
        (Value::Array(items), _) => {
            let Some(of_items) = place.items() else { return };
            for (index, item) in items.iter().enumerate() {
                find(of_items, item, &path.index(index), found);
            }
        }
        _ => {}
    }
}

fn remove(place: Place<'_>, value: &mut Value) {
    match (value, place.schema) {
        (Value::Object(map), None) => map.clear(),
        (Value::Object(map), Some(schema)) => map.retain(|key, child| match place.key(schema, key) {
            Known::TypeField | Known::Kept => true,
            Known::Metadata => {
                meta_shape::remove_unknown(child);
                true
            }
            Known::Yes(sub) => {
                remove(Place::of(sub), child);
                true
            }
            Known::No => false,
        }),
        (Value::Array(items), _) => {
            let Some(of_items) = place.items() else { return };
            for item in items {
                remove(of_items, item);
            }
        }
        _ => {}
    }
}
