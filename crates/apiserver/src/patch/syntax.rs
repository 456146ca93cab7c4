//! Bodies that can't be read, in the words of the real server.

use crate::apply::go_type;
use serde_json::Value;

/// Reads JSON; a failure is worded as Go's decoder words it.
pub(super) fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| {
        if error.is_eof() {
            return "unexpected end of JSON input".into();
        }
        match offending_char(body, error.line(), error.column()) {
            Some(c) => format!("invalid character '{c}' looking for beginning of value"),
            None => error.to_string(),
        }
    })
}

fn offending_char(body: &[u8], line: usize, column: usize) -> Option<char> {
    let text = std::str::from_utf8(body).ok()?;
    text.lines().nth(line.checked_sub(1)?)?.get(column.checked_sub(1)?..)?.chars().next()
}

/// What Go's decoder says of a value that does not fit.
pub(super) fn cannot_unmarshal(value: &Value, into: &str) -> String {
    let kind = match value {
        Value::Array(_) => "array",
        Value::Object(_) => "object",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        other => go_type(other),
    };
    format!("json: cannot unmarshal {kind} into Go {into}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_go() {
        assert_eq!(parse(b"{").unwrap_err(), "unexpected end of JSON input");
        assert_eq!(parse(b"").unwrap_err(), "unexpected end of JSON input");
        assert_eq!(
            parse(b"{\"a\":\n x}").unwrap_err(),
            "invalid character 'x' looking for beginning of value"
        );
        assert_eq!(
            cannot_unmarshal(&serde_json::json!([]), "value of type map[string]interface {}"),
            "json: cannot unmarshal array into Go value of type map[string]interface {}"
        );
    }
}
