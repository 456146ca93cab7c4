//! CEL rules of CRDs: messages, paths, reasons, and rules about the change.

use crate::fixtures::Crd;
use crate::harness::{Cluster, MERGE_PATCH, scenario};
use serde_json::{Value, json};

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "min": {"type": "integer"},
            "max": {"type": "integer"},
            "mode": {"type": "string", "maxLength": 9},
            "name": {"type": "string", "maxLength": 10, "x-kubernetes-validations": [
                {"rule": "self.startsWith('a')"},
                {"rule": "self == oldSelf", "message": "name is immutable"},
            ]},
            "items": {"type": "array", "maxItems": 3, "items": {
                "type": "object",
                "properties": {"v": {"type": "integer"}},
                "x-kubernetes-validations": [{
                    "rule": "self.v > 0", "message": "v must be positive", "fieldPath": ".v", "reason": "FieldValueRequired",
                }],
            }},
        },
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.min) || !has(self.max) || self.min <= self.max",
                "messageExpression": "'bad in mode ' + self.mode",
                "message": "min above max",
            },
            {
                "rule": "!has(oldSelf.mode) || has(self.mode)",
                "message": "mode may not be removed", "reason": "FieldValueForbidden",
            },
        ],
    })
}

/// The causes expected of each spec of a new object.
async fn refuses(c: &Cluster, crd: &Crd, rows: &[(Value, &str, &str, &str)]) {
    for (spec, reason, field, why) in rows {
        let reply = c.post(&crd.objects, &crd.widget("w", spec.clone())).await;
        reply.invalid(&format!("{} \"w\" is invalid: {field}: {why}", crd.kind()), &[(reason, field, why)]);
    }
}

#[tokio::test]
async fn a_rule_refuses_with_its_message() {
    let rows = [
        (
            json!({"min": 3, "max": 2, "mode": "m"}),
            "FieldValueInvalid",
            "spec",
            "Invalid value: bad in mode m",
        ),
        (
            json!({"name": "bcd"}),
            "FieldValueInvalid",
            "spec.name",
            "Invalid value: \"bcd\": failed rule: self.startsWith('a')",
        ),
        (
            json!({"items": [{"v": 1}, {"v": 0}]}),
            "FieldValueRequired",
            "spec.items[1].v",
            "Required value: v must be positive",
        ),
    ];
    scenario(async |c| {
        let crd = c.widgets_of(schema()).await;
        refuses(c, &crd, &rows).await;
        c.post(&crd.objects, &crd.widget("w", json!({"min": 1, "max": 2, "name": "abc"}))).await.ok(201);
    })
    .await;
}

#[tokio::test]
async fn a_message_expression_that_fails_gives_way_to_the_message() {
    let rows = [(json!({"min": 3, "max": 2}), "FieldValueInvalid", "spec", "Invalid value: min above max")];
    scenario(async |c| {
        let crd = c.widgets_of(schema()).await;
        refuses(c, &crd, &rows).await;
    })
    .await;
}

#[tokio::test]
async fn a_rule_that_fails_to_run_says_why() {
    let why = "Invalid value: \"object\": no such key: v evaluating rule: v must be positive";
    let rows = [(json!({"items": [{}]}), "FieldValueInvalid", "spec.items[0]", why)];
    scenario(async |c| {
        let crd = c.widgets_of(schema()).await;
        refuses(c, &crd, &rows).await;
    })
    .await;
}

#[tokio::test]
async fn a_rule_compares_with_the_old_value() {
    scenario(async |c| {
        let crd = c.widgets_of(schema()).await;
        c.post(&crd.objects, &crd.widget("w", json!({"name": "abc", "mode": "x"}))).await.ok(201);
        let patch = async |spec: Value| c.patch(&crd.at("w"), MERGE_PATCH, &json!({"spec": spec})).await;
        let rows = [
            (
                json!({"name": "abd"}),
                "FieldValueInvalid",
                "spec.name",
                "Invalid value: \"abd\": name is immutable",
            ),
            (json!({"mode": null}), "FieldValueForbidden", "spec", "Forbidden: mode may not be removed"),
        ];
        for (spec, reason, field, why) in rows {
            patch(spec).await.invalid(
                &format!("{} \"w\" is invalid: {field}: {why}", crd.kind()),
                &[(reason, field, why)],
            );
        }
        patch(json!({"mode": "y"})).await.ok(200);
        patch(json!({"name": null})).await.ok(200);
        patch(json!({"name": "a new one"})).await.ok(200);
        let reply = patch(json!({"name": "bbb", "min": 7, "max": 1})).await;
        let spec = "Invalid value: bad in mode y";
        let (one, two) = (
            "Invalid value: \"bbb\": failed rule: self.startsWith('a')",
            "Invalid value: \"bbb\": name is immutable",
        );
        reply.invalid(
            &format!("{} \"w\" is invalid: [spec: {spec}, spec.name: {one}, spec.name: {two}]", crd.kind()),
            &[
                ("FieldValueInvalid", "spec", spec),
                ("FieldValueInvalid", "spec.name", one),
                ("FieldValueInvalid", "spec.name", two),
            ],
        );
    })
    .await;
}

#[tokio::test]
async fn an_optional_old_value_lets_a_rule_see_the_creation() {
    scenario(async |c| {
        let rule = json!({
            "rule": "oldSelf.hasValue() ? self >= oldSelf.value() : self == 1", "optionalOldSelf": true,
            "message": "must start at 1 and never fall",
        });
        let number = json!({"type": "integer", "x-kubernetes-validations": [rule]});
        let crd = c.widgets_of(json!({"type": "object", "properties": {"a": number}})).await;
        let why = "Invalid value: 2: must start at 1 and never fall";
        refuses(c, &crd, &[(json!({"a": 2}), "FieldValueInvalid", "spec.a", why)]).await;
        c.post(&crd.objects, &crd.widget("w", json!({"a": 1}))).await.ok(201);
        c.patch(&crd.at("w"), MERGE_PATCH, &json!({"spec": {"a": 4}})).await.ok(200);
        let message = format!(
            "{} \"w\" is invalid: spec.a: Invalid value: 3: must start at 1 and never fall",
            crd.kind()
        );
        let reply = c.patch(&crd.at("w"), MERGE_PATCH, &json!({"spec": {"a": 3}})).await;
        reply.refused(422, "Invalid", &message);
    })
    .await;
}

#[tokio::test]
async fn a_rule_at_the_root_sees_the_name() {
    scenario(async |c| {
        let crd = c
            .widgets_with(|crd| {
                let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
                schema["x-kubernetes-validations"] =
                    json!([{"rule": "self.metadata.name.startsWith('ok')", "message": "name must start with ok"}]);
            })
            .await;
        let why = "Invalid value: name must start with ok";
        refuses(c, &crd, &[(json!({}), "FieldValueInvalid", "<nil>", why)]).await;
        c.post(&crd.objects, &crd.widget("ok-then", json!({}))).await.ok(201);
    })
    .await;
}

#[tokio::test]
async fn an_untouched_invalid_part_does_not_stop_a_change_elsewhere() {
    scenario(async |c| {
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("w", json!({"size": 50, "colour": "red"}))).await.ok(201);
        let patch = json!([{
            "op": "add",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum",
            "value": 10,
        }]);
        c.patch(&crd.path, crate::harness::JSON_PATCH, &patch).await.ok(200);
        let probe = crd.widget("probe", json!({"size": 50}));
        let dry = format!("{}?dryRun=All", crd.objects);
        crate::harness::eventually("the new bound", async || {
            (c.post(&dry, &probe).await.code == 422).then_some(())
        })
        .await;
        let patch = |spec: Value| json!({"spec": spec});
        c.patch(&crd.at("w"), MERGE_PATCH, &patch(json!({"colour": "blue"}))).await.ok(200);
        let reply = c.patch(&crd.at("w"), MERGE_PATCH, &patch(json!({"size": 51}))).await;
        let why = "Invalid value: 51: spec.size in body should be less than or equal to 10";
        reply.invalid(
            &format!("{} \"w\" is invalid: spec.size: {why}", crd.kind()),
            &[("FieldValueInvalid", "spec.size", why)],
        );
    })
    .await;
}

#[tokio::test]
async fn the_kubernetes_libraries_are_there() {
    scenario(async |c| {
        let string = json!({"type": "string", "maxLength": 64});
        let rules = [
            "!has(self.cidr) || isCIDR(self.cidr)",
            "!has(self.ip) || ip(self.ip).family() == 4",
            "!has(self.quantity) || quantity(self.quantity).isGreaterThan(quantity('1Gi'))",
            "!has(self.url) || url(self.url).getScheme() == 'https'",
            "!has(self.list) || self.list.all(x, x.matches('^[a-z]+$'))",
            "!has(self.list) || self.list.isSorted()",
            "!has(self.word) || self.word.lowerAscii() == self.word",
        ];
        let rules: Vec<_> = rules.iter().map(|rule| json!({"rule": rule})).collect();
        let crd = c
            .widgets_of(json!({
                "type": "object",
                "properties": {
                    "cidr": string, "ip": string, "quantity": string, "url": string, "word": string,
                    "list": {"type": "array", "maxItems": 5, "items": string},
                },
                "x-kubernetes-validations": rules,
            }))
            .await;
        let good = json!({
            "cidr": "10.0.0.0/8", "ip": "10.1.2.3", "quantity": "2Gi", "url": "https://x", "word": "low", "list": ["a", "b"],
        });
        c.post(&crd.objects, &crd.widget("good", good)).await.ok(201);
        let bad = [
            (json!({"cidr": "10.0.0.0/33"}), "isCIDR(self.cidr)"),
            (json!({"ip": "::1"}), "ip(self.ip).family() == 4"),
            (json!({"quantity": "512Mi"}), "quantity(self.quantity)"),
            (json!({"url": "http://x"}), "url(self.url).getScheme() == 'https'"),
            (json!({"list": ["A"]}), "x.matches("),
            (json!({"list": ["b", "a"]}), "isSorted()"),
            (json!({"word": "Up"}), "lowerAscii()"),
        ];
        for (spec, part) in bad {
            let reply = c.post(&crd.objects, &crd.widget("bad", spec.clone())).await;
            assert_eq!(reply.code, 422, "{spec}: {}", reply.text);
            assert!(reply.text.contains("failed rule: ") && reply.text.contains(part), "{spec}: {}", reply.text);
        }
    })
    .await;
}
