//! The driver against a small server: tokens, ids of requests, pages, operations, lost answers.

use super::{balancer, config, machine};
use crate::connection::{Connection, Credentials};
use crate::failure::Class;
use crate::gcp::connect;
use crate::seam::{Infrastructure, MachineTarget, Operation, Progress};
use crate::wire_tests::{self, Journal};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A request as it came: method, path with query, body.
type Seen = (String, String, String);
/// Gives status and body, or cuts the connection.
type Answer = Box<dyn FnMut(&str, &str, &str) -> Option<(u16, Value)> + Send>;

struct Server {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    journal: Arc<Journal>,
    task: JoinHandle<()>,
}

impl Server {
    /// Tokens are given out by themselves; everything else is asked of `answer`.
    async fn start(mut answer: Answer) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let log = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut tokens = 0;
            while let Ok((mut stream, _)) = listener.accept().await {
                let Some((head, body)) = wire_tests::read_request(&mut stream).await else { continue };
                let mut words = head.split_whitespace();
                let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
                log.lock().push((method.to_owned(), path.to_owned(), body.clone()));
                let reply = if path == "/token" {
                    tokens += 1;
                    Some((200, json!({"access_token": format!("token-{tokens}"), "expires_in": 3600})))
                } else {
                    let token = head.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
                    assert!(token.is_some(), "{head}");
                    answer(method, path, token.unwrap_or_default())
                };
                if let Some((status, body)) = reply {
                    wire_tests::answer(&mut stream, status, &body.to_string()).await;
                }
            }
        });
        Self { port, seen, journal: Arc::default(), task }
    }

    fn hands(&self) -> Infrastructure {
        let key = json!({"type": "authorized_user", "client_id": "c", "client_secret": "hunter2", "refresh_token": "hunter3"});
        let credentials = Credentials([("serviceAccountKey".to_owned(), key.to_string())].into());
        let connection = Connection {
            base_url: Some(format!("http://127.0.0.1:{}", self.port)),
            recorder: self.journal.clone(),
            ..Connection::default()
        };
        connect(&config(json!({})), &credentials, &connection).unwrap()
    }

    fn asked(&self, method: &str) -> Vec<String> {
        let seen = self.seen.lock();
        seen.iter()
            .filter(|(m, path, _)| m == method && path != "/token")
            .map(|(_, path, _)| path.clone())
            .collect()
    }

    /// Ends it; nothing secret was written down on the way.
    async fn stop(self) {
        let journal = format!("{:?}", self.journal.0.lock());
        assert!(!journal.contains("hunter") && !journal.contains("token-"), "{journal}");
        self.task.abort();
        let _ = self.task.await;
    }
}

fn missing(path: &str) -> Option<(u16, Value)> {
    let (_, path) = path.split_once("/v1/").unwrap();
    let message = format!("The resource '{}' was not found", path.split('?').next().unwrap());
    Some((404, json!({"error": {"code": 404, "message": message, "errors": [{"reason": "notFound"}]}})))
}

fn operation(status: &str) -> Value {
    json!({"name": "operation-1", "status": status, "insertTime": "2026-11-16T00:00:00Z", "operationType": "insert",
        "targetLink": "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a/instances/mgmt-cp-0"})
}

fn ours(name: &str) -> Value {
    let wanted = machine(name);
    let mark = crate::mark::Mark::new(&wanted.owner, &std::collections::BTreeMap::new());
    json!({"name": name, "status": "RUNNING", "description": mark.describe(),
        "selfLink": format!("https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-a/instances/{name}"),
        "networkInterfaces": [{"networkIP": "10.128.0.5", "accessConfigs": [{"natIP": "203.0.113.9"}]}]})
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_under_the_same_id() {
    let mut lost = false;
    let server = Server::start(Box::new(move |method, path, _| match method {
        "GET" if path.contains("aggregated") => Some((200, json!({"items": {}}))),
        "GET" => missing(path),
        _ if !lost => {
            lost = true;
            None
        }
        _ => Some((200, operation("RUNNING"))),
    }))
    .await;
    let hands = server.hands();
    let wanted = machine("mgmt-cp-0");
    let failure = hands.machines.ensure(&wanted, None).await.unwrap_err();
    assert_eq!(failure.class, Class::Retryable);
    // Another process asks again, and is known: the same id.
    let reborn = server.hands();
    let Progress::InProgress { operation, .. } = reborn.machines.ensure(&wanted, None).await.unwrap() else {
        panic!()
    };
    assert_eq!(operation, Some(Operation("zones/us-central1-a/operations/operation-1".into())));
    // What was answered is over: should it be needed again, it is a new request.
    reborn.machines.ensure(&wanted, None).await.unwrap();
    let posts = server.asked("POST");
    assert!(posts[0].contains("requestId=") && posts[0] == posts[1] && posts[1] != posts[2], "{posts:?}");
    server.stop().await;
}

#[tokio::test]
async fn operations_are_followed_and_done_is_not_success() {
    let states = [operation("RUNNING"), {
        let mut failed = operation("DONE");
        failed["httpErrorStatusCode"] = json!(403);
        failed["error"] =
            json!({"errors": [{"code": "QUOTA_EXCEEDED", "message": "Quota 'CPUS' exceeded."}]});
        failed
    }];
    let mut over = 0;
    let server = Server::start(Box::new(move |method, path, _| match method {
        "GET" if path.contains("/operations/") => Some((200, states[over].clone())),
        // A wait is answered when it is over.
        "POST" if path.ends_with("/wait") => {
            over = 1;
            Some((200, states[over].clone()))
        }
        "GET" if path.contains("aggregated") => Some((200, json!({"items": {}}))),
        "GET" => missing(path),
        _ => Some((200, operation("PENDING"))),
    }))
    .await;
    let hands = server.hands();
    let (wanted, kept) =
        (machine("mgmt-cp-0"), Operation("zones/us-central1-a/operations/operation-1".into()));
    let Progress::InProgress { operation, .. } = hands.machines.ensure(&wanted, Some(&kept)).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(operation.as_ref(), Some(&kept), "the same one is followed");
    let failure = loop {
        match hands.machines.ensure(&wanted, Some(&kept)).await {
            Ok(Progress::InProgress { recheck, .. }) => tokio::time::sleep(recheck).await,
            Ok(Progress::Ready(_)) => panic!("it is ready"),
            Err(failure) => break failure,
        }
    };
    let looked =
        |method: &str| server.asked(method).iter().filter(|path| path.contains("/operations/")).count();
    assert_eq!(
        (looked("GET"), looked("POST")),
        (1, 1),
        "however often it is asked after, one wait follows it"
    );
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Quota, "QuotaExceeded"));
    assert!(failure.message.contains("CPUS") && failure.message.contains("mgmt-cp-0"), "{failure}");
    // Given again, it does not block the next try.
    hands.machines.ensure(&wanted, Some(&kept)).await.unwrap();
    let inserts = server.asked("POST").into_iter().filter(|path| path.contains("/instances")).count();
    assert_eq!(inserts, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_token_that_ends_early_is_renewed_once() {
    let server = Server::start(Box::new(|_, _, token| match token {
        "token-1" => Some((401, json!({"error": {"code": 401, "message": "Invalid Credentials", "errors": [{"reason": "authError"}]}}))),
        _ => Some((200, ours("mgmt-cp-0"))),
    }))
    .await;
    let hands = server.hands();
    let wanted = machine("mgmt-cp-0");
    let target = MachineTarget { owner: wanted.owner.clone(), name: wanted.name.clone(), provider_id: None };
    assert!(hands.machines.find(&target).await.unwrap().is_some());
    let logins = || server.seen.lock().iter().filter(|(_, path, _)| path == "/token").count();
    assert_eq!(logins(), 2);
    hands.machines.find(&target).await.unwrap();
    assert_eq!(logins(), 2, "a token is used as long as it is good");
    let forms: Vec<String> =
        server.seen.lock().iter().filter(|seen| seen.1 == "/token").map(|seen| seen.2.clone()).collect();
    assert!(forms[0].contains("grant_type=refresh_token") && forms[0].contains("refresh_token=hunter3"));
    server.stop().await;
}

#[tokio::test]
async fn an_error_while_looking_is_never_absence() {
    let server = Server::start(Box::new(|_, path, _| {
        if path.contains("aggregated/instances") {
            let warning = json!({"code": "UNREACHABLE", "message": "no answer"});
            return Some((200, json!({"items": {"zones/us-central1-a": {"warning": warning}}})));
        }
        if path.contains("/instances/") {
            return missing(path);
        }
        Some((
            503,
            json!({"error": {"code": 503, "message": "busy", "errors": [{"reason": "backendError"}]}}),
        ))
    }))
    .await;
    let hands = server.hands();
    let wanted = machine("mgmt-cp-0");
    let target = MachineTarget { owner: wanted.owner.clone(), name: wanted.name.clone(), provider_id: None };
    let failure = hands.machines.delete(&target, None).await.unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Retryable, "ZoneUnreachable"));
    let failure = hands.load_balancers.unwrap().delete(&balancer(json!({})), None).await.unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Retryable, "Unavailable"));
    assert!(server.asked("DELETE").is_empty());
    server.stop().await;
}

#[tokio::test]
async fn all_pages_are_read() {
    let server = Server::start(Box::new(|_, path, _| {
        let page = |names: &[&str], next: Option<&str>| {
            let instances: Vec<Value> = names.iter().map(|name| ours(name)).collect();
            let mut page = json!({"items": {"zones/us-central1-a": {"instances": instances},
                "zones/us-central1-b": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}});
            if let Some(next) = next {
                page["nextPageToken"] = json!(next);
            }
            Some((200, page))
        };
        match path {
            path if path.contains("aggregated/disks") => Some((200, json!({"items": {}}))),
            path if path.contains("pageToken=a%2Fb") => page(&["mgmt-cp-1"], None),
            _ => page(&["mgmt-cp-0"], Some("a/b")),
        }
    }))
    .await;
    let owned = server.hands().machines.owned(Some("c1c1c1c1-0000")).await.unwrap();
    let names: Vec<&str> = owned.iter().map(|owned| owned.name.as_str()).collect();
    assert_eq!(names, ["mgmt-cp-0", "mgmt-cp-1"]);
    server.stop().await;
}

#[tokio::test]
async fn permissions_and_quotas_are_told_apart() {
    let table = [
        ("forbidden", Class::Auth),
        ("quotaExceeded", Class::Quota),
        ("rateLimitExceeded", Class::Throttled),
    ];
    for (reason, class) in table {
        let server = Server::start(Box::new(move |method, path, _| match method {
            "GET" if path.contains("aggregated") => Some((200, json!({"items": {}}))),
            "GET" => missing(path),
            _ => {
                Some((403, json!({"error": {"code": 403, "message": "no", "errors": [{"reason": reason}]}})))
            }
        }))
        .await;
        let failure = server.hands().machines.ensure(&machine("mgmt-cp-0"), None).await.unwrap_err();
        assert_eq!(failure.class, class, "{reason}");
        server.stop().await;
    }
}
