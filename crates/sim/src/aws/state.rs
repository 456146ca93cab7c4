//! What a simulated AWS account is at one moment. A clone of it is a snapshot; `advance` and `handle` are all that change it.

use super::rules::Rule;
use super::site::{AwsQuotas, AwsSecret, AwsSite};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

pub(super) type Tags = BTreeMap<String, String>;

/// Everything that the account knows.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub(super) seed: u64,
    pub(super) draws: u64,
    /// Scales every delay.
    pub(super) speed: f64,
    pub(super) region: String,
    pub(super) account: String,
    pub(super) client: IpAddr,
    pub(super) nat: IpAddr,
    pub(super) keys: BTreeMap<String, Key>,
    /// By ARN, with the external id that its trust asks for.
    pub(super) roles: BTreeMap<String, Option<String>>,
    pub(super) denied: BTreeSet<String>,
    pub(super) quotas: AwsQuotas,
    pub(super) fate: Fate,
    pub(super) vpcs: BTreeMap<String, Vpc>,
    pub(super) subnets: BTreeMap<String, Subnet>,
    pub(super) groups: BTreeMap<String, Group>,
    pub(super) images: BTreeMap<String, Image>,
    pub(super) instances: BTreeMap<String, Instance>,
    pub(super) volumes: BTreeMap<String, Volume>,
    /// Network interfaces of load balancers.
    pub(super) interfaces: BTreeMap<String, Interface>,
    /// Public addresses that are in use.
    pub(super) public: BTreeSet<Ipv4Addr>,
    /// What was launched with a client token: a hash of the request, and its instances.
    pub(super) tokens: BTreeMap<String, (String, Vec<String>)>,
    pub(super) balancers: BTreeMap<String, Balancer>,
    pub(super) target_groups: BTreeMap<String, TargetGroup>,
    pub(super) listeners: BTreeMap<String, Listener>,
    /// What the site brought along: not left behind by anybody.
    pub(super) furniture: BTreeSet<String>,
    /// Milliseconds that what is shown is behind.
    pub(super) lag: u64,
    /// When what is shown late was made.
    pub(super) born: BTreeMap<String, u64>,
}

/// What becomes of load balancers that are made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fate {
    /// They turn active.
    #[default]
    Active,
    /// They are provisioning for ever.
    NeverActive,
    /// They fail.
    Failed,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) secret: AwsSecret,
    pub(super) token: Option<AwsSecret>,
    /// Seconds.
    pub(super) expires: Option<u64>,
    pub(super) arn: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Vpc {
    pub(super) cidr: (Ipv4Addr, u8),
    pub(super) tags: Tags,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Subnet {
    pub(super) vpc: String,
    pub(super) zone: String,
    pub(super) cidr: (Ipv4Addr, u8),
    pub(super) public: bool,
    /// At most so many addresses can be taken.
    pub(super) room: u32,
    pub(super) taken: BTreeSet<Ipv4Addr>,
    pub(super) tags: Tags,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) vpc: String,
    /// By rule id.
    pub(super) ingress: BTreeMap<String, Rule>,
    pub(super) tags: Tags,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Image {
    pub(super) name: String,
    pub(super) owner: String,
    pub(super) architecture: String,
    pub(super) talos_version: String,
    pub(super) size: u32,
    pub(super) tags: Tags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Power {
    Pending,
    Running,
    ShuttingDown,
    Terminated,
    Stopping,
    Stopped,
}

impl Power {
    pub(super) fn name(self) -> &'static str {
        match self {
            Power::Pending => "pending",
            Power::Running => "running",
            Power::ShuttingDown => "shutting-down",
            Power::Terminated => "terminated",
            Power::Stopping => "stopping",
            Power::Stopped => "stopped",
        }
    }

    pub(super) fn code(self) -> u16 {
        match self {
            Power::Pending => 0,
            Power::Running => 16,
            Power::ShuttingDown => 32,
            Power::Terminated => 48,
            Power::Stopping => 64,
            Power::Stopped => 80,
        }
    }

    /// It is gone, or on its way.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Power::ShuttingDown | Power::Terminated)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Instance {
    pub(super) kind: String,
    pub(super) image: String,
    pub(super) subnet: String,
    pub(super) private: Ipv4Addr,
    /// Has one while it runs, if it is to have one at all.
    pub(super) public: Option<Ipv4Addr>,
    pub(super) wants_public: bool,
    pub(super) groups: Vec<String>,
    pub(super) volumes: Vec<(String, String)>,
    pub(super) profile: Option<String>,
    pub(super) token: Option<String>,
    pub(super) user_data: Option<AwsSecret>,
    pub(super) launched: u64,
    pub(super) power: Power,
    /// When the present change of power is through.
    pub(super) due: Option<u64>,
    /// Nobody sees it before this.
    pub(super) visible: u64,
    /// Its machine is in the world.
    pub(super) booted: bool,
    pub(super) source_dest_check: bool,
    pub(super) protected: bool,
    pub(super) tags: Tags,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Volume {
    pub(super) size: u32,
    pub(super) kind: String,
    pub(super) zone: String,
    pub(super) encrypted: bool,
    /// The instance that has it.
    pub(super) attached: Option<String>,
    pub(super) dies_with_instance: bool,
    pub(super) created: u64,
    pub(super) tags: Tags,
}

/// A network interface of a load balancer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Interface {
    pub(super) subnet: String,
    pub(super) private: Ipv4Addr,
    pub(super) public: Option<Ipv4Addr>,
    pub(super) groups: Vec<String>,
    pub(super) description: String,
    /// When it goes; its load balancer is gone already.
    pub(super) due: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BalancerState {
    Provisioning,
    Active,
    Failed,
}

/// A network load balancer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Balancer {
    pub(super) name: String,
    pub(super) dns: String,
    pub(super) internal: bool,
    pub(super) vpc: String,
    /// By subnet, with its network interface.
    pub(super) subnets: BTreeMap<String, String>,
    pub(super) groups: Vec<String>,
    pub(super) attributes: Tags,
    pub(super) tags: Tags,
    pub(super) state: BalancerState,
    pub(super) due: Option<u64>,
    pub(super) visible: u64,
    pub(super) created: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct TargetGroup {
    pub(super) name: String,
    pub(super) protocol: String,
    pub(super) port: u16,
    pub(super) vpc: String,
    pub(super) by_instance: bool,
    pub(super) check: HealthCheck,
    pub(super) attributes: Tags,
    pub(super) tags: Tags,
    /// By id and port.
    pub(super) targets: BTreeMap<(String, u16), Registration>,
    /// A listener that is gone still holds it until then.
    pub(super) released: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HealthCheck {
    pub(super) protocol: String,
    /// `traffic-port`, or a number.
    pub(super) port: String,
    pub(super) path: Option<String>,
    pub(super) interval: u32,
    pub(super) timeout: u32,
    pub(super) healthy: u32,
    pub(super) unhealthy: u32,
    pub(super) codes: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Registration {
    /// Until then.
    Beginning(u64),
    Through,
    /// Until then.
    Draining(u64),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Listener {
    pub(super) balancer: String,
    pub(super) port: u16,
    pub(super) protocol: String,
    pub(super) target_group: String,
    pub(super) attributes: Tags,
    pub(super) tags: Tags,
}

/// What has to happen to machines, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Switch on; an address that is there already keeps its disk.
    PowerOn { instance: String, boot: Boot },
    /// Pull the plug.
    PowerOff { address: IpAddr },
    /// Off and on again.
    Cycle { address: IpAddr },
    /// Take it away, with its disk.
    Remove { address: IpAddr },
    /// A public address leads to this one, or to nobody.
    Lead { public: IpAddr, to: Option<IpAddr> },
}

/// How a machine comes up.
#[derive(Debug, Clone, PartialEq)]
pub struct Boot {
    pub address: IpAddr,
    pub talos_version: String,
    pub hostname: String,
    pub user_data: Option<AwsSecret>,
    /// It was on before: the machine is in the world, switched off.
    pub known: bool,
}

impl State {
    /// The state at the beginning of time.
    #[must_use]
    pub fn new(site: &AwsSite, speed: f64, seed: u64) -> Self {
        let mut state = Self {
            seed,
            draws: 0,
            speed,
            region: site.region.clone(),
            account: site.account.clone(),
            client: site.client,
            nat: site.nat,
            keys: BTreeMap::new(),
            roles: site.roles.iter().map(|role| (role.arn.clone(), role.external_id.clone())).collect(),
            denied: site.denied.iter().cloned().collect(),
            quotas: site.quotas.clone(),
            fate: Fate::default(),
            vpcs: BTreeMap::new(),
            subnets: BTreeMap::new(),
            groups: BTreeMap::new(),
            images: BTreeMap::new(),
            instances: BTreeMap::new(),
            volumes: BTreeMap::new(),
            interfaces: BTreeMap::new(),
            public: BTreeSet::new(),
            tokens: BTreeMap::new(),
            balancers: BTreeMap::new(),
            target_groups: BTreeMap::new(),
            listeners: BTreeMap::new(),
            furniture: BTreeSet::new(),
            lag: 0,
            born: BTreeMap::new(),
        };
        super::furnish::furnish(&mut state, site);
        state
    }

    /// The next random number: the same for the same seed and history.
    pub(super) fn draw(&mut self) -> u64 {
        self.draws += 1;
        Random::new(self.seed ^ self.draws.wrapping_mul(0xd6e8_feb8_6659_fd93)).next()
    }

    /// An id as the vendor gives them: `i-0123456789abcdef0`.
    pub(super) fn id(&mut self, prefix: &str) -> String {
        format!("{prefix}-0{:016x}", self.draw())
    }

    /// Milliseconds that something takes at this state's speed.
    pub(super) fn scaled(&mut self, seconds: f64) -> u64 {
        let jitter = crate::delays::jitter(self.seed, Random::new(self.draw()).fraction());
        let millis = seconds * 1000.0 * self.speed.max(0.0) * jitter;
        std::time::Duration::try_from_secs_f64(millis / 1000.0)
            .map_or(u64::MAX / 4, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 4))
    }

    /// The name of an instance, or its id.
    pub(super) fn called(&self, instance: &str) -> String {
        let name = self.instances.get(instance).and_then(|instance| instance.tags.get("Name"));
        name.cloned().unwrap_or_else(|| instance.to_string())
    }

    /// What somebody has made and not taken away again, as `kind name`. What the site had is not among it.
    #[must_use]
    pub fn inventory(&self) -> Vec<String> {
        let ours = |id: &&String| !self.furniture.contains(*id);
        let mut all = Vec::new();
        for (id, instance) in &self.instances {
            if instance.power != Power::Terminated && ours(&id) {
                all.push(format!("instance {}", self.called(id)));
            }
        }
        all.extend(self.volumes.keys().filter(ours).map(|id| format!("volume {id}")));
        all.extend(
            self.groups.iter().filter(|(id, _)| ours(id)).map(|(_, g)| format!("security-group {}", g.name)),
        );
        all.extend(
            self.balancers
                .iter()
                .filter(|(id, _)| ours(id))
                .map(|(_, b)| format!("load-balancer {}", b.name)),
        );
        let groups = self.target_groups.iter().filter(|(id, _)| ours(id));
        all.extend(groups.map(|(_, group)| format!("target-group {}", group.name)));
        all.extend(self.listeners.values().map(|listener| format!("listener {}", listener.port)));
        all
    }

    /// The names of all instances that are not on their way out.
    #[must_use]
    pub fn instance_names(&self) -> Vec<String> {
        let there = self.instances.iter().filter(|(_, instance)| !instance.power.is_over());
        there.map(|(id, _)| self.called(id)).collect()
    }

    /// How often an instance was launched, by name: those that have ended count too.
    #[must_use]
    pub fn launched(&self) -> BTreeMap<String, usize> {
        let mut times = BTreeMap::new();
        for id in self.instances.keys().filter(|id| !self.furniture.contains(*id)) {
            *times.entry(self.called(id)).or_default() += 1;
        }
        times
    }

    /// How many volumes there are.
    #[must_use]
    pub fn volume_count(&self) -> usize {
        self.volumes.len()
    }

    /// From now on load balancers that are made fare like this.
    pub fn set_fate(&mut self, fate: Fate) {
        self.fate = fate;
    }

    /// From now on an action (`ec2:RunInstances`, `elasticloadbalancing:*`) is denied, or no longer.
    pub fn deny(&mut self, action: &str, denied: bool) {
        if denied {
            self.denied.insert(action.to_string());
        } else {
            self.denied.remove(action);
        }
    }

    /// The quotas of the account.
    pub fn quotas_mut(&mut self) -> &mut AwsQuotas {
        &mut self.quotas
    }

    /// Access keys are good until this second; `None` for ever.
    pub fn expire_keys(&mut self, at: Option<u64>) {
        self.keys.values_mut().for_each(|key| key.expires = at);
    }

    /// At most so many addresses can be taken in a subnet.
    pub fn set_room(&mut self, subnet: &str, room: u32) {
        if let Some(subnet) = self.subnets.get_mut(subnet) {
            subnet.room = room;
        }
    }

    /// Takes an image away, as if this region had never had it.
    pub fn remove_image(&mut self, id: &str) {
        self.images.remove(id);
    }

    /// The machine of the world that belongs to the instance of this name.
    #[must_use]
    pub fn machine_of(&self, name: &str) -> Option<IpAddr> {
        let named = |(id, instance): &(&String, &Instance)| {
            !instance.power.is_over() && (self.called(id) == name || *id == name)
        };
        self.instances.iter().find(named).map(|(_, instance)| IpAddr::V4(instance.private))
    }

    /// Instances with a machine of the world behind them, and its address.
    #[must_use]
    pub fn machines(&self) -> Vec<(String, IpAddr)> {
        let booted = self.instances.iter().filter(|(_, instance)| instance.booted);
        booted.map(|(id, instance)| (id.clone(), IpAddr::V4(instance.private))).collect()
    }
}
