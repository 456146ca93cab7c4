//! Turns as JSON: the fields of the turn, the time, and the seconds since the command began.

use super::model::Turn;
use jiff::Timestamp;
use serde_json::Value;
use std::time::Duration;

pub(super) fn value(turn: &Turn, elapsed: Duration) -> Value {
    let mut value = serde_json::to_value(turn).unwrap_or_default();
    if let Value::Object(fields) = &mut value {
        fields.insert("time".to_owned(), Timestamp::now().to_string().into());
        let seconds = (elapsed.as_secs_f64() * 1000.0).round() / 1000.0;
        fields.insert("elapsedSeconds".to_owned(), seconds.into());
    }
    value
}
