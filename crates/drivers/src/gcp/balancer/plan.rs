//! What to do next about one load balancer: pure decisions over what was seen.
//!
//! ```text
//! address -> health checks -> backend services (or pools) -> forwarding rules -> firewall rules   : the endpoint is there
//!   -> for each zone with a target: group -> its members -> the group behind its services         : targets are there
//!   -> what is ours and not wanted any more goes
//! ```
//!
//! Parts that need nothing of each other are made side by side: one that is being made or changed already is passed over, and so
//! is what needs it. What has not been looked at yet is asked for by `Plan::Look`, so that a call reads no more than it needs, and the dry run
//! answers from memory what the real one reads. Every part is found by its name and proved by the mark in its description.

use super::desired::{Desired, Listener, Target};
use crate::failure::{Class, Failure};
use crate::gcp::machine_plan::{addresses, foreign};
use crate::gcp::names::{last, tail};
use crate::gcp::part::{Kind, Mutation, Part, Thing, Verb, fits};
use crate::seam::Owner;
use butler_api::MachineRole;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Something that has to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look {
    /// All things of a kind that may be ours.
    List(Kind),
    /// Who is in a group.
    Members(Part),
    /// Instances of these names, and all of the cluster.
    Instances(BTreeSet<String>),
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Plan {
    Look(Vec<Look>),
    Do(Box<Mutation>),
    Wait(String),
    Settled,
}

/// What was seen so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    pub(crate) lists: BTreeMap<Kind, Vec<Thing>>,
    /// Instances in a group, by the ends of their URLs.
    pub(crate) members: BTreeMap<Part, Vec<String>>,
    pub(crate) instances: Option<Vec<Thing>>,
    /// Whether parts that are not wanted any more are looked for among all kinds.
    pub(crate) sweep: bool,
    /// What operations are changing now, by the ends of URLs.
    pub(crate) busy: BTreeSet<String>,
    /// Members that were targets before, as far as anybody remembers, by the ends of their URLs.
    pub(crate) former: BTreeSet<String>,
}

/// Why a walk over the parts ends early.
enum Stop {
    Plan(Plan),
    Failed(Failure),
}

type Step<T> = Result<T, Stop>;

/// Whether a part is as it should be. One that is not is being worked on, or waits for another.
type Settled = bool;

/// A change of a part, unless it is being changed already.
fn change(desired: &Desired, seen: &Observed, part: &Part, verb: Verb) -> Step<Settled> {
    if seen.busy.contains(tail(&desired.url(part))) {
        return Ok(false);
    }
    let mutation = Mutation { part: part.clone(), about: desired.about.clone(), verb };
    Err(Stop::Plan(Plan::Do(Box::new(mutation))))
}

impl Observed {
    /// Kinds that have to be read before the walk goes on.
    fn need(&self, kinds: &[Kind]) -> Step<()> {
        let missing: Vec<Look> =
            kinds.iter().filter(|kind| !self.lists.contains_key(kind)).copied().map(Look::List).collect();
        if missing.is_empty() { Ok(()) } else { Err(Stop::Plan(Plan::Look(missing))) }
    }

    pub(crate) fn all(&self, kind: Kind) -> &[Thing] {
        self.lists.get(&kind).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn find(&self, part: &Part) -> Option<&Thing> {
        self.all(part.kind).iter().find(|thing| thing.part == *part)
    }

    /// A part, if it is there and ours. Somebody else's is a conflict.
    fn ours(&self, part: &Part, owner: &Owner) -> Step<Option<&Thing>> {
        match self.find(part) {
            Some(thing) if thing.is_of(owner) => Ok(Some(thing)),
            Some(thing) => Err(Stop::Failed(foreign(thing))),
            None => Ok(None),
        }
    }

    /// Groups of ours of a role, in all zones.
    pub(crate) fn groups(&self, desired: &Desired, role: MachineRole) -> Vec<&Thing> {
        let name = desired.group_name(role);
        let groups = self.all(Kind::InstanceGroup).iter();
        groups.filter(|thing| thing.part.name == name && thing.is_of(&desired.owner)).collect()
    }

    /// Members of what holds a listener's targets, by the ends of their URLs.
    pub(crate) fn members_of(&self, desired: &Desired, listener: &Listener) -> Vec<String> {
        let holder = self.find(&desired.holder(listener));
        if desired.pool {
            let urls = holder.map(|pool| pool.urls("instances")).unwrap_or_default();
            return urls.into_iter().map(|url| tail(url).to_owned()).collect();
        }
        let behind = holder.map(backends).unwrap_or_default();
        let groups = self.groups(desired, listener.role).into_iter();
        groups
            .filter(|group| behind.contains(tail(group.text("selfLink").unwrap_or_default())))
            .flat_map(|group| self.members.get(&group.part).cloned().unwrap_or_default())
            .collect()
    }

    /// Whether every target is among the instances that were seen.
    pub(crate) fn knows_targets(&self, desired: &Desired) -> bool {
        let all = self.instances.as_deref().unwrap_or_default();
        desired.targets.iter().all(|target| all.iter().any(|instance| is_target(instance, target)))
    }

    /// The instance at the end of a URL.
    pub(crate) fn instance(&self, member: &str) -> Option<&Thing> {
        let all = self.instances.as_deref().unwrap_or_default();
        all.iter().find(|thing| thing.text("selfLink").is_some_and(|link| tail(link) == member))
    }
}

/// Ends of the URLs of the groups behind a service.
pub(crate) fn backends(service: &Thing) -> BTreeSet<String> {
    let list = service.body.get("backends").and_then(Value::as_array);
    let groups = list.into_iter().flatten().filter_map(|backend| backend.get("group")?.as_str());
    groups.map(|url| tail(url).to_owned()).collect()
}

/// The next step towards the load balancer that is wanted.
pub(crate) fn plan(desired: &Desired, seen: &Observed) -> Result<Plan, Failure> {
    match walk(desired, seen) {
        Ok(()) => Ok(Plan::Settled),
        Err(Stop::Plan(plan)) => Ok(plan),
        Err(Stop::Failed(failure)) => Err(failure),
    }
}

fn walk(desired: &Desired, seen: &Observed) -> Step<()> {
    seen.need(&[Kind::Address, Kind::ForwardingRule])?;
    let address = address(desired, seen)?;
    let mut settled = address.is_some();
    let mut checked = Vec::new();
    for listener in &desired.listeners {
        checked.push(check(desired, seen, listener)?);
    }
    for (listener, checked) in desired.listeners.iter().zip(checked) {
        let held = checked && holder(desired, seen, listener)?;
        settled &= held;
        if let Some(address) = address.as_deref().filter(|_| held) {
            settled &= rule(desired, seen, listener, address, false)?;
        }
    }
    settled &= firewalls(desired, seen)?;
    let (behind, unknown) = match desired.pool {
        true => pool_members(desired, seen)?,
        false => group_members(desired, seen)?,
    };
    if !settled || !behind {
        return Err(Stop::Plan(Plan::Wait("parts of the load balancer to be made".to_owned())));
    }
    // A rule that has to be made anew leads to machines at once.
    let mut anew = true;
    for listener in &desired.listeners {
        anew &= rule(desired, seen, listener, address.as_deref().unwrap_or_default(), true)?;
    }
    if !(anew && remains(desired, seen)?) {
        return Err(Stop::Plan(Plan::Wait("parts of the load balancer to be changed".to_owned())));
    }
    match unknown.first() {
        Some(target) => {
            let name = target.name.clone().or(target.ip.map(|ip| ip.to_string())).unwrap_or_default();
            Err(Stop::Plan(Plan::Wait(format!("the instance {name} to be seen at Google"))))
        }
        None => Ok(()),
    }
}

/// The address: everything hangs on it, so it is never given up for another. `None` while it is being reserved.
fn address(desired: &Desired, seen: &Observed) -> Step<Option<String>> {
    let part = desired.address();
    let kept = desired
        .listeners
        .iter()
        .find_map(|listener| seen.find(&desired.rule(listener)).filter(|rule| rule.is_of(&desired.owner)))
        .and_then(|rule| rule.text("IPAddress"));
    let Some(thing) = seen.ours(&part, &desired.owner)? else {
        let (body, words) = desired.address_body(kept);
        return change(desired, seen, &part, Verb::Insert { body, words }).map(|_| None);
    };
    let internal = thing.text("addressType") == Some("INTERNAL");
    if internal != desired.internal {
        return Err(Stop::Failed(Failure::new(
            Class::InvalidConfig,
            "EndpointFixed",
            format!("{} can't turn from external to internal or back: machines hold it", part.words()),
            "set options.internal back, or delete the LoadBalancerRequest and create a new one",
        )));
    }
    let reserved = thing.text("address").filter(|_| thing.text("status") != Some("RESERVING"));
    Ok(reserved.map(str::to_owned))
}

fn check(desired: &Desired, seen: &Observed, listener: &Listener) -> Step<Settled> {
    let part = desired.check(listener);
    seen.need(&[part.kind])?;
    let (body, words) = desired.check_body(listener);
    match seen.ours(&part, &desired.owner)? {
        None => change(desired, seen, &part, Verb::Insert { body, words }),
        // All of it: a patch would leave what belonged to another protocol.
        Some(thing) if !fits(&body, &thing.body) => {
            change(desired, seen, &part, Verb::Replace { body, words })
        }
        Some(_) => Ok(true),
    }
}

fn holder(desired: &Desired, seen: &Observed, listener: &Listener) -> Step<Settled> {
    let part = desired.holder(listener);
    seen.need(&[part.kind])?;
    let (body, words) = desired.holder_body(listener);
    match seen.ours(&part, &desired.owner)? {
        None => change(desired, seen, &part, Verb::Insert { body, words }),
        // A pool has nothing that could be changed.
        Some(_) if desired.pool => Ok(true),
        Some(thing) if !fits(&body, &thing.body) => {
            let body = json!({
                "fingerprint": thing.body.get("fingerprint"),
                "healthChecks": body["healthChecks"],
                "connectionDraining": body["connectionDraining"],
            });
            change(desired, seen, &part, Verb::Patch { body, words })
        }
        Some(_) => Ok(true),
    }
}

/// A rule that is missing is made at once; one that is not as it should be only goes when `anew` says so.
fn rule(desired: &Desired, seen: &Observed, listener: &Listener, address: &str, anew: bool) -> Step<Settled> {
    let part = desired.rule(listener);
    let (body, words) = desired.rule_body(listener, address);
    match seen.ours(&part, &desired.owner)? {
        None => change(desired, seen, &part, Verb::Insert { body, words }),
        // It can't be changed: it goes, and comes back as it should be.
        Some(thing) if anew && !fits(&body, &thing.body) => change(desired, seen, &part, Verb::Delete),
        Some(_) => Ok(true),
    }
}

fn firewalls(desired: &Desired, seen: &Observed) -> Step<Settled> {
    let mut outside = BTreeSet::new();
    if desired.is_restricted() && desired.is_reached_from_outside() {
        need_instances(desired, seen, &[])?;
        let all = seen.instances.iter().flatten();
        let ours = all.filter(|one| {
            one.mark.as_ref().is_some_and(|mark| mark.cluster_uid == desired.owner.cluster_uid)
        });
        outside.extend(ours.flat_map(|instance| addresses(instance).1));
    }
    let mut settled = true;
    for (part, body, words) in desired.firewalls_with(&outside) {
        seen.need(&[Kind::Firewall])?;
        settled &= match seen.ours(&part, &desired.owner)? {
            None => change(desired, seen, &part, Verb::Insert { body, words })?,
            Some(thing) if !fits(&body, &thing.body) => {
                change(desired, seen, &part, Verb::Patch { body, words })?
            }
            Some(_) => true,
        };
    }
    Ok(settled)
}

/// Members of groups, and groups behind services. Gives the targets that Google does not know.
fn group_members<'a>(desired: &'a Desired, seen: &Observed) -> Step<(Settled, Vec<&'a Target>)> {
    let roles = roles(desired);
    if desired.targets.is_empty() && !seen.lists.contains_key(&Kind::InstanceGroup) && !seen.sweep {
        // Nobody behind it is wanted; whether somebody is there shows the service.
        let behind = desired.listeners.iter().any(|listener| {
            seen.find(&desired.holder(listener)).is_some_and(|service| !backends(service).is_empty())
        });
        if !behind {
            return Ok((true, Vec::new()));
        }
    }
    seen.need(&[Kind::InstanceGroup])?;
    let groups: Vec<&Thing> = roles.iter().flat_map(|role| seen.groups(desired, *role)).collect();
    let unread: Vec<Look> = groups
        .iter()
        .filter(|group| !seen.members.contains_key(&group.part))
        .map(|group| Look::Members(group.part.clone()))
        .collect();
    if !unread.is_empty() {
        return Err(Stop::Plan(Plan::Look(unread)));
    }
    let there: Vec<String> =
        groups.iter().flat_map(|group| seen.members.get(&group.part).cloned().unwrap_or_default()).collect();
    need_instances(desired, seen, &there)?;
    let (mut settled, mut unknown) = (true, Vec::new());
    let mut joining: Vec<MachineRole> = Vec::new();
    for role in &roles {
        let known = known_targets(desired, seen, *role, &mut unknown);
        let mut by_zone: BTreeMap<&str, Vec<&Thing>> = BTreeMap::new();
        for instance in known {
            by_zone.entry(instance.part.zone().unwrap_or_default()).or_default().push(instance);
        }
        for (zone, instances) in by_zone {
            if !join_group(desired, seen, *role, zone, &instances)? {
                joining.push(*role);
            }
        }
    }
    for listener in &desired.listeners {
        // Zones that are nearly there are waited for: a service takes one change at a time, and seconds for each.
        settled &= !joining.contains(&listener.role) && attach_groups(desired, seen, listener)?;
    }
    settled &= joining.is_empty();
    if !settled {
        return Ok((false, unknown));
    }
    // Last, so that a machine that is swapped for another leaves when the other has come.
    for role in &roles {
        for group in seen.groups(desired, *role) {
            let members = seen.members.get(&group.part).cloned().unwrap_or_default();
            settled &= leave(desired, seen, *role, &group.part, &members)?;
        }
    }
    Ok((settled, unknown))
}

/// Members of pools.
fn pool_members<'a>(desired: &'a Desired, seen: &Observed) -> Step<(Settled, Vec<&'a Target>)> {
    let there: Vec<String> =
        desired.listeners.iter().flat_map(|listener| seen.members_of(desired, listener)).collect();
    if desired.targets.is_empty() && there.is_empty() {
        return Ok((true, Vec::new()));
    }
    need_instances(desired, seen, &there)?;
    let (mut settled, mut unknown) = (true, Vec::new());
    for listener in &desired.listeners {
        let holder = desired.holder(listener);
        if seen.find(&holder).is_none() {
            settled = false;
            continue;
        }
        let members = seen.members_of(desired, listener);
        let known = known_targets(desired, seen, listener.role, &mut unknown).into_iter();
        let urls = known.map(|instance| desired.url(&instance.part));
        let missing: Vec<String> =
            urls.filter(|url| !members.iter().any(|member| member == tail(url))).collect();
        settled &= match missing.is_empty() {
            false => change(desired, seen, &holder, Verb::AddInstances(missing))?,
            true => leave(desired, seen, listener.role, &holder, &members)?,
        };
    }
    unknown.dedup();
    Ok((settled, unknown))
}

fn roles(desired: &Desired) -> Vec<MachineRole> {
    let mut roles: Vec<MachineRole> = Vec::new();
    for listener in &desired.listeners {
        if !roles.contains(&listener.role) {
            roles.push(listener.role);
        }
    }
    roles
}

fn need_instances(desired: &Desired, seen: &Observed, members: &[String]) -> Step<()> {
    if seen.instances.is_some() {
        return Ok(());
    }
    let mut names: BTreeSet<String> =
        desired.targets.iter().filter_map(|target| target.name.clone()).collect();
    names.extend(members.iter().map(|member| last(member).to_owned()));
    Err(Stop::Plan(Plan::Look(vec![Look::Instances(names)])))
}

/// The instances of the targets of a role; targets without one go to `unknown`.
fn known_targets<'a, 's>(
    desired: &'a Desired,
    seen: &'s Observed,
    role: MachineRole,
    unknown: &mut Vec<&'a Target>,
) -> Vec<&'s Thing> {
    let all = seen.instances.as_deref().unwrap_or_default();
    let mut known = Vec::new();
    for target in desired.targets.iter().filter(|target| target.role == role) {
        match all.iter().find(|instance| is_target(instance, target)) {
            Some(instance) => known.push(instance),
            None => unknown.push(target),
        }
    }
    known
}

/// The name and the address fit, as far as they are given: another instance of that name in another zone is not meant.
fn is_target(instance: &Thing, target: &Target) -> bool {
    let (inside, outside) = addresses(instance);
    let named = target.name.as_ref().is_none_or(|name| *name == instance.part.name);
    let at = target.ip.is_none_or(|ip| inside.contains(&ip) || outside.contains(&ip));
    named && at && (target.name.is_some() || target.ip.is_some())
}

/// The group of a zone is there and has these members.
fn join_group(
    desired: &Desired,
    seen: &Observed,
    role: MachineRole,
    zone: &str,
    instances: &[&Thing],
) -> Step<Settled> {
    let part = desired.group(role, zone);
    if seen.ours(&part, &desired.owner)?.is_none() {
        let body = desired.group_body(&part);
        return change(desired, seen, &part, Verb::Insert { body, words: String::new() });
    }
    let members = seen.members.get(&part).cloned().unwrap_or_default();
    let missing: Vec<String> = instances
        .iter()
        .map(|instance| desired.url(&instance.part))
        .filter(|url| !members.iter().any(|member| member == tail(url)))
        .collect();
    if missing.is_empty() { Ok(true) } else { change(desired, seen, &part, Verb::AddInstances(missing)) }
}

/// Groups with members are behind the service. One without has no network yet, and Google refuses it there.
fn attach_groups(desired: &Desired, seen: &Observed, listener: &Listener) -> Step<Settled> {
    let part = desired.holder(listener);
    let Some(service) = seen.find(&part) else { return Ok(false) };
    let behind = backends(service);
    let filled = seen
        .groups(desired, listener.role)
        .into_iter()
        .filter(|group| seen.members.get(&group.part).is_some_and(|members| !members.is_empty()));
    let missing: Vec<&Thing> =
        filled.filter(|group| !behind.contains(tail(group.text("selfLink").unwrap_or_default()))).collect();
    if missing.is_empty() {
        return Ok(true);
    }
    // What is there stays, whoever put it there.
    let mut all = service.body.get("backends").and_then(Value::as_array).cloned().unwrap_or_default();
    all.extend(missing.iter().map(|group| desired.backend(&group.part)));
    let zones: Vec<&str> = missing.iter().filter_map(|group| group.part.zone()).collect();
    let words = format!("send to the machines in {}", zones.join(", "));
    let body = json!({"fingerprint": service.body.get("fingerprint"), "backends": all});
    change(desired, seen, &part, Verb::Patch { body, words })
}

/// Members that are the cluster's machines, or were targets before, and are none any more leave. Others are somebody else's doing.
fn leave(
    desired: &Desired,
    seen: &Observed,
    role: MachineRole,
    holder: &Part,
    members: &[String],
) -> Step<Settled> {
    let gone: Vec<String> = members
        .iter()
        .filter(|member| !is_wanted(desired, seen, role, member) && is_ours(desired, seen, member))
        .map(|member| crate::gcp::settings::url(member))
        .collect();
    if gone.is_empty() { Ok(true) } else { change(desired, seen, holder, Verb::RemoveInstances(gone)) }
}

/// Whether a member is a target, by its name or by its address.
pub(crate) fn is_wanted(desired: &Desired, seen: &Observed, role: MachineRole, member: &str) -> bool {
    let name = last(member);
    let instance = seen.instance(member);
    desired.targets.iter().filter(|target| target.role == role).any(|target| match (&target.name, instance) {
        // An instance that can't be seen is not known to be another one.
        (Some(target), None) => target == name,
        (_, Some(instance)) => is_target(instance, target),
        (None, None) => false,
    })
}

/// Whether a member is a machine of the cluster, or was a target.
fn is_ours(desired: &Desired, seen: &Observed, member: &str) -> bool {
    let mark = seen.instance(member).and_then(|instance| instance.mark.as_ref());
    mark.is_some_and(|mark| mark.cluster_uid == desired.owner.cluster_uid) || seen.former.contains(member)
}

/// Whether a member is on its way out: Google shows it until its connections have drained.
pub(crate) fn is_leaving(desired: &Desired, seen: &Observed, role: MachineRole, member: &str) -> bool {
    let busy = |group: &&Thing| {
        seen.busy.contains(tail(&desired.url(&group.part)))
            && seen.members.get(&group.part).is_some_and(|members| members.iter().any(|one| one == member))
    };
    !is_wanted(desired, seen, role, member)
        && is_ours(desired, seen, member)
        && seen.groups(desired, role).iter().any(busy)
}

/// Parts of ours that are not wanted any more: of a listener that was taken away, of another implementation.
fn remains(desired: &Desired, seen: &Observed) -> Step<Settled> {
    if seen.sweep {
        seen.need(&Kind::OF_LOAD_BALANCERS)?;
    }
    let wanted = desired.parts();
    let groups: Vec<String> = match desired.pool {
        true => Vec::new(),
        false => roles(desired).into_iter().map(|role| desired.group_name(role)).collect(),
    };
    let left = |thing: &Thing| match thing.part.kind {
        Kind::InstanceGroup => !groups.contains(&thing.part.name),
        _ => !wanted.contains(&thing.part),
    };
    take_away(desired, seen, left)
}

/// Takes away things of ours: of those that are left, one that no other of them needs.
fn take_away(desired: &Desired, seen: &Observed, left: impl Fn(&Thing) -> bool) -> Step<Settled> {
    let all = || Kind::OF_LOAD_BALANCERS.into_iter().flat_map(|kind| seen.all(kind));
    let all = || all().filter(|thing| thing.is_of(&desired.owner) && left(thing));
    let mut settled = true;
    for thing in all() {
        settled = false;
        let needed = all().any(|other| other.part.kind.uses().contains(&thing.part.kind));
        if !needed {
            change(desired, seen, &thing.part, Verb::Delete)?;
        }
    }
    Ok(settled)
}

/// The next step towards its absence.
pub(crate) fn plan_removal(desired: &Desired, seen: &Observed) -> Plan {
    let step = seen.need(&Kind::OF_LOAD_BALANCERS).and_then(|()| take_away(desired, seen, |_| true));
    match step {
        Ok(true) => Plan::Settled,
        Ok(false) | Err(Stop::Failed(_)) => Plan::Wait("parts of the load balancer to be deleted".to_owned()),
        Err(Stop::Plan(plan)) => plan,
    }
}
