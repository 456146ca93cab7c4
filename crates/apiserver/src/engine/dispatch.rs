//! Which verb does what, also on subresources; and the forms that single objects are shown in.

use super::{Call, Engine};
use crate::auth;
use crate::http::media::Form;
use crate::http::reply::{Content, Reply};
use crate::status::Status;
use crate::verbs::partial;
use serde_json::{Value, json};

/// Subresources that need a kubelet, a scheduler or a proxy, which this server has not.
const REFUSED: [&str; 9] =
    ["exec", "attach", "portforward", "log", "proxy", "binding", "eviction", "ephemeralcontainers", "resize"];

impl Engine {
    pub(crate) async fn dispatch(&self, call: &Call, verb: &str, body: &[u8]) -> Result<Reply, Status> {
        let resource = &call.entry.resource;
        match (call.subresource.as_deref(), verb) {
            (None, _)
                if matches!(resource.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io") =>
            {
                self.review(call, verb, body)
            }
            (None, verb) if !resource.verbs.contains(&verb) => Err(Status::method_not_allowed()),
            (None, "update") if call.name.is_none() && resource.is_custom() => {
                Err(Status::bad_request("name must be provided"))
            }
            (None, "get") => self.get(call),
            (None, "list") => self.list(call),
            (None, "create") if call.name.is_some() => Err(Status::method_not_allowed()),
            (None, "create") => self.create(call, body).await,
            (None, "update" | "patch") if call.name.is_none() => Err(Status::method_not_allowed()),
            (None, "update") => self.update(call, body).await,
            (None, "patch") => self.patch(call, body).await,
            (None, "delete") => self.delete(call, body).await,
            (None, "deletecollection") if resource.namespaced && call.namespace.is_none() => {
                Err(Status::method_not_allowed())
            }
            (None, "deletecollection") => self.delete_collection(call, body).await,
            (Some("status"), verb) if resource.has_status => match verb {
                "get" => self.get(call),
                "update" => self.update(call, body).await,
                "patch" => self.patch(call, body).await,
                _ => Err(Status::method_not_allowed()),
            },
            (Some("scale"), verb) if resource.scale.is_some() => match verb {
                "get" => self.get_scale(call),
                "update" => self.change_scale(call, body, false).await,
                "patch" => self.change_scale(call, body, true).await,
                _ => Err(Status::method_not_allowed()),
            },
            (Some("finalize"), "update") if resource.plural == "namespaces" => self.update(call, body).await,
            (Some("token"), "create") if resource.plural == "serviceaccounts" => self.token(call, body),
            (Some(sub), _) if REFUSED.iter().any(|r| sub == *r || sub.starts_with(&format!("{r}/"))) => {
                Err(Status::new(
                    501,
                    "NotImplemented",
                    format!(
                        "{}/{sub} is not served by this API server: it has no nodes behind it",
                        resource.plural
                    ),
                ))
            }
            _ => Err(Status::no_such_path()),
        }
    }

    /// What the server counts, for Prometheus.
    pub(crate) fn metrics(&self) -> String {
        let mut out = String::from(
            "# HELP butler_apiserver_revision The newest durable revision.\n# TYPE butler_apiserver_revision gauge\n",
        );
        out.push_str(&format!("butler_apiserver_revision {}\n", self.store.revision()));
        out.push_str(
            "# HELP butler_apiserver_objects Objects by resource.\n# TYPE butler_apiserver_objects gauge\n",
        );
        let mut collections = self.store.collections();
        collections.sort();
        for name in collections {
            out.push_str(&format!(
                "butler_apiserver_objects{{resource={name:?}}} {}\n",
                self.store.count(&name)
            ));
        }
        out
    }

    /// The reviews: questions in the form of objects that are never stored.
    fn review(&self, call: &Call, verb: &str, body: &[u8]) -> Result<Reply, Status> {
        if verb != "create" {
            return Err(Status::method_not_allowed());
        }
        let value = call.decode_object(body)?.value;
        let policy = self.policy();
        let answer = match call.entry.resource.plural.as_str() {
            "selfsubjectaccessreviews" => auth::self_subject_access_review(&policy, &call.user, &value)?,
            "subjectaccessreviews" => auth::subject_access_review(&policy, &value)?,
            "localsubjectaccessreviews" => {
                auth::local_subject_access_review(&policy, call.namespace(), &value)?
            }
            "selfsubjectrulesreviews" => auth::self_subject_rules_review(&policy, &call.user, &value)?,
            "selfsubjectreviews" => auth::self_subject_review(&call.user),
            "tokenreviews" => auth::token_review(&self.authenticator, &value, &self.uids())?,
            _ => return Err(Status::method_not_allowed()),
        };
        Ok(Reply::value(answer).with_code(201))
    }

    /// A token for a service account.
    fn token(&self, call: &Call, body: &[u8]) -> Result<Reply, Status> {
        let request = call.decode_other(body, "authentication.k8s.io/v1", "TokenRequest")?;
        let key = self.authenticator.account_key();
        let answer = auth::token_request(key, call.namespace(), call.name(), &request, &self.uids())?;
        Ok(Reply::value(answer).with_code(201))
    }

    /// Single objects as tables or as metadata alone.
    pub(crate) fn transform(&self, call: &Call, reply: Reply) -> Reply {
        if call.accepted.form == Form::Plain {
            return reply;
        }
        let value = match &reply.content {
            Content::Object(object) => self.view(&call.entry, object),
            Content::Value(value) if value["kind"] == call.entry.resource.kind.as_str() => value.clone(),
            _ => return reply,
        };
        let shown: Value = match call.accepted.form {
            Form::Plain => return reply,
            Form::Metadata => partial(&value, call),
            Form::Table => {
                let meta = json!({"resourceVersion": value["metadata"]["resourceVersion"]});
                self.table(call, &[value], &meta, true)
            }
        };
        Reply { content: Content::Value(shown), ..reply }
    }
}
