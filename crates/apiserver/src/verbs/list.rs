//! GET of a collection: selectors, pages, revisions.

use crate::builtin;
use crate::engine::{Call, Engine};
use crate::http::media::Form;
use crate::http::reply::{Content, Reply};
use crate::select::{FieldSelector, LabelSelector};
use crate::status::{FieldError, Status};
use crate::store::{Key, ListError, Listing, Object, Scope};
use crate::table::{self, IncludeObject, Printer, TableOptions};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;

/// Which objects are wanted.
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

/// Where the next page begins.
struct Continue {
    revision: u64,
    /// Everything up to this key was sent.
    after: Key,
}

impl Call {
    pub(crate) fn scope(&self) -> Scope<'_> {
        match &self.namespace {
            Some(ns) => Scope::Namespace(ns),
            None => Scope::All,
        }
    }
}

impl Selection {
    pub(crate) fn read(_engine: &Engine, call: &Call) -> Result<Self, Status> {
        let labels = LabelSelector::parse(call.params.get("labelSelector").unwrap_or_default())
            .map_err(Status::bad_request)?;
        let fields = FieldSelector::parse(call.params.get("fieldSelector").unwrap_or_default())
            .map_err(Status::bad_request)?;
        let resource = &call.entry.resource;
        let known = |field: &str| {
            matches!(field, "metadata.name" | "metadata.namespace")
                || resource.selectable_fields.iter().any(|s| s.trim_start_matches('.') == field)
        };
        if let Some(field) = fields.unknown(known) {
            let plain = !resource.is_custom() && resource.selectable_fields.is_empty();
            return Err(Status::bad_request(if plain {
                format!(
                    "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                )
            } else {
                format!("field label not supported: {field}")
            }));
        }
        Ok(Self { labels, fields })
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, _engine: &Engine, call: &Call, object: &Object) -> bool {
        if !self.labels.matches(object) {
            return false;
        }
        let resource = &call.entry.resource;
        self.fields.is_empty()
            || self.fields.matches(object, &|value, field| builtin::field_value(resource, value, field))
    }

    /// The one object that can match, when the selector names it.
    fn single(&self, call: &Call) -> Option<Key> {
        let name = self.fields.name()?;
        match (&call.namespace, call.entry.resource.namespaced) {
            (Some(ns), true) => Some(Key::new(ns, name)),
            (None, false) => Some(Key::new("", name)),
            _ => None,
        }
    }
}

impl Engine {
    pub(crate) fn list(&self, call: &Call) -> Result<Reply, Status> {
        let selection = Selection::read(self, call)?;
        check_options(call)?;
        let limit = usize::try_from(call.params.int("limit")?.unwrap_or(0).max(0)).unwrap_or(0);
        let token = call.params.get("continue").map(Continue::decode).transpose()?;
        let listing = self.candidates(call, &selection, token.as_ref())?;
        if call.accepted.form == Form::Table {
            check_include(call)?;
        }
        let Listing { revision, objects } = listing;
        let mut chosen: Vec<Arc<Object>> = if selection.is_everything() {
            objects
        } else {
            objects.into_iter().filter(|o| selection.matches(self, call, o)).collect()
        };
        let mut next = None;
        let mut remaining = None;
        if limit > 0 && chosen.len() > limit {
            let rest = chosen.len() - limit;
            chosen.truncate(limit);
            // With a selector the number of those left is not promised.
            remaining = selection.is_everything().then_some(rest);
            next = chosen.last().map(|last| Continue { revision, after: last.key.clone() }.encode());
        }
        self.show_list(call, revision, chosen, next, remaining)
    }

    fn candidates(
        &self,
        call: &Call,
        selection: &Selection,
        token: Option<&Continue>,
    ) -> Result<Listing, Status> {
        if let Some(token) = token {
            let page =
                self.store.list_at(call.collection(), call.scope(), Some(&token.after), token.revision);
            return page.map_err(|error| expired_token(&error));
        }
        let asked = self.not_from_the_future(call.params.get("resourceVersion"))?;
        if let Some(exact) = asked.filter(|_| call.params.get("resourceVersionMatch") == Some("Exact")) {
            let listing = self.store.list_at(call.collection(), call.scope(), None, exact);
            return listing
                .map_err(|_| Status::expired("The resourceVersion for the provided list is too old."));
        }
        if let Some(key) = selection.single(call) {
            let revision = self.store.revision();
            let objects = self.store.get(call.collection(), &key).into_iter().collect();
            return Ok(Listing { revision, objects });
        }
        Ok(self.store.list(call.collection(), call.scope()))
    }

    fn show_list(
        &self,
        call: &Call,
        revision: u64,
        objects: Vec<Arc<Object>>,
        next: Option<String>,
        remaining: Option<usize>,
    ) -> Result<Reply, Status> {
        if call.accepted.form == Form::Plain && call.entry.storage.is_none() {
            let head = self.list_head(call, revision, next.as_deref(), remaining);
            return Ok(Reply::ok(Content::List { head, bare: !call.entry.resource.is_custom(), objects }));
        }
        if call.accepted.form == Form::Table && call.entry.storage.is_none() {
            let meta = list_meta(revision, next.as_deref(), remaining);
            return Ok(Reply::ok(Content::Json(self.table_text(call, &objects, &meta))));
        }
        let values: Vec<Value> = objects.iter().map(|o| self.view(&call.entry, o)).collect();
        let meta = list_meta(revision, next.as_deref(), remaining);
        let resource = &call.entry.resource;
        Ok(Reply::value(match call.accepted.form {
            Form::Table => self.table(call, &values, &meta, true),
            Form::Metadata => json!({
                "kind": "PartialObjectMetadataList", "apiVersion": meta_version(call), "metadata": meta,
                "items": values.iter().map(|v| partial(v, call)).collect::<Vec<_>>(),
            }),
            Form::Plain => json!({
                "kind": resource.list_kind, "apiVersion": resource.api_version(), "metadata": meta, "items": values,
            }),
        }))
    }

    /// The same table as [`Engine::table`], written down while it is made: metadata is copied as it stands.
    fn table_text(&self, call: &Call, objects: &[Arc<Object>], meta: &Value) -> Bytes {
        let include = call.params.get("includeObject").and_then(IncludeObject::parse).unwrap_or_default();
        let printer = Printer::new(&call.entry.resource, self.now());
        let version = meta_version(call);
        let columns = printer.definitions();
        let mut out =
            Vec::with_capacity(1024 + objects.iter().map(|o| o.metadata().len() + 128).sum::<usize>());
        out.extend_from_slice(
            format!(
                "{{\"kind\":\"Table\",\"apiVersion\":\"{version}\",\"metadata\":{meta},\"columnDefinitions\":{columns},\"rows\":["
            )
            .as_bytes(),
        );
        for (i, object) in objects.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            let cells = Value::Array(printer.cells(&object.lean_value()));
            out.extend_from_slice(format!("{{\"cells\":{cells},\"object\":").as_bytes());
            match include {
                IncludeObject::None => out.extend_from_slice(b"null"),
                IncludeObject::Object => out.extend_from_slice(&object.json),
                IncludeObject::Metadata => {
                    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":");
                    out.extend_from_slice(object.metadata());
                    out.push(b'}');
                }
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"]}\n");
        Bytes::from(out)
    }

    /// Rows and columns. In a watch only the first table has its columns defined.
    pub(crate) fn table(&self, call: &Call, values: &[Value], meta: &Value, with_columns: bool) -> Value {
        let include = call.params.get("includeObject").and_then(IncludeObject::parse).unwrap_or_default();
        let options = TableOptions { include, list_metadata: meta, with_columns, now: self.now() };
        let mut out = table::render(&call.entry.resource, values.iter(), &options);
        out["apiVersion"] = meta_version(call).into();
        out
    }

    /// Everything up to the first item.
    pub(crate) fn list_head(
        &self,
        call: &Call,
        revision: u64,
        next: Option<&str>,
        remaining: Option<usize>,
    ) -> Bytes {
        let r = &call.entry.resource;
        let meta = list_meta(revision, next, remaining);
        Bytes::from(format!(
            "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{meta},\"items\":[",
            json!(r.list_kind),
            json!(r.api_version())
        ))
    }
}

/// What a table's rows may carry.
fn check_include(call: &Call) -> Result<(), Status> {
    match call.params.get("includeObject") {
        Some(other) if IncludeObject::parse(other).is_none() => Err(Status::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
        ))),
        _ => Ok(()),
    }
}

fn list_meta(revision: u64, next: Option<&str>, remaining: Option<usize>) -> Value {
    let mut meta = json!({"resourceVersion": revision.to_string()});
    if let Some(next) = next {
        meta["continue"] = next.into();
    }
    if let Some(remaining) = remaining {
        meta["remainingItemCount"] = remaining.into();
    }
    meta
}

pub(crate) fn meta_version(call: &Call) -> &'static str {
    if call.accepted.v1beta1 { "meta.k8s.io/v1beta1" } else { "meta.k8s.io/v1" }
}

/// Metadata alone.
pub(crate) fn partial(value: &Value, call: &Call) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": meta_version(call),
        "metadata": value.get("metadata").cloned().unwrap_or_default(),
    })
}

/// The combinations that Kubernetes refuses.
pub(crate) fn check_options(call: &Call) -> Result<(), Status> {
    let p = &call.params;
    let rv = p.get("resourceVersion");
    if p.get("continue").is_some() && rv.is_some_and(|rv| rv != "0") {
        return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
    }
    let errors = option_problems(call, rv);
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid_options("ListOptions", &errors)) }
}

fn option_problems(call: &Call, rv: Option<&str>) -> Vec<FieldError> {
    const MATCH: &str = "resourceVersionMatch";
    let p = &call.params;
    let (how, initial) = (p.get(MATCH), p.has("sendInitialEvents"));
    let forbidden = |why: &str| vec![FieldError::forbidden(MATCH, why)];
    if p.flag("watch") {
        let wants_match = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        return match (how, initial) {
            (Some(_), false) => {
                forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
            }
            (None, true) => forbidden(wants_match),
            (Some(other), true) if other != "NotOlderThan" => {
                let mut errors = forbidden(wants_match);
                errors.push(FieldError::not_supported(MATCH, other.into(), &["NotOlderThan"]));
                errors
            }
            _ => Vec::new(),
        };
    }
    if initial {
        return vec![FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")];
    }
    match how {
        None => Vec::new(),
        Some(_) if rv.is_none() => {
            forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
        }
        Some(_) if p.get("continue").is_some() => {
            forbidden("resourceVersionMatch is forbidden when continue is provided")
        }
        Some("Exact") if rv == Some("0") => {
            forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
        }
        Some("Exact" | "NotOlderThan") => Vec::new(),
        Some(other) => vec![FieldError::not_supported(MATCH, other.into(), &["Exact", "NotOlderThan", ""])],
    }
}

fn expired_token(error: &ListError) -> Status {
    match error {
        ListError::TooOld { .. } => Status::expired(
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
        ),
        ListError::Future { .. } => {
            Status::bad_request("continue key is not valid: it names a revision that is not there yet")
        }
    }
}

// === impl Continue ===

impl Continue {
    fn encode(&self) -> String {
        let token = json!({
            "v": "meta.k8s.io/v1", "rv": self.revision,
            "start": format!("{}/{}\u{0}", self.after.namespace, self.after.name),
        });
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn decode(text: &str) -> Result<Self, Status> {
        let invalid = |why: &str| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes =
            URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|e| invalid(&e.to_string()))?;
        let token: Value = serde_json::from_slice(&bytes).map_err(|e| invalid(&e.to_string()))?;
        if token["v"] != "meta.k8s.io/v1" {
            return Err(invalid("server does not recognize this encoded version"));
        }
        let revision = token["rv"]
            .as_u64()
            .filter(|rv| *rv > 0)
            .ok_or_else(|| invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)"))?;
        let start = token["start"]
            .as_str()
            .filter(|s| !s.is_empty())
            .ok_or_else(|| invalid("encoded start key empty (version meta.k8s.io/v1)"))?;
        let (namespace, name) =
            start.trim_end_matches('\u{0}').split_once('/').ok_or_else(|| invalid("no key"))?;
        Ok(Self { revision, after: Key::new(namespace, name) })
    }
}
