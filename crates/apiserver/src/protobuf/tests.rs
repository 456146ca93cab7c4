//! Held against pairs of protobuf and JSON that Kubernetes' own encoders made (see `testdata/vectors.go`), and against
//! bytes that nobody would send.

use super::table::{Shape, Type, table};
use super::*;
use crate::builtin;
use crate::schema;
use flate2::read::GzDecoder;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Read;

const DEFAULT: (&str, &str) = ("v1", "ConfigMap");

fn vectors() -> Vec<(Vec<u8>, Value)> {
    let mut bytes = Vec::new();
    GzDecoder::new(&include_bytes!("testdata/vectors.gz")[..]).read_to_end(&mut bytes).unwrap();
    let mut rest = bytes.as_slice();
    let mut next = || {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let (part, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        rest = after;
        Some(part.to_vec())
    };
    let mut out = Vec::new();
    while let (Some(binary), Some(text)) = (next(), next()) {
        out.push((binary, serde_json::from_slice(&text).unwrap()));
    }
    out
}

/// Without the nulls in objects: Go writes some for what is not there, and nobody reads them.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

fn wrapped(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut types = field(1, api_version.as_bytes());
    types.extend(field(2, kind.as_bytes()));
    let mut body = MAGIC.to_vec();
    body.extend(field(1, &types));
    body.extend(field(2, raw));
    body
}

/// A run of bytes as a field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

/// Names the place of a difference: the objects are too large to look for it.
fn assert_same(path: &str, found: &Value, expected: &Value) {
    match (found, expected) {
        (Value::Object(a), Value::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let side = |map: &Map<String, Value>| map.get(name).cloned().unwrap_or_default();
                assert_same(&format!("{path}.{name}"), &side(a), &side(b));
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                assert_same(&format!("{path}[{i}]"), a, b);
            }
        }
        _ => assert_eq!(found, expected, "{path}"),
    }
}

#[test]
fn every_kind_reads_as_go_writes_it() {
    let mut kinds = BTreeSet::new();
    for (binary, mut expected) in vectors() {
        let (api_version, kind) = (expected["apiVersion"].clone(), expected["kind"].clone());
        let mut found = decode(&binary, ("", "")).unwrap_or_else(|error| panic!("{kind}: {error}"));
        without_nulls(&mut expected);
        without_nulls(&mut found);
        assert_same(&format!("{api_version} {kind}"), &found, &expected);
        kinds.insert((api_version.to_string(), kind.to_string()));
    }
    for resource in builtin::resources() {
        let key = (json!(resource.api_version()).to_string(), json!(resource.kind).to_string());
        assert!(kinds.contains(&key), "{key:?}");
    }
}

#[test]
fn every_served_kind_has_a_message_and_no_field_is_unknown_to_its_schema() {
    for resource in builtin::resources() {
        let found = table().find(&resource.api_version(), &resource.kind);
        assert!(found.is_some_and(|root| !table().fields(root).is_empty()), "{}", resource.kind);
    }
    // Lists are not written, and have another metadata.
    let is_list = |object: &Value| object["kind"] == "Status" || object["kind"] == "ConfigMapList";
    for (_, object) in vectors().into_iter().filter(|(_, object)| !is_list(object)) {
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_string();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let unknown = schema::unknown_fields(&builtin::load_schema(group, version, &kind), &object);
        assert_eq!(unknown, Vec::<String>::new(), "{kind}");
    }
}

#[test]
fn the_table_has_no_loose_ends() {
    let mut text = String::new();
    GzDecoder::new(&include_bytes!("messages.gz")[..]).read_to_string(&mut text).unwrap();
    // A field whose type is not known would disappear.
    let written =
        text.lines().filter_map(|line| line.split_once('\t')).filter(|(_, fields)| !fields.is_empty());
    let written: usize = written.map(|(_, fields)| fields.split(';').count()).sum();
    let read: usize = table().names().map(|(_, position)| table().fields(position).len()).sum();
    assert_eq!(read, written);
    let mut messages = 0;
    for (name, position) in table().names() {
        messages += 1;
        let fields = table().fields(position);
        let numbers: BTreeSet<u32> = fields.iter().map(|field| field.number).collect();
        assert_eq!(numbers.len(), fields.len(), "{name} has a number twice");
        for field in fields {
            let is_inlined = field.shape == Shape::Inline;
            assert_eq!(field.name.is_empty(), is_inlined, "{name}.{}", field.number);
            assert!(!is_inlined || matches!(field.ty, Type::Message(_)), "{name}.{}", field.number);
        }
    }
    assert!(messages > 500, "{messages}");
    assert_eq!(table().find("v1", "Deployment"), None);
    assert_eq!(table().find("wire.example.com/v7", "DeleteOptions"), table().find("v1", "DeleteOptions"));
    assert_eq!(table().find("wire.example.com/v7", "ObjectMeta"), None);
}

#[test]
fn a_body_without_a_kind_is_of_the_expected_one() {
    let meta = field(1, &field(1, b"a"));
    let mut body = MAGIC.to_vec();
    body.extend(field(2, &meta));
    let found = decode(&body, DEFAULT).unwrap();
    assert_eq!(found, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}));
}

#[test]
fn parts_are_put_together_and_unknown_fields_passed_over() {
    let mut raw = field(1, &field(1, b"a"));
    raw.extend(field(15, b"of a later release"));
    // An unknown number, and a group with one inside.
    raw.extend([0xf8, 0x07, 0x96, 0x01, 0xfb, 0x07, 0x08, 0x01, 0xfc, 0x07]);
    raw.extend(field(1, &field(3, b"b")));
    let mut entry = field(1, b"key");
    entry.extend(field(2, b"old"));
    raw.extend(field(2, &entry));
    raw.extend(field(2, &field(1, b"key")));
    let found = decode(&wrapped("v1", "ConfigMap", &raw), DEFAULT).unwrap();
    assert_eq!(found["metadata"], json!({"name": "a", "namespace": "b"}));
    assert_eq!(found["data"], json!({"key": ""}), "the last entry counts, also without a value");
}

#[test]
fn numbers_in_a_row_are_read_packed_and_one_by_one() {
    let packed = field(4, &[0x01, 0x80, 0x01]);
    let one_by_one = [0x20, 0x05, 0x20, 0x06];
    let context = [&packed[..], &one_by_one].concat();
    let pod = field(2, &field(14, &context));
    let found = decode(&wrapped("v1", "Pod", &pod), DEFAULT).unwrap();
    assert_eq!(found["spec"]["securityContext"]["supplementalGroups"], json!([1, 128, 5, 6]));
}

#[test]
fn errors_are_those_of_the_real_server() {
    let envelope = |body: &[u8]| match decode(body, DEFAULT) {
        Err(DecodeError::Envelope(why)) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(envelope(b""), "empty data");
    let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    assert_eq!(envelope(b"hello"), prefix);
    assert_eq!(envelope(b"k8s\0"), "empty body");
    assert_eq!(envelope(b"k8s\0\x0a\xff"), "unexpected EOF");
    let message = |raw: &[u8]| decode(&wrapped("v1", "ConfigMap", raw), DEFAULT).unwrap_err().to_string();
    assert_eq!(message(b"\x0a\x7f"), "unexpected EOF");
    assert_eq!(message(b"\x08\x7f"), "proto: wrong wireType = 0 for field metadata");
    assert_eq!(message(b"\x0f\x7f"), "proto: illegal wireType 7");
    assert_eq!(message(b"\x02\x00"), "proto: illegal tag 0 (wire type 2)");
    assert_eq!(message(&[0xff; 12]), "proto: integer overflow");
    let error = decode(&wrapped("v1", "Secrex", b""), DEFAULT).unwrap_err();
    assert_eq!(error.to_string(), "no kind \"Secrex\" is registered for version \"v1\"");
}

#[test]
fn what_nests_without_end_is_refused() {
    // not: a schema in a schema in a schema.
    let mut schema = Vec::new();
    for _ in 0..300 {
        let number = [0xe2_u8, 0x01];
        let length = field(1, &schema)[1..].to_vec();
        schema = [&number[..], &length].concat();
    }
    let version = field(4, &field(1, &schema));
    let crd = field(2, &field(7, &version));
    let body = wrapped("apiextensions.k8s.io/v1", "CustomResourceDefinition", &crd);
    let error = decode(&body, DEFAULT).unwrap_err().to_string();
    assert_eq!(error, "proto: messages are nested more than 128 deep");
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = decode(&bytes, DEFAULT);
        for kind in [("v1", "Pod"), ("v1", "Event"), ("apiextensions.k8s.io/v1", "CustomResourceDefinition")] {
            let _ = decode(&wrapped(kind.0, kind.1, &bytes), DEFAULT);
        }
    }

    /// Damage in what is otherwise right goes deeper than noise does.
    #[test]
    fn damaged_bodies_are_read_or_refused(
        which in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        keep in any::<prop::sample::Index>(),
    ) {
        let all = vectors();
        let mut body = which.get(&all).0.clone();
        for (at, byte) in damage {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let _ = decode(&body, DEFAULT);
        body.truncate(keep.index(body.len()));
        if let Ok(value) = decode(&body, DEFAULT) {
            prop_assert!(value["kind"].is_string());
        }
    }
}
