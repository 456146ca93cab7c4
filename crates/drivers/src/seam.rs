//! What an infrastructure gives: machines, load balancers, images, a preflight, and a pure profile.
//!
//! Every verb is safe to repeat, makes at most one change to the outside world per call, and never waits for the outside
//! world's progress. The whole contract is in `docs/contracts/`.

use crate::failure::Failure;
use crate::profile::Profile;
use async_trait::async_trait;
use butler_api::{DiskSpec, LoadBalancerOutputs, LoadBalancerRequestSpec, MachineRole};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// An infrastructure, ready to be used with one set of settings and credentials.
#[derive(Clone)]
pub struct Infrastructure {
    /// What is known about it without asking.
    pub profile: Profile,
    /// Makes machines.
    pub machines: Arc<dyn Machines>,
    /// Brings images, where that is built.
    pub images: Option<Arc<dyn Images>>,
    /// Makes load balancers, where the infrastructure has any.
    pub load_balancers: Option<Arc<dyn LoadBalancers>>,
    /// Looks before the leap.
    pub preflight: Arc<dyn Preflight>,
}

/// Whose a resource is. Goes into its tags; a resource of the same name without it is never touched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Name of the cluster.
    pub cluster: String,
    /// UID of the ClusterBootstrap.
    pub cluster_uid: String,
    /// UID of the object that asks for the resource.
    pub object_uid: String,
}

/// An operation of the infrastructure that is under way. Kept in status, so that a restart follows the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation(pub String);

/// How far an `ensure` or `delete` has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<T> {
    /// Call again.
    InProgress {
        /// What is under way, if it has an id.
        operation: Option<Operation>,
        /// For people: "the clone of template 9000 to finish".
        waiting_for: String,
        /// When to call again at the latest.
        recheck: Duration,
        /// What is known already.
        known: Option<T>,
    },
    /// There is nothing left to do.
    Ready(T),
}

/// A machine that is wanted.
#[derive(Clone, PartialEq, Eq)]
pub struct MachineWanted {
    /// Whose it is.
    pub owner: Owner,
    /// Its name on the infrastructure.
    pub name: String,
    /// What it is for.
    pub role: MachineRole,
    /// CPU cores.
    pub cpu: u32,
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Root disk in GiB.
    pub disk_gb: u32,
    /// Further disks, in order.
    pub extra_disks: Vec<DiskSpec>,
    /// Boot image in place of the ProviderConfig's.
    pub image: Option<String>,
    /// Handed over at the first boot; holds secrets.
    pub user_data: Option<String>,
    /// A fixed address in place of DHCP.
    pub static_address: Option<StaticAddress>,
    /// Labels, as far as the infrastructure has such a thing.
    pub labels: BTreeMap<String, String>,
}

/// A fixed address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticAddress {
    /// The machine's address.
    pub address: IpAddr,
    /// Prefix length of its network.
    pub bits: u8,
    /// The router.
    pub gateway: Option<IpAddr>,
    /// Name servers.
    pub nameservers: Vec<IpAddr>,
}

/// Which machine is meant when it is to be looked at or to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineTarget {
    /// Whose it is.
    pub owner: Owner,
    /// Its name on the infrastructure.
    pub name: String,
    /// The infrastructure's id, once known.
    pub provider_id: Option<String>,
}

/// What is known of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// The infrastructure's own id.
    pub provider_id: String,
    /// All addresses; the first is the private one.
    pub addresses: Vec<IpAddr>,
    /// Where it is reached: the public address where there is one.
    pub reach: Option<IpAddr>,
    /// Hardware address of the first network card.
    pub mac: Option<String>,
    /// Where it was placed: zone, host.
    pub zone: Option<String>,
    /// Whether it is switched on.
    pub running: bool,
}

/// Something of ours on an infrastructure, found by its tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedResource {
    /// `machine`, `disk`, `image`, `load balancer`, ...
    pub kind: String,
    /// Its name there.
    pub name: String,
    /// The infrastructure's id.
    pub id: String,
    /// Whose it is, as its tags say.
    pub owner: Owner,
}

/// Makes, looks at and removes machines.
#[async_trait]
pub trait Machines: Send + Sync {
    /// One step towards the machine that is wanted, switched on and with an address.
    async fn ensure(
        &self,
        wanted: &MachineWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<MachineFacts>, Failure>;

    /// Looks, changes nothing. `None`: it is not there (an error while looking is an error, not `None`).
    async fn find(&self, target: &MachineTarget) -> Result<Option<MachineFacts>, Failure>;

    /// One step towards its absence, with all its disks. `Ready` when it is gone, not when it was told to go.
    async fn delete(
        &self,
        target: &MachineTarget,
        operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure>;

    /// All machines that carry a cluster's tag; every cluster's without `cluster_uid`.
    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure>;
}

/// An image that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageWanted {
    /// Whose it is.
    pub owner: Owner,
    /// Its name on the infrastructure.
    pub name: String,
    /// Where the infrastructure fetches it.
    pub url: String,
    /// SHA-256 of the file, where it is known.
    pub sha256: Option<String>,
    /// File format, such as `qcow2`.
    pub format: String,
}

/// What is known of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageFacts {
    /// What machines name it by.
    pub image_ref: String,
    /// SHA-256 that the infrastructure checked, where it did.
    pub sha256: Option<String>,
}

/// Brings and removes images.
#[async_trait]
pub trait Images: Send + Sync {
    /// One step towards the image.
    async fn ensure(
        &self,
        wanted: &ImageWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<ImageFacts>, Failure>;

    /// One step towards its absence. An image that is not ours is left alone, and that is `Ready`.
    async fn delete(
        &self,
        wanted: &ImageWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure>;

    /// All images that carry a cluster's tag; every cluster's without `cluster_uid`.
    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure>;
}

/// A load balancer that is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadBalancerWanted {
    /// Whose it is.
    pub owner: Owner,
    /// Name of the request.
    pub name: String,
    /// What was asked for, targets included.
    pub spec: LoadBalancerRequestSpec,
}

/// What is known of a load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadBalancerFacts {
    /// Where clients reach it: an address or a DNS name.
    pub endpoint: String,
    /// The infrastructure's own id.
    pub resource_id: String,
    /// What is known of each port.
    pub listeners: Vec<ListenerFacts>,
    /// Targets that somebody else has put there: left alone, and reported.
    pub foreign_targets: Vec<String>,
    /// What other tools need to know of it.
    pub outputs: LoadBalancerOutputs,
    /// Settings that were asked for and that this infrastructure lacks, each with a reason.
    pub lacking: Vec<String>,
}

/// What is known of one port of a load balancer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenerFacts {
    /// Port on the load balancer.
    pub port: u16,
    /// The infrastructure's id of what holds its targets.
    pub resource_id: String,
    /// Registered targets by address; none that is draining.
    pub registered: Vec<String>,
    /// Those of them that pass their health check.
    pub healthy: Vec<String>,
    /// Targets on their way out: no new connections, old ones until the delay is over.
    pub draining: Vec<String>,
}

/// Makes and removes load balancers.
#[async_trait]
pub trait LoadBalancers: Send + Sync {
    /// One step towards the load balancer and its targets. Ready does not wait for targets to be healthy.
    async fn ensure(
        &self,
        wanted: &LoadBalancerWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<LoadBalancerFacts>, Failure>;

    /// One step towards its absence, with everything that was made for it.
    async fn delete(
        &self,
        wanted: &LoadBalancerWanted,
        operation: Option<&Operation>,
    ) -> Result<Progress<()>, Failure>;

    /// All parts of load balancers that carry a cluster's tag; every cluster's without `cluster_uid`.
    async fn owned(&self, cluster_uid: Option<&str>) -> Result<Vec<OwnedResource>, Failure>;

    /// For people: what a cloud controller has made for Services of a cluster of this name. Only that controller removes it.
    async fn of_services(&self, _cluster: &str) -> Result<Vec<String>, Failure> {
        Ok(Vec::new())
    }
}

/// What a bootstrap is going to need of an infrastructure.
#[derive(Debug, Clone, Default)]
pub struct PreflightWanted {
    /// The cluster's uid, so that what is ours already is no obstacle.
    pub cluster_uid: Option<String>,
    /// All machines.
    pub machines: Vec<MachineWanted>,
    /// Whether an image is going to be brought for machines that name none.
    pub brings_image: bool,
    /// The load balancer, where one is going to be made.
    pub load_balancer: Option<LoadBalancerWanted>,
    /// The endpoint that the user has given in place of one.
    pub endpoint: Option<String>,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Pass,
    /// It works, and maybe not as meant.
    Warn,
    /// It can't work.
    Fail,
    /// Could not be looked at; says why.
    Skip,
}

/// One check and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What was checked: `credentials`, `storage local-lvm`.
    pub check: String,
    /// How it came out.
    pub verdict: Verdict,
    /// What was seen.
    pub detail: String,
    /// What to do; empty when it passed.
    pub remedy: String,
}

/// Looks whether an infrastructure has what a bootstrap needs. Changes nothing.
#[async_trait]
pub trait Preflight: Send + Sync {
    /// All checks, those that need nothing of each other side by side.
    async fn check(&self, wanted: &PreflightWanted) -> Vec<Finding>;
}

impl<T> Progress<T> {
    /// In progress, with nothing known yet.
    pub fn waiting(waiting_for: impl Into<String>, operation: Option<Operation>, recheck: Duration) -> Self {
        Progress::InProgress { operation, waiting_for: waiting_for.into(), recheck, known: None }
    }
}

impl fmt::Debug for MachineWanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineWanted")
            .field("name", &self.name)
            .field("owner", &self.owner)
            .field("user_data", &self.user_data.as_ref().map(|_| "..."))
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Infrastructure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Infrastructure").field("profile", &self.profile).finish_non_exhaustive()
    }
}
