//! The account over its port: signatures, faults, machines, connections through a load balancer, branches.

use super::*;
use crate::aws::AwsHandle;
use crate::aws::sign::{Arrived, sign_for_test};
use crate::datacentre::{BranchOptions, DataCentre, DataCentreOptions};
use crate::gate::FaultScript;
use crate::infrastructure::calling;
use crate::machine::Stage;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::AsyncReadExt;

const PATIENCE: Duration = Duration::from_secs(30);
const KEY: &str = "AKIAREHEARSALEXAMPLE";
const SECRET: &str = "rehearsal/secret+of+nobody/0123456789abc";
const REGION: &str = "eu-central-1";

struct Client {
    key: String,
    secret: String,
    token: Option<String>,
    ahead: i64,
}

impl Default for Client {
    fn default() -> Self {
        Self { key: KEY.to_string(), secret: SECRET.to_string(), token: None, ahead: 0 }
    }
}

fn encode(text: &str) -> String {
    let keep = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

impl Client {
    /// Status and body; `None` when the connection was cut.
    async fn call(
        &self,
        centre: &DataCentre,
        service: Service,
        action: &str,
        params: &[(&str, &str)],
    ) -> Option<(u16, String)> {
        let own = [("Action", action), ("Version", model::version(service))];
        let pairs: Vec<String> =
            own.iter().chain(params).map(|(k, v)| format!("{}={}", encode(k), encode(v))).collect();
        let body = pairs.join("&");
        let host = format!("{}.{REGION}.amazonaws.com", service.name());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let stamp = jiff::Timestamp::from_second(i64::try_from(now).unwrap() + self.ahead).unwrap();
        let stamp = stamp.strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut headers =
            BTreeMap::from([("host".to_string(), host.clone()), ("x-amz-date".to_string(), stamp)]);
        headers.extend(self.token.clone().map(|token| ("x-amz-security-token".to_string(), token)));
        let arrived =
            Arrived { method: "POST", path: "/", query: "", headers: &headers, body: body.as_bytes() };
        let signed = sign_for_test(&arrived, &self.key, &self.secret, (REGION, service.name()));
        let mut request = http::Request::post("/").header("authorization", signed);
        for (name, value) in &headers {
            request = request.header(name, value);
        }
        let address = SocketAddr::new(centre.fabric().resolve(&host).unwrap(), 443);
        let stream = centre.fabric().dial(address).unwrap();
        let answer = calling::send(stream, &centre.ca_pem(), &host, request.body(body).unwrap()).await?;
        Some((answer.status().as_u16(), String::from_utf8(answer.into_body().to_vec()).unwrap()))
    }

    async fn ok(
        &self,
        centre: &DataCentre,
        service: Service,
        action: &str,
        params: &[(&str, &str)],
    ) -> String {
        let (status, body) = self.call(centre, service, action, params).await.unwrap();
        assert_eq!(status, 200, "{action}: {body}");
        body
    }

    async fn code(&self, centre: &DataCentre, service: Service, action: &str) -> (u16, String) {
        let (status, body) = self.call(centre, service, action, &[]).await.unwrap();
        (status, element(&body, "Code").unwrap_or_default())
    }
}

async fn started(faults: &str) -> DataCentre {
    let faults = FaultScript::parse(faults).unwrap();
    let mut site = AwsSite::example();
    site.roles.push(crate::aws::SiteRole {
        arn: "arn:aws:iam::123456789012:role/butler".to_string(),
        external_id: Some("x-1".to_string()),
    });
    DataCentre::start(DataCentreOptions { faults, ..DataCentreOptions::for_aws(site) }).await.unwrap()
}

#[tokio::test]
async fn only_the_right_signature_of_a_known_key_is_believed() {
    let centre = started("").await;
    let good = Client::default();
    let told = good.ok(&centre, Service::Sts, "GetCallerIdentity", &[]).await;
    assert_eq!(element(&told, "Arn").unwrap(), "arn:aws:iam::123456789012:user/butler");
    let wrong = Client { secret: "another".to_string(), ..Client::default() };
    assert_eq!(wrong.code(&centre, Service::Ec2, "DescribeVpcs").await, (401, "AuthFailure".to_string()));
    assert_eq!(wrong.code(&centre, Service::Elb, "DescribeLoadBalancers").await.1, "SignatureDoesNotMatch");
    let nobody = Client { key: "AKIANOBODY".to_string(), ..Client::default() };
    assert_eq!(
        nobody.code(&centre, Service::Sts, "GetCallerIdentity").await,
        (403, "InvalidClientTokenId".to_string())
    );
    let late = Client { ahead: -3600, ..Client::default() };
    assert_eq!(late.code(&centre, Service::Ec2, "DescribeVpcs").await.1, "RequestExpired");
    let extra = Client { token: Some("t".to_string()), ..Client::default() };
    assert_eq!(extra.code(&centre, Service::Sts, "GetCallerIdentity").await.1, "InvalidClientTokenId");
    let aws = centre.aws().unwrap();
    aws.change(|state| state.expire_keys(Some(1)));
    assert_eq!(
        good.code(&centre, Service::Elb, "DescribeLoadBalancers").await,
        (403, "ExpiredToken".to_string())
    );
    centre.stop().await;
}

#[tokio::test]
async fn a_role_is_taken_with_its_external_id_and_its_keys_work() {
    let centre = started("").await;
    let good = Client::default();
    let role = "arn:aws:iam::123456789012:role/butler";
    let without = [("RoleArn", role), ("RoleSessionName", "night")];
    let (status, body) = good.call(&centre, Service::Sts, "AssumeRole", &without).await.unwrap();
    assert_eq!((status, element(&body, "Code").unwrap().as_str()), (403, "AccessDenied"));
    let with = [("RoleArn", role), ("RoleSessionName", "night"), ("ExternalId", "x-1")];
    let told = good.ok(&centre, Service::Sts, "AssumeRole", &with).await;
    let part = |name: &str| element(&told, name).unwrap();
    let taken = Client {
        key: part("AccessKeyId"),
        secret: part("SecretAccessKey"),
        token: Some(part("SessionToken")),
        ahead: 0,
    };
    let who = taken.ok(&centre, Service::Sts, "GetCallerIdentity", &[]).await;
    assert_eq!(element(&who, "Arn").unwrap(), "arn:aws:sts::123456789012:assumed-role/butler/night");
    let forgotten = Client { token: None, ..taken };
    assert_eq!(forgotten.code(&centre, Service::Ec2, "DescribeVpcs").await.1, "AuthFailure");
    centre.stop().await;
}

#[tokio::test]
async fn calls_pass_the_gate_and_fail_as_the_services_do() {
    let centre = started(
        "calls:\n- {system: aws, operation: 'ec2:DescribeVpcs', times: 1, fault: throttle}\n\
         - {system: aws, operation: 'elasticloadbalancing:*', times: 1, fault: throttle}\n\
         - {system: aws, operation: 'ec2:RunInstances', times: 1, fault: lose-answer}",
    )
    .await;
    let client = Client::default();
    assert_eq!(
        client.code(&centre, Service::Ec2, "DescribeVpcs").await,
        (503, "RequestLimitExceeded".to_string())
    );
    assert_eq!(
        client.code(&centre, Service::Elb, "DescribeLoadBalancers").await,
        (400, "Throttling".to_string())
    );
    let params = launch("cp-0", "token", SUBNETS[0]);
    assert!(client.call(&centre, Service::Ec2, "RunInstances", &params).await.is_none(), "cut");
    assert_eq!(centre.aws().unwrap().state().inventory()[0], "instance cp-0", "and carried out");
    let last = centre.gate().calls().pop().unwrap();
    assert_eq!(
        (last.call.operation.as_str(), last.call.object.as_str()),
        ("ec2:RunInstances", "machine cp-0")
    );
    client.ok(&centre, Service::Ec2, "RunInstances", &params).await;
    assert_eq!(centre.aws().unwrap().state().instances.len(), 1, "the token makes it the same machine");
    centre.stop().await;
}

/// A load balancer for the Talos API in front of one machine.
async fn balanced(centre: &DataCentre) -> (String, String) {
    let client = Client::default();
    let made = client.ok(centre, Service::Ec2, "RunInstances", &launch("cp-0", "token", SUBNETS[0])).await;
    let machine = element(&made, "instanceId").unwrap();
    let params = [("Name", "api"), ("Type", "network"), ("Subnets.member.1", SUBNETS[0])];
    let made = client.ok(centre, Service::Elb, "CreateLoadBalancer", &params).await;
    let (balancer, dns) = (element(&made, "LoadBalancerArn").unwrap(), element(&made, "DNSName").unwrap());
    let params = [
        ("Name", "talos"),
        ("Protocol", "TCP"),
        ("Port", "50000"),
        ("VpcId", VPC),
        ("HealthCheckIntervalSeconds", "10"),
        ("HealthCheckTimeoutSeconds", "5"),
        ("HealthyThresholdCount", "2"),
    ];
    let made = client.ok(centre, Service::Elb, "CreateTargetGroup", &params).await;
    let group = element(&made, "TargetGroupArn").unwrap();
    let params = [
        ("LoadBalancerArn", balancer.as_str()),
        ("Protocol", "TCP"),
        ("Port", "50000"),
        ("DefaultActions.member.1.Type", "forward"),
        ("DefaultActions.member.1.TargetGroupArn", group.as_str()),
    ];
    client.ok(centre, Service::Elb, "CreateListener", &params).await;
    let params = [("TargetGroupArn", group.as_str()), ("Targets.member.1.Id", machine.as_str())];
    client.ok(centre, Service::Elb, "RegisterTargets", &params).await;
    (group, dns)
}

async fn until_health(centre: &DataCentre, group: &str, wanted: &str) {
    let client = Client::default();
    let mut watch = centre.aws().unwrap().balancers().watch();
    let wait = async {
        loop {
            let told =
                client.ok(centre, Service::Elb, "DescribeTargetHealth", &[("TargetGroupArn", group)]).await;
            if element(&told, "State").as_deref() == Some(wanted) {
                return;
            }
            let _ = tokio::time::timeout(Duration::from_millis(100), watch.changed()).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the target turns as wanted");
}

/// Whether whoever connects from outside reaches a server that waits for him to speak first.
async fn reaches(centre: &DataCentre, name: &str) -> bool {
    let Some(address) = centre.fabric().resolve(name) else { return false };
    let Ok(mut stream) = centre.fabric().dial_from_outside(SocketAddr::new(address, 50000)) else {
        return false;
    };
    // A relay that is there keeps the connection open; one that is not cuts it.
    let mut heard = [0];
    tokio::time::timeout(Duration::from_millis(300), stream.read(&mut heard)).await.is_err()
}

fn revoke(aws: &AwsHandle) {
    let rule = [
        ("GroupId", GROUP),
        ("IpPermissions.1.IpProtocol", "tcp"),
        ("IpPermissions.1.FromPort", "50000"),
        ("IpPermissions.1.ToPort", "50001"),
        ("IpPermissions.1.IpRanges.1.CidrIp", "0.0.0.0/0"),
    ];
    assert_eq!(aws.call(Service::Ec2, "RevokeSecurityGroupIngress", &rule).status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_balancer_passes_connections_to_a_machine_until_rules_keep_them_out() {
    let centre = started("").await;
    let (group, dns) = balanced(&centre).await;
    let aws = centre.aws().unwrap();
    let address = aws.state().machine_of("cp-0").unwrap();
    let node = centre.world().node(address).unwrap();
    assert!(node.reaches(Stage::Maintenance, PATIENCE).await);
    until_health(&centre, &group, "healthy").await;
    assert!(reaches(&centre, &dns).await);
    assert!(reaches(&centre, &address.to_string()).await);
    revoke(&aws);
    until_health(&centre, &group, "unhealthy").await;
    assert!(!reaches(&centre, &dns).await);
    assert!(!reaches(&centre, &address.to_string()).await, "directly neither");
    centre.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_has_the_same_machines_balancers_and_keys() {
    let centre = started("").await;
    let (group, dns) = balanced(&centre).await;
    until_health(&centre, &group, "healthy").await;
    let snapshot = centre.snapshot().await;
    let branch = DataCentre::branch(&snapshot, BranchOptions::default()).await.unwrap();
    centre.stop().await;
    until_health(&branch, &group, "healthy").await;
    assert!(reaches(&branch, &dns).await);
    let aws = branch.aws().unwrap();
    let id = aws.state().instances.keys().next().unwrap().clone();
    Client::default().ok(&branch, Service::Ec2, "TerminateInstances", &[("InstanceId.1", &id)]).await;
    until_gone(&branch, &aws).await;
    assert!(!reaches(&branch, &dns).await);
    branch.stop().await;
}

async fn until_gone(centre: &DataCentre, aws: &AwsHandle) {
    let mut changes = centre.world().follow();
    let wait = async {
        while !centre.world().nodes().is_empty() {
            changes.recv().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("the machine goes");
    assert!(!aws.state().inventory().iter().any(|thing| thing.starts_with("instance")));
}
