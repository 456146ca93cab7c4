use super::*;
use crate::apply::with_meta;
use crate::schema::Schema;

fn entry(manager: &str, operation: &str, fields: Value) -> Value {
    json!({"manager": manager, "operation": operation, "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn set(fields: Value) -> FieldSet {
    FieldSet::from_fields_v1(&fields).unwrap()
}

#[test]
fn reads_and_writes_without_a_change() {
    let list = json!([
        entry("a", "Apply", json!({"f:x": {}})),
        entry("b", "Update", json!({"f:spec": {".": {}, "f:later-kind": {"z:1": {}}}})),
    ]);
    let managers = Managers::read(Some(list.clone())).unwrap();
    assert_eq!(managers.write(), Some(list), "what is not touched keeps its JSON, odd parts and all");
    assert_eq!(Managers::read(None).unwrap().write(), None);
}

#[test]
fn refuses_entries_as_the_real_server() {
    let table = [
        (json!({"operation": "Frob"}), "operation must be `Apply` or `Update`"),
        (json!({"operation": "Apply"}), "apiVersion must not be empty"),
        (json!({"operation": "Apply", "apiVersion": "v1"}), "missing fieldsType in managed fields entry 0"),
        (
            json!({"operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV2"}),
            "invalid fieldsType \"FieldsV2\" in managed fields entry 0",
        ),
    ];
    for (entry, wanted) in table {
        assert_eq!(Managers::read(Some(json!([entry]))).unwrap_err(), wanted);
    }
    let bad_fields = json!([entry("a", "Apply", json!({"x": {}}))]);
    assert!(Managers::read_untrusted(Some(bad_fields)).is_err());
    let twice = json!([entry("a", "Apply", json!({"f:x": {}})), entry("a", "Apply", json!({"f:y": {}}))]);
    assert_eq!(
        Managers::read_untrusted(Some(twice)).unwrap().write(),
        Some(json!([entry("a", "Apply", json!({"f:y": {}}))]))
    );
}

#[test]
fn asks_the_json_what_the_set_would_answer() {
    let all = [
        json!({}),
        json!({"f:a": {}}),
        json!({"f:a": {".": {}, "f:b": {}}}),
        json!({"f:a": {"f:b": {}}}),
        json!({"f:a": {"k:{\"n\":1}": {".": {}, "f:b": {}}, "v:1": {}}, "f:c": {}}),
        json!({"f:a": {"k:{\"n\":1}": {"f:c": {}}}}),
    ];
    for fields in &all {
        for paths in &all {
            let (have, asked) = (set(fields.clone()), set(paths.clone()));
            assert_eq!(holds(fields, &asked), have.contains(&asked), "{fields} holds {paths}");
            if have.difference(&asked) != have {
                assert!(touches(fields, &asked), "{fields} is touched by {paths}");
            }
        }
    }
    assert!(!touches(&json!({"f:a": {"f:b": {}}}), &set(json!({"f:a": {"f:c": {}}, "f:d": {}}))));
}

#[test]
fn times_are_utc_and_whole_seconds() {
    assert_eq!(utc_seconds("2026-01-01T00:00:00Z"), "2026-01-01T00:00:00Z");
    assert_eq!(utc_seconds("2026-01-01T01:00:00.5+01:00"), "2026-01-01T00:00:00Z");
    assert_eq!(utc_seconds("yesterday"), "yesterday");
}

#[test]
fn the_oldest_updaters_are_joined() {
    let schema = Schema::default();
    let ty = with_meta(&schema);
    let list: Vec<Value> = (0..13)
        .map(|i| {
            let mut one = entry(&format!("m{i:02}"), "Update", json!({format!("f:k{i:02}"): {}}));
            one["time"] = json!(format!("2026-01-01T00:00:{i:02}Z"));
            one
        })
        .collect();
    let mut managers = Managers::read(Some(Value::Array(list))).unwrap();
    managers.cap_updaters(ty);
    let written = managers.write().unwrap();
    assert_eq!(written.as_array().unwrap().len(), 10);
    assert_eq!(written[0]["manager"], "ancient-changes");
    assert_eq!(written[0]["fieldsV1"], json!({"f:k00": {}, "f:k01": {}, "f:k02": {}, "f:k03": {}}));
    assert_eq!(written[0]["time"], "2026-01-01T00:00:03Z");
    assert_eq!(written[1]["manager"], "m04");
}

#[test]
fn entries_are_sorted_as_the_real_server_sorts_them() {
    let mut no_time = entry("z", "Apply", json!({"f:a": {}}));
    no_time.as_object_mut().unwrap().remove("time");
    let list = json!([
        entry("b", "Update", json!({"f:a": {}})),
        entry("b", "Apply", json!({"f:a": {}})),
        entry("a", "Update", json!({"f:a": {}})),
        no_time,
    ]);
    let written = Managers::read(Some(list)).unwrap().write().unwrap();
    let order: Vec<_> =
        written.as_array().unwrap().iter().map(|e| format!("{}{}", e["operation"], e["manager"])).collect();
    assert_eq!(order, [r#""Apply""z""#, r#""Apply""b""#, r#""Update""a""#, r#""Update""b""#]);
}
