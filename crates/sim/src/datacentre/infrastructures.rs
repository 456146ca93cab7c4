//! What gives machines in a data centre: any of the simulated infrastructures, each there or not.
//!
//! Each has a site (what it is started with), a state (what it knows; a snapshot holds it) and a handle (it runs).

use super::{DataCentreError, Ground};
use crate::aws::{self, Aws, AwsHandle, AwsSite};
use crate::balancer::BalancersState;
use crate::gce::{self, Gce, GceHandle, GceSite};
use crate::proxmox::{Proxmox, ProxmoxHandle, ProxmoxSite, State};

/// What the infrastructures are started with.
#[derive(Debug, Clone, Default)]
pub(super) struct Sites {
    pub(super) proxmox: Option<ProxmoxSite>,
    pub(super) gce: Option<GceSite>,
    pub(super) aws: Option<AwsSite>,
}

/// What the infrastructures know at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct States {
    proxmox: Option<State>,
    gce: Option<gce::State>,
    aws: Option<aws::State>,
}

/// What load balancers know of their targets: no reason to say that a state has changed.
#[derive(Debug, Clone, Default)]
pub(super) struct Healths {
    gce: BalancersState,
    aws: BalancersState,
}

/// The infrastructures that run.
#[derive(Debug)]
pub(super) struct Infrastructures {
    pub(super) proxmox: Option<ProxmoxHandle>,
    pub(super) gce: Option<GceHandle>,
    pub(super) aws: Option<AwsHandle>,
}

impl Sites {
    /// What they know at the beginning of time.
    pub(super) fn fresh(&self, ground: &Ground) -> States {
        let (speed, seed) = (ground.options.speed, ground.options.seed);
        States {
            proxmox: self.proxmox.as_ref().map(|site| State::new(site, speed, seed)),
            gce: self.gce.as_ref().map(|site| Gce::fresh(site, speed, seed)),
            aws: self.aws.as_ref().map(|site| aws::State::new(site, speed, seed)),
        }
    }
}

impl Infrastructures {
    /// Starts those that have a site and a state, in a world that has the machines of that state.
    pub(super) fn start(
        ground: &Ground,
        sites: &Sites,
        states: States,
        healths: Healths,
    ) -> Result<Self, DataCentreError> {
        let proxmox = match (&sites.proxmox, states.proxmox) {
            (Some(site), Some(state)) => Some(Proxmox::resume(site, state, ground.place())?),
            _ => None,
        };
        let gce = match states.gce {
            Some(state) => Some(Gce::resume(state, ground.place(), healths.gce)?),
            None => None,
        };
        let aws = match (&sites.aws, states.aws) {
            (Some(site), Some(state)) => Some(Aws::resume(site, state, ground.place(), healths.aws)?),
            _ => None,
        };
        Ok(Self { proxmox, gce, aws })
    }

    /// What they know, once none of them is in the middle of changing a machine.
    pub(super) async fn settled(&self) -> States {
        let proxmox = match &self.proxmox {
            Some(handle) => Some(handle.snapshot().await),
            None => None,
        };
        let gce = match &self.gce {
            Some(handle) => Some(handle.snapshot().await),
            None => None,
        };
        let aws = match &self.aws {
            Some(handle) => Some(handle.snapshot().await),
            None => None,
        };
        States { proxmox, gce, aws }
    }

    /// What they know now.
    pub(super) fn states(&self) -> States {
        States {
            proxmox: self.proxmox.as_ref().map(ProxmoxHandle::state),
            gce: self.gce.as_ref().map(GceHandle::state),
            aws: self.aws.as_ref().map(AwsHandle::state),
        }
    }

    /// What their load balancers know.
    pub(super) fn healths(&self) -> Healths {
        Healths {
            gce: self.gce.as_ref().map(|handle| handle.balancers().export()).unwrap_or_default(),
            aws: self.aws.as_ref().map(|handle| handle.balancers().export()).unwrap_or_default(),
        }
    }

    /// Ends them; the machines stay as they are.
    pub(super) async fn stop(&self) {
        if let Some(handle) = &self.proxmox {
            handle.stop().await;
        }
        if let Some(handle) = &self.gce {
            handle.stop().await;
        }
        if let Some(handle) = &self.aws {
            handle.stop().await;
        }
    }
}
