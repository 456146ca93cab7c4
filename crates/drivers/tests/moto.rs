//! The AWS driver against moto, an independent reading of AWS' wire format.
//!
//! `cargo xtask conformance --only moto` starts moto and gives its URL in `BUTLER_MOTO_URL`; without it the test says that it is
//! skipped. moto proves shapes of requests and answers and the order of calls. It is laxer than AWS in idempotency, draining,
//! health and dependencies, which the simulated AWS is not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

use butler_api::{DiskSpec, MachineRole, ProviderConfigSpec};
use butler_drivers::{
    Call, Class, Connection, Credentials, Failure, Infrastructure, LoadBalancerFacts, LoadBalancerWanted,
    MachineFacts, MachineTarget, MachineWanted, Owner, PreflightWanted, Progress, Recorder, Verdict, connect,
    dry_run,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

const URL: &str = "BUTLER_MOTO_URL";
const REGION: &str = "eu-west-1";
const SECRET: &str = "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY";

#[derive(Default)]
struct Journal(Mutex<Vec<Call>>);

impl Recorder for Journal {
    fn record(&self, call: Call) {
        self.0.lock().unwrap().push(call);
    }
}

/// moto, with a network of its own in it.
struct Moto {
    url: String,
    http: reqwest::Client,
    journal: Arc<Journal>,
    subnets: Vec<String>,
    group: String,
}

impl Moto {
    async fn start() -> Option<Self> {
        let Ok(url) = std::env::var(URL) else {
            eprintln!("skipped: moto ({URL} is not set; run cargo xtask conformance --only moto)");
            return None;
        };
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        http.post(format!("{url}/moto-api/reset")).send().await.unwrap();
        let mut moto = Self { url, http, journal: Arc::default(), subnets: Vec::new(), group: String::new() };
        let vpc = moto.ask("ec2", "CreateVpc", &[("CidrBlock", "10.0.0.0/16")]).await;
        let vpc = find(&vpc, "vpcId");
        for (zone, cidr) in [("a", "10.0.1.0/24"), ("b", "10.0.2.0/24"), ("c", "10.0.3.0/24")] {
            let zone = format!("{REGION}{zone}");
            let params = [("VpcId", vpc.as_str()), ("CidrBlock", cidr), ("AvailabilityZone", zone.as_str())];
            let subnet = moto.ask("ec2", "CreateSubnet", &params).await;
            moto.subnets.push(find(&subnet, "subnetId"));
        }
        let params = [("GroupName", "nodes"), ("GroupDescription", "nodes"), ("VpcId", vpc.as_str())];
        moto.group = find(&moto.ask("ec2", "CreateSecurityGroup", &params).await, "groupId");
        let group = moto.group.clone();
        for (protocol, from, to, source) in
            [("tcp", "1", "65535", "10.0.0.0/16"), ("udp", "8472", "8472", "10.0.0.0/16")]
        {
            let params = [
                ("GroupId", group.as_str()),
                ("IpPermissions.1.IpProtocol", protocol),
                ("IpPermissions.1.FromPort", from),
                ("IpPermissions.1.ToPort", to),
                ("IpPermissions.1.IpRanges.1.CidrIp", source),
            ];
            moto.ask("ec2", "AuthorizeSecurityGroupIngress", &params).await;
        }
        // moto forgets the architecture of an image that is registered, and keeps that of one that is made from a machine.
        let params = [("ImageId", "ami-12c6146b"), ("MinCount", "1"), ("MaxCount", "1")];
        let template = find(&moto.ask("ec2", "RunInstances", &params).await, "instanceId");
        let params = [("InstanceId", template.as_str()), ("Name", "talos-v1.12.2-eu-west-1-amd64")];
        moto.ask("ec2", "CreateImage", &params).await;
        Some(moto)
    }

    /// A call of somebody else. moto looks at nothing but the name of the service in a signature.
    async fn ask(&self, service: &str, action: &str, params: &[(&str, &str)]) -> String {
        let version = if service == "ec2" { "2016-11-15" } else { "2015-12-01" };
        let mut form = vec![format!("Action={action}"), format!("Version={version}")];
        let escape = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
        form.extend(params.iter().map(|(key, value)| format!("{key}={}", escape(value))));
        let scope = format!("Credential=AKIA/20260101/{REGION}/{service}/aws4_request");
        let request = self
            .http
            .post(&self.url)
            .header("authorization", format!("AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0"))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form.join("&"));
        let response = request.send().await.unwrap();
        let (status, text) = (response.status(), response.text().await.unwrap());
        assert!(status.is_success(), "{action}: {text}");
        text
    }

    fn config(&self) -> ProviderConfigSpec {
        serde_json::from_value(json!({
            "provider": "aws", "credentialsRef": {"name": "x"},
            "aws": {"region": REGION, "subnetIDs": self.subnets, "securityGroupIDs": [self.group],
                "ami": "talos-v1.12.2-eu-west-1-amd64", "amiOwner": "self"}
        }))
        .unwrap()
    }

    fn hands(&self) -> Infrastructure {
        let keys = [("accessKeyID", "AKIDEXAMPLE"), ("secretAccessKey", SECRET)];
        self.hands_with(&keys).unwrap()
    }

    fn hands_with(&self, keys: &[(&str, &str)]) -> Result<Infrastructure, Failure> {
        let pairs = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let connection = Connection {
            base_url: Some(self.url.clone()),
            recorder: self.journal.clone(),
            ..Connection::default()
        };
        connect(&self.config(), &Credentials(pairs.collect()), &connection)
    }

    fn changes(&self) -> usize {
        self.journal.0.lock().unwrap().iter().filter(|call| call.mutates).count()
    }
}

/// The text of the first element of that name.
fn find(text: &str, name: &str) -> String {
    let document = roxmltree::Document::parse(text).unwrap();
    let node = document.descendants().find(|node| node.tag_name().name() == name);
    node.and_then(|node| node.text()).unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

fn owner(object: &str) -> Owner {
    Owner { cluster: "mgmt".to_owned(), cluster_uid: "c-1".to_owned(), object_uid: object.to_owned() }
}

fn machine(number: u32) -> MachineWanted {
    MachineWanted {
        owner: owner(&format!("machine-{number}")),
        name: format!("mgmt-cp-{number}"),
        role: MachineRole::ControlPlane,
        cpu: 4,
        memory_mb: 16384,
        disk_gb: 50,
        extra_disks: vec![DiskSpec { size_gb: 20, storage_class: None }],
        image: None,
        user_data: Some("#talos".to_owned()),
        static_address: None,
        labels: BTreeMap::from([("team".to_owned(), "infra".to_owned())]),
    }
}

fn balancer(targets: &[&MachineFacts], change: Value) -> LoadBalancerWanted {
    let targets: Vec<Value> = targets
        .iter()
        .map(|facts| json!({"ip": facts.addresses[0], "instanceID": facts.provider_id}))
        .collect();
    let mut spec = json!({
        "clusterName": "mgmt", "providerConfigRef": {"name": "aws"}, "targets": targets,
        "listeners": [{"port": 50000}, {"port": 50001, "targetPort": 50000, "role": "worker"}],
        "options": {"allowedCIDRs": ["196.45.28.20/32"]}
    });
    for (key, value) in change.as_object().unwrap() {
        spec[key] = value.clone();
    }
    LoadBalancerWanted {
        owner: owner("lb-1"),
        name: "mgmt-lb".to_owned(),
        spec: serde_json::from_value(spec).unwrap(),
    }
}

async fn make(moto: &Moto, wanted: &MachineWanted) -> Result<MachineFacts, Failure> {
    let hands = moto.hands();
    for _ in 0..50 {
        let before = moto.changes();
        let progress = hands.machines.ensure(wanted, None).await?;
        assert!(moto.changes() <= before + 1);
        if let Progress::Ready(facts) = progress {
            return Ok(facts);
        }
    }
    panic!("never ready");
}

async fn balance(moto: &Moto, wanted: &LoadBalancerWanted) -> Result<LoadBalancerFacts, Failure> {
    let hands = moto.hands().load_balancers.unwrap();
    for _ in 0..60 {
        let before = moto.changes();
        let progress = hands.ensure(wanted, None).await?;
        assert!(moto.changes() <= before + 1);
        if let Progress::Ready(facts) = progress {
            return Ok(facts);
        }
    }
    panic!("never ready: {:#?}", moto.journal.0.lock().unwrap().iter().rev().take(12).collect::<Vec<_>>());
}

async fn remove(moto: &Moto, wanted: &LoadBalancerWanted) {
    let hands = moto.hands().load_balancers.unwrap();
    for _ in 0..60 {
        if let Progress::Ready(()) = hands.delete(wanted, None).await.unwrap() {
            return;
        }
    }
    panic!("never gone");
}

async fn terminate(moto: &Moto, wanted: &MachineWanted) {
    let target = MachineTarget { owner: wanted.owner.clone(), name: wanted.name.clone(), provider_id: None };
    for _ in 0..50 {
        if let Progress::Ready(()) = moto.hands().machines.delete(&target, None).await.unwrap() {
            assert_eq!(moto.hands().machines.find(&target).await.unwrap(), None);
            return;
        }
    }
    panic!("never gone");
}

/// One moto has one state, so this is one test.
#[tokio::test]
async fn moto_understands_the_driver() {
    let Some(moto) = Moto::start().await else { return };
    preflight(&moto).await;
    let machines = machines(&moto).await;
    load_balancer(&moto, &machines).await;
    strangers(&moto).await;
    role(&moto).await;
    for number in 0..3 {
        terminate(&moto, &machine(number)).await;
    }
    assert_eq!(moto.hands().machines.owned(None).await.unwrap(), []);
    let journal = format!("{:?}", moto.journal.0.lock().unwrap());
    assert!(journal.contains("RunInstances") && !journal.contains(SECRET), "a secret was written down");
}

async fn preflight(moto: &Moto) {
    let wanted = PreflightWanted {
        cluster_uid: Some("c-1".to_owned()),
        machines: vec![machine(0), machine(1), machine(2)],
        load_balancer: Some(balancer(&[], json!({}))),
        ..PreflightWanted::default()
    };
    let findings = moto.hands().preflight.check(&wanted).await;
    let checks: Vec<&str> = findings.iter().map(|finding| finding.check.as_str()).collect();
    assert!(findings.len() > 10 && checks.contains(&"quota of load balancers"), "{checks:?}");
    // moto knows the quotas of other services only.
    let skipped: Vec<&str> =
        findings.iter().filter(|one| one.verdict == Verdict::Skip).map(|one| one.check.as_str()).collect();
    assert!(skipped.iter().all(|check| *check == "quota of virtual CPUs"), "{findings:#?}");
    let good = |verdict| matches!(verdict, Verdict::Pass | Verdict::Skip);
    assert!(findings.iter().all(|finding| good(finding.verdict)), "{findings:#?}");
    assert_eq!(moto.changes(), 0);
}

async fn machines(moto: &Moto) -> Vec<MachineFacts> {
    let mut all = Vec::new();
    for number in 0..3 {
        all.push(make(moto, &machine(number)).await.unwrap());
    }
    let zones: Vec<&str> = all.iter().filter_map(|facts| facts.zone.as_deref()).collect();
    assert_eq!(zones, ["eu-west-1a", "eu-west-1b", "eu-west-1c"]);
    assert!(all[0].provider_id.starts_with("aws:///eu-west-1a/i-") && all[0].running);
    assert!(all[0].addresses[0].to_string().starts_with("10.0.1."), "{:?}", all[0].addresses);
    let changes = moto.changes();
    assert_eq!(make(moto, &machine(0)).await.unwrap(), all[0]);
    assert_eq!(moto.changes(), changes, "a repeated call changed something");
    // The disks are there, with what was asked for, and tagged.
    let volumes = moto
        .ask("ec2", "DescribeVolumes", &[("Filter.1.Name", "tag:team"), ("Filter.1.Value.1", "infra")])
        .await;
    for size in ["50", "20"] {
        assert_eq!(volumes.matches(&format!("<size>{size}</size>")).count(), 3, "{volumes}");
    }
    let owned = moto.hands().machines.owned(Some("c-1")).await.unwrap();
    assert_eq!(owned.len(), 3);
    assert_eq!(
        owned.iter().filter(|one| one.owner == owner("machine-1") && one.name == "mgmt-cp-1").count(),
        1
    );
    assert_eq!(moto.hands().machines.owned(Some("somebody-else")).await.unwrap(), []);
    // One that was stopped by hand is started again.
    let id = all[1].provider_id.rsplit('/').next().unwrap();
    moto.ask("ec2", "StopInstances", &[("InstanceId.1", id)]).await;
    assert!(make(moto, &machine(1)).await.unwrap().running);
    all
}

async fn load_balancer(moto: &Moto, machines: &[MachineFacts]) {
    let recording = dry_run::Recording::new(&moto.config()).unwrap();
    let all: Vec<&MachineFacts> = machines.iter().collect();
    let whole = balancer(&all, json!({}));
    recording.infrastructure().load_balancers.unwrap().ensure(&whole, None).await.unwrap();
    // The endpoint is there before any target.
    let first = balance(moto, &balancer(&[], json!({}))).await.unwrap();
    assert!(!first.endpoint.is_empty() && first.listeners.len() == 3);
    for count in 1..=3 {
        let facts = balance(moto, &balancer(&all[..count], json!({}))).await.unwrap();
        assert_eq!((facts.listeners[0].port, facts.listeners[0].registered.len()), (6443, count));
        assert_eq!((facts.listeners[1].registered.len(), facts.listeners[2].registered.len()), (count, 0));
    }
    let changes = moto.changes();
    let facts = balance(moto, &whole).await.unwrap();
    assert_eq!(moto.changes(), changes, "a repeated call changed something");
    assert_eq!(facts.outputs.kubernetes_endpoint, Some(format!("https://{}:6443", facts.endpoint)));
    let recorded: Vec<String> = {
        let calls = moto.journal.0.lock().unwrap();
        calls
            .iter()
            .filter_map(butler_drivers::PlannedChange::from_call)
            .map(|change| change.to_string())
            .collect()
    };
    for planned in
        recording.changes().iter().map(ToString::to_string).filter(|planned| planned.contains("create it"))
    {
        assert!(recorded.contains(&planned), "{planned} is not in {recorded:#?}");
    }
    drift(moto, &whole, &facts).await;
    // A control plane is replaced.
    let less = balance(moto, &balancer(&all[1..], json!({}))).await.unwrap();
    assert_eq!(less.listeners[0].registered.len(), 2);
    let owned = moto.hands().load_balancers.unwrap().owned(Some("c-1")).await.unwrap();
    let kinds: Vec<&str> = owned.iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(kinds, ["load balancer", "target group", "target group", "target group", "security group"]);
    remove(moto, &whole).await;
    assert_eq!(moto.hands().load_balancers.unwrap().owned(None).await.unwrap(), []);
    let changes = moto.changes();
    remove(moto, &whole).await;
    assert_eq!(moto.changes(), changes);
}

/// What is changed by hand is put right; what is added by hand stays and is reported.
async fn drift(moto: &Moto, whole: &LoadBalancerWanted, facts: &LoadBalancerFacts) {
    let (arn, group) = (facts.resource_id.as_str(), facts.listeners[0].resource_id.as_str());
    let listeners = moto.ask("elasticloadbalancing", "DescribeListeners", &[("LoadBalancerArn", arn)]).await;
    let listener = find(&listeners, "ListenerArn");
    moto.ask("elasticloadbalancing", "DeleteListener", &[("ListenerArn", &listener)]).await;
    let params = [("TargetGroupArn", group), ("HealthCheckIntervalSeconds", "30")];
    moto.ask("elasticloadbalancing", "ModifyTargetGroup", &params).await;
    let key = "preserve_client_ip.enabled";
    let params =
        [("TargetGroupArn", group), ("Attributes.member.1.Key", key), ("Attributes.member.1.Value", "true")];
    moto.ask("elasticloadbalancing", "ModifyTargetGroupAttributes", &params).await;
    let before = moto.changes();
    assert_eq!(balance(moto, whole).await.unwrap().listeners.len(), 3);
    assert_eq!(moto.changes(), before + 3, "one repair for each");
    let params = [
        ("ImageId", "ami-12c6146b"),
        ("MinCount", "1"),
        ("MaxCount", "1"),
        ("SubnetId", moto.subnets[0].as_str()),
    ];
    let foreign = find(&moto.ask("ec2", "RunInstances", &params).await, "instanceId");
    let params = [
        ("TargetGroupArn", group),
        ("Targets.member.1.Id", foreign.as_str()),
        ("Targets.member.1.Port", "6443"),
    ];
    moto.ask("elasticloadbalancing", "RegisterTargets", &params).await;
    let before = moto.changes();
    let facts = balance(moto, whole).await.unwrap();
    assert_eq!((facts.foreign_targets.as_slice(), moto.changes()), (&[foreign][..], before));
    assert_eq!(facts.listeners[0].registered.len(), 3);
}

/// Something of the same name that is not ours.
async fn strangers(moto: &Moto) {
    let params = [
        ("Name", "mgmt-lb"),
        ("Type", "network"),
        ("Subnets.member.1", moto.subnets[0].as_str()),
        ("Tags.member.1.Key", "Name"),
        ("Tags.member.1.Value", "theirs"),
    ];
    let stranger =
        find(&moto.ask("elasticloadbalancing", "CreateLoadBalancer", &params).await, "LoadBalancerArn");
    let before = moto.changes();
    let wanted = balancer(&[], json!({}));
    let failure = balance(moto, &wanted).await.unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Conflict, "NameTaken"));
    remove(moto, &wanted).await;
    assert_eq!(moto.changes(), before);
    moto.ask("elasticloadbalancing", "DeleteLoadBalancer", &[("LoadBalancerArn", &stranger)]).await;
    // The region has no such image.
    let lacking = MachineWanted { image: Some("ami-00000000000000000".to_owned()), ..machine(7) };
    let failure = make(moto, &lacking).await.unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::InvalidConfig, "NoSuchImage"));
}

/// By a role, which is taken on first.
async fn role(moto: &Moto) {
    let keys = [
        ("accessKeyID", "AKIDEXAMPLE"),
        ("secretAccessKey", SECRET),
        ("roleARN", "arn:aws:iam::123456789012:role/deploy"),
    ];
    let hands = moto.hands_with(&keys).unwrap();
    assert_eq!(hands.machines.owned(Some("c-1")).await.unwrap().len(), 3);
    let calls: Vec<String> =
        moto.journal.0.lock().unwrap().iter().rev().take(3).map(|call| call.operation.clone()).collect();
    assert!(calls.contains(&"AssumeRole".to_owned()), "{calls:?}");
}
