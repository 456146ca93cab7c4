//! Requests whose body is binary: the object that the path is for, and the smaller forms beside it.

use super::{DecodeError, MEDIA_TYPE, decode};
use crate::engine::Call;
use crate::http::{decode as text, media};
use crate::status::Status;
use serde_json::Value;
use std::fmt::Write;

/// So much of a body is shown in an error.
const SHOWN: usize = 30;

impl Call {
    pub(crate) fn is_protobuf(&self) -> bool {
        media::content_type(Some(&self.content_type)) == MEDIA_TYPE
    }

    /// An object of the built-in kind that the path names.
    pub(crate) fn decode_protobuf(&self, body: &[u8]) -> Result<Value, Status> {
        let resource = &self.entry.resource;
        let mut value =
            decode(body, (&resource.api_version(), &resource.kind)).map_err(|error| match &error {
                DecodeError::Envelope(why) => Status::bad_request(format!(
                    "the object provided is unrecognized (must be of type {}): {why} ({})",
                    resource.kind,
                    shown(body)
                )),
                DecodeError::Kind { api_version, kind } | DecodeError::Message { api_version, kind, .. } => {
                    let version = api_version.rsplit('/').next().unwrap_or_default();
                    Status::bad_request(format!(
                        "{kind} in version {version:?} cannot be handled as a {}: {error}",
                        resource.kind
                    ))
                }
            })?;
        self.check_kind(&mut value)?;
        self.check_types(&value).map_err(|why| self.cannot_be_handled(&why))?;
        Ok(value)
    }

    /// A body that is not the object of the path: options, a scale, a request for a token.
    pub(crate) fn decode_other(&self, body: &[u8], api_version: &str, kind: &str) -> Result<Value, Status> {
        if self.is_protobuf() {
            return decode(body, (api_version, kind)).map_err(|error| Status::bad_request(error.to_string()));
        }
        let decoded = text::decode(body, self.body_syntax()?).map_err(Status::bad_request)?;
        Ok(decoded.value)
    }
}

/// The start of a body that may be anything.
fn shown(body: &[u8]) -> String {
    if body.is_empty() {
        return "<empty>".into();
    }
    let mut out = String::new();
    for byte in body.iter().take(SHOWN) {
        // Writing to a string can't fail.
        let _ = write!(out, "{byte:02x}");
    }
    if body.len() > SHOWN {
        out.push_str(" ...");
    }
    out
}
