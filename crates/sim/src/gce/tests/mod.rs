//! The pure handler, call by call; and the whole over the wire.

mod access;
mod balancers;
mod instances;
mod properties;
mod resources;
mod wire;

use super::site::SiteAccount;
use super::*;
use serde_json::{Value, json};

/// A moment, in milliseconds.
const NOON: u64 = 1_760_000_000_000;
const TOKEN: &str = "ya29.test";
const EMAIL: &str = "butler@rehearsal.iam.gserviceaccount.com";

/// A project, spoken to without a wire.
struct Bench {
    state: State,
    now: u64,
}

/// The example without its key, which takes a while to make.
fn site() -> GceSite {
    let mut site = GceSite::for_config(&GceNames {
        project: "rehearsal".to_string(),
        region: "us-central1".to_string(),
        image: Some("talos-v1-9-2".to_string()),
        image_family: Some("talos".to_string()),
        key: Some("{}".to_string()),
        ..GceNames::default()
    });
    site.accounts.push(SiteAccount::named(EMAIL.to_string()));
    site
}

impl Bench {
    fn new() -> Self {
        Self::with(&site(), 0.0)
    }

    fn with(site: &GceSite, speed: f64) -> Self {
        let mut state = State::new(site, speed, 0);
        state.tokens.insert(TOKEN.to_string(), (EMAIL.to_string(), NOON + 3_600_000));
        Self { state, now: NOON }
    }

    /// One call; the path is that below the project.
    fn call(&mut self, method: &str, target: &str, body: Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let target = format!("/compute/v1/projects/rehearsal/{target}");
        let mut call = Call::read("compute.googleapis.com:443", method, &target, body.as_bytes());
        call.token = Some(TOKEN.to_string());
        self.state.handle(&call, self.now, &|_, _, _| true)
    }

    fn ok(&mut self, method: &str, target: &str, body: Value) -> Value {
        let answer = self.call(method, target, body);
        assert_eq!(answer.status, 200, "{method} {target}: {}", answer.body);
        answer.body
    }

    fn get(&mut self, target: &str) -> Value {
        self.ok("GET", target, Value::Null)
    }

    /// A call that must be refused: status, reason and message.
    fn refused(&mut self, method: &str, target: &str, body: Value) -> (u16, String, String) {
        let answer = self.call(method, target, body);
        assert_ne!(answer.status, 200, "{method} {target}: {}", answer.body);
        let error = &answer.body["error"];
        assert_eq!(error["code"], answer.status);
        let reason = error["errors"][0]["reason"].as_str().unwrap().to_string();
        (answer.status, reason, error["message"].as_str().unwrap().to_string())
    }

    fn reason(&mut self, method: &str, target: &str, body: Value) -> (u16, String) {
        let (status, reason, _) = self.refused(method, target, body);
        (status, reason)
    }

    /// Lets everything that is due happen, as a world would in which every machine boots.
    fn settle(&mut self) -> Vec<Effect> {
        let mut all = Vec::new();
        loop {
            let effects = self.state.advance(self.now);
            if effects.is_empty() {
                return all;
            }
            for effect in &effects {
                if let Effect::PowerOn { operation, path, boot } = effect {
                    self.state.booted(operation, path, boot.address, Ok(()), self.now);
                }
            }
            all.extend(effects);
        }
    }

    /// A change that must be accepted, and end well.
    fn done(&mut self, method: &str, target: &str, body: Value) -> Value {
        let operation = self.change(method, target, body);
        assert_eq!(operation["error"], Value::Null, "{method} {target}: {operation}");
        operation
    }

    /// A change that must be accepted; its operation when it is over.
    fn change(&mut self, method: &str, target: &str, body: Value) -> Value {
        let operation = self.ok(method, target, body);
        assert_eq!(operation["status"], "PENDING", "{operation}");
        self.settle();
        let link = operation["selfLink"].as_str().unwrap();
        let path = link.split_once("/projects/rehearsal/").unwrap().1.to_string();
        let over = self.get(&path);
        assert_eq!(over["status"], "DONE", "{over}");
        over
    }

    fn instance(&mut self, zone: &str, name: &str) {
        self.done("POST", &format!("zones/{zone}/instances"), instance(zone, name));
    }
}

/// An instance as a driver asks for it.
fn instance(zone: &str, name: &str) -> Value {
    json!({
        "name": name,
        "machineType": format!("zones/{zone}/machineTypes/custom-4-8192"),
        "tags": {"items": ["prod"]},
        "labels": {"butler_cluster": "prod"},
        "disks": [{
            "boot": true, "autoDelete": true,
            "initializeParams": {"sourceImage": "global/images/talos-v1-9-2", "diskSizeGb": "50"},
        }],
        "networkInterfaces": [{"network": "global/networks/default", "accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
        "metadata": {"items": [{"key": "user-data", "value": "version: v1alpha1"}]},
    })
}

const ZONE: &str = "us-central1-a";
const REGION: &str = "regions/us-central1";
