//! How a worker gets the certificate of its API: it asks the trustd of a control plane, until one signs.

use super::{Node, SignedIdentity, identity};
use crate::config::NodeConfig;
use crate::delays::CERTIFICATE_RETRY;
use crate::fabric::{Network, Stream};
use crate::machine::{Input, Stage};
use crate::pki::{self, Identity};
use crate::tls;
use butler_talos::api::securityapi::CertificateRequest;
use butler_talos::api::securityapi::security_service_client::SecurityServiceClient;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Endpoint, Uri};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Between two rounds over the control planes, however fast everything else is.
const RETRY_FLOOR: Duration = Duration::from_millis(10);
/// One try; a control plane that is going down must not hold the worker up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks until a certificate is there, or until this boot is over.
pub(super) async fn request(node: Arc<Node>, boot: u32) {
    loop {
        let machine = node.machine();
        if machine.boot != boot || machine.stage != Stage::Booting {
            return;
        }
        let Some(world) = node.world.upgrade() else { return };
        let (Some(config), Some(identity)) = (machine.config(), identity(&machine)) else { return };
        for control_plane in world.control_planes(&identity) {
            let address = control_plane.trustd_address();
            match tokio::time::timeout(PATIENCE, ask(&node, &world.network, config, address)).await {
                Ok(Ok(signed)) => {
                    let _busy = node.calm.busy().await;
                    node.faces().signed = Some(Arc::new(SignedIdentity(signed)));
                    return node.send(Input::Certified(boot));
                }
                Ok(Err(error)) => tracing::debug!(%address, %error, "trustd has not signed"),
                Err(_) => tracing::debug!(%address, "trustd does not answer"),
            }
        }
        let pause = Duration::try_from_secs_f64(CERTIFICATE_RETRY * world.options.speed.max(0.0))
            .unwrap_or(Duration::MAX)
            .max(RETRY_FLOOR);
        drop(world);
        tokio::time::sleep(pause).await;
    }
}

async fn ask(
    node: &Node,
    network: &Network,
    config: &NodeConfig,
    trustd: SocketAddr,
) -> Result<Identity, BoxError> {
    let cas = pki::certificates(&config.parts.os_ca.cert)?;
    let (csr, key) = pki::request(&node.names())?;
    let connector = Connector { tls: tls::client(&cas)?, network: network.clone(), address: trustd };
    // The scheme is http because TLS is the connector's business.
    let channel = Endpoint::from_static("http://trustd").connect_with_connector(connector).await?;
    let mut request = tonic::Request::new(CertificateRequest { csr: csr.into_bytes() });
    request.metadata_mut().insert("token", config.parts.token.parse()?);
    let reply = SecurityServiceClient::new(channel).certificate(request).await?.into_inner();
    let chain = pki::certificates(&String::from_utf8(reply.crt)?)?;
    Ok(Identity { chain, key })
}

/// Dials trustd with TLS.
#[derive(Clone)]
struct Connector {
    tls: Arc<ClientConfig>,
    network: Network,
    address: SocketAddr,
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<Stream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { tls, network, address } = self.clone();
        Box::pin(async move {
            let stream = network.dial(address).await?;
            let name = ServerName::from(address.ip());
            Ok(TokioIo::new(TlsConnector::from(tls).connect(name, stream).await?))
        })
    }
}
