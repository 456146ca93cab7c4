//! What all simulated infrastructures have in common: where they are put, their machines and their time ([`Base`]), and the
//! port that they are called at (`port.rs`).

mod base;
#[cfg(test)]
pub(crate) mod calling;
pub(crate) mod port;

pub(crate) use base::{Base, Tasks, to_the_end, wall_clock};

use crate::ca::{CaError, SimCa};
use crate::fabric::{Fabric, FabricListener};
use crate::gate::Gate;
use crate::world::World;
use rustls::ServerConfig;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where an infrastructure is put.
#[derive(Debug, Clone)]
pub struct Place {
    pub world: World,
    pub fabric: Fabric,
    pub gate: Gate,
    pub ca: SimCa,
    /// Scales every delay: 1 is real time, 0 is as fast as possible.
    pub speed: f64,
}

/// Why an infrastructure can't be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot make the certificate of the simulated {what}")]
    Ca { what: &'static str, source: CaError },
    #[error("cannot listen on {address} for the simulated {what}")]
    Listen { what: &'static str, address: SocketAddr, source: io::Error },
}

impl Place {
    /// Opens a port of an infrastructure, for a certificate with these names.
    pub(crate) fn open(
        &self,
        what: &'static str,
        address: SocketAddr,
        names: &[String],
    ) -> Result<(FabricListener, Arc<ServerConfig>), StartError> {
        let tls =
            self.ca.server(names, &[b"h2", b"http/1.1"]).map_err(|source| StartError::Ca { what, source })?;
        Ok((self.listen(what, address)?, tls))
    }

    /// Opens a port of an infrastructure.
    pub(crate) fn listen(
        &self,
        what: &'static str,
        address: SocketAddr,
    ) -> Result<FabricListener, StartError> {
        let listen = self.fabric.listen(address);
        let listener = listen.map_err(|source| StartError::Listen { what, address, source })?;
        self.fabric.host_up(address.ip());
        Ok(listener)
    }
}
