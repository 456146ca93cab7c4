//! One message into one JSON object, with Go's habits: what its JSON encoder would leave out is left out.

use super::table::{Field, Shape, Table, Type};
use super::wire::{Payload, Reader, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Number, Value};
use std::ops::RangeInclusive;

/// Messages inside of messages. JSON bodies may be as deep.
const MAX_DEPTH: usize = 128;
/// The seconds of the years 0 to 9999, which are those that can be written.
const YEARS: RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

pub(super) struct Decoder<'a> {
    table: &'a Table,
    depth: usize,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(table: &'a Table) -> Self {
        Self { table, depth: 0 }
    }

    /// Reads the fields of a message into `out`. What is not known is passed over.
    pub(super) fn message(
        &mut self,
        message: usize,
        bytes: &[u8],
        out: &mut Map<String, Value>,
    ) -> Result<(), String> {
        if self.depth == MAX_DEPTH {
            return Err(format!("proto: messages are nested more than {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        let table = self.table;
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.field()? {
            if let Some(field) = table.fields(message).iter().find(|field| field.number == number) {
                self.field(field, payload, out)?;
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn field(&mut self, field: &Field, payload: Payload, out: &mut Map<String, Value>) -> Result<(), String> {
        match field.shape {
            Shape::Inline => match (field.ty, payload) {
                (Type::Message(inner), Payload::Bytes(bytes)) => self.message(inner, bytes, out),
                _ => Err(wrong(field, payload)),
            },
            Shape::One => self.one(field, payload, out),
            Shape::List => {
                let entry = out.entry(&*field.name).or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(items) = entry else { return Ok(()) };
                match (payload, is_number(field.ty)) {
                    (Payload::Bytes(bytes), true) => packed(field, bytes, items),
                    _ => {
                        items.push(self.value(field, payload)?);
                        Ok(())
                    }
                }
            }
            Shape::Map => {
                let Payload::Bytes(bytes) = payload else { return Err(wrong(field, payload)) };
                let (key, value) = self.map_entry(field, bytes)?;
                let entry = out.entry(&*field.name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = entry {
                    map.insert(key, value);
                }
                Ok(())
            }
        }
    }

    fn one(&mut self, field: &Field, payload: Payload, out: &mut Map<String, Value>) -> Result<(), String> {
        // A message that comes in parts is put together.
        if let (Type::Message(inner), Payload::Bytes(bytes)) = (field.ty, payload) {
            let mut object = match out.remove(&*field.name) {
                Some(Value::Object(object)) => object,
                _ => Map::new(),
            };
            self.message(inner, bytes, &mut object)?;
            out.insert(field.name.to_string(), Value::Object(object));
            return Ok(());
        }
        let value = self.value(field, payload)?;
        if value.is_null() || (is_zero(&value) && is_plain(field.ty) && !field.keeps_zero) {
            out.remove(&*field.name);
        } else {
            out.insert(field.name.to_string(), value);
        }
        Ok(())
    }

    fn map_entry(&mut self, field: &Field, bytes: &[u8]) -> Result<(String, Value), String> {
        let mut key = String::new();
        let mut value = None;
        let mut reader = Reader::new(bytes);
        while let Some((number, payload)) = reader.field()? {
            match (number, payload) {
                (1, Payload::Bytes(bytes)) => key = text(bytes),
                (2, payload) => value = Some(self.value(field, payload)?),
                _ => {}
            }
        }
        let value = match value {
            Some(value) => value,
            // Every type of map values is written as bytes, and none of them is a zero.
            None => self.value(field, Payload::Bytes(&[]))?,
        };
        Ok((key, value))
    }

    /// A single value; `null` stands for one that JSON leaves out.
    fn value(&mut self, field: &Field, payload: Payload) -> Result<Value, String> {
        if is_number(field.ty) {
            return number(field, payload);
        }
        let Payload::Bytes(bytes) = payload else { return Err(wrong(field, payload)) };
        match field.ty {
            Type::Text => Ok(Value::String(text(bytes))),
            Type::Bytes => Ok(Value::String(STANDARD.encode(bytes))),
            Type::Time => time(bytes, false),
            Type::MicroTime => time(bytes, true),
            Type::Quantity => quantity(bytes),
            Type::IntOrString => int_or_string(bytes),
            Type::Raw => raw(bytes),
            Type::TextList => text_list(bytes),
            Type::Choice(inner) => {
                let mut object = Map::new();
                self.message(inner, bytes, &mut object)?;
                Ok(choose(object))
            }
            Type::Message(inner) => {
                let mut object = Map::new();
                self.message(inner, bytes, &mut object)?;
                Ok(Value::Object(object))
            }
            Type::Bool | Type::Int32 | Type::Int64 | Type::Double => Err(wrong(field, payload)),
        }
    }
}

fn is_number(ty: Type) -> bool {
    matches!(ty, Type::Bool | Type::Int32 | Type::Int64 | Type::Double)
}

/// The types of which Go leaves out zeros.
fn is_plain(ty: Type) -> bool {
    is_number(ty) || matches!(ty, Type::Text | Type::Bytes)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn number(field: &Field, payload: Payload) -> Result<Value, String> {
    match (field.ty, payload) {
        (Type::Bool, Payload::Varint(bits)) => Ok(Value::Bool(bits != 0)),
        (Type::Int32, Payload::Varint(bits)) => Ok(Value::from(bits as i32)),
        (Type::Int64, Payload::Varint(bits)) => Ok(Value::from(bits as i64)),
        (Type::Double, Payload::Fixed64(bits)) => double(f64::from_bits(bits)),
        _ => Err(wrong(field, payload)),
    }
}

fn double(value: f64) -> Result<Value, String> {
    // Whole numbers are written without a fraction.
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return Ok(Value::from(value as i64));
    }
    Number::from_f64(value).map(Value::Number).ok_or_else(|| format!("json: unsupported value: {value}"))
}

/// Several numbers in one run of bytes.
fn packed(field: &Field, bytes: &[u8], items: &mut Vec<Value>) -> Result<(), String> {
    let mut reader = Reader::new(bytes);
    while !reader.is_empty() {
        let payload = match field.ty {
            Type::Double => Payload::Fixed64(reader.fixed64()?),
            _ => Payload::Varint(reader.varint()?),
        };
        items.push(number(field, payload)?);
    }
    Ok(())
}

fn wrong(field: &Field, payload: Payload) -> String {
    format!("proto: wrong wireType = {} for field {}", payload.wire_type(), field.name)
}

/// Seconds and nanoseconds since 1970; no bytes at all are Go's zero time, which is none.
fn time(bytes: &[u8], with_micros: bool) -> Result<Value, String> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match (number, payload) {
            (1, Payload::Varint(bits)) => seconds = bits as i64,
            (2, Payload::Varint(bits)) => nanos = bits as i32,
            _ => {}
        }
    }
    let nanos = if with_micros { nanos.clamp(0, 999_999_999) } else { 0 };
    let time = Timestamp::from_second(seconds).ok().filter(|_| YEARS.contains(&seconds));
    let time = time.ok_or("Time.MarshalJSON: year outside of range [0,9999]")?;
    let whole = time.to_string();
    Ok(Value::String(match with_micros {
        true => format!("{}.{:06}Z", whole.trim_end_matches('Z'), nanos / 1000),
        false => whole,
    }))
}

fn quantity(bytes: &[u8]) -> Result<Value, String> {
    let written = first_text(bytes)?;
    Ok(Value::String(if written.is_empty() { "0".into() } else { written }))
}

/// The text in field 1 of a message.
fn first_text(bytes: &[u8]) -> Result<String, String> {
    let mut out = String::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        if let (1, Payload::Bytes(bytes)) = (number, payload) {
            out = text(bytes);
        }
    }
    Ok(out)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number, mut written) = (false, 0_i32, String::new());
    let mut reader = Reader::new(bytes);
    while let Some((field, payload)) = reader.field()? {
        match (field, payload) {
            (1, Payload::Varint(bits)) => is_text = bits != 0,
            (2, Payload::Varint(bits)) => number = bits as i32,
            (3, Payload::Bytes(bytes)) => written = text(bytes),
            _ => {}
        }
    }
    Ok(if is_text { Value::String(written) } else { Value::from(number) })
}

/// JSON that travels as bytes.
fn raw(bytes: &[u8]) -> Result<Value, String> {
    let written = first_text(bytes)?;
    if written.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&written).map_err(|error| format!("embedded JSON: {error}"))
}

fn text_list(bytes: &[u8]) -> Result<Value, String> {
    let mut items = Vec::new();
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        if let (1, Payload::Bytes(bytes)) = (number, payload) {
            items.push(Value::String(text(bytes)));
        }
    }
    Ok(Value::Array(items))
}

/// What a message with alternatives stands for: a list before a schema, a schema before a flag.
fn choose(mut object: Map<String, Value>) -> Value {
    for name in ["jSONSchemas", "property", "schema", "allows"] {
        if let Some(value) = object.remove(name) {
            return value;
        }
    }
    Value::Null
}
