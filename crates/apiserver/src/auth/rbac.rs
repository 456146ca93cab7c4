//! RBAC: roles and bindings turned into a table that answers "may this user do that?".
//!
//! The table is built from the four lists of objects and replaced when one of them changes; asking it takes no locks
//! and reads no store. Aggregated cluster roles are put together here, so that they hold at once.

use super::identity::{User, account_user_name};
use super::rule::Rule;
use crate::status::{Details, Status};
use serde_json::Value;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;

pub(super) const GROUP: &str = "rbac.authorization.k8s.io";

/// What is asked for: a verb on a resource, or on a path that is no resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub name: &'a str,
    /// Empty at the cluster scope.
    pub namespace: &'a str,
    /// Set for a path that is no resource; the fields about resources are then ignored.
    pub path: Option<&'a str>,
}

/// The answer, with the reason that review objects show.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    pub allowed: bool,
    pub reason: String,
}

/// All roles and bindings.
#[derive(Debug, Default)]
pub struct Policy {
    roles: HashMap<String, HashMap<String, Arc<[Rule]>>>,
    cluster_roles: HashMap<String, Arc<[Rule]>>,
    bindings: HashMap<String, Vec<Binding>>,
    cluster_bindings: Vec<Binding>,
}

/// A RoleBinding, or a ClusterRoleBinding if it has no namespace.
#[derive(Debug)]
struct Binding {
    name: String,
    namespace: String,
    role: RoleRef,
    subjects: Vec<Subject>,
}

/// The role of a binding. Looked up when asked, since it may be made later than the binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoleRef {
    pub(super) kind: String,
    pub(super) name: String,
}

#[derive(Debug, PartialEq, Eq)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

// === impl Attributes ===

impl<'a> Attributes<'a> {
    pub fn path(verb: &'a str, path: &'a str) -> Self {
        Self { verb, path: Some(path), ..Self::default() }
    }

    fn allowed_by(&self, rule: &Rule) -> bool {
        match self.path {
            Some(path) => rule.allows_path(self.verb, path),
            None => rule.allows_resource(self.verb, self.group, self.resource, self.subresource, self.name),
        }
    }
}

/// The refusal of a request, worded as Kubernetes does.
pub fn forbidden(user: &User, attributes: &Attributes<'_>, reason: &str) -> Status {
    let Attributes { verb, group, resource, subresource, name, namespace, path } = *attributes;
    let who = &user.name;
    let mut text = match path {
        Some(path) => format!("User {who:?} cannot {verb} path {path:?}"),
        None => {
            let full = if subresource.is_empty() {
                resource.to_string()
            } else {
                format!("{resource}/{subresource}")
            };
            let place = if namespace.is_empty() {
                "at the cluster scope".to_string()
            } else {
                format!("in the namespace {namespace:?}")
            };
            format!("User {who:?} cannot {verb} resource {full:?} in API group {group:?} {place}")
        }
    };
    // Names come from the request, and some browsers show error bodies as HTML.
    text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        text = format!("{text}: {reason}");
    }
    if path.is_some() || resource.is_empty() {
        let mut status = Status::new(403, "Forbidden", format!("forbidden: {text}"));
        status.details = Some(Box::new(Details::default()));
        return status;
    }
    Status::forbidden(group, resource, name, text)
}

// === impl Policy ===

impl Policy {
    /// Builds the table. Bindings are kept in the order of their names, so that the same one is given as the reason
    /// each time.
    pub fn build<R, C, B, D>(roles: R, cluster_roles: C, role_bindings: B, cluster_role_bindings: D) -> Self
    where
        R: IntoIterator<Item: Borrow<Value>>,
        C: IntoIterator<Item: Borrow<Value>>,
        B: IntoIterator<Item: Borrow<Value>>,
        D: IntoIterator<Item: Borrow<Value>>,
    {
        let mut policy = Self::default();
        for role in roles {
            let role = role.borrow();
            policy
                .roles
                .entry(meta(role, "namespace").to_string())
                .or_default()
                .insert(meta(role, "name").to_string(), Rule::list(role).into());
        }
        policy.cluster_roles = read_cluster_roles(cluster_roles);
        for binding in role_bindings {
            let binding = Binding::read(binding.borrow());
            policy.bindings.entry(binding.namespace.clone()).or_default().push(binding);
        }
        for list in policy.bindings.values_mut() {
            list.sort_by(|a, b| a.name.cmp(&b.name));
        }
        policy.cluster_bindings =
            cluster_role_bindings.into_iter().map(|b| Binding::read(b.borrow())).collect();
        policy.cluster_bindings.sort_by(|a, b| a.name.cmp(&b.name));
        policy
    }

    /// Whether `user` may do what `attributes` say.
    pub fn allows(&self, user: &User, attributes: &Attributes<'_>) -> Decision {
        if user.is_master() {
            return Decision { allowed: true, reason: String::new() };
        }
        let mut missing = Vec::new();
        let namespace = if attributes.path.is_some() { "" } else { attributes.namespace };
        for (binding, subject) in self.bindings_of(user, namespace) {
            match self.rules_of(&binding.role, &binding.namespace) {
                Some(rules) if rules.iter().any(|rule| attributes.allowed_by(rule)) => {
                    return Decision { allowed: true, reason: binding.explain(subject) };
                }
                Some(_) => {}
                None => missing.push(binding.role.not_found()),
            }
        }
        let reason = joined(&missing).map(|m| format!("RBAC: {m}")).unwrap_or_default();
        Decision { allowed: false, reason }
    }

    /// [`Policy::allows`], with the refusal made.
    pub fn authorize(&self, user: &User, attributes: &Attributes<'_>) -> Result<(), Status> {
        let decision = self.allows(user, attributes);
        if decision.allowed { Ok(()) } else { Err(forbidden(user, attributes, &decision.reason)) }
    }

    /// Every rule that holds for `user` in `namespace` (at the cluster scope if empty), and what could not be resolved.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Option<String>) {
        let mut rules = Vec::new();
        let mut missing = Vec::new();
        for (binding, _) in self.bindings_of(user, namespace) {
            match self.rules_of(&binding.role, &binding.namespace) {
                Some(found) => rules.extend(found.iter().cloned()),
                None => missing.push(binding.role.not_found()),
            }
        }
        if user.is_master() {
            // Their power does not come from the objects, so it is shown even without them.
            for rule in [Rule::every_resource(), Rule::every_path()] {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
        (rules, joined(&missing))
    }

    /// The rules of a referenced role; `namespace` is that of the binding.
    pub(super) fn rules_of(&self, role: &RoleRef, namespace: &str) -> Option<&Arc<[Rule]>> {
        match role.kind.as_str() {
            "ClusterRole" => self.cluster_roles.get(&role.name),
            "Role" => self.roles.get(namespace)?.get(&role.name),
            _ => None,
        }
    }

    /// The bindings that name the user: cluster-wide ones first, then those of the namespace.
    fn bindings_of<'a>(
        &'a self,
        user: &'a User,
        namespace: &str,
    ) -> impl Iterator<Item = (&'a Binding, &'a Subject)> {
        let local = if namespace.is_empty() { None } else { self.bindings.get(namespace) }
            .map_or(&[][..], Vec::as_slice);
        self.cluster_bindings.iter().chain(local).filter_map(move |binding| {
            let subject = binding.subjects.iter().find(|s| s.is(user, &binding.namespace))?;
            Some((binding, subject))
        })
    }
}

/// Names to rules, with aggregated roles put together.
fn read_cluster_roles<C>(cluster_roles: C) -> HashMap<String, Arc<[Rule]>>
where
    C: IntoIterator<Item: Borrow<Value>>,
{
    let all: Vec<_> = cluster_roles.into_iter().collect();
    // Aggregated roles feed other aggregated ones (view, edit, admin): repeat until nothing grows. Each pass finishes
    // at least one role, so the number of roles bounds it even in a circle.
    let mut rules: HashMap<String, Vec<Rule>> =
        all.iter().map(|r| (meta(r.borrow(), "name").to_string(), own_rules(r.borrow()))).collect();
    for _ in 0..=all.len() {
        let mut grew = false;
        for role in all.iter().map(Borrow::borrow) {
            if !is_aggregated(role) {
                continue;
            }
            let gathered = gather(role, all.iter().map(Borrow::borrow), &rules);
            let slot = rules.entry(meta(role, "name").to_string()).or_default();
            if *slot != gathered {
                *slot = gathered;
                grew = true;
            }
        }
        if !grew {
            break;
        }
    }
    rules.into_iter().map(|(name, rules)| (name, rules.into())).collect()
}

/// The rules that an aggregated ClusterRole should hold, in the form to be written into it; `None` if it is not
/// aggregated. `all` are all cluster roles.
pub fn aggregated_rules<'a>(role: &Value, all: impl IntoIterator<Item = &'a Value>) -> Option<Vec<Value>> {
    if !is_aggregated(role) {
        return None;
    }
    let all: Vec<&Value> = all.into_iter().collect();
    let mut rules = read_cluster_roles(all.iter().copied());
    rules.remove(meta(role, "name")).map(|list| list.iter().map(Rule::to_value).collect())
}

fn is_aggregated(role: &Value) -> bool {
    role["aggregationRule"].is_object()
}

/// Whatever an aggregated role holds itself is overwritten.
fn own_rules(role: &Value) -> Vec<Rule> {
    if is_aggregated(role) { Vec::new() } else { Rule::list(role) }
}

fn gather<'a>(
    role: &Value,
    all: impl Iterator<Item = &'a Value> + Clone,
    known: &HashMap<String, Vec<Rule>>,
) -> Vec<Rule> {
    let mut out: Vec<Rule> = Vec::new();
    for selector in role["aggregationRule"]["clusterRoleSelectors"].as_array().into_iter().flatten() {
        let mut matching: Vec<&Value> = all
            .clone()
            .filter(|other| meta(other, "name") != meta(role, "name") && selects(selector, other))
            .collect();
        matching.sort_by_key(|other| meta(other, "name"));
        for rule in matching.iter().filter_map(|other| known.get(meta(other, "name"))).flatten() {
            if !out.contains(rule) {
                out.push(rule.clone());
            }
        }
    }
    out
}

/// A label selector; an operator that is not known selects nothing.
fn selects(selector: &Value, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    let equal = selector["matchLabels"]
        .as_object()
        .is_none_or(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)));
    let expressions = selector["matchExpressions"].as_array();
    equal && expressions.is_none_or(|list| list.iter().all(|e| expression_selects(e, labels)))
}

fn expression_selects(expression: &Value, labels: &Value) -> bool {
    let value = expression["key"].as_str().and_then(|key| labels.get(key));
    let listed = || expression["values"].as_array().is_some_and(|v| value.is_some_and(|x| v.contains(x)));
    match expression["operator"].as_str() {
        Some("In") => listed(),
        Some("NotIn") => !listed(),
        Some("Exists") => value.is_some(),
        Some("DoesNotExist") => value.is_none(),
        _ => false,
    }
}

// === impl Binding ===

impl Binding {
    fn read(value: &Value) -> Self {
        let text = |v: &Value, key: &str| v[key].as_str().unwrap_or_default().to_string();
        let subjects = value["subjects"].as_array().into_iter().flatten().map(|s| Subject {
            kind: text(s, "kind"),
            name: text(s, "name"),
            namespace: text(s, "namespace"),
        });
        Self {
            name: meta(value, "name").to_string(),
            namespace: meta(value, "namespace").to_string(),
            role: RoleRef::read(&value["roleRef"]),
            subjects: subjects.collect(),
        }
    }

    fn explain(&self, subject: &Subject) -> String {
        let (kind, name) = if self.namespace.is_empty() {
            ("ClusterRoleBinding", self.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", self.name, self.namespace))
        };
        let RoleRef { kind: role_kind, name: role } = &self.role;
        let subject = subject.explain(&self.namespace);
        format!("RBAC: allowed by {kind} {name:?} of {role_kind} {role:?} to {subject}")
    }
}

impl RoleRef {
    pub(super) fn read(value: &Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_string();
        Self { kind: text("kind"), name: text("name") }
    }

    fn not_found(&self) -> String {
        format!("{}.{GROUP} {:?} not found", self.kind.to_lowercase(), self.name)
    }
}

impl Subject {
    fn is(&self, user: &User, binding_namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => self.name == user.name,
            "Group" => user.in_group(&self.name),
            "ServiceAccount" => {
                let namespace = self.namespace_or(binding_namespace);
                !namespace.is_empty() && user.name == account_user_name(namespace, &self.name)
            }
            _ => false,
        }
    }

    fn namespace_or<'a>(&'a self, binding_namespace: &'a str) -> &'a str {
        if self.namespace.is_empty() { binding_namespace } else { &self.namespace }
    }

    fn explain(&self, binding_namespace: &str) -> String {
        match self.kind.as_str() {
            "ServiceAccount" => {
                let full = format!("{}/{}", self.name, self.namespace_or(binding_namespace));
                format!("{} {full:?}", self.kind)
            }
            _ => format!("{} {:?}", self.kind, self.name),
        }
    }
}

pub(super) fn meta<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

/// One message as it is, several in brackets.
fn joined(messages: &[String]) -> Option<String> {
    let mut unique: Vec<&str> = Vec::new();
    for message in messages {
        if !unique.contains(&message.as_str()) {
            unique.push(message);
        }
    }
    match unique.as_slice() {
        [] => None,
        [one] => Some((*one).to_string()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}

#[cfg(test)]
#[path = "rbac_tests.rs"]
mod tests;
