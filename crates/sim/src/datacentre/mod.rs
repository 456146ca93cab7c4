//! A whole data centre in this process: its network, the proxy into it, the infrastructures that give
//! machines, those machines, and a gate in front of all.

mod infrastructures;
mod options;
mod snapshot;

pub use options::{BranchOptions, DataCentreOptions};
pub use snapshot::Snapshot;

use crate::aws::{AwsHandle, AwsSite};
use crate::ca::{CaError, SimCa};
use crate::cluster::{Clusters, ClustersState};
use crate::fabric::{Fabric, Network};
use crate::gate::{Gate, KillOrder};
use crate::gce::{GceHandle, GceSite};
use crate::infrastructure::{Place, StartError};
use crate::proxmox::{ProxmoxHandle, ProxmoxSite};
use crate::proxy::Proxy;
use crate::world::{World, WorldError, WorldOptions};
use infrastructures::{Healths, Infrastructures, Sites, States};
use std::io;
use std::net::SocketAddr;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Why a data centre can't be started.
#[derive(Debug, thiserror::Error)]
pub enum DataCentreError {
    #[error(transparent)]
    Ca(#[from] CaError),
    #[error("cannot listen on {address} for the proxy into the simulated data centre")]
    Proxy { address: SocketAddr, source: io::Error },
    #[error(transparent)]
    Infrastructure(#[from] StartError),
    #[error("cannot put the machines of a snapshot into a data centre")]
    World(#[from] WorldError),
}

/// A data centre. It ends with [`DataCentre::stop`], or, less politely, when it is dropped.
#[derive(Debug)]
pub struct DataCentre {
    fabric: Fabric,
    gate: Gate,
    ca: SimCa,
    world: World,
    options: WorldOptions,
    sites: Sites,
    infrastructures: Infrastructures,
    clusters: Clusters,
    proxy: Option<Proxy>,
    /// Pulls plugs when a fault script wants it.
    killer: JoinHandle<()>,
}

/// What is there before the machines are.
struct Ground {
    fabric: Fabric,
    gate: Gate,
    ca: SimCa,
    world: World,
    options: WorldOptions,
    clusters: Clusters,
    killer: JoinHandle<()>,
}

impl Ground {
    fn new(fabric: Fabric, gate: Gate, ca: SimCa, options: WorldOptions, clusters: ClustersState) -> Self {
        let world = World::behind(gate.clone(), Network::Fabric(fabric.clone()), options);
        let WorldOptions { speed, seed } = options;
        // Before any machine is there: clusters hear of each one as it comes.
        let clusters = Clusters::import(world.clone(), fabric.clone(), gate.clone(), speed, seed, clusters);
        let killer = tokio::spawn(kill_on_order(world.clone(), gate.take_kills()));
        Self { fabric, gate, ca, world, options, clusters, killer }
    }

    fn place(&self) -> Place {
        Place {
            world: self.world.clone(),
            fabric: self.fabric.clone(),
            gate: self.gate.clone(),
            ca: self.ca.clone(),
            speed: self.options.speed,
        }
    }

    /// The last step: the way in is opened when everything is there.
    async fn open(
        self,
        sites: Sites,
        (states, healths): (States, Healths),
        listen: SocketAddr,
    ) -> Result<DataCentre, DataCentreError> {
        let infrastructures = Infrastructures::start(&self, &sites, states, healths)?;
        let proxy = Proxy::open(listen, self.fabric.clone())
            .await
            .map_err(|source| DataCentreError::Proxy { address: listen, source })?;
        let Self { fabric, gate, ca, world, options, clusters, killer } = self;
        let proxy = Some(proxy);
        Ok(DataCentre { fabric, gate, ca, world, options, sites, infrastructures, clusters, proxy, killer })
    }
}

async fn kill_on_order(world: World, mut orders: mpsc::UnboundedReceiver<KillOrder>) {
    while let Some(KillOrder { machine, done }) = orders.recv().await {
        world.kill(&machine).await;
        let _ = done.send(());
    }
}

impl DataCentre {
    /// Starts a data centre as its options describe it. Needs a tokio runtime.
    ///
    /// # Errors
    /// When the proxy's port is taken.
    pub async fn start(options: DataCentreOptions) -> Result<Self, DataCentreError> {
        let DataCentreOptions { seed, speed, proxy_listen, proxmox, gce, aws, faults } = options;
        let world = WorldOptions { speed, seed };
        let ca = SimCa::generate()?;
        let ground = Ground::new(Fabric::default(), Gate::new(faults), ca, world, ClustersState::default());
        let sites = Sites { proxmox, gce, aws };
        let states = sites.fresh(&ground);
        ground.open(sites, (states, Healths::default()), proxy_listen).await
    }

    /// A data centre that goes on from a snapshot, on its own. What was under way is taken up again.
    ///
    /// # Errors
    /// When the proxy's port is taken.
    pub async fn branch(from: &Snapshot, options: BranchOptions) -> Result<Self, DataCentreError> {
        let BranchOptions { proxy_listen, faults } = options;
        let ground = from.ground(faults);
        ground.world.restore(&from.contents.world).await?;
        let contents = &from.contents;
        let known = (contents.states.clone(), contents.healths.clone());
        ground.open(contents.sites.clone(), known, proxy_listen).await
    }

    /// The network.
    #[must_use]
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// The machines.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The call log, faults and checkpoints.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Where the CONNECT proxy listens on this computer.
    #[must_use]
    pub fn proxy_address(&self) -> SocketAddr {
        self.proxy.as_ref().map_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)), Proxy::address)
    }

    /// The proxy as clients want it in their settings.
    #[must_use]
    pub fn proxy_url(&self) -> String {
        format!("http://{}", self.proxy_address())
    }

    /// The CA of the simulated infrastructure's API.
    #[must_use]
    pub fn ca_pem(&self) -> String {
        self.ca.pem().to_string()
    }

    /// The simulated Proxmox, if there is one.
    #[must_use]
    pub fn proxmox(&self) -> Option<ProxmoxHandle> {
        self.infrastructures.proxmox.clone()
    }

    /// The simulated project of Google Cloud, if there is one.
    #[must_use]
    pub fn gce(&self) -> Option<GceHandle> {
        self.infrastructures.gce.clone()
    }

    /// What that project was started with.
    #[must_use]
    pub fn gce_site(&self) -> Option<&GceSite> {
        self.sites.gce.as_ref()
    }

    /// The simulated AWS account, if there is one.
    #[must_use]
    pub fn aws(&self) -> Option<AwsHandle> {
        self.infrastructures.aws.clone()
    }

    /// What that account was started with.
    #[must_use]
    pub fn aws_site(&self) -> Option<&AwsSite> {
        self.sites.aws.as_ref()
    }

    /// The Kubernetes of each cluster that the machines form.
    #[must_use]
    pub fn clusters(&self) -> Clusters {
        self.clusters.clone()
    }

    /// What Proxmox was started with, if there is one.
    #[must_use]
    pub fn site(&self) -> Option<&ProxmoxSite> {
        self.sites.proxmox.as_ref()
    }

    /// Ends everything; when this returns, nothing of it runs any more.
    pub async fn stop(mut self) {
        self.gate.close();
        if let Some(proxy) = self.proxy.take() {
            proxy.close().await;
        }
        self.infrastructures.stop().await;
        self.killer.abort();
        let _ = (&mut self.killer).await;
        self.world.clone().stop().await;
    }
}

impl Drop for DataCentre {
    fn drop(&mut self) {
        self.gate.close();
        self.killer.abort();
    }
}
