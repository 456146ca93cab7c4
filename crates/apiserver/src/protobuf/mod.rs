//! Bodies in Kubernetes' own binary format, read into the same JSON that the other bodies are.
//!
//! ```text
//!   k8s\0 | Unknown { apiVersion, kind, raw }  --table-->  the message of that kind  -->  JSON as Go would write it
//! ```
//!
//! Typed clients (kubectl's `create`, controllers) send it; all of them also accept JSON, so nothing is ever written in
//! it. What the fields of a message are is generated, see [`table`]; it is unpacked with the first such body.

mod calls;
mod message;
mod table;
#[cfg(test)]
mod tests;
mod wire;

use message::Decoder;
use serde_json::{Map, Value};
use wire::{Payload, Reader};

/// The content type of such bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every body starts with.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body can't be read. The words are those of the real server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// Not even the kind is known.
    #[error("{0}")]
    Envelope(String),
    /// No message is known for the kind.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    Kind { api_version: String, kind: String },
    /// The kind is known, but what follows is not one.
    #[error("{why}")]
    Message { api_version: String, kind: String, why: String },
}

/// Reads a body into the JSON form of its object. `default` is the apiVersion and kind of a body that names none.
pub(crate) fn decode(body: &[u8], default: (&str, &str)) -> Result<Value, DecodeError> {
    let envelope = envelope(body).map_err(DecodeError::Envelope)?;
    let or = |text: String, default: &str| if text.is_empty() { default.to_string() } else { text };
    let (api_version, kind) = (or(envelope.api_version, default.0), or(envelope.kind, default.1));
    let table = table::table();
    let Some(root) = table.find(&api_version, &kind) else {
        return Err(DecodeError::Kind { api_version, kind });
    };
    let mut object = Map::new();
    if let Err(why) = Decoder::new(table).message(root, envelope.raw, &mut object) {
        return Err(DecodeError::Message { api_version, kind, why });
    }
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(Value::Object(object))
}

/// What is around every object.
#[derive(Debug, Default, PartialEq)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

fn envelope(body: &[u8]) -> Result<Envelope<'_>, String> {
    if body.is_empty() {
        return Err("empty data".into());
    }
    let Some(rest) = body.strip_prefix(MAGIC) else {
        let why = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
        return Err(why.into());
    };
    if rest.is_empty() {
        return Err("empty body".into());
    }
    let mut out = Envelope::default();
    let mut reader = Reader::new(rest);
    while let Some((number, payload)) = reader.field()? {
        match (number, payload) {
            (1, Payload::Bytes(bytes)) => {
                let mut inner = Reader::new(bytes);
                while let Some((number, payload)) = inner.field()? {
                    match (number, payload) {
                        (1, Payload::Bytes(text)) => out.api_version = wire::text(text),
                        (2, Payload::Bytes(text)) => out.kind = wire::text(text),
                        _ => {}
                    }
                }
            }
            (2, Payload::Bytes(bytes)) => out.raw = bytes,
            // The encoding and type of the content: there is only this one.
            _ => {}
        }
    }
    Ok(out)
}
