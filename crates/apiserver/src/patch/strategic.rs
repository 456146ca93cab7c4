//! Strategic merge patch: a merge patch in which lists may merge too, as the schema says, with directives in the patch
//! for what a plain merge can't say.
//!
//! Only built-in kinds have it. Refusals that the real server answers with 500 are answered so here too.

use super::json::unprocessable;
use super::merge::drop_nulls;
use super::order::{Identity, arrange};
use super::syntax::{cannot_unmarshal, parse};
use crate::apply::{go_type, go_value};
use crate::schema::{Additional, Schema};
use crate::status::Status;
use serde_json::{Map, Value};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Why a patch can't be carried out.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("{0}")]
    BadFormat(&'static str),
    #[error("lists of lists are not supported")]
    ListOfLists,
    #[error("{0}")]
    Other(String),
}

type Outcome<T> = Result<T, Problem>;

/// Reads a strategic merge patch: a JSON object.
pub fn parse_strategic_patch(body: &[u8]) -> Result<Value, Status> {
    match parse(body).map_err(Status::bad_request)? {
        patch @ Value::Object(_) => Ok(patch),
        Value::Null => Ok(Value::Object(Map::new())),
        other => Err(Status::bad_request(cannot_unmarshal(&other, "value of type map[string]interface {}"))),
    }
}

/// The patched object.
pub fn strategic_patch(schema: &Schema, object: &Value, patch: &Value) -> Result<Value, Status> {
    let (Value::Object(fields), Value::Object(changes)) = (object, patch) else {
        return Ok(object.clone());
    };
    merge_map(Some(schema), fields.clone(), changes.clone()).map(Value::Object).map_err(Problem::into_status)
}

// === impl Problem ===

impl Problem {
    fn into_status(self) -> Status {
        match self {
            Self::BadFormat(_) => Status::bad_request(self.to_string()),
            Self::ListOfLists => unprocessable(),
            Self::Other(message) => Status::new(500, "", message),
        }
    }

    fn unknown_directive(directive: &Value, map: &Map<String, Value>) -> Self {
        let text = match directive {
            Value::String(text) => text.clone(),
            other => format!("%!s({}={})", go_type(other), go_value(other)),
        };
        Self::Other(format!("unknown patch type: {text} in map: {}", map_text(map)))
    }

    fn no_merge_key(map: &Map<String, Value>, key: &str) -> Self {
        Self::Other(format!("map: {} does not contain declared merge key: {key}", map_text(map)))
    }

    fn not_a_list(value: &Value) -> Self {
        Self::Other(format!("expected a []interface {{}}, but received a {}", go_type(value)))
    }
}

fn map_text(map: &Map<String, Value>) -> String {
    go_value(&Value::Object(map.clone()))
}

fn field<'s>(schema: Option<&'s Schema>, name: &str) -> Option<&'s Schema> {
    let schema = schema?;
    match (schema.properties.get(name), &schema.additional) {
        (Some(listed), _) => Some(listed),
        (None, Additional::Of(values)) => Some(values),
        _ => None,
    }
}

fn merge_map(
    schema: Option<&Schema>,
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
) -> Outcome<Map<String, Value>> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(Problem::unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(schema, &mut original, &mut patch)?;
    // An item that is both added and deleted is gone: the real server leaves that to chance.
    let (deletions, changes): (Vec<_>, Vec<_>) =
        patch.into_iter().partition(|(key, _)| key.starts_with(DELETE_FROM_LIST));
    for (key, change) in changes {
        merge_field(schema, &mut original, key, change)?;
    }
    for (key, change) in deletions {
        let name = key.strip_prefix(DELETE_FROM_LIST).and_then(|k| k.strip_prefix('/'));
        let name = name.ok_or(Problem::BadFormat("invalid patch format of primitive list"))?;
        delete_from_list(&mut original, name, &change)?;
    }
    Ok(original)
}

fn merge_field(
    schema: Option<&Schema>,
    original: &mut Map<String, Value>,
    key: String,
    change: Value,
) -> Outcome<()> {
    if change.is_null() {
        original.remove(&key);
        return Ok(());
    }
    let below = field(schema, &key);
    let merged = match (original.remove(&key), change) {
        (Some(Value::Object(mine)), Value::Object(theirs)) => {
            Some(Value::Object(merge_map(below, mine, theirs)?))
        }
        (Some(Value::Array(mine)), Value::Array(theirs)) => {
            Some(Value::Array(merge_list(below, &key, mine, theirs)?))
        }
        (_, mut change) => {
            drop_nulls(&mut change);
            without_directives(change)
        }
    };
    if let Some(merged) = merged {
        original.insert(key, merged);
    }
    Ok(())
}

/// `$retainKeys`: all else goes from the original.
fn retain_keys(original: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Outcome<()> {
    const BAD: Problem = Problem::BadFormat("invalid patch format of retainKeys");
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(keys) = keys else { return Err(BAD) };
    let kept = |name: &String| keys.iter().any(|k| k.as_str() == Some(name));
    let directive = |name: &str| name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ORDER);
    if patch.iter().any(|(name, value)| !value.is_null() && !directive(name) && !kept(name)) {
        return Err(BAD);
    }
    original.retain(|name, _| kept(name));
    Ok(())
}

/// Lists that come with `$setElementOrder`. What is merged here is taken out of the patch.
fn merge_ordered_lists(
    schema: Option<&Schema>,
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Outcome<()> {
    const BAD: Problem = Problem::BadFormat("invalid patch format of setElementOrder list");
    let directives: Vec<String> = patch.keys().filter(|k| k.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let wanted = match patch.remove(&directive) {
            Some(Value::Array(wanted)) => wanted,
            other => return Err(Problem::not_a_list(&other.unwrap_or_default())),
        };
        let name = directive.strip_prefix(SET_ORDER).and_then(|k| k.strip_prefix('/')).ok_or(BAD)?;
        let list = |value: Option<&Value>| match value {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items.clone())),
            Some(other) => Err(Problem::not_a_list(other)),
        };
        let (mine, theirs) = (list(original.get(name))?, list(patch.get(name))?);
        let below = field(schema, name);
        let id = Identity(below.and_then(|s| s.patch_merge_key.as_deref()));
        check_order(theirs.as_deref().unwrap_or_default(), &wanted, id)?;
        let mut before = mine.clone().unwrap_or_default();
        element_type(&[&before, theirs.as_deref().unwrap_or_default()], mine.is_some() || theirs.is_some())?;
        let merged = match (mine, theirs) {
            (None, None) => continue,
            (Some(mine), None) => mine,
            (None, Some(theirs)) => theirs.into_iter().filter_map(without_directives).collect(),
            (Some(mine), Some(theirs)) => {
                before = order_after_deletions(mine.clone(), &theirs, id);
                merge_list(below, name, mine, theirs)?
            }
        };
        require_keys(&merged, id)?;
        require_keys(&wanted, id)?;
        original.insert(name.to_string(), Value::Array(arrange(merged, &wanted, &before, id)));
        patch.remove(name);
    }
    Ok(())
}

/// What the real server takes for the live order. It deletes and adds in the memory of the live list, so as many added
/// items as items were deleted count as having been there.
fn order_after_deletions(mut live: Vec<Value>, patch: &[Value], id: Identity<'_>) -> Vec<Value> {
    let directive = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str).map(str::to_string);
    if id.0.is_none() || patch.iter().any(|item| directive(item).as_deref() == Some("replace")) {
        return live;
    }
    let length = live.len();
    let deleted: Vec<Value> =
        patch.iter().filter(|i| directive(i).as_deref() == Some("delete")).cloned().collect();
    let deleted = id.places(&deleted);
    live.retain(|item| deleted.get(item).is_none());
    let known = id.places(&live);
    let added = patch.iter().filter(|i| directive(i).is_none() && known.get(i).is_none());
    let room = length - live.len();
    live.extend(added.take(room).cloned().collect::<Vec<_>>());
    live
}

/// The items of the patch must come in the order that the directive gives them.
fn check_order(patch: &[Value], wanted: &[Value], id: Identity<'_>) -> Outcome<()> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let deleted = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
    let mut items = patch.iter().filter(|i| !deleted(i)).peekable();
    let mut rest = wanted.iter();
    while let Some(item) = items.peek() {
        if rest.as_slice().is_empty() {
            break;
        }
        if let (Some(key), Some(fields)) = (id.0, item.as_object())
            && !fields.contains_key(key)
            && !fields.contains_key(DIRECTIVE)
        {
            return Err(Problem::no_merge_key(fields, key));
        }
        if item.get(DIRECTIVE).is_some() || rest.next().is_some_and(|w| id.same(w, item)) {
            items.next();
        }
    }
    if items.peek().is_none() {
        return Ok(());
    }
    let text = |list: &[Value]| go_value(&Value::Array(list.to_vec()));
    Err(Problem::Other(format!(
        "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
        text(patch),
        text(wanted)
    )))
}

fn delete_from_list(original: &mut Map<String, Value>, name: &str, change: &Value) -> Outcome<()> {
    if change.is_null() {
        original.remove(name);
        return Ok(());
    }
    if let (Some(Value::Array(mine)), Value::Array(theirs)) = (original.get_mut(name), change) {
        if !mine.is_empty() || !theirs.is_empty() {
            element_type(&[mine, theirs], true)?;
        }
        let gone = Identity(None).places(theirs);
        mine.retain(|item| gone.get(item).is_none());
    }
    Ok(())
}

fn merge_list(
    schema: Option<&Schema>,
    name: &str,
    original: Vec<Value>,
    patch: Vec<Value>,
) -> Outcome<Vec<Value>> {
    if !schema.is_some_and(|s| s.patch_merge) {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    element_type(&[&original, &patch], true)?;
    let maps = original.iter().chain(&patch).any(Value::is_object);
    if !maps {
        let before = original.clone();
        let mut seen = Identity(None).places(&[]);
        let all = original.into_iter().chain(patch.iter().cloned());
        let merged = all.filter(|item| seen.add(item, 0)).collect();
        return Ok(arrange(merged, &patch, &before, Identity(None)));
    }
    let Some(key) = schema.and_then(|s| s.patch_merge_key.as_deref()) else {
        return Err(Problem::Other(format!("cannot merge lists without merge key for {name}")));
    };
    merge_keyed(schema.and_then(|s| s.items.as_deref()), key, original, patch)
}

fn merge_keyed(
    items: Option<&Schema>,
    key: &str,
    original: Vec<Value>,
    patch: Vec<Value>,
) -> Outcome<Vec<Value>> {
    let id = Identity(Some(key));
    let (before, changes) = run_item_directives(key, original, patch)?;
    let mut merged = before.clone();
    let mut places = id.places(&merged);
    for change in &changes {
        let Value::Object(fields) = change else { continue };
        if !fields.contains_key(key) {
            return Err(Problem::no_merge_key(fields, key));
        }
        match places.get(change) {
            Some(at) => {
                let Value::Object(mine) = merged[at].take() else { continue };
                merged[at] = Value::Object(merge_map(items, mine, fields.clone())?);
            }
            None => {
                let mut added = change.clone();
                drop_nulls(&mut added);
                places.add(&added, merged.len());
                merged.push(added);
            }
        }
    }
    require_keys(&merged, id)?;
    Ok(arrange(merged, &changes, &before, id))
}

/// `$patch` in the items of a list: what is left of the original, and the items that are to be merged.
fn run_item_directives(
    key: &str,
    mut original: Vec<Value>,
    patch: Vec<Value>,
) -> Outcome<(Vec<Value>, Vec<Value>)> {
    let mut changes = Vec::new();
    let mut replace = false;
    let mut deleted = Vec::new();
    for item in patch {
        let Some(fields) = item.as_object() else { continue };
        let Some(directive) = fields.get(DIRECTIVE) else {
            changes.push(item);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                if !fields.contains_key(key) {
                    return Err(Problem::no_merge_key(fields, key));
                }
                deleted.push(item);
            }
            Some("replace") => replace = true,
            Some("merge") => {
                return Err(Problem::Other("merging lists cannot yet be specified in the patch".into()));
            }
            _ => return Err(Problem::unknown_directive(directive, fields)),
        }
    }
    let deleted = Identity(Some(key)).places(&deleted);
    original.retain(|mine| deleted.get(mine).is_none());
    Ok(if replace { (changes, Vec::new()) } else { (original, changes) })
}

fn require_keys(list: &[Value], id: Identity<'_>) -> Outcome<()> {
    let Some(key) = id.0 else { return Ok(()) };
    match list.iter().filter_map(Value::as_object).find(|fields| !fields.contains_key(key)) {
        Some(fields) => Err(Problem::no_merge_key(fields, key)),
        None => Ok(()),
    }
}

/// Lists merge only if all their items are of one type, which is not a list.
fn element_type(lists: &[&[Value]], expected: bool) -> Outcome<()> {
    let mut items = lists.iter().copied().flatten();
    let Some(first) = items.next() else {
        return match expected {
            true => Err(Problem::Other("no elements in any of the given slices".into())),
            false => Ok(()),
        };
    };
    if first.is_array() {
        return Err(Problem::ListOfLists);
    }
    if items.all(|item| go_type(item) == go_type(first)) {
        return Ok(());
    }
    let text: Vec<_> = lists.iter().map(|list| go_value(&Value::Array(list.to_vec()))).collect();
    Err(Problem::Other(format!("list element types are not identical: [{}]", text.join(" "))))
}

/// A value that comes in anew. Directives have nothing to work on there: objects that carry one are left out.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(
            fields.into_iter().filter_map(|(k, v)| Some((k, without_directives(v)?))).collect(),
        )),
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        scalar => Some(scalar),
    }
}

#[cfg(test)]
#[path = "strategic_tests.rs"]
mod tests;
