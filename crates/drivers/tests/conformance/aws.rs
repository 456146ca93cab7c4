//! The suite's world for AWS: the simulated one, at AWS' own names, reached through its proxy.

use crate::ground::{Ground, machine};
use crate::harness::{Balancing, Harness, Setup};
use butler_api::ProviderConfigSpec;
use butler_drivers::{Connection, Credentials, Infrastructure, MachineWanted, StaticAddress, connect};
use butler_sim::Proxy;
use butler_sim::aws::{Aws, AwsHandle, AwsSite, Service, State};
use butler_sim::balancer::BalancersState;
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) const KEY: &str = "AKIAREHEARSALEXAMPLE";
pub(crate) const SECRET: &str = "rehearsal/secret+of+nobody/0123456789abc";

pub(crate) struct AwsWorld {
    ground: Ground,
    pub(crate) aws: AwsHandle,
    proxy: Proxy,
}

pub(crate) fn config() -> ProviderConfigSpec {
    let site = AwsSite::example();
    let ids = |all: Vec<String>| json!(all);
    serde_json::from_value(json!({
        "provider": "aws", "credentialsRef": {"name": "x"},
        "aws": {"region": site.region, "vpcID": site.vpcs[0].id, "publicIP": false, "ami": site.images[0].id,
            "subnetIDs": ids(site.subnets.iter().map(|subnet| subnet.id.clone()).collect()),
            "securityGroupIDs": ids(site.groups.iter().map(|group| group.id.clone()).collect())}
    }))
    .unwrap()
}

pub(crate) fn keys(more: &[(&str, &str)]) -> Credentials {
    let all = [("accessKeyID", KEY), ("secretAccessKey", SECRET)];
    Credentials(all.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
}

impl AwsWorld {
    pub(crate) async fn with(site: AwsSite) -> Self {
        let ground = Ground::new();
        let state = State::new(&site, 0.0, Ground::SEED);
        let aws = Aws::resume(&site, state, ground.place(), BalancersState::default()).unwrap();
        let proxy = Proxy::open((Ipv4Addr::LOCALHOST, 0).into(), ground.fabric.clone()).await.unwrap();
        Self { ground, aws, proxy }
    }

    fn connection(&self) -> Connection {
        Connection { proxy: Some(format!("http://{}", self.proxy.address())), ..self.ground.connection() }
    }

    pub(crate) fn hands(&self, config: &ProviderConfigSpec, keys: &Credentials) -> Infrastructure {
        connect(config, keys, &self.connection()).unwrap()
    }

    fn inventory(&self, fits: impl Fn(&str) -> bool) -> Vec<String> {
        let mut all = self.aws.state().inventory();
        all.retain(|one| fits(one));
        all.sort();
        all
    }

    /// A call of somebody at the console. Gives the text of the first element of that name.
    pub(crate) fn console(
        &self,
        service: Service,
        action: &str,
        params: &[(&str, &str)],
        name: &str,
    ) -> String {
        let answer = self.aws.call(service, action, params);
        assert_eq!(answer.status, 200, "{action}: {}", answer.body);
        let document = roxmltree::Document::parse(&answer.body).unwrap();
        let found = document.descendants().find(|node| node.tag_name().name() == name);
        found.and_then(|node| node.text()).unwrap_or_default().to_owned()
    }

    /// A machine of somebody else, running.
    fn stranger(&self, name: &str) -> String {
        let site = AwsSite::example();
        let params = [
            ("ImageId", site.images[0].id.as_str()),
            ("InstanceType", "m6i.large"),
            ("MinCount", "1"),
            ("MaxCount", "1"),
            ("SubnetId", site.subnets[1].id.as_str()),
            ("SecurityGroupId.1", site.groups[0].id.as_str()),
            ("TagSpecification.1.ResourceType", "instance"),
            ("TagSpecification.1.Tag.1.Key", "Name"),
            ("TagSpecification.1.Tag.1.Value", name),
        ];
        let id = self.console(Service::Ec2, "RunInstances", &params, "instanceId");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        self.aws.change(|state| drop(state.advance(u64::try_from(now).unwrap() + 60_000)));
        id
    }

    pub(crate) fn target_group(&self, name: &str) -> String {
        let params = [("Names.member.1", name)];
        self.console(Service::Elb, "DescribeTargetGroups", &params, "TargetGroupArn")
    }
}

fn is_machines(part: &str) -> bool {
    part.starts_with("instance ") || part.starts_with("volume ")
}

impl Harness for AwsWorld {
    async fn start(setup: Setup) -> Self {
        let world = Self::with(AwsSite::example()).await;
        for name in &setup.foreign {
            world.stranger(name);
        }
        if setup.foreign_balancer {
            let subnet = AwsSite::example().subnets[0].id.clone();
            let params = [
                ("Name", "butler-lb"),
                ("Type", "network"),
                ("Subnets.member.1", subnet.as_str()),
                ("Tags.member.1.Key", "Name"),
                ("Tags.member.1.Value", "theirs"),
            ];
            world.console(Service::Elb, "CreateLoadBalancer", &params, "LoadBalancerArn");
        }
        world
    }

    fn config() -> ProviderConfigSpec {
        config()
    }

    fn ground(&self) -> &Ground {
        &self.ground
    }

    fn infrastructure(&self) -> Infrastructure {
        self.hands(&config(), &keys(&[]))
    }

    fn wanted(&self, name: &str, number: u8) -> MachineWanted {
        // A machine is in the subnet that has the number of its name.
        let place: u8 = name.rsplit('-').next().unwrap().parse().unwrap();
        let address = Ipv4Addr::new(10, 0, place % 3 + 1, 30 + number).into();
        let address = StaticAddress { address, bits: 24, gateway: None, nameservers: Vec::new() };
        machine(name, number, address)
    }

    fn secret(&self) -> &'static str {
        SECRET
    }

    fn machines(&self) -> Vec<String> {
        self.inventory(|part| part.starts_with("instance "))
            .iter()
            .filter_map(|part| part.strip_prefix("instance "))
            .map(str::to_owned)
            .collect()
    }

    fn volumes(&self) -> usize {
        self.inventory(|part| part.starts_with("volume ")).len()
    }

    async fn stop(self) {
        self.proxy.close().await;
        self.aws.stop().await;
        self.ground.world.stop().await;
    }
}

impl Balancing for AwsWorld {
    fn parts(&self) -> Vec<String> {
        self.inventory(|part| !is_machines(part))
    }

    fn remove_listener(&self) {
        let params = [("Names.member.1", "butler-lb")];
        let balancer = self.console(Service::Elb, "DescribeLoadBalancers", &params, "LoadBalancerArn");
        let params = [("LoadBalancerArn", balancer.as_str())];
        let listener = self.console(Service::Elb, "DescribeListeners", &params, "ListenerArn");
        self.console(Service::Elb, "DeleteListener", &[("ListenerArn", &listener)], "RequestId");
    }

    fn add_stranger(&self) -> String {
        let id = self.stranger("somebody");
        let group = self.target_group("butler-6443-6443");
        let params = [
            ("TargetGroupArn", group.as_str()),
            ("Targets.member.1.Id", id.as_str()),
            ("Targets.member.1.Port", "6443"),
        ];
        self.console(Service::Elb, "RegisterTargets", &params, "RequestId");
        id
    }
}
