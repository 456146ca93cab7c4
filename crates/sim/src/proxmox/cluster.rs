//! The whole cluster: version, hosts, resources, free ids, pools.

use super::auth::Caller;
use super::request::{Call, Outcome, Refusal};
use super::schema::{self, Kind, TEXT, VMID, may, must};
use super::state::{State, Stats, Vm, VmStat};
use serde_json::{Value, json};

/// pvestatd tells about its host every ten seconds.
const BROADCAST_SECONDS: f64 = 10.0;
const FIRST_ID: u32 = 100;

pub(super) fn version() -> Value {
    json!({ "release": "8.4", "repoid": "5e2b6a1d", "version": "8.4.1" })
}

impl State {
    /// `GET /nodes`.
    pub(super) fn list_nodes(&self, caller: &Caller, call: &Call) -> Outcome {
        schema::check(call, &[], false)?;
        Ok(self.nodes.keys().map(|name| self.about_node(caller, name)).collect())
    }

    fn about_node(&self, caller: &Caller, name: &str) -> Value {
        let Some(host) = self.nodes.get(name) else { return Value::Null };
        let status = if host.online { "online" } else { "offline" };
        let mut told =
            json!({ "node": name, "id": format!("node/{name}"), "type": "node", "status": status });
        if host.online && self.has_any(caller, &format!("/nodes/{name}"), &["Sys.Audit"]) {
            told["maxcpu"] = json!(host.cpus);
            told["cpu"] = json!(0.02);
            told["maxmem"] = json!(host.memory);
            told["mem"] = json!(self.memory_used(name));
            told["level"] = json!("");
        }
        told
    }

    fn memory_used(&self, node: &str) -> u64 {
        self.vms.values().filter(|vm| vm.node == node && vm.running).map(Vm::memory).sum()
    }

    /// `GET /nodes/{node}/status`.
    pub(super) fn node_status(&self, caller: &Caller, call: &Call, node: &str) -> Outcome {
        schema::check(call, &[], false)?;
        self.need(caller, &format!("/nodes/{node}"), &["Sys.Audit"])?;
        let Some(host) = self.nodes.get(node) else { return Ok(Value::Null) };
        let used = self.memory_used(node);
        Ok(json!({
            "pveversion": "pve-manager/8.4.1/5e2b6a1d",
            "kversion": "Linux 6.8.12-9-pve",
            "uptime": 1_000_000,
            "cpu": 0.02,
            "loadavg": ["0.10", "0.10", "0.10"],
            "cpuinfo": { "cpus": host.cpus, "cores": host.cpus, "sockets": 1, "model": "Simulated CPU" },
            "memory": { "total": host.memory, "used": used, "free": host.memory.saturating_sub(used) },
            "rootfs": { "total": 100_u64 << 30, "used": 10_u64 << 30, "free": 90_u64 << 30, "avail": 90_u64 << 30 },
        }))
    }

    /// `GET /cluster/nextid`.
    pub(super) fn next_id(&self, call: &Call) -> Outcome {
        schema::check(call, &[may("vmid", VMID)], false)?;
        if let Some(asked) = call.params.get("vmid") {
            let taken = asked.parse().is_ok_and(|id: u32| self.vms.contains_key(&id));
            return if taken {
                Err(Refusal::param("vmid", format!("VM {asked} already exists")))
            } else {
                Ok(json!(asked))
            };
        }
        let free = (FIRST_ID..=999_999_999).find(|id| !self.vms.contains_key(id));
        free.map(|id| json!(id.to_string())).ok_or_else(|| Refusal::died("unable to get any free VMID"))
    }

    /// `GET /cluster/resources`.
    ///
    /// Which machines there are, their tags and locks are known at once, everything else as of the last broadcast: a new
    /// machine has no name and the status `unknown` until then.
    pub(super) fn resources(&mut self, caller: &Caller, call: &Call, now: u64) -> Outcome {
        schema::check(call, &[may("type", Kind::OneOf(&["vm", "storage", "node", "sdn"]))], false)?;
        self.broadcast(now);
        let wanted = |kind: &str| call.params.get("type").is_none_or(|t| t == kind);
        let mut listed = Vec::new();
        if wanted("vm") {
            let seen =
                self.vms.iter().filter(|(id, _)| self.has_any(caller, &format!("/vms/{id}"), &["VM.Audit"]));
            listed.extend(seen.map(|(id, vm)| self.vm_resource(*id, vm)));
        }
        if wanted("node") {
            listed.extend(self.nodes.keys().map(|name| self.about_node(caller, name)));
        }
        if wanted("storage") {
            listed.extend(self.storage_resources(caller));
        }
        Ok(Value::Array(listed))
    }

    /// Takes a new picture of everything if the last one is old enough.
    fn broadcast(&mut self, now: u64) {
        let age = now.saturating_sub(self.stats.at);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a delay of seconds")]
        let interval = (BROADCAST_SECONDS * 1000.0 * self.speed.max(0.0)) as u64;
        if age < interval {
            return;
        }
        let picture = |(id, vm): (&u32, &Vm)| {
            let stat = VmStat {
                name: vm.name(*id),
                running: vm.running,
                template: vm.is_template(),
                cpus: vm.cpus(),
                memory: vm.memory(),
                disk: self.root_size(vm),
                uptime: if vm.running { now.saturating_sub(vm.started) / 1000 } else { 0 },
            };
            (*id, stat)
        };
        let vms = self.vms.iter().map(picture).collect();
        self.stats = Stats { at: now, vms };
    }

    fn vm_resource(&self, vmid: u32, vm: &Vm) -> Value {
        let mut told = json!({ "id": format!("qemu/{vmid}"), "type": "qemu", "vmid": vmid, "node": vm.node, "status": "unknown" });
        if let Some(stat) = self.stats.vms.get(&vmid) {
            told["name"] = json!(stat.name);
            told["status"] = json!(if stat.running { "running" } else { "stopped" });
            told["template"] = json!(u8::from(stat.template));
            told["maxcpu"] = json!(stat.cpus);
            told["maxmem"] = json!(stat.memory);
            told["maxdisk"] = json!(stat.disk);
            told["uptime"] = json!(stat.uptime);
            for zero in ["cpu", "mem", "disk", "netin", "netout", "diskread", "diskwrite"] {
                told[zero] = json!(0);
            }
        }
        for key in ["tags", "lock"] {
            if let Some(value) = vm.config.get(key) {
                told[key] = json!(value);
            }
        }
        if let Some(pool) = self.pools.get(&vmid.to_string()) {
            told["pool"] = json!(pool);
        }
        told
    }

    fn storage_resources(&self, caller: &Caller) -> Vec<Value> {
        let pairs =
            self.storages.iter().flat_map(|(name, s)| self.nodes.keys().map(move |node| (name, s, node)));
        pairs
            .filter(|(name, storage, node)| {
                storage.enabled
                    && storage.is_on(node)
                    && self.has_any(
                        caller,
                        &format!("/storage/{name}"),
                        &["Datastore.Audit", "Datastore.AllocateSpace"],
                    )
            })
            .map(|(name, storage, node)| {
                json!({
                    "id": format!("storage/{node}/{name}"), "type": "storage", "storage": name, "node": node,
                    "status": "available", "plugintype": storage.kind, "shared": u8::from(storage.shared),
                    "content": storage.content.iter().cloned().collect::<Vec<_>>().join(","),
                    "maxdisk": storage.total, "disk": storage.used(node),
                })
            })
            .collect()
    }

    /// `GET /pools`.
    pub(super) fn list_pools(&self, caller: &Caller, call: &Call) -> Outcome {
        schema::check(call, &[may("poolid", TEXT), may("type", TEXT)], false)?;
        let names: std::collections::BTreeSet<&String> = self.pools.values().collect();
        let seen =
            names.into_iter().filter(|pool| self.has_any(caller, &format!("/pool/{pool}"), &["Pool.Audit"]));
        Ok(seen.map(|pool| json!({ "poolid": pool })).collect())
    }

    /// `GET /cluster/status`.
    pub(super) fn cluster_status(&self, caller: &Caller, call: &Call) -> Outcome {
        schema::check(call, &[], false)?;
        self.need(caller, "/", &["Sys.Audit"])?;
        let count = self.nodes.len();
        let mut told = vec![json!({
            "type": "cluster", "id": "cluster", "name": "simulated", "nodes": count, "quorate": 1, "version": 1,
        })];
        told.extend(self.nodes.iter().enumerate().map(|(n, (name, host))| {
            json!({
                "type": "node", "id": format!("node/{name}"), "name": name, "nodeid": n + 1,
                "online": u8::from(host.online), "local": u8::from(n == 0),
            })
        }));
        Ok(Value::Array(told))
    }

    /// A host that a call is for must be there and reachable.
    pub(super) fn reach(&self, node: &str) -> Result<(), Refusal> {
        match self.nodes.get(node) {
            Some(host) if host.online => Ok(()),
            Some(_) => Err(Refusal::no_route()),
            None => Err(Refusal::died(format!(
                "hostname lookup '{node}' failed - failed to get address info for: {node}: Name or service not known"
            ))),
        }
    }
}

pub(super) const NO_PARAMS: [schema::Param; 0] = [];

/// Kept beside its likes: the parameters of a ticket.
pub(super) fn ticket_params() -> [schema::Param; 6] {
    [
        must("username", TEXT),
        must("password", TEXT),
        may("realm", TEXT),
        may("otp", TEXT),
        may("new-format", schema::BOOL),
        may("tfa-challenge", TEXT),
    ]
}
