//! One listener's backends: who is well, who gets the next connection, whose connections are to be closed.
//!
//! A pool is told everything that happens (`opened`, `closed`, `failed`, `check_result`) and asked for everything that is
//! to be done (`pick`, `due_checks`, `to_close`, by `next_due` at the latest). It fits behind one short lock.

mod drain;
mod health;
mod maglev;
mod member;
mod select;
mod shed;
#[cfg(test)]
mod tests;

use super::{NEVER, Random, SECOND, Time};
use crate::config::{self, AllDown, Balance};
pub use drain::Closing;
use drain::Unready;
use health::Rules;
pub use health::{Change, Known, Manner, Verdict};
use member::Member;
pub use member::{BackendStatus, State};
use select::{Chooser, Context};
use shed::Shed;
use std::net::{IpAddr, SocketAddr};

/// A backend of a pool, for as long as it has connections; never given to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackendId(pub u32);

/// Where a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// To this one. It holds a place there until `failed` or `closed` gives it back.
    Backend(BackendId),
    /// Nowhere yet: every backend that could take it is full, or the listener is. Ask again after the next `closed`.
    Queue,
    /// Nowhere.
    Refuse,
}

/// One listener's backends.
#[derive(Debug)]
pub struct Pool {
    manner: Manner,
    settings: Settings,
    members: Vec<Member>,
    next_id: u32,
    /// Places taken, over all members.
    connections: u32,
    chooser: Chooser,
    shed: Shed,
    random: Random,
    /// Room for a choice, kept so that a connection allocates nothing.
    usable: Vec<usize>,
}

/// What a pool takes from a listener's configuration.
#[derive(Debug)]
struct Settings {
    balance: Balance,
    rules: Rules,
    max_connections: u32,
    all_down: AllDown,
    deregistration_delay: Time,
    close_unready: Time,
    rebalance: config::Rebalance,
}

impl Settings {
    fn new(listener: &config::Listener, manner: Manner) -> Settings {
        Settings {
            balance: listener.balance,
            rules: Rules::new(&listener.health, manner),
            max_connections: listener.max_connections,
            all_down: listener.all_down,
            deregistration_delay: listener.deregistration_delay.saturating_mul(SECOND),
            close_unready: listener.rebalance.close_unready.saturating_mul(SECOND),
            rebalance: listener.rebalance.clone(),
        }
    }

    /// By source hash a client that is shed comes back to where it was.
    fn sheds(&self) -> bool {
        self.rebalance.enabled && self.balance != Balance::SourceHash
    }
}

impl Pool {
    /// The pool of a listener. All backends are new: they wait for their first good check, which is due at once.
    pub fn new(listener: &config::Listener, seed: u64, now: Time) -> Pool {
        Pool::with_manner(listener, Manner::default(), seed, now)
    }

    /// The same, for one that goes about its checks in another way.
    pub fn with_manner(listener: &config::Listener, manner: Manner, seed: u64, now: Time) -> Pool {
        let settings = Settings::new(listener, manner);
        let members: Vec<Member> =
            (0u32..).zip(&listener.backends).map(|(id, backend)| Member::new(id, backend, now)).collect();
        Pool {
            chooser: Chooser::new(settings.balance, &members),
            next_id: members.len() as u32,
            connections: 0,
            shed: Shed::new(),
            random: Random::new(seed),
            usable: Vec::with_capacity(members.len()),
            manner,
            settings,
            members,
        }
    }

    /// Takes a new configuration. A backend with the same name and address keeps its number, health and connections; one
    /// that is no longer there is drained, and forgotten with its last connection.
    pub fn reload(&mut self, listener: &config::Listener, now: Time) {
        self.settings = Settings::new(listener, self.manner);
        for member in &mut self.members {
            let stays =
                listener.backends.iter().any(|new| new.name == member.name && new.address == member.address);
            if !stays && !member.removed {
                member.removed = true;
                member.draining_since.get_or_insert(now);
                member.health.retire();
            }
        }
        let mut reweighted = false;
        for backend in &listener.backends {
            let known = self.members.iter_mut().find(|member| {
                !member.removed && member.name == backend.name && member.address == backend.address
            });
            match known {
                Some(member) => {
                    reweighted |= member.weight != backend.weight;
                    member.weight = backend.weight;
                    member.max_connections = backend.max_connections;
                    member.health.hurry(&self.settings.rules, now);
                }
                None => {
                    self.members.push(Member::new(self.next_id, backend, now));
                    self.next_id = self.next_id.wrapping_add(1);
                }
            }
        }
        self.members.retain(|member| !member.removed || member.connections > 0);
        self.chooser = Chooser::new(self.settings.balance, &self.members);
        if reweighted && self.settings.sheds() {
            self.shed.begin(&self.members, now);
        }
    }

    /// The same, and from now on checks are gone about in this way.
    pub fn reload_with(&mut self, listener: &config::Listener, manner: Manner, now: Time) {
        self.manner = manner;
        self.reload(listener, now);
    }

    /// What is known of a backend's health.
    pub fn known(&self, id: BackendId) -> Option<Known> {
        self.members.iter().find(|member| member.id == id).map(|member| member.health.known())
    }

    /// A backend goes on from what another pool knew of it.
    pub fn restore(&mut self, id: BackendId, known: Known, now: Time) {
        if let Some(member) = self.member(id).filter(|member| !member.removed) {
            member.health.restore(known, now);
        }
    }

    /// The backends that a connection could go to if none were full: the healthy ones or, without any, what is chosen for
    /// that case. `but` are left out.
    pub fn candidates(&self, but: &[BackendId]) -> Vec<BackendId> {
        let mut usable = Vec::new();
        self.collect_usable(&mut usable, but);
        usable.into_iter().map(|index| self.members[index].id).collect()
    }

    /// Where a client's connection goes. `tried` are the backends that have failed it already.
    pub fn pick(&mut self, now: Time, client: IpAddr, tried: &[BackendId]) -> Pick {
        let mut usable = std::mem::take(&mut self.usable);
        let pick = self.pick_among(&mut usable, now, client, tried);
        self.usable = usable;
        pick
    }

    fn pick_among(
        &mut self,
        usable: &mut Vec<usize>,
        now: Time,
        client: IpAddr,
        tried: &[BackendId],
    ) -> Pick {
        self.collect_usable(usable, tried);
        if usable.is_empty() {
            return Pick::Refuse;
        }
        let limit = self.settings.max_connections;
        usable.retain(|index| !self.members[*index].full());
        if usable.is_empty() || (limit != 0 && self.connections >= limit) {
            return Pick::Queue;
        }
        let balance = match self.settings.balance {
            Balance::SourceHash => Balance::SourceHash,
            _ if self.shed.moving() => Balance::LeastConnections,
            other => other,
        };
        let Pool { settings, members, chooser, random, .. } = self;
        let context = Context { rules: &settings.rules, random, client, now };
        let Some(chosen) = chooser.choose(balance, members, usable, context) else {
            return Pick::Refuse;
        };
        let member = &mut self.members[chosen];
        member.connections += 1;
        self.connections += 1;
        Pick::Backend(member.id)
    }

    fn collect_usable(&self, usable: &mut Vec<usize>, tried: &[BackendId]) {
        self.collect(usable, tried, Member::takes);
        if usable.is_empty() && self.settings.all_down == AllDown::TryAll {
            self.collect(usable, tried, |member| !member.drains());
        }
    }

    fn collect(&self, usable: &mut Vec<usize>, tried: &[BackendId], good: impl Fn(&Member) -> bool) {
        usable.clear();
        let wanted = |member: &Member| good(member) && !tried.contains(&member.id);
        usable.extend((0..self.members.len()).filter(|index| wanted(&self.members[*index])));
    }

    /// The connection that was picked for this backend is open.
    pub fn opened(&mut self, id: BackendId, now: Time) {
        let Some(member) = self.member(id) else { return };
        member.opened += 1;
        let shaken = member.health.shaken();
        member.health.opened();
        // It came here for want of a better one: it is not closed before its time.
        if member.unready.is_some() {
            member.unready = Some(Unready { since: now, connections: member.staying() });
        }
        self.steady(shaken, now);
    }

    /// A connection ended, or was given up before it was open. Its place is free.
    pub fn closed(&mut self, id: BackendId, _now: Time) {
        self.give_back(id);
        self.forget_removed();
    }

    /// The connection that was picked for this backend could not be opened. Its place is free.
    pub fn failed(&mut self, id: BackendId, now: Time) -> Option<Change> {
        self.give_back(id);
        let at = self.members.iter().position(|member| member.id == id)?;
        let member = &mut self.members[at];
        member.failed += 1;
        let change = member.health.failed(&self.settings.rules, now);
        self.note(at, change, now);
        self.forget_removed();
        change
    }

    /// A check that `due_checks` asked for has ended.
    pub fn check_result(&mut self, id: BackendId, ok: bool, now: Time) -> Option<Change> {
        let at = self.members.iter().position(|member| member.id == id && !member.removed)?;
        let member = &mut self.members[at];
        member.checks += 1;
        member.bad_checks += u64::from(!ok);
        let shaken = member.health.shaken();
        let change = member.health.checked(ok, &self.settings.rules, &mut self.random, now);
        self.note(at, change, now);
        self.steady(shaken && ok, now);
        change
    }

    /// The backends that are to be checked now.
    pub fn due_checks(&mut self, now: Time) -> Vec<BackendId> {
        let rules = &self.settings.rules;
        let due = |member: &mut Member| member.health.begin(rules, now).then_some(member.id);
        self.members.iter_mut().filter_map(due).collect()
    }

    /// When `due_checks` and `to_close` are to be asked again at the latest.
    pub fn next_due(&self) -> Time {
        let others = self.has_healthy();
        let closing = |member: &Member| member.next_closing(&self.settings, others);
        let members = self.members.iter().map(|member| member.health.due().min(closing(member)));
        members.min().unwrap_or(NEVER).min(self.shed.due())
    }

    /// No new connections for this backend; those that are there may end within the deregistration delay.
    pub fn drain(&mut self, id: BackendId, now: Time) {
        if let Some(member) = self.member(id) {
            member.draining_since.get_or_insert(now);
        }
    }

    /// Takes a backend back that was drained.
    pub fn undrain(&mut self, id: BackendId, now: Time) {
        let Some(member) = self.member(id).filter(|member| !member.removed) else { return };
        member.draining_since = None;
        if self.settings.sheds() {
            self.shed.begin(&self.members, now);
        }
    }

    /// Connections that are to be closed now: how many of which backend. Each is told by `closed` as any other.
    /// Who can't or won't close one (see `closing`; or it is not open yet) is asked again a second later.
    pub fn to_close(&mut self, now: Time) -> Vec<(BackendId, u32)> {
        for member in self.members.iter_mut().filter(|member| now >= member.closing_until) {
            (member.closing, member.closing_until) = (0, NEVER);
        }
        let mut closes = self.overdue(now);
        if self.settings.sheds() {
            closes.extend(self.shed.plan(&self.members, &self.settings.rebalance, &self.settings.rules, now));
        }
        let members = &mut self.members;
        closes
            .into_iter()
            .filter_map(|(at, count)| {
                let member = &mut members[at];
                member.closing += count;
                member.closing_until = now + drain::ASK_AGAIN;
                (count > 0).then_some((member.id, count))
            })
            .collect()
    }

    /// Whether a connection would find a healthy backend.
    pub fn has_healthy(&self) -> bool {
        self.members.iter().any(Member::takes)
    }

    /// Whether a backend waits for the result of its first check.
    pub fn has_unchecked(&self) -> bool {
        self.members
            .iter()
            .any(|member| !member.drains() && member.state() == State::New && member.checks == 0)
    }

    /// The health in a sentence.
    pub fn summary(&self) -> String {
        let known = self.members.iter().filter(|member| !member.removed);
        let healthy = known.clone().filter(|member| member.takes()).count();
        format!("{healthy} of {} members healthy", known.count())
    }

    /// Places taken, over all backends.
    pub fn connections(&self) -> u32 {
        self.connections
    }

    /// Where a backend is.
    pub fn address(&self, id: BackendId) -> Option<SocketAddr> {
        self.members.iter().find(|member| member.id == id).map(|member| member.address)
    }

    /// The backend with this name, if it is configured.
    pub fn find(&self, name: &str) -> Option<BackendId> {
        self.members.iter().find(|member| !member.removed && member.name == name).map(|member| member.id)
    }

    /// One backend, if it is there.
    pub fn backend(&self, id: BackendId) -> Option<BackendStatus> {
        self.members.iter().find(|member| member.id == id).map(Member::status)
    }

    /// All backends, those included that are here only for their last connections.
    pub fn backends(&self) -> Vec<BackendStatus> {
        self.members.iter().map(Member::status).collect()
    }

    fn member(&mut self, id: BackendId) -> Option<&mut Member> {
        self.members.iter_mut().find(|member| member.id == id)
    }

    fn give_back(&mut self, id: BackendId) {
        let Some(member) = self.member(id) else { return };
        if member.connections == 0 {
            return;
        }
        member.connections -= 1;
        member.closing = member.closing.saturating_sub(1).min(member.connections);
        if member.closing == 0 {
            member.closing_until = NEVER;
        }
        self.connections -= 1;
    }

    /// What follows from a change of health.
    fn note(&mut self, at: usize, change: Option<Change>, now: Time) {
        let member = &mut self.members[at];
        match change {
            Some(Change::Up) => {
                member.unready = None;
                member.credit = 0;
                if self.settings.sheds() {
                    self.shed.begin(&self.members, now);
                }
            }
            // From ejected to down it was unready all along.
            Some(Change::Down | Change::Ejected) => {
                let connections = member.staying();
                member.unready.get_or_insert(Unready { since: now, connections });
            }
            None => {}
        }
    }

    /// A backend that was shaken works again. If it restarted faster than it could be taken out, its connections are
    /// gone all the same.
    fn steady(&mut self, was_shaken: bool, now: Time) {
        if was_shaken && self.settings.sheds() {
            self.shed.begin(&self.members, now);
        }
    }

    fn forget_removed(&mut self) {
        let before = self.members.len();
        self.members.retain(|member| !member.removed || member.connections > 0);
        // Places have shifted.
        if self.members.len() != before {
            self.chooser = Chooser::new(self.settings.balance, &self.members);
        }
    }
}
