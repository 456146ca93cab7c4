//! Load balancers at Google: looks, asks the plan, makes at most one change.

mod desired;
mod facts;
mod kept;
mod plan;

pub(crate) use desired::{CHECK_SOURCES, Desired};
pub(crate) use facts::{Health, facts};
pub(crate) use plan::{Look, Observed, Plan, plan, plan_removal};

use super::driver::{Driver, SOON, Sent, UnderWay};
use super::error::CallError;
use super::machines::waiting;
use super::names::{LABEL_CLUSTER_UID, google_name, tail};
use super::part::{Kind, Mutation, Part, Scope, Thing};
use crate::failure::{Class, Failure};
use crate::seam::{LoadBalancerFacts, LoadBalancerWanted, LoadBalancers, Operation, OwnedResource, Progress};
use async_trait::async_trait;
use kept::Kept;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Load balancers of one project.
pub(crate) struct GcpLoadBalancers {
    driver: Arc<Driver>,
    /// What is remembered of a load balancer, by the uid of its request. It saves calls; nothing is decided by it but that
    /// somebody who was a target once is no stranger.
    memory: Mutex<BTreeMap<String, Memory>>,
}

#[derive(Default, Clone)]
struct Memory {
    /// The form, by what it is made of, that no part is left beside. Looking for such parts takes a list of every kind, so it
    /// is done once for each form.
    swept: String,
    /// Operations that nothing can be done beside, for this request: while they are all under way, nothing else is looked at.
    stuck: Option<(UnderWay, LoadBalancerWanted)>,
    known: Option<LoadBalancerFacts>,
    /// Members that were targets.
    former: BTreeSet<String>,
    kept: Kept,
}

#[async_trait]
impl LoadBalancers for GcpLoadBalancers {
    async fn ensure(
        &self,
        wanted: &LoadBalancerWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<LoadBalancerFacts>, Failure> {
        let object = format!("load-balancer {}", wanted.name);
        let under_way = self.driver.follow(operation, &object).await?;
        self.changed(wanted, under_way.ended.iter().filter_map(|target| Part::at(target)));
        let memory = self.memory(wanted);
        if memory.is_stuck(&under_way, wanted) {
            let what = "parts of the load balancer to be made".to_owned();
            return Ok(waiting(what, under_way.operation(), under_way.recheck, memory.known));
        }
        let desired = Desired::new(wanted, &self.driver.settings);
        let form = format!("{:?}", desired.parts());
        let empty = Observed {
            sweep: memory.swept != form,
            busy: under_way.targets.clone(),
            former: memory.former.clone(),
            ..Observed::default()
        };
        let before = self.seen_before(&desired, &empty, wanted, &object).await?;
        let mut fresh = before.is_none();
        let (mut since, mut seen) = before.unwrap_or_else(|| (Instant::now(), empty.clone()));
        let next = loop {
            match plan(&desired, &seen)? {
                Plan::Look(looks) => self.look(&desired, &mut seen, looks, &memory.kept, &object).await?,
                // Only what is seen now counts.
                Plan::Settled if !fresh => (fresh, since, seen) = (true, Instant::now(), empty.clone()),
                next => break next,
            }
        };
        match next {
            Plan::Do(mutation) => {
                let known = self.remember(wanted, facts(&desired, &seen, &Health::new()), None);
                let made = self.make(&mutation, &under_way, wanted, known).await?;
                self.keep(wanted, since, seen);
                Ok(made)
            }
            Plan::Look(_) | Plan::Wait(_) if under_way.is_empty() => {
                let known = self.remember(wanted, facts(&desired, &seen, &Health::new()), None);
                Ok(waiting(words(&next), None, SOON * 2, known))
            }
            Plan::Look(_) | Plan::Wait(_) => {
                let facts = facts(&desired, &seen, &Health::new());
                let known = self.remember(wanted, facts, Some((under_way.clone(), wanted.clone())));
                self.keep(wanted, since, seen);
                Ok(waiting(words(&next), under_way.operation(), under_way.recheck, known))
            }
            Plan::Settled => {
                let health = self.health(&desired, &seen, &object).await?;
                let Some(facts) = facts(&desired, &seen, &health) else {
                    return Ok(Progress::waiting("the address to be seen", None, SOON));
                };
                self.remember(wanted, Some(facts.clone()), None);
                let mut memory = self.memory.lock();
                let memory = memory.entry(wanted.owner.object_uid.clone()).or_default();
                memory.swept = form;
                memory.former.extend(targets_of(&desired, &seen));
                Ok(Progress::Ready(facts))
            }
        }
    }

    async fn delete(
        &self,
        wanted: &LoadBalancerWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        let object = format!("load-balancer {}", wanted.name);
        let under_way = self.driver.follow(operation, &object).await?;
        let what = "parts of the load balancer to be deleted";
        if self.memory(wanted).is_stuck(&under_way, wanted) {
            return Ok(Progress::waiting(what, under_way.operation(), under_way.recheck));
        }
        let desired = Desired::new(wanted, &self.driver.settings);
        let mut seen = Observed { busy: under_way.targets.clone(), ..Observed::default() };
        for kind in Kind::OF_LOAD_BALANCERS {
            // Not by name: a part that an older request had, under another name, is as much ours.
            seen.lists.insert(kind, self.driver.list(kind, "", &object).await?);
        }
        if let Plan::Settled = plan_removal(&desired, &seen) {
            // Lists may lag behind: before we say that it is gone, every part is asked for by its name.
            self.look_by_name(&desired, &mut seen, &object).await?;
        }
        match plan_removal(&desired, &seen) {
            Plan::Do(mutation) => {
                self.remember(wanted, None, None);
                return self.make(&mutation, &under_way, wanted, None).await;
            }
            Plan::Settled if under_way.is_empty() => {}
            _ => {
                self.remember(wanted, None, Some((under_way.clone(), wanted.clone())));
                let recheck = if under_way.is_empty() { SOON } else { under_way.recheck };
                return Ok(Progress::waiting(what, under_way.operation(), recheck));
            }
        }
        let mut scopes = vec![Scope::Region(self.driver.settings.region.clone()), Scope::Global];
        scopes.extend(self.driver.zones(&object).await?.into_iter().map(Scope::Zone));
        let making = self.driver.being_made(&scopes, |name| desired.is_part(name), &object).await?;
        if let Some(operation) = making {
            let what = "a creation that is under way to finish";
            return Ok(Progress::waiting(what, Some(operation), SOON));
        }
        self.memory.lock().remove(&wanted.owner.object_uid);
        Ok(Progress::Ready(()))
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        let mut owned = Vec::new();
        for kind in Kind::OF_LOAD_BALANCERS {
            for thing in self.driver.list(kind, "", "load balancers of ours").await? {
                let Some(mark) = &thing.mark else { continue };
                if cluster_uid.is_none_or(|uid| uid == mark.cluster_uid) {
                    owned.push(OwnedResource {
                        kind: kind.words().to_owned(),
                        name: thing.part.name.clone(),
                        id: thing.part.path(),
                        owner: mark.owner(),
                    });
                }
            }
        }
        Ok(owned)
    }

    async fn of_services(&self, cluster: &str) -> Result<Vec<String>, Failure> {
        // The firewall rule alone tells whose a load balancer is: it is for machines with the cluster's tag.
        const FIREWALL: &str = "k8s-fw-";
        let object = "load balancers of Services";
        let tag = google_name(cluster);
        let firewalls = self.driver.list(Kind::Firewall, &format!("name eq {FIREWALL}.*"), object).await?;
        let tagged = |thing: &&Thing| thing.urls("targetTags").contains(&tag.as_str());
        let mut found: Vec<String> = firewalls.iter().filter(tagged).map(|one| one.part.words()).collect();
        let names: BTreeSet<&str> =
            firewalls.iter().filter(tagged).filter_map(|one| one.part.name.strip_prefix(FIREWALL)).collect();
        if !names.is_empty() {
            let rules = self.driver.list(Kind::ForwardingRule, "", object).await?;
            let theirs = rules.iter().filter(|rule| names.contains(rule.part.name.as_str()));
            found.extend(theirs.map(|rule| rule.part.words()));
        }
        Ok(found)
    }
}

impl GcpLoadBalancers {
    pub(crate) fn new(driver: Arc<Driver>) -> Self {
        Self { driver, memory: Mutex::default() }
    }

    fn memory(&self, wanted: &LoadBalancerWanted) -> Memory {
        self.memory.lock().get(&wanted.owner.object_uid).cloned().unwrap_or_default()
    }

    /// Writes down what was seen, and gives the newest that is known.
    fn remember(
        &self,
        wanted: &LoadBalancerWanted,
        known: Option<LoadBalancerFacts>,
        stuck: Option<(UnderWay, LoadBalancerWanted)>,
    ) -> Option<LoadBalancerFacts> {
        let mut memory = self.memory.lock();
        let memory = memory.entry(wanted.owner.object_uid.clone()).or_default();
        memory.stuck = stuck;
        memory.known = known.or(memory.known.take());
        memory.known.clone()
    }

    /// Makes one change, beside what is under way.
    async fn make<T>(
        &self,
        mutation: &Mutation,
        under_way: &UnderWay,
        wanted: &LoadBalancerWanted,
        known: Option<T>,
    ) -> Result<Progress<T>, Failure> {
        Ok(match self.driver.send(mutation).await? {
            // Other parts may be made beside it: there is nothing to wait for yet.
            Sent::Began { operation, .. } => {
                if operation.is_none() {
                    self.changed(wanted, [mutation.part.clone()]);
                }
                waiting(mutation.waiting_for(), under_way.and(operation), Duration::ZERO, known)
            }
            Sent::LookAgain { why, recheck } => {
                self.changed(wanted, [mutation.part.clone()]);
                waiting(why, under_way.operation(), recheck, known)
            }
        })
    }

    /// Parts that are not as a list has said: they are asked for by name before anything else is done about them.
    fn changed(&self, wanted: &LoadBalancerWanted, parts: impl IntoIterator<Item = Part>) {
        let mut memory = self.memory.lock();
        let memory = memory.entry(wanted.owner.object_uid.clone()).or_default();
        parts.into_iter().for_each(|part| memory.kept.change(part));
    }

    fn keep(&self, wanted: &LoadBalancerWanted, since: Instant, seen: Observed) {
        let mut memory = self.memory.lock();
        memory.entry(wanted.owner.object_uid.clone()).or_default().kept.put(since, seen);
    }

    /// What was seen a moment ago, with what has changed since.
    async fn seen_before(
        &self,
        desired: &Desired,
        now: &Observed,
        wanted: &LoadBalancerWanted,
        object: &str,
    ) -> Result<Option<(Instant, Observed)>, Failure> {
        let taken =
            self.memory.lock().get_mut(&wanted.owner.object_uid).and_then(|memory| memory.kept.take());
        let Some((since, before, unread)) = taken else { return Ok(None) };
        let mut seen = Observed { lists: before.lists, members: before.members, ..now.clone() };
        seen.instances = before.instances;
        if !seen.knows_targets(desired) {
            seen.instances = None;
        }
        for part in unread {
            let members = seen.members.remove(&part).is_some();
            if !seen.lists.contains_key(&part.kind) || (members && part.kind == Kind::InstanceGroup) {
                continue;
            }
            let thing = self.driver.find(&part, object).await?;
            if part.kind == Kind::InstanceGroup && thing.is_some() {
                // It was not there before, so that nobody is in it.
                seen.members.insert(part.clone(), Vec::new());
            }
            kept::refresh(&mut seen, &part, thing);
        }
        Ok(Some((since, seen)))
    }

    /// Reads what the plan asks for.
    async fn look(
        &self,
        desired: &Desired,
        seen: &mut Observed,
        looks: Vec<Look>,
        kept: &Kept,
        object: &str,
    ) -> Result<(), Failure> {
        for look in looks {
            match look {
                Look::List(kind) => {
                    let filter = format!("name eq {}.*", desired.base());
                    seen.lists.insert(kind, self.driver.list(kind, &filter, object).await?);
                    for part in kept.lagging(kind) {
                        // Of a group only that it is there counts; its members are asked for anyhow.
                        if kind == Kind::InstanceGroup && seen.find(&part).is_some() {
                            continue;
                        }
                        let thing = self.driver.find(&part, object).await?;
                        kept::refresh(seen, &part, thing);
                    }
                }
                Look::Members(group) => {
                    let members = self.members(&group, object).await?;
                    seen.members.insert(group, members);
                }
                Look::Instances(names) => {
                    let of_cluster =
                        format!("labels.{LABEL_CLUSTER_UID} = {}", desired.owner.cluster_uid.to_lowercase());
                    let mut found = self.driver.list(Kind::Instance, &of_cluster, object).await?;
                    let others: BTreeSet<String> = names
                        .into_iter()
                        .filter(|name| !found.iter().any(|instance| instance.part.name == *name))
                        .collect();
                    found.extend(self.driver.instances(&others, object).await?);
                    seen.instances = Some(found);
                }
            }
        }
        Ok(())
    }

    /// Parts by their names, and groups in every zone.
    async fn look_by_name(
        &self,
        desired: &Desired,
        seen: &mut Observed,
        object: &str,
    ) -> Result<(), Failure> {
        let mut parts: Vec<Part> = desired.parts().into_iter().collect();
        for zone in self.driver.zones(object).await? {
            let roles = desired.listeners.iter().map(|listener| desired.group(listener.role, &zone));
            parts.extend(roles.filter(|_| !desired.pool).collect::<BTreeSet<_>>());
        }
        for part in parts {
            if let Some(thing) = self.driver.find(&part, object).await? {
                seen.lists.entry(part.kind).or_default().push(thing);
            }
        }
        Ok(())
    }

    async fn members(&self, group: &Part, object: &str) -> Result<Vec<String>, Failure> {
        let path = format!("{}/listInstances", group.path());
        let what = || format!("listing the members of {} for {object}", group.words());
        let answer = self.driver.client.ask(&path, json!({"instanceState": "ALL"}), object).await;
        let answer = match answer {
            // A list that is behind has shown it, or somebody has just deleted it: another look tells.
            Err(CallError::Refused(refusal)) if refusal.not_found(&group.path()) => {
                return Err(vanished(group, object));
            }
            answer => answer.map_err(|error| error.failure(&what()))?,
        };
        let items = answer.get("items").and_then(Value::as_array);
        let urls = items.into_iter().flatten().filter_map(|item| item.get("instance")?.as_str());
        Ok(urls.map(|url| tail(url).to_owned()).collect())
    }

    /// Which members pass their checks, as Google says.
    async fn health(&self, desired: &Desired, seen: &Observed, object: &str) -> Result<Health, Failure> {
        let mut health = Health::new();
        for listener in &desired.listeners {
            let holder = desired.holder(listener);
            let members = seen.members_of(desired, listener);
            let asked: Vec<Value> = match desired.pool {
                true => members.iter().map(|end| json!({"instance": super::settings::url(end)})).collect(),
                false => seen
                    .groups(desired, listener.role)
                    .into_iter()
                    .filter(|group| seen.members.get(&group.part).is_some_and(|members| !members.is_empty()))
                    .filter_map(|group| group.text("selfLink").map(|link| json!({"group": link})))
                    .collect(),
            };
            let passing = health.entry(listener.port).or_default();
            for body in asked {
                let path = format!("{}/getHealth", holder.path());
                let answer = self.driver.client.ask(&path, body, object).await;
                match answer {
                    Ok(answer) => passing.extend(healthy(&answer)),
                    // The service or the group has just gone, or the group is not behind the service yet: nobody is known to be
                    // healthy there.
                    Err(CallError::Refused(refusal))
                        if refusal.part_not_seen()
                            || refusal.not_found(&holder.path())
                            || refusal.is_unfit() => {}
                    Err(error) => {
                        return Err(error.failure(&format!("asking {} who is healthy", holder.words())));
                    }
                }
            }
        }
        Ok(health)
    }
}

fn vanished(part: &Part, object: &str) -> Failure {
    Failure::new(
        Class::Retryable,
        "Vanished",
        format!("{object}: {} was seen and is not there", part.words()),
        "it is looked at again; find out who deletes it",
    )
}

/// Ends of the URLs of instances that are healthy.
fn healthy(answer: &Value) -> Vec<String> {
    let states = answer.get("healthStatus").and_then(Value::as_array);
    states
        .into_iter()
        .flatten()
        .filter(|state| state.get("healthState").and_then(Value::as_str) == Some("HEALTHY"))
        .filter_map(|state| state.get("instance")?.as_str())
        .map(|url| tail(url).to_owned())
        .collect()
}

fn words(plan: &Plan) -> String {
    match plan {
        Plan::Wait(what) => what.clone(),
        _ => "parts of the load balancer to be seen".to_owned(),
    }
}

/// Members that are targets, by the ends of their URLs.
fn targets_of(desired: &Desired, seen: &Observed) -> Vec<String> {
    let of = |listener| seen.members_of(desired, listener).into_iter().map(move |member| (listener, member));
    let all = desired.listeners.iter().flat_map(of);
    let wanted = all.filter(|(listener, member)| plan::is_wanted(desired, seen, listener.role, member));
    wanted.map(|(_, member)| member).collect()
}

impl Memory {
    fn is_stuck(&self, under_way: &UnderWay, wanted: &LoadBalancerWanted) -> bool {
        let same = |(before, request): &(UnderWay, LoadBalancerWanted)| {
            before.targets == under_way.targets && request == wanted
        };
        !under_way.is_empty() && self.stuck.as_ref().is_some_and(same)
    }
}

/// Whether somebody else has a name that a load balancer needs.
pub(crate) fn strangers<'a>(desired: &Desired, found: &'a [Thing]) -> Vec<&'a Thing> {
    let parts = desired.parts();
    let same = |thing: &&Thing| parts.contains(&thing.part) && !thing.is_of(&desired.owner);
    found.iter().filter(same).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_google_calls_healthy_is() {
        let state = |name: &str, state: &str| {
            let instance =
                format!("https://www.googleapis.com/compute/v1/projects/p/zones/z/instances/{name}");
            json!({"instance": instance, "ipAddress": "10.0.0.1", "port": 6443, "healthState": state})
        };
        let answer =
            json!({"healthStatus": [state("a", "HEALTHY"), state("b", "UNHEALTHY"), state("c", "UNKNOWN")]});
        assert_eq!(healthy(&answer), ["p/zones/z/instances/a"]);
        assert_eq!(healthy(&json!({"kind": "compute#backendServiceGroupHealth"})), Vec::<String>::new());
    }
}
