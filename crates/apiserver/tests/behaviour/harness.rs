//! Where the tests get their server from, and the few verbs they are written with.
//!
//! [`scenario`] hands a test a [`Cluster`], and removes what the test made, also when the test failed. Requests are plain
//! HTTP ([`Call`] in, [`Reply`] out), because a typed client hides just what is to be compared: the exact status.

use futures::FutureExt;
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The longest that anything here waits for the server to get somewhere. The real garbage collector rests while it gets to know
/// new kinds, which it looks for every half minute, and other tests make kinds all the time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The server under test, and what a test has to remove from it.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    config: Config,
    doomed: Mutex<Vec<String>>,
}

/// One request.
pub(crate) struct Call {
    method: http::Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) headers: http::HeaderMap,
    pub(crate) text: String,
    /// `Null` when the answer is not JSON.
    pub(crate) body: Value,
}

/// A watch that is being read.
pub(crate) struct Watch {
    body: Body,
    buffer: Vec<u8>,
}

/// The kubeconfig of the server under test.
async fn kubeconfig() -> Kubeconfig {
    match std::env::var_os("BUTLER_CONFORMANCE_KUBECONFIG") {
        Some(path) => {
            Kubeconfig::read_from(path).expect("BUTLER_CONFORMANCE_KUBECONFIG names a readable kubeconfig")
        }
        None => embedded(),
    }
}

/// Starts the embedded server once for the whole process, on a free port. It ends with the process.
fn embedded() -> Kubeconfig {
    static KUBECONFIG: OnceLock<String> = OnceLock::new();
    let text = KUBECONFIG.get_or_init(|| {
        let (tell, told) = std::sync::mpsc::channel();
        // A runtime of its own: each test's runtime ends with its test.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let folder = tempfile::tempdir().expect("a folder for the server");
                let options = butler_apiserver::Options {
                    data_dir: folder.path().join("data"),
                    hosts: Vec::new(),
                    history: butler_apiserver::HistoryLimits::default(),
                };
                let server = butler_apiserver::Server::open(options).await.expect("the server opens");
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                let running = server.serve(listener).expect("the server serves");
                tell.send(running.kubeconfig("embedded")).expect("someone waits for it");
                std::future::pending::<()>().await;
            });
        });
        told.recv().expect("the embedded server started")
    });
    Kubeconfig::from_yaml(text).expect("the embedded server's kubeconfig is one")
}

/// Runs one test against the server, then removes what it made.
pub(crate) async fn scenario(test: impl AsyncFnOnce(&Cluster)) {
    let cluster = Cluster::connect().await;
    let outcome = AssertUnwindSafe(test(&cluster)).catch_unwind().await;
    cluster.clean().await;
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// A name that no other test uses.
pub(crate) fn unique(stem: &str) -> String {
    let random = RandomState::new().hash_one(stem);
    format!("{stem}-{:010x}", random & 0xff_ffff_ffff)
}

/// Asks again until `probe` answers, and gives up after [`PATIENCE`].
pub(crate) async fn eventually<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "gave up waiting for {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

// === impl Cluster ===

impl Cluster {
    async fn connect() -> Self {
        let mut config = Config::from_custom_kubeconfig(kubeconfig().await, &KubeConfigOptions::default())
            .await
            .expect("the kubeconfig describes a cluster");
        config.default_retry = false; // the answers themselves are what is tested
        let client = Client::try_from(config.clone()).expect("a client can be made from the kubeconfig");
        Self { client, config, doomed: Mutex::default() }
    }

    /// A client for the same server that shows no credentials, or only a bearer token.
    pub(crate) fn without_credentials(&self, token: Option<&str>) -> Self {
        let mut config = self.config.clone();
        config.auth_info = Default::default();
        config.auth_info.token = token.map(|t| t.to_string().into());
        let client = Client::try_from(config.clone()).expect("a client without credentials can be made");
        Self { client, config, doomed: Mutex::default() }
    }

    /// Remembers a path to be deleted after the test.
    pub(crate) fn doom(&self, path: impl Into<String>) {
        self.doomed.lock().expect("no test panics while it holds this").push(path.into());
    }

    async fn clean(&self) {
        let doomed = std::mem::take(&mut *self.doomed.lock().expect("no test panics while it holds this"));
        for path in doomed.into_iter().rev() {
            self.delete(&path).await;
        }
    }

    /// A new namespace, gone after the test.
    pub(crate) async fn namespace(&self) -> String {
        let name = unique("behaviour");
        let made = self.post("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
        assert_eq!(made.code, 201, "namespace: {}", made.text);
        self.doom(format!("/api/v1/namespaces/{name}"));
        name
    }

    /// The path of the ConfigMaps of a new namespace: the cheapest place for generic behaviour.
    pub(crate) async fn configmaps(&self) -> String {
        format!("/api/v1/namespaces/{}/configmaps", self.namespace().await)
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Call::get(path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(Call::post(path).json(body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Reply {
        self.send(Call::put(path).json(body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(Call::delete(path)).await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: &Value) -> Reply {
        self.send(Call::delete(path).json(options)).await
    }

    pub(crate) async fn patch(&self, path: &str, kind: &str, body: &Value) -> Reply {
        self.send(Call::patch(path, kind).bytes(body.to_string())).await
    }

    /// Server-side apply by `manager`; further query parameters may stand in the path.
    pub(crate) async fn apply(&self, path: &str, manager: &str, body: &Value) -> Reply {
        let joint = if path.contains('?') { '&' } else { '?' };
        self.patch(&format!("{path}{joint}fieldManager={manager}"), APPLY_PATCH, body).await
    }

    pub(crate) async fn send(&self, call: Call) -> Reply {
        let what = format!("{} {}", call.method, call.path);
        let response = tokio::time::timeout(PATIENCE, self.client.send(call.into_request()))
            .await
            .unwrap_or_else(|_| panic!("{what}: no answer in {PATIENCE:?}"))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let (parts, body) = response.into_parts();
        let bytes = tokio::time::timeout(PATIENCE, body.collect_bytes())
            .await
            .unwrap_or_else(|_| panic!("{what}: the answer does not end"))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Reply { code: parts.status.as_u16(), headers: parts.headers, text, body }
    }

    /// Opens a watch. The path carries everything but `watch=1`.
    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_call(Call::get(path)).await
    }

    pub(crate) async fn watch_call(&self, mut call: Call) -> Watch {
        let joint = if call.path.contains('?') { '&' } else { '?' };
        call.path = format!("{}{joint}watch=1", call.path);
        let what = call.path.clone();
        let response = self.client.send(call.into_request()).await.expect("the watch is answered");
        let (parts, body) = response.into_parts();
        if parts.status != 200 {
            let text = body.collect_bytes().await.expect("the refusal can be read");
            panic!("watch {what}: {} {}", parts.status, String::from_utf8_lossy(&text));
        }
        Watch { body, buffer: Vec::new() }
    }

    /// Reads until `wanted` holds.
    pub(crate) async fn until(&self, path: &str, what: &str, wanted: impl Fn(&Reply) -> bool) -> Reply {
        eventually(what, async || Some(self.get(path).await).filter(|reply| wanted(reply))).await
    }

    /// Waits until the object is gone.
    pub(crate) async fn gone(&self, path: &str) {
        self.until(path, &format!("{path} to go"), |reply| reply.code == 404).await;
    }
}

// === impl Call ===

impl Call {
    pub(crate) fn new(method: http::Method, path: &str) -> Self {
        let headers = vec![("accept".to_string(), "application/json".to_string())];
        Self { method, path: path.to_string(), headers, body: Vec::new() }
    }

    pub(crate) fn get(path: &str) -> Self {
        Self::new(http::Method::GET, path)
    }

    pub(crate) fn post(path: &str) -> Self {
        Self::new(http::Method::POST, path)
    }

    pub(crate) fn put(path: &str) -> Self {
        Self::new(http::Method::PUT, path)
    }

    pub(crate) fn delete(path: &str) -> Self {
        Self::new(http::Method::DELETE, path)
    }

    pub(crate) fn patch(path: &str, kind: &str) -> Self {
        Self::new(http::Method::PATCH, path).header("content-type", kind)
    }

    /// Sets a header, in place of one of that name.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.also(name, value)
    }

    /// Adds a header beside others of that name.
    pub(crate) fn also(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_string(), value.to_string()));
        self
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json").bytes(body.to_string())
    }

    pub(crate) fn bytes(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn impersonate(self, user: &str) -> Self {
        self.header("impersonate-user", user)
    }

    fn into_request(self) -> http::Request<Body> {
        let mut request = http::Request::builder().method(self.method).uri(self.path);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Body::from(self.body)).expect("the test wrote a valid request")
    }
}

// === impl Reply ===

impl Reply {
    /// The object, when the answer has this code.
    #[track_caller]
    pub(crate) fn ok(&self, code: u16) -> &Value {
        assert_eq!(self.code, code, "unexpected answer: {}", self.text);
        &self.body
    }

    /// A `Status` of failure with just these words; gives its details.
    #[track_caller]
    pub(crate) fn refused(&self, code: u16, reason: &str, message: &str) -> &Value {
        let got = (self.code, text(&self.body["reason"]), text(&self.body["message"]));
        assert_eq!(got, (code, reason, message), "whole answer: {}", self.text);
        assert_eq!(self.body["kind"], "Status");
        assert_eq!(self.body["apiVersion"], "v1");
        assert_eq!(self.body["status"], "Failure");
        assert_eq!(self.body["code"], code);
        &self.body["details"]
    }

    /// As [`Reply::refused`], and with the causes, each as (reason, field, message).
    #[track_caller]
    pub(crate) fn invalid(&self, message: &str, causes: &[(&str, &str, &str)]) {
        let details = self.refused(422, "Invalid", message);
        assert_eq!(as_causes(details), causes.to_vec(), "whole answer: {}", self.text);
    }

    #[track_caller]
    pub(crate) fn warnings(&self) -> Vec<&str> {
        self.headers.get_all("warning").iter().map(|w| w.to_str().expect("warnings are text")).collect()
    }

    pub(crate) fn resource_version(&self) -> &str {
        resource_version(&self.body)
    }
}

/// The causes of a status' details, as (reason, field, message).
pub(crate) fn as_causes(details: &Value) -> Vec<(&str, &str, &str)> {
    let causes = details["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    causes.iter().map(|c| (text(&c["reason"]), text(&c["field"]), text(&c["message"]))).collect()
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(crate) fn resource_version(object: &Value) -> &str {
    text(&object["metadata"]["resourceVersion"])
}

/// The names of a list's items.
pub(crate) fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().map(|item| text(&item["metadata"]["name"])).collect()
}

/// A ConfigMap with one entry.
pub(crate) fn configmap(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": "value"}})
}

/// `metadata.managedFields` without the times.
pub(crate) fn managers(object: &Value) -> Vec<Value> {
    let mut entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    for entry in &mut entries {
        let fields = entry.as_object_mut().expect("an entry is an object");
        assert!(fields.remove("time").is_some(), "an entry without a time");
    }
    entries
}

// === impl Watch ===

impl Watch {
    /// The next event; panics when none comes in time or the watch ends.
    pub(crate) async fn next(&mut self) -> Value {
        let event = tokio::time::timeout(PATIENCE, self.advance()).await.expect("an event in time");
        event.expect("the watch goes on")
    }

    /// The next event, as (type, name).
    pub(crate) async fn step(&mut self) -> (String, String) {
        let event = self.next().await;
        (text(&event["type"]).to_string(), text(&event["object"]["metadata"]["name"]).to_string())
    }

    /// Everything up to the end of the watch.
    pub(crate) async fn rest(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) =
            tokio::time::timeout(PATIENCE, self.advance()).await.expect("the watch ends in time")
        {
            events.push(event);
        }
        events
    }

    async fn advance(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("each line of a watch is an event"));
            }
            let frame = self.body.frame().await?.expect("the watch is readable");
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}
