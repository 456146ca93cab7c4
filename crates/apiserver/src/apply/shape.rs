//! How a value is taken apart for ownership: what the schema says, put into the three shapes that matter.
//!
//! A leaf is owned as a whole (scalars, atomic lists, atomic maps); maps and associative lists are owned entry by
//! entry. Where no schema is known, objects are maps and lists are leaves.

use super::element::PathElement;
use crate::schema::{Additional, ListType, Schema, Type};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// The type of a place in an object.
#[derive(Debug, Clone, Copy)]
pub enum Ty<'a> {
    Known {
        schema: &'a Schema,
        /// Unknown fields are kept here: said by this schema or by one above it.
        preserve: bool,
        /// The place holds a whole resource: it has `apiVersion`, `kind` and `metadata`, listed or not.
        resource: bool,
    },
    /// Nothing is known: objects are maps, lists are leaves.
    Deduced,
    /// Nothing is known, and all of it is one leaf.
    Whole,
}

/// What a value is at a place.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shape<'a> {
    Leaf,
    List(ListTy<'a>),
    Map(Ty<'a>),
}

/// An associative list. Without keys it is a set.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListTy<'a> {
    pub(super) keys: &'a [String],
    pub(super) items: Ty<'a>,
}

/// The schema of a whole resource, with the metadata that custom resource schemas leave out.
pub fn with_meta(schema: &Schema) -> Ty<'_> {
    Ty::Known { schema, preserve: schema.preserve_unknown, resource: true }
}

/// `metav1.ObjectMeta`.
pub fn object_meta_schema() -> Arc<Schema> {
    OBJECT_META.clone()
}

// === impl Ty ===

impl<'a> Ty<'a> {
    fn child(self, schema: &'a Schema) -> Self {
        let inherited = matches!(self, Self::Known { preserve: true, .. });
        Self::Known {
            schema,
            preserve: inherited || schema.preserve_unknown,
            resource: schema.embedded_resource,
        }
    }

    pub(super) fn shape(self, value: &Value) -> Shape<'a> {
        match self {
            Self::Whole => Shape::Leaf,
            Self::Deduced => match value {
                Value::Object(_) | Value::Null => Shape::Map(self),
                _ => Shape::Leaf,
            },
            Self::Known { schema, .. } => match (schema.ty, value) {
                (Some(Type::Object), _) | (None, Value::Object(_) | Value::Null) => self.map_shape(),
                (Some(Type::Array), _) | (None, Value::Array(_)) => self.list_shape(),
                _ => Shape::Leaf,
            },
        }
    }

    fn map_shape(self) -> Shape<'a> {
        match self {
            Self::Known { schema, .. } if schema.atomic_map || is_raw(schema) => Shape::Leaf,
            _ => Shape::Map(self),
        }
    }

    fn list_shape(self) -> Shape<'a> {
        let Self::Known { schema, .. } = self else { return Shape::Leaf };
        let items = schema.items.as_deref().map_or(Self::Whole, |items| self.child(items));
        match schema.list_type {
            ListType::Atomic => Shape::Leaf,
            ListType::Set => Shape::List(ListTy { keys: &[], items }),
            ListType::Map => Shape::List(ListTy { keys: &schema.list_map_keys, items }),
        }
    }

    /// The type of a field, and whether the schema names it (a map's entries are not named).
    /// `None`: the schema does not allow the field.
    pub(super) fn field(self, name: &str) -> Option<(Self, bool)> {
        let Self::Known { schema, preserve, resource } = self else {
            return Some((self, false));
        };
        let listed = schema.properties.get(name);
        if resource {
            match name {
                "metadata" if listed.is_none_or(|s| s.properties.is_empty()) => {
                    return Some((self.child(&OBJECT_META), true));
                }
                "apiVersion" | "kind" if listed.is_none() => return Some((self.child(&STRING), true)),
                _ => {}
            }
        }
        if let Some(listed) = listed {
            return Some((self.child(listed), true));
        }
        match &schema.additional {
            Additional::Of(values) => Some((self.child(values), false)),
            Additional::Anything => Some((Self::Deduced, false)),
            Additional::Nothing => {
                (preserve || schema.properties.is_empty()).then_some((Self::Deduced, false))
            }
        }
    }

    /// The type that a path element leads to, for walks that have a set and no value.
    /// With it, whether the element is a named field.
    pub(super) fn step(self, element: &PathElement) -> (Self, bool) {
        match element {
            PathElement::Field(name) if self.may_be_map() => {
                self.field(name).unwrap_or((Self::Deduced, false))
            }
            PathElement::Key(_) | PathElement::Value(_) => match self.list_shape() {
                Shape::List(list) => (list.items, false),
                _ => (Self::Deduced, false),
            },
            _ => (Self::Deduced, false),
        }
    }

    fn may_be_map(self) -> bool {
        match self {
            Self::Known { schema, .. } => matches!(schema.ty, None | Some(Type::Object)),
            Self::Deduced => true,
            Self::Whole => false,
        }
    }

    /// Whether the schema makes this place a leaf although it holds an object or a list.
    pub(super) fn is_atomic_container(self) -> bool {
        let Self::Known { schema, .. } = self else { return false };
        match schema.ty {
            Some(Type::Object) | None => schema.atomic_map,
            Some(Type::Array) => schema.list_type == ListType::Atomic,
            _ => false,
        }
    }
}

/// An object of a kind that the built-in type does not know (`ControllerRevision.data`): owned as a whole.
fn is_raw(schema: &Schema) -> bool {
    schema.title.as_deref() == Some("runtime.RawExtension")
}

// === impl ListTy ===

impl ListTy<'_> {
    /// How an item of the list is told apart from the others.
    pub(super) fn element(&self, item: &Value) -> Result<PathElement, String> {
        if self.keys.is_empty() {
            return match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".into())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".into())
                }
                scalar => Ok(PathElement::Value(scalar.clone())),
            };
        }
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".into()),
            _ => return Err("associative list with keys may not have non-map elements".into()),
        };
        let mut key = BTreeMap::new();
        for name in self.keys {
            if let Some(value) = fields.get(name).or_else(|| self.key_default(name)) {
                key.insert(name.clone(), value.clone());
            }
        }
        if key.is_empty() {
            let names: Vec<_> = self.keys.iter().map(|k| super::element::go_quote(k)).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have \
                 default values for any key fields)",
                names.join(" ")
            ));
        }
        Ok(PathElement::Key(key))
    }

    /// Key fields that have a default may be left out.
    fn key_default(&self, name: &str) -> Option<&Value> {
        match self.items {
            Ty::Known { schema, .. } => schema.properties.get(name)?.default.as_ref(),
            _ => None,
        }
    }
}

static STRING: LazyLock<Schema> = LazyLock::new(|| Schema { ty: Some(Type::String), ..Schema::default() });

static OBJECT_META: LazyLock<Arc<Schema>> = LazyLock::new(|| Arc::new(build_object_meta()));

fn build_object_meta() -> Schema {
    let string = Arc::new(STRING.clone());
    let time = Arc::new(scalar(Type::String, "date-time"));
    let integer = Arc::new(scalar(Type::Integer, "int64"));
    let texts = Arc::new(Schema {
        ty: Some(Type::Object),
        additional: Additional::Of(string.clone()),
        ..Schema::default()
    });
    let owners = list(owner_reference(&string), ListType::Map, &["uid"]);
    object(
        &[
            ("annotations", &texts),
            ("creationTimestamp", &time),
            ("deletionGracePeriodSeconds", &integer),
            ("deletionTimestamp", &time),
            ("finalizers", &list(STRING.clone(), ListType::Set, &[])),
            ("generateName", &string),
            ("generation", &integer),
            ("labels", &texts),
            ("managedFields", &list(managed_fields_entry(&string, &time), ListType::Atomic, &[])),
            ("name", &string),
            ("namespace", &string),
            ("ownerReferences", &owners),
            ("resourceVersion", &string),
            ("selfLink", &string),
            ("uid", &string),
        ],
        false,
    )
}

fn owner_reference(string: &Arc<Schema>) -> Schema {
    let boolean = Arc::new(Schema { ty: Some(Type::Boolean), ..Schema::default() });
    object(
        &[
            ("apiVersion", string),
            ("blockOwnerDeletion", &boolean),
            ("controller", &boolean),
            ("kind", string),
            ("name", string),
            ("uid", string),
        ],
        true,
    )
}

fn managed_fields_entry(string: &Arc<Schema>, time: &Arc<Schema>) -> Schema {
    let anything =
        Arc::new(Schema { ty: Some(Type::Object), additional: Additional::Anything, ..Schema::default() });
    object(
        &[
            ("apiVersion", string),
            ("fieldsType", string),
            ("fieldsV1", &anything),
            ("manager", string),
            ("operation", string),
            ("subresource", string),
            ("time", time),
        ],
        false,
    )
}

fn scalar(ty: Type, format: &str) -> Schema {
    Schema { ty: Some(ty), format: Some(format.into()), ..Schema::default() }
}

fn list(items: Schema, list_type: ListType, keys: &[&str]) -> Arc<Schema> {
    Arc::new(Schema {
        ty: Some(Type::Array),
        items: Some(Arc::new(items)),
        list_type,
        list_map_keys: keys.iter().map(ToString::to_string).collect(),
        patch_merge: list_type != ListType::Atomic,
        patch_merge_key: keys.first().map(ToString::to_string),
        ..Schema::default()
    })
}

fn object(fields: &[(&str, &Arc<Schema>)], atomic_map: bool) -> Schema {
    Schema {
        ty: Some(Type::Object),
        properties: fields.iter().map(|(name, s)| (name.to_string(), Arc::clone(s))).collect(),
        atomic_map,
        ..Schema::default()
    }
}
