//! Machines at Proxmox: looks, asks the plan, makes at most one change.

use super::driver::{Driver, Followed, RunningTask, SOON, Whom, reservation, reserved_id, vanished};
use super::error::CallError;
use super::model::{Config, Vm, agent_addresses, number};
use super::mutation::{Mutation, Verb};
use super::plan::{Identity, Observed, Plan, identify, own_id, plan, plan_removal};
use crate::failure::{Class, Failure};
use crate::http::{escape, recheck_after};
use crate::seam::{
    MachineFacts, MachineTarget, MachineWanted, Machines, Operation, OwnedResource, Owner, Progress,
};
use async_trait::async_trait;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Machines of one Proxmox cluster.
pub(crate) struct ProxmoxMachines(pub(crate) Arc<Driver>);

#[async_trait]
impl Machines for ProxmoxMachines {
    async fn ensure(
        &self,
        wanted: &MachineWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<MachineFacts>, Failure> {
        let object = format!("machine {}", wanted.name);
        if let Followed::Running { recheck, upid } = self.0.follow(operation, &object).await? {
            let what = format!("the task {} to finish", upid.split(':').nth(5).unwrap_or("of Proxmox"));
            return Ok(Progress::waiting(what, Some(Operation(upid)), recheck));
        }
        let kept = operation.and_then(reserved_id);
        let whom = Whom { name: &wanted.name, owner: &wanted.owner, vmid: kept };
        let place = self.0.place(&wanted.owner);
        let mut seen = match self.at(place, &wanted.name, &wanted.owner, &object).await {
            Some((vm, config)) => {
                let configs = [(vm.vmid, config)].into();
                Observed { vms: vec![vm], configs, ..Observed::default() }
            }
            None => self.look(&whom, &object).await?,
        };
        seen.kept = kept;
        let mut uptime = Duration::ZERO;
        let mut ours = None;
        match identify(&wanted.name, &wanted.owner, &seen)? {
            Identity::Nobody => self.look_for_room(&mut seen, wanted, &object).await?,
            Identity::Ours(vm) => {
                self.0.remember(&wanted.owner, &vm);
                (seen.running, uptime) = self.0.power(&vm, &object).await?;
                ours = Some(vm);
            }
            Identity::Unclear(_) => {}
        }
        match plan(wanted, &self.0.settings, &seen)? {
            Plan::Do(mutation) => self.make(mutation, wanted, &seen).await,
            // An id that was chosen stays chosen until the machine under it shows whose it is.
            Plan::Wait(what) => Ok(waiting(what, kept.map(reservation), SOON, known(ours.as_ref(), &seen))),
            Plan::Settled => match ours {
                Some(vm) => self.settled(wanted, &vm, &seen, uptime, &object).await,
                None => Ok(Progress::waiting("the machine to be seen", None, SOON)),
            },
        }
    }

    async fn find(&self, target: &MachineTarget) -> Result<Option<MachineFacts>, Failure> {
        let object = format!("machine {}", target.name);
        let place = target.provider_id.as_deref().and_then(parse_provider_id);
        let place = place.map(|(node, vmid)| (node.to_owned(), vmid));
        let (vm, config) = match self.at(place, &target.name, &target.owner, &object).await {
            Some(found) => found,
            None => match self.look_for(target, &object).await? {
                Some(found) => found,
                None => return Ok(None),
            },
        };
        let (running, _) = self.0.power(&vm, &object).await?;
        let addresses = match config.static_address() {
            Some(address) => vec![address],
            None if running => self.addresses(&vm, &object).await?.unwrap_or_default(),
            None => Vec::new(),
        };
        Ok(Some(facts(&vm, &config, addresses, running)))
    }

    async fn delete(
        &self,
        target: &MachineTarget,
        operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure> {
        let object = format!("machine {}", target.name);
        if let Followed::Running { recheck, upid } = self.0.follow(operation, &object).await? {
            let what = format!("the task {} to finish", upid.split(':').nth(5).unwrap_or("of Proxmox"));
            return Ok(Progress::waiting(what, Some(Operation(upid)), recheck));
        }
        let vms = self.0.list().await?;
        if let Some(progress) = self.remove(target, vms, &object).await? {
            return Ok(progress);
        }
        // The cluster's list lags behind; before we say that it is gone, the nodes themselves are asked.
        let (nodes, vms) = self.0.list_by_node().await?;
        if let Some(progress) = self.remove(target, vms, &object).await? {
            return Ok(progress);
        }
        if let Some(upid) = self.being_made(&nodes, &object).await? {
            let what = "a clone that may be this machine to finish";
            return Ok(Progress::waiting(what, Some(Operation(upid)), SOON));
        }
        self.0.forget(&target.owner);
        Ok(Progress::Ready(()))
    }

    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure> {
        let object = "machines of ours";
        let mut found = Vec::new();
        for vm in self.0.list().await? {
            // A half-made clone has its mark and no tags yet, so tags alone can't say what is not ours.
            let in_range = self.0.settings.range.is_none_or(|(start, end)| (start..=end).contains(&vm.vmid));
            if vm.container || vm.template || !(in_range || vm.tags.contains(super::mark::OURS)) {
                continue;
            }
            let Some(mark) = self.0.config(&vm, object).await?.and_then(|config| config.mark()) else {
                continue;
            };
            if cluster_uid.is_none_or(|uid| uid == mark.cluster_uid) {
                found.push(OwnedResource {
                    kind: "machine".to_owned(),
                    name: vm.name.clone().unwrap_or_default(),
                    id: provider_id(&vm),
                    owner: mark.owner(),
                });
            }
        }
        Ok(found)
    }
}

impl ProxmoxMachines {
    /// The machine in the place that it had: most are still there, and a list of a large site is long. Whatever stands in
    /// the way, a node that is down for one, the list tells more.
    async fn at(
        &self,
        place: Option<(String, u32)>,
        name: &str,
        owner: &Owner,
        object: &str,
    ) -> Option<(Vm, Config)> {
        let (node, vmid) = place?;
        let vm = Vm { vmid, node, name: Some(name.to_owned()), ..Vm::default() };
        let config = self.0.config(&vm, object).await.ok()??;
        config.mark().is_some_and(|mark| mark.is_of(owner)).then_some((vm, config))
    }

    /// The machine, wherever it is.
    async fn look_for(&self, target: &MachineTarget, object: &str) -> Result<Option<(Vm, Config)>, Failure> {
        let vmid = target.provider_id.as_deref().and_then(parse_provider_id).map(|(_, vmid)| vmid);
        let whom = Whom { name: &target.name, owner: &target.owner, vmid };
        let vms = self.0.list().await?;
        let seen = self.0.observe(&whom, vms, object).await?;
        match identify(&target.name, &target.owner, &seen) {
            Ok(Identity::Ours(vm)) => {
                let config = seen.configs.get(&vm.vmid).cloned().unwrap_or_default();
                Ok(Some((vm, config)))
            }
            Ok(Identity::Unclear(vm)) => Err(unclear(&vm, object)),
            Ok(Identity::Nobody) | Err(Failure { class: Class::Conflict, .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// What is there of one machine. The cluster's list lags behind: before it is said that nobody is there, and something is
    /// made, the nodes themselves are asked.
    async fn look(&self, whom: &Whom<'_>, object: &str) -> Result<Observed, Failure> {
        let vms = self.0.list().await?;
        let seen = self.0.observe(whom, vms.clone(), object).await?;
        if identify(whom.name, whom.owner, &seen)? != Identity::Nobody {
            return Ok(seen);
        }
        let (nodes, mut all) = self.0.list_by_node().await?;
        // Containers, and what is on nodes that are down, is only in the first list.
        all.extend(
            vms.into_iter().filter(|vm| !all.iter().any(|other| other.vmid == vm.vmid)).collect::<Vec<_>>(),
        );
        let mut seen = self.0.observe(whom, all, object).await?;
        seen.online = self.0.settings.nodes.iter().filter(|node| nodes.contains(node)).cloned().collect();
        Ok(seen)
    }

    /// What has to be known before something is made: a free id, unless one was chosen before.
    async fn look_for_room(
        &self,
        seen: &mut Observed,
        wanted: &MachineWanted,
        object: &str,
    ) -> Result<(), Failure> {
        if self.0.settings.range.is_none() && own_id(wanted, seen).is_none() {
            let value = self.0.client.get("/cluster/nextid", object).await;
            let value =
                value.map_err(|error| error.failure(&format!("asking for a free id for {object}")))?;
            seen.next_id = number(&value);
        }
        Ok(())
    }

    /// Makes one change.
    async fn make(
        &self,
        mut mutation: Mutation,
        wanted: &MachineWanted,
        seen: &Observed,
    ) -> Result<Progress<MachineFacts>, Failure> {
        let makes = matches!(mutation.verb, Verb::Clone { .. } | Verb::Create { .. });
        if makes {
            // Others may have taken the id since the plan looked: the plan is asked again while nobody else can.
            let mut reserved = self.0.reserved.lock();
            let now = Observed { reserved: reserved.clone(), ..seen.clone() };
            let Plan::Do(again) = plan(wanted, &self.0.settings, &now)? else {
                return Ok(Progress::waiting("a free id", None, SOON));
            };
            mutation = again;
            reserved.retain(|_, uid| *uid != wanted.owner.object_uid);
            reserved.insert(mutation.vmid, wanted.owner.object_uid.clone());
            if !mutation.fixed_id && seen.kept != Some(mutation.vmid) {
                // Nothing leads back to this id but memory, so the caller writes it down before anything is made: a second
                // call, of another process too, then asks for the same id, and Proxmox gives an id only once.
                let what = format!("the id {} to be noted", mutation.vmid);
                return Ok(Progress::waiting(what, Some(reservation(mutation.vmid)), Duration::ZERO));
            }
        }
        let change = mutation.change().to_string();
        let vm = Vm { vmid: mutation.vmid, node: mutation.node.clone(), ..Vm::default() };
        match self.0.send(mutation.wire(), &change).await {
            Ok(operation) => {
                self.0.remember(&wanted.owner, &vm);
                let recheck =
                    if operation.is_some() { recheck_after(Duration::ZERO) } else { Duration::ZERO };
                let known = (!makes).then(|| known(Some(&vm), seen)).flatten();
                Ok(waiting(mutation.waiting_for(), operation, recheck, known))
            }
            Err(CallError::Refused(refusal)) if makes && refusal.id_taken() => {
                // Ours, when an answer was lost; somebody else's otherwise. The next look tells; until then the id is kept.
                let what = format!("another look: the id {} is taken", mutation.vmid);
                let kept = (!mutation.fixed_id).then(|| reservation(mutation.vmid));
                if kept.is_none() {
                    self.0.reserved.lock().remove(&mutation.vmid);
                }
                Ok(Progress::waiting(what, kept, recheck_after(Duration::ZERO)))
            }
            Err(CallError::Refused(refusal)) if refusal.done_already() && !refusal.machine_gone() => {
                Ok(waiting(
                    "the machine to be seen running".to_owned(),
                    None,
                    Duration::ZERO,
                    known(Some(&vm), seen),
                ))
            }
            Err(CallError::Refused(refusal)) if !makes && refusal.machine_gone() => {
                Err(vanished(&vm, &change))
            }
            Err(error) => Err(error.failure(&change)),
        }
    }

    /// The machine is set up and on: what is left is its address.
    async fn settled(
        &self,
        wanted: &MachineWanted,
        vm: &Vm,
        seen: &Observed,
        uptime: Duration,
        object: &str,
    ) -> Result<Progress<MachineFacts>, Failure> {
        self.0.reserved.lock().retain(|_, uid| *uid != wanted.owner.object_uid);
        let config = seen.configs.get(&vm.vmid).cloned().unwrap_or_default();
        if let Some(fixed) = &wanted.static_address {
            return Ok(Progress::Ready(facts(vm, &config, vec![fixed.address], true)));
        }
        match self.addresses(vm, object).await? {
            Some(addresses) if !addresses.is_empty() => {
                Ok(Progress::Ready(facts(vm, &config, addresses, true)))
            }
            found => {
                let what = match found {
                    None => format!("the guest agent of VM {} to answer", vm.vmid),
                    Some(_) => format!("VM {} to get an address", vm.vmid),
                };
                Ok(waiting(what, None, recheck_after(uptime), Some(facts(vm, &config, Vec::new(), true))))
            }
        }
    }

    /// The guest's addresses; `None` while its agent is silent.
    async fn addresses(&self, vm: &Vm, object: &str) -> Result<Option<Vec<IpAddr>>, Failure> {
        let path = format!("/nodes/{}/qemu/{}/agent/network-get-interfaces", escape(&vm.node), vm.vmid);
        match self.0.client.get(&path, object).await {
            Ok(value) => Ok(Some(agent_addresses(&value))),
            Err(CallError::Refused(refusal)) if refusal.agent_silent() => Ok(None),
            Err(CallError::Refused(refusal)) if refusal.machine_gone() => Err(vanished(vm, object)),
            Err(error) => {
                Err(error.failure(&format!("asking VM {} for its addresses for {object}", vm.vmid)))
            }
        }
    }

    /// One step towards the absence of what a list shows; `None` when it shows nothing of ours.
    async fn remove(
        &self,
        target: &MachineTarget,
        vms: Vec<Vm>,
        object: &str,
    ) -> Result<Option<Progress<()>>, Failure> {
        let vmid = target.provider_id.as_deref().and_then(parse_provider_id).map(|(_, vmid)| vmid);
        let whom = Whom { name: &target.name, owner: &target.owner, vmid };
        let mut seen = self.0.observe(&whom, vms, object).await?;
        if let Ok(Identity::Ours(vm)) = identify(&target.name, &target.owner, &seen) {
            (seen.running, _) = self.0.power(&vm, object).await?;
        }
        let mutation = match plan_removal(&target.name, &target.owner, &self.0.settings, &seen)? {
            None => return Ok(None),
            Some(Plan::Do(mutation)) => mutation,
            Some(Plan::Wait(what)) => return Ok(Some(Progress::waiting(what, None, SOON))),
            Some(Plan::Settled) => return Ok(None),
        };
        let change = mutation.change().to_string();
        let (operation, recheck) = match self.0.send(mutation.wire(), &change).await {
            Ok(operation) => (operation, recheck_after(Duration::ZERO)),
            // Gone or stopped in between: the next look tells.
            Err(CallError::Refused(refusal)) if refusal.done_already() => (None, Duration::ZERO),
            Err(error) => return Err(error.failure(&change)),
        };
        Ok(Some(Progress::waiting(mutation.waiting_for(), operation, recheck)))
    }

    /// A task of ours that is making some machine, and may have none to show yet.
    async fn being_made(&self, nodes: &[String], object: &str) -> Result<Option<String>, Failure> {
        for node in nodes {
            let running = self.0.running_tasks(node, object).await?;
            let makes =
                |task: &RunningTask| task.ours && matches!(task.kind.as_str(), "qmclone" | "qmcreate");
            if let Some(task) = running.into_iter().find(makes) {
                return Ok(Some(task.upid));
            }
        }
        Ok(None)
    }
}

/// In progress, with what is known.
fn waiting(
    waiting_for: String,
    operation: Option<Operation>,
    recheck: Duration,
    known: Option<MachineFacts>,
) -> Progress<MachineFacts> {
    Progress::InProgress { operation, waiting_for, recheck, known }
}

fn unclear(vm: &Vm, object: &str) -> Failure {
    Failure::new(
        Class::Retryable,
        "VmUnclear",
        format!("{object}: VM {} on {} is being made and does not show whose it is", vm.vmid, vm.node),
        "it is looked at again",
    )
}

fn known(vm: Option<&Vm>, seen: &Observed) -> Option<MachineFacts> {
    let vm = vm?;
    let config = seen.configs.get(&vm.vmid).cloned().unwrap_or_default();
    Some(facts(vm, &config, Vec::new(), seen.running))
}

pub(crate) fn facts(vm: &Vm, config: &Config, addresses: Vec<IpAddr>, running: bool) -> MachineFacts {
    MachineFacts {
        provider_id: provider_id(vm),
        reach: addresses.first().copied(),
        addresses,
        mac: config.mac(),
        zone: Some(vm.node.clone()),
        running,
    }
}

/// `proxmox://<node>/qemu/<vmid>`
pub(crate) fn provider_id(vm: &Vm) -> String {
    format!("proxmox://{}/qemu/{}", vm.node, vm.vmid)
}

fn parse_provider_id(text: &str) -> Option<(&str, u32)> {
    let (node, rest) = text.strip_prefix("proxmox://")?.split_once('/')?;
    Some((node, rest.strip_prefix("qemu/")?.parse().ok()?))
}
