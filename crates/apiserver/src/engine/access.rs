//! Who may do what: the stored RBAC objects, turned into a policy that is rebuilt when one of them changes.

use super::{Call, Engine};
use crate::auth::{self, Attributes, BoundKind, PeerIdentity, Policy, User};
use crate::http::path::Target;
use crate::status::Status;
use crate::store::{Key, Scope};
use http::HeaderMap;
use serde_json::Value;
use std::sync::Arc;

const ROLES: &str = "roles.rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_ROLE_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

/// The policy of the last question, and the revision it was built from.
#[derive(Default)]
pub(crate) struct CachedPolicy {
    built_at: Option<u64>,
    policy: Arc<Policy>,
}

impl Engine {
    pub(crate) fn policy(&self) -> Arc<Policy> {
        let changed = self.store.last_change(&[ROLES, CLUSTER_ROLES, ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS]);
        let mut cached = self.policy.lock();
        if cached.built_at != Some(changed) {
            let all = |collection: &str| -> Vec<Value> {
                self.store.list(collection, Scope::All).objects.iter().map(|o| o.value()).collect()
            };
            let policy =
                Policy::build(all(ROLES), all(CLUSTER_ROLES), all(ROLE_BINDINGS), all(CLUSTER_ROLE_BINDINGS));
            *cached = CachedPolicy { built_at: Some(changed), policy: Arc::new(policy) };
        }
        cached.policy.clone()
    }

    /// The user of a request, who may then ask to be treated as another.
    pub(crate) fn user(
        &self,
        peer: Option<&PeerIdentity>,
        trusted: Option<&Arc<User>>,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<Arc<User>, Status> {
        match trusted {
            Some(user) => Ok(user.clone()),
            // Bad credentials are refused; none at all leave a nobody, who may read the public paths and nothing else.
            None if peer.is_none_or(|p| p.0.is_none())
                && !headers.contains_key(http::header::AUTHORIZATION) =>
            {
                Ok(Arc::new(User::anonymous()))
            }
            None => self.authenticator.authenticate(peer, headers, path, &self.uids()),
        }
    }

    pub(crate) fn authorize(
        &self,
        user: Arc<User>,
        headers: &HeaderMap,
        attributes: &Attributes<'_>,
    ) -> Result<Arc<User>, Status> {
        if user.is_anonymous() {
            // Whatever roles say: nobody is let in without a name.
            return Err(auth::forbidden(&user, attributes, ""));
        }
        let impersonating = headers.keys().any(|name| name.as_str().starts_with("impersonate-"));
        if user.is_master() && !impersonating {
            return Ok(user);
        }
        let policy = self.policy();
        let user = match auth::impersonate(&policy, &user, headers, attributes)? {
            Some(other) => Arc::new(other),
            None => user,
        };
        policy.authorize(&user, attributes)?;
        Ok(user)
    }

    /// An update or an apply that turns out to be a create needs the right to create, too.
    pub(crate) fn authorize_create(&self, call: &Call) -> Result<(), Status> {
        if call.user.is_master() {
            return Ok(());
        }
        let resource = &call.entry.resource;
        let attributes = Attributes {
            verb: "create",
            group: &resource.group,
            resource: &resource.plural,
            name: call.name(),
            namespace: call.namespace(),
            ..Attributes::default()
        };
        self.policy().authorize(&call.user, &attributes)
    }

    /// Nobody hands out more rights than they have.
    pub(crate) fn guard(&self, call: &Call, new: &Value, old: Option<&Value>) -> Result<(), Status> {
        let check = match &**call.collection() {
            ROLES | CLUSTER_ROLES => auth::check_role_write,
            ROLE_BINDINGS | CLUSTER_ROLE_BINDINGS => auth::check_binding_write,
            _ => return Ok(()),
        };
        check(&self.policy(), &call.user, call.namespace(), new, old)
    }

    /// Tokens are bound to objects that must still be there.
    pub(crate) fn uids(&self) -> impl Fn(BoundKind, &str, &str) -> Option<String> {
        let store = self.store.clone();
        move |kind, namespace, name| {
            let collection = match kind {
                BoundKind::ServiceAccount => "serviceaccounts",
                BoundKind::Pod => "pods",
                BoundKind::Secret => "secrets",
                BoundKind::Node => "nodes",
            };
            let object = store.get(collection, &Key::new(namespace, name))?;
            let deleting = !object.value()["metadata"]["deletionTimestamp"].is_null();
            (!deleting).then(|| object.uid.to_string())
        }
    }
}

/// What a request for objects asks the policy.
/// `named` is the one name that a field selector lets through.
pub(crate) fn attributes<'a>(verb: &'a str, target: &'a Target, named: Option<&'a str>) -> Attributes<'a> {
    // A namespace itself is asked for inside of itself, as in Kubernetes.
    let own = (target.resource == "namespaces" && target.group.is_empty())
        .then_some(&target.name)
        .and_then(Option::as_deref);
    Attributes {
        verb,
        group: &target.group,
        resource: &target.resource,
        subresource: target.subresource.as_deref().unwrap_or_default(),
        name: target.name.as_deref().or(named).unwrap_or_default(),
        namespace: target.namespace.as_deref().or(own).unwrap_or_default(),
        path: None,
    }
}
