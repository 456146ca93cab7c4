//! JSON patch (RFC 6902), with the leniencies of the implementation that Kubernetes uses: `replace` may add a field,
//! `add` without a value adds null, `copy` of a field that is not there copies null, and indexes may count from the end.
//! Clients rely on the first of them, which is why the ordinary crate for it does not do.

use super::syntax::{cannot_unmarshal, parse};
use crate::status::Status;
use serde_json::{Map, Value};

const MAX_OPERATIONS: usize = 10_000;

/// A patch that was read; it can be applied again and again.
#[derive(Debug, Clone)]
pub struct JsonPatch {
    operations: Vec<Map<String, Value>>,
}

/// The operation does not fit the object. The real server does not tell the client more than that.
#[derive(Debug)]
struct DoesNotApply;

type Outcome<T> = Result<T, DoesNotApply>;

// === impl JsonPatch ===

impl JsonPatch {
    pub fn parse(body: &[u8]) -> Result<Self, Status> {
        let refuse = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
        let operations = match parse(body).map_err(refuse)? {
            Value::Array(list) => list,
            Value::Null => Vec::new(),
            other => {
                return Err(refuse(cannot_unmarshal(&other, "value of type []handlers.jsonPatchOp")));
            }
        };
        let count = operations.len();
        let operations = operations
            .into_iter()
            .map(|operation| match operation {
                Value::Object(fields) => check_fields(fields),
                Value::Null => Ok(Map::new()),
                other => Err(cannot_unmarshal(&other, "value of type handlers.jsonPatchOp")),
            })
            .collect::<Result<Vec<_>, _>>()
            .map_err(refuse)?;
        if count > MAX_OPERATIONS {
            return Err(Status::new(
                413,
                "RequestEntityTooLarge",
                format!(
                    "Request entity too large: The allowed maximum operations in a JSON patch is \
                     {MAX_OPERATIONS}, got {count}"
                ),
            ));
        }
        Ok(Self { operations })
    }

    /// The patched object. Either all operations are carried out or none.
    pub fn apply(&self, object: &Value) -> Result<Value, Status> {
        let mut out = object.clone();
        for operation in &self.operations {
            run(&mut out, operation).map_err(|DoesNotApply| unprocessable())?;
        }
        Ok(out)
    }
}

/// 422 as the real server answers it for patches that can't be carried out.
pub(super) fn unprocessable() -> Status {
    let mut status =
        Status::new(422, "Invalid", "the server rejected our request due to an error in our request");
    status.details = Some(Box::default());
    status
}

fn check_fields(fields: Map<String, Value>) -> Result<Map<String, Value>, String> {
    for name in ["op", "path", "from"] {
        match fields.get(name) {
            None | Some(Value::String(_) | Value::Null) => {}
            Some(other) => {
                let into = format!("struct field jsonPatchOp.{name} of type string");
                return Err(cannot_unmarshal(other, &into));
            }
        }
    }
    Ok(fields)
}

fn run(object: &mut Value, operation: &Map<String, Value>) -> Outcome<()> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str).ok_or(DoesNotApply);
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    let path = || text("path");
    match text("op")? {
        "add" => add(object, path()?, value()),
        "remove" => remove(object, path()?).map(drop),
        "replace" => replace(object, path()?, value()),
        "test" => test(object, path()?, &value()),
        "move" => {
            let value = remove(object, text("from")?)?;
            add(object, path()?, value)
        }
        "copy" => {
            let value = get(object, text("from")?)?.cloned().unwrap_or(Value::Null);
            add(object, path()?, value)
        }
        _ => Err(DoesNotApply),
    }
}

/// The container that the last step of a path is in, and that step.
fn locate<'o>(object: &'o mut Value, path: &str) -> Outcome<(&'o mut Value, String)> {
    let mut steps = path.split('/');
    steps.next();
    let mut steps: Vec<String> = steps.map(|s| s.replace("~1", "/").replace("~0", "~")).collect();
    let last = steps.pop().ok_or(DoesNotApply)?;
    let mut at = object;
    for step in steps {
        at = match at {
            Value::Object(fields) => fields.get_mut(&step).ok_or(DoesNotApply)?,
            Value::Array(items) => {
                let i = index(&step, items.len())?;
                items.get_mut(i).ok_or(DoesNotApply)?
            }
            _ => return Err(DoesNotApply),
        };
    }
    match at {
        Value::Object(_) | Value::Array(_) => Ok((at, last)),
        _ => Err(DoesNotApply),
    }
}

/// An index into something of this length; negative ones count from the end.
fn index(step: &str, length: usize) -> Outcome<usize> {
    let index: i64 = step.parse().map_err(|_| DoesNotApply)?;
    let index = if index < 0 { index + length as i64 } else { index };
    usize::try_from(index).map_err(|_| DoesNotApply)
}

fn add(object: &mut Value, path: &str, value: Value) -> Outcome<()> {
    match locate(object, path)? {
        (Value::Object(fields), key) => {
            fields.insert(key, value);
        }
        (Value::Array(items), key) if key == "-" => items.push(value),
        (Value::Array(items), key) => {
            let at = index(&key, items.len() + 1)?;
            if at > items.len() {
                return Err(DoesNotApply);
            }
            items.insert(at, value);
        }
        _ => return Err(DoesNotApply),
    }
    Ok(())
}

fn remove(object: &mut Value, path: &str) -> Outcome<Value> {
    match locate(object, path)? {
        (Value::Object(fields), key) => fields.remove(&key).ok_or(DoesNotApply),
        (Value::Array(items), key) => {
            let at = index(&key, items.len())?;
            if at < items.len() { Ok(items.remove(at)) } else { Err(DoesNotApply) }
        }
        _ => Err(DoesNotApply),
    }
}

fn replace(object: &mut Value, path: &str, value: Value) -> Outcome<()> {
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err(DoesNotApply);
        }
        *object = value;
        return Ok(());
    }
    match locate(object, path)? {
        (Value::Object(fields), key) => {
            fields.insert(key, value);
        }
        (Value::Array(items), key) => {
            let at = index(&key, items.len())?;
            *items.get_mut(at).ok_or(DoesNotApply)? = value;
        }
        _ => return Err(DoesNotApply),
    }
    Ok(())
}

/// `None`: a field that is not there, which reads as null.
fn get<'o>(object: &'o mut Value, path: &str) -> Outcome<Option<&'o Value>> {
    match locate(object, path)? {
        (Value::Object(fields), key) => Ok(fields.get(&key)),
        (Value::Array(items), key) => {
            let at = index(&key, items.len())?;
            items.get(at).map(Some).ok_or(DoesNotApply)
        }
        _ => Err(DoesNotApply),
    }
}

fn test(object: &mut Value, path: &str, value: &Value) -> Outcome<()> {
    let found = if path.is_empty() { Some(&*object) } else { get(object, path)? };
    if found.unwrap_or(&Value::Null) == value { Ok(()) } else { Err(DoesNotApply) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patch(object: Value, operations: Value) -> Result<Value, Status> {
        JsonPatch::parse(operations.to_string().as_bytes())?.apply(&object)
    }

    fn object() -> Value {
        json!({"data": {"x": "1", "a/b": "2"}, "list": ["a", "b"]})
    }

    #[test]
    fn carries_out() {
        let table = [
            (
                json!({"op": "add", "path": "/data/n", "value": "v"}),
                json!({"data": {"x": "1", "a/b": "2", "n": "v"}, "list": ["a", "b"]}),
            ),
            (
                json!({"op": "add", "path": "/data/n"}),
                json!({"data": {"x": "1", "a/b": "2", "n": null}, "list": ["a", "b"]}),
            ),
            (json!({"op": "remove", "path": "/data/a~1b"}), json!({"data": {"x": "1"}, "list": ["a", "b"]})),
            (
                json!({"op": "replace", "path": "/data/new", "value": "v"}),
                json!({"data": {"x": "1", "a/b": "2", "new": "v"}, "list": ["a", "b"]}),
            ),
            (
                json!({"op": "add", "path": "/list/1", "value": "n"}),
                json!({"data": {"x": "1", "a/b": "2"}, "list": ["a", "n", "b"]}),
            ),
            (
                json!({"op": "add", "path": "/list/-", "value": "n"}),
                json!({"data": {"x": "1", "a/b": "2"}, "list": ["a", "b", "n"]}),
            ),
            (
                json!({"op": "add", "path": "/list/2", "value": "n"}),
                json!({"data": {"x": "1", "a/b": "2"}, "list": ["a", "b", "n"]}),
            ),
            (
                json!({"op": "remove", "path": "/list/-1"}),
                json!({"data": {"x": "1", "a/b": "2"}, "list": ["a"]}),
            ),
            (
                json!({"op": "move", "from": "/data/x", "path": "/y"}),
                json!({"data": {"a/b": "2"}, "list": ["a", "b"], "y": "1"}),
            ),
            (
                json!({"op": "copy", "from": "/list/0", "path": "/data/x"}),
                json!({"data": {"x": "a", "a/b": "2"}, "list": ["a", "b"]}),
            ),
            (
                json!({"op": "copy", "from": "/data/none", "path": "/data/x"}),
                json!({"data": {"x": null, "a/b": "2"}, "list": ["a", "b"]}),
            ),
            (json!({"op": "test", "path": "/data/x", "value": "1"}), object()),
            (json!({"op": "test", "path": "/data/none", "value": null}), object()),
            (json!({"op": "replace", "path": "", "value": {"a": 1}}), json!({"a": 1})),
        ];
        for (operation, wanted) in table {
            assert_eq!(patch(object(), json!([operation])).unwrap(), wanted, "{operation}");
        }
    }

    #[test]
    fn refuses_what_does_not_apply_with_one_answer() {
        for operation in [
            json!({"op": "remove", "path": "/data/zz"}),
            json!({"op": "remove", "path": "/nope/zz"}),
            json!({"op": "remove", "path": ""}),
            json!({"op": "test", "path": "/data/x", "value": "9"}),
            json!({"op": "test", "path": "/nope/x", "value": "9"}),
            json!({"op": "replace", "path": "/nope/x", "value": "9"}),
            json!({"op": "replace", "path": "", "value": "x"}),
            json!({"op": "add", "path": "/nope/x", "value": "9"}),
            json!({"op": "add", "path": "/list/3", "value": "9"}),
            json!({"op": "add", "path": "/list/x", "value": "9"}),
            json!({"op": "add", "path": "data", "value": "9"}),
            json!({"op": "add", "value": "9"}),
            json!({"op": "frob", "path": "/data/x", "value": "9"}),
            json!({"path": "/data/x", "value": "9"}),
            json!({"op": "move", "from": "/data/q", "path": "/data/n"}),
            json!({"op": "copy", "from": "/q/q", "path": "/data/n"}),
        ] {
            let status = patch(object(), json!([operation])).unwrap_err();
            assert_eq!(
                status.to_json(),
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 422,
                    "reason": "Invalid", "details": {},
                    "message": "the server rejected our request due to an error in our request"}),
                "{operation}"
            );
        }
    }

    #[test]
    fn refuses_what_is_no_patch() {
        let table: [(&[u8], &str); 5] = [
            (b"{", "error decoding patch: unexpected end of JSON input"),
            (
                b"{}",
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                b"\"x\"",
                "error decoding patch: json: cannot unmarshal string into Go value of type []handlers.jsonPatchOp",
            ),
            (
                b"[1]",
                "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
            ),
            (
                b"[{\"op\":1}]",
                "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
            ),
        ];
        for (body, message) in table {
            let status = JsonPatch::parse(body).unwrap_err();
            assert_eq!((status.code, status.message.as_str()), (400, message));
        }
        assert_eq!(JsonPatch::parse(b"null").unwrap().apply(&object()).unwrap(), object());
    }

    #[test]
    fn refuses_too_many_operations() {
        let one = json!({"op": "test", "path": "/data/x", "value": "1"});
        let full = Value::Array(vec![one.clone(); 10_000]);
        assert_eq!(patch(object(), full).unwrap(), object());
        let status = patch(object(), Value::Array(vec![one; 10_001])).unwrap_err();
        assert_eq!((status.code, status.reason), (413, "RequestEntityTooLarge"));
        assert_eq!(
            status.message,
            "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
        );
    }
}
