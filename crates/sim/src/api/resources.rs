//! The resources of a simulated node: a handful of those that clients of Talos look at.

use crate::disks;
use crate::machine::{Machine, Role};
use crate::node::{self, Node};
use crate::pki;
use prost::Message;
use serde_json::{Value, json};

/// A kind of resource.
pub(super) struct Kind {
    pub(super) resource_type: &'static str,
    pub(super) namespace: &'static str,
    pub(super) display: &'static str,
    pub(super) aliases: &'static [&'static str],
    /// Name and JSON path, for tables.
    pub(super) columns: &'static [(&'static str, &'static str)],
    /// Shown to administrators only.
    pub(super) sensitive: bool,
    pub(super) make: fn(&Node, &Machine) -> Vec<Item>,
}

/// One resource: id, spec, and the spec as protobuf where clients read that.
pub(super) struct Item {
    pub(super) id: String,
    pub(super) spec: Value,
    pub(super) proto: Vec<u8>,
    /// The spec's text, where it is not just the spec as YAML.
    pub(super) text: Option<String>,
}

pub(super) const DEFINITIONS: &str = "ResourceDefinitions.meta.cosi.dev";

/// What is there. Everything else is refused by name.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        resource_type: "MachineStatuses.runtime.talos.dev",
        namespace: "runtime",
        display: "MachineStatus",
        aliases: &["machinestatus", "machinestatuses"],
        columns: &[("Stage", "{.stage}"), ("Ready", "{.status.ready}")],
        sensitive: false,
        make: machine_status,
    },
    Kind {
        resource_type: "MachineTypes.config.talos.dev",
        namespace: "config",
        display: "MachineType",
        aliases: &["machinetype", "machinetypes"],
        columns: &[("Type", "{}")],
        sensitive: false,
        make: machine_type,
    },
    Kind {
        resource_type: "HostnameStatuses.net.talos.dev",
        namespace: "network",
        display: "HostnameStatus",
        aliases: &["hostname", "hostnamestatus", "hostnamestatuses"],
        columns: &[("Hostname", "{.hostname}")],
        sensitive: false,
        make: hostname,
    },
    Kind {
        resource_type: "NodeAddresses.net.talos.dev",
        namespace: "network",
        display: "NodeAddress",
        aliases: &["nodeaddress", "nodeaddresses", "na"],
        columns: &[("Addresses", "{.addresses}")],
        sensitive: false,
        make: addresses,
    },
    Kind {
        resource_type: "Members.cluster.talos.dev",
        namespace: "cluster",
        display: "Member",
        aliases: &["member", "members"],
        columns: &[
            ("Hostname", "{.hostname}"),
            ("Machine Type", "{.machineType}"),
            ("OS", "{.operatingSystem}"),
            ("Addresses", "{.addresses}"),
        ],
        sensitive: false,
        make: members,
    },
    Kind {
        resource_type: "EtcdMembers.etcd.talos.dev",
        namespace: "etcd",
        display: "EtcdMember",
        aliases: &["etcdmember", "etcdmembers"],
        columns: &[("ID", "{.memberID}")],
        sensitive: false,
        make: etcd_member,
    },
    Kind {
        resource_type: "Services.v1alpha1.talos.dev",
        namespace: "runtime",
        display: "Service",
        aliases: &["service", "services", "svc"],
        columns: &[("Running", "{.running}"), ("Healthy", "{.healthy}"), ("Health Unknown", "{.unknown}")],
        sensitive: false,
        make: services,
    },
    Kind {
        resource_type: "MachineConfigs.config.talos.dev",
        namespace: "config",
        display: "MachineConfig",
        aliases: &["machineconfig", "machineconfigs", "mc"],
        columns: &[],
        sensitive: true,
        make: machine_config,
    },
    Kind {
        resource_type: "Disks.block.talos.dev",
        namespace: "runtime",
        display: "Disk",
        aliases: &["disk", "disks"],
        columns: &[
            ("Size", "{.pretty_size}"),
            ("Read Only", "{.readonly}"),
            ("Transport", "{.transport}"),
            ("Model", "{.model}"),
            ("Serial", "{.serial}"),
        ],
        sensitive: false,
        make: disks,
    },
    Kind {
        resource_type: "SystemDisks.block.talos.dev",
        namespace: "runtime",
        display: "SystemDisk",
        aliases: &["systemdisk", "systemdisks"],
        columns: &[("Disk", "{.diskID}")],
        sensitive: false,
        make: system_disk,
    },
    Kind {
        resource_type: DEFINITIONS,
        namespace: "meta",
        display: "ResourceDefinition",
        aliases: &["resourcedefinition", "resourcedefinitions", "rd"],
        columns: &[("Aliases", "{.aliases}")],
        sensitive: false,
        make: definitions,
    },
];

pub(super) fn kind(resource_type: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.resource_type == resource_type)
}

fn item(id: impl Into<String>, spec: Value) -> Item {
    Item { id: id.into(), spec, proto: Vec::new(), text: None }
}

#[derive(Clone, PartialEq, Message)]
struct UnmetProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    reason: String,
}

#[derive(Clone, PartialEq, Message)]
struct StatusProto {
    #[prost(bool, tag = "1")]
    ready: bool,
    #[prost(message, repeated, tag = "2")]
    unmet: Vec<UnmetProto>,
}

#[derive(Clone, PartialEq, Message)]
struct MachineStatusProto {
    #[prost(int32, tag = "1")]
    stage: i32,
    #[prost(message, optional, tag = "2")]
    status: Option<StatusProto>,
}

fn machine_status(_: &Node, machine: &Machine) -> Vec<Item> {
    let status = machine.status();
    let unmet: Vec<Value> =
        status.unmet.iter().map(|one| json!({"name": one.name, "reason": one.reason})).collect();
    let proto = MachineStatusProto {
        stage: status.stage.talos_number(),
        status: Some(StatusProto {
            ready: status.ready,
            unmet: status
                .unmet
                .iter()
                .map(|one| UnmetProto { name: one.name.to_string(), reason: one.reason.clone() })
                .collect(),
        }),
    };
    let spec = json!({
        "stage": status.stage.talos_name(),
        "status": {"ready": status.ready, "unmetConditions": unmet},
    });
    vec![Item { proto: proto.encode_to_vec(), ..item("machine", spec) }]
}

/// The configuration in force, as it was applied.
fn machine_config(_: &Node, machine: &Machine) -> Vec<Item> {
    let Some(config) = machine.config() else { return Vec::new() };
    let text = config.text().to_string();
    let proto = ConfigProto { yaml_marshalled: text.clone().into_bytes() };
    let spec = Value::from(text.clone());
    vec![Item { proto: proto.encode_to_vec(), text: Some(text), ..item("v1alpha1", spec) }]
}

#[derive(Clone, PartialEq, Message)]
struct ConfigProto {
    #[prost(bytes = "vec", tag = "1")]
    yaml_marshalled: Vec<u8>,
}

fn disks(node: &Node, _: &Machine) -> Vec<Item> {
    let spec = json!({
        "dev_path": disks::DEVICE,
        "size": disks::SIZE,
        "pretty_size": "137 GB",
        "io_size": 512,
        "sector_size": 512,
        "readonly": false,
        "cdrom": false,
        "model": disks::MODEL,
        "serial": format!("SIM-{}", node.options.address),
        "bus_path": disks::BUS_PATH,
        "sub_system": "/sys/class/block",
        "transport": "virtio",
    });
    vec![item(disks::NAME, spec)]
}

fn system_disk(_: &Node, machine: &Machine) -> Vec<Item> {
    let spec = json!({"diskID": disks::NAME, "devPath": disks::DEVICE});
    machine.disk.installed.iter().map(|_| item("system-disk", spec.clone())).collect()
}

fn machine_type(_: &Node, machine: &Machine) -> Vec<Item> {
    let name = match machine.role() {
        Some(Role::ControlPlane) => "controlplane",
        Some(Role::Worker) => "worker",
        None => return Vec::new(),
    };
    vec![item("machine-type", json!(name))]
}

fn hostname(node: &Node, _: &Machine) -> Vec<Item> {
    vec![item("hostname", json!({"hostname": node.hostname(), "domainname": ""}))]
}

fn addresses(node: &Node, _: &Machine) -> Vec<Item> {
    let address = format!("{}/8", node.options.address);
    let ids = ["default", "current", "routed", "accumulative"];
    ids.into_iter().map(|id| item(id, json!({"addresses": [address.clone()]}))).collect()
}

/// What discovery knows: every configured machine of this cluster whose API has come up.
fn members(node: &Node, machine: &Machine) -> Vec<Item> {
    let (Some(own), Some(world)) = (node::identity(machine), node.world.upgrade()) else { return Vec::new() };
    let nodes = world.all_nodes().into_iter();
    let known = nodes.filter(|other| {
        let machine = other.machine();
        node::identity(&machine).as_ref() == Some(&own) && machine.run.apid
    });
    let describe = |other: std::sync::Arc<Node>| {
        let machine = other.machine();
        let role = if machine.is_control_plane() { "controlplane" } else { "worker" };
        let spec = json!({
            "nodeId": pki::node_id(other.options.address),
            "addresses": [other.options.address.to_string()],
            "hostname": other.hostname(),
            "machineType": role,
            "operatingSystem": format!("Talos ({})", machine.version),
        });
        item(other.hostname(), spec)
    };
    known.map(describe).collect()
}

fn etcd_member(_: &Node, machine: &Machine) -> Vec<Item> {
    let member = machine.disk.etcd.into_iter();
    member.map(|member| item("local", json!({"memberID": format!("{:016x}", member.id)}))).collect()
}

fn services(node: &Node, _: &Machine) -> Vec<Item> {
    let services = node.journal.services().into_iter();
    let describe = |(id, record): (&str, crate::journal::ServiceRecord)| {
        let running = record.state == crate::machine::ServiceState::Running;
        let spec = json!({
            "running": running,
            "healthy": record.healthy.unwrap_or(false),
            "unknown": record.healthy.is_none(),
        });
        item(id, spec)
    };
    services.map(describe).collect()
}

#[derive(Clone, PartialEq, Message)]
struct DefinitionProto {
    #[prost(string, tag = "1")]
    resource_type: String,
    #[prost(string, tag = "2")]
    display_type: String,
    #[prost(string, tag = "3")]
    default_namespace: String,
    #[prost(string, repeated, tag = "4")]
    aliases: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    all_aliases: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    print_columns: Vec<ColumnProto>,
    #[prost(int32, tag = "7")]
    sensitivity: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ColumnProto {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    json_path: String,
}

fn definitions(_: &Node, _: &Machine) -> Vec<Item> {
    let describe = |kind: &Kind| {
        let aliases: Vec<String> = kind.aliases.iter().map(ToString::to_string).collect();
        let proto = DefinitionProto {
            resource_type: kind.resource_type.to_string(),
            display_type: kind.display.to_string(),
            default_namespace: kind.namespace.to_string(),
            aliases: Vec::new(),
            all_aliases: aliases.clone(),
            print_columns: kind
                .columns
                .iter()
                .map(|(name, path)| ColumnProto { name: (*name).to_string(), json_path: (*path).to_string() })
                .collect(),
            sensitivity: i32::from(kind.sensitive),
        };
        let columns: Vec<Value> =
            kind.columns.iter().map(|(name, path)| json!({"name": name, "jsonPath": path})).collect();
        let spec = json!({
            "type": kind.resource_type,
            "displayType": kind.display,
            "aliases": [],
            "allAliases": aliases,
            "defaultNamespace": kind.namespace,
            "printColumns": columns,
            "sensitivity": if kind.sensitive { "sensitive" } else { "" },
        });
        Item { proto: proto.encode_to_vec(), ..item(kind.resource_type.to_lowercase(), spec) }
    };
    KINDS.iter().map(describe).collect()
}
