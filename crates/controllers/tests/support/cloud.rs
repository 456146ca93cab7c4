//! A cloud in memory: machines that come up when they are told to, and a load balancer made of parts. It keeps to the contract
//! of the seam (one change per call, ownership, draining), and anybody can break it by hand.

use super::{Answer, failure};
use async_trait::async_trait;
use butler_api::{MachineRole, Provider, ProviderConfigSpec};
use butler_controllers::Infrastructures;
use butler_drivers::{
    Class, Credentials, Failure, Finding, Infrastructure, ListenerFacts, LoadBalancerFacts,
    LoadBalancerWanted, LoadBalancers, MachineFacts, MachineTarget, MachineWanted, Machines, Operation,
    OwnedResource, Owner, Preflight, PreflightWanted, Profile, Progress,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Where the load balancer is reached.
pub(crate) const HOST: &str = "198.51.100.7";
/// How soon the cloud wants to be asked again.
const SOON: Duration = Duration::from_millis(2);

/// One port of the load balancer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Port {
    pub(crate) registered: BTreeSet<String>,
    pub(crate) draining: BTreeSet<String>,
    /// What somebody else has put there.
    pub(crate) foreign: BTreeSet<String>,
}

/// All that the cloud has.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) address: Option<Owner>,
    pub(crate) ports: BTreeMap<u16, Port>,
    /// It was made, and takes a while to answer.
    pub(crate) pending: bool,
    /// Nobody may remove it.
    pub(crate) protected: bool,
    /// Machines by name: where each is reached from within.
    pub(crate) machines: BTreeMap<String, MachineFacts>,
    /// Machines that come up only when this says so.
    pub(crate) asleep: BTreeSet<String>,
    made: u32,
    /// What the next calls about the load balancer say instead of doing anything.
    pub(crate) faults: VecDeque<Failure>,
    journal: Vec<String>,
}

/// Hands the same cloud to everybody.
#[derive(Clone)]
pub(crate) struct Cloud(pub(crate) Arc<Mutex<State>>, Provider);

impl Cloud {
    /// One that behaves as that one does.
    pub(crate) fn new(provider: Provider) -> Cloud {
        Cloud(Arc::default(), provider)
    }

    /// What was changed so far; it begins anew.
    pub(crate) fn take_journal(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().journal)
    }

    pub(crate) fn journal(&self) -> Vec<String> {
        self.0.lock().journal.clone()
    }

    /// Somebody changes something by hand.
    pub(crate) fn by_hand<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock())
    }
}

impl Infrastructures for Cloud {
    fn connect(&self, _: &ProviderConfigSpec, _: &Credentials) -> Result<Infrastructure, Failure> {
        Ok(Infrastructure {
            profile: Profile::of(self.1),
            machines: Arc::new(self.clone()),
            images: None,
            load_balancers: Some(Arc::new(self.clone())),
            preflight: Arc::new(self.clone()),
        })
    }
}

impl State {
    fn facts(&self) -> LoadBalancerFacts {
        let list = |all: &BTreeSet<String>| all.iter().cloned().collect::<Vec<_>>();
        let port = |(number, port): (&u16, &Port)| ListenerFacts {
            port: *number,
            resource_id: format!("pool-{number}"),
            registered: port.registered.union(&port.foreign).cloned().collect(),
            healthy: list(&port.registered),
            draining: list(&port.draining),
        };
        let named = |name: &str| self.address.iter().map(|_| name).collect::<String>();
        LoadBalancerFacts {
            endpoint: named(HOST),
            resource_id: named("rule-1"),
            listeners: self.ports.iter().map(port).collect(),
            foreign_targets: self.ports.values().flat_map(|port| list(&port.foreign)).collect(),
            ..LoadBalancerFacts::default()
        }
    }

    /// The one thing to do next, as words, when it is done.
    fn step(&mut self, wanted: &LoadBalancerWanted) -> Option<String> {
        if self.address.is_none() {
            self.address = Some(wanted.owner.clone());
            return Some(format!("address {HOST} reserved for {}", wanted.owner.cluster));
        }
        let spec = &wanted.spec;
        let further = spec.listeners.iter().map(|listener| (listener.port, listener.role));
        let ports: Vec<_> = [(spec.port, MachineRole::ControlPlane)].into_iter().chain(further).collect();
        for (number, role) in &ports {
            let number = u16::try_from(*number).unwrap();
            let of_role = spec.targets.iter().filter(|target| target.role.unwrap_or_default() == *role);
            let targets: BTreeSet<String> = of_role.map(|target| target.ip.clone()).collect();
            let Some(port) = self.ports.get_mut(&number) else {
                self.ports.insert(number, Port::default());
                return Some(format!("listener {number} opened"));
            };
            if let Some(missing) = targets.difference(&port.registered).next().cloned() {
                port.draining.remove(&missing);
                port.registered.insert(missing.clone());
                return Some(format!("listener {number}: {missing} registered"));
            }
            if let Some(surplus) = port.registered.difference(&targets).next().cloned() {
                port.registered.remove(&surplus);
                port.draining.insert(surplus.clone());
                return Some(format!("listener {number}: {surplus} drains"));
            }
        }
        None
    }

    fn guard(&mut self, wanted: &LoadBalancerWanted) -> Result<(), Failure> {
        if let Some(failure) = self.faults.pop_front() {
            return Err(failure);
        }
        match &self.address {
            Some(owner) if *owner != wanted.owner => Err(failure(Class::Conflict, "NameTaken")),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl LoadBalancers for Cloud {
    async fn ensure(&self, wanted: &LoadBalancerWanted, _: Option<&Operation>) -> Answer<LoadBalancerFacts> {
        let mut state = self.0.lock();
        state.guard(wanted)?;
        let before = state.facts();
        if let Some(done) = state.step(wanted) {
            state.journal.push(done.clone());
            let known =
                (!before.endpoint.is_empty()).then_some(before).or(Some(LoadBalancerFacts::default()));
            return Ok(Progress::InProgress { operation: None, waiting_for: done, recheck: SOON, known });
        }
        if state.pending {
            let (waiting_for, known) = ("the load balancer to be active".to_owned(), Some(state.facts()));
            return Ok(Progress::InProgress { operation: None, waiting_for, recheck: SOON, known });
        }
        Ok(Progress::Ready(state.facts()))
    }

    async fn delete(&self, wanted: &LoadBalancerWanted, _: Option<&Operation>) -> Answer<()> {
        let mut state = self.0.lock();
        state.guard(wanted)?;
        if state.protected {
            return Err(failure(Class::Conflict, "DeletionProtected"));
        }
        let done = match state.ports.pop_last() {
            Some((port, _)) => format!("listener {port} closed"),
            None if state.address.take().is_some() => format!("address {HOST} released"),
            None => return Ok(Progress::Ready(())),
        };
        state.journal.push(done.clone());
        Ok(Progress::InProgress { operation: None, waiting_for: done, recheck: SOON, known: None })
    }

    async fn owned(&self, _: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Machines for Cloud {
    async fn ensure(&self, wanted: &MachineWanted, _: Option<&Operation>) -> Answer<MachineFacts> {
        let mut state = self.0.lock();
        if state.asleep.contains(&wanted.name) {
            return Ok(Progress::waiting("the machine to start", None, SOON));
        }
        if let Some(facts) = state.machines.get(&wanted.name) {
            return Ok(Progress::Ready(facts.clone()));
        }
        state.made += 1;
        let number = state.made;
        let facts = MachineFacts {
            provider_id: format!("cloud://project/zone/i-{number}"),
            addresses: vec![format!("10.128.0.{number}").parse().unwrap()],
            reach: Some(format!("203.0.113.{number}").parse().unwrap()),
            running: true,
            ..MachineFacts::default()
        };
        state.journal.push(format!("machine {} made", wanted.name));
        state.machines.insert(wanted.name.clone(), facts.clone());
        Ok(Progress::Ready(facts))
    }

    async fn find(&self, target: &MachineTarget) -> Result<Option<MachineFacts>, Failure> {
        Ok(self.0.lock().machines.get(&target.name).cloned())
    }

    async fn delete(&self, target: &MachineTarget, _: Option<&Operation>) -> Answer<()> {
        let mut state = self.0.lock();
        if state.machines.remove(&target.name).is_some() {
            state.journal.push(format!("machine {} removed", target.name));
        }
        Ok(Progress::Ready(()))
    }

    async fn owned(&self, _: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl Preflight for Cloud {
    async fn check(&self, _: &PreflightWanted) -> Vec<Finding> {
        Vec::new()
    }
}
