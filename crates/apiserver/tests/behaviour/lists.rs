//! Get and list: pages, selectors, and which revision is read.

use crate::harness::{Cluster, names, scenario, text};
use serde_json::{Value, json};

/// Five Secrets `s0`..`s4` in a new namespace, labelled by number and parity.
async fn five(c: &Cluster) -> String {
    let path = format!("/api/v1/namespaces/{}/secrets", c.namespace().await);
    for i in 0..5 {
        let parity = if i % 2 == 0 { "even" } else { "odd" };
        let body = json!({
            "metadata": {"name": format!("s{i}"), "labels": {"i": i.to_string(), "parity": parity}},
            "type": if i == 4 { "example.com/odd-one" } else { "Opaque" },
        });
        c.post(&path, &body).await.ok(201);
    }
    path
}

#[tokio::test]
async fn a_list_has_its_kind_and_version_and_the_items_have_none() {
    scenario(async |c| {
        let path = five(c).await;
        let list = c.get(&path).await;
        assert_eq!(list.ok(200)["kind"], "SecretList");
        assert_eq!(list.body["apiVersion"], "v1");
        assert_eq!(names(&list.body), ["s0", "s1", "s2", "s3", "s4"]);
        assert!(list.resource_version().parse::<u64>().is_ok());
        assert_eq!(list.body["items"][0].get("kind"), None);
        assert_eq!(list.body["items"][0].get("apiVersion"), None);
        let crd = c.widgets().await;
        c.post(&crd.objects, &crd.widget("w", json!({}))).await.ok(201);
        let list = c.get(&crd.objects).await;
        assert_eq!(list.ok(200)["kind"], "WidgetList");
        assert_eq!(list.body["items"][0]["kind"], "Widget", "items of custom resources do carry it");
    })
    .await;
}

#[tokio::test]
async fn an_empty_list_has_an_empty_array() {
    scenario(async |c| {
        let path = format!("/api/v1/namespaces/{}/secrets", c.namespace().await);
        assert_eq!(c.get(&path).await.ok(200)["items"], json!([]));
        let nowhere = c.get("/api/v1/namespaces/there-is-no-such-namespace/secrets").await;
        assert_eq!(nowhere.ok(200)["items"], json!([]), "a list does not ask whether the namespace exists");
    })
    .await;
}

#[tokio::test]
async fn pages_follow_one_revision() {
    scenario(async |c| {
        let path = five(c).await;
        let first = c.get(&format!("{path}?limit=2")).await;
        assert_eq!(names(first.ok(200)), ["s0", "s1"]);
        assert_eq!(first.body["metadata"]["remainingItemCount"], 3);
        let token = text(&first.body["metadata"]["continue"]);
        c.delete(&format!("{path}/s2")).await.ok(200);
        c.post(&path, &json!({"metadata": {"name": "s25"}})).await.ok(201);
        let second = c.get(&format!("{path}?limit=2&continue={token}")).await;
        assert_eq!(names(second.ok(200)), ["s2", "s3"], "as of the first page");
        assert_eq!(second.body["metadata"]["resourceVersion"], first.body["metadata"]["resourceVersion"]);
        assert_eq!(second.body["metadata"]["remainingItemCount"], 1);
        let token = text(&second.body["metadata"]["continue"]);
        let third = c.get(&format!("{path}?limit=2&continue={token}")).await;
        assert_eq!(names(third.ok(200)), ["s4"]);
        assert_eq!(third.body["metadata"].get("continue"), None);
        assert_eq!(third.body["metadata"].get("remainingItemCount"), None);
    })
    .await;
}

#[tokio::test]
async fn pages_with_a_selector_do_not_say_how_many_remain() {
    scenario(async |c| {
        let path = five(c).await;
        let first = c.get(&format!("{path}?limit=2&labelSelector=parity%3Deven")).await;
        assert_eq!(names(first.ok(200)), ["s0", "s2"]);
        assert_eq!(first.body["metadata"].get("remainingItemCount"), None);
        let token = text(&first.body["metadata"]["continue"]);
        let second = c.get(&format!("{path}?limit=2&labelSelector=parity%3Deven&continue={token}")).await;
        assert_eq!(names(second.ok(200)), ["s4"]);
        assert_eq!(second.body["metadata"].get("continue"), None);
    })
    .await;
}

#[tokio::test]
async fn a_limit_that_fits_has_no_continue() {
    scenario(async |c| {
        let path = five(c).await;
        for limit in ["5", "500", "0", "-1"] {
            let list = c.get(&format!("{path}?limit={limit}")).await;
            assert_eq!(list.ok(200)["items"].as_array().map(Vec::len), Some(5), "{limit}");
            assert_eq!(list.body["metadata"].get("continue"), None, "{limit}");
        }
    })
    .await;
}

#[tokio::test]
async fn bad_pages_are_refused() {
    scenario(async |c| {
        let path = five(c).await;
        let first = c.get(&format!("{path}?limit=2")).await;
        let token = text(&first.ok(200)["metadata"]["continue"]);
        c.get(&format!("{path}?continue={token}&resourceVersion=5")).await.refused(
            400,
            "BadRequest",
            "specifying resource version is not allowed when using continue",
        );
        let reply = c.get(&format!("{path}?continue=abc")).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"));
        let message = text(&reply.body["message"]);
        assert!(message.starts_with("invalid continue token: continue key is not valid: "), "{message}");
        c.get(&format!("{path}?limit=abc")).await.refused(
            400,
            "BadRequest",
            "strconv.ParseInt: parsing \"abc\": invalid syntax",
        );
    })
    .await;
}

#[tokio::test]
async fn label_selectors_choose() {
    scenario(async |c| {
        let path = five(c).await;
        let table = [
            ("parity=even", "s0 s2 s4"),
            ("parity==even", "s0 s2 s4"),
            ("parity!=even", "s1 s3"),
            ("parity in (even,odd),i notin (0, 1)", "s2 s3 s4"),
            ("i", "s0 s1 s2 s3 s4"),
            ("!i", ""),
            ("i>2", "s3 s4"),
            ("i<2", "s0 s1"),
            ("nope!=x", "s0 s1 s2 s3 s4"),
            ("nope=", ""),
            ("i in (1),parity=odd", "s1"),
            ("a in ()", ""),
            ("", "s0 s1 s2 s3 s4"),
        ];
        for (selector, expected) in table {
            let list = c.get(&format!("{path}?labelSelector={}", escape(selector))).await;
            assert_eq!(names(list.ok(200)).join(" "), expected, "{selector}");
        }
    })
    .await;
}

#[tokio::test]
async fn bad_label_selectors_are_refused() {
    scenario(async |c| {
        let path = five(c).await;
        let table = [
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            ("a in", "unable to parse requirement: found '' expected: '('"),
            ("!!a", "unable to parse requirement: found '!', expected: identifier"),
            ("a=b!c", "found '!', expected: ',' or 'end of string'"),
            (
                "i>abc",
                "unable to parse requirement: values[0]: Invalid value: \"abc\": for 'Gt', 'Lt' operators, the value \
                 must be an integer",
            ),
            (
                "-a=b",
                "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of alphanumeric \
                 characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or \
                 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            ),
        ];
        for (selector, message) in table {
            let reply = c.get(&format!("{path}?labelSelector={}", escape(selector))).await;
            assert_eq!(*reply.refused(400, "BadRequest", message), Value::Null, "{selector}");
        }
    })
    .await;
}

#[tokio::test]
async fn field_selectors_choose() {
    scenario(async |c| {
        let path = five(c).await;
        let namespace = path.split('/').nth(4).unwrap();
        let table = [
            ("metadata.name=s1".to_string(), "s1"),
            ("metadata.name!=s1".to_string(), "s0 s2 s3 s4"),
            (format!("metadata.namespace={namespace},metadata.name=s2"), "s2"),
            ("metadata.namespace!=other".to_string(), "s0 s1 s2 s3 s4"),
            ("type=example.com/odd-one".to_string(), "s4"),
            ("metadata.name=s1,metadata.name=s2".to_string(), ""),
        ];
        for (selector, expected) in table {
            let list = c.get(&format!("{path}?fieldSelector={}", escape(&selector))).await;
            assert_eq!(names(list.ok(200)).join(" "), expected, "{selector}");
        }
        let list = c.get(&format!("/api/v1/secrets?fieldSelector=metadata.namespace%3D{namespace}")).await;
        assert_eq!(names(list.ok(200)).len(), 5, "across namespaces");
    })
    .await;
}

#[tokio::test]
async fn bad_field_selectors_are_refused() {
    scenario(async |c| {
        let path = c.configmaps().await;
        let get = async |selector: &str| c.get(&format!("{path}?fieldSelector={}", escape(selector))).await;
        get("spec.x=1").await.refused(
            400,
            "BadRequest",
            "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
        );
        get("bogus").await.refused(400, "BadRequest", "invalid selector: 'bogus'; can't understand 'bogus'");
        let crd = c.widgets().await;
        let reply = c.get(&format!("{}?fieldSelector=spec.size%3D1", crd.objects)).await;
        reply.refused(400, "BadRequest", "field label not supported: spec.size");
    })
    .await;
}

#[tokio::test]
async fn a_list_may_ask_for_a_revision() {
    scenario(async |c| {
        let path = five(c).await;
        let then = c.get(&path).await;
        let rv = then.resource_version().to_string();
        c.delete(&format!("{path}/s0")).await.ok(200);
        let exact = c.get(&format!("{path}?resourceVersion={rv}&resourceVersionMatch=Exact")).await;
        assert_eq!(names(exact.ok(200)), ["s0", "s1", "s2", "s3", "s4"]);
        assert_eq!(exact.resource_version(), rv);
        let page = c.get(&format!("{path}?resourceVersion={rv}&resourceVersionMatch=Exact&limit=1")).await;
        assert_eq!(names(page.ok(200)), ["s0"]);
        let newer = c.get(&path).await;
        let now = newer.resource_version();
        let fresh = c.get(&format!("{path}?resourceVersion={now}&resourceVersionMatch=NotOlderThan")).await;
        assert_eq!(names(fresh.ok(200)), ["s1", "s2", "s3", "s4"]);
        assert_eq!(names(c.get(&format!("{path}?resourceVersion={now}")).await.ok(200)).len(), 4);
        c.get(&format!("{path}?resourceVersion=0")).await.ok(200);
    })
    .await;
}

#[tokio::test]
async fn bad_revisions_of_a_list_are_refused() {
    scenario(async |c| {
        let path = five(c).await;
        for rv in ["abc", "-1"] {
            let message = format!(
                "invalid resource version: resourceVersion: Invalid value: \"{rv}\": strconv.ParseUint: parsing \
                 \"{rv}\": invalid syntax"
            );
            c.get(&format!("{path}?resourceVersion={rv}")).await.refused(400, "BadRequest", &message);
        }
        let table = [
            (
                "resourceVersionMatch=Exact",
                "FieldValueForbidden",
                "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            (
                "resourceVersion=0&resourceVersionMatch=Exact",
                "FieldValueForbidden",
                "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            ),
            (
                "resourceVersion=1&resourceVersionMatch=Foo",
                "FieldValueNotSupported",
                "Unsupported value: \"Foo\": supported values: \"Exact\", \"NotOlderThan\", \"\"",
            ),
        ];
        for (query, reason, why) in table {
            c.get(&format!("{path}?{query}")).await.invalid(
                &format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: {why}"),
                &[(reason, "resourceVersionMatch", why)],
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_revision_of_the_future_is_a_timeout() {
    scenario(async |c| {
        let path = five(c).await;
        for path in
            [format!("{path}?resourceVersion=999999999"), format!("{path}/s0?resourceVersion=999999999")]
        {
            // Not through the client's retry of 504: the answer itself is wanted.
            let reply = c.get(&path).await;
            assert_eq!((reply.code, text(&reply.body["reason"])), (504, "Timeout"), "{path}");
            let message = text(&reply.body["message"]);
            assert!(
                message.starts_with("Timeout: Too large resource version: 999999999, current: "),
                "{message}"
            );
            let expected = json!({
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            });
            assert_eq!(reply.body["details"], expected);
        }
    })
    .await;
}

#[tokio::test]
async fn get_knows_what_is_not_there() {
    scenario(async |c| {
        let path = five(c).await;
        let reply = c.get(&format!("{path}/nope")).await;
        let details = reply.refused(404, "NotFound", "secrets \"nope\" not found");
        assert_eq!(*details, json!({"name": "nope", "kind": "secrets"}));
        assert_eq!(c.get(&format!("{path}/s0?resourceVersion=0")).await.ok(200)["metadata"]["name"], "s0");
        let reply = c.get(&format!("{path}/s0?resourceVersion=abc")).await;
        assert_eq!(reply.code, 500);
        assert_eq!(
            reply.body["message"],
            "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax"
        );
    })
    .await;
}

#[tokio::test]
async fn a_list_across_namespaces_is_ordered_by_namespace_and_name() {
    scenario(async |c| {
        let crd = c.widgets().await;
        let other = c.namespace().await;
        for (namespace, name) in [(&crd.namespace, "b"), (&other, "a"), (&crd.namespace, "a")] {
            let path = crd.objects.replace(&crd.namespace, namespace);
            let body = json!({"apiVersion": crd.api_version(), "kind": "Widget", "metadata": {"name": name}});
            c.post(&path, &body).await.ok(201);
        }
        let list = c.get(&format!("/apis/{}/v1/widgets", crd.group)).await;
        let items = list.ok(200)["items"].as_array().unwrap();
        let got: Vec<_> =
            items.iter().map(|i| (text(&i["metadata"]["namespace"]), text(&i["metadata"]["name"]))).collect();
        let mut expected = vec![(crd.namespace.as_str(), "a"), (&crd.namespace, "b"), (&other, "a")];
        expected.sort_unstable();
        assert_eq!(got, expected);
        let page = c.get(&format!("/apis/{}/v1/widgets?limit=1", crd.group)).await;
        assert_eq!(page.ok(200)["metadata"]["remainingItemCount"], 2);
    })
    .await;
}

fn escape(query: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    query.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
