//! What was seen a moment ago and what was changed since. A load balancer has a dozen parts, so that looking at all of them anew
//! after each change would cost more calls than the changes, and a look may lag behind them. Nothing here outlives a failure,
//! a few seconds, or the end of the work.

use super::model::{Balancer, Group, Listener, TargetGroup};
use super::mutation::{Mutation, Verb};
use super::plan::Observed;
use crate::aws::tags::{TARGET, Tags};
use crate::aws::xml::Element;
use crate::seam::{LoadBalancerFacts, LoadBalancerWanted};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// So long what was seen counts as the present.
const MOMENT: Duration = Duration::from_secs(10);

/// What is kept of one load balancer between two calls.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    seen: Observed,
    since: Instant,
    /// When it was made, until it is seen.
    pub(super) made: Option<Instant>,
    /// All is done for this request but that AWS has to make the load balancer active.
    pub(super) rest: Option<Rest>,
}

/// A load balancer that nothing can be done about but to wait.
#[derive(Debug, Clone)]
pub(super) struct Rest {
    wanted: LoadBalancerWanted,
    balancer: Balancer,
    pub(super) waiting_for: String,
    pub(super) known: Option<LoadBalancerFacts>,
}

impl Kept {
    pub(super) fn new(made: Option<Instant>) -> Self {
        Self { seen: Observed::default(), since: Instant::now(), made, rest: None }
    }

    /// What was seen, as long as that is not long ago. Machines change by themselves, and are always looked at anew.
    pub(super) fn seen(&self) -> Option<Observed> {
        let fresh = self.since.elapsed() < MOMENT;
        fresh.then(|| Observed { instances: None, nodes: None, ..self.seen.clone() })
    }

    /// The same, when something was seen anew or changed.
    pub(super) fn with(self, seen: Observed) -> Self {
        Self { seen, rest: None, ..self }
    }

    /// Nothing is left but to wait.
    pub(super) fn at_rest(
        self,
        seen: &Observed,
        wanted: &LoadBalancerWanted,
        waiting_for: &str,
        known: Option<LoadBalancerFacts>,
    ) -> Self {
        let rest = seen.balancer().map(|balancer| Rest {
            wanted: wanted.clone(),
            balancer: balancer.clone(),
            waiting_for: waiting_for.to_owned(),
            known,
        });
        Self { rest, ..self.with(seen.clone()) }
    }
}

impl Rest {
    /// Whether it is about the same request.
    pub(super) fn is_for(&self, wanted: &LoadBalancerWanted) -> bool {
        self.wanted == *wanted
    }

    /// Whether the load balancer is as it was.
    pub(super) fn goes_on(&self, balancer: Option<&Balancer>) -> bool {
        balancer == Some(&self.balancer)
    }
}

/// What a change that was carried out has made of what was seen. `None`: only a look tells.
pub(super) fn after(mutation: &Mutation, answer: &Element, mut seen: Observed) -> Option<Observed> {
    match &mutation.verb {
        Verb::CreateGroup { vpc, tags } => {
            let (id, name) = (answer.text("groupId")?.to_owned(), mutation.name.clone());
            let group = Group { id, name, vpc: vpc.clone(), tags: tags.clone(), rules: BTreeSet::new() };
            seen.groups.get_or_insert_default().push(group);
        }
        Verb::Allow { group, rules } | Verb::AllowNodes { group, rules } => {
            let one = seen.groups.iter_mut().flatten().find(|one| one.id == *group)?;
            one.rules.extend(rules.iter().cloned());
        }
        // The same call succeeds for one that was there before, so whose it is has to be looked at.
        Verb::CreateBalancer { .. } => {
            (seen.balancer, seen.listeners, seen.attributes) = (None, None, None);
        }
        Verb::SetAttributes { attributes, .. } => seen.attributes.as_mut()?.extend(attributes.clone()),
        Verb::CreateTargetGroup { .. } => {
            let made = answer.list("CreateTargetGroupResult/TargetGroups").next().map(TargetGroup::read)?;
            seen.target_groups.get_or_insert_default().push(made);
        }
        Verb::SetGroupAttributes { target_group, attributes } => {
            seen.group_attributes.get_mut(target_group)?.extend(attributes.clone());
        }
        Verb::CreateListener { tags, .. } => {
            let made = answer.list("CreateListenerResult/Listeners").next().map(Listener::read)?;
            seen.tags.insert(made.arn.clone(), tags.clone());
            seen.listeners.get_or_insert_default().push(made);
        }
        Verb::Claim { target_groups, members } => {
            for group in target_groups {
                let tags: &mut Tags = seen.tags.get_mut(group)?;
                tags.extend(members.iter().map(|(id, ip)| (format!("{TARGET}{id}"), ip.clone())));
            }
        }
        // Who is behind it is what AWS says.
        Verb::Register { target_group, .. } => drop(seen.health.remove(target_group)),
        _ => return None,
    }
    Some(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Element {
        Element::parse(text).unwrap()
    }

    fn made(verb: Verb, text: &str, seen: Observed) -> Option<Observed> {
        after(&Mutation { name: "lb".to_owned(), verb }, &answer(text), seen)
    }

    #[test]
    fn what_was_made_is_seen_without_a_look() {
        let tags = Tags::from([("a".to_owned(), "b".to_owned())]);
        let verb = Verb::CreateGroup { vpc: "vpc-1".to_owned(), tags: tags.clone() };
        let seen = made(verb, "<R><groupId>sg-1</groupId></R>", Observed::default()).unwrap();
        assert_eq!(seen.groups.as_ref().unwrap()[0].id, "sg-1");
        assert_eq!(seen.groups.as_ref().unwrap()[0].tags, tags);
        let verb = Verb::CreateListener {
            balancer: "lb".to_owned(),
            port: 6443,
            target_group: "tg".to_owned(),
            tags: tags.clone(),
        };
        let text = "<R><CreateListenerResult><Listeners><member><ListenerArn>l-1</ListenerArn><Port>6443</Port>\
            </member></Listeners></CreateListenerResult></R>";
        let seen = made(verb, text, seen).unwrap();
        assert_eq!(seen.listeners.as_ref().unwrap()[0].port, 6443);
        assert_eq!(seen.tags["l-1"], tags);
    }

    #[test]
    fn whose_a_new_load_balancer_is_and_who_is_behind_it_is_looked_at() {
        let before = Observed {
            balancer: Some(None),
            health: [("tg".to_owned(), Vec::new())].into(),
            ..Observed::default()
        };
        let verb = Verb::CreateBalancer {
            internal: false,
            subnets: BTreeSet::new(),
            group: "sg-1".to_owned(),
            tags: Tags::new(),
        };
        let seen = made(verb, "<R/>", before.clone()).unwrap();
        assert!(seen.balancer.is_none());
        let verb = Verb::Register { target_group: "tg".to_owned(), port: 6443, members: Vec::new() };
        assert!(made(verb, "<R/>", before.clone()).unwrap().health.is_empty());
        let verb = Verb::DeleteBalancer { balancer: "lb".to_owned() };
        assert!(made(verb, "<R/>", before).is_none(), "what goes is looked at");
    }

    #[test]
    fn machines_are_always_looked_at_anew() {
        let seen = Observed { balancer: Some(None), instances: Some(Vec::new()), ..Observed::default() };
        let kept = Kept::new(None).with(seen);
        let again = kept.seen().unwrap();
        assert!(again.balancer.is_some() && again.instances.is_none());
    }
}
