//! A stored object: its JSON as it goes over the wire, and the few facts that must be known without parsing it.

use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::sync::{Arc, OnceLock};

/// The place of an object inside its collection. Cluster-scoped objects have an empty namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

/// One revision of one object. Immutable: an update makes a new one.
#[derive(Debug)]
pub struct Object {
    pub key: Key,
    pub revision: u64,
    pub json: Bytes,
    /// Where the text of `metadata.resourceVersion` begins in `json`.
    pub(crate) rv_at: u32,
    /// Where the JSON of the metadata begins and ends.
    pub(crate) meta: (u32, u32),
    /// Where `json` goes on behind its apiVersion and kind, which are written first.
    pub(crate) body_at: u16,
    pub labels: Box<[(Box<str>, Box<str>)]>,
    pub uid: Box<str>,
    /// The uids of `metadata.ownerReferences`.
    pub owners: Box<[Box<str>]>,
}

/// A new state of an object, ready to be stored: all is decided but its revision.
#[derive(Debug)]
pub struct Draft {
    json: Vec<u8>,
    rv_at: usize,
    rv_len: usize,
    meta: (u32, u32),
    body_at: u16,
    labels: Box<[(Box<str>, Box<str>)]>,
    uid: Box<str>,
    owners: Box<[Box<str>]>,
}

/// Why a value can't be stored at all.
#[derive(Debug, thiserror::Error)]
pub enum DraftError {
    #[error("an object without metadata can't be stored")]
    NoMetadata,
    #[error("cannot write the object as JSON")]
    Serialize(#[from] serde_json::Error),
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

// === impl Draft ===

impl Draft {
    /// Writes the value down with a stand-in for the revision, which the store fills in when it knows it: the object is
    /// serialized once, outside of every lock.
    pub fn new(value: &mut Value) -> Result<Self, DraftError> {
        let stand_in = stand_in();
        let meta = value.get_mut("metadata").and_then(Value::as_object_mut).ok_or(DraftError::NoMetadata)?;
        meta.insert("resourceVersion".into(), Value::String(stand_in.into()));
        let labels = labels_of(meta);
        let uid = meta.get("uid").and_then(Value::as_str).unwrap_or_default().into();
        let owners = owners_of(meta);
        let Written { json, meta, body_at } = write_down(value)?;
        let rv_at = find(&json, stand_in.as_bytes()).ok_or(DraftError::NoMetadata)?;
        Ok(Self { json, rv_at, rv_len: stand_in.len(), meta, body_at, labels, uid, owners })
    }

    /// The same state under another revision: what a deletion publishes.
    pub fn again(object: &Object) -> Self {
        Self {
            json: object.json.to_vec(),
            rv_at: object.rv_at as usize,
            rv_len: decimal_len(object.revision),
            meta: object.meta,
            body_at: object.body_at,
            labels: object.labels.clone(),
            uid: object.uid.clone(),
            owners: object.owners.clone(),
        }
    }

    /// An object that is shown but not stored (a dry run): it has no revision.
    pub(crate) fn seal_unsaved(self, key: Key) -> Object {
        let text = String::from_utf8_lossy(&self.json);
        let without = format!("\"resourceVersion\":\"{}\",", stand_in());
        let json = Bytes::from(text.replacen(&without, "", 1));
        let Self { body_at, meta: (start, end), labels, uid, owners, .. } = self;
        let meta = (start, end - without.len() as u32);
        Object { key, revision: 0, json, rv_at: 0, meta, body_at, labels, uid, owners }
    }

    pub(crate) fn seal(self, key: Key, revision: u64) -> Object {
        let rv = revision.to_string();
        let mut json = Vec::with_capacity(self.json.len() + rv.len() - self.rv_len);
        json.extend_from_slice(&self.json[..self.rv_at]);
        json.extend_from_slice(rv.as_bytes());
        json.extend_from_slice(&self.json[self.rv_at + self.rv_len..]);
        let grown = (json.len() as u32).wrapping_sub(self.json.len() as u32);
        Object {
            key,
            revision,
            json: Bytes::from(json),
            rv_at: self.rv_at as u32,
            meta: (self.meta.0, self.meta.1.wrapping_add(grown)),
            body_at: self.body_at,
            labels: self.labels,
            uid: self.uid,
            owners: self.owners,
        }
    }
}

// === impl Object ===

impl Object {
    /// The object as a tree. Stored text was written by this server, so a failure means that memory or disk is damaged;
    /// `Null` then makes every later check fail instead of taking the process down.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or(Value::Null)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(k, _)| &**k == key).map(|(_, v)| &**v)
    }

    /// The fields behind apiVersion and kind, with the closing brace: how lists of built-in kinds show their items.
    pub(crate) fn body(&self) -> &[u8] {
        &self.json[self.body_at as usize..]
    }

    /// The metadata as it stands in the text.
    pub(crate) fn metadata(&self) -> &[u8] {
        &self.json[self.meta.0 as usize..self.meta.1 as usize]
    }

    /// The object without `managedFields`, which is often the larger half and hardly ever looked at.
    pub(crate) fn lean_value(&self) -> Value {
        let mut de = serde_json::Deserializer::from_slice(&self.json);
        Lean { inside_meta: false }.deserialize(&mut de).unwrap_or(Value::Null)
    }

    /// What goes to disk: the positions, then the JSON.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(HEADER + self.json.len());
        for position in [self.rv_at, self.meta.0, self.meta.1] {
            out.extend_from_slice(&position.to_le_bytes());
        }
        out.extend_from_slice(&self.body_at.to_le_bytes());
        out.extend_from_slice(&self.json);
        Bytes::from(out)
    }

    /// The reverse of [`Object::encode`]; `None` when the bytes are not such an object.
    pub(crate) fn decode(key: Key, revision: u64, stored: &Bytes) -> Option<Self> {
        let position = |at: usize| Some(u32::from_le_bytes(stored.get(at..at + 4)?.try_into().ok()?));
        let (rv_at, meta) = (position(0)?, (position(4)?, position(8)?));
        let body_at = u16::from_le_bytes(stored.get(12..HEADER)?.try_into().ok()?);
        let json = stored.slice(HEADER..);
        json.get(meta.0 as usize..meta.1 as usize)?;
        let rv = revision.to_string();
        let at = rv_at as usize;
        if json.get(at..at + rv.len())? != rv.as_bytes() {
            return None;
        }
        json.get(usize::from(body_at)..)?;
        let value: Value = serde_json::from_slice(&json).ok()?;
        let map = value.get("metadata")?.as_object()?;
        let uid = map.get("uid").and_then(Value::as_str).unwrap_or_default().into();
        Some(Self {
            key,
            revision,
            meta,
            labels: labels_of(map),
            owners: owners_of(map),
            uid,
            rv_at,
            body_at,
            json,
        })
    }

    /// The same revision with another text: how objects look after their schema changed under them.
    pub(crate) fn reshaped(&self, value: &mut Value) -> Result<Self, DraftError> {
        Ok(Draft::new(value)?.seal(self.key.clone(), self.revision))
    }
}

/// The length of what stands before the JSON on disk.
const HEADER: usize = 14;

/// The JSON of an object, and where things are in it.
struct Written {
    json: Vec<u8>,
    meta: (u32, u32),
    body_at: u16,
}

/// Writes an object as JSON, apiVersion and kind first.
fn write_down(value: &Value) -> Result<Written, DraftError> {
    let object = value.as_object().ok_or(DraftError::NoMetadata)?;
    let mut out = Vec::with_capacity(1024);
    out.push(b'{');
    let first = ["apiVersion", "kind"];
    for key in first {
        if let Some(value) = object.get(key) {
            serde_json::to_writer(&mut out, key)?;
            out.push(b':');
            serde_json::to_writer(&mut out, value)?;
            out.push(b',');
        }
    }
    let body_at = u16::try_from(out.len()).map_err(|_| DraftError::NoMetadata)?;
    let mut meta = (0, 0);
    for (key, value) in object.iter().filter(|(key, _)| !first.contains(&key.as_str())) {
        serde_json::to_writer(&mut out, key)?;
        out.push(b':');
        let start = out.len() as u32;
        serde_json::to_writer(&mut out, value)?;
        if key == "metadata" {
            meta = (start, out.len() as u32);
        }
        out.push(b',');
    }
    // There is metadata, so there is a last comma to be made the closing brace.
    if let Some(last) = out.last_mut() {
        *last = b'}';
    }
    Ok(Written { json: out, meta, body_at })
}

/// Reads a tree and passes over `metadata.managedFields`.
struct Lean {
    inside_meta: bool,
}

impl<'de> DeserializeSeed<'de> for Lean {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, de: D) -> Result<Value, D::Error> {
        de.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Lean {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut out = serde_json::Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.inside_meta && key == "managedFields" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = if !self.inside_meta && key == "metadata" {
                map.next_value_seed(Lean { inside_meta: true })?
            } else {
                map.next_value()?
            };
            out.insert(key, value);
        }
        Ok(Value::Object(out))
    }
}

fn labels_of(meta: &serde_json::Map<String, Value>) -> Box<[(Box<str>, Box<str>)]> {
    let Some(labels) = meta.get("labels").and_then(Value::as_object) else { return Box::default() };
    labels.iter().filter_map(|(k, v)| Some((k.as_str().into(), v.as_str()?.into()))).collect()
}

fn owners_of(meta: &serde_json::Map<String, Value>) -> Box<[Box<str>]> {
    let Some(owners) = meta.get("ownerReferences").and_then(Value::as_array) else { return Box::default() };
    owners.iter().filter_map(|o| o.get("uid")?.as_str().map(Into::into)).collect()
}

fn decimal_len(n: u64) -> usize {
    n.checked_ilog10().unwrap_or(0) as usize + 1
}

/// A text that no client can have put into an object: drawn at random when the process starts.
fn stand_in() -> &'static str {
    static STAND_IN: OnceLock<String> = OnceLock::new();
    STAND_IN.get_or_init(|| format!("rv-{}", crate::random::uuid()))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    // Candidates are rare ('r' 'v' '-'), so a plain scan is as fast as it needs to be.
    let first = *needle.first()?;
    let mut from = 0;
    while let Some(at) = haystack[from..].iter().position(|b| *b == first) {
        let at = from + at;
        if haystack[at..].starts_with(needle) {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

/// Shared by every part that hands objects around.
pub type ObjectRef = Arc<Object>;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn draft() -> Draft {
        let mut value = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"resourceVersion": "7"},
            "metadata": {"name": "a", "uid": "u", "labels": {"x": "y"}, "ownerReferences": [{"uid": "o"}]}
        });
        Draft::new(&mut value).unwrap()
    }

    #[test]
    fn a_sealed_draft_carries_its_revision_in_its_text() {
        let object = draft().seal(Key::new("ns", "a"), 1234);
        assert_eq!(object.value()["metadata"]["resourceVersion"], "1234");
        assert_eq!(object.value()["data"]["resourceVersion"], "7");
        assert_eq!(object.label("x"), Some("y"));
        assert!(object.json.starts_with(br#"{"apiVersion":"v1","kind":"ConfigMap","data":"#));
        assert!(object.body().starts_with(br#""data":"#));
        let meta: Value = serde_json::from_slice(object.metadata()).unwrap();
        assert_eq!(meta, object.value()["metadata"]);
        assert_eq!(object.lean_value(), object.value());
        assert_eq!(&*object.owners[0], "o");
    }

    #[test]
    fn a_deletion_restamps_without_parsing() {
        let object = draft().seal(Key::new("ns", "a"), 9);
        let gone = Draft::again(&object).seal(object.key.clone(), 10_000);
        assert_eq!(gone.value()["metadata"]["resourceVersion"], "10000");
        assert_eq!(gone.value()["data"], object.value()["data"]);
        let meta: Value = serde_json::from_slice(gone.metadata()).unwrap();
        assert_eq!(meta, gone.value()["metadata"]);
    }

    #[test]
    fn disk_form_round_trips_and_damage_is_noticed() {
        let object = draft().seal(Key::new("ns", "a"), 42);
        let stored = object.encode();
        let back = Object::decode(object.key.clone(), 42, &stored).unwrap();
        assert_eq!(back.json, object.json);
        assert_eq!(back.labels, object.labels);
        assert!(Object::decode(object.key.clone(), 43, &stored).is_none());
        assert!(Object::decode(object.key.clone(), 42, &stored.slice(..20)).is_none());
    }
}
