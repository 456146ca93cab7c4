//! Calls that change something: what is refused at once, and what an operation is begun for.

use super::handle::{Asked, shown_collection};
use super::network::texts;
use super::operations::{End, Failed, Operation, Work, merge, replace, tell};
use super::request::{Outcome, Refusal};
use super::state::{Doc, Effect, Fields, State, collection_of, link, singular};
use serde_json::{Value, json};

impl State {
    pub(super) fn change(&mut self, asked: &Asked<'_>) -> Outcome {
        let verb = asked.request.verb();
        if verb == "insert" {
            return self.insert(asked);
        }
        let path = asked.path();
        if self.coming.contains_key(&path) || (verb != "delete" && self.leaving.contains_key(&path)) {
            return Err(Refusal::not_ready(&path));
        }
        if !self.docs.contains_key(&path) {
            return Err(Refusal::not_found(&path));
        }
        let work = match (asked.request.collection(), verb) {
            (_, "delete") => return self.delete(asked, &path),
            (_, "patch" | "update") => self.patched(asked, &path)?,
            (_, "setLabels") => self.labelled(asked, &path)?,
            (_, "addInstances" | "addInstance" | "removeInstances" | "removeInstance") => {
                self.membership(asked, &path)?
            }
            ("instances", "start") => {
                self.set_status(&path, "TERMINATED", "STAGING");
                Work::Start
            }
            ("instances", "stop") => {
                self.set_status(&path, "RUNNING", "STOPPING");
                Work::Stop
            }
            ("instances", "reset") => Work::Reset,
            ("instances", "setTags") => self.part_set(asked, &path, "tags")?,
            ("instances", "setMetadata") => self.part_set(asked, &path, "metadata")?,
            ("instances", "setDeletionProtection") => {
                let on = asked.query.get("deletionProtection").is_none_or(|text| text == "true");
                Work::Set(Fields::from_iter([("deletionProtection".to_string(), on.into())]))
            }
            ("forwardingRules", "setTarget") => {
                let mut fields = asked.body.clone();
                self.linked_field(&mut fields, "target", "targetPools")?;
                Work::Set(fields)
            }
            ("targetPools", "addHealthCheck" | "removeHealthCheck") => self.pool_checks(asked, &path)?,
            (collection, verb) => return Err(Refusal::not_simulated(&format!("{collection}.{verb}"))),
        };
        Ok(self.begin(asked.beginning(), &path, work))
    }

    fn insert(&mut self, asked: &Asked<'_>) -> Outcome {
        let collection = asked.path();
        let name = asked.body.get("name").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            return Err(Refusal::required("resource.name"));
        }
        let path = format!("{collection}/{name}");
        if self.docs.contains_key(&path) || self.coming.contains_key(&path) {
            return Err(Refusal::exists(&path));
        }
        for (metric, regional) in metrics(shown_collection(asked.request.collection())) {
            let region = self.region_of(&path).filter(|_| *regional);
            self.check_quota(metric, region)?;
        }
        let mut fields = asked.body.clone();
        self.check_resource(&path, &mut fields)?;
        if asked.request.collection() == "instances" {
            self.show_provisioning(&path, &fields, asked.now);
        }
        Ok(self.begin(asked.beginning(), &path, Work::Insert(fields)))
    }

    fn delete(&mut self, asked: &Asked<'_>, path: &str) -> Outcome {
        if let Some(operation) = self.leaving.get(path).and_then(|name| self.operations.get(name)) {
            return Ok(tell(operation, asked.now));
        }
        if let Some(user) = self.users_of(path).first() {
            return Err(Refusal::in_use(singular(collection_of(path)), path, user));
        }
        let protected =
            self.doc(path).and_then(|doc| doc.fields.get("deletionProtection")) == Some(&Value::Bool(true));
        if protected {
            return Err(Refusal::invalid(
                "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'.",
            ));
        }
        if collection_of(path) == "instances" {
            self.set_status(path, "RUNNING", "STOPPING");
        }
        Ok(self.begin(asked.beginning(), path, Work::Delete))
    }

    /// Another status, if it is the one that is expected.
    pub(super) fn set_status(&mut self, path: &str, from: &str, to: &str) {
        if let Some(doc) = self.docs.get_mut(path)
            && doc.fields.get("status") == Some(&Value::from(from))
        {
            doc.fields.insert("status".into(), to.into());
        }
    }

    fn patched(&self, asked: &Asked<'_>, path: &str) -> Result<Work, Refusal> {
        let old = &self.doc(path).ok_or_else(|| Refusal::not_found(path))?.fields;
        let update = asked.request.verb() == "update";
        let given = asked.body.get("fingerprint").and_then(Value::as_str).unwrap_or_default();
        let held = old.get("fingerprint").and_then(Value::as_str).unwrap_or_default();
        if (given.is_empty() && update && !held.is_empty()) || (!given.is_empty() && given != held) {
            return Err(Refusal::stale_fingerprint());
        }
        let mut next = old.clone();
        if update {
            replace(&mut next, &asked.body)
        } else {
            merge(&mut next, &asked.body)
        }
        if next.get("name") != old.get("name") {
            return Err(Refusal::field("resource.name", "", "The name of a resource cannot change."));
        }
        self.check_resource(path, &mut next)?;
        // Links are written in full, so what is kept is what came out of the check.
        let changed: Fields = next.into_iter().filter(|(name, _)| name != "fingerprint").collect();
        Ok(if update {
            Work::Update(changed)
        } else {
            Work::Set(changed.into_iter().filter(|(name, _)| asked.body.contains_key(name)).collect())
        })
    }

    fn labelled(&self, asked: &Asked<'_>, path: &str) -> Result<Work, Refusal> {
        if asked.body.get("labelFingerprint").and_then(Value::as_str)
            != Some(self.text(path, "labelFingerprint"))
        {
            return Err(Refusal::new(
                412,
                "conditionNotMet",
                "Labels fingerprint either invalid or resource labels have changed",
            ));
        }
        let labels = asked.body.get("labels").cloned().unwrap_or_else(|| json!({}));
        let fields = Fields::from_iter([("labels".to_string(), labels)]);
        super::rules::check_labels(&fields)?;
        Ok(Work::Set(fields))
    }

    /// Tags or metadata of an instance as a whole.
    fn part_set(&self, asked: &Asked<'_>, path: &str, part: &str) -> Result<Work, Refusal> {
        let held =
            self.doc(path).and_then(|doc| doc.fields.get(part)).and_then(|part| part.get("fingerprint"));
        if held.is_some() && asked.body.get("fingerprint") != held {
            return Err(Refusal::stale_fingerprint());
        }
        Ok(Work::Set(Fields::from_iter([(part.to_string(), Value::Object(asked.body.clone()))])))
    }

    fn pool_checks(&self, asked: &Asked<'_>, path: &str) -> Result<Work, Refusal> {
        let given = asked.body.get("healthChecks").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut checks: Vec<String> = self
            .doc(path)
            .map(|doc| texts(doc.fields.get("healthChecks")).map(ToString::to_string).collect())
            .unwrap_or_default();
        for check in given {
            let check = self.linked(
                "resource.healthChecks",
                check["healthCheck"].as_str().unwrap_or_default(),
                "httpHealthChecks",
            )?;
            checks.retain(|known| *known != link(&check));
            if asked.request.verb() == "addHealthCheck" {
                checks.push(link(&check));
            }
        }
        if checks.len() > 1 {
            return Err(Refusal::invalid("At most one health check can be specified for a target pool."));
        }
        Ok(Work::Set(Fields::from_iter([("healthChecks".to_string(), json!(checks))])))
    }

    fn membership(&self, asked: &Asked<'_>, path: &str) -> Result<Work, Refusal> {
        let adds = asked.request.verb().starts_with("add");
        let group = collection_of(path) == "instanceGroups";
        let given = asked.body.get("instances").and_then(Value::as_array).cloned().unwrap_or_default();
        if given.is_empty() {
            return Err(Refusal::required("resource.instances"));
        }
        let mut named = Vec::new();
        for one in given {
            let text = one["instance"].as_str().unwrap_or_default();
            let instance = if adds {
                self.linked("resource.instances", text, "instances")?
            } else {
                // What is gone can be taken out of a pool all the same.
                self.path_of(text)
                    .ok_or_else(|| Refusal::field("resource.instances", text, "The URL is malformed."))?
            };
            self.check_member(path, &instance, adds && group, !adds && group)?;
            named.push(instance);
        }
        Ok(if adds {
            Work::Members { add: named, remove: Vec::new() }
        } else {
            Work::Members { add: Vec::new(), remove: named }
        })
    }

    fn check_member(&self, path: &str, instance: &str, comes: bool, leaves: bool) -> Result<(), Refusal> {
        let has = self.doc(path).is_some_and(|doc| doc.members.contains(instance));
        if comes && has {
            return Err(Refusal::new(
                400,
                "memberAlreadyExists",
                format!("'{instance}' is already a member of '{path}'"),
            ));
        }
        if leaves && !has {
            return Err(Refusal::new(
                400,
                "memberNotFound",
                format!("'{instance}' is not a member of '{path}'"),
            ));
        }
        let (zone, own) = (path.split('/').nth(3), instance.split('/').nth(3));
        if comes && zone != own {
            return Err(Refusal::field(
                "resource.instances",
                instance,
                "The instance is in another zone than the group.",
            ));
        }
        if comes
            && self
                .doc(instance)
                .is_some_and(|doc| doc.fields.get("status") == Some(&Value::from("PROVISIONING")))
        {
            return Err(Refusal::not_ready(instance));
        }
        // An instance has one load-balanced group at most.
        let other = self.all("instanceGroups").find(|(group, doc)| {
            comes
                && group.as_str() != path
                && doc.members.contains(instance)
                && !self.users_of(group).is_empty()
        });
        match other {
            Some((group, _)) if !self.users_of(path).is_empty() => Err(Refusal::new(
                400,
                "instanceInMultipleLoadBalancedIgs",
                format!("'{instance}' is in the load-balanced instance group '{group}' already"),
            )),
            _ => Ok(()),
        }
    }

    /// Puts instances, by path, into a group or pool, and takes some out.
    pub(super) fn change_members(&mut self, path: &str, add: &[String], remove: &[String]) {
        let Some(doc) = self.docs.get_mut(path) else { return };
        if collection_of(path) == "instanceGroups" {
            doc.members.extend(add.iter().cloned());
            doc.members.retain(|member| !remove.contains(member));
            doc.draining.retain(|member, _| !doc.members.contains(member));
            return;
        }
        let mut links: Vec<String> = texts(doc.fields.get("instances")).map(ToString::to_string).collect();
        links.retain(|known| !remove.iter().chain(add).any(|one| link(one) == *known));
        links.extend(add.iter().map(|one| link(one)));
        doc.fields.insert("instances".into(), json!(links));
    }
}

/// Limits that one more of a collection counts against, and whether those are of the region.
fn metrics(collection: &str) -> &'static [(&'static str, bool)] {
    match collection {
        "firewalls" => &[("FIREWALLS", false)],
        "forwardingRules" => &[("FORWARDING_RULES", false), ("EXTERNAL_NETWORK_LB_FORWARDING_RULES", true)],
        "targetPools" => &[("TARGET_POOLS", false)],
        "healthChecks" | "httpHealthChecks" => &[("HEALTH_CHECKS", false)],
        "backendServices" => {
            &[("BACKEND_SERVICES", false), ("REGIONAL_EXTERNAL_NETWORK_LB_BACKEND_SERVICES", true)]
        }
        "instanceGroups" => &[("INSTANCE_GROUPS", true)],
        "instances" => &[("INSTANCES", true)],
        _ => &[],
    }
}

impl State {
    /// A new resource is in place, or its operation fails.
    pub(super) fn finish_insert(
        &mut self,
        operation: &Operation,
        mut fields: Fields,
        now: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<End, Failed> {
        let path = operation.target.as_str();
        match collection_of(path) {
            "instances" => return self.finish_instance(operation, fields, now, effects),
            "addresses" => {
                let address = if fields.get("addressType") == Some(&Value::from("INTERNAL")) {
                    let subnetwork =
                        fields.get("subnetwork").and_then(Value::as_str).and_then(|link| self.path_of(link));
                    subnetwork.and_then(|subnetwork| self.free_internal(&subnetwork))
                } else {
                    Some(self.free_external())
                };
                let Some(address) = address else {
                    return Err(Failed::new("IP_SPACE_EXHAUSTED", "IP space is exhausted.", 400));
                };
                fields.entry("address").or_insert(address.to_string().into());
            }
            "forwardingRules" => {
                let address = self.free_external();
                fields.entry("IPAddress").or_insert(address.to_string().into());
            }
            _ => {}
        }
        let listed_from = now + self.scaled(crate::delays::GCE_LIST_LAG);
        self.put(path, Doc { fields, listed_from, ..Doc::default() }, now);
        Ok(End::Now)
    }

    pub(super) fn finish_delete(&mut self, path: &str, effects: &mut Vec<Effect>) -> Result<(), Failed> {
        // Somebody may have begun to use it since the call.
        if let Some(user) = self.users_of(path).first() {
            let refusal = Refusal::in_use(singular(collection_of(path)), path, user);
            return Err(Failed::new("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", refusal.message, 400));
        }
        if collection_of(path) == "instances" {
            self.remove_instance(path, effects);
        } else {
            self.docs.remove(path);
        }
        Ok(())
    }
}
