use super::*;
use proptest::prelude::*;
use serde_json::json;

fn set(fields: Value) -> FieldSet {
    FieldSet::from_fields_v1(&fields).unwrap()
}

#[test]
fn codec_keeps_the_forms_of_kubernetes() {
    let fields = json!({
        "f:data": {".": {}, "f:a": {}, "f:b": {}},
        "f:spec": {"f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}},
                   "f:args": {}},
        "f:metadata": {"f:finalizers": {".": {}, "v:\"x/y\"": {}}},
    });
    assert_eq!(set(fields.clone()).to_fields_v1(), fields);
}

#[test]
fn text_is_in_element_order_not_in_text_order() {
    let ports = set(
        json!({"f:ports": {"k:{\"port\":443}": {"f:name": {}}, "k:{\"port\":80}": {".": {}, "f:name": {}}}}),
    );
    assert_eq!(
        ports.to_fields_v1_text(),
        r#"{"f:ports":{"k:{\"port\":80}":{".":{},"f:name":{}},"k:{\"port\":443}":{"f:name":{}}}}"#
    );
}

#[test]
fn odd_input_is_normalised_or_refused() {
    assert_eq!(set(json!({"f:a": {".": {}}})), set(json!({"f:a": {}})));
    assert_eq!(set(json!({"x:later": {}, "f:a": {}})), set(json!({"f:a": {}})));
    assert_eq!(set(json!({"v:1": {}, "v:1.0": {}})).len(), 1);
    assert!(FieldSet::from_fields_v1(&json!({"f:a": 1})).is_err());
    assert!(FieldSet::from_fields_v1(&json!({"a": {}})).is_err());
    assert!(FieldSet::from_fields_v1(&json!([])).is_err());
}

#[test]
fn paths_list_members_before_what_is_below() {
    let all = set(json!({"f:a": {"f:x": {}}, "f:b": {}, "f:c": {".": {}, "f:y": {}}}));
    assert_eq!(all.to_string(), ".b\n.c\n.a.x\n.c.y");
    assert_eq!(all.leaves().to_string(), ".b\n.a.x\n.c.y");
    assert_eq!(all.only_field("c").to_string(), ".c\n.c.y");
}

#[test]
fn recursive_difference_takes_the_whole_branch() {
    let all = set(json!({"f:spec": {".": {}, "f:a": {}}, "f:status": {"f:b": {"f:c": {}}}}));
    let status = FieldSet::of_fields(&[&["status"]]);
    assert_eq!(all.recursive_difference(&status), set(json!({"f:spec": {".": {}, "f:a": {}}})));
    assert_eq!(all.difference(&status), all, "a plain difference leaves what is below");
}

fn element() -> impl Strategy<Value = PathElement> {
    prop_oneof![
        4 => "[a-d]".prop_map(PathElement::Field),
        1 => (0..3i64, "[xy]").prop_map(|(n, s)| PathElement::Key(
            [("n".to_string(), json!(n)), ("s".to_string(), json!(s))].into_iter().collect()
        )),
        1 => prop_oneof![(0..3i64).prop_map(|n| json!(n)), "[a-c]".prop_map(|s| json!(s)), any::<bool>().prop_map(|b| json!(b))]
            .prop_map(PathElement::Value),
        1 => (0..3i64).prop_map(PathElement::Index),
    ]
}

prop_compose! {
    fn sets()(paths in prop::collection::vec(prop::collection::vec(element(), 1..4), 0..8)) -> FieldSet {
        let mut out = FieldSet::new();
        for path in &paths {
            out.insert(path);
        }
        out
    }
}

proptest! {
    #[test]
    fn codec_round_trip(a in sets()) {
        prop_assert_eq!(&FieldSet::from_fields_v1(&a.to_fields_v1()).unwrap(), &a);
        let text: Value = serde_json::from_str(&a.to_fields_v1_text()).unwrap();
        prop_assert_eq!(text, a.to_fields_v1());
    }

    #[test]
    fn algebra(a in sets(), b in sets(), c in sets()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.union(&b).union(&c), a.union(&b.union(&c)));
        prop_assert_eq!(a.union(&a), a.clone());
        prop_assert_eq!(a.intersection(&a), a.clone());
        prop_assert!(a.difference(&a).is_empty());
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.difference(&b).intersection(&b).is_empty());
        prop_assert_eq!(a.intersection(&b.union(&c)), a.intersection(&b).union(&a.intersection(&c)));
        prop_assert_eq!(a.difference(&b.union(&c)), a.difference(&b).difference(&c));
        prop_assert!(a.union(&b).contains(&a));
        prop_assert!(a.contains(&a.intersection(&b)));
        prop_assert_eq!(a.contains(&b), b.difference(&a).is_empty());
        prop_assert!(a.difference(&b).contains(&a.recursive_difference(&b)));
    }

    #[test]
    fn membership_agrees_with_the_list(a in sets(), b in sets()) {
        let paths = a.paths();
        prop_assert_eq!(paths.len(), a.len());
        for path in &paths {
            prop_assert!(a.has(path));
            prop_assert_eq!(a.intersection(&b).has(path), b.has(path));
            prop_assert_eq!(a.difference(&b).has(path), !b.has(path));
            let covered = (1..=path.len()).any(|n| b.has(&path[..n]));
            prop_assert_eq!(a.recursive_difference(&b).has(path), !covered);
            let has_deeper = paths.iter().any(|p| p.len() > path.len() && p.starts_with(path));
            prop_assert_eq!(a.leaves().has(path), !has_deeper);
        }
    }
}
