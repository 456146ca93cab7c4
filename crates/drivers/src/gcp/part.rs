//! The things at Google that the driver makes: what they are called, where they are, what was seen of them, and how they are
//! changed.

use super::client::Wire;
use super::names::{LABEL_CLUSTER, LABEL_CLUSTER_UID, LABEL_OBJECT_UID, last, tail};
use crate::change::PlannedChange;
use crate::mark::Mark;
use crate::seam::Owner;
use reqwest::Method;
use serde_json::{Value, json};

/// What a thing is. In the order in which they can go: nothing is used by what comes after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    ForwardingRule,
    TargetPool,
    BackendService,
    InstanceGroup,
    HealthCheck,
    HttpHealthCheck,
    Firewall,
    Address,
    Instance,
    Disk,
}

/// Where a thing is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scope {
    Global,
    Region(String),
    Zone(String),
}

/// One thing, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Part {
    pub(crate) kind: Kind,
    pub(crate) scope: Scope,
    pub(crate) name: String,
}

/// A thing that is there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Thing {
    pub(crate) part: Part,
    /// Whose it is, as its description says, or its labels where a thing has them from its first moment.
    pub(crate) mark: Option<Mark>,
    pub(crate) body: Value,
}

/// One change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mutation {
    pub(crate) part: Part,
    /// Which of our objects it is for.
    pub(crate) about: About,
    pub(crate) verb: Verb,
}

/// An object of ours, in our words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    /// `machine`, `load-balancer`.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// What is done to a thing.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Verb {
    Insert {
        body: Value,
        words: String,
    },
    /// All of it anew.
    Replace {
        body: Value,
        words: String,
    },
    /// Some fields; with the fingerprint of what was read, where there is one.
    Patch {
        body: Value,
        words: String,
    },
    Delete,
    /// Instances by their URLs.
    AddInstances(Vec<String>),
    RemoveInstances(Vec<String>),
    Start,
    Resume,
}

impl Kind {
    /// Everything that a load balancer is made of.
    pub(crate) const OF_LOAD_BALANCERS: [Kind; 8] = [
        Kind::ForwardingRule,
        Kind::TargetPool,
        Kind::BackendService,
        Kind::InstanceGroup,
        Kind::HealthCheck,
        Kind::HttpHealthCheck,
        Kind::Firewall,
        Kind::Address,
    ];

    /// What things of this kind need, and what can't go before them.
    pub(crate) fn uses(self) -> &'static [Kind] {
        match self {
            Kind::ForwardingRule => &[Kind::TargetPool, Kind::BackendService, Kind::Address],
            Kind::TargetPool => &[Kind::HttpHealthCheck],
            Kind::BackendService => &[Kind::InstanceGroup, Kind::HealthCheck],
            _ => &[],
        }
    }

    /// Its place in a path.
    pub(crate) fn collection(self) -> &'static str {
        match self {
            Kind::ForwardingRule => "forwardingRules",
            Kind::TargetPool => "targetPools",
            Kind::BackendService => "backendServices",
            Kind::InstanceGroup => "instanceGroups",
            Kind::HealthCheck => "healthChecks",
            Kind::HttpHealthCheck => "httpHealthChecks",
            Kind::Firewall => "firewalls",
            Kind::Address => "addresses",
            Kind::Instance => "instances",
            Kind::Disk => "disks",
        }
    }

    /// For people.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Kind::ForwardingRule => "forwarding rule",
            Kind::TargetPool => "target pool",
            Kind::BackendService => "backend service",
            Kind::InstanceGroup => "instance group",
            Kind::HealthCheck => "health check",
            Kind::HttpHealthCheck => "legacy health check",
            Kind::Firewall => "firewall rule",
            Kind::Address => "address",
            Kind::Instance => "instance",
            Kind::Disk => "disk",
        }
    }

    /// The path that lists all of them in a region, wherever they are.
    pub(crate) fn list_path(self, region: &str) -> String {
        let collection = self.collection();
        match self {
            Kind::Firewall | Kind::HttpHealthCheck => format!("global/{collection}"),
            Kind::InstanceGroup | Kind::Instance | Kind::Disk => format!("aggregated/{collection}"),
            _ => format!("regions/{region}/{collection}"),
        }
    }
}

impl Scope {
    pub(crate) fn path(&self) -> String {
        match self {
            Scope::Global => "global".to_owned(),
            Scope::Region(region) => format!("regions/{region}"),
            Scope::Zone(zone) => format!("zones/{zone}"),
        }
    }

    fn words(&self) -> String {
        match self {
            Scope::Global => String::new(),
            Scope::Region(region) => format!(" in {region}"),
            Scope::Zone(zone) => format!(" in {zone}"),
        }
    }

    /// From what comes behind the project in a URL.
    fn read(path: &str) -> Option<Self> {
        let mut parts = path.split('/');
        match (parts.next()?, parts.next()) {
            ("global", _) => Some(Scope::Global),
            ("regions", Some(region)) => Some(Scope::Region(region.to_owned())),
            ("zones", Some(zone)) => Some(Scope::Zone(zone.to_owned())),
            _ => None,
        }
    }
}

impl Part {
    pub(crate) fn new(kind: Kind, scope: Scope, name: impl Into<String>) -> Self {
        Self { kind, scope, name: name.into() }
    }

    /// The thing that a URL, or its end from the project on, leads to.
    pub(crate) fn at(url: &str) -> Option<Self> {
        let (_, path) = tail(url).split_once('/')?;
        let mut ends = path.rsplit('/');
        let (name, collection) = (ends.next()?, ends.next()?);
        let mut kinds = Kind::OF_LOAD_BALANCERS.into_iter().chain([Kind::Instance, Kind::Disk]);
        let kind = kinds.find(|kind| kind.collection() == collection)?;
        Some(Self::new(kind, Scope::read(path)?, name))
    }

    fn folder(&self) -> String {
        format!("{}/{}", self.scope.path(), self.kind.collection())
    }

    /// Its path below the project.
    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.folder(), self.name)
    }

    /// For people.
    pub(crate) fn words(&self) -> String {
        format!("the {} {}{}", self.kind.words(), self.name, self.scope.words())
    }

    /// The zone that it is in.
    pub(crate) fn zone(&self) -> Option<&str> {
        match &self.scope {
            Scope::Zone(zone) => Some(zone),
            _ => None,
        }
    }
}

impl Thing {
    /// Reads what Google shows; `None` when it does not say where it is.
    pub(crate) fn read(kind: Kind, body: &Value) -> Option<Self> {
        let text = |key: &str| body.get(key).and_then(Value::as_str);
        let name = text("name")?;
        let (_, path) = tail(text("selfLink")?).split_once('/')?;
        let mark = text("description").and_then(Mark::read).or_else(|| marked_by_labels(body));
        Some(Self { part: Part::new(kind, Scope::read(path)?, name), mark, body: body.clone() })
    }

    pub(crate) fn is_of(&self, owner: &Owner) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.is_of(owner))
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.body.get(key).and_then(Value::as_str)
    }

    /// Last parts of the URLs in a list: names.
    pub(crate) fn urls(&self, key: &str) -> Vec<&str> {
        let list = self.body.get(key).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

/// The mark that labels make up.
fn marked_by_labels(body: &Value) -> Option<Mark> {
    let label = |key: &str| Some(body.get("labels")?.get(key)?.as_str()?.to_owned());
    Some(Mark {
        cluster: label(LABEL_CLUSTER).unwrap_or_default(),
        cluster_uid: label(LABEL_CLUSTER_UID)?,
        object_uid: label(LABEL_OBJECT_UID)?,
        labels: std::collections::BTreeMap::new(),
    })
}

impl Mutation {
    pub(crate) fn wire(&self) -> Wire {
        let part = self.part.path();
        let instances = |urls: &[String]| {
            let all: Vec<Value> = urls.iter().map(|url| json!({"instance": url})).collect();
            Some(json!({"instances": all}))
        };
        // A pool's methods are in the singular, although they take many.
        let plural = if self.part.kind == Kind::TargetPool { "" } else { "s" };
        let (method, path, body) = match &self.verb {
            Verb::Insert { body, .. } => (Method::POST, self.part.folder(), Some(body.clone())),
            Verb::Replace { body, .. } => (Method::PUT, part, Some(body.clone())),
            Verb::Patch { body, .. } => (Method::PATCH, part, Some(body.clone())),
            Verb::Delete => (Method::DELETE, part, None),
            Verb::AddInstances(urls) => {
                (Method::POST, format!("{part}/addInstance{plural}"), instances(urls))
            }
            Verb::RemoveInstances(urls) => {
                (Method::POST, format!("{part}/removeInstance{plural}"), instances(urls))
            }
            Verb::Start => (Method::POST, format!("{part}/start"), None),
            Verb::Resume => (Method::POST, format!("{part}/resume"), None),
        };
        Wire { method, path, body }
    }

    /// The change in words: what a dry run lists and what the flight recorder is told.
    pub(crate) fn change(&self) -> PlannedChange {
        let part = self.part.words();
        let names = |urls: &[String]| urls.iter().map(|url| last(url)).collect::<Vec<_>>().join(", ");
        let detail = match &self.verb {
            Verb::Insert { words, .. } if words.is_empty() => format!("make {part}"),
            Verb::Insert { words, .. } => format!("make {part}: {words}"),
            Verb::Replace { words, .. } | Verb::Patch { words, .. } => format!("set {part}: {words}"),
            Verb::Delete => format!("delete {part}"),
            Verb::AddInstances(urls) => format!("add {} to {part}", names(urls)),
            Verb::RemoveInstances(urls) => format!("take {} out of {part}", names(urls)),
            Verb::Start => format!("start {part}"),
            Verb::Resume => format!("resume {part}"),
        };
        PlannedChange::new(self.about.kind, &self.about.name, detail)
    }

    /// What is waited for afterwards.
    pub(crate) fn waiting_for(&self) -> String {
        let part = self.part.words();
        match &self.verb {
            Verb::Insert { .. } => format!("{part} to be made"),
            Verb::Replace { .. } | Verb::Patch { .. } => format!("{part} to be set"),
            Verb::Delete => format!("{part} to be deleted"),
            Verb::AddInstances(_) => format!("{part} to take new members"),
            Verb::RemoveInstances(_) => format!("{part} to let members go"),
            Verb::Start | Verb::Resume => format!("{part} to start"),
        }
    }
}

/// Whether what was seen is as it is wanted: every field that is wanted, and nothing about others. URLs of one thing are the
/// same in all their forms, lists in all their orders, and numbers also as text.
pub(crate) fn fits(wanted: &Value, seen: &Value) -> bool {
    match (wanted, seen) {
        (Value::Object(wanted), Value::Object(seen)) => {
            let none = Value::Null;
            wanted.iter().all(|(key, value)| fits(value, seen.get(key).unwrap_or(&none)))
        }
        (Value::Array(wanted), Value::Array(seen)) => {
            wanted.len() == seen.len()
                && wanted.iter().all(|value| seen.iter().any(|other| fits(value, other)))
        }
        // An empty list, and what is off, is not shown.
        (Value::Array(wanted), Value::Null) => wanted.is_empty(),
        (Value::Bool(wanted), Value::Null) => !wanted,
        (Value::String(wanted), Value::String(seen)) => {
            wanted == seen || (is_url(wanted) && tail(wanted) == tail(seen))
        }
        (Value::Number(number), Value::String(text)) | (Value::String(text), Value::Number(number)) => {
            number.to_string() == *text
        }
        (wanted, seen) => wanted == seen,
    }
}

fn is_url(text: &str) -> bool {
    text.contains("projects/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wanted_is_compared() {
        let seen = json!({"port": 6443, "name": "a", "list": ["b", "a"], "self": "https://x/compute/v1/projects/p/z",
            "inner": {"x": 1, "y": 2}});
        for same in [
            json!({"port": 6443}),
            json!({"port": "6443"}),
            json!({"list": ["a", "b"]}),
            json!({"self": "projects/p/z"}),
            json!({"inner": {"y": 2}}),
            json!({"none": [], "off": false}),
        ] {
            assert!(fits(&same, &seen), "{same}");
        }
        for other in [
            json!({"port": 6444}),
            json!({"list": ["a"]}),
            json!({"self": "projects/p/y"}),
            json!({"inner": {"z": 2}}),
            json!({"on": true}),
        ] {
            assert!(!fits(&other, &seen), "{other}");
        }
    }

    #[test]
    fn things_say_where_they_are() {
        let body = json!({"name": "a", "selfLink": "https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/a"});
        let thing = Thing::read(Kind::InstanceGroup, &body).unwrap();
        assert_eq!(thing.part, Part::new(Kind::InstanceGroup, Scope::Zone("z".into()), "a"));
        assert_eq!(thing.part.path(), "zones/z/instanceGroups/a");
        assert_eq!(Part::at("p/zones/z/instanceGroups/a"), Some(thing.part.clone()));
        assert_eq!(Part::at("p/zones/z/others/a"), None);
        assert_eq!(thing.mark, None);
        let mut labelled = body.clone();
        labelled["labels"] =
            json!({"butler-cluster": "m", "butler-cluster-uid": "c", "butler-object-uid": "o"});
        let owner = Owner { cluster: "m".into(), cluster_uid: "c".into(), object_uid: "o".into() };
        assert!(Thing::read(Kind::Disk, &labelled).unwrap().is_of(&owner));
        assert_eq!(Thing::read(Kind::Address, &json!({"name": "a"})), None);
    }

    #[test]
    fn a_pools_methods_are_in_the_singular() {
        let about = About { kind: "load-balancer", name: "lb".into(), uid: "u".into() };
        let of = |kind, scope| Mutation {
            part: Part::new(kind, scope, "x"),
            about: about.clone(),
            verb: Verb::AddInstances(vec!["projects/p/zones/z/instances/i".into()]),
        };
        let pool = of(Kind::TargetPool, Scope::Region("r".into())).wire();
        assert_eq!(pool.path, "regions/r/targetPools/x/addInstance");
        let group = of(Kind::InstanceGroup, Scope::Zone("z".into())).wire();
        assert_eq!(group.path, "zones/z/instanceGroups/x/addInstances");
        assert_eq!(group.body.unwrap()["instances"][0]["instance"], "projects/p/zones/z/instances/i");
    }
}
