//! Tests of the plans of machines.

use super::model::{Image, Instance, State, Volume};
use super::mutation::{Launch, Verb};
use super::plan::{Observed, Part, Plan, plan, plan_removal};
use crate::aws::settings::Settings;
use crate::aws::tags;
use crate::failure::Class;
use crate::seam::{MachineWanted, Owner};
use butler_api::{DiskSpec, MachineRole, ProviderConfigSpec};
use serde_json::json;
use std::collections::BTreeMap;

fn settings() -> Settings {
    let config: ProviderConfigSpec = serde_json::from_value(json!({
        "provider": "aws", "credentialsRef": {"name": "x"},
        "aws": {"region": "eu-west-1", "vpcID": "vpc-1", "subnetIDs": ["subnet-a", "subnet-b"], "securityGroupIDs": ["sg-1"],
            "ami": "ami-1"}
    }))
    .unwrap();
    Settings::read(&config).unwrap()
}

fn wanted(name: &str) -> MachineWanted {
    MachineWanted {
        owner: Owner { cluster: "mgmt".into(), cluster_uid: "c-1".into(), object_uid: format!("o-{name}") },
        name: name.to_owned(),
        role: MachineRole::ControlPlane,
        cpu: 4,
        memory_mb: 16384,
        disk_gb: 100,
        extra_disks: vec![DiskSpec { size_gb: 20, storage_class: Some("io2".to_owned()) }],
        image: None,
        user_data: Some("machine: {token: hunter2}".to_owned()),
        static_address: None,
        labels: BTreeMap::from([("team".to_owned(), "infra".to_owned())]),
    }
}

fn instance(wanted: &MachineWanted, id: &str, state: State) -> Instance {
    Instance {
        id: id.to_owned(),
        state,
        zone: "eu-west-1a".to_owned(),
        private: Some("10.0.1.10".parse().unwrap()),
        public: Some("52.1.2.3".parse().unwrap()),
        tags: tags::ours(&wanted.owner, &wanted.name, &wanted.labels),
        ..Instance::default()
    }
}

fn image() -> Image {
    Image {
        id: "ami-1".to_owned(),
        architecture: "x86_64".to_owned(),
        root_device: "/dev/xvda".to_owned(),
        ..Image::default()
    }
}

fn empty() -> Observed {
    Observed { named: Some(Vec::new()), images: Some(vec![image()]), ..Observed::default() }
}

fn launch(wanted: &MachineWanted, seen: &Observed) -> Launch {
    match plan(wanted, &settings(), seen).unwrap() {
        Plan::Do(mutation) => match mutation.verb {
            Verb::Launch(launch) => *launch,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_needed_is_looked_at_first() {
    let wanted = wanted("mgmt-cp-0");
    let mut seen = Observed::default();
    assert_eq!(plan(&wanted, &settings(), &seen).unwrap(), Plan::Look(Part::Named));
    seen.named = Some(Vec::new());
    assert_eq!(plan(&wanted, &settings(), &seen).unwrap(), Plan::Look(Part::Images));
    seen.images = Some(Vec::new());
    let failure = plan(&wanted, &settings(), &seen).unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::InvalidConfig, "NoSuchImage"));
    assert!(failure.message.contains("eu-west-1"), "{failure}");
}

#[test]
fn a_launch_says_everything_at_once() {
    let wanted = wanted("mgmt-cp-1");
    let launch = launch(&wanted, &empty());
    let mutation =
        super::mutation::Mutation { name: wanted.name.clone(), verb: Verb::Launch(Box::new(launch)) };
    let wire = mutation.wire();
    let get = |key: &str| wire.params.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
    assert_eq!(wire.action, "RunInstances");
    assert_eq!(get("InstanceType"), Some("m6i.xlarge"));
    assert_eq!(
        get("NetworkInterface.1.SubnetId"),
        Some("subnet-b"),
        "the second machine is in the second subnet"
    );
    assert_eq!(get("NetworkInterface.1.SecurityGroupId.1"), Some("sg-1"));
    assert_eq!(get("BlockDeviceMapping.1.DeviceName"), Some("/dev/xvda"));
    assert_eq!(get("BlockDeviceMapping.1.Ebs.VolumeSize"), Some("100"));
    assert_eq!(
        (get("BlockDeviceMapping.2.DeviceName"), get("BlockDeviceMapping.2.Ebs.VolumeType")),
        (Some("/dev/sdb"), Some("io2"))
    );
    assert_eq!(get("BlockDeviceMapping.2.Ebs.DeleteOnTermination"), Some("true"));
    assert_eq!(get("MetadataOptions.HttpTokens"), Some("required"));
    assert!(get("ClientToken").is_some_and(|token| token.len() == 64));
    for kind in ["instance", "volume", "network-interface"] {
        assert!(
            wire.params.iter().any(|(key, value)| key.ends_with(".ResourceType") && value == kind),
            "{kind}"
        );
    }
    let tagged = |key: &str| wire.params.iter().any(|(_, value)| value == key);
    assert!(tagged("kubernetes.io/cluster/mgmt") && tagged(tags::OBJECT_UID) && tagged("team"));
    let words = format!("{:?} {}", mutation, mutation.change());
    assert!(words.contains("m6i.xlarge") && !words.contains("hunter2"), "{words}");
}

/// A lost answer, or a look that is behind, asks with the same token; a new instance after an ended one with another.
#[test]
fn tokens_follow_the_machine() {
    let (a, b) = (wanted("mgmt-cp-0"), wanted("mgmt-cp-1"));
    assert_eq!(launch(&a, &empty()).token, launch(&a, &empty()).token);
    assert_ne!(launch(&a, &empty()).token, launch(&b, &empty()).token);
    let ended = Observed { ours: vec![instance(&a, "i-1", State::Terminated)], ..empty() };
    assert_ne!(launch(&a, &ended).token, launch(&a, &empty()).token);
}

/// An instance that dies while it starts is told, by what it died of, before another is launched.
#[test]
fn a_death_is_told_before_the_next_launch() {
    let wanted = wanted("mgmt-cp-0");
    let dead = |code: &str| {
        let why = Some((code.to_owned(), format!("{code}: words of AWS")));
        let dead = Instance { why, ..instance(&wanted, "i-1", State::Terminated) };
        Observed { ours: vec![dead], ..empty() }
    };
    let cases = [
        ("Server.InsufficientInstanceCapacity", Class::Quota, "NoCapacity"),
        ("Client.VolumeLimitExceeded", Class::Quota, "QuotaExceeded"),
        ("Client.InvalidKMSKey.InvalidState", Class::InvalidConfig, "DiskUnusable"),
        ("Client.InternalError", Class::Retryable, "InstanceDied"),
    ];
    for (code, class, reason) in cases {
        let Plan::Died(id, failure) = plan(&wanted, &settings(), &dead(code)).unwrap() else {
            panic!("{code}: not told")
        };
        assert_eq!((id.as_str(), failure.class, failure.reason.as_str()), ("i-1", class, reason));
        assert!(failure.message.contains("words of AWS") && failure.message.contains("i-1"), "{failure}");
        let told = Observed { told: [id].into(), ..dead(code) };
        assert_ne!(launch(&wanted, &told).token, launch(&wanted, &empty()).token, "and then made anew");
    }
    launch(&wanted, &dead("Client.UserInitiatedShutdown"));
}

#[test]
fn states_lead_to_running() {
    let wanted = wanted("mgmt-cp-0");
    let step = |state| {
        let seen = Observed { ours: vec![instance(&wanted, "i-1", state)], ..Observed::default() };
        plan(&wanted, &settings(), &seen).unwrap()
    };
    assert!(matches!(step(State::Pending), Plan::Wait(_)));
    assert!(matches!(step(State::Stopping), Plan::Wait(_)));
    assert!(matches!(step(State::ShuttingDown), Plan::Wait(_)));
    assert!(matches!(step(State::Stopped), Plan::Do(m) if m.verb == Verb::Start { id: "i-1".to_owned() }));
    let Plan::Settled(settled) = step(State::Running) else { panic!("not settled") };
    let facts = settled.facts();
    assert_eq!(facts.provider_id, "aws:///eu-west-1a/i-1");
    assert_eq!(facts.addresses[0].to_string(), "10.0.1.10", "the private address comes first");
    assert_eq!(facts.reach.unwrap().to_string(), "52.1.2.3");
    assert_eq!(super::instance_id(&facts.provider_id), "i-1");
}

#[test]
fn a_foreigner_is_neither_adopted_nor_removed() {
    let wanted = wanted("mgmt-cp-0");
    let foreign = Instance {
        tags: BTreeMap::from([("Name".to_owned(), wanted.name.clone())]),
        ..instance(&wanted, "i-9", State::Running)
    };
    let seen = Observed { named: Some(vec![foreign.clone()]), ..empty() };
    let failure = plan(&wanted, &settings(), &seen).unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Conflict, "NameTaken"));
    let seen = Observed { ours: vec![foreign], volumes: Some(Vec::new()), ..Observed::default() };
    assert_eq!(plan_removal(&wanted.name, &wanted.owner, &seen), Plan::Gone);
}

/// A second look by name that shows what the first one, by tags, did not show yet.
#[test]
fn ours_is_found_by_its_name_too() {
    let wanted = wanted("mgmt-cp-0");
    let seen = Observed { named: Some(vec![instance(&wanted, "i-1", State::Pending)]), ..empty() };
    assert!(matches!(plan(&wanted, &settings(), &seen).unwrap(), Plan::Wait(_)));
}

#[test]
fn removal_takes_the_disks_along() {
    let wanted = wanted("mgmt-cp-0");
    let step = |ours: Vec<Instance>, volumes: Option<Vec<Volume>>| {
        plan_removal(&wanted.name, &wanted.owner, &Observed { ours, volumes, ..Observed::default() })
    };
    let volume = |state: &str| Some(vec![Volume { id: "vol-1".to_owned(), state: state.to_owned() }]);
    let running = vec![instance(&wanted, "i-1", State::Running)];
    assert!(matches!(step(running, None), Plan::Do(m) if m.verb == Verb::Terminate { id: "i-1".to_owned() }));
    let going = vec![instance(&wanted, "i-1", State::ShuttingDown)];
    assert!(matches!(step(going, None), Plan::Wait(_)));
    let gone = || vec![instance(&wanted, "i-1", State::Terminated)];
    assert_eq!(step(gone(), None), Plan::Look(Part::Volumes));
    assert!(matches!(step(gone(), volume("in-use")), Plan::Wait(_)));
    assert!(
        matches!(step(gone(), volume("available")), Plan::Do(m) if m.verb == Verb::DeleteVolume { id: "vol-1".to_owned() })
    );
    assert_eq!(step(gone(), Some(Vec::new())), Plan::Gone);
}

#[test]
fn an_image_of_another_architecture_is_refused() {
    let arm = Image { architecture: "arm64".to_owned(), ..image() };
    let seen = Observed { images: Some(vec![arm]), ..empty() };
    let failure = plan(&wanted("mgmt-cp-0"), &settings(), &seen).unwrap_err();
    assert_eq!(failure.reason, "ArchitectureMismatch");
}
