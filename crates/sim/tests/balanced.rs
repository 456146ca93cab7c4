//! A cluster behind a simulated network load balancer: its API is reached through it, workers join through it, and it goes on
//! when a control plane dies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

use base64::Engine;
use butler_sim::aws::{AwsHandle, AwsSite, Service};
use butler_sim::{DataCentre, DataCentreOptions, Stage};
use butler_talos::client::{Credentials, Node, Settings, Wait, bootstrap_when_ready, wait_until_etcd};
use butler_talos::{
    ClusterIntent, Endpoint, NodeIntent, Patch, Role, SecretsBundle, TalosVersion, Talosconfig,
    admin_kubeconfig, render,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::api::{Api, ListParams};
use kube::{Client, Config};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

const PATIENCE: Duration = Duration::from_secs(60);

/// The text of the first element of this name.
fn element(xml: &str, name: &str) -> String {
    let begin =
        xml.find(&format!("<{name}>")).unwrap_or_else(|| panic!("no {name} in {xml}")) + name.len() + 2;
    let end = xml[begin..].find(&format!("</{name}>")).unwrap();
    xml[begin..begin + end].to_string()
}

struct Site {
    centre: DataCentre,
    aws: AwsHandle,
    dns: String,
    group: String,
    secrets: SecretsBundle,
    /// The Kubernetes API answers those without credentials.
    anonymous: bool,
}

impl Site {
    /// An account with an internal balancer for the Kubernetes API, checked by HTTPS.
    async fn start(anonymous: bool) -> Self {
        let centre = DataCentre::start(DataCentreOptions::for_aws(AwsSite::example())).await.unwrap();
        let aws = centre.aws().unwrap();
        let site = AwsSite::example();
        let subnets: Vec<&str> = site.subnets.iter().map(|subnet| subnet.id.as_str()).collect();
        let secrets = SecretsBundle::generate(Timestamp::now()).unwrap().bundle;
        let mut this = Self { centre, aws, dns: String::new(), group: String::new(), secrets, anonymous };
        let made = this.elb(
            "CreateLoadBalancer",
            &[
                ("Name", "c1-api"),
                ("Type", "network"),
                ("Scheme", "internal"),
                ("Subnets.member.1", subnets[0]),
                ("Subnets.member.2", subnets[1]),
                ("Subnets.member.3", subnets[2]),
            ],
        );
        let arn = element(&made, "LoadBalancerArn");
        this.dns = element(&made, "DNSName");
        let made = this.elb(
            "CreateTargetGroup",
            &[
                ("Name", "c1-api"),
                ("Protocol", "TCP"),
                ("Port", "6443"),
                ("VpcId", &site.vpcs[0].id),
                ("HealthCheckProtocol", "HTTPS"),
                ("HealthCheckPath", "/readyz"),
                ("Matcher.HttpCode", "200"),
                ("HealthCheckIntervalSeconds", "10"),
                ("HealthCheckTimeoutSeconds", "5"),
                ("HealthyThresholdCount", "2"),
                ("UnhealthyThresholdCount", "2"),
            ],
        );
        this.group = element(&made, "TargetGroupArn");
        let group = this.group.clone();
        this.elb(
            "CreateListener",
            &[
                ("LoadBalancerArn", &arn),
                ("Protocol", "TCP"),
                ("Port", "6443"),
                ("DefaultActions.member.1.Type", "forward"),
                ("DefaultActions.member.1.TargetGroupArn", &group),
            ],
        );
        this.elb(
            "ModifyLoadBalancerAttributes",
            &[
                ("LoadBalancerArn", &arn),
                ("Attributes.member.1.Key", "load_balancing.cross_zone.enabled"),
                ("Attributes.member.1.Value", "true"),
            ],
        );
        this
    }

    fn elb(&self, action: &str, params: &[(&str, &str)]) -> String {
        let answer = self.aws.call(Service::Elb, action, params);
        assert_eq!(answer.status, 200, "{action}: {}", answer.body);
        answer.body
    }

    fn config(&self, role: Role, name: &str) -> String {
        let endpoint = Endpoint::parse(&format!("https://{}:6443", self.dns)).unwrap();
        let version = TalosVersion::parse("v1.9.2").unwrap();
        let contract = version.contract();
        let mut cluster = ClusterIntent::new("c1", endpoint, version);
        // Without it, a worker has no other way to the API than the balancer.
        cluster.kube_prism_port = None;
        let config = render(&cluster, &NodeIntent::new(role, name), &self.secrets).unwrap();
        if !self.anonymous || role == Role::Worker {
            return config.to_yaml();
        }
        let patch = "cluster: {apiServer: {extraArgs: {anonymous-auth: 'true'}}}";
        Patch::parse("anonymous", patch).unwrap().apply(&config, contract).unwrap().to_yaml()
    }

    /// A machine that boots with its configuration.
    async fn machine(&self, role: Role, name: &str, zone: usize) -> (String, IpAddr) {
        let site = AwsSite::example();
        let data = base64::engine::general_purpose::STANDARD.encode(self.config(role, name));
        let params = [
            ("ImageId", site.images[0].id.as_str()),
            ("InstanceType", "m5.xlarge"),
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("SubnetId", site.subnets[zone].id.as_str()),
            ("SecurityGroupId.1", site.groups[0].id.as_str()),
            ("TagSpecification.1.ResourceType", "instance"),
            ("TagSpecification.1.Tag.1.Key", "Name"),
            ("TagSpecification.1.Tag.1.Value", name),
            ("UserData", &data),
        ];
        let mut changes = self.centre.world().follow();
        let answer = self.aws.call(Service::Ec2, "RunInstances", &params);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let address = self.aws.state().machine_of(name).unwrap();
        let there = async {
            while self.centre.world().node(address).is_none() {
                changes.recv().await;
            }
        };
        tokio::time::timeout(PATIENCE, there).await.expect("the machine comes");
        (element(&answer.body, "instanceId"), address)
    }

    fn register(&self, id: &str) {
        self.elb("RegisterTargets", &[("TargetGroupArn", &self.group), ("Targets.member.1.Id", id)]);
    }

    /// Waits until so many targets are healthy.
    async fn healthy(&self, wanted: usize) {
        let mut watch = self.aws.balancers().watch();
        let so = || {
            let told = self.elb("DescribeTargetHealth", &[("TargetGroupArn", &self.group)]);
            told.matches("<State>healthy</State>").count() == wanted
        };
        let wait = async {
            while !so() {
                let _ = tokio::time::timeout(Duration::from_millis(100), watch.changed()).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| {
            panic!("{}", self.elb("DescribeTargetHealth", &[("TargetGroupArn", &self.group)]))
        });
    }

    async fn bootstrap(&self, address: IpAddr) {
        let proxy = Some(self.centre.proxy_url().parse().unwrap());
        let settings = Settings { proxy, ..Settings::default() };
        let (now, hour) = (Timestamp::now(), Duration::from_secs(3600));
        let config = Talosconfig::generate("c1", Vec::new(), &self.secrets, now, hour).unwrap();
        let credentials = Credentials::from_context(config.get(None).unwrap()).unwrap();
        let node = Node::new(SocketAddr::new(address, 50000).into(), Arc::new(settings));
        let node = node.with_credentials(credentials);
        let wait = || Wait::new("etcd", (std::time::Instant::now() + PATIENCE).into());
        bootstrap_when_ready(&node, &wait()).await.unwrap();
        wait_until_etcd(&node, &wait()).await.unwrap();
    }

    /// The administrator's client, by the balancer's name.
    async fn admin(&self) -> Client {
        let server = Endpoint::parse(&format!("https://{}:6443", self.dns)).unwrap();
        let life = Duration::from_secs(3600);
        let text = admin_kubeconfig("c1", &server, &self.secrets, Timestamp::now(), life, None).unwrap();
        let kubeconfig = kube::config::Kubeconfig::from_yaml(text.expose()).unwrap();
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
        config.cluster_url = format!("https://{}", self.way().await).parse().unwrap();
        config.tls_server_name = Some(self.dns.clone());
        config.connect_timeout = Some(Duration::from_secs(5));
        Client::try_from(config).unwrap()
    }

    /// A port of this computer that leads to the balancer, wherever its name leads.
    async fn way(&self) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (fabric, dns) = (self.centre.fabric().clone(), self.dns.clone());
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let Some(to) = fabric.resolve(&dns) else { continue };
                let Ok(mut far) = fabric.dial_from_outside(SocketAddr::new(to, 6443)) else { continue };
                tokio::spawn(async move {
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        address
    }
}

/// Nodes that are registered, as the API tells it.
async fn nodes(client: &Client, wanted: usize) {
    let api: Api<KubeNode> = Api::all(client.clone());
    let wait = async {
        loop {
            if api.list(&ListParams::default()).await.is_ok_and(|nodes| nodes.items.len() == wanted) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the nodes register");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_reached_through_its_balancer_and_survives_a_control_plane() {
    let site = Site::start(true).await;
    let mut machines = Vec::new();
    for number in 0..3 {
        let machine = site.machine(Role::ControlPlane, &format!("cp-{number}"), number).await;
        site.register(&machine.0);
        machines.push(machine);
    }
    site.machine(Role::Worker, "worker-0", 0).await;
    site.healthy(0).await;
    site.bootstrap(machines[0].1).await;
    site.healthy(3).await;
    let calls = site.centre.gate().calls();
    assert!(!calls.iter().any(|logged| logged.call.operation.contains("readyz")), "checks are no calls");
    let client = site.admin().await;
    nodes(&client, 4).await;

    let dead = site.centre.world().node(machines[1].1).unwrap();
    dead.power_off().await;
    assert_eq!(dead.stage(), Stage::Off);
    site.healthy(2).await;
    for _ in 0..6 {
        // Each by a connection of its own.
        let client = site.admin().await;
        Api::<KubeNode>::all(client).list(&ListParams::default()).await.unwrap();
    }
    site.centre.stop().await;
}

/// Talos lets nobody ask without credentials: a check by HTTPS gets 401, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn without_anonymous_access_a_check_by_https_never_passes() {
    let site = Site::start(false).await;
    let (id, address) = site.machine(Role::ControlPlane, "cp-0", 0).await;
    site.register(&id);
    site.bootstrap(address).await;
    let refused = async {
        while !site
            .elb("DescribeTargetHealth", &[("TargetGroupArn", &site.group)])
            .contains("Target.ResponseCodeMismatch")
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("the check is answered, and not with 200");
    site.healthy(0).await;
    site.centre.stop().await;
}
