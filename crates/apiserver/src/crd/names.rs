//! The status of a CRD: which of its names it got, and whether it is served.

use super::stored_versions;
use super::view::View;
use serde_json::{Map, Value, json};

/// The status of `crd` among `others`, all other CRDs that are registered. `now` is an RFC 3339 time.
///
/// Names are given to whoever asked first. A CRD that got all of its names is established at once, since its resources
/// are served by the time anyone can ask.
pub fn accepted_conditions(crd: &Value, others: &[&Value], now: &str) -> Value {
    let null = Value::Null;
    let spec = crd.get("spec").unwrap_or(&null);
    let status = crd.get("status").unwrap_or(&null);
    let used = Used::by(others, spec.text("group"));
    let wanted = spec.get("names").unwrap_or(&null);
    let had = status.get("acceptedNames").unwrap_or(&null);
    let (accepted, conflict) = settle(wanted, had, &used);
    let (names_status, reason, message) = match &conflict {
        None => ("True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => ("False", *reason, message.as_str()),
    };
    let before = status.list("conditions");
    let was_established =
        before.iter().any(|c| c.text("type") == "Established" && c.text("status") == "True");
    // Once established a CRD stays so: its objects are there.
    let established = if conflict.is_none() || was_established {
        ("True", "InitialNamesAccepted", "the initial names have been accepted")
    } else {
        ("False", "NotAccepted", "not all names are accepted")
    };
    let conditions = json!([
        condition(before, "NamesAccepted", (names_status, reason, message), now),
        condition(before, "Established", established, now),
    ]);
    json!({ "acceptedNames": accepted, "conditions": conditions, "storedVersions": stored_versions(crd) })
}

/// Names that are taken, in one group.
#[derive(Default)]
struct Used<'a> {
    resources: Vec<&'a str>,
    kinds: Vec<&'a str>,
}

impl<'a> Used<'a> {
    fn by(others: &[&'a Value], group: &str) -> Self {
        let mut used = Used::default();
        for other in others {
            if other.get("spec").map_or("", |s| s.text("group")) != group {
                continue;
            }
            let Some(names) = other.get("status").and_then(|s| s.get("acceptedNames")) else { continue };
            used.resources.extend([names.text("plural"), names.text("singular")]);
            used.resources.extend(names.texts("shortNames"));
            used.kinds.extend([names.text("kind"), names.text("listKind")]);
        }
        used
    }
}

type Conflict = (&'static str, String);

/// Takes each name that is free. Of several conflicts the last one is told, in Kubernetes' order.
fn settle(wanted: &Value, had: &Value, used: &Used<'_>) -> (Value, Option<Conflict>) {
    let mut out = Map::new();
    let mut conflict = None;
    let taken =
        |name: &str, mine: &str, used: &[&str]| name != mine && !name.is_empty() && used.contains(&name);
    let in_use = |name: &str| format!("{name:?} is already in use");
    for (key, reason) in [
        ("plural", "PluralConflict"),
        ("singular", "SingularConflict"),
        ("shortNames", "ShortNamesConflict"),
        ("kind", "KindConflict"),
        ("listKind", "ListKindConflict"),
    ] {
        let list = if matches!(key, "kind" | "listKind") { &used.kinds } else { &used.resources };
        if key == "shortNames" {
            let mine = had.texts(key);
            let bad: Vec<String> = wanted
                .texts(key)
                .into_iter()
                .filter(|name| !mine.contains(name) && taken(name, "", list))
                .map(in_use)
                .collect();
            let names = if bad.is_empty() { wanted.list(key) } else { had.list(key) };
            if !names.is_empty() {
                out.insert(key.into(), Value::Array(names.to_vec()));
            }
            match bad.as_slice() {
                [] => {}
                [one] => conflict = Some((reason, one.clone())),
                many => conflict = Some((reason, format!("[{}]", many.join(", ")))),
            }
            continue;
        }
        let (name, mine) = (wanted.text(key), had.text(key));
        let clash = taken(name, mine, list);
        let got = if clash { mine } else { name };
        // Kubernetes writes the plural and the kind even when they are empty.
        if !got.is_empty() || matches!(key, "plural" | "kind") {
            out.insert(key.into(), got.into());
        }
        if clash {
            conflict = Some((reason, in_use(name)));
        }
    }
    if !wanted.list("categories").is_empty() {
        out.insert("categories".into(), Value::Array(wanted.list("categories").to_vec()));
    }
    (Value::Object(out), conflict)
}

/// A condition keeps its time while its status stays.
fn condition(before: &[Value], ty: &str, (status, reason, message): (&str, &str, &str), now: &str) -> Value {
    let same = before.iter().find(|c| c.text("type") == ty && c.text("status") == status);
    let since = same.map(|c| c.text("lastTransitionTime")).filter(|t| !t.is_empty()).unwrap_or(now);
    json!({
        "type": ty, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    })
}
