//! One RBAC rule: what it matches, and what it covers of another.

use serde_json::{Map, Value};

/// A policy rule of a Role or ClusterRole.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub api_groups: Vec<String>,
    pub resources: Vec<String>,
    pub resource_names: Vec<String>,
    pub non_resource_urls: Vec<String>,
    pub verbs: Vec<String>,
}

impl Rule {
    /// Reads a rule leniently: what is not a list of strings counts as absent, so a malformed rule grants less, never
    /// more.
    pub fn from_value(value: &Value) -> Self {
        Self {
            api_groups: strings(&value["apiGroups"]),
            resources: strings(&value["resources"]),
            resource_names: names(&value["resourceNames"]),
            non_resource_urls: strings(&value["nonResourceURLs"]),
            verbs: strings(&value["verbs"]),
        }
    }

    /// All rules of a Role or ClusterRole.
    pub fn list(role: &Value) -> Vec<Self> {
        role["rules"].as_array().map(|rules| rules.iter().map(Self::from_value).collect()).unwrap_or_default()
    }

    /// The rule that allows every verb on every resource.
    pub fn every_resource() -> Self {
        Self { api_groups: star(), resources: star(), verbs: star(), ..Self::default() }
    }

    /// The rule that allows every verb on every path.
    pub fn every_path() -> Self {
        Self { non_resource_urls: star(), verbs: star(), ..Self::default() }
    }

    pub fn to_value(&self) -> Value {
        let mut out = Map::new();
        for (key, list) in [
            ("apiGroups", &self.api_groups),
            ("resources", &self.resources),
            ("resourceNames", &self.resource_names),
            ("nonResourceURLs", &self.non_resource_urls),
        ] {
            if !list.is_empty() {
                out.insert(key.into(), list.clone().into());
            }
        }
        out.insert("verbs".into(), self.verbs.clone().into());
        Value::Object(out)
    }

    pub(super) fn allows_resource(
        &self,
        verb: &str,
        group: &str,
        resource: &str,
        subresource: &str,
        name: &str,
    ) -> bool {
        has_or_star(&self.verbs, verb)
            && has_or_star(&self.api_groups, group)
            && self.resources.iter().any(|r| resource_matches(r, resource, subresource))
            && (self.resource_names.is_empty() || has(&self.resource_names, name))
    }

    pub(super) fn allows_path(&self, verb: &str, path: &str) -> bool {
        has_or_star(&self.verbs, verb) && self.non_resource_urls.iter().any(|url| path_covers(url, path))
    }

    /// Splits the rule into rules of one verb, one resource and at most one name, which a single other rule either
    /// covers or does not.
    pub(super) fn split(&self) -> Vec<Self> {
        let mut out = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let one = Self {
                        api_groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        verbs: vec![verb.clone()],
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        out.push(one);
                        continue;
                    }
                    out.extend(
                        self.resource_names
                            .iter()
                            .map(|name| Self { resource_names: vec![name.clone()], ..one.clone() }),
                    );
                }
            }
        }
        for url in &self.non_resource_urls {
            out.extend(self.verbs.iter().map(|verb| Self {
                non_resource_urls: vec![url.clone()],
                verbs: vec![verb.clone()],
                ..Self::default()
            }));
        }
        out
    }

    /// Whether this rule grants all of `part`, which came out of [`Rule::split`].
    pub(super) fn covers(&self, part: &Self) -> bool {
        let names = self.resource_names.is_empty()
            || (!part.resource_names.is_empty()
                && part.resource_names.iter().all(|n| has(&self.resource_names, n)));
        names
            && part.verbs.iter().all(|v| has_or_star(&self.verbs, v))
            && part.api_groups.iter().all(|g| has_or_star(&self.api_groups, g))
            && part.resources.iter().all(|r| self.resources.iter().any(|mine| resource_covers(mine, r)))
            && part
                .non_resource_urls
                .iter()
                .all(|url| self.non_resource_urls.iter().any(|mine| path_covers(mine, url)))
    }

    /// The short form in refusals: `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
    pub(super) fn compact(&self) -> String {
        let parts: Vec<String> = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(key, list)| format!("{key}:{}", quoted_list(list)))
        .collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// `["a" "b"]`, the way Go prints a list of quoted strings.
pub(super) fn quoted_list(list: &[String]) -> String {
    format!("[{}]", list.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(" "))
}

pub(super) fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_string).collect())
        .unwrap_or_default()
}

/// Like [`strings`], but malformed input must not read as "no names", which would mean every name.
fn names(value: &Value) -> Vec<String> {
    let list = strings(value);
    if list.is_empty() && !value.is_null() && value.as_array().is_none_or(|l| !l.is_empty()) {
        return vec![String::new()];
    }
    list
}

fn star() -> Vec<String> {
    vec!["*".to_string()]
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|s| s == wanted)
}

fn has_or_star(list: &[String], wanted: &str) -> bool {
    list.iter().any(|s| s == "*" || s == wanted)
}

/// `pattern` is `*`, `pods`, `pods/status` or `*/scale`.
fn resource_matches(pattern: &str, resource: &str, subresource: &str) -> bool {
    if pattern == "*" {
        return true;
    }
    match pattern.split_once('/') {
        None => subresource.is_empty() && pattern == resource,
        Some((head, tail)) => {
            !subresource.is_empty() && tail == subresource && (head == "*" || head == resource)
        }
    }
}

fn resource_covers(mine: &str, wanted: &str) -> bool {
    if mine == "*" || mine == wanted {
        return true;
    }
    match (mine.strip_prefix("*/"), wanted.split_once('/')) {
        (Some(mine), Some((_, tail))) => mine == tail,
        _ => false,
    }
}

fn path_covers(mine: &str, wanted: &str) -> bool {
    mine == wanted || (mine.ends_with('*') && wanted.starts_with(mine.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn resources_and_subresources_are_told_apart() {
        let table = [
            ("pods", "pods", "", true),
            ("pods", "pods", "status", false),
            ("pods/status", "pods", "status", true),
            ("pods/status", "pods", "", false),
            ("*/scale", "deployments", "scale", true),
            ("*/scale", "deployments", "", false),
            ("pods/*", "pods", "status", false),
            ("*", "pods", "status", true),
            ("deployments/scale", "replicasets", "scale", false),
        ];
        for (pattern, resource, subresource, wanted) in table {
            assert_eq!(
                resource_matches(pattern, resource, subresource),
                wanted,
                "{pattern} on {resource}/{subresource}"
            );
        }
    }

    #[test]
    fn malformed_names_never_widen_a_rule() {
        let rule = Rule::from_value(
            &json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": [7]}),
        );
        assert!(!rule.allows_resource("get", "", "secrets", "", "any"));
        let rule = Rule::from_value(
            &json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": []}),
        );
        assert!(rule.allows_resource("get", "", "secrets", "", "any"));
    }

    #[test]
    fn paths_match_whole_or_by_trailing_star() {
        assert!(path_covers("/healthz/*", "/healthz/etcd"));
        assert!(!path_covers("/healthz/*", "/healthz"));
        assert!(path_covers("*", "/anything"));
        assert!(!path_covers("/api", "/apis"));
    }

    fn any_rule() -> impl Strategy<Value = Rule> {
        let word = prop::sample::select(vec!["*", "a", "b", "a/x", "*/x"]);
        let list = || prop::collection::vec(word.clone().prop_map(str::to_string), 1..3);
        let names =
            prop::collection::vec(prop::sample::select(vec!["n", "m"]).prop_map(str::to_string), 0..2);
        (list(), list(), list(), names).prop_map(|(api_groups, resources, verbs, resource_names)| Rule {
            api_groups,
            resources,
            verbs,
            resource_names,
            ..Rule::default()
        })
    }

    proptest! {
        /// Covering is sound: what the covered part allows, the owner allows as well.
        #[test]
        fn covering_implies_allowing(owner in any_rule(), wanted in any_rule(),
            verb in "[ab]", group in "[ab]", resource in "[ab]", sub in "x?", name in "[nm]") {
            if wanted.split().iter().all(|part| owner.covers(part))
                && wanted.allows_resource(&verb, &group, &resource, &sub, &name) {
                prop_assert!(owner.allows_resource(&verb, &group, &resource, &sub, &name));
            }
        }

        #[test]
        fn a_rule_survives_its_json(rule in any_rule()) {
            prop_assert_eq!(Rule::from_value(&rule.to_value()), rule);
        }
    }
}
