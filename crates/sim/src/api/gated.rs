//! Calls from outside pass the data centre's gate, where there is one. Calls between nodes don't come here.

use super::{refuse, split};
use crate::gate::{Call, Fault, Leaving, Verdict};
use crate::node::Node;
use crate::serve::CutConnection;
use http::{HeaderMap, Response};
use std::future::Future;
use std::sync::Arc;
use tonic::body::Body;
use tonic::{Code, Status};

/// Methods that change something.
const MUTATING: [&str; 7] =
    ["ApplyConfiguration", "Bootstrap", "EtcdRemoveMemberByID", "Reboot", "Reset", "Shutdown", "Upgrade"];

/// Lets a call through the gate. A stream leaves it when it begins.
pub(super) async fn gated(
    node: &Arc<Node>,
    path: &str,
    headers: &HeaderMap,
    work: impl Future<Output = Response<Body>>,
) -> Response<Body> {
    let gate = node.world.upgrade().and_then(|world| world.gate.clone());
    let Some(gate) = gate else { return work.await };
    let method = split(path).1;
    let call = Call {
        system: "talos",
        operation: method.to_string(),
        object: target(headers).unwrap_or_else(|| node.hostname()),
        mutates: MUTATING.contains(&method),
    };
    match gate.enter(call).await {
        Verdict::Refuse(Fault::Reset | Fault::Timeout) => cut(),
        Verdict::Refuse(fault) => refuse(as_status(fault)),
        Verdict::Proceed(ticket) => {
            let response = work.await;
            match ticket.leave().await {
                Leaving::Answer => response,
                Leaving::Lose => cut(),
            }
        }
    }
}

/// Who the call is for, when it is to be handed on.
fn target(headers: &HeaderMap) -> Option<String> {
    let values = |name: &str| -> Vec<&str> {
        headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok()).collect()
    };
    let mut wanted = values("node");
    wanted.extend(values("nodes"));
    (!wanted.is_empty()).then(|| wanted.join(","))
}

fn cut() -> Response<Body> {
    let mut response = refuse(Status::unavailable("the connection is cut"));
    response.extensions_mut().insert(CutConnection);
    response
}

/// The gRPC code that comes nearest to an HTTP status.
fn as_status(fault: Fault) -> Status {
    let code = match fault {
        Fault::Throttle | Fault::Status(429) => Code::ResourceExhausted,
        Fault::Status(400) => Code::InvalidArgument,
        Fault::Status(401) => Code::Unauthenticated,
        Fault::Status(403) => Code::PermissionDenied,
        Fault::Status(404) => Code::NotFound,
        Fault::Status(409) => Code::Aborted,
        Fault::Status(412) => Code::FailedPrecondition,
        Fault::Status(501) => Code::Unimplemented,
        Fault::Status(504) => Code::DeadlineExceeded,
        Fault::Status(502 | 503) => Code::Unavailable,
        _ => Code::Internal,
    };
    Status::new(code, format!("SIMULATED fault: {fault}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_become_codes_and_targets_are_read() {
        assert_eq!(as_status(Fault::Status(503)).code(), Code::Unavailable);
        assert_eq!(as_status(Fault::Throttle).code(), Code::ResourceExhausted);
        assert_eq!(as_status(Fault::Status(500)).code(), Code::Internal);
        let mut headers = HeaderMap::new();
        assert_eq!(target(&headers), None);
        headers.insert("node", "10.0.0.1".parse().unwrap());
        assert_eq!(target(&headers).as_deref(), Some("10.0.0.1"));
        assert!(cut().extensions().get::<CutConnection>().is_some());
    }
}
