//! The one description of a type that all parts of the server share: validation, defaulting, pruning, server-side
//! apply, strategic merge and OpenAPI are walks over [`Schema`].
//!
//! Custom resources bring theirs in the CRD, built-in kinds take theirs from the generated table. Nodes are shared by
//! `Arc`, so a type that is used in many places (a pod spec) is in memory once.

use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A JSON type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// How a list is merged and owned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ListType {
    /// Replaced and owned as a whole.
    #[default]
    Atomic,
    /// Scalars, each owned by itself.
    Set,
    /// Objects told apart by [`Schema::list_map_keys`].
    Map,
}

/// What an object may hold beside its named properties.
#[derive(Debug, Clone, Default)]
pub enum Additional {
    /// Nothing.
    #[default]
    Nothing,
    /// Anything (`additionalProperties: true`).
    Anything,
    /// Values of one type: the object is a map.
    Of(Arc<Schema>),
}

/// A node of a structural schema.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// `None`: any type (only with `int_or_string` or `preserve_unknown`, or where nothing is known).
    pub ty: Option<Type>,
    pub format: Option<String>,
    pub title: Option<String>,
    pub description: Option<String>,
    pub nullable: bool,
    pub properties: BTreeMap<String, Arc<Schema>>,
    pub additional: Additional,
    pub items: Option<Arc<Schema>>,
    pub default: Option<Value>,
    /// `x-kubernetes-int-or-string`
    pub int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`
    pub preserve_unknown: bool,
    /// `x-kubernetes-embedded-resource`
    pub embedded_resource: bool,
    /// `x-kubernetes-list-type`
    pub list_type: ListType,
    /// `x-kubernetes-list-map-keys`
    pub list_map_keys: Vec<String>,
    /// `x-kubernetes-map-type: atomic`
    pub atomic_map: bool,
    /// `x-kubernetes-patch-merge-key`: built-in kinds only, for strategic merge patches.
    pub patch_merge_key: Option<String>,
    /// `x-kubernetes-patch-strategy` holds `merge`.
    pub patch_merge: bool,
    /// `x-kubernetes-patch-strategy` holds `retainKeys`.
    pub patch_retain_keys: bool,
    /// `x-kubernetes-validations`
    pub rules: Vec<Rule>,
    /// Limits on the value.
    pub limits: Limits,
}

/// Limits on a value, at a structural node or in one of its `allOf`, `anyOf`, `oneOf`, `not` branches.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    pub required: Vec<String>,
    pub enumeration: Option<Vec<Value>>,
    pub pattern: Option<Pattern>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub all_of: Vec<Branch>,
    pub any_of: Vec<Branch>,
    pub one_of: Vec<Branch>,
    pub not: Option<Box<Branch>>,
}

/// A value-only schema inside a logical junctor.
#[derive(Debug, Clone, Default)]
pub struct Branch {
    /// Only in the `anyOf`/`allOf` forms that Kubernetes allows for int-or-string.
    pub ty: Option<Type>,
    pub format: Option<String>,
    pub limits: Limits,
    pub properties: BTreeMap<String, Branch>,
    pub additional: Option<Box<Branch>>,
    pub items: Option<Box<Branch>>,
}

/// A regular expression with its source text.
#[derive(Debug, Clone)]
pub struct Pattern {
    pub source: String,
    pub regex: regex::Regex,
}

/// One CEL rule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rule {
    pub rule: String,
    pub message: Option<String>,
    pub message_expression: Option<String>,
    pub reason: Option<String>,
    pub field_path: Option<String>,
    pub optional_old_self: Option<bool>,
}

// === impl Type ===

impl Type {
    /// As OpenAPI writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    /// The type of that name.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Object, Self::Array, Self::String, Self::Integer, Self::Number, Self::Boolean]
            .into_iter()
            .find(|ty| ty.name() == name)
    }
}
