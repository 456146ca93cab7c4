//! Table tests of the pure handler: every endpoint, and the exact words of its refusals.

mod access;

mod machines;
mod properties;
mod storage;
mod wire;

use super::*;
use serde_json::Value;

pub(super) const GIB: u64 = 1 << 30;
/// A moment, in milliseconds.
pub(super) const NOON: u64 = 1_760_000_000_000;

/// A Proxmox, spoken to without a wire.
pub(super) struct Bench {
    pub(super) state: State,
    pub(super) now: u64,
    pub(super) token: String,
}

/// The example site, with users that may do less than everything.
pub(super) fn site() -> ProxmoxSite {
    let mut site = ProxmoxSite::example();
    let token = |id: &str, separate| SiteToken {
        id: id.to_string(),
        secret: Secret::new("s3cret"),
        privilege_separation: separate,
    };
    site.users.push(SiteUser {
        id: "ops@pve".to_string(),
        password: Some(Secret::new("pw")),
        tokens: vec![token("all", false), token("little", true)],
    });
    site.acls.push(SiteAcl {
        path: "/vms/9000".to_string(),
        who: "ops@pve".to_string(),
        role: "PVEVMUser".to_string(),
        propagate: true,
    });
    site
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with(&site(), 0.0)
    }

    pub(super) fn with(site: &ProxmoxSite, speed: f64) -> Self {
        let token = "PVEAPIToken=root@pam!butler=7f0c2a5e-3c43-4d5b-9c0f-2f6f0e0d9a11".to_string();
        Self { state: State::new(site, speed, 1), now: NOON, token }
    }

    pub(super) fn request(method: &str, target: &str, form: &str) -> Call {
        let target = format!("/api2/json{target}");
        Call::read(method, &target, "application/x-www-form-urlencoded", form.as_bytes()).unwrap().unwrap()
    }

    /// One call, as the token's owner.
    pub(super) fn call(&mut self, method: &str, target: &str, form: &str) -> Answer {
        let call = Call { authorization: Some(self.token.clone()), ..Self::request(method, target, form) };
        self.state.handle(&call, self.now)
    }

    /// A call that must be answered with data.
    pub(super) fn ok(&mut self, method: &str, target: &str, form: &str) -> Value {
        let answer = self.call(method, target, form);
        assert_eq!(answer.status, 200, "{method} {target}: {}", answer.body);
        answer.body["data"].clone()
    }

    /// A call that must be refused: status and reason.
    pub(super) fn refused(&mut self, method: &str, target: &str, form: &str) -> (u16, String) {
        let answer = self.call(method, target, form);
        assert_ne!(answer.status, 200, "{method} {target}: {}", answer.body);
        assert_eq!(answer.body["data"], Value::Null);
        assert_eq!(answer.body["message"], format!("{}\n", answer.reason));
        (answer.status, answer.reason)
    }

    /// What is wrong with a parameter.
    pub(super) fn wrong(&mut self, method: &str, target: &str, form: &str, name: &str) -> String {
        let answer = self.call(method, target, form);
        assert_eq!((answer.status, answer.reason.as_str()), (400, "Parameter verification failed."));
        answer.body["errors"][name].as_str().unwrap_or_default().to_string()
    }

    /// Lets everything that is due happen, the world included. Gives what was done to machines.
    pub(super) fn settle(&mut self) -> Vec<Effect> {
        let mut done = Vec::new();
        loop {
            let effects = self.state.advance(self.now);
            if effects.is_empty() {
                return done;
            }
            for effect in effects {
                if let Effect::PowerOn { upid, vmid, boot } = &effect {
                    self.state.booted(upid, *vmid, boot.address, Ok(()), self.now);
                }
                done.push(effect);
            }
        }
    }

    /// Begins a task and lets it end. Gives its exit status.
    pub(super) fn task(&mut self, method: &str, target: &str, form: &str) -> String {
        let upid = self.ok(method, target, form).as_str().unwrap().to_string();
        self.settle();
        self.exit(&upid)
    }

    pub(super) fn exit(&mut self, upid: &str) -> String {
        let node = upid.split(':').nth(1).unwrap();
        let status = self.ok("GET", &format!("/nodes/{node}/tasks/{upid}/status"), "");
        status["exitstatus"].as_str().unwrap_or_default().to_string()
    }

    /// Bytes in use on a storage.
    pub(super) fn used(&mut self, node: &str, storage: &str) -> u64 {
        self.ok("GET", &format!("/nodes/{node}/storage/{storage}/status"), "")["used"].as_u64().unwrap()
    }
}
