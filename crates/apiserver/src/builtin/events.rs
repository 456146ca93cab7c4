//! One event, two faces: `v1` and `events.k8s.io/v1` serve the same objects under other field names.

use serde_json::Value;

/// Field names of the core group and of `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Turns an `events.k8s.io/v1` event into the core event that is stored.
pub fn event_to_core(event: &mut Value) {
    rename(event, |(core, other)| (other, core));
    event["apiVersion"] = "v1".into();
}

/// Turns a stored core event into what `events.k8s.io/v1` shows.
pub fn event_from_core(event: &mut Value) {
    rename(event, |(core, other)| (core, other));
    event["apiVersion"] = "events.k8s.io/v1".into();
}

fn rename(event: &mut Value, direction: fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Some(fields) = event.as_object_mut() else { return };
    for (from, to) in NAMES.map(direction) {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.into(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn there_and_back() {
        let core = json!({"apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "a"}, "message": "m",
            "count": 2, "reportingComponent": "c", "reportingInstance": "i", "source": {"component": "x"}});
        let mut event = core.clone();
        event_from_core(&mut event);
        assert_eq!(
            event,
            json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "a"}, "note": "m",
                "deprecatedCount": 2, "reportingController": "c", "reportingInstance": "i",
                "deprecatedSource": {"component": "x"}})
        );
        event_to_core(&mut event);
        assert_eq!(event, core);
    }
}
