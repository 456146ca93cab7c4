//! Sequences of requests that a real kube-apiserver (1.36) answered, replayed here: `testdata/recorded.json` holds each
//! request with the live object before it and the answer.

use super::test_support::schema;
use super::*;
use crate::schema::Schema;
use serde_json::{Map, Value, json};

const RECORDED: &str = include_str!("testdata/recorded.json");

struct Step<'a> {
    scenario: &'a str,
    kind: &'a str,
    step: &'a Value,
    live: Option<Value>,
    schema: &'a Schema,
}

impl Step<'_> {
    fn text(&self, key: &str) -> &str {
        self.step.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn request<'r>(&'r self, api_version: &'r str, kind: &'r str, now: &'r str) -> Request<'r> {
        Request {
            schema: self.schema,
            api_version,
            kind,
            manager: self.manager(),
            subresource: self.text("subresource"),
            force: self.step.get("force").is_some(),
            now,
            reset: match (self.text("subresource"), self.kind) {
                ("status", _) => Reset::AllButStatus,
                (_, "configmap") => Reset::Nothing,
                _ => Reset::Status,
            },
            builtin: self.kind != "widget",
        }
    }

    /// The time that the server gave the write; one that can't be right where it gave none.
    fn now(&self, result: &Value) -> String {
        let operation = if self.text("verb") == "apply" { "Apply" } else { "Update" };
        let time = |object: &Value| {
            let list = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
            let own = list.into_iter().find(|e| {
                let subresource = e.get("subresource").and_then(Value::as_str).unwrap_or_default();
                e["manager"] == self.manager()
                    && e["operation"] == operation
                    && subresource == self.text("subresource")
            });
            own.and_then(|e| Some(e.get("time")?.as_str()?.to_string()))
        };
        let (before, after) = (self.live.as_ref().and_then(time), time(result));
        match after {
            // Within the second of the last write the time does not tell, the object does.
            Some(now) if before.as_ref() != Some(&now) || self.changed(result) => now,
            _ => "2099-01-01T00:00:00Z".into(),
        }
    }

    fn manager(&self) -> &str {
        match self.text("manager") {
            "" => "tester",
            name => name,
        }
    }

    fn changed(&self, result: &Value) -> bool {
        self.live.as_ref().is_none_or(|live| without_server_fields(live) != without_server_fields(result))
    }
}

fn without_server_fields(object: &Value) -> Value {
    let mut out = object.clone();
    if let Some(meta) = out["metadata"].as_object_mut() {
        for key in ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "namespace"]
        {
            meta.remove(key);
        }
    }
    out
}

/// Everything in `part` is in `whole`, lists item by item.
fn covers(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        // A null in a map of strings is an empty string to the real server's types.
        (_, Value::Null) => true,
        (Value::Null, Value::String(part)) => part.is_empty(),
        // A map or list that is emptied stays empty here; the real server makes it null.
        (Value::Null, Value::Object(part)) => part.is_empty(),
        (Value::Null, Value::Array(part)) => part.is_empty(),
        // Quantities are rewritten after the merge.
        (Value::String(text), Value::Number(number)) => *text == number.to_string(),
        (Value::Object(whole), Value::Object(part)) => part.iter().all(|(k, v)| match whole.get(k) {
            Some(mine) => covers(mine, v),
            None => v.is_null() || v.as_object().is_some_and(Map::is_empty),
        }),
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(a, b)| covers(a, b))
        }
        _ => whole == part,
    }
}

fn replay_update(step: &Step<'_>, problems: &mut Vec<String>) {
    let result = &step.step["result"];
    let mut new = result.clone();
    let meta = new["metadata"].as_object_mut().unwrap();
    meta.remove("managedFields");
    match step.step.get("sent") {
        Some(Value::String(_)) => {
            let live = step.live.as_ref().unwrap()["metadata"].get("managedFields").cloned();
            meta.extend(live.map(|list| ("managedFields".to_string(), list)));
        }
        Some(list) => {
            meta.insert("managedFields".into(), list.clone());
        }
        None => {}
    }
    if step.kind == "service" && step.live.is_none() {
        // Allocated after owners are written down.
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            new["spec"].as_object_mut().unwrap().remove(key);
        }
    }
    let now = step.now(result);
    let (api_version, kind) = (result["apiVersion"].as_str().unwrap(), result["kind"].as_str().unwrap());
    track_update(&step.request(api_version, kind, &now), step.live.as_ref(), &mut new);
    expect_managers(step, &new, result, problems);
}

fn replay_apply(step: &Step<'_>, problems: &mut Vec<String>) {
    let (api_version, kind) = match step.kind {
        "configmap" => ("v1", "ConfigMap"),
        "service" => ("v1", "Service"),
        "deployment" => ("apps/v1", "Deployment"),
        _ => ("apply-scn.example.com/v1", "Widget"),
    };
    let result = step.step.get("result").cloned().unwrap_or_default();
    let now = step.now(&result);
    let outcome = apply(&step.request(api_version, kind, &now), step.live.as_ref(), &step.step["config"]);
    match (outcome, step.step.get("status")) {
        (Err(error), Some(status)) => {
            let mut ours = error.into_status("", "", "").to_json();
            if ours["reason"] == "" {
                ours.as_object_mut().unwrap().remove("reason");
            }
            let mut status = status.clone();
            sort_causes(&mut ours);
            sort_causes(&mut status);
            if ours != status {
                problems.push(format!("{}: refused with\n  {ours}\nbut real\n  {status}", step.scenario));
            }
        }
        (Ok(object), None) => {
            expect_managers(step, &object, &result, problems);
            expect_object(step, object, result, problems);
        }
        (ours, real) => problems.push(format!("{}: {ours:?}\nbut real {real:?}", step.scenario)),
    }
}

fn fill_defaults(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in &schema.properties {
                if let (None, Some(default)) = (fields.get(name), &property.default) {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(child) = fields.get_mut(name) {
                    fill_defaults(property, child);
                }
            }
        }
        Value::Array(items) => {
            let schema = schema.items.as_deref();
            items.iter_mut().for_each(|item| schema.into_iter().for_each(|s| fill_defaults(s, item)));
        }
        _ => {}
    }
}

/// The real server's order of causes is that of a hash map.
fn sort_causes(status: &mut Value) {
    if let Some(causes) = status.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
        causes.sort_by_key(ToString::to_string);
    }
}

fn expect_object(step: &Step<'_>, ours: Value, real: Value, problems: &mut Vec<String>) {
    let (mut ours, mut real) = (without_server_fields(&ours), without_server_fields(&real));
    // Defaults come after the merge. Built-in kinds have theirs in code: what only the real object has is let pass.
    if step.kind == "widget" {
        fill_defaults(step.schema, &mut ours);
    }
    let not_written: &[&str] = match step.text("subresource") {
        "status" => &["spec", "metadata"],
        _ => &["status"],
    };
    for key in not_written {
        ours.as_object_mut().unwrap().remove(*key);
        real.as_object_mut().unwrap().remove(*key);
    }
    let exact = step.live.is_some() && matches!(step.kind, "configmap" | "widget");
    if !covers(&real, &ours) || (exact && !covers(&ours, &real)) {
        problems.push(format!("{}: object\n  {ours}\nbut real\n  {real}", step.scenario));
    }
}

fn expect_managers(step: &Step<'_>, ours: &Value, real: &Value, problems: &mut Vec<String>) {
    let list = |object: &Value| object["metadata"].get("managedFields").cloned().unwrap_or(json!(null));
    let (ours, real) = (list(ours), list(real));
    if ours != real {
        let verb = step.text("verb");
        problems.push(format!(
            "{} ({verb} by {}):\n  {ours}\nbut real\n  {real}",
            step.scenario,
            step.text("manager")
        ));
    }
}

/// A schema whose source keeps no `{}` defaults.
fn without_struct_defaults(json: &mut Value) {
    match json {
        Value::Object(fields) => {
            fields.retain(|key, value| key != "default" || *value != json!({}));
            fields.values_mut().for_each(without_struct_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(without_struct_defaults),
        _ => {}
    }
}

#[test]
fn recorded_requests_end_as_on_the_real_server() {
    let mut recorded: Value = serde_json::from_str(RECORDED).unwrap();
    replay(&recorded);
    for (kind, schema) in recorded["schemas"].as_object_mut().unwrap() {
        if kind != "widget" {
            without_struct_defaults(schema);
        }
    }
    replay(&recorded);
}

fn replay(recorded: &Value) {
    let mut problems = Vec::new();
    let mut count = 0;
    for scenario in recorded["scenarios"].as_array().unwrap() {
        let kind = scenario["kind"].as_str().unwrap();
        let schema = schema(&recorded["schemas"][kind]);
        let mut previous = None;
        for step in scenario["steps"].as_array().unwrap() {
            let live = match &step["live"] {
                Value::Null => None,
                Value::String(_) => previous.clone(),
                object => Some(object.clone()),
            };
            let one =
                Step { scenario: scenario["name"].as_str().unwrap(), kind, step, live, schema: &schema };
            match one.text("verb") {
                "apply" => replay_apply(&one, &mut problems),
                _ => replay_update(&one, &mut problems),
            }
            previous = step.get("result").cloned().or(previous);
            count += 1;
        }
    }
    assert!(count >= 150, "only {count} steps");
    assert!(problems.is_empty(), "{} of {count} differ:\n{}", problems.len(), problems.join("\n\n"));
}
