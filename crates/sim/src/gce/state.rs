//! What a simulated project is at one moment. A clone of it is a snapshot; `advance` and `handle` are all that change it.
//!
//! Resources are kept as the documents that the API shows, by their path (`projects/p/zones/z/instances/i`), with what the
//! API does not show beside them.

use super::operations::Operation;
use super::site::{GceSite, SiteAccount, SiteFailure};
use crate::random::Random;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

pub(super) type Fields = Map<String, Value>;

/// Where links begin.
const LINKS: &str = "https://www.googleapis.com/compute/v1/";

/// Everything that a project knows.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub(super) seed: u64,
    pub(super) draws: u64,
    /// Scales every delay.
    pub(super) speed: f64,
    pub(super) project: String,
    pub(super) regions: BTreeMap<String, Vec<String>>,
    /// Resources by path.
    pub(super) docs: BTreeMap<String, Doc>,
    /// Resources that are being made or are going: by path, the operation.
    pub(super) coming: BTreeMap<String, String>,
    pub(super) leaving: BTreeMap<String, String>,
    pub(super) operations: BTreeMap<String, Operation>,
    /// Operations that are not done, in the order in which they began.
    pub(super) active: Vec<String>,
    /// What a request id was first used for: a hash of the request, and the operation.
    pub(super) requests: BTreeMap<String, (String, String)>,
    pub(super) quotas: BTreeMap<String, f64>,
    pub(super) accounts: Vec<SiteAccount>,
    /// Access tokens: whose, and until when in milliseconds.
    pub(super) tokens: BTreeMap<String, (String, u64)>,
    pub(super) failures: Vec<SiteFailure>,
    /// Methods whose operations do not end.
    pub(super) stalled: BTreeSet<String>,
    pub(super) client: IpAddr,
    pub(super) vpn: bool,
    pub(super) metadata_server: bool,
}

/// A resource.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Doc {
    /// As the API shows it.
    pub(super) fields: Fields,
    /// Lists show it from then on, in milliseconds.
    pub(super) listed_from: u64,
    /// Instances of an instance group.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) members: BTreeSet<String>,
    /// Instances that have left it and keep their connections until then, in milliseconds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) draining: BTreeMap<String, u64>,
    /// Version of Talos on an image, or on the boot disk of an instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) system: Option<String>,
    /// The instance's machine in the world, once it was switched on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) machine: Option<IpAddr>,
}

/// What has to happen to machines and their addresses, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Switch on; how it went goes to [`State::booted`]. An address that is there already keeps its disk.
    PowerOn { operation: String, path: String, boot: Boot },
    /// Pull the plug.
    PowerOff { address: IpAddr },
    /// Off and on again.
    Cycle { address: IpAddr },
    /// Take it away, with its disk.
    Remove { address: IpAddr },
    /// An external address leads to a machine from now on, or to nobody.
    Translate { external: IpAddr, internal: Option<IpAddr> },
}

/// How a machine comes up.
#[derive(Clone, PartialEq)]
pub struct Boot {
    pub address: IpAddr,
    /// `None`: not Talos, and nothing is simulated behind it.
    pub talos_version: Option<String>,
    pub hostname: String,
    /// The configuration in the instance's metadata; holds secrets.
    pub user_data: Option<String>,
    /// It was on before: the machine is in the world, switched off.
    pub known: bool,
}

// By hand: metadata of instances holds secrets, and tokens are some.
impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("project", &self.project)
            .field("resources", &self.docs.keys())
            .field("active", &self.active)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Doc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doc").field("name", &self.fields.get("name")).finish_non_exhaustive()
    }
}

impl fmt::Debug for Boot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Boot")
            .field("address", &self.address)
            .field("hostname", &self.hostname)
            .finish_non_exhaustive()
    }
}

impl State {
    /// The state at the beginning of time.
    #[must_use]
    pub fn new(site: &GceSite, speed: f64, seed: u64) -> Self {
        let mut state = Self {
            seed,
            draws: 0,
            speed,
            project: site.project.clone(),
            regions: site.regions.clone(),
            docs: BTreeMap::new(),
            coming: BTreeMap::new(),
            leaving: BTreeMap::new(),
            operations: BTreeMap::new(),
            active: Vec::new(),
            requests: BTreeMap::new(),
            quotas: site.quotas.clone(),
            accounts: site.accounts.clone(),
            tokens: BTreeMap::new(),
            failures: site.failures.clone(),
            stalled: BTreeSet::new(),
            client: site.client,
            vpn: site.vpn,
            metadata_server: site.metadata_server,
        };
        super::furnish::furnish(&mut state, site);
        state
    }

    /// The next random number: the same for the same seed and history.
    pub(super) fn draw(&mut self) -> u64 {
        self.draws += 1;
        Random::new(self.seed ^ self.draws.wrapping_mul(0xa076_1d64_78bd_642f)).next()
    }

    /// Milliseconds that something takes at this state's speed.
    pub(super) fn scaled(&mut self, seconds: f64) -> u64 {
        let jitter = crate::delays::jitter(self.seed, Random::new(self.draw()).fraction());
        let length = std::time::Duration::try_from_secs_f64(seconds * self.speed.max(0.0) * jitter);
        length.map_or(u64::MAX / 4, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 4))
    }

    /// When the next operation is due, or a drained target goes, in milliseconds.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        let open = self.active.iter().filter_map(|name| self.operations.get(name));
        let open =
            open.filter(|operation| !operation.handed_over && !self.stalled.contains(&operation.method));
        let due = open.map(|operation| operation.due);
        due.chain(self.docs.values().flat_map(|doc| doc.draining.values().copied())).min()
    }

    /// How much is under way: operations, and targets that drain.
    pub(super) fn under_way(&self) -> usize {
        self.active.len() + self.docs.values().map(|doc| doc.draining.len()).sum::<usize>()
    }

    /// A state of before takes over what is never stale: operations, and who may call.
    pub(super) fn keep_current(&mut self, current: &State) {
        self.operations.clone_from(&current.operations);
        self.tokens.clone_from(&current.tokens);
        self.accounts.clone_from(&current.accounts);
    }

    pub(super) fn doc(&self, path: &str) -> Option<&Doc> {
        self.docs.get(path)
    }

    /// A field of a resource as text.
    pub(super) fn text(&self, path: &str, field: &str) -> &str {
        self.docs.get(path).and_then(|doc| doc.fields.get(field)).and_then(Value::as_str).unwrap_or_default()
    }

    /// All resources of a collection, wherever they are: `backendServices`.
    pub(super) fn all<'a>(&'a self, collection: &'a str) -> impl Iterator<Item = (&'a String, &'a Doc)> {
        self.docs.iter().filter(move |(path, _)| collection_of(path) == collection)
    }

    /// The path of what a link names, in any of the forms that the API takes.
    pub(super) fn path_of(&self, link: &str) -> Option<String> {
        let rest = match link.split_once("/compute/v1/").or_else(|| link.split_once("/compute/beta/")) {
            Some((_, rest)) => rest,
            None => link.trim_start_matches('/'),
        };
        match rest.split('/').next()? {
            "projects" => Some(rest.to_string()),
            "global" | "regions" | "zones" if rest.contains('/') => {
                Some(format!("projects/{}/{rest}", self.project))
            }
            _ => None,
        }
    }

    /// Puts a resource in place, with what the server writes into each.
    pub(super) fn put(&mut self, path: &str, mut doc: Doc, now: u64) {
        let id = self.draw() >> 1;
        let fields = &mut doc.fields;
        fields.entry("id").or_insert_with(|| id.to_string().into());
        fields.entry("creationTimestamp").or_insert_with(|| timestamp(now).into());
        fields.insert("kind".into(), format!("compute#{}", singular(collection_of(path))).into());
        fields.insert("name".into(), name_of(path).into());
        fields.insert("selfLink".into(), link(path).into());
        match path.split('/').collect::<Vec<_>>()[..] {
            ["projects", _, "zones", zone, _, _] => {
                fields.insert("zone".into(), link(&format!("projects/{}/zones/{zone}", self.project)).into());
            }
            ["projects", _, "regions", region, _, _] => {
                fields.insert(
                    "region".into(),
                    link(&format!("projects/{}/regions/{region}", self.project)).into(),
                );
            }
            _ => {}
        }
        refresh_fingerprints(collection_of(path), fields);
        self.docs.insert(path.to_string(), doc);
    }

    /// Names of all instances, each with the address of its machine.
    #[must_use]
    pub fn machines(&self) -> Vec<(String, IpAddr)> {
        self.all("instances").filter_map(|(path, doc)| Some((path.clone(), doc.machine?))).collect()
    }

    /// How often an instance was made, by name: those that are gone count too.
    #[must_use]
    pub fn launched(&self) -> BTreeMap<String, usize> {
        let mut times = BTreeMap::new();
        let inserts = self.operations.values().filter(|one| one.method == "compute.instances.insert");
        for insert in inserts.filter(|one| one.ended.is_some() && one.error.is_none()) {
            *times.entry(insert.target.rsplit('/').next().unwrap_or_default().to_owned()).or_default() += 1;
        }
        times
    }

    /// Paths of all resources that a caller can have made, without the ones of the site.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let fixed = ["networks", "subnetworks", "images"];
        self.docs.keys().filter(|path| !fixed.contains(&collection_of(path))).cloned().collect()
    }

    /// A resource as the API shows it.
    #[must_use]
    pub fn resource(&self, path: &str) -> Option<Value> {
        self.docs.get(path).map(|doc| Value::Object(doc.fields.clone()))
    }

    /// The region of a zone.
    pub(super) fn region_of_zone(&self, zone: &str) -> Option<&str> {
        self.regions
            .iter()
            .find(|(_, zones)| zones.iter().any(|known| known == zone))
            .map(|(region, _)| region.as_str())
    }

    /// The region of a resource in a region or zone.
    pub(super) fn region_of<'a>(&'a self, path: &'a str) -> Option<&'a str> {
        match path.split('/').collect::<Vec<_>>()[..] {
            ["projects", _, "regions", region, ..] => Some(region),
            ["projects", _, "zones", zone, ..] => self.region_of_zone(zone),
            _ => None,
        }
    }
}

/// What an administrator can do behind the API's back, for tests.
impl State {
    /// Puts a resource in place as if somebody else had made it.
    pub fn add_foreign(&mut self, path: &str, fields: Value) {
        let fields = fields.as_object().cloned().unwrap_or_default();
        self.put(path, Doc { fields, ..Doc::default() }, 0);
    }

    /// Takes a resource away, whoever uses it.
    pub fn take_away(&mut self, path: &str) -> bool {
        self.docs.remove(path).is_some()
    }

    /// Changes fields of a resource.
    pub fn set_fields(&mut self, path: &str, changes: &Value) -> bool {
        let Some(doc) = self.docs.get_mut(path) else { return false };
        doc.fields.extend(changes.as_object().cloned().unwrap_or_default());
        refresh_fingerprints(collection_of(path), &mut doc.fields);
        true
    }

    /// Puts an instance into an instance group or target pool.
    pub fn add_member(&mut self, path: &str, instance: &str) -> bool {
        self.change_members(path, &[instance.to_string()], &[]);
        self.docs.contains_key(path)
    }

    pub fn set_quota(&mut self, metric: &str, limit: f64) {
        self.quotas.insert(metric.to_string(), limit);
    }

    /// The next operations of a kind end with an error.
    pub fn fail(&mut self, failure: SiteFailure) {
        self.failures.push(failure);
    }

    /// From now on operations of a method (`compute.forwardingRules.insert`) do not end, or do again.
    pub fn stall(&mut self, method: &str, stalled: bool) {
        if stalled {
            self.stalled.insert(method.to_string());
        } else {
            self.stalled.remove(method);
        }
    }

    /// An account lacks exactly these permissions from now on.
    pub fn set_lacking(&mut self, permissions: &[&str]) {
        for account in &mut self.accounts {
            account.lacks = permissions.iter().map(ToString::to_string).collect();
        }
    }

    /// Every account has these permissions, which may be patterns, and no others.
    pub fn set_holding(&mut self, permissions: &[&str]) {
        for account in &mut self.accounts {
            account.permissions = permissions.iter().map(ToString::to_string).collect();
        }
    }

    /// No token that was given out is worth anything any more.
    pub fn expire_tokens(&mut self) {
        self.tokens.clear();
    }

    /// Keys of accounts are (not) accepted.
    pub fn set_disabled(&mut self, disabled: bool) {
        self.accounts.iter_mut().for_each(|account| account.disabled = disabled);
    }

    /// Takes an image away, or all of them without a name.
    pub fn remove_image(&mut self, name: Option<&str>) {
        let gone =
            |path: &String| collection_of(path) == "images" && name.is_none_or(|name| name_of(path) == name);
        self.docs.retain(|path, _| !gone(path));
    }
}

/// The last part of a path.
pub(super) fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// The part before the last: `instances`.
pub(super) fn collection_of(path: &str) -> &str {
    path.rsplit('/').nth(1).unwrap_or_default()
}

/// The link of a path.
pub(super) fn link(path: &str) -> String {
    format!("{LINKS}{path}")
}

pub(super) fn singular(collection: &str) -> &str {
    match collection {
        "addresses" => "address",
        other => other.strip_suffix('s').unwrap_or(other),
    }
}

pub(super) fn timestamp(millis: u64) -> String {
    let millis = i64::try_from(millis).unwrap_or_default();
    jiff::Timestamp::from_millisecond(millis).map(|time| time.to_string()).unwrap_or_default()
}

/// Eight bytes of a hash, as the API writes fingerprints.
pub(super) fn fingerprint(value: &Value) -> String {
    use base64::Engine;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, value.to_string().as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

/// Fingerprints follow from what they stand for.
pub(super) fn refresh_fingerprints(collection: &str, fields: &mut Fields) {
    if matches!(collection, "instances" | "disks" | "addresses" | "forwardingRules") {
        let labels = fields.get("labels").cloned().unwrap_or_else(|| json!({}));
        fields.insert("labelFingerprint".into(), fingerprint(&labels).into());
    }
    if collection == "instances" {
        for part in ["tags", "metadata"] {
            let Some(Value::Object(inner)) = fields.get_mut(part) else { continue };
            let items = inner.get("items").cloned().unwrap_or_default();
            inner.insert("fingerprint".into(), fingerprint(&items).into());
        }
    }
    if matches!(collection, "backendServices" | "forwardingRules" | "instances") {
        fields.remove("fingerprint");
        let whole = fingerprint(&Value::Object(fields.clone()));
        fields.insert("fingerprint".into(), whole.into());
    }
}
