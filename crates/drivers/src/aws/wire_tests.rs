//! Tests over the wire, against a server that answers by script: what is done with answers that no plan can see.

use super::connect;
use super::tags::{CLUSTER_UID, OBJECT_UID};
use crate::connection::{Connection, Credentials};
use crate::failure::Class;
use crate::seam::{Infrastructure, LoadBalancerWanted, MachineTarget, MachineWanted, Owner, Progress};
use crate::wire_tests::{self, Journal};
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Action and how many calls of it came before, to status and body.
type Script = Arc<dyn Fn(&str, usize) -> (u16, String) + Send + Sync>;

struct Server {
    url: String,
    /// Every call, as action and body.
    calls: Arc<Mutex<Vec<(String, String)>>>,
    journal: Arc<Journal>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start(script: impl Fn(&str, usize) -> (u16, String) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let calls: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let (script, log): (Script, _) = (Arc::new(script), Arc::clone(&calls));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&script), Arc::clone(&log)));
            }
        });
        Self { url, calls, journal: Arc::default(), task }
    }

    fn hands(&self, more: &[(&str, &str)]) -> Infrastructure {
        let config = json!({
            "provider": "aws", "credentialsRef": {"name": "x"},
            "aws": {"region": "eu-west-1", "subnetIDs": ["subnet-a"]}
        });
        let keys = [("accessKeyID", "AKIDEXAMPLE"), ("secretAccessKey", "hunter2")];
        let pairs = keys.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let connection = Connection {
            base_url: Some(self.url.clone()),
            recorder: self.journal.clone(),
            ..Connection::default()
        };
        connect(&serde_json::from_value(config).unwrap(), &Credentials(pairs.collect()), &connection).unwrap()
    }

    fn count(&self, action: &str) -> usize {
        self.calls.lock().iter().filter(|(other, _)| other == action).count()
    }

    fn changes(&self) -> usize {
        self.journal.0.lock().iter().filter(|call| call.mutates).count()
    }
}

async fn answer(mut stream: TcpStream, script: Script, log: Arc<Mutex<Vec<(String, String)>>>) {
    let Some((_, body)) = wire_tests::read_request(&mut stream).await else { return };
    let action = body.split('&').find_map(|pair| pair.strip_prefix("Action=")).unwrap_or_default().to_owned();
    let before = {
        let mut log = log.lock();
        let before = log.iter().filter(|(other, _)| *other == action).count();
        log.push((action.clone(), body));
        before
    };
    let (status, body) = script(&action, before);
    wire_tests::answer(&mut stream, status, &body).await;
}

fn refused(code: &str) -> (u16, String) {
    let error = format!("<Error><Code>{code}</Code><Message>words of AWS</Message></Error>");
    (400, format!("<ErrorResponse>{error}</ErrorResponse>"))
}

fn owner() -> Owner {
    Owner { cluster: "mgmt".into(), cluster_uid: "c-1".into(), object_uid: "lb-1".into() }
}

fn wanted() -> LoadBalancerWanted {
    let spec = json!({
        "clusterName": "mgmt", "providerConfigRef": {"name": "aws"},
        "targets": [{"ip": "10.0.1.10", "instanceID": "i-0"}]
    });
    LoadBalancerWanted {
        owner: owner(),
        name: "mgmt-lb".to_owned(),
        spec: serde_json::from_value(spec).unwrap(),
    }
}

/// A load balancer that is whole but for its one target.
fn whole(action: &str) -> (u16, String) {
    let tag = |key: &str, value: &str, (k, v): (&str, &str)| format!("<{k}>{key}</{k}><{v}>{value}</{v}>");
    let ec2_tags = format!(
        "<tagSet><item>{}</item><item>{}</item></tagSet>",
        tag(CLUSTER_UID, "c-1", ("key", "value")),
        tag(OBJECT_UID, "lb-1", ("key", "value"))
    );
    let elb_tags = |arn: &str| {
        let tags = [(CLUSTER_UID, "c-1"), (OBJECT_UID, "lb-1")]
            .map(|(key, value)| format!("<member>{}</member>", tag(key, value, ("Key", "Value"))));
        format!("<member><ResourceArn>{arn}</ResourceArn><Tags>{}</Tags></member>", tags.concat())
    };
    let attributes = |pairs: &[(&str, &str)]| {
        let all = pairs
            .iter()
            .map(|(key, value)| format!("<member>{}</member>", tag(key, value, ("Key", "Value"))));
        format!("<Attributes>{}</Attributes>", all.collect::<String>())
    };
    let elb = |inner: String| format!("<{action}Result>{inner}</{action}Result>");
    let inner = match action {
        "DescribeSubnets" => "<subnetSet><item><subnetId>subnet-a</subnetId><vpcId>vpc-1</vpcId>\
             <availabilityZone>eu-west-1a</availabilityZone></item></subnetSet>"
            .to_owned(),
        "DescribeSecurityGroups" => format!(
            "<securityGroupInfo><item><groupId>sg-1</groupId><groupName>mgmt-lb</groupName><vpcId>vpc-1</vpcId>{ec2_tags}\
             <ipPermissions><item><ipProtocol>tcp</ipProtocol><fromPort>6443</fromPort><toPort>6443</toPort>\
             <ipRanges><item><cidrIp>0.0.0.0/0</cidrIp></item></ipRanges></item></ipPermissions></item></securityGroupInfo>"
        ),
        "DescribeInstances" => "<reservationSet><item><instancesSet><item><instanceId>i-0</instanceId>\
             <instanceState><name>running</name></instanceState></item></instancesSet></item></reservationSet>"
            .to_owned(),
        "DescribeLoadBalancers" => elb("<LoadBalancers><member><LoadBalancerArn>arn:lb</LoadBalancerArn>\
             <LoadBalancerName>mgmt-lb</LoadBalancerName><DNSName>lb.example</DNSName><Type>network</Type>\
             <Scheme>internet-facing</Scheme><VpcId>vpc-1</VpcId><State><Code>active</Code></State>\
             <AvailabilityZones><member><SubnetId>subnet-a</SubnetId></member></AvailabilityZones>\
             <SecurityGroups><member>sg-1</member></SecurityGroups></member></LoadBalancers>"
            .to_owned()),
        "DescribeTargetGroups" => elb("<TargetGroups><member><TargetGroupArn>arn:tg</TargetGroupArn>\
             <TargetGroupName>mgmt-6443-6443</TargetGroupName><Protocol>TCP</Protocol><Port>6443</Port><VpcId>vpc-1</VpcId>\
             <TargetType>instance</TargetType><HealthCheckProtocol>TCP</HealthCheckProtocol>\
             <HealthCheckPort>6443</HealthCheckPort><HealthCheckIntervalSeconds>10</HealthCheckIntervalSeconds>\
             <HealthCheckTimeoutSeconds>5</HealthCheckTimeoutSeconds><HealthyThresholdCount>2</HealthyThresholdCount>\
             <UnhealthyThresholdCount>2</UnhealthyThresholdCount></member></TargetGroups>"
            .to_owned()),
        "DescribeListeners" => elb("<Listeners><member><ListenerArn>arn:l</ListenerArn><Port>6443</Port>\
             <Protocol>TCP</Protocol><DefaultActions><member><Type>forward</Type><TargetGroupArn>arn:tg</TargetGroupArn></member>\
             </DefaultActions></member></Listeners>"
            .to_owned()),
        "DescribeTags" => {
            let noted = "<member><ResourceArn>arn:tg</ResourceArn><Tags><member>\
                 <Key>butler.butlerlabs.dev/target/i-0</Key><Value>10.0.1.10</Value></member>";
            let group = elb_tags("arn:tg").replacen("<member><ResourceArn>arn:tg</ResourceArn><Tags>", noted, 1);
            elb(format!("<TagDescriptions>{}{group}{}</TagDescriptions>", elb_tags("arn:lb"), elb_tags("arn:l")))
        }
        "DescribeLoadBalancerAttributes" => elb(attributes(&[("load_balancing.cross_zone.enabled", "false")])),
        "DescribeTargetGroupAttributes" => elb(attributes(&[
            ("preserve_client_ip.enabled", "false"),
            ("deregistration_delay.timeout_seconds", "30"),
            ("deregistration_delay.connection_termination.enabled", "true"),
        ])),
        _ => String::new(),
    };
    (200, format!("<{action}Response>{inner}</{action}Response>"))
}

/// Defect 1: whatever goes wrong while looking, a removal is not over, and what was made is not forgotten.
#[tokio::test]
async fn defect_1_an_error_while_looking_is_never_absence() {
    for broken in ["DescribeLoadBalancers", "DescribeTargetGroups", "DescribeTags", "DescribeSecurityGroups"]
    {
        for (code, class) in [
            ("Throttling", Class::Throttled),
            ("ExpiredToken", Class::Auth),
            ("InternalFailure", Class::Retryable),
        ] {
            let server = Server::start(move |action, _| match action {
                action if action == broken => refused(code),
                // Nothing is left but the part that can't be looked at.
                "DescribeLoadBalancers" if broken != "DescribeTags" => refused("LoadBalancerNotFound"),
                "DescribeTargetGroups" if broken != "DescribeTags" => (200, format!("<{action}Response/>")),
                other => whole(other),
            })
            .await;
            let balancers = server.hands(&[]).load_balancers.unwrap();
            let failure = balancers.delete(&wanted(), None).await.unwrap_err();
            assert_eq!(failure.class, class, "{broken} {code}: {failure}");
            assert!(failure.message.contains(broken) && failure.message.contains(code), "{failure}");
            assert_eq!(server.changes(), 0, "{broken}");
            assert!(balancers.owned(None).await.is_err());
        }
    }
    let server = Server::start(|_, _| refused("RequestLimitExceeded")).await;
    let machines = server.hands(&[]).machines;
    let target = MachineTarget { owner: owner(), name: "mgmt-cp-0".to_owned(), provider_id: None };
    assert_eq!(machines.delete(&target, None).await.unwrap_err().class, Class::Throttled);
    assert_eq!(machines.find(&target).await.unwrap_err().class, Class::Throttled);
}

/// Defect 2, the other half: wrong keys are no end; the same driver goes on once they are accepted.
#[tokio::test]
async fn defect_2_refused_credentials_are_no_end() {
    let server = Server::start(|action, before| match (action, before) {
        ("DescribeSubnets", 0) => refused("AuthFailure"),
        (other, _) => whole(other),
    })
    .await;
    let balancers = server.hands(&[]).load_balancers.unwrap();
    let failure = balancers.ensure(&wanted(), None).await.unwrap_err();
    assert_eq!((failure.class, failure.class.stops()), (Class::Auth, false));
    assert!(balancers.ensure(&wanted(), None).await.is_ok());
}

/// Defect 6: a target that can't be registered is a failure, not a line in a log.
#[tokio::test]
async fn defect_6_a_refused_registration_is_told() {
    let server = Server::start(|action, _| match action {
        "RegisterTargets" => refused("TooManyTargets"),
        other => whole(other),
    })
    .await;
    let balancers = server.hands(&[]).load_balancers.unwrap();
    let failure = balancers.ensure(&wanted(), None).await.unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Quota, "QuotaExceeded"));
    assert!(failure.message.contains("register 10.0.1.10"), "{failure}");
}

/// A machine that AWS does not take yet is waited for.
#[tokio::test]
async fn a_target_that_is_not_taken_yet_is_waited_for() {
    let server = Server::start(|action, _| match action {
        "RegisterTargets" => refused("InvalidTarget"),
        other => whole(other),
    })
    .await;
    let progress = server.hands(&[]).load_balancers.unwrap().ensure(&wanted(), None).await.unwrap();
    let Progress::InProgress { recheck, known, .. } = progress else { panic!("ready") };
    assert!(!recheck.is_zero() && known.is_some_and(|known| known.endpoint == "lb.example"));
}

fn machine() -> MachineWanted {
    MachineWanted {
        owner: Owner { object_uid: "m-1".into(), ..owner() },
        name: "mgmt-cp-0".to_owned(),
        role: butler_api::MachineRole::ControlPlane,
        cpu: 4,
        memory_mb: 16384,
        disk_gb: 100,
        extra_disks: Vec::new(),
        image: Some("ami-1".to_owned()),
        user_data: None,
        static_address: None,
        labels: std::collections::BTreeMap::new(),
    }
}

/// AWS remembers a token for longer than it shows what was launched with it: an answer that tells of an instance that has ended
/// asks for another token, and nobody waits for that instance.
#[tokio::test]
async fn a_token_that_is_used_up_is_not_used_again() {
    let ended = "<instancesSet><item><instanceId>i-1</instanceId><instanceState><name>terminated</name></instanceState></item></instancesSet>";
    for first in [
        (200, format!("<RunInstancesResponse>{ended}</RunInstancesResponse>")),
        refused("IdempotentInstanceTerminated"),
    ] {
        let server = Server::start(move |action, before| match (action, before) {
            ("DescribeImages", _) => {
                let image = "<item><imageId>ami-1</imageId><architecture>x86_64</architecture></item>";
                (200, format!("<{action}Response><imagesSet>{image}</imagesSet></{action}Response>"))
            }
            ("RunInstances", 0) => first.clone(),
            ("RunInstances", _) => {
                let made = ended.replace("i-1", "i-2").replace("terminated", "pending");
                (200, format!("<{action}Response>{made}</{action}Response>"))
            }
            (other, _) => (200, format!("<{other}Response/>")),
        })
        .await;
        let machines = server.hands(&[]).machines;
        let target = MachineTarget { owner: machine().owner, name: machine().name, provider_id: None };
        machines.ensure(&machine(), None).await.unwrap();
        machines.ensure(&machine(), None).await.unwrap();
        let tokens: Vec<String> = server
            .calls
            .lock()
            .iter()
            .filter(|(action, _)| action == "RunInstances")
            .filter_map(|(_, body)| {
                body.split('&').find(|pair| pair.starts_with("ClientToken=")).map(str::to_owned)
            })
            .collect();
        assert!(tokens.len() == 2 && tokens[0] != tokens[1], "{tokens:?}");
        let gone = machines.delete(&target, None).await.unwrap();
        assert!(
            matches!(&gone, Progress::InProgress { waiting_for, .. } if waiting_for.contains("i-2")),
            "what was launched has to be seen, and what has ended has not: {gone:?}"
        );
    }
}

/// The two services learn of a security group one after the other: what EC2 has just shown, ELB may not know yet.
#[tokio::test]
async fn a_group_that_the_other_service_does_not_know_yet_is_waited_for() {
    for code in ["InvalidSecurityGroup", "InvalidGroup.NotFound"] {
        let server = Server::start(move |action, _| match action {
            "DescribeLoadBalancers" => refused("LoadBalancerNotFound"),
            "CreateLoadBalancer" => refused(code),
            other => whole(other),
        })
        .await;
        let progress = server.hands(&[]).load_balancers.unwrap().ensure(&wanted(), None).await.unwrap();
        let Progress::InProgress { recheck, .. } = progress else { panic!("{progress:?}") };
        assert!(!recheck.is_zero() && server.count("CreateLoadBalancer") == 1, "{code}");
    }
}

/// Tags may be seen later than what they are on: what shows none is neither touched nor called somebody else's.
#[tokio::test]
async fn things_whose_tags_are_not_seen_yet_are_no_conflict() {
    for hidden in ["arn:lb", "arn:tg"] {
        let server = Server::start(move |action, _| match action {
            "DescribeTags" => {
                let (status, body) = whole(action);
                (status, body.replace(&format!("<ResourceArn>{hidden}<"), "<ResourceArn>arn:another<"))
            }
            other => whole(other),
        })
        .await;
        let balancers = server.hands(&[]).load_balancers.unwrap();
        let made = balancers.ensure(&wanted(), None).await.unwrap();
        let gone = balancers.delete(&wanted(), None).await.unwrap();
        assert!(matches!(made, Progress::InProgress { waiting_for, .. } if waiting_for.contains("tags")));
        assert!(matches!(gone, Progress::InProgress { waiting_for, .. } if waiting_for.contains("tags")));
        assert_eq!(server.changes(), 0);
    }
}

#[tokio::test]
async fn one_step_changes_one_thing_and_tells_what_is_known() {
    let server = Server::start(|action, _| whole(action)).await;
    let balancers = server.hands(&[]).load_balancers.unwrap();
    let progress = balancers.ensure(&wanted(), None).await.unwrap();
    let Progress::InProgress { known: Some(known), .. } = progress else { panic!("{progress:?}") };
    assert_eq!((server.changes(), server.count("RegisterTargets")), (1, 1));
    assert_eq!((known.endpoint.as_str(), known.resource_id.as_str()), ("lb.example", "arn:lb"));
    let body = server.calls.lock().iter().find(|(action, _)| action == "RegisterTargets").cloned().unwrap().1;
    assert!(body.contains("Targets.member.1.Id=i-0") && body.contains("Version=2015-12-01"), "{body}");
}

/// While a listener is put back, the targets are still told of, although putting it back does not need them.
#[tokio::test]
async fn targets_do_not_seem_gone_while_something_else_is_mended() {
    let server = Server::start(|action, _| match action {
        "DescribeListeners" => (200, format!("<{action}Response/>")),
        "DescribeTargetHealth" => {
            let target = "<Target><Id>i-0</Id><Port>6443</Port></Target><TargetHealth><State>healthy</State></TargetHealth>";
            let all = format!("<TargetHealthDescriptions><member>{target}</member></TargetHealthDescriptions>");
            (200, format!("<{action}Response><{action}Result>{all}</{action}Result></{action}Response>"))
        }
        other => whole(other),
    })
    .await;
    let progress = server.hands(&[]).load_balancers.unwrap().ensure(&wanted(), None).await.unwrap();
    let Progress::InProgress { known: Some(known), .. } = progress else { panic!("{progress:?}") };
    assert_eq!((server.count("CreateListener"), server.changes()), (1, 1));
    assert_eq!(known.listeners[0].registered, ["10.0.1.10"]);
}

/// Keys of a role are taken on once, and once more when they have ended early.
#[tokio::test]
async fn roles_are_renewed_when_they_end_early() {
    let server = Server::start(|action, before| match (action, before) {
        ("AssumeRole", nth) => {
            let keys = format!(
                "<AccessKeyId>ASIA{nth}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>tok{nth}</SessionToken>\
                 <Expiration>2099-01-01T00:00:00Z</Expiration>"
            );
            (200, format!("<AssumeRoleResponse><AssumeRoleResult><Credentials>{keys}</Credentials></AssumeRoleResult></AssumeRoleResponse>"))
        }
        ("DescribeInstances", 1) => refused("ExpiredToken"),
        (other, _) => (200, format!("<{other}Response/>")),
    })
    .await;
    let machines = server.hands(&[("roleARN", "arn:aws:iam::1:role/x"), ("externalID", "ext")]).machines;
    let target = MachineTarget { owner: owner(), name: "mgmt-cp-0".to_owned(), provider_id: None };
    assert_eq!(machines.find(&target).await.unwrap(), None);
    assert_eq!(server.count("AssumeRole"), 1);
    assert_eq!(machines.find(&target).await.unwrap(), None, "renewed, and asked again");
    assert_eq!((server.count("AssumeRole"), server.count("DescribeInstances")), (2, 3));
    let journal = format!("{:?}", server.journal.0.lock());
    assert!(
        journal.contains("AssumeRole") && !journal.contains("tok1") && !journal.contains("hunter2"),
        "{journal}"
    );
    assert!(server.calls.lock()[0].1.contains("ExternalId=ext"));
}

#[tokio::test]
async fn an_answer_of_somebody_else_is_not_believed() {
    let server = Server::start(|_, _| (200, "<html>please log in to the hotel</html>".to_owned())).await;
    let target = MachineTarget { owner: owner(), name: "mgmt-cp-0".to_owned(), provider_id: None };
    let failure = server.hands(&[]).machines.find(&target).await.unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Retryable, "NotAws"));
    assert!(!failure.message.contains("hotel"), "{failure}");
}
