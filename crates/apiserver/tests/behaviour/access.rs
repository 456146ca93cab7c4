//! Who may do what: RBAC, reviews, impersonation, tokens, and what is open to everyone.

use crate::harness::{Call, Cluster, MERGE_PATCH, as_causes, eventually, scenario, text, unique};
use serde_json::{Value, json};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";
const AUTHENTICATION: &str = "/apis/authentication.k8s.io/v1";

/// A user who may do what the rules say in a new namespace.
struct Someone {
    user: String,
    namespace: String,
}

impl Someone {
    async fn who_may(c: &Cluster, rules: Value) -> Self {
        let (user, namespace) = (unique("user"), c.namespace().await);
        let someone = Self { user, namespace };
        someone.grant(c, "granted", rules).await;
        someone
    }

    async fn grant(&self, c: &Cluster, name: &str, rules: Value) {
        let base = format!("{RBAC}/namespaces/{}", self.namespace);
        let role = json!({"metadata": {"name": name}, "rules": rules});
        c.post(&format!("{base}/roles"), &role).await.ok(201);
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "User", "name": self.user}],
        });
        c.post(&format!("{base}/rolebindings"), &binding).await.ok(201);
    }

    fn core(&self, rest: &str) -> String {
        format!("/api/v1/namespaces/{}/{rest}", self.namespace)
    }

    /// Waits until the server knows the rules; a real one learns them by its own watch.
    async fn waits_for(&self, c: &Cluster, verb: &str, group: &str, resource: &str) {
        let attributes =
            json!({"namespace": self.namespace, "verb": verb, "group": group, "resource": resource});
        let review = json!({"spec": {"user": self.user, "resourceAttributes": attributes}});
        eventually("the rules to be in force", async || {
            let reply = c.post(&format!("{REVIEWS}/subjectaccessreviews"), &review).await;
            (reply.ok(201)["status"]["allowed"] == true).then_some(())
        })
        .await;
    }

    fn forbidden(&self, verb: &str, resource: &str) -> String {
        format!(
            "User \"{}\" cannot {verb} resource \"{resource}\" in API group \"\" in the namespace \"{}\"",
            self.user, self.namespace
        )
    }
}

#[tokio::test]
async fn nothing_is_allowed_without_a_rule() {
    scenario(async |c| {
        let someone = Someone { user: unique("user"), namespace: c.namespace().await };
        let (maps, user) = (someone.core("configmaps"), &someone.user);
        let one = format!("{maps}/a");
        let table = [
            (Call::get(&maps), "", "list"),
            (Call::get(&format!("{maps}?watch=1")), "", "watch"),
            (Call::get(&one), "a", "get"),
            (Call::post(&maps).json(&json!({})), "", "create"),
            (Call::put(&one).json(&json!({})), "a", "update"),
            (Call::patch(&one, MERGE_PATCH).bytes("{}"), "a", "patch"),
            (Call::delete(&one), "a", "delete"),
            (Call::delete(&maps), "", "deletecollection"),
        ];
        for (call, name, verb) in table {
            let reply = c.send(call.impersonate(user)).await;
            let about = if name.is_empty() { "configmaps".to_string() } else { format!("configmaps \"{name}\"") };
            let message = format!("{about} is forbidden: {}", someone.forbidden(verb, "configmaps"));
            let details = reply.refused(403, "Forbidden", &message);
            let expected = if name.is_empty() {
                json!({"kind": "configmaps"})
            } else {
                json!({"name": name, "kind": "configmaps"})
            };
            assert_eq!(*details, expected);
        }
        let reply = c.send(Call::get("/apis/apps/v1/deployments").impersonate(user)).await;
        let message = format!(
            "deployments.apps is forbidden: User \"{user}\" cannot list resource \"deployments\" in API group \"apps\" at \
             the cluster scope"
        );
        let details = reply.refused(403, "Forbidden", &message);
        assert_eq!(*details, json!({"group": "apps", "kind": "deployments"}));
        let reply = c.send(Call::get("/metrics").impersonate(user)).await;
        let details = reply.refused(403, "Forbidden", &format!("forbidden: User \"{user}\" cannot get path \"/metrics\""));
        assert_eq!(*details, json!({}));
    })
    .await;
}

#[tokio::test]
async fn a_subresource_is_a_resource_of_its_own() {
    scenario(async |c| {
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        let someone = Someone::who_may(c, rules).await;
        someone.waits_for(c, "get", "", "pods").await;
        let pod = someone.core("pods/x");
        assert_eq!(c.send(Call::get(&pod).impersonate(&someone.user)).await.code, 404);
        let reply = c.send(Call::get(&format!("{pod}/status")).impersonate(&someone.user)).await;
        let message = format!("pods \"x\" is forbidden: {}", someone.forbidden("get", "pods/status"));
        reply.refused(403, "Forbidden", &message);
    })
    .await;
}

#[tokio::test]
async fn rules_open_verbs_resources_and_names() {
    scenario(async |c| {
        let rules = json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"], "resourceNames": ["only"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]},
        ]);
        let someone = Someone::who_may(c, rules).await;
        someone.waits_for(c, "get", "", "secrets").await;
        let get = async |path: &str| c.send(Call::get(&someone.core(path)).impersonate(&someone.user)).await;
        get("configmaps/only").await.refused(404, "NotFound", "configmaps \"only\" not found");
        let message = format!("configmaps \"other\" is forbidden: {}", someone.forbidden("get", "configmaps"));
        get("configmaps/other").await.refused(403, "Forbidden", &message);
        let message = format!("configmaps is forbidden: {}", someone.forbidden("list", "configmaps"));
        get("configmaps").await.refused(403, "Forbidden", &message);
        get("configmaps?fieldSelector=metadata.name%3Donly").await.ok(200);
        get("secrets").await.ok(200);
        let body = json!({"metadata": {"name": "s"}});
        c.send(Call::post(&someone.core("secrets")).json(&body).impersonate(&someone.user)).await.ok(201);
    })
    .await;
}

#[tokio::test]
async fn a_cluster_role_is_bound_to_a_group_everywhere() {
    scenario(async |c| {
        let (name, user, namespace) = (unique("reader"), unique("user"), c.namespace().await);
        let rules = json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ]);
        c.post(&format!("{RBAC}/clusterroles"), &json!({"metadata": {"name": name}, "rules": rules}))
            .await
            .ok(201);
        c.doom(format!("{RBAC}/clusterroles/{name}"));
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "Group", "name": name}],
        });
        c.post(&format!("{RBAC}/clusterrolebindings"), &binding).await.ok(201);
        c.doom(format!("{RBAC}/clusterrolebindings/{name}"));
        let call = |path: &str| Call::get(path).impersonate(&user).also("impersonate-group", &name);
        eventually("the binding to be in force", async || {
            (c.send(call("/api/v1/configmaps?limit=1")).await.code == 200).then_some(())
        })
        .await;
        c.send(call(&format!("/api/v1/namespaces/{namespace}/configmaps"))).await.ok(200);
        assert_ne!(
            c.send(call("/metrics")).await.code,
            403,
            "whether it is served or not, it is not forbidden"
        );
        assert_eq!(c.send(call("/api/v1/nodes")).await.code, 403);
    })
    .await;
}

#[tokio::test]
async fn everyone_who_is_known_may_discover() {
    scenario(async |c| {
        let user = unique("user");
        for path in ["/api", "/apis", "/api/v1", "/openapi/v3", "/version", "/healthz"] {
            assert_eq!(c.send(Call::get(path).impersonate(&user)).await.code, 200, "{path}");
        }
    })
    .await;
}

#[tokio::test]
async fn nobody_may_only_ask_for_health_and_version() {
    scenario(async |c| {
        let nobody = c.without_credentials(None);
        for path in ["/healthz", "/livez", "/readyz", "/version"] {
            assert_eq!(nobody.get(path).await.code, 200, "{path}");
        }
        let reply = nobody.get("/api").await;
        reply.refused(403, "Forbidden", "forbidden: User \"system:anonymous\" cannot get path \"/api\"");
        let reply = nobody.get("/api/v1/namespaces").await;
        let message = "namespaces is forbidden: User \"system:anonymous\" cannot list resource \"namespaces\" in API group \
             \"\" at the cluster scope";
        reply.refused(403, "Forbidden", message);
    })
    .await;
}

#[tokio::test]
async fn a_wrong_token_is_unauthorized() {
    scenario(async |c| {
        let reply = c.without_credentials(Some("wrong")).get("/healthz").await;
        assert_eq!(*reply.refused(401, "Unauthorized", "Unauthorized"), Value::Null);
    })
    .await;
}

#[tokio::test]
async fn nobody_can_give_more_than_they_have() {
    scenario(async |c| {
        let rbac = |verbs: Value| json!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": verbs});
        let secrets = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
        let someone = Someone::who_may(c, json!([rbac(json!(["create", "update", "get"])), secrets])).await;
        someone.waits_for(c, "create", "rbac.authorization.k8s.io", "roles").await;
        let base = format!("{RBAC}/namespaces/{}", someone.namespace);
        let post = async |path: &str, body: Value| {
            c.send(Call::post(&format!("{base}/{path}")).json(&body).impersonate(&someone.user)).await
        };
        let role = |name: &str, resource: &str| {
            json!({
                "metadata": {"name": name},
                "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}],
            })
        };
        post("roles", role("fine", "secrets")).await.ok(201);
        let why = format!(
            "user \"{}\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n",
            someone.user
        );
        let reply = post("roles", role("more", "pods")).await;
        let message = format!(
            "roles.rbac.authorization.k8s.io \"more\" is forbidden: {why}{{APIGroups:[\"\"], Resources:[\"pods\"], \
             Verbs:[\"get\"]}}"
        );
        reply.refused(403, "Forbidden", &message);
        let binding = json!({
            "metadata": {"name": "admin"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "User", "name": someone.user}],
        });
        let message = format!(
            "rolebindings.rbac.authorization.k8s.io \"admin\" is forbidden: {why}{{APIGroups:[\"*\"], Resources:[\"*\"], \
             Verbs:[\"*\"]}}\n{{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}}"
        );
        post("rolebindings", binding).await.refused(403, "Forbidden", &message);
    })
    .await;
}

#[tokio::test]
async fn the_role_of_a_binding_is_fixed() {
    scenario(async |c| {
        let someone = Someone::who_may(c, json!([])).await;
        let path = format!("{RBAC}/namespaces/{}/rolebindings/granted", someone.namespace);
        let made = c.get(&path).await;
        assert_eq!(made.ok(200)["subjects"][0]["apiGroup"], "rbac.authorization.k8s.io", "it is filled in");
        let reply = c.patch(&path, MERGE_PATCH, &json!({"roleRef": {"name": "other"}})).await;
        assert_eq!(reply.code, 422);
        let causes = as_causes(&reply.body["details"]);
        assert_eq!((causes.len(), causes[0].1), (1, "roleRef"));
        assert!(causes[0].2.ends_with(": cannot change roleRef"), "{}", causes[0].2);
    })
    .await;
}

#[tokio::test]
async fn bad_roles_and_bindings_are_refused() {
    scenario(async |c| {
        let base = format!("{RBAC}/namespaces/{}", c.namespace().await);
        let rules = json!([
            {"apiGroups": [""], "resources": ["pods"]},
            {"nonResourceURLs": ["/x"], "verbs": ["get"]},
            {"verbs": ["get"]},
        ]);
        let reply = c.post(&format!("{base}/roles"), &json!({"metadata": {"name": "x"}, "rules": rules})).await;
        let expected = [
            ("FieldValueRequired", "rules[0].verbs", "Required value: verbs must contain at least one value"),
            (
                "FieldValueInvalid",
                "rules[1].nonResourceURLs",
                "Invalid value: [\"/x\"]: namespaced rules cannot apply to non-resource URLs",
            ),
            ("FieldValueRequired", "rules[2].apiGroups", "Required value: resource rules must supply at least one api group"),
            ("FieldValueRequired", "rules[2].resources", "Required value: resource rules must supply at least one resource"),
        ];
        assert_eq!((reply.code, as_causes(&reply.body["details"])), (422, expected.to_vec()));
        let binding = json!({
            "metadata": {"name": "x"}, "roleRef": {"kind": "Foo", "name": ""}, "subjects": [{"kind": "Bar", "name": ""}],
        });
        let reply = c.post(&format!("{base}/rolebindings"), &binding).await;
        let expected = [
            ("FieldValueNotSupported", "roleRef.kind", "Unsupported value: \"Foo\": supported values: \"Role\", \"ClusterRole\""),
            ("FieldValueRequired", "roleRef.name", "Required value"),
            ("FieldValueRequired", "subjects[0].name", "Required value"),
            (
                "FieldValueNotSupported",
                "subjects[0].kind",
                "Unsupported value: \"Bar\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
            ),
        ];
        assert_eq!((reply.code, as_causes(&reply.body["details"])), (422, expected.to_vec()));
    })
    .await;
}

#[tokio::test]
async fn access_can_be_reviewed() {
    scenario(async |c| {
        let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"]}]);
        let someone = Someone::who_may(c, rules).await;
        someone.waits_for(c, "delete", "", "secrets").await;
        let attributes =
            |verb: &str| json!({"namespace": someone.namespace, "verb": verb, "resource": "secrets"});
        let ask = async |path: &str, body: Value| c.post(&format!("{REVIEWS}/{path}"), &body).await;
        let myself = async |body: Value| {
            let path = format!("{REVIEWS}/selfsubjectaccessreviews");
            c.send(Call::post(&path).json(&body).impersonate(&someone.user)).await
        };
        let reason = format!(
            "RBAC: allowed by RoleBinding \"granted/{}\" of Role \"granted\" to User \"{}\"",
            someone.namespace, someone.user
        );
        let yes = myself(json!({"spec": {"resourceAttributes": attributes("delete")}})).await;
        assert_eq!(yes.ok(201)["status"], json!({"allowed": true, "reason": reason}));
        assert_eq!(yes.body["kind"], "SelfSubjectAccessReview");
        assert_eq!(yes.body["spec"]["resourceAttributes"], attributes("delete"));
        let no = myself(json!({"spec": {"resourceAttributes": attributes("get")}})).await;
        assert_eq!(no.ok(201)["status"], json!({"allowed": false}));
        let open =
            myself(json!({"spec": {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}}})).await;
        assert_eq!(open.ok(201)["status"]["allowed"], true);
        let other = json!({"spec": {"user": someone.user, "resourceAttributes": attributes("delete")}});
        let reply = ask("subjectaccessreviews", other.clone()).await;
        assert_eq!(reply.ok(201)["status"], json!({"allowed": true, "reason": reason}));
        let local = format!("namespaces/{}/localsubjectaccessreviews", someone.namespace);
        let mut body = other;
        body["metadata"] = json!({"namespace": someone.namespace});
        assert_eq!(ask(&local, body).await.ok(201)["status"]["allowed"], true);
        let admin =
            ask("selfsubjectaccessreviews", json!({"spec": {"resourceAttributes": attributes("get")}})).await;
        assert_eq!(admin.ok(201)["status"], json!({"allowed": true}));
    })
    .await;
}

#[tokio::test]
async fn bad_reviews_are_refused() {
    scenario(async |c| {
        let reply = c.post(&format!("{REVIEWS}/selfsubjectaccessreviews"), &json!({"spec": {}})).await;
        let why = "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified";
        reply.invalid(
            &format!(".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: {why}"),
            &[("FieldValueInvalid", "spec.resourceAttributes", why)],
        );
        let body = json!({"spec": {"resourceAttributes": {"verb": "get"}}});
        let why = "Invalid value: \"\": at least one of user or group must be specified";
        c.post(&format!("{REVIEWS}/subjectaccessreviews"), &body).await.invalid(
            &format!(".authorization.k8s.io \"\" is invalid: spec.user: {why}"),
            &[("FieldValueInvalid", "spec.user", why)],
        );
        let reply = c.post(&format!("{REVIEWS}/selfsubjectrulesreviews"), &json!({"spec": {}})).await;
        reply.refused(400, "BadRequest", "no namespace on request");
    })
    .await;
}

#[tokio::test]
async fn the_rules_of_a_user_can_be_listed() {
    scenario(async |c| {
        let rule = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
        let someone = Someone::who_may(c, json!([rule])).await;
        someone.waits_for(c, "get", "", "secrets").await;
        let body = json!({"spec": {"namespace": someone.namespace}});
        let call = Call::post(&format!("{REVIEWS}/selfsubjectrulesreviews")).json(&body).impersonate(&someone.user);
        let reply = c.send(call).await;
        let status = &reply.ok(201)["status"];
        assert_eq!(status["incomplete"], false);
        let rules = status["resourceRules"].as_array().unwrap();
        assert!(rules.contains(&rule), "{rules:?}");
        let reviews = json!({"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]});
        assert!(rules.contains(&reviews), "{rules:?}");
        assert!(status["nonResourceRules"].as_array().is_some_and(|rules| !rules.is_empty()));
    })
    .await;
}

#[tokio::test]
async fn someone_can_be_impersonated() {
    scenario(async |c| {
        let path = format!("{AUTHENTICATION}/selfsubjectreviews");
        let call = Call::post(&path).json(&json!({})).impersonate("jane").also("impersonate-group", "dev");
        let reply = c.send(call.also("impersonate-extra-scopes", "view")).await;
        let expected = json!({
            "username": "jane", "groups": ["dev", "system:authenticated"], "extra": {"scopes": ["view"]},
        });
        assert_eq!(reply.ok(201)["status"]["userInfo"], expected);
        let call = Call::post(&path).json(&json!({})).impersonate("system:serviceaccount:ns:sa");
        let groups = json!(["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]);
        assert_eq!(c.send(call).await.ok(201)["status"]["userInfo"]["groups"], groups);
        let reply = c.send(Call::get("/api").header("impersonate-group", "dev")).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (400, "BadRequest"));
        assert!(
            text(&reply.body["message"]).ends_with(" without impersonating a user name"),
            "{}",
            reply.text
        );
    })
    .await;
}

#[tokio::test]
async fn the_admin_is_a_master() {
    scenario(async |c| {
        let reply = c.post(&format!("{AUTHENTICATION}/selfsubjectreviews"), &json!({})).await;
        let groups = reply.ok(201)["status"]["userInfo"]["groups"].as_array().unwrap();
        assert!(
            groups.contains(&json!("system:masters")) && groups.contains(&json!("system:authenticated")),
            "{groups:?}"
        );
        assert!(reply.body["metadata"]["creationTimestamp"].is_string());
    })
    .await;
}

#[tokio::test]
async fn a_service_account_gets_tokens() {
    scenario(async |c| {
        let namespace = c.namespace().await;
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        let account = c.post(&accounts, &json!({"metadata": {"name": "robot"}})).await;
        let uid = text(&account.ok(201)["metadata"]["uid"]);
        let reply = c.post(&format!("{accounts}/robot/token"), &json!({"spec": {"expirationSeconds": 600}})).await;
        assert_eq!(reply.ok(201)["kind"], "TokenRequest");
        assert_eq!(reply.body["metadata"]["name"], "robot");
        assert_eq!(reply.body["spec"]["expirationSeconds"], 600);
        assert_eq!(reply.body["spec"]["audiences"].as_array().map(Vec::len), Some(1));
        assert!(reply.body["status"]["expirationTimestamp"].is_string());
        let token = text(&reply.body["status"]["token"]);
        let robot = c.without_credentials(Some(token));
        let me = robot.post(&format!("{AUTHENTICATION}/selfsubjectreviews"), &json!({})).await;
        let info = &me.ok(201)["status"]["userInfo"];
        let username = format!("system:serviceaccount:{namespace}:robot");
        assert_eq!((text(&info["username"]), text(&info["uid"])), (username.as_str(), uid));
        let scope = format!("system:serviceaccounts:{namespace}");
        assert_eq!(info["groups"], json!(["system:serviceaccounts", scope, "system:authenticated"]));
        let reply = robot.get(&format!("/api/v1/namespaces/{namespace}/configmaps")).await;
        let message = format!(
            "configmaps is forbidden: User \"{username}\" cannot list resource \"configmaps\" in API group \"\" in the \
             namespace \"{namespace}\""
        );
        reply.refused(403, "Forbidden", &message);
        c.delete(&format!("{accounts}/robot")).await.ok(200);
        eventually("the token to end with its account", async || {
            (robot.get("/api").await.code == 401).then_some(())
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn bad_token_requests_are_refused() {
    scenario(async |c| {
        let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", c.namespace().await);
        c.post(&accounts, &json!({"metadata": {"name": "robot"}})).await.ok(201);
        let why = "Invalid value: 5: may not specify a duration less than 10 minutes";
        c.post(&format!("{accounts}/robot/token"), &json!({"spec": {"expirationSeconds": 5}})).await.invalid(
            &format!("TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: {why}"),
            &[("FieldValueInvalid", "spec.expirationSeconds", why)],
        );
        let reply = c.post(&format!("{accounts}/nope/token"), &json!({"spec": {}})).await;
        reply.refused(404, "NotFound", "serviceaccounts \"nope\" not found");
    })
    .await;
}

#[tokio::test]
async fn tokens_can_be_reviewed() {
    scenario(async |c| {
        let namespace = c.namespace().await;
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        c.post(&accounts, &json!({"metadata": {"name": "robot"}})).await.ok(201);
        let token = c.post(&format!("{accounts}/robot/token"), &json!({"spec": {}})).await;
        let token = text(&token.ok(201)["status"]["token"]);
        let review = async |spec: Value| {
            c.post(&format!("{AUTHENTICATION}/tokenreviews"), &json!({"spec": spec})).await
        };
        let good = review(json!({"token": token})).await;
        assert_eq!(good.ok(201)["status"]["authenticated"], true);
        assert_eq!(
            good.body["status"]["user"]["username"],
            format!("system:serviceaccount:{namespace}:robot")
        );
        let bad = review(json!({"token": "nope"})).await;
        assert_eq!(bad.ok(201)["status"], json!({"user": {}, "error": "invalid bearer token"}));
        let reply = review(json!({})).await;
        reply.refused(400, "BadRequest", "token is required for TokenReview in authentication");
    })
    .await;
}

#[tokio::test]
async fn the_right_to_one_verb_is_not_the_right_to_another() {
    scenario(async |c| {
        let (namespace, user) = (c.namespace().await, unique("user"));
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let roles = format!("{RBAC}/namespaces/{namespace}/roles");
        let rules = json!([
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch", "update"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"]},
            {"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["*"]},
        ]);
        c.post(&roles, &json!({"metadata": {"name": "r"}, "rules": rules})).await.ok(201);
        let binding = json!({
            "metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        });
        c.post(&format!("{RBAC}/namespaces/{namespace}/rolebindings"), &binding).await.ok(201);
        c.post(&path, &crate::harness::configmap("there")).await.ok(201);
        eventually("the binding to be in force", async || {
            (c.send(Call::get(&format!("{path}/there")).impersonate(&user)).await.code == 200).then_some(())
        })
        .await;
        // An apply that would create, and a PUT that would.
        let mut body = crate::harness::configmap("new");
        body["apiVersion"] = json!("v1");
        body["kind"] = json!("ConfigMap");
        let apply = Call::patch(&format!("{path}/new?fieldManager=m"), crate::harness::APPLY_PATCH).bytes(body.to_string());
        let reply = c.send(apply.impersonate(&user)).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (403, "Forbidden"), "{}", reply.text);
        assert!(text(&reply.body["message"]).contains("cannot create resource \"configmaps\""), "{}", reply.text);
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/l");
        let body = json!({"metadata": {"name": "l"}, "spec": {}});
        let reply = c.send(Call::put(&lease).json(&body).impersonate(&user)).await;
        assert_eq!((reply.code, text(&reply.body["reason"])), (403, "Forbidden"), "{}", reply.text);
        c.put(&lease, &body).await.ok(201);
        // The old watch path under a subresource shows nothing.
        c.post(&format!("/api/v1/namespaces/{namespace}/secrets"), &json!({"metadata": {"name": "s"}})).await.ok(201);
        let watch = format!("/api/v1/watch/namespaces/{namespace}/secrets/s/status?timeoutSeconds=1");
        assert_eq!(c.send(Call::get(&watch).impersonate(&user)).await.code, 404);
    })
    .await;
}
