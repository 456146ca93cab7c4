//! Which call is which endpoint.

use super::auth::Caller;
use super::cluster;
use super::request::{Answer, Call, Outcome, Refusal};
use super::schema;
use super::state::State;
use serde_json::{Value, json};

impl State {
    /// Answers one call. Tasks that it begins are carried out by [`State::advance`]; `now` is in milliseconds.
    pub fn handle(&mut self, call: &Call, now: u64) -> Answer {
        Answer::of(self.route(call, now))
    }

    fn route(&mut self, call: &Call, now: u64) -> Outcome {
        let parts: Vec<&str> = call.path.iter().map(String::as_str).collect();
        let method = call.method.as_str();
        if (method, &parts[..]) == ("POST", &["access", "ticket"]) {
            schema::check(call, &cluster::ticket_params(), false)?;
            return self.issue_ticket(call, now / 1000);
        }
        let caller = self.authenticate(call, now / 1000)?;
        match (method, &parts[..]) {
            ("GET", ["version"]) => {
                schema::check(call, &cluster::NO_PARAMS, false).map(|()| cluster::version())
            }
            ("GET", ["access", "permissions"]) => self.permissions(&caller, call),
            ("GET", ["cluster", "nextid"]) => self.next_id(call),
            ("GET", ["cluster", "resources"]) => self.resources(&caller, call, now),
            ("GET", ["cluster", "status"]) => self.cluster_status(&caller, call),
            ("GET", ["pools"]) => self.list_pools(&caller, call),
            ("GET", ["nodes"]) => self.list_nodes(&caller, call),
            (_, ["nodes", node, rest @ ..]) => {
                self.reach(node)?;
                self.route_node(&caller, call, node, rest, now)
            }
            _ => Err(Refusal::not_implemented(method, &call.path_text())),
        }
    }

    fn route_node(&mut self, caller: &Caller, call: &Call, node: &str, rest: &[&str], now: u64) -> Outcome {
        match (call.method.as_str(), rest) {
            ("GET", ["status"]) => self.node_status(caller, call, node),
            ("GET", ["version"]) => Ok(cluster::version()),
            ("GET", ["tasks"]) => self.task_list(caller, call, node),
            ("GET", ["tasks", upid, "status"]) => self.task_status(caller, node, upid),
            ("GET", ["tasks", upid, "log"]) => self.task_log(caller, call, node, upid),
            ("GET", ["storage"]) => self.list_storages(caller, call, node),
            ("GET", ["storage", name, "status"]) => self.storage_status(caller, call, node, name),
            ("GET", ["storage", name, "content"]) => self.list_content(caller, call, node, name),
            ("POST", ["storage", name, "download-url"]) => self.download_url(caller, call, node, name, now),
            // A volume's name may have slashes in it, whether they were encoded or not.
            ("GET", ["storage", name, "content", volume @ ..]) => {
                self.get_volume(caller, call, node, name, &volume.join("/"))
            }
            ("DELETE", ["storage", name, "content", volume @ ..]) if !volume.is_empty() => {
                self.remove_content(caller, call, node, name, &volume.join("/"), now)
            }
            ("GET", ["network"]) => self.networks(caller, call, node),
            ("GET", ["qemu"]) => self.list_vms(caller, call, node, now),
            ("POST", ["qemu"]) => self.create(caller, call, node, now),
            (_, ["qemu", vmid, rest @ ..]) => {
                let Some(vmid) = vmid.parse().ok().filter(|id| *id >= 100) else {
                    let why = match vmid.parse::<i64>() {
                        Ok(_) => "value must have a minimum value of 100".to_string(),
                        Err(_) => format!("type check ('integer') failed - got '{vmid}'"),
                    };
                    return Err(Refusal::param("vmid", why));
                };
                self.route_vm(caller, call, node, vmid, rest, now)
            }
            _ => Err(Refusal::not_implemented(&call.method, &call.path_text())),
        }
    }

    fn route_vm(
        &mut self,
        caller: &Caller,
        call: &Call,
        node: &str,
        vmid: u32,
        rest: &[&str],
        now: u64,
    ) -> Outcome {
        match (call.method.as_str(), rest) {
            ("GET", ["config"]) => self.get_config(caller, call, node, vmid),
            ("PUT" | "POST", ["config"]) => self.set_config(caller, call, node, vmid, now),
            ("PUT", ["resize"]) => self.resize_disk(caller, call, node, vmid, now),
            ("POST", ["clone"]) => self.clone_vm(caller, call, node, vmid, now),
            ("POST", ["template"]) => self.convert(caller, call, node, vmid, now),
            ("GET", ["status", "current"]) => self.current(caller, call, node, vmid, now),
            ("POST", ["status", verb]) => self.power(caller, call, node, vmid, verb, now),
            ("GET", ["agent", verb]) => self.agent(caller, call, node, vmid, verb, now),
            ("POST", ["agent", "ping"]) => self.agent(caller, call, node, vmid, "ping", now),
            ("DELETE", []) => self.destroy_vm(caller, call, node, vmid, now),
            _ => Err(Refusal::not_implemented(&call.method, &call.path_text())),
        }
    }

    /// `GET /nodes/{node}/network`: the one bridge.
    fn networks(&self, caller: &Caller, call: &Call, node: &str) -> Outcome {
        schema::check(call, &[schema::may("type", schema::TEXT)], false)?;
        self.need(caller, &format!("/nodes/{node}"), &["Sys.Audit"])?;
        Ok(Value::Array(vec![json!({
            "iface": self.network.bridge, "type": "bridge", "active": 1, "autostart": 1, "method": "static",
        })]))
    }
}
