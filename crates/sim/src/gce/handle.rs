//! One call, one answer.

use super::model::{self, Request};
use super::operations::Beginning;
use super::request::{Answer, Call, Outcome, Refusal};
use super::state::{Fields, State, collection_of, fingerprint, name_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Whether a target of a load balancer passes its checks: by the balancer's name, the pool, and the target.
pub type Healths<'a> = &'a dyn Fn(&str, &str, SocketAddr) -> bool;

/// A call that has passed all checks of its form.
pub(super) struct Asked<'a> {
    pub(super) request: Request,
    pub(super) query: &'a BTreeMap<String, String>,
    pub(super) body: Fields,
    /// `projects/p/regions/r`, `projects/p/zones/z`, `projects/p/global`.
    pub(super) place: String,
    pub(super) user: String,
    pub(super) now: u64,
}

impl Asked<'_> {
    /// The path of the resource that the call names, or of its collection.
    pub(super) fn path(&self) -> String {
        let collection = shown_collection(self.request.collection());
        match self.request.path.iter().find(|(key, _)| !matches!(key.as_str(), "project" | "region" | "zone"))
        {
            Some((_, name)) => format!("{}/{collection}/{name}", self.place),
            None => format!("{}/{collection}", self.place),
        }
    }

    pub(super) fn beginning(&self) -> Beginning<'_> {
        let request = self.query.get("requestId").map(|id| {
            let whole = json!([self.request.id, self.request.path, self.body]);
            (id.clone(), fingerprint(&whole))
        });
        Beginning { method: self.request.id, place: &self.place, user: &self.user, request, now: self.now }
    }
}

/// Regional collections have a word before their name in methods, and none in paths.
pub(super) fn shown_collection(collection: &str) -> &str {
    match collection {
        "regionHealthChecks" => "healthChecks",
        "regionBackendServices" => "backendServices",
        "zoneOperations" | "regionOperations" | "globalOperations" => "operations",
        other => other,
    }
}

impl State {
    /// Answers a call. What it begins is carried out by [`State::advance`].
    pub fn handle(&mut self, call: &Call, now: u64, healths: Healths<'_>) -> Answer {
        if call.host == "oauth2.googleapis.com" || call.path == "/oauth2/v4/token" {
            return match (call.method.as_str(), call.path.as_str()) {
                ("POST", "/token" | "/oauth2/v4/token") => self.token(call, now),
                _ => Answer::of(Err(Refusal::not_found(&call.path))),
            };
        }
        if call.host == "169.254.169.254" || call.host == "metadata.google.internal" {
            return self.metadata(call, now);
        }
        Answer::of(self.ask(call, now, healths))
    }

    fn ask(&mut self, call: &Call, now: u64, healths: Healths<'_>) -> Outcome {
        let unknown = || Refusal::not_simulated(&format!("{} {}", call.method, call.path));
        let request = model::find(&call.method, &call.path).ok_or_else(unknown)?;
        let account = self.caller(call, now)?.clone();
        let body = model::check(&request, &call.query, call.json()?)?;
        if let Some(id) = call.query.get("requestId")
            && !is_request_id(id)
        {
            return Err(Refusal::field("requestId", id, "Must be a valid UUID that is not zero."));
        }
        if !request.is_compute() {
            let named = request.path.values().next().map(String::as_str).unwrap_or_default();
            if named != self.project {
                return Err(Refusal::forbidden("resourcemanager.projects.get", &format!("projects/{named}")));
            }
            return Ok(match request.verb() {
                "testIamPermissions" => self.test_permissions(&account, &body),
                _ => json!({ "projectId": self.project, "lifecycleState": "ACTIVE", "state": "ACTIVE" }),
            });
        }
        let place = self.place(&request)?;
        let asked = Asked { request, query: &call.query, body, place, user: account.email.clone(), now };
        account.check(&asked.request, &asked.body, &asked.path())?;
        if asked.request.mutates() {
            // A request that was made before is answered from then, whatever has become of its resource.
            if let Some(before) = self.known_request(asked.beginning().request.as_ref(), now) {
                return before;
            }
            return self.change(&asked);
        }
        self.read(&asked, healths)
    }

    /// Where a call takes place; projects, regions and zones have to be there.
    fn place(&self, request: &Request) -> Result<String, Refusal> {
        let part = |name: &str| request.path.get(name).map(String::as_str);
        let project = part("project").unwrap_or_default();
        let has_images =
            || self.all("images").any(|(path, _)| path.starts_with(&format!("projects/{project}/")));
        if project != self.project && !(request.collection() == "images" && has_images()) {
            return Err(Refusal::not_found(&format!("projects/{project}")));
        }
        if let Some(zone) = part("zone") {
            if self.region_of_zone(zone).is_none() {
                return Err(Refusal::field("zone", zone, "Unknown zone."));
            }
            return Ok(format!("projects/{project}/zones/{zone}"));
        }
        if let Some(region) = part("region") {
            if request.collection() != "regions" && !self.regions.contains_key(region) {
                return Err(Refusal::field("region", region, "Unknown region."));
            }
            return Ok(format!("projects/{project}/regions/{region}"));
        }
        Ok(format!("projects/{project}/global"))
    }

    /// What a call is about, for logs and fault scripts.
    #[must_use]
    pub fn describe(&self, call: &Call) -> (String, String, bool) {
        if call.host == "oauth2.googleapis.com" {
            return ("oauth2.token".to_string(), "token".to_string(), false);
        }
        let Some(request) = model::find(&call.method, &call.path) else {
            return (format!("{} {}", call.method, call.path), call.host.clone(), call.method != "GET");
        };
        let named = request.path.iter().find(|(key, _)| {
            !matches!(key.as_str(), "project" | "region" | "zone" | "projectsId" | "projectId")
        });
        let named = named.map(|(_, name)| name.clone());
        let given = || {
            call.json()
                .ok()
                .and_then(|body| body.get("name").and_then(Value::as_str).map(ToString::to_string))
        };
        let collection = shown_collection(request.collection());
        let object = match (collection, named.or_else(given)) {
            ("operations", Some(name)) => {
                // The name of an operation differs from run to run; what it is about does not.
                self.operations
                    .get(&name)
                    .map_or_else(|| "operation".to_string(), |operation| object(&operation.target))
            }
            ("instances", Some(name)) => format!("machine {name}"),
            (collection, Some(name)) => format!("{collection} {name}"),
            (collection, None) => collection.to_string(),
        };
        (request.id.to_string(), object, request.mutates())
    }

    /// The operation that a call wants to wait for, if it does and that is not over.
    #[must_use]
    pub fn waits_for(&self, call: &Call) -> Option<String> {
        let request = model::find(&call.method, &call.path).filter(|request| request.verb() == "wait")?;
        request.path.get("operation").filter(|name| self.is_under_way(name)).cloned()
    }
}

fn object(path: &str) -> String {
    match collection_of(path) {
        "instances" => format!("machine {}", name_of(path)),
        collection => format!("{collection} {}", name_of(path)),
    }
}

/// A UUID that is not zero.
fn is_request_id(text: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    let fits = |(at, c): (usize, char)| if dashes.contains(&at) { c == '-' } else { c.is_ascii_hexdigit() };
    text.len() == 36 && text.char_indices().all(fits) && text.chars().any(|c| !matches!(c, '0' | '-'))
}
