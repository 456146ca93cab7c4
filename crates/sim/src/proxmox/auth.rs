//! Who calls, and what they may do: tickets, tokens, roles and access lists.

use super::request::{Call, Outcome, Refusal};
use super::site::Secret;
use super::state::{State, Ticket};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A ticket is good for two hours.
const TICKET_SECONDS: u64 = 2 * 3600;
/// A little of the future is allowed, as clocks differ.
const SKEW_SECONDS: u64 = 300;

/// The caller: a user, or one of its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Caller {
    pub(super) user: String,
    pub(super) token: Option<String>,
}

impl Caller {
    /// As it stands in UPIDs: `root@pam` or `root@pam!id`.
    pub(super) fn id(&self) -> String {
        match &self.token {
            Some(token) => format!("{}!{token}", self.user),
            None => self.user.clone(),
        }
    }
}

/// Every privilege that this simulation asks for anywhere, or that a role is made of.
const PRIVILEGES: [&str; 33] = [
    "Datastore.Allocate",
    "Datastore.AllocateSpace",
    "Datastore.AllocateTemplate",
    "Datastore.Audit",
    "Group.Allocate",
    "Mapping.Audit",
    "Mapping.Use",
    "Permissions.Modify",
    "Pool.Allocate",
    "Pool.Audit",
    "SDN.Audit",
    "SDN.Use",
    "Sys.AccessNetwork",
    "Sys.Audit",
    "Sys.Console",
    "Sys.Modify",
    "Sys.PowerMgmt",
    "User.Modify",
    "VM.Allocate",
    "VM.Audit",
    "VM.Backup",
    "VM.Clone",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Cloudinit",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.Console",
    "VM.Monitor",
    "VM.PowerMgmt",
];

/// The built-in roles and the site's own.
pub(super) fn roles(own: &BTreeMap<String, Vec<String>>) -> BTreeMap<String, BTreeSet<String>> {
    let all =
        |test: fn(&str) -> bool| PRIVILEGES.iter().filter(|p| test(p)).map(ToString::to_string).collect();
    let mut roles: BTreeMap<String, BTreeSet<String>> = BTreeMap::from([
        ("Administrator".to_string(), all(|_| true)),
        ("NoAccess".to_string(), BTreeSet::new()),
        ("PVEAuditor".to_string(), all(|p| p.ends_with(".Audit"))),
        ("PVEDatastoreAdmin".to_string(), all(|p| p.starts_with("Datastore."))),
        ("PVEDatastoreUser".to_string(), all(|p| matches!(p, "Datastore.AllocateSpace" | "Datastore.Audit"))),
        ("PVESDNUser".to_string(), all(|p| matches!(p, "SDN.Audit" | "SDN.Use"))),
        ("PVEVMAdmin".to_string(), all(|p| p.starts_with("VM."))),
        (
            "PVEVMUser".to_string(),
            all(|p| {
                matches!(
                    p,
                    "VM.Audit"
                        | "VM.Backup"
                        | "VM.Config.CDROM"
                        | "VM.Config.Cloudinit"
                        | "VM.Console"
                        | "VM.PowerMgmt"
                )
            }),
        ),
        (
            "PVEAdmin".to_string(),
            all(|p| {
                !matches!(p, "Permissions.Modify" | "Sys.Modify" | "Sys.PowerMgmt" | "Sys.AccessNetwork")
            }),
        ),
    ]);
    roles.extend(own.iter().map(|(name, privileges)| (name.clone(), privileges.iter().cloned().collect())));
    roles
}

impl State {
    /// Who is calling.
    pub(super) fn authenticate(&self, call: &Call, now: u64) -> Result<Caller, Refusal> {
        if let Some(token) = call.authorization.as_deref().and_then(|h| h.strip_prefix("PVEAPIToken=")) {
            return self.by_token(token);
        }
        let cookie = call.cookie.as_deref().or(call.authorization.as_deref()).unwrap_or_default();
        let ticket = cookie
            .split(';')
            .find_map(|part| part.trim().strip_prefix("PVEAuthCookie="))
            .map(|value| crate::urlencoded::decode(value, false));
        let Some(ticket) = ticket.filter(|t| !t.is_empty()) else {
            return Err(Refusal::unauthorized("No ticket"));
        };
        let good = |t: &&Ticket| now < t.issued + TICKET_SECONDS && t.issued <= now + SKEW_SECONDS;
        let Some(held) = self.tickets.get(&ticket).filter(good) else {
            return Err(Refusal::unauthorized("permission denied - invalid PVE ticket"));
        };
        if call.method != "GET" && !call.csrf.as_deref().is_some_and(|csrf| held.csrf.is(csrf)) {
            return Err(Refusal::unauthorized("Permission denied - invalid csrf token"));
        }
        Ok(Caller { user: held.user.clone(), token: None })
    }

    fn by_token(&self, token: &str) -> Result<Caller, Refusal> {
        // Both signs are allowed between the id and the value.
        let parsed = token.split_once('!').and_then(|(user, rest)| {
            let (id, value) = rest.split_once(['=', ':'])?;
            Some((user, id, value))
        });
        let Some((user, id, value)) = parsed else {
            return Err(Refusal::unauthorized("no tokenid specified"));
        };
        let held = self.users.get(user).and_then(|u| u.tokens.get(id));
        match held {
            None if !self.users.contains_key(user) => {
                Err(Refusal::unauthorized(format!("no such user ('{user}')")))
            }
            None => Err(Refusal::unauthorized(format!("no such token '{id}' for user '{user}'"))),
            Some((secret, _)) if !secret.is(value) => Err(Refusal::unauthorized("invalid token value!")),
            Some(_) => Ok(Caller { user: user.to_string(), token: Some(id.to_string()) }),
        }
    }

    /// `POST /access/ticket`.
    pub(super) fn issue_ticket(&mut self, call: &Call, now: u64) -> Outcome {
        let given = |name: &str| {
            call.params
                .get(name)
                .cloned()
                .ok_or_else(|| Refusal::param(name, "property is missing and it is not optional"))
        };
        let (name, password) = (given("username")?, given("password")?);
        let user = match call.params.get("realm") {
            Some(realm) if !name.contains('@') => format!("{name}@{realm}"),
            _ => name,
        };
        let right =
            self.users.get(&user).and_then(|u| u.password.as_ref()).is_some_and(|held| held.is(&password));
        // A ticket can be changed for a fresh one.
        let renewed =
            self.tickets.get(&password).is_some_and(|t| t.user == user && now < t.issued + TICKET_SECONDS);
        if !right && !renewed {
            return Err(Refusal::unauthorized("authentication failure"));
        }
        let (signature, check) = (self.signature(), self.signature());
        let ticket = format!("PVE:{user}:{now:08X}::{signature}");
        let csrf = format!("{now:08X}:{check}");
        self.tickets.retain(|_, t| now < t.issued + TICKET_SECONDS);
        let kept = Ticket { user: user.clone(), csrf: Secret::new(csrf.clone()), issued: now };
        self.tickets.insert(ticket.clone(), kept);
        Ok(json!({
            "username": user,
            "ticket": ticket,
            "CSRFPreventionToken": csrf,
            "cap": { "access": {}, "dc": {}, "nodes": {}, "sdn": {}, "storage": {}, "vms": {} },
        }))
    }

    fn signature(&mut self) -> String {
        let bytes: Vec<u8> = (0..5).flat_map(|_| self.draw().to_be_bytes()).collect();
        BASE64.encode(bytes)
    }

    /// The privileges of a caller on a path.
    fn privileges(&self, caller: &Caller, path: &str) -> Vec<&'static str> {
        PRIVILEGES.iter().copied().filter(|privilege| self.holds(caller, path, privilege)).collect()
    }

    /// Whether a caller has a privilege: its user does, and itself as well if it is a token of its own.
    fn holds(&self, caller: &Caller, path: &str, privilege: &str) -> bool {
        let tokens = self.users.get(&caller.user).map(|user| &user.tokens);
        let separate =
            caller.token.as_ref().and_then(|id| tokens?.get(id)).is_some_and(|(_, separate)| *separate);
        self.granted(&caller.user, path, privilege)
            && (!separate || self.granted(&caller.id(), path, privilege))
    }

    /// The most specific entry that reaches the path decides.
    fn granted(&self, who: &str, path: &str, privilege: &str) -> bool {
        if who == "root@pam" {
            return true;
        }
        let reaches = |acl: &str, propagate: bool| {
            acl == path
                || propagate
                    && (acl == "/" || path.strip_prefix(acl).is_some_and(|rest| rest.starts_with('/')))
        };
        let mine = || self.acls.iter().filter(|a| a.who == who && reaches(&a.path, a.propagate));
        let Some(longest) = mine().map(|a| a.path.len()).max() else { return false };
        mine()
            .filter(|a| a.path.len() == longest)
            .filter_map(|a| self.roles.get(&a.role))
            .any(|role| role.contains(privilege))
    }

    /// Refuses unless the caller has all of these privileges.
    pub(super) fn need(&self, caller: &Caller, path: &str, privileges: &[&str]) -> Result<(), Refusal> {
        if privileges.iter().all(|privilege| self.holds(caller, path, privilege)) {
            return Ok(());
        }
        Err(Refusal::forbidden(path, &privileges.join(", ")))
    }

    /// Refuses unless the caller has one of these privileges.
    pub(super) fn need_any(&self, caller: &Caller, path: &str, privileges: &[&str]) -> Result<(), Refusal> {
        if self.has_any(caller, path, privileges) {
            return Ok(());
        }
        Err(Refusal::forbidden(path, &privileges.join("|")))
    }

    pub(super) fn has_any(&self, caller: &Caller, path: &str, privileges: &[&str]) -> bool {
        privileges.iter().any(|privilege| self.holds(caller, path, privilege))
    }

    /// `GET /access/permissions`.
    pub(super) fn permissions(&self, caller: &Caller, call: &Call) -> Outcome {
        let top = ["/", "/access", "/nodes", "/storage", "/vms", "/pool", "/sdn"].map(ToString::to_string);
        let paths: BTreeSet<String> = match call.params.get("path") {
            Some(path) => BTreeSet::from([path.clone()]),
            None => top.into_iter().chain(self.acls.iter().map(|a| a.path.clone())).collect(),
        };
        let mut listed = Map::new();
        for path in paths {
            let held = self.privileges(caller, &path);
            if !held.is_empty() || call.params.contains_key("path") {
                let each = held.into_iter().map(|p| (p.to_string(), json!(1))).collect();
                listed.insert(path, Value::Object(each));
            }
        }
        Ok(Value::Object(listed))
    }
}
