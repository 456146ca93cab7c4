//! The plan against tables, and from end to end against the dry run's model.

use super::mark::Mark;
use super::model::{Config, Vm};
use super::mutation::Verb;
use super::plan::{Identity, Observed, Plan, identify, missing_settings, plan, plan_removal};
use super::settings::Settings;
use crate::dry_run::Recording;
use crate::failure::Class;
use crate::seam::{MachineTarget, MachineWanted, Owner, Progress, StaticAddress};
use butler_api::{DiskSpec, MachineRole, ProviderConfigSpec};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

fn owner(uid: &str) -> Owner {
    Owner { cluster: "mgmt".into(), cluster_uid: "c1c1c1c1-0000".into(), object_uid: uid.into() }
}

fn config() -> ProviderConfigSpec {
    serde_json::from_value(json!({
        "provider": "proxmox", "credentialsRef": {"name": "x"},
        "proxmox": {"endpoint": "https://pve:8006", "nodes": ["pve1", "pve2"], "storage": "fast", "templateID": 9000,
            "vmidRange": {"start": 200, "end": 219}, "vlan": 12}
    }))
    .unwrap()
}

fn settings() -> Settings {
    Settings::read(&config()).unwrap().0
}

fn wanted(name: &str) -> MachineWanted {
    MachineWanted {
        owner: owner(&format!("uid-{name}")),
        name: name.into(),
        role: MachineRole::ControlPlane,
        cpu: 4,
        memory_mb: 8192,
        disk_gb: 40,
        extra_disks: vec![DiskSpec { size_gb: 50, storage_class: Some("slow".into()) }],
        image: None,
        user_data: None,
        static_address: Some(StaticAddress {
            address: "10.40.0.11".parse().unwrap(),
            bits: 24,
            gateway: Some("10.40.0.1".parse().unwrap()),
            nameservers: vec!["10.40.0.1".parse().unwrap(), "1.1.1.1".parse().unwrap()],
        }),
        labels: BTreeMap::new(),
    }
}

fn vm(vmid: u32, name: &str) -> Vm {
    Vm { vmid, node: "pve1".into(), name: (!name.is_empty()).then(|| name.to_owned()), ..Vm::default() }
}

fn template() -> Vm {
    Vm { template: true, ..vm(9000, "talos") }
}

fn seen(vms: Vec<Vm>) -> Observed {
    Observed { vms, online: vec!["pve1".into(), "pve2".into()], ..Observed::default() }
}

fn with(mut seen: Observed, vmid: u32, pairs: &[(&str, &str)]) -> Observed {
    let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    seen.configs.insert(vmid, Config(pairs.collect()));
    seen
}

fn created(wanted: &MachineWanted, seen: &Observed) -> (u32, String) {
    match plan(wanted, &settings(), seen).unwrap() {
        Plan::Do(mutation) => {
            assert!(matches!(mutation.verb, Verb::Clone { template: 9000, .. }), "{mutation:?}");
            (mutation.vmid, mutation.node)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn machines_have_places_of_their_own() {
    let empty = seen(vec![template()]);
    let table = [
        ("mgmt-cp-0", 200, "pve1"),
        ("mgmt-cp-1", 201, "pve2"),
        ("mgmt-cp-2", 202, "pve1"),
        ("mgmt-worker-0", 219, "pve1"),
        ("mgmt-worker-1", 218, "pve2"),
    ];
    for (name, vmid, node) in table {
        assert_eq!(created(&wanted(name), &empty), (vmid, node.to_owned()), "{name}");
    }
    // Foreign machines, containers and reservations of others are stepped over; one's own reservation is not.
    let mut busy = seen(vec![vm(200, "x"), Vm { container: true, ..vm(201, "y") }, template()]);
    busy.reserved = [(202, "somebody".to_owned()), (203, "uid-mgmt-cp-0".to_owned())].into();
    assert_eq!(created(&wanted("mgmt-cp-0"), &busy).0, 203);
    let half = Observed { online: vec!["pve2".into()], ..seen(vec![template()]) };
    assert_eq!(created(&wanted("mgmt-cp-0"), &half).1, "pve2");
    let full = seen((200..220).map(|id| vm(id, "x")).chain([template()]).collect());
    assert_eq!(plan(&wanted("mgmt-cp-0"), &settings(), &full).unwrap_err().reason, "NoFreeVmid");
}

#[test]
fn what_cannot_be_made_is_refused_by_name() {
    let reason = |wanted: &MachineWanted, seen: &Observed| {
        let failure = plan(wanted, &settings(), seen).unwrap_err();
        (failure.class, failure.reason)
    };
    let machine = wanted("mgmt-cp-0");
    assert_eq!(reason(&machine, &seen(vec![])), (Class::InvalidConfig, "TemplateMissing".into()));
    assert_eq!(
        reason(&machine, &seen(vec![vm(9000, "talos")])),
        (Class::InvalidConfig, "NotATemplate".into())
    );
    let down = Observed { online: vec![], ..seen(vec![template()]) };
    assert_eq!(reason(&machine, &down), (Class::Retryable, "NoNodeOnline".into()));
    let secret = MachineWanted { user_data: Some("machine: secret".into()), ..machine.clone() };
    assert_eq!(
        reason(&secret, &seen(vec![template()])),
        (Class::InvalidConfig, "UserDataUnsupported".into())
    );
    let by_name = MachineWanted { image: Some("talos".into()), ..machine.clone() };
    assert_eq!(created(&by_name, &seen(vec![template()])).0, 200);
    let unknown = MachineWanted { image: Some("debian".into()), ..machine };
    assert_eq!(reason(&unknown, &seen(vec![template()])), (Class::InvalidConfig, "TemplateMissing".into()));
}

#[test]
fn whose_a_machine_is() {
    let me = owner("me");
    let mine = Mark::new(&me, &BTreeMap::new()).describe();
    let others = Mark::new(&owner("other"), &BTreeMap::new()).describe();
    let list = || seen(vec![vm(200, "mgmt-cp-0"), vm(201, "")]);
    let ours = with(list(), 200, &[("name", "mgmt-cp-0"), ("description", &mine)]);
    assert_eq!(identify("mgmt-cp-0", &me, &ours).unwrap(), Identity::Ours(vm(200, "mgmt-cp-0")));
    // Renamed by hand, and still ours.
    let renamed = with(list(), 201, &[("name", "pet"), ("description", &mine)]);
    assert_eq!(identify("mgmt-cp-0", &me, &renamed).unwrap(), Identity::Ours(vm(201, "")));
    // Same name, no mark or another's mark: never adopted.
    for description in ["", "by hand", &others] {
        let foreign = with(list(), 200, &[("name", "mgmt-cp-0"), ("description", description)]);
        let failure = identify("mgmt-cp-0", &me, &foreign).unwrap_err();
        assert_eq!((failure.class, failure.reason.as_str()), (Class::Conflict, "NameTaken"));
        assert!(plan_removal("mgmt-cp-0", &me, &settings(), &foreign).unwrap().is_none());
    }
    // A clone that has just begun shows nothing: it may be ours, and is waited for.
    let young = with(list(), 201, &[("lock", "clone")]);
    assert_eq!(identify("mgmt-cp-0", &me, &young).unwrap(), Identity::Unclear(vm(201, "")));
    assert!(matches!(plan_removal("mgmt-cp-0", &me, &settings(), &young).unwrap(), Some(Plan::Wait(_))));
    // Unless this process knows that it is another machine's.
    let known = Observed { reserved: [(201, "other".to_owned())].into(), ..young };
    assert_eq!(identify("mgmt-cp-0", &me, &known).unwrap(), Identity::Nobody);
}

#[test]
fn a_clone_is_set_up_keeping_its_card_and_controller() {
    let template: Config = Config(
        [
            ("cores", "2"),
            ("memory", "2048"),
            ("scsihw", "virtio-scsi-single"),
            ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr7"),
            ("tags", "talos"),
            ("ide2", "none,media=cdrom"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
    );
    let machine = wanted("mgmt-cp-0");
    let all: BTreeMap<String, String> =
        missing_settings(&machine, &settings(), &template).into_iter().collect();
    assert_eq!(all["net0"], "virtio=BC:24:11:00:00:01,bridge=vmbr0,tag=12");
    assert_eq!(all["ipconfig0"], "ip=10.40.0.11/24,gw=10.40.0.1");
    assert_eq!(all["nameserver"], "10.40.0.1 1.1.1.1");
    assert_eq!(all["ide0"], "fast:cloudinit");
    assert_eq!(all["scsi1"], "slow:50");
    assert_eq!(all["tags"], "butler;butler-c1c1c1c1;butler-uidmgmtc;talos");
    assert!(!all.contains_key("scsihw") && !all.contains_key("ide2"));
    // Once it is so, nothing is missing, also in the words in which Proxmox repeats it.
    let mut after = template;
    after.0.extend(all);
    after.0.insert("scsi1".to_owned(), "slow:vm-200-disk-1,size=50G".to_owned());
    after.0.insert("ide0".to_owned(), "fast:vm-200-cloudinit,media=cdrom".to_owned());
    after.0.insert("memory".to_owned(), "current=8192".to_owned());
    after.0.insert("agent".to_owned(), "enabled=1".to_owned());
    assert_eq!(missing_settings(&machine, &settings(), &after), []);
}

#[tokio::test]
async fn a_dry_run_lists_what_would_happen() {
    let recording = Recording::new(&config()).unwrap();
    let hands = recording.infrastructure();
    let machine = wanted("mgmt-cp-0");
    let Progress::Ready(facts) = hands.machines.ensure(&machine, None).await.unwrap() else {
        panic!("not ready")
    };
    assert_eq!(facts.provider_id, "proxmox://pve1/qemu/200");
    assert_eq!(facts.addresses, ["10.40.0.11".parse::<std::net::IpAddr>().unwrap()]);
    let words: Vec<String> = recording.changes().iter().map(ToString::to_string).collect();
    let expected = [
        "machine mgmt-cp-0: clone template 9000 to VM 200 on pve1, disks on fast",
        "machine mgmt-cp-0: set up VM 200: 4 CPUs, 8192 MiB, on vmbr0 VLAN 12, address 10.40.0.11/24 by 10.40.0.1, \
         names by 10.40.0.1 1.1.1.1, tags of cluster and machine, disk scsi1 of 50 GiB on slow",
        "machine mgmt-cp-0: grow scsi0 of VM 200 to 40 GiB",
        "machine mgmt-cp-0: start VM 200",
    ];
    assert_eq!(words, expected);
    // Again: nothing more.
    hands.machines.ensure(&machine, None).await.unwrap();
    assert_eq!(recording.changes().len(), 4);
    let target =
        MachineTarget { owner: machine.owner.clone(), name: machine.name.clone(), provider_id: None };
    hands.machines.delete(&target, None).await.unwrap();
    assert_eq!(
        recording.changes()[4..].iter().map(|c| c.detail.as_str()).collect::<Vec<_>>(),
        ["stop VM 200", "delete VM 200 with its disks"]
    );
    assert_eq!(hands.machines.owned(None).await.unwrap(), []);
}

#[tokio::test]
async fn machines_of_a_dry_run_differ() {
    let recording = Recording::new(&config()).unwrap();
    let machines = recording.infrastructure().machines;
    let mut addresses = BTreeSet::new();
    for name in ["mgmt-cp-0", "mgmt-cp-1", "mgmt-worker-0"] {
        let machine = MachineWanted { static_address: None, ..wanted(name) };
        let Progress::Ready(facts) = machines.ensure(&machine, None).await.unwrap() else {
            panic!("not ready")
        };
        addresses.insert(facts.reach);
    }
    assert_eq!(addresses.len(), 3);
    assert_eq!(machines.owned(Some("c1c1c1c1-0000")).await.unwrap().len(), 3);
    assert_eq!(machines.owned(Some("else")).await.unwrap().len(), 0);
}
