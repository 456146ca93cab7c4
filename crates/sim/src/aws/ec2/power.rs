//! Machines switched on, off, and gone for good; and what becomes due.

use crate::aws::input::{flag, text, texts};
use crate::aws::request::{Outcome, Refusal, Service};
use crate::aws::state::{Boot, Effect, Power, Registration, State};
use crate::delays;
use serde_json::{Value, json};
use std::net::IpAddr;

impl State {
    pub(in crate::aws) fn terminate_instances(&mut self, input: &Value, now: u64) -> Outcome {
        let ids = texts(input, "InstanceIds");
        self.check_ids(&ids, now)?;
        if let Some(id) = ids.iter().find(|id| self.instances.get(*id).is_some_and(|i| i.protected)) {
            let why = format!(
                "The instance '{id}' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again."
            );
            return Err(Refusal::new("OperationNotPermitted", why));
        }
        let told = self.change_power(&ids, Power::ShuttingDown, now, delays::AWS_INSTANCE_ENDS);
        for id in &ids {
            self.deregister_everywhere(id, now);
        }
        Ok(json!({ "TerminatingInstances": told }))
    }

    pub(in crate::aws) fn stop_instances(&mut self, input: &Value, now: u64) -> Outcome {
        let ids = texts(input, "InstanceIds");
        self.check_ids(&ids, now)?;
        self.check_power(&ids, &[Power::Running, Power::Stopping, Power::Stopped])?;
        Ok(
            json!({ "StoppingInstances": self.change_power(&ids, Power::Stopping, now, delays::AWS_INSTANCE_STOPS) }),
        )
    }

    pub(in crate::aws) fn start_instances(&mut self, input: &Value, now: u64) -> Outcome {
        let ids = texts(input, "InstanceIds");
        self.check_ids(&ids, now)?;
        self.check_power(&ids, &[Power::Stopped, Power::Pending, Power::Running])?;
        Ok(
            json!({ "StartingInstances": self.change_power(&ids, Power::Pending, now, delays::AWS_INSTANCE_STARTS) }),
        )
    }

    pub(in crate::aws) fn reboot_instances(&mut self, input: &Value, now: u64) -> Outcome {
        let ids = texts(input, "InstanceIds");
        self.check_ids(&ids, now)?;
        self.check_power(&ids, &[Power::Running])?;
        for id in ids {
            if let Some(instance) = self.instances.get_mut(&id) {
                // Still running, and through with it at once.
                instance.due = Some(now);
            }
        }
        Ok(json!({}))
    }

    fn check_power(&self, ids: &[String], from: &[Power]) -> Result<(), Refusal> {
        for id in ids {
            if let Some(instance) = self.instances.get(id).filter(|i| !from.contains(&i.power)) {
                let why = format!(
                    "The instance '{id}' is not in a state from which it can be started, stopped or rebooted: {}",
                    instance.power.name()
                );
                return Err(Refusal::new("IncorrectInstanceState", why));
            }
        }
        Ok(())
    }

    /// Sets machines on their way, and tells from where to where; those that are there already stay.
    fn change_power(&mut self, ids: &[String], to: Power, now: u64, takes: f64) -> Value {
        let mut told = Vec::new();
        for id in ids {
            let due = now + self.scaled(takes);
            let Some(instance) = self.instances.get_mut(id) else { continue };
            let before = instance.power;
            let there = match to {
                Power::ShuttingDown => before.is_over(),
                Power::Stopping => matches!(before, Power::Stopping | Power::Stopped),
                _ => matches!(before, Power::Pending | Power::Running),
            };
            if !there {
                instance.power = to;
                instance.due = Some(due);
            }
            let show = |power: Power| json!({ "Code": power.code(), "Name": power.name() });
            told.push(json!({
                "InstanceId": id, "PreviousState": show(before), "CurrentState": show(instance.power),
            }));
        }
        Value::Array(told)
    }

    pub(in crate::aws) fn modify_instance_attribute(&mut self, input: &Value, now: u64) -> Outcome {
        let id = text(input, "InstanceId").unwrap_or_default().to_string();
        self.check_ids(std::slice::from_ref(&id), now)?;
        let groups = texts(input, "Groups");
        for group in &groups {
            self.group(group)?;
        }
        let value = |key: &str| input.get(key).and_then(|attribute| flag(attribute, "Value"));
        let Some(instance) = self.instances.get_mut(&id) else { return Ok(json!({})) };
        let mut changed = false;
        if let Some(check) = value("SourceDestCheck") {
            instance.source_dest_check = check;
            changed = true;
        }
        if let Some(protected) = value("DisableApiTermination") {
            instance.protected = protected;
            changed = true;
        }
        if !groups.is_empty() {
            instance.groups = groups;
            changed = true;
        }
        if changed { Ok(json!({})) } else { Err(Service::Ec2.not_simulated("this attribute of an instance")) }
    }

    /// When something is next due, in milliseconds.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        let instances = self.instances.values().filter_map(|instance| instance.due);
        let balancers = self.balancers.values().filter_map(|balancer| balancer.due);
        let interfaces = self.interfaces.values().filter_map(|interface| interface.due);
        let targets = self.target_groups.values().flat_map(|group| group.targets.values());
        let targets = targets.filter_map(|registration| match registration {
            Registration::Beginning(due) | Registration::Draining(due) => Some(*due),
            Registration::Through => None,
        });
        instances.chain(balancers).chain(interfaces).chain(targets).min()
    }

    /// Carries out what is due, and says what that means for machines.
    pub fn advance(&mut self, now: u64) -> Vec<Effect> {
        self.advance_balancers(now);
        let due = |due: Option<u64>| due.is_some_and(|due| due <= now);
        let ids: Vec<String> =
            self.instances.iter().filter(|(_, i)| due(i.due)).map(|(id, _)| id.clone()).collect();
        ids.into_iter().flat_map(|id| self.through(&id)).collect()
    }

    /// A machine's change of power is through.
    fn through(&mut self, id: &str) -> Vec<Effect> {
        let name = self.called(id);
        let Some(mut instance) = self.instances.remove(id) else { return Vec::new() };
        instance.due = None;
        let address = IpAddr::V4(instance.private);
        let mut effects = Vec::new();
        match instance.power {
            Power::Pending => {
                instance.power = Power::Running;
                if instance.wants_public && instance.public.is_none() {
                    instance.public = Some(self.take_public());
                }
                let version = self.images.get(&instance.image).map(|image| image.talos_version.clone());
                let boot = Boot {
                    address,
                    talos_version: version.unwrap_or_else(|| "v1.9.2".to_string()),
                    hostname: name,
                    user_data: instance.user_data.clone(),
                    known: instance.booted,
                };
                effects.push(Effect::PowerOn { instance: id.to_string(), boot });
                instance.booted = true;
                effects.extend(
                    instance.public.map(|public| Effect::Lead { public: public.into(), to: Some(address) }),
                );
            }
            Power::Running => effects.push(Effect::Cycle { address }),
            Power::Stopping => {
                instance.power = Power::Stopped;
                effects.push(Effect::PowerOff { address });
            }
            Power::ShuttingDown => {
                instance.power = Power::Terminated;
                if std::mem::take(&mut instance.booted) {
                    effects.push(Effect::Remove { address });
                }
                self.release(&instance.subnet, instance.private);
                self.let_go_of_volumes(&instance.volumes);
            }
            Power::Stopped | Power::Terminated => {}
        }
        // A machine that does not run has no public address, and gets another one the next time.
        if matches!(instance.power, Power::Stopped | Power::Terminated)
            && let Some(public) = instance.public.take()
        {
            self.public.remove(&public);
            effects.push(Effect::Lead { public: public.into(), to: None });
        }
        self.instances.insert(id.to_string(), instance);
        effects
    }

    fn let_go_of_volumes(&mut self, volumes: &[(String, String)]) {
        for (_, id) in volumes {
            if self.volumes.get(id).is_some_and(|volume| volume.dies_with_instance) {
                self.volumes.remove(id);
            } else if let Some(volume) = self.volumes.get_mut(id) {
                volume.attached = None;
            }
        }
    }

    /// A machine has switched itself off, or lost its power. Says whether that is news.
    pub(in crate::aws) fn observe_off(&mut self, id: &str) -> bool {
        match self.instances.get_mut(id) {
            Some(instance) if instance.power == Power::Running && instance.due.is_none() => {
                instance.power = Power::Stopped;
                true
            }
            _ => false,
        }
    }
}
