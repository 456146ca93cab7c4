//! What machines, load balancers and the preflight share: the client, following operations, sending changes, finding instances.

use super::client::Client;
use super::error::{CallError, Refusal};
use super::names::{last, request_id, tail};
use super::part::{Kind, Mutation, Part, Scope, Thing, Verb};
use super::settings::Settings;
use super::watch::{Known, Watches, is_over};
use crate::failure::{Class, Failure};
use crate::seam::Operation;
use crate::together::Questions;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How long until a look at something that Google gives no operation for.
pub(crate) const SOON: Duration = Duration::from_millis(250);

/// Shortest and longest time until a caller asks again after an operation. That costs no call: see `watch.rs`.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(250));

/// Between the operations of one object that are under way at once.
const SEPARATOR: char = ',';

/// A project at Google.
pub(crate) struct Driver {
    pub(crate) client: Arc<Client>,
    pub(crate) settings: Settings,
    zones: tokio::sync::Mutex<Option<Vec<String>>>,
    /// How often a change was answered: a repetition of what was answered is a new change, one of what was not is the same.
    answered: Mutex<BTreeMap<String, u64>>,
    /// Failed operations that were reported: the same one must not be reported for ever when its id is kept.
    reported: Mutex<BTreeSet<String>>,
    watches: Watches,
    /// All instances of a cluster, by its uid.
    pub(crate) listings: Questions<Vec<Thing>>,
}

/// Operations that are under way. What is over, or known to nobody any more, is not among them: what is there decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UnderWay {
    paths: Vec<String>,
    /// Ends of the URLs of what they change.
    pub(crate) targets: BTreeSet<String>,
    /// The same of those that have just ended, well or not.
    pub(crate) ended: BTreeSet<String>,
    /// When to look again.
    pub(crate) recheck: Duration,
}

/// What became of a change.
pub(crate) enum Sent {
    /// It is under way.
    Began { operation: Option<Operation>, recheck: Duration },
    /// It was not made, and only a look tells why: it is done already, or can't be done yet.
    LookAgain { why: String, recheck: Duration },
}

impl UnderWay {
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    fn goes_on(&mut self, path: &str, target: &str, passed: Duration) {
        self.targets.insert(target.to_owned());
        self.paths.push(path.to_owned());
        self.recheck = self.recheck.min(ask_again(passed));
    }

    /// What the caller keeps.
    pub(crate) fn operation(&self) -> Option<Operation> {
        (!self.paths.is_empty()).then(|| Operation(self.paths.join(&SEPARATOR.to_string())))
    }

    /// The same, and one more.
    pub(crate) fn and(&self, one: Option<Operation>) -> Option<Operation> {
        let mut all = self.paths.clone();
        all.extend(one.map(|Operation(path)| path));
        UnderWay { paths: all, ..UnderWay::default() }.operation()
    }
}

impl Driver {
    pub(crate) fn new(client: Client, settings: Settings) -> Self {
        Self {
            client: Arc::new(client),
            settings,
            zones: tokio::sync::Mutex::default(),
            answered: Mutex::default(),
            reported: Mutex::default(),
            watches: Watches::default(),
            listings: Questions::default(),
        }
    }

    /// Looks what has become of operations. A failed one is an error the first time. Those that this process began are followed
    /// already, so that it costs no call; others are looked at once, and followed.
    pub(crate) async fn follow(
        &self,
        operation: Option<&Operation>,
        object: &str,
    ) -> Result<UnderWay, Failure> {
        let mut under_way = UnderWay { recheck: ASK_AGAIN.1, ..UnderWay::default() };
        let mut failed = None;
        for path in operation.into_iter().flat_map(|Operation(paths)| paths.split(SEPARATOR)) {
            check_path(path)?;
            let state = match self.watches.ask(path) {
                Known::UnderWay(target, passed) => {
                    under_way.goes_on(path, &target, passed);
                    continue;
                }
                Known::Over(state) => state,
                Known::Nothing => self.client.get(path, object).await,
            };
            let state = match state {
                Ok(state) => state,
                Err(CallError::Refused(refusal)) if refusal.not_found(path) => continue,
                Err(error) => {
                    return Err(error.failure(&format!("looking at the operation {path} for {object}")));
                }
            };
            let target = state.get("targetLink").and_then(Value::as_str).unwrap_or_default();
            if !is_over(&state) {
                self.watches.begin(&self.client, path, tail(target), object);
                under_way.goes_on(path, tail(target), Duration::ZERO);
                continue;
            }
            under_way.ended.insert(tail(target).to_owned());
            let Some(refusal) = Refusal::of_operation(&state) else { continue };
            if harmless(&refusal, target) || !self.reported.lock().insert(path.to_owned()) {
                continue;
            }
            let kind = state.get("operationType").and_then(Value::as_str).unwrap_or("operation");
            failed =
                Some(refusal.failure(&format!("{object}: the operation {kind} on {} failed", last(target))));
        }
        failed.map_or(Ok(under_way), Err)
    }

    /// Zones that machines are spread over.
    pub(crate) async fn zones(&self, object: &str) -> Result<Vec<String>, Failure> {
        if !self.settings.zones.is_empty() {
            return Ok(self.settings.zones.clone());
        }
        let mut kept = self.zones.lock().await;
        if let Some(zones) = kept.as_ref() {
            return Ok(zones.clone());
        }
        let path = format!("regions/{}", self.settings.region);
        let region = self.client.get(&path, object).await;
        let region =
            region.map_err(|error| error.failure(&format!("reading the zones of {path} for {object}")))?;
        let zones = zones_of(&region);
        *kept = Some(zones.clone());
        Ok(zones)
    }

    /// One thing; `None` when it is not there.
    pub(crate) async fn find(&self, part: &Part, object: &str) -> Result<Option<Thing>, Failure> {
        let path = part.path();
        match self.client.get(&path, object).await {
            Ok(body) => Ok(Thing::read(part.kind, &body)),
            Err(CallError::Refused(refusal)) if refusal.not_found(&path) => Ok(None),
            Err(error) => Err(error.failure(&format!("looking at {} for {object}", part.words()))),
        }
    }

    /// All things of a kind in our region that a filter lets through.
    pub(crate) async fn list(&self, kind: Kind, filter: &str, object: &str) -> Result<Vec<Thing>, Failure> {
        let path = kind.list_path(&self.settings.region);
        let found = self.client.list(&path, filter, object).await;
        let found =
            found.map_err(|error| error.failure(&format!("listing each {} for {object}", kind.words())))?;
        let inside = format!("{}-", self.settings.region);
        Ok(found
            .iter()
            .filter_map(|body| Thing::read(kind, body))
            .filter(|thing| thing.part.zone().is_none_or(|zone| zone.starts_with(&inside)))
            .collect())
    }

    /// Instances of some names in our region, in whichever zone. Names are unique in a zone only.
    pub(crate) async fn instances(
        &self,
        names: &BTreeSet<String>,
        object: &str,
    ) -> Result<Vec<Thing>, Failure> {
        let mut all = Vec::new();
        for name in names {
            let found = self.list(Kind::Instance, &format!("name = {name}"), object).await?;
            all.extend(found.into_iter().filter(|thing| thing.part.name == *name));
        }
        Ok(all)
    }

    /// An operation that makes one of some names and is under way: what it makes may not be seen yet.
    pub(crate) async fn being_made(
        &self,
        scopes: &[Scope],
        ours: impl Fn(&str) -> bool,
        object: &str,
    ) -> Result<Option<Operation>, Failure> {
        for scope in scopes {
            let path = format!("{}/operations", scope.path());
            let found = self.client.list(&path, "status != DONE", object).await;
            let found = found
                .map_err(|error| error.failure(&format!("listing the operations in {path} for {object}")))?;
            let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
            let making = found.iter().find(|entry| {
                text(entry, "status").as_deref() != Some("DONE")
                    && text(entry, "operationType").is_some_and(|kind| kind.eq_ignore_ascii_case("insert"))
                    && text(entry, "targetLink").is_some_and(|target| ours(last(&target)))
            });
            if let Some(name) = making.and_then(|entry| text(entry, "name")) {
                return Ok(Some(Operation(format!("{path}/{name}"))));
            }
        }
        Ok(None)
    }

    /// Sends a change.
    pub(crate) async fn send(&self, mutation: &Mutation) -> Result<Sent, Failure> {
        let (wire, change) = (mutation.wire(), mutation.change().to_string());
        let body = wire.body.as_ref().map(Value::to_string).unwrap_or_default();
        let step = format!("{} {}", wire.method, wire.path);
        let key = request_id(&mutation.about.uid, &step, &body, 0);
        let turn = self.answered.lock().get(&key).copied().unwrap_or(0);
        let id = request_id(&mutation.about.uid, &step, &body, turn);
        let answer = self.client.change(&wire, &id, &change).await;
        if !matches!(answer, Err(CallError::Failed(_))) {
            *self.answered.lock().entry(key).or_default() += 1;
        }
        let look_again = |why: &str, recheck| Sent::LookAgain { why: why.to_owned(), recheck };
        match answer {
            Ok(state) => self.began(mutation, &state, &change),
            Err(CallError::Refused(refusal)) => {
                let path = mutation.part.path();
                let gone = refusal.not_found(&path);
                match &mutation.verb {
                    Verb::Insert { .. } if refusal.exists_already() => {
                        Ok(look_again("another look: it exists already", SOON))
                    }
                    // What was made a moment ago is not known everywhere at once.
                    _ if refusal.part_not_seen() && !gone => {
                        Ok(look_again("another look: a part of it is not seen everywhere yet", SOON))
                    }
                    Verb::Insert { .. } if !refusal.not_now() => Err(refusal.failure(&change)),
                    _ if gone => Ok(look_again("another look: it is gone", SOON)),
                    Verb::Delete if refusal.in_use() => {
                        Ok(look_again(&format!("{} to be released", mutation.part.words()), SOON * 2))
                    }
                    Verb::AddInstances(_) if refusal.exists_already() => {
                        Ok(look_again("another look: it is a member already", SOON))
                    }
                    Verb::RemoveInstances(_) if refusal.not_a_member() => {
                        Ok(look_again("another look: it is no member any more", SOON))
                    }
                    _ if refusal.not_now() => {
                        Ok(look_again(&format!("{} to be free", mutation.part.words()), SOON))
                    }
                    _ => Err(refusal.failure(&change)),
                }
            }
            Err(CallError::Failed(failure)) => Err(failure),
        }
    }

    /// The operation that an answer tells of. It is followed from now on.
    fn began(&self, mutation: &Mutation, state: &Value, change: &str) -> Result<Sent, Failure> {
        let done = is_over(state);
        if done && let Some(refusal) = Refusal::of_operation(state) {
            let target = state.get("targetLink").and_then(Value::as_str).unwrap_or_default();
            if harmless(&refusal, target) {
                return Ok(Sent::LookAgain { why: "another look".to_owned(), recheck: SOON });
            }
            return Err(refusal.failure(change));
        }
        let Some(name) = state.get("name").and_then(Value::as_str).filter(|_| !done) else {
            return Ok(Sent::Began { operation: None, recheck: Duration::ZERO });
        };
        let path = format!("{}/operations/{name}", mutation.part.scope.path());
        let url = self.settings.url(&mutation.part.path());
        let object = format!("{} {}", mutation.about.kind, mutation.about.name);
        self.watches.begin(&self.client, &path, tail(&url), &object);
        Ok(Sent::Began { operation: Some(Operation(path)), recheck: ASK_AGAIN.0 })
    }
}

/// Whether an operation failed only since somebody, maybe we ourselves, was there before.
fn harmless(refusal: &Refusal, target: &str) -> bool {
    refusal.exists_already()
        || refusal.not_found(target)
        || refusal.part_not_seen()
        || refusal.in_use()
        || refusal.not_now()
        || refusal.not_a_member()
}

/// Operations come back from a status that others can write: only what has their form is asked for.
fn check_path(path: &str) -> Result<(), Failure> {
    let parts: Vec<&str> = path.split('/').collect();
    let plain =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let known = match parts.as_slice() {
        ["global", "operations", name] => plain(name),
        ["regions" | "zones", place, "operations", name] => plain(place) && plain(name),
        _ => false,
    };
    if known {
        return Ok(());
    }
    Err(Failure::new(
        Class::Terminal,
        "OperationUnknown",
        format!("{path:?} is not an operation of Google's"),
        "remove status.operation of the request",
    ))
}

/// How long until a caller asks again after something that has been followed so long.
fn ask_again(passed: Duration) -> Duration {
    (passed / 20).clamp(ASK_AGAIN.0, ASK_AGAIN.1)
}

/// Zones of a region, in the order of their names.
pub(crate) fn zones_of(region: &Value) -> Vec<String> {
    let zones = region.get("zones").and_then(Value::as_array);
    let mut zones: Vec<String> =
        zones.into_iter().flatten().filter_map(Value::as_str).map(|url| last(url).to_owned()).collect();
    zones.sort();
    zones
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_operations_are_followed() {
        for good in ["global/operations/operation-1", "regions/r-1/operations/o", "zones/z/operations/o"] {
            assert!(check_path(good).is_ok(), "{good}");
        }
        for bad in ["", "regions/r/addresses/a", "zones/../operations/o?x=1", "UPID:pve1:1"] {
            assert_eq!(check_path(bad).unwrap_err().reason, "OperationUnknown", "{bad}");
        }
    }

    #[test]
    fn zones_are_read_and_callers_do_not_wait_long() {
        assert_eq!(ask_again(Duration::ZERO), ASK_AGAIN.0);
        assert_eq!(ask_again(Duration::from_secs(2)), Duration::from_millis(100));
        assert_eq!(ask_again(Duration::from_secs(100)), ASK_AGAIN.1);
        let region = json!({"zones": ["https://x/projects/p/zones/r-c", "https://x/projects/p/zones/r-a"]});
        assert_eq!(zones_of(&region), ["r-a", "r-c"]);
    }
}
