//! What a simulated Proxmox VE is at one moment. A clone of it is a snapshot; `advance` and `handle` are all that change it.

use super::auth::Caller;
use super::request::Call;
use super::site::{ProxmoxSite, Secret, SiteAcl, SiteImage, SiteNetwork};
use crate::random::Random;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Everything that Proxmox knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub(super) seed: u64,
    pub(super) draws: u64,
    /// Scales every delay.
    pub(super) speed: f64,
    pub(super) nodes: BTreeMap<String, Host>,
    pub(super) storages: BTreeMap<String, Storage>,
    pub(super) vms: BTreeMap<u32, Vm>,
    pub(super) tasks: BTreeMap<String, Task>,
    /// The order in which tasks were begun, and those of them that still run.
    pub(super) history: Vec<String>,
    pub(super) active: Vec<String>,
    pub(super) users: BTreeMap<String, User>,
    pub(super) roles: BTreeMap<String, BTreeSet<String>>,
    pub(super) acls: Vec<SiteAcl>,
    pub(super) tickets: BTreeMap<String, Ticket>,
    pub(super) network: SiteNetwork,
    /// Addresses given out by DHCP, by hardware address.
    pub(super) leases: BTreeMap<String, IpAddr>,
    pub(super) images: Vec<SiteImage>,
    pub(super) pools: BTreeMap<String, String>,
    /// What the last broadcast of pvestatd said.
    pub(super) stats: Stats,
}

/// A host of the Proxmox cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Host {
    pub(super) cpus: u32,
    pub(super) memory: u64,
    pub(super) online: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Storage {
    pub(super) kind: String,
    pub(super) content: BTreeSet<String>,
    pub(super) total: u64,
    /// Taken by what is not listed.
    pub(super) reserved: u64,
    pub(super) shared: bool,
    pub(super) enabled: bool,
    /// Empty: all.
    pub(super) nodes: Vec<String>,
    /// So many copies may be made on it at once: the next one does not get the storage's lock in time.
    pub(super) copies: Option<usize>,
    /// By [`Storage::key`].
    pub(super) volumes: BTreeMap<String, Volume>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Volume {
    pub(super) volid: String,
    /// The host it is on; empty on a shared storage.
    pub(super) home: String,
    pub(super) content: String,
    pub(super) format: String,
    pub(super) size: u64,
    /// Bytes that it takes; less than `size` for a linked clone.
    pub(super) used: u64,
    pub(super) vmid: Option<u32>,
    pub(super) parent: Option<String>,
    pub(super) created: u64,
    /// What is on it, if it is Talos.
    pub(super) system: Option<System>,
}

/// A Talos image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct System {
    pub(super) version: String,
    /// The guest agent is part of it.
    pub(super) agent: bool,
}

/// A virtual machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Vm {
    pub(super) node: String,
    /// As in its configuration file.
    pub(super) config: BTreeMap<String, String>,
    pub(super) running: bool,
    pub(super) pid: u32,
    /// Milliseconds.
    pub(super) started: u64,
    /// The address of its machine in the world, once it was switched on.
    pub(super) machine: Option<IpAddr>,
    /// The address of a machine that is not simulated.
    pub(super) foreign: Option<IpAddr>,
    /// Since when the agent answers.
    pub(super) agent_from: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct User {
    pub(super) password: Option<Secret>,
    /// Value and whether its privileges are separate.
    pub(super) tokens: BTreeMap<String, (Secret, bool)>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ticket {
    pub(super) user: String,
    pub(super) csrf: Secret,
    /// Seconds.
    pub(super) issued: u64,
}

/// A worker task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) upid: String,
    pub(super) node: String,
    pub(super) pid: u32,
    pub(super) pstart: u32,
    /// Seconds.
    pub(super) started: u64,
    pub(super) ended: Option<u64>,
    pub(super) kind: String,
    pub(super) id: String,
    pub(super) user: String,
    /// Milliseconds: when its work is done.
    pub(super) due: u64,
    pub(super) work: Work,
    /// Its work is in the hands of the world.
    pub(super) handed_over: bool,
    pub(super) exit: Option<String>,
    pub(super) log: Vec<String>,
}

/// What a task does at its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Work {
    /// The volumes are there already; the configuration is what the new machine gets.
    Clone {
        source: u32,
        vmid: u32,
        target: String,
        config: BTreeMap<String, String>,
    },
    /// `start` says in whose name it is switched on afterwards.
    Create {
        vmid: u32,
        config: BTreeMap<String, String>,
        start: Option<Caller>,
    },
    /// A clone or create that could not get its volumes: everything of it goes again.
    Undo {
        vmid: u32,
        why: String,
    },
    Config {
        vmid: u32,
        changes: BTreeMap<String, String>,
    },
    Resize {
        vmid: u32,
        disk: String,
        size: u64,
    },
    Template {
        vmid: u32,
    },
    Start {
        vmid: u32,
    },
    Stop {
        vmid: u32,
    },
    Reboot {
        vmid: u32,
    },
    Reset {
        vmid: u32,
    },
    /// The name is kept for those who ask after the task when the machine is gone.
    Destroy {
        vmid: u32,
        name: Option<String>,
        unreferenced: bool,
    },
    Download {
        storage: String,
        volume: Box<Volume>,
        url: String,
        sha256: Option<String>,
    },
    Delete {
        volid: String,
    },
}

/// The state of things as pvestatd last told it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Stats {
    pub(super) at: u64,
    pub(super) vms: BTreeMap<u32, VmStat>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct VmStat {
    pub(super) name: String,
    pub(super) running: bool,
    pub(super) template: bool,
    pub(super) cpus: u64,
    pub(super) memory: u64,
    pub(super) disk: u64,
    pub(super) uptime: u64,
}

/// What has to happen to machines, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Switch on; how it went goes to [`State::booted`]. An address that is there already keeps its disk.
    PowerOn { upid: String, vmid: u32, boot: Boot },
    /// Pull the plug.
    PowerOff { address: IpAddr },
    /// Off and on again.
    Cycle { address: IpAddr },
    /// Take it away, with its disk.
    Remove { address: IpAddr },
    /// A machine that is not simulated appears at, or leaves, its address.
    Foreign { address: IpAddr, up: bool },
}

/// How a machine comes up.
#[derive(Debug, Clone, PartialEq)]
pub struct Boot {
    pub address: IpAddr,
    pub talos_version: String,
    pub hostname: Option<String>,
    /// Booted from a CD rather than from a disk with Talos on it.
    pub from_iso: bool,
    /// It was on before: the machine is in the world, switched off.
    pub known: bool,
}

impl State {
    /// The state at the beginning of time.
    #[must_use]
    pub fn new(site: &ProxmoxSite, speed: f64, seed: u64) -> Self {
        let nodes = site
            .nodes
            .iter()
            .map(|n| (n.name.clone(), Host { cpus: n.cpus, memory: n.memory, online: n.online }));
        let users = site.users.iter().map(|u| {
            let tokens =
                u.tokens.iter().map(|t| (t.id.clone(), (t.secret.clone(), t.privilege_separation))).collect();
            (u.id.clone(), User { password: u.password.clone(), tokens })
        });
        let mut state = Self {
            seed,
            draws: 0,
            speed,
            nodes: nodes.collect(),
            storages: BTreeMap::new(),
            vms: BTreeMap::new(),
            tasks: BTreeMap::new(),
            history: Vec::new(),
            active: Vec::new(),
            users: users.collect(),
            roles: super::auth::roles(&site.roles),
            acls: site.acls.clone(),
            tickets: BTreeMap::new(),
            network: site.network.clone(),
            leases: BTreeMap::new(),
            images: site.images.clone(),
            pools: BTreeMap::new(),
            stats: Stats::default(),
        };
        for storage in &site.storages {
            let made = Storage {
                kind: storage.kind.clone(),
                content: storage.content.iter().cloned().collect(),
                total: storage.total,
                reserved: storage.used,
                shared: storage.shared,
                enabled: storage.enabled,
                nodes: storage.nodes.clone(),
                copies: storage.copies,
                volumes: BTreeMap::new(),
            };
            state.storages.insert(storage.name.clone(), made);
        }
        super::furnish::furnish(&mut state, site);
        state
    }

    /// The next random number: the same for the same seed and history.
    pub(super) fn draw(&mut self) -> u64 {
        self.draws += 1;
        Random::new(self.seed ^ self.draws.wrapping_mul(0xd6e8_feb8_6659_fd93)).next()
    }

    /// A hardware address from Proxmox' own range.
    pub(super) fn mac(&mut self) -> String {
        let [a, b, c, ..] = self.draw().to_be_bytes();
        format!("BC:24:11:{a:02X}:{b:02X}:{c:02X}")
    }

    /// Milliseconds that something takes at this state's speed.
    pub(super) fn scaled(&mut self, seconds: f64) -> u64 {
        let jitter = crate::delays::jitter(self.seed, Random::new(self.draw()).fraction());
        let millis = seconds * 1000.0 * self.speed.max(0.0) * jitter;
        std::time::Duration::try_from_secs_f64(millis / 1000.0)
            .map_or(u64::MAX / 4, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 4))
    }

    /// When the next task is due, in milliseconds.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        self.active
            .iter()
            .filter_map(|upid| self.tasks.get(upid))
            .filter(|t| !t.handed_over)
            .map(|t| t.due)
            .min()
    }

    /// The machine of the world that belongs to a virtual machine.
    #[must_use]
    pub fn machine_of(&self, vmid: u32) -> Option<IpAddr> {
        self.vms.get(&vmid)?.machine
    }

    /// The name of a virtual machine.
    #[must_use]
    pub fn name_of(&self, vmid: u32) -> Option<&str> {
        self.vms.get(&vmid)?.config.get("name").map(String::as_str)
    }

    /// Virtual machines with a machine of the world behind them, and its address.
    #[must_use]
    pub fn machines(&self) -> Vec<(u32, IpAddr)> {
        self.vms.iter().filter_map(|(vmid, vm)| Some((*vmid, vm.machine?))).collect()
    }

    /// Addresses of running machines that are not simulated.
    pub(super) fn foreign_addresses(&self) -> Vec<IpAddr> {
        self.vms.values().filter(|vm| vm.running).filter_map(|vm| vm.foreign).collect()
    }

    /// What a call is about, for logs and fault scripts: `machine NAME` where that is known, else the path.
    #[must_use]
    pub fn object_of(&self, call: &Call) -> String {
        let named = || {
            let path: Vec<&str> = call.path.iter().map(String::as_str).collect();
            match path[..] {
                ["nodes", _, "qemu"] | ["nodes", _, "qemu", _, "clone"] => call.params.get("name").cloned(),
                ["nodes", _, "tasks", upid, ..] => self.tasks.get(upid).and_then(|t| self.name_in(&t.work)),
                _ => call.vmid().and_then(|vmid| self.name_of(vmid)).map(ToString::to_string),
            }
        };
        named().map_or_else(|| call.path_text(), |name| format!("machine {name}"))
    }

    /// A call without what differs from run to run: the UPID in a path is replaced by the kind of its task.
    #[must_use]
    pub fn operation_of(&self, call: &Call) -> String {
        let part = |part: &String| match self.tasks.get(part) {
            Some(task) => task.kind.clone(),
            None => part.clone(),
        };
        let path: Vec<String> = call.path.iter().map(part).collect();
        format!("{} /{}", call.method, path.join("/"))
    }

    /// The name of the machine that a task is about.
    fn name_in(&self, work: &Work) -> Option<String> {
        let vmid = match work {
            Work::Clone { config, .. } | Work::Create { config, .. } => return config.get("name").cloned(),
            Work::Undo { vmid, .. }
            | Work::Config { vmid, .. }
            | Work::Resize { vmid, .. }
            | Work::Template { vmid }
            | Work::Start { vmid }
            | Work::Stop { vmid }
            | Work::Reboot { vmid }
            | Work::Reset { vmid } => vmid,
            Work::Destroy { vmid, name, .. } => {
                return name.clone().or(self.name_of(*vmid).map(ToString::to_string));
            }
            Work::Download { .. } | Work::Delete { .. } => return None,
        };
        self.name_of(*vmid).map(ToString::to_string)
    }

    /// Ids of all virtual machines, templates included.
    #[must_use]
    pub fn vmids(&self) -> Vec<u32> {
        self.vms.keys().copied().collect()
    }

    /// Ids of all volumes of all storages.
    #[must_use]
    pub fn volumes(&self) -> Vec<String> {
        self.storages.values().flat_map(|s| s.volumes.values().map(|v| v.volid.clone())).collect()
    }
}

impl Vm {
    pub(super) fn is_template(&self) -> bool {
        self.config.get("template").is_some_and(|value| value == "1")
    }

    pub(super) fn lock(&self) -> Option<&str> {
        self.config.get("lock").map(String::as_str)
    }

    pub(super) fn name(&self, vmid: u32) -> String {
        self.config.get("name").cloned().unwrap_or_else(|| format!("VM {vmid}"))
    }

    /// A number of its configuration, or the value that Proxmox takes without it.
    pub(super) fn number(&self, key: &str, without: u64) -> u64 {
        self.config.get(key).and_then(|value| value.parse().ok()).unwrap_or(without)
    }

    pub(super) fn cpus(&self) -> u64 {
        self.number("sockets", 1) * self.number("cores", 1)
    }

    pub(super) fn memory(&self) -> u64 {
        self.number("memory", 512) << 20
    }

    /// Whether the agent is switched on in its configuration.
    pub(super) fn agent_enabled(&self) -> bool {
        self.config.get("agent").is_some_and(|value| {
            value.split(',').any(|part| matches!(part, "1" | "enabled=1" | "on" | "true" | "yes"))
        })
    }
}
