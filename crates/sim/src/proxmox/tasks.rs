//! Worker tasks: how they begin, what they do when they are due, and what is told about them.

use super::auth::Caller;
use super::request::{Call, Outcome, Refusal};
use super::schema::{self, Kind, may};
use super::state::{Boot, Effect, State, Task, Work};
use crate::delays;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// Seconds at speed 1, beside those that depend on the amount of data.
fn seconds(work: &Work) -> f64 {
    match work {
        Work::Clone { .. } => delays::VM_CLONE,
        Work::Create { .. } => delays::VM_CREATE,
        Work::Undo { .. } | Work::Config { .. } | Work::Resize { .. } | Work::Delete { .. } => {
            delays::VM_CHANGE
        }
        Work::Template { .. } => delays::VM_TEMPLATE,
        Work::Start { .. } => delays::VM_START,
        Work::Stop { .. } => delays::VM_STOP,
        Work::Reboot { .. } => delays::VM_REBOOT,
        Work::Reset { .. } => delays::VM_RESET,
        Work::Destroy { .. } => delays::VM_DESTROY,
        Work::Download { .. } => delays::DOWNLOAD,
    }
}

/// A guest needs this long to shut down by itself.
pub(super) const SHUTDOWN: f64 = delays::VM_SHUTDOWN;

impl State {
    /// Begins a task of a kind, about something with an id; gives its UPID. `extra` seconds come on top of the table's.
    pub(super) fn begin(
        &mut self,
        now: u64,
        caller: &Caller,
        node: &str,
        (kind, id): (&str, &str),
        work: Work,
        extra: f64,
    ) -> Value {
        let drawn = self.draw();
        let pid = u32::try_from(drawn % 4_000_000).unwrap_or(1) + 1000;
        let pstart = u32::try_from((drawn >> 32) & 0x0fff_ffff).unwrap_or_default();
        let started = now / 1000;
        let user = caller.id();
        let upid = format!("UPID:{node}:{pid:08X}:{pstart:08X}:{started:08X}:{kind}:{id}:{user}:");
        let due = now + self.scaled(seconds(&work) + extra);
        let task = Task {
            upid: upid.clone(),
            node: node.to_string(),
            pid,
            pstart,
            started,
            ended: None,
            kind: kind.to_string(),
            id: id.to_string(),
            user,
            due,
            work,
            handed_over: false,
            exit: None,
            log: Vec::new(),
        };
        self.tasks.insert(upid.clone(), task);
        self.history.push(upid.clone());
        self.active.push(upid.clone());
        Value::String(upid)
    }

    /// Seconds that copying this much takes.
    #[allow(clippy::cast_precision_loss, reason = "a delay needs no more")]
    pub(super) fn copying(bytes: u64) -> f64 {
        bytes as f64 / delays::COPY_RATE
    }

    #[allow(clippy::cast_precision_loss, reason = "a delay needs no more")]
    pub(super) fn downloading(bytes: u64) -> f64 {
        bytes as f64 / delays::DOWNLOAD_RATE
    }

    /// Carries out what is due, in the order of time. What has to happen to machines comes back.
    pub fn advance(&mut self, now: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        loop {
            let next = self
                .active
                .iter()
                .filter_map(|upid| self.tasks.get(upid))
                .filter(|t| !t.handed_over && t.due <= now)
                .min_by_key(|t| t.due)
                .map(|t| t.upid.clone());
            let Some(upid) = next else { return effects };
            self.carry_out(&upid, now, &mut effects);
        }
    }

    fn carry_out(&mut self, upid: &str, now: u64, effects: &mut Vec<Effect>) {
        let Some(task) = self.tasks.get(upid) else { return };
        let work = task.work.clone();
        if let Work::Start { vmid } = work {
            match self.boot_plan(vmid) {
                // The world says how it went, later.
                Ok(Some(boot)) => {
                    if let Some(task) = self.tasks.get_mut(upid) {
                        task.handed_over = true;
                    }
                    return effects.push(Effect::PowerOn { upid: upid.to_string(), vmid, boot });
                }
                Ok(None) => {
                    let address = self.vms.get(&vmid).and_then(|vm| vm.foreign);
                    effects.extend(address.map(|address| Effect::Foreign { address, up: true }));
                    self.switched_on(vmid, now);
                    self.end(upid, now, Ok(()));
                    return;
                }
                Err(why) => return self.end(upid, now, Err(why)),
            }
        }
        let outcome = self.do_work(work, now, effects);
        self.end(upid, now, outcome);
    }

    fn end(&mut self, upid: &str, now: u64, outcome: Result<(), String>) {
        self.active.retain(|active| active != upid);
        let Some(task) = self.tasks.get_mut(upid) else { return };
        task.ended = Some(now / 1000);
        match outcome {
            Ok(()) => {
                task.exit = Some("OK".to_string());
                task.log.push("TASK OK".to_string());
            }
            Err(why) => {
                task.log.push(format!("TASK ERROR: {why}"));
                task.exit = Some(why);
            }
        }
    }

    /// How switching on went.
    pub fn booted(&mut self, upid: &str, vmid: u32, address: IpAddr, outcome: Result<(), String>, now: u64) {
        if outcome.is_ok() {
            self.switched_on(vmid, now);
            if let Some(vm) = self.vms.get_mut(&vmid) {
                vm.machine = Some(address);
            }
        }
        self.end(upid, now, outcome.map_err(|why| format!("start failed: {why}")));
    }

    fn switched_on(&mut self, vmid: u32, now: u64) {
        let pid = u32::try_from(self.draw() % 4_000_000).unwrap_or(1) + 1000;
        if let Some(vm) = self.vms.get_mut(&vmid) {
            vm.running = true;
            vm.started = now;
            vm.pid = pid;
            vm.agent_from = None;
        }
    }

    /// What is seen of a machine from outside: its power, and whether its system is up.
    pub fn observe(&mut self, vmid: u32, powered: bool, up: bool, now: u64) {
        let wait = match self.vms.get(&vmid) {
            Some(vm) if up && vm.agent_from.is_none() => self.scaled(super::agent::AGENT_SECONDS),
            _ => 0,
        };
        let Some(vm) = self.vms.get_mut(&vmid) else { return };
        if !powered {
            vm.running = false;
        }
        vm.agent_from = if up { vm.agent_from.or(Some(now + wait)) } else { None };
    }

    /// How a virtual machine would come up; `None` when there is nothing to simulate behind it.
    fn boot_plan(&mut self, vmid: u32) -> Result<Option<Boot>, String> {
        let Some(vm) = self.vms.get(&vmid) else { return Err(missing(vmid)) };
        if let Some(lock) = vm.lock() {
            return Err(format!("VM is locked ({lock})"));
        }
        if vm.is_template() {
            return Err("you can't start a vm if it's a template".to_string());
        }
        if vm.running {
            return Err(format!("VM {vmid} already running"));
        }
        let (cpus, node) = (vm.cpus(), vm.node.clone());
        let most = self.nodes.get(&node).map_or(0, |n| u64::from(n.cpus));
        if cpus > most {
            return Err(format!("MAX {most} vcpus allowed per VM on this node"));
        }
        let hostname = vm.config.get("name").cloned();
        let held = vm.machine;
        let Some((system, from_iso)) = self.boot_system(vmid) else { return Ok(None) };
        // A disk that was booted keeps its machine: what is on it survives being switched off.
        let Some(address) = held.or_else(|| self.address_of(vmid)) else { return Ok(None) };
        Ok(Some(Boot { address, talos_version: system.version, hostname, from_iso, known: held.is_some() }))
    }

    /// `GET /nodes/{node}/tasks/{upid}/status`.
    pub(super) fn task_status(&self, caller: &Caller, node: &str, upid: &str) -> Outcome {
        let task = self.task(caller, node, upid)?;
        let (user, token) =
            task.user.split_once('!').map_or((task.user.as_str(), None), |(u, t)| (u, Some(t)));
        let mut told = json!({
            "upid": task.upid, "node": task.node, "pid": task.pid, "pstart": task.pstart,
            "starttime": task.started, "type": task.kind, "id": task.id, "user": user,
            "status": if task.ended.is_some() { "stopped" } else { "running" },
        });
        if let Some(token) = token {
            told["tokenid"] = json!(token);
        }
        if let Some(exit) = &task.exit {
            told["exitstatus"] = json!(exit);
        }
        Ok(told)
    }

    /// `GET /nodes/{node}/tasks/{upid}/log`.
    pub(super) fn task_log(&self, caller: &Caller, call: &Call, node: &str, upid: &str) -> Outcome {
        let whole = Kind::Integer(0, i64::MAX);
        schema::check(call, &[may("start", whole), may("limit", whole)], false)?;
        let task = self.task(caller, node, upid)?;
        let number =
            |name: &str, without| call.params.get(name).and_then(|v| v.parse().ok()).unwrap_or(without);
        let lines = task.log.iter().enumerate().skip(number("start", 0)).take(number("limit", 50));
        Ok(lines.map(|(n, line)| json!({ "n": n + 1, "t": line })).collect())
    }

    /// `GET /nodes/{node}/tasks`: the newest first.
    pub(super) fn task_list(&self, caller: &Caller, call: &Call, node: &str) -> Outcome {
        let text = schema::TEXT;
        let whole = Kind::Integer(0, i64::MAX);
        let own = ["typefilter", "userfilter", "source", "statusfilter"].map(|name| may(name, text));
        let more = ["start", "limit", "since", "until"].map(|name| may(name, whole));
        let others = [may("vmid", schema::VMID), may("errors", schema::BOOL)];
        let all: Vec<schema::Param> = own.into_iter().chain(more).chain(others).collect();
        schema::check(call, &all, false)?;
        let wanted = |name: &str, value: &str| call.params.get(name).is_none_or(|w| w == value);
        let sees_all = self.has_any(caller, &format!("/nodes/{node}"), &["Sys.Audit"]);
        let source = call.params.get("source").map_or("archive", String::as_str);
        let listed = self.history.iter().rev().filter_map(|upid| self.tasks.get(upid)).filter(|t| {
            t.node == node
                && (sees_all || t.user == caller.id())
                && wanted("typefilter", &t.kind)
                && wanted("vmid", &t.id)
                && match source {
                    "active" => t.ended.is_none(),
                    "all" => true,
                    _ => t.ended.is_some(),
                }
        });
        let told = listed.take(50).map(|t| {
            let mut entry = Map::from_iter([
                ("upid".to_string(), json!(t.upid)),
                ("node".to_string(), json!(t.node)),
                ("pid".to_string(), json!(t.pid)),
                ("pstart".to_string(), json!(t.pstart)),
                ("starttime".to_string(), json!(t.started)),
                ("type".to_string(), json!(t.kind)),
                ("id".to_string(), json!(t.id)),
                ("user".to_string(), json!(t.user)),
            ]);
            if let (Some(ended), Some(exit)) = (t.ended, &t.exit) {
                entry.insert("endtime".to_string(), json!(ended));
                entry.insert("status".to_string(), json!(exit));
            }
            Value::Object(entry)
        });
        Ok(told.collect())
    }

    fn task(&self, caller: &Caller, node: &str, upid: &str) -> Result<&Task, Refusal> {
        let parts: Vec<&str> = upid.split(':').collect();
        if parts.len() != 9 || parts[0] != "UPID" {
            return Err(Refusal::param("upid", format!("unable to parse worker upid '{upid}'")));
        }
        let found = self.tasks.get(upid).filter(|t| t.node == node);
        let Some(task) = found else { return Err(Refusal::died("no such task")) };
        if task.user != caller.id() && !task.user.starts_with(&format!("{}!", caller.id())) {
            self.need(caller, &format!("/nodes/{node}"), &["Sys.Audit"])?;
        }
        Ok(task)
    }
}

/// What a worker says of a virtual machine that is not there.
pub(super) fn missing(vmid: u32) -> String {
    format!("no such VM ('{vmid}')")
}
