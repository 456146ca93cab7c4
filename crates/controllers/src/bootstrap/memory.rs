//! What is remembered of a ClusterBootstrap beside what is stored. All of it can be lost: it is looked up again.

use super::configs::Rendered;
use crate::Failure;
use crate::addons::AddonState;
use butler_talos::SecretsBundle;
use butler_talos::client::Credentials;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Work in the background, by purpose.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    /// Draws the cluster's secrets.
    MakeSecrets,
    /// Looks whether somebody has the virtual address already.
    Knock,
    /// Waits until a machine's Talos answers, and tells in which state.
    Look(String),
    /// Gives a machine its config.
    Apply(String),
    /// Has etcd made on the first control plane.
    Bootstrap,
    /// Waits for etcd.
    Etcd,
    /// Waits until etcd on a control plane votes.
    Vote(String),
    /// Looks at the clock of a machine that does not join.
    Clock(String),
    /// Finds a control plane whose Kubernetes API answers.
    Reach,
    /// Waits until the API answers at the endpoint itself.
    ReachEndpoint,
    /// Looks at the nodes and addons of the new cluster.
    Survey,
    /// Waits until something on the new cluster changes.
    Watch,
    /// Installs an addon.
    Install(String),
    /// Has the Services removed that have load balancers of their own.
    Withdraw,
}

/// What a machine's Talos showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TalosSight {
    /// Nothing that helps, and why.
    Silent(String),
    /// Clocks disagree, and how.
    ClockSkew(String),
    /// Without a config.
    Maintenance,
    /// With a config of this cluster.
    Ours,
    /// It has taken its config in this life of ours; `fresh` when it had none before. `mark` counts the marks that were written.
    Applied { fresh: bool, mark: u64 },
}

/// A task that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) failure: Failure,
    /// In a row.
    pub(crate) failures: u32,
    /// Not to be tried again before.
    pub(crate) until: Timestamp,
}

/// A node of the new cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeSight {
    pub(crate) ready: bool,
    /// Why not.
    pub(crate) why: String,
}

/// What was seen on the new cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Survey {
    pub(crate) at: Timestamp,
    /// When the API was last asked whether it answers, and did.
    pub(crate) answered: Timestamp,
    pub(crate) nodes: BTreeMap<String, NodeSight>,
    pub(crate) addons: BTreeMap<String, AddonState>,
}

/// The way to the new cluster's API.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) client: kube::Client,
    /// The same cluster as addons see it.
    pub(crate) addons: crate::addons::Target,
    /// The host that it goes to.
    pub(crate) via: String,
}

/// A value that is made from something with a version, and made again when that changes.
pub(crate) type Cached<T> = Option<(String, Result<Arc<T>, Failure>)>;

#[derive(Default)]
pub(crate) struct Memory {
    /// When this life of ours first saw the object.
    pub(crate) since: Option<Timestamp>,
    /// Generation and provider that all the troubles are about.
    pub(crate) inputs: String,
    /// By machine: the uid of its MachineRequest, its address, and what was seen there.
    pub(crate) talos: BTreeMap<String, (String, TalosSight)>,
    /// How many marks of applied configs this life of ours has written.
    pub(crate) marks: u64,
    /// By machine: which life of it there is now. Work on an earlier one ends.
    pub(crate) identities: BTreeMap<String, String>,
    /// By machine: the fingerprint of the certificate that it showed while it had no config, by which nobody can tell who it is.
    pub(crate) unverified: BTreeMap<String, String>,
    /// The control planes were judged once before etcd is made: from then on, what is remembered of them does not count.
    pub(crate) guarded: bool,
    /// By machine: how its clock is wrong.
    pub(crate) clocks: BTreeMap<String, String>,
    /// The virtual address that nobody answered at.
    pub(crate) free_address: Option<String>,
    /// Bootstrap was called, or etcd has data.
    pub(crate) bootstrapped: bool,
    pub(crate) etcd_up: bool,
    /// By control plane: the life of it whose etcd was seen to vote.
    pub(crate) voters: BTreeMap<String, String>,
    pub(crate) target: Option<Target>,
    pub(crate) endpoint_answers: bool,
    /// By the endpoint, when the target is reached otherwise.
    pub(crate) endpoint: Option<kube::Client>,
    pub(crate) survey: Option<Survey>,
    /// Something has changed since the survey began.
    pub(crate) stale: bool,
    /// When each addon was last applied.
    pub(crate) installed: BTreeMap<String, Timestamp>,
    /// No Service has a load balancer of its own any more.
    pub(crate) withdrawn: bool,
    /// When the cluster last told which Services are left.
    pub(crate) heard: Option<Timestamp>,
    pub(crate) troubles: BTreeMap<Task, Trouble>,
    /// What was last seen while reaching for the new cluster.
    pub(crate) reach_note: String,
    pub(crate) secrets: Cached<SecretsBundle>,
    pub(crate) credentials: Option<(String, Credentials)>,
    pub(crate) rendered: Cached<Rendered>,
}
