//! What Proxmox shows, parsed: machines in a list, a machine's configuration, disks, network cards, tasks.

use super::mark::{Mark, split_tags};
use crate::failure::{Class, Failure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

/// A machine in a list. Lists lag behind: only its id and node are to be relied on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Vm {
    pub(crate) vmid: u32,
    pub(crate) node: String,
    /// Missing while the machine is being cloned.
    pub(crate) name: Option<String>,
    pub(crate) tags: BTreeSet<String>,
    pub(crate) template: bool,
    /// A container takes an id too.
    pub(crate) container: bool,
}

/// A machine's configuration, key to value as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Config(pub(crate) BTreeMap<String, String>);

/// How a task stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskState {
    Running,
    Done,
    Failed(String),
}

impl Vm {
    /// One line of `/cluster/resources` or `/nodes/.../qemu`.
    pub(crate) fn read(value: &Value, node: Option<&str>) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let container = match text("type") {
            Some("qemu") | None => false,
            Some("lxc") => true,
            Some(_) => return None,
        };
        let vmid = number(value.get("vmid")?)?;
        // What Proxmox shows for a machine that has no name yet.
        let stand_in = format!("VM {vmid}");
        Some(Self {
            vmid,
            node: text("node").or(node)?.to_owned(),
            name: text("name").filter(|name| *name != stand_in).map(str::to_owned),
            tags: split_tags(text("tags").unwrap_or_default()),
            template: value.get("template").and_then(number) == Some(1),
            container,
        })
    }
}

impl Config {
    pub(crate) fn read(value: &Value) -> Self {
        let Some(object) = value.as_object() else { return Self::default() };
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Self(object.iter().map(|(key, value)| (key.clone(), text(value))).collect())
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    pub(crate) fn mark(&self) -> Option<Mark> {
        Mark::read(self.get("description")?)
    }

    /// Who holds it: `clone`, `create`, `backup`, ...
    pub(crate) fn lock(&self) -> Option<&str> {
        self.get("lock")
    }

    pub(crate) fn tags(&self) -> BTreeSet<String> {
        split_tags(self.get("tags").unwrap_or_default())
    }

    /// The disk that it boots from: the first of the boot order, else the first there is.
    pub(crate) fn root_disk(&self) -> Option<String> {
        let order = self.get("boot").and_then(|boot| property(boot, "order")).unwrap_or_default();
        let ordered = order.split(';').map(str::to_owned);
        let usual = ["scsi", "virtio", "sata", "ide"]
            .iter()
            .flat_map(|bus| (0..4).map(move |index| format!("{bus}{index}")));
        ordered.chain(usual).find(|key| self.get(key).is_some_and(is_disk))
    }

    /// Size of a disk in GiB, rounded down.
    pub(crate) fn disk_gb(&self, key: &str) -> Option<u32> {
        let size = property(self.get(key)?, "size")?;
        let digits: String = size.chars().take_while(char::is_ascii_digit).collect();
        let amount: u64 = digits.parse().ok()?;
        let bytes = match size.get(digits.len()..)? {
            "T" => amount << 40,
            "G" => amount << 30,
            "M" => amount << 20,
            "K" => amount << 10,
            _ => amount,
        };
        u32::try_from(bytes >> 30).ok()
    }

    /// Whether there is a cloud-init drive.
    pub(crate) fn has_cloud_init(&self) -> bool {
        self.0.iter().any(|(key, value)| is_drive(key) && value.contains("cloudinit"))
    }

    pub(crate) fn mac(&self) -> Option<String> {
        let card = self.get("net0")?;
        let mac = card.split(',').find_map(|part| part.split_once('=').map(|(_, mac)| mac))?;
        (mac.len() == 17 && mac.matches(':').count() == 5).then(|| mac.to_ascii_lowercase())
    }

    /// The address that cloud-init sets.
    pub(crate) fn static_address(&self) -> Option<IpAddr> {
        let text = self.get("ipconfig0")?;
        let address = property(text, "ip").or_else(|| property(text, "ip6"))?;
        address.split('/').next()?.parse().ok()
    }
}

/// The value of a key in `a=1,b=2`.
pub(crate) fn property<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.split(',')
        .find_map(|part| part.split_once('=').filter(|(name, _)| *name == key))
        .map(|(_, value)| value)
}

fn is_drive(key: &str) -> bool {
    ["scsi", "virtio", "sata", "ide"].iter().any(|bus| {
        key.strip_prefix(bus).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    })
}

fn is_disk(value: &str) -> bool {
    !value.contains("media=cdrom") && !value.contains("cloudinit") && value != "none"
}

/// A number that may be written as a text.
pub(crate) fn number(value: &Value) -> Option<u32> {
    match value {
        Value::Number(number) => u32::try_from(number.as_u64()?).ok(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(flag) => Some(u32::from(*flag)),
        _ => None,
    }
}

/// The node that a task runs on: `UPID:node:pid:pstart:starttime:type:id:user:`
pub(crate) fn task_node(upid: &str) -> Result<&str, Failure> {
    let mut parts = upid.split(':');
    match (parts.next(), parts.next(), parts.count()) {
        (Some("UPID"), Some(node), 5..) if !node.is_empty() => Ok(node),
        _ => Err(Failure::new(
            Class::Terminal,
            "OperationUnknown",
            format!("{upid:?} is not a Proxmox task"),
            "remove status.operation of the request",
        )),
    }
}

/// How long ago a task began, by its id.
pub(crate) fn task_age(upid: &str, now: jiff::Timestamp) -> Duration {
    let began = upid.split(':').nth(4).and_then(|hex| i64::from_str_radix(hex, 16).ok());
    let age = began.map_or(0, |began| now.as_second().saturating_sub(began));
    Duration::from_secs(u64::try_from(age).unwrap_or(0))
}

impl TaskState {
    pub(crate) fn read(value: &Value) -> Self {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        match (text("status"), text("exitstatus")) {
            (Some("stopped"), Some(exit)) if exit == "OK" || exit.starts_with("WARNINGS") => TaskState::Done,
            (Some("stopped"), exit) => {
                TaskState::Failed(exit.unwrap_or("it stopped without a word").to_owned())
            }
            _ => TaskState::Running,
        }
    }
}

/// Addresses of a guest as its agent shows them: no loopback, no link-local; IPv4 first.
pub(crate) fn agent_addresses(value: &Value) -> Vec<IpAddr> {
    let cards = value.get("result").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut found: Vec<IpAddr> = cards
        .iter()
        .filter(|card| card.get("name").and_then(Value::as_str) != Some("lo"))
        .filter_map(|card| card.get("ip-addresses")?.as_array())
        .flatten()
        .filter_map(|entry| entry.get("ip-address")?.as_str()?.parse().ok())
        .filter(|ip| usable(*ip))
        .collect();
    // A stable sort: the order of the cards stays.
    found.sort_by_key(IpAddr::is_ipv6);
    found
}

fn usable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn configurations_are_read() {
        let config = Config::read(
            &json!({"cores": 2, "boot": "order=ide2;virtio0;net0", "ide2": "none,media=cdrom",
            "virtio0": "fast:vm-1-disk-0,size=3584M", "scsi1": "fast:vm-1-disk-1,size=1T",
            "net0": "virtio=BC:24:11:0A:0B:0C,bridge=vmbr0,tag=12", "ipconfig0": "gw=10.0.0.1,ip=10.0.0.9/24"}),
        );
        assert_eq!(config.root_disk().as_deref(), Some("virtio0"));
        assert_eq!((config.disk_gb("virtio0"), config.disk_gb("scsi1")), (Some(3), Some(1024)));
        assert_eq!(config.mac().as_deref(), Some("bc:24:11:0a:0b:0c"));
        assert_eq!(config.static_address(), Some("10.0.0.9".parse().unwrap()));
        assert!(!config.has_cloud_init());
    }

    #[test]
    fn tasks_and_addresses() {
        let upid = "UPID:pve1:000A1B2C:00F1E2D3:6553F100:qmclone:9000:root@pam!butler:";
        assert_eq!(task_node(upid).unwrap(), "pve1");
        assert_eq!(
            task_age(upid, jiff::Timestamp::from_second(0x6553_F164).unwrap()),
            Duration::from_secs(100)
        );
        assert!(task_node("pve1").is_err());
        assert_eq!(TaskState::read(&json!({"status": "stopped", "exitstatus": "OK"})), TaskState::Done);
        assert_eq!(TaskState::read(&json!({"status": "running"})), TaskState::Running);
        let failed = TaskState::read(&json!({"status": "stopped", "exitstatus": "clone failed: x"}));
        assert_eq!(failed, TaskState::Failed("clone failed: x".to_owned()));
        let agent = json!({"result": [
            {"name": "lo", "ip-addresses": [{"ip-address": "127.0.0.1"}]},
            {"name": "eth0", "ip-addresses": [{"ip-address": "fe80::1"}, {"ip-address": "2001:db8::9"},
                {"ip-address": "169.254.3.4"}, {"ip-address": "10.0.0.9"}]}, {"name": "dummy0"}]});
        let expected: Vec<IpAddr> = vec!["10.0.0.9".parse().unwrap(), "2001:db8::9".parse().unwrap()];
        assert_eq!(agent_addresses(&agent), expected);
    }
}
