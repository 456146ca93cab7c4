//! The new cluster as addons see it: looked at from memory, written to by server-side apply.

use super::apply::Applier;
use super::graph::{Content, Gate, Judged, Row};
use super::inventory::{self, Inventory};
use super::kinds::ObjectRef;
use super::memory::Memory;
use super::objects::{known, objects};
use super::readiness::{Readiness, judge_with_pods};
use super::site::Site;
use super::source::Sources;
use super::{graph, nodes, trouble, values};
use aws_lc_rs::digest;
use butler_api::names;
use butler_drivers::{Class, Failure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::AbortHandle;

/// How far an addon is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddonState {
    /// It is to be installed: none of it is there, or not all, or not as it is wanted now.
    Absent,
    /// All of it is there, and does not work yet.
    NotReady {
        /// What does not: `Deployment cert-manager/cert-manager-webhook`.
        object: String,
        /// Why: `0 of 1 replicas available; pod cert-manager-webhook-x: ImagePullBackOff: ...`.
        why: String,
    },
    /// It works.
    Ready,
}

/// A cluster that addons are installed on. Holds watches for as long as it lives. Clones are the same.
#[derive(Clone)]
pub struct Target {
    inner: Arc<Inner>,
}

struct Inner {
    applier: Applier,
    memory: Arc<Memory>,
    watches: Vec<AbortHandle>,
    /// Change that the last look has seen.
    looked: AtomicU64,
    rendered: Mutex<Rendered>,
}

/// What was made for a site the last time: it is the same until the site is another.
#[derive(Default)]
struct Rendered {
    site: String,
    addons: HashMap<&'static str, Arc<Wanted>>,
}

/// What an addon consists of, as far as looking needs it.
struct Wanted {
    inventory: Inventory,
    /// Objects that are looked at.
    judged: Vec<ObjectRef>,
}

/// How long the first lists may take.
const LISTED_WITHIN: Duration = Duration::from_secs(5);

impl Drop for Inner {
    fn drop(&mut self) {
        self.watches.iter().for_each(AbortHandle::abort);
    }
}

impl Target {
    /// Starts watching. Needs a tokio runtime.
    pub fn new(client: Client) -> Self {
        let (memory, watches) = Memory::start(&client);
        let inner = Inner {
            applier: Applier::new(client),
            memory,
            watches,
            looked: AtomicU64::new(0),
            rendered: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Says whether anything is waited for. Where nothing is, watches may be quiet for longer.
    pub fn rest(&self, calm: bool) {
        self.inner.memory.rest(calm);
    }

    /// How far all planned addons are that are not skipped. Makes no call.
    ///
    /// # Errors
    /// When the cluster can't be listed, or a source lacks an addon.
    pub async fn observe(
        &self,
        site: &Site<'_>,
        sources: &dyn Sources,
    ) -> Result<BTreeMap<String, AddonState>, Failure> {
        self.listed().await?;
        self.inner.looked.store(self.inner.memory.revision(), Ordering::SeqCst);
        let print = fingerprint(site);
        let mut states = BTreeMap::new();
        for row in graph::ROWS.iter().filter(|row| (row.gate)(site) == Gate::Install) {
            states.insert(row.name.to_owned(), self.state(row, site, sources, &print)?);
        }
        Ok(states)
    }

    /// Applies an addon: all objects, then changes to nodes, then the inventory; and deletes what is not part of it any
    /// more. Safe to repeat; does not wait until it is ready.
    ///
    /// # Errors
    /// Of the cluster's API, by class.
    pub async fn install(&self, addon: &str, site: &Site<'_>, sources: &dyn Sources) -> Result<(), Failure> {
        let row = known(addon)?;
        let objects = objects(addon, site, sources)?;
        let applied = self.inner.applier.apply(row.manager, &objects).await?;
        for (of, object) in &applied {
            self.inner.memory.learn(of, object);
        }
        if let Some(edit) = row.edit_node {
            self.edit_nodes(site, edit).await?;
        }
        if matches!(row.content, Content::NodeEdits) {
            return Ok(());
        }
        self.write_inventory(row, site, &objects).await
    }

    /// Ends as soon as something has changed since the last [`observe`](Self::observe) that can matter to it.
    pub async fn changed(&self) {
        let looked = self.inner.looked.load(Ordering::SeqCst);
        let mut changes = self.inner.memory.changes();
        // The sender lives as long as this does.
        let _ = changes.wait_for(|revision| *revision > looked).await;
    }

    /// The cluster's nodes, as far as they are known.
    pub fn nodes(&self) -> Vec<Arc<Value>> {
        self.inner.memory.all("Node")
    }

    /// Where the console is reached from outside, once that is known. `None` when it needs a port forward.
    pub fn console_url(&self, site: &Site<'_>) -> Option<String> {
        let console = &site.spec.addons.console;
        if !console.enabled {
            return None;
        }
        if let Some(ingress) = console.ingress.as_ref().filter(|ingress| ingress.enabled) {
            let scheme = if ingress.tls { "https" } else { "http" };
            return Some(format!("{scheme}://{}", values::console_host(site, ingress)));
        }
        let service = ObjectRef {
            api_version: "v1".to_owned(),
            kind: "Service".to_owned(),
            namespace: names::SYSTEM_NAMESPACE.to_owned(),
            name: "butler-console-frontend".to_owned(),
        };
        let service = self.inner.memory.get(&service)?;
        let given = service.pointer("/status/loadBalancer/ingress/0")?;
        let address = given.get("hostname").or_else(|| given.get("ip"))?.as_str()?;
        Some(format!("http://{address}"))
    }

    /// Waits for the first lists. A failure is told at once: the watches go on trying meanwhile.
    async fn listed(&self) -> Result<(), Failure> {
        let mut changes = self.inner.memory.changes();
        let all = async {
            loop {
                changes.borrow_and_update();
                if self.inner.memory.listed()? || changes.changed().await.is_err() {
                    return Ok(());
                }
            }
        };
        tokio::time::timeout(LISTED_WITHIN, all).await.unwrap_or_else(|_| {
            Err(Failure::new(
                Class::Retryable,
                "ClusterSlow",
                format!("the new cluster did not list its objects within {} s", LISTED_WITHIN.as_secs()),
                "check that the control plane's endpoint answers; it is tried again by itself",
            ))
        })
    }

    fn state(
        &self,
        row: &'static Row,
        site: &Site<'_>,
        sources: &dyn Sources,
        print: &str,
    ) -> Result<AddonState, Failure> {
        match row.content {
            Content::Infrastructure => {
                let why = "the infrastructure's driver does not have it yet".to_owned();
                return Ok(AddonState::NotReady { object: row.name.to_owned(), why });
            }
            Content::NodeEdits => return Ok(self.nodes_state(row, site)),
            Content::BuiltIn(_) | Content::Sourced(_) | Content::BuiltInOr(..) => {}
        }
        let wanted = self.wanted(row, site, sources, print)?;
        let place = Inventory::place(row.name);
        let there = self.inner.memory.get(&place).and_then(|secret| Inventory::from_object(&secret));
        if there.is_none_or(|there| there.digest != wanted.inventory.digest) {
            return Ok(AddonState::Absent);
        }
        Ok(match self.judge(&wanted) {
            AddonState::Ready if row.edit_node.is_some() => self.nodes_state(row, site),
            state => state,
        })
    }

    fn judge(&self, wanted: &Wanted) -> AddonState {
        let mut waiting = None;
        for of in &wanted.judged {
            let Some(object) = self.inner.memory.get(of) else {
                // A finished Job may be cleaned up; anything else that is gone has to come back.
                if of.kind == "Job" {
                    continue;
                }
                return AddonState::Absent;
            };
            if waiting.is_none() {
                let pods = self.inner.memory.all("Pod");
                if let Readiness::NotReady { why } = judge_with_pods(&object, pods.iter().map(Arc::as_ref)) {
                    waiting = Some(AddonState::NotReady { object: of.title(), why });
                }
            }
        }
        waiting.unwrap_or(AddonState::Ready)
    }

    fn nodes_state(&self, row: &Row, site: &Site<'_>) -> AddonState {
        let nodes: Vec<Value> = self.nodes().iter().map(|node| node.as_ref().clone()).collect();
        let edit = row.edit_node;
        if nodes.iter().any(|node| edit.is_some_and(|edit| edit(site, node).is_some())) {
            return AddonState::Absent;
        }
        match nodes::missing(site, &nodes).first() {
            Some(name) if matches!(row.content, Content::NodeEdits) => AddonState::NotReady {
                object: format!("Node {name}"),
                why: "it has not joined the cluster".to_owned(),
            },
            _ => AddonState::Ready,
        }
    }

    fn wanted(
        &self,
        row: &'static Row,
        site: &Site<'_>,
        sources: &dyn Sources,
        print: &str,
    ) -> Result<Arc<Wanted>, Failure> {
        {
            let mut rendered = self.inner.rendered.lock();
            if rendered.site != print {
                *rendered = Rendered { site: print.to_owned(), addons: HashMap::new() };
            }
            if let Some(wanted) = rendered.addons.get(row.name) {
                return Ok(wanted.clone());
            }
        }
        let objects = objects(row.name, site, sources)?;
        let judged = objects.iter().filter(|object| is_judged(row, site, object)).filter_map(ObjectRef::of);
        let wanted = Arc::new(Wanted { inventory: Inventory::of(&objects), judged: judged.collect() });
        self.inner.rendered.lock().addons.insert(row.name, wanted.clone());
        Ok(wanted)
    }

    async fn edit_nodes(
        &self,
        site: &Site<'_>,
        edit: fn(&Site<'_>, &Value) -> Option<Value>,
    ) -> Result<(), Failure> {
        let all = node_ref("of the cluster");
        let Some(kind) = super::kinds::known("v1", "Node") else { return Ok(()) };
        let api: Api<DynamicObject> = Api::all_with(self.inner.applier.client().clone(), &kind.resource);
        let listed = api.list(&ListParams::default()).await;
        let listed = listed.map_err(|error| trouble::failure("list every", &all, &error))?;
        let edits = listed.items.into_iter().filter_map(|node| {
            let of = node_ref(node.metadata.name.as_deref().unwrap_or_default());
            let patch = edit(site, &super::kinds::to_value(node, &of))?;
            Some((of, patch))
        });
        let api = &api;
        stream::iter(edits)
            .map(Ok)
            .try_for_each_concurrent(8, |(of, patch)| async move {
                let done = api.patch(&of.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
                let node = done.map_err(|error| trouble::failure("change", &of, &error))?;
                self.inner.memory.learn(&of, &super::kinds::to_value(node, &of));
                Ok(())
            })
            .await
    }

    async fn write_inventory(&self, row: &Row, site: &Site<'_>, objects: &[Value]) -> Result<(), Failure> {
        // What was applied before is known once the first lists have come.
        self.listed().await?;
        let wanted = Inventory::of(objects);
        let place = Inventory::place(row.name);
        let before = self.inner.memory.get(&place).and_then(|secret| Inventory::from_object(&secret));
        for of in before.map(|before| before.leftovers(&wanted)).unwrap_or_default() {
            self.inner.applier.delete(&of, inventory::prune_label(row.name)).await?;
        }
        let object = wanted.to_object(row.name, &(row.version)(site));
        let applied = self.inner.applier.apply(graph::MANAGER, std::slice::from_ref(&object)).await?;
        for (of, object) in &applied {
            self.inner.memory.learn(of, object);
        }
        Ok(())
    }
}

/// Whether an object is looked at to judge its addon.
fn is_judged(row: &Row, site: &Site<'_>, object: &Value) -> bool {
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    match (row.judged, kind) {
        (Judged::Applied | Judged::Nodes, _) => false,
        (_, "CustomResourceDefinition") => true,
        (Judged::Established, _) => false,
        (Judged::Running, "Service") => {
            let balanced = object.pointer("/spec/type").and_then(Value::as_str) == Some("LoadBalancer");
            balanced && site.has_service_addresses()
        }
        // Secrets are known by heart only as far as they are inventories.
        (Judged::Running, "Secret" | "Node" | "Pod") => false,
        (Judged::Running, kind) => Memory::knows(kind),
    }
}

/// What the objects of a site depend on, in one word.
fn fingerprint(site: &Site<'_>) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut add = |text: &str| {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    };
    add(&serde_json::to_string(site.spec).unwrap_or_default());
    add(&serde_json::to_string(site.provider_config).unwrap_or_default());
    add(&format!("{} {} {} {:?}", site.name, site.namespace, site.endpoint, site.machines));
    for (key, value) in site.credentials {
        add(key);
        add(&inventory::hex(value));
    }
    inventory::hex(context.finish().as_ref())
}

fn node_ref(name: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    }
}
