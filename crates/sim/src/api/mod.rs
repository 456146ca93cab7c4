//! The way of a request: which face of the node it came to, who may call what, and which node answers.

mod cosi;
mod fanout;
mod files;
mod gated;
mod kubeconfig;
mod machine;
mod methods;
mod others;
mod resources;
mod trustd;

use crate::node::Node;
use crate::serve::Caller;
use butler_talos::api::cluster::cluster_service_server::ClusterServiceServer;
use butler_talos::api::cosi::resource::state_server::StateServer;
use butler_talos::api::machine::machine_service_server::MachineServiceServer;
use butler_talos::api::securityapi::security_service_server::SecurityServiceServer;
use butler_talos::api::storage::storage_service_server::StorageServiceServer;
use butler_talos::api::time::time_service_server::TimeServiceServer;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use methods::Method;
use std::sync::Arc;
use tonic::body::Body;
use tonic::{Code, Status};
use tower_service::Service;

/// As Talos has it.
const MAX_MESSAGE: usize = 32 << 20;

/// A request whose body has been read.
type Call = Request<Full<Bytes>>;

/// What the caller's certificate says, carried along with the call.
#[derive(Debug, Clone)]
struct Roles(Vec<String>);

/// The services of one node, as one of its faces shows them.
#[derive(Clone)]
pub(crate) struct Api {
    node: Arc<Node>,
}

/// Maintenance mode: a few methods work, a few say that they don't here, and the rest is unknown, with gRPC's own words.
pub(crate) async fn maintenance(node: Arc<Node>, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_string();
    let (service, method) = split(&path);
    if let Err(status) = methods::in_maintenance(service, method) {
        return refuse(status);
    }
    match read(request).await {
        Ok(call) => {
            let api = Api { node: node.clone() };
            gated::gated(&node, &path, &http::HeaderMap::new(), local(api, call)).await
        }
        Err(status) => refuse(status),
    }
}

/// A configured node: roles, then routing, then the method.
pub(crate) async fn configured(
    node: Arc<Node>,
    caller: Caller,
    request: Request<Incoming>,
) -> Response<Body> {
    let path = request.uri().path().to_string();
    let mut call = match read(request).await {
        Ok(call) => call,
        Err(status) => return refuse(status),
    };
    let roles = caller.unwrap_or_default();
    let allowed = match methods::find(&path) {
        Some(method) => may_call(&node, method, &roles).map(|()| method),
        None => Err(unknown(&path)),
    };
    let rbac = has_rbac(&node);
    call.extensions_mut().insert(Roles(if rbac { roles } else { vec!["os:admin".to_string()] }));
    match allowed {
        Ok(method) => {
            let headers = call.headers().clone();
            gated::gated(&node.clone(), &path, &headers, fanout::route(node, method, call)).await
        }
        Err(status) => refuse(status),
    }
}

/// trustd: one service, which checks the token itself.
pub(crate) async fn trustd(node: Arc<Node>, request: Request<Incoming>) -> Response<Body> {
    match read(request).await {
        Ok(call) => answer(SecurityServiceServer::new(trustd::Trustd { node }), call).await,
        Err(status) => refuse(status),
    }
}

/// Without RBAC everyone with a certificate is an administrator.
fn has_rbac(node: &Node) -> bool {
    node.machine().config().is_none_or(|config| config.parts.rbac)
}

fn may_call(node: &Node, method: &Method, roles: &[String]) -> Result<(), Status> {
    if !has_rbac(node) || method.role_in(&node.machine().version).allows(roles) {
        return Ok(());
    }
    Err(Status::permission_denied("not authorized"))
}

fn unknown(path: &str) -> Status {
    let (service, method) = split(path);
    if methods::is_talos_service(service) {
        return Status::unimplemented(format!("simulated node: {method} is not simulated"));
    }
    Status::unimplemented(format!("unknown service {service}"))
}

/// `/package.Service/Method` in its two parts.
fn split(path: &str) -> (&str, &str) {
    path.trim_start_matches('/').split_once('/').unwrap_or((path, ""))
}

async fn read(request: Request<Incoming>) -> Result<Call, Status> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_MESSAGE + 5)
        .collect()
        .await
        .map_err(|e| Status::resource_exhausted(format!("cannot read the request: {e}")))?;
    Ok(Request::from_parts(parts, Full::new(body.to_bytes())))
}

fn refuse(status: Status) -> Response<Body> {
    status.into_http()
}

/// Hands a call to the service of this node that it names.
async fn local(api: Api, call: Call) -> Response<Body> {
    let path = call.uri().path().to_string();
    match split(&path).0 {
        "machine.MachineService" => {
            let server = MachineServiceServer::new(api);
            answer(server.max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE), call)
                .await
        }
        "storage.StorageService" => answer(StorageServiceServer::new(api), call).await,
        "time.TimeService" => answer(TimeServiceServer::new(api), call).await,
        "cosi.resource.State" => answer(StateServer::new(api), call).await,
        "cluster.ClusterService" => answer(ClusterServiceServer::new(api), call).await,
        _ => refuse(unknown(&path)),
    }
}

async fn answer<S>(mut service: S, call: Call) -> Response<Body>
where
    S: Service<Call, Response = Response<Body>, Error = std::convert::Infallible>,
{
    match service.call(call).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// What the machine said, as a gRPC status.
pub(crate) fn refused(code: Code, message: String) -> Status {
    Status::new(code, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_two_parts() {
        assert_eq!(split("/machine.MachineService/Version"), ("machine.MachineService", "Version"));
        assert_eq!(split("odd"), ("odd", ""));
    }

    #[test]
    fn what_is_not_simulated_is_named() {
        let status = unknown("/machine.MachineService/PacketCapture");
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(status.message(), "simulated node: PacketCapture is not simulated");
        assert_eq!(
            unknown("/grpc.health.v1.Health/Check").message(),
            "unknown service grpc.health.v1.Health"
        );
    }
}
