//! Operations: every change is one. It begins with a call, takes its time, and ends well or with an error; it is done either way.

use super::request::{Outcome, Refusal};
use super::state::{Effect, Fields, State, link, name_of, timestamp};
use crate::delays;
use crate::gate::Pattern;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fmt;

/// A change that is under way, or was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Operation {
    pub(super) name: String,
    pub(super) id: u64,
    /// `projects/p/regions/r`, `projects/p/zones/z`, `projects/p/global`.
    pub(super) place: String,
    /// `compute.addresses.insert`.
    pub(super) method: String,
    /// Path of what it is about.
    pub(super) target: String,
    pub(super) user: String,
    pub(super) begun: u64,
    pub(super) due: u64,
    pub(super) ended: Option<u64>,
    pub(super) work: Work,
    /// Its work is in the hands of the world.
    pub(super) handed_over: bool,
    pub(super) error: Option<Failed>,
}

/// How an operation went wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Failed {
    pub(super) code: String,
    pub(super) message: String,
    pub(super) status: u16,
}

/// What an operation does to its target at its end.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Work {
    Insert(Fields),
    Delete,
    /// Everything that a caller can write is as given.
    Update(Fields),
    /// These fields are as given, and others stay.
    Set(Fields),
    /// Instances, by path, that come to a group or pool and leave it.
    Members {
        add: Vec<String>,
        remove: Vec<String>,
    },
    Start,
    Stop,
    Reset,
}

// By hand: metadata of instances holds secrets.
impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Work::Insert(_) => "Insert",
            Work::Delete => "Delete",
            Work::Update(_) => "Update",
            Work::Set(_) => "Set",
            Work::Members { .. } => "Members",
            Work::Start => "Start",
            Work::Stop => "Stop",
            Work::Reset => "Reset",
        })
    }
}

/// Who begins a change, and with which request.
#[derive(Debug, Clone)]
pub(super) struct Beginning<'a> {
    pub(super) method: &'static str,
    pub(super) place: &'a str,
    pub(super) user: &'a str,
    /// The request's id and a hash of everything else in it.
    pub(super) request: Option<(String, String)>,
    pub(super) now: u64,
}

/// What is left to do for the end of an operation.
pub(super) enum End {
    Now,
    /// The world says so, later.
    Later,
}

impl Failed {
    pub(super) fn new(code: &str, message: impl Into<String>, status: u16) -> Self {
        Self { code: code.to_string(), message: message.into(), status }
    }

    fn status_text(&self) -> &'static str {
        match self.status {
            400 => "BAD REQUEST",
            403 => "FORBIDDEN",
            404 => "NOT FOUND",
            409 => "CONFLICT",
            500 => "INTERNAL SERVER ERROR",
            _ => "SERVICE UNAVAILABLE",
        }
    }
}

/// Seconds at speed 1.
fn seconds(method: &str) -> f64 {
    let mut parts = method.rsplit('.');
    let (verb, collection) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    match (collection, verb) {
        ("instances", "insert") => delays::GCE_INSTANCE,
        ("instances", "delete") => delays::GCE_INSTANCE_DELETE,
        ("instances", "start") => delays::GCE_INSTANCE_START,
        ("instances", "stop") => delays::GCE_INSTANCE_STOP,
        (_, "addInstances" | "removeInstances" | "addInstance" | "removeInstance") => delays::GCE_MEMBERS,
        ("addresses", "insert" | "delete") => delays::GCE_ADDRESS,
        ("forwardingRules", "insert" | "delete" | "setTarget") => delays::GCE_RULE,
        ("regionBackendServices" | "targetPools", "insert" | "delete" | "patch" | "update") => {
            delays::GCE_SERVICE
        }
        ("regionHealthChecks" | "httpHealthChecks", _) => delays::GCE_CHECK,
        ("instanceGroups", _) => delays::GCE_GROUP,
        ("firewalls", _) => delays::GCE_FIREWALL,
        _ => delays::GCE_CHANGE,
    }
}

impl State {
    /// A request that was made before, by its id: gives the operation of then.
    pub(super) fn known_request(&self, request: Option<&(String, String)>, now: u64) -> Option<Outcome> {
        let (id, hash) = request?;
        let (first, name) = self.requests.get(id)?;
        if first != hash {
            return Some(Err(Refusal::field(
                "requestId",
                id,
                "The request id was used for another request.",
            )));
        }
        self.operations.get(name).map(|operation| Ok(tell(operation, now)))
    }

    /// Begins an operation; what is told about it is the answer.
    pub(super) fn begin(&mut self, beginning: Beginning<'_>, target: &str, work: Work) -> Value {
        let Beginning { method, place, user, request, now } = beginning;
        let id = self.draw() >> 1;
        let name =
            format!("operation-{now}-{:012x}-{:08x}", id & 0xffff_ffff_ffff, self.draw() & 0xffff_ffff);
        let due = now + self.scaled(seconds(method));
        match &work {
            Work::Insert(_) => self.coming.insert(target.to_string(), name.clone()),
            Work::Delete => self.leaving.insert(target.to_string(), name.clone()),
            _ => None,
        };
        let operation = Operation {
            name: name.clone(),
            id,
            place: place.to_string(),
            method: method.to_string(),
            target: target.to_string(),
            user: user.to_string(),
            begun: now,
            due,
            ended: None,
            work,
            handed_over: false,
            error: None,
        };
        let told = tell(&operation, now);
        self.operations.insert(name.clone(), operation);
        if let Some((id, hash)) = request {
            self.requests.insert(id, (hash, name.clone()));
        }
        self.active.push(name);
        told
    }

    /// Carries out what is due, in the order of time. What has to happen to machines comes back.
    pub fn advance(&mut self, now: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.docs.values_mut().for_each(|doc| doc.draining.retain(|_, until| *until > now));
        loop {
            let open = self.active.iter().filter_map(|name| self.operations.get(name));
            let open = open.filter(|operation| !self.stalled.contains(&operation.method));
            let due = open.filter(|operation| !operation.handed_over && operation.due <= now);
            let Some(operation) = due.min_by_key(|operation| operation.due).cloned() else { return effects };
            let outcome = match self.scripted_failure(&operation) {
                Some(failed) => Err(failed),
                None => self.carry_out(&operation, now, &mut effects),
            };
            match outcome {
                Ok(End::Now) => self.end(&operation.name, now, None),
                Ok(End::Later) => {
                    if let Some(operation) = self.operations.get_mut(&operation.name) {
                        operation.handed_over = true;
                    }
                }
                Err(failed) => self.end(&operation.name, now, Some(failed)),
            }
        }
    }

    fn scripted_failure(&mut self, operation: &Operation) -> Option<Failed> {
        let name = name_of(&operation.target);
        let fits =
            |method: &str, pattern: &str| method == operation.method && Pattern::from(pattern).fits(name);
        let failure = self.failures.iter_mut().find(|f| f.times > 0 && fits(&f.method, &f.name))?;
        failure.times -= 1;
        Some(Failed::new(&failure.code, failure.message.clone(), failure.status))
    }

    fn carry_out(
        &mut self,
        operation: &Operation,
        now: u64,
        effects: &mut Vec<Effect>,
    ) -> Result<End, Failed> {
        let path = operation.target.as_str();
        let gone = || Failed::new("RESOURCE_NOT_FOUND", format!("The resource '{path}' was not found"), 404);
        match &operation.work {
            Work::Insert(fields) => return self.finish_insert(operation, fields.clone(), now, effects),
            Work::Delete => return self.finish_delete(path, effects).map(|()| End::Now),
            Work::Update(fields) => {
                let doc = self.docs.get_mut(path).ok_or_else(gone)?;
                replace(&mut doc.fields, fields);
            }
            Work::Set(fields) => {
                let doc = self.docs.get_mut(path).ok_or_else(gone)?;
                doc.fields.extend(fields.clone());
            }
            Work::Members { add, remove } => {
                self.change_members(path, add, remove);
                self.drain(path, remove, now);
            }
            Work::Start => return self.finish_start(operation, effects),
            Work::Stop => self.finish_stop(path, now, effects),
            Work::Reset => {
                let machine = self.doc(path).ok_or_else(gone)?.machine;
                effects.extend(machine.map(|address| Effect::Cycle { address }));
            }
        }
        if let Some(doc) = self.docs.get_mut(path) {
            super::state::refresh_fingerprints(super::state::collection_of(path), &mut doc.fields);
        }
        Ok(End::Now)
    }

    pub(super) fn end(&mut self, name: &str, now: u64, error: Option<Failed>) {
        self.active.retain(|active| active != name);
        self.coming.retain(|_, operation| operation != name);
        self.leaving.retain(|_, operation| operation != name);
        let Some(operation) = self.operations.get_mut(name) else { return };
        operation.ended = Some(now);
        operation.error = error;
        if operation.error.is_some() {
            let (target, work) = (operation.target.clone(), operation.work.clone());
            self.undo(&target, &work);
        }
    }

    /// What was shown in advance of an operation that has failed is taken back.
    fn undo(&mut self, target: &str, work: &Work) {
        match work {
            Work::Insert(_) => {
                self.docs.remove(target);
            }
            Work::Delete | Work::Stop => self.set_status(target, "STOPPING", "RUNNING"),
            Work::Start => self.set_status(target, "STAGING", "TERMINATED"),
            _ => {}
        }
    }

    /// An operation by its name and place.
    pub(super) fn operation(&self, place: &str, name: &str) -> Result<&Operation, Refusal> {
        let found = self.operations.get(name).filter(|operation| operation.place == place);
        found.ok_or_else(|| Refusal::not_found(&format!("{place}/operations/{name}")))
    }

    /// Whether an operation of this name is still under way.
    pub(super) fn is_under_way(&self, name: &str) -> bool {
        self.operations.get(name).is_some_and(|operation| operation.ended.is_none())
    }
}

/// What the API shows of an operation.
pub(super) fn tell(operation: &Operation, now: u64) -> Value {
    let verb = operation.method.rsplit('.').next().unwrap_or_default();
    let started = operation.begun + (operation.due - operation.begun) / 4;
    let status = match operation.ended {
        Some(_) => "DONE",
        None if now > started => "RUNNING",
        None => "PENDING",
    };
    let mut told = json!({
        "kind": "compute#operation",
        "id": operation.id.to_string(),
        "name": operation.name,
        "operationType": verb,
        "targetLink": link(&operation.target),
        "status": status,
        "user": operation.user,
        "progress": if status == "DONE" { 100 } else { 0 },
        "insertTime": timestamp(operation.begun),
        "selfLink": link(&format!("{}/operations/{}", operation.place, operation.name)),
    });
    match operation.place.split('/').collect::<Vec<_>>()[..] {
        [_, _, "zones", _] => told["zone"] = link(&operation.place).into(),
        [_, _, "regions", _] => told["region"] = link(&operation.place).into(),
        _ => {}
    }
    if let Some(ended) = operation.ended {
        told["startTime"] = timestamp(started).into();
        told["endTime"] = timestamp(ended).into();
    }
    if let Some(failed) = &operation.error {
        told["error"] = json!({ "errors": [{ "code": failed.code, "message": failed.message }] });
        told["httpErrorStatusCode"] = failed.status.into();
        told["httpErrorMessage"] = failed.status_text().into();
    }
    told
}

/// A merge patch: objects are merged, everything else is replaced, null takes away.
pub(super) fn merge(fields: &mut Fields, changes: &Fields) {
    for (name, change) in changes {
        match (fields.get_mut(name), change) {
            (_, Value::Null) => {
                fields.remove(name);
            }
            (Some(Value::Object(old)), Value::Object(new)) => merge(old, new),
            _ => {
                fields.insert(name.clone(), change.clone());
            }
        }
    }
}

/// Everything but what the server writes is as given.
pub(super) fn replace(fields: &mut Fields, new: &Fields) {
    const SERVERS: [&str; 7] = ["id", "creationTimestamp", "kind", "selfLink", "region", "zone", "name"];
    fields.retain(|name, _| SERVERS.contains(&name.as_str()));
    for (name, value) in new {
        fields.entry(name.clone()).or_insert_with(|| value.clone());
    }
}
