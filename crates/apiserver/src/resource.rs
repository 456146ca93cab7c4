//! What the server knows of one served resource at one version, whether built in or brought by a CRD.

use crate::schema::Schema;
use std::sync::{Arc, OnceLock};

/// One resource at one version.
#[derive(Debug)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    /// Plural, as in the path.
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub namespaced: bool,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub verbs: Vec<&'static str>,
    /// `status` is written through its own path, and ignored on the main one.
    pub has_status: bool,
    pub scale: Option<Scale>,
    pub columns: Vec<Column>,
    /// JSON paths usable in a field selector beside metadata.name and metadata.namespace.
    pub selectable_fields: Vec<String>,
    pub schema: SchemaSource,
    /// `None` for built-in kinds.
    pub crd: Option<CrdFacts>,
    /// Shown as a warning header on each use.
    pub deprecation_warning: Option<String>,
}

/// What only custom resources have.
#[derive(Debug, Clone)]
pub struct CrdFacts {
    pub crd_name: String,
    /// The version whose apiVersion is written to storage.
    pub storage_version: String,
}

/// Where the replica counts of a scalable kind are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    pub spec_replicas_path: String,
    pub status_replicas_path: String,
    pub label_selector_path: Option<String>,
}

/// A printer column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// OpenAPI type: string, integer, number, boolean, date.
    pub ty: String,
    pub format: String,
    pub description: String,
    /// 0 is always shown, larger ones with `-o wide`.
    pub priority: i32,
    pub json_path: String,
}

/// A schema that is there, or one that is unpacked when it is first needed (built-in kinds: an idle server pays nothing).
pub enum SchemaSource {
    Ready(Arc<Schema>),
    Lazy { cell: OnceLock<Arc<Schema>>, load: fn(group: &str, version: &str, kind: &str) -> Arc<Schema> },
}

impl Resource {
    pub fn schema(&self) -> &Arc<Schema> {
        match &self.schema {
            SchemaSource::Ready(schema) => schema,
            SchemaSource::Lazy { cell, load } => {
                cell.get_or_init(|| load(&self.group, &self.version, &self.kind))
            }
        }
    }

    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    pub fn is_custom(&self) -> bool {
        self.crd.is_some()
    }
}

impl std::fmt::Debug for SchemaSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "Ready",
            Self::Lazy { .. } => "Lazy",
        })
    }
}
