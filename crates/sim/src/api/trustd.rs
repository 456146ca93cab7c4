//! trustd: signs the certificate request of a node that knows the machine token.

use crate::node::Node;
use crate::pki;
use butler_talos::api::securityapi::security_service_server::SecurityService;
use butler_talos::api::securityapi::{CertificateRequest, CertificateResponse};
use std::sync::Arc;
use tonic::{Request, Response, Status, async_trait};

pub(super) struct Trustd {
    pub(super) node: Arc<Node>,
}

#[async_trait]
impl SecurityService for Trustd {
    async fn certificate(
        &self,
        request: Request<CertificateRequest>,
    ) -> Result<Response<CertificateResponse>, Status> {
        let machine = self.node.machine();
        let Some(config) = machine.config() else {
            return Err(Status::unavailable("the node has no configuration"));
        };
        let token = request.metadata().get("token").and_then(|value| value.to_str().ok());
        if token != Some(config.parts.token.as_str()) {
            // Talos does not give this its own code.
            return Err(Status::unknown("Unauthenticated"));
        }
        let csr = String::from_utf8(request.into_inner().csr)
            .map_err(|_| Status::invalid_argument("the certificate request is no PEM text"))?;
        let crt = pki::sign_request(&config.parts.os_ca, &csr)
            .map_err(|e| Status::internal(format!("failed to sign the certificate request: {e}")))?;
        let ca = config.parts.os_ca.cert.clone().into_bytes();
        Ok(Response::new(CertificateResponse { ca, crt: crt.into_bytes() }))
    }
}
