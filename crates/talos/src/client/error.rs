//! What can go wrong between us and a node, in classes that a caller acts on.
//!
//! A class says what it means for the caller (wait, stop, fix the config); the message says what happened, in Talos' words
//! where Talos spoke; the remedy says what a person can do.

use std::{borrow::Cow, error::Error, io};

use rustls::{AlertDescription, CertificateError, Error as TlsError};
use tonic::{Code, Status};

use super::{
    address::{Malformed, NodeAddress},
    tls::{Fingerprint, PinMismatch, tls_error},
};

/// What an error means for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorClass {
    /// Nobody answers at the port: booting, installing, rebooting, or no way there.
    NotThereYet,
    /// The node answers and is not ready for this call.
    StillBooting,
    /// The node's certificate is not of our CA or not the pinned one, or it does not take ours.
    WrongCertificate,
    /// A certificate is outside its validity on one of the two clocks.
    ClockSkew,
    /// etcd has data on this node.
    AlreadyBootstrapped,
    /// Talos does not take this config.
    RefusedConfig { message: String },
    /// The node does not know the call in its present state or role.
    Unimplemented,
    /// Our role is not enough, or the proxy wants other credentials.
    Denied,
    /// The call can't succeed on this node as it is (a worker asked to bootstrap, a missing member).
    Refused,
    /// The connection ended in the middle of a call: it may or may not have taken effect.
    ConnectionLost,
    /// No answer within the time limit: it may or may not have taken effect.
    TimedOut,
    /// What listens there is no Talos node.
    NotTalos,
    /// Anything else that the node said.
    Other,
}

impl ErrorClass {
    /// What a person can do about it.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::NotThereYet => {
                "wait for the node to boot; check its power, its address, and that port 50000 is not blocked"
            }
            Self::StillBooting => {
                "wait; if it stays, look at the node's services and time servers (`butleradm talos health`)"
            }
            Self::WrongCertificate => {
                "check that this is the right node, talosconfig and fingerprint; a node of another cluster has to be reset first"
            }
            Self::ClockSkew => {
                "set the clocks of this machine and of the node; check the node's time servers"
            }
            Self::AlreadyBootstrapped => {
                "nothing to do if this cluster was bootstrapped before; old data is removed by a reset of the node"
            }
            Self::RefusedConfig { .. } => "change the machine config as the message says",
            Self::Unimplemented => {
                "the call is not served in the node's present state or role: in maintenance mode apply a config first"
            }
            Self::Denied => "use a talosconfig with the role os:admin, and the right proxy credentials",
            Self::Refused => "ask another node, or change what is asked",
            Self::ConnectionLost | Self::TimedOut => {
                "look at the node's state before repeating: the call may have taken effect"
            }
            Self::NotTalos => "check address and port: something else listens there",
            Self::Other => "see the node's own message and its logs",
        }
    }
}

/// A failed call or connection.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{operation} on node {node}: {message}")]
pub struct ClientError {
    operation: Cow<'static, str>,
    node: String,
    class: ErrorClass,
    message: String,
    code: Option<Code>,
}

impl ClientError {
    pub(super) fn new(
        operation: impl Into<Cow<'static, str>>,
        node: &NodeAddress,
        class: ErrorClass,
        message: impl Into<String>,
    ) -> Self {
        Self {
            operation: operation.into(),
            node: node.to_string(),
            class,
            message: message.into(),
            code: None,
        }
    }

    pub fn class(&self) -> &ErrorClass {
        &self.class
    }

    pub fn operation(&self) -> &str {
        &self.operation
    }

    pub fn node(&self) -> &str {
        &self.node
    }

    /// What happened, without operation and node.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The gRPC code, when the node gave one.
    pub fn code(&self) -> Option<Code> {
        self.code
    }

    /// True while waiting can help by itself.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self.class,
            ErrorClass::NotThereYet
                | ErrorClass::StillBooting
                | ErrorClass::ClockSkew
                | ErrorClass::ConnectionLost
                | ErrorClass::TimedOut
        )
    }

    /// What a person can do about it.
    pub fn remedy(&self) -> &'static str {
        self.class.remedy()
    }
}

/// Why a connection could not be made, before it has an operation and a node.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("the connection is refused")]
    Refused,
    #[error("no way to the node: {0}")]
    Unreachable(String),
    #[error("the proxy answers {code} {reason}")]
    Proxy { code: u16, reason: String },
    #[error("the proxy does not speak HTTP")]
    NotAProxy,
    #[error("the node hung up before it said anything")]
    HungUp,
    #[error("what listens there does not speak HTTP/2 over TLS")]
    NotTalos,
    #[error("the handshake failed: {error}")]
    Tls { error: TlsError, seen: Option<Fingerprint> },
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl OpenError {
    /// Sorts an IO error by what it carries; `seen` is the certificate that the node had shown by then.
    pub(super) fn from_io(error: &io::Error, seen: Option<Fingerprint>) -> Self {
        if let Some(tls) = tls_error(error) {
            return match tls {
                TlsError::InvalidMessage(_) => Self::NotTalos,
                TlsError::AlertReceived(AlertDescription::NoApplicationProtocol) => Self::NotTalos,
                other => Self::Tls { error: other.clone(), seen },
            };
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::HungUp,
            _ => Self::Unreachable(error.to_string()),
        }
    }

    pub(super) fn class(&self) -> ErrorClass {
        match self {
            Self::Refused | Self::Unreachable(_) | Self::HungUp => ErrorClass::NotThereYet,
            Self::Proxy { code: 407, .. } => ErrorClass::Denied,
            // A proxy says 5xx when the node behind it does not answer.
            Self::Proxy { code: 500.., .. } => ErrorClass::NotThereYet,
            Self::Proxy { .. } => ErrorClass::Denied,
            Self::NotAProxy | Self::NotTalos => ErrorClass::NotTalos,
            Self::Tls { error, .. } => tls_class(error),
            Self::Malformed(_) => ErrorClass::Refused,
        }
    }

    pub(super) fn into_error(self, operation: &'static str, node: &NodeAddress) -> ClientError {
        let message = match &self {
            Self::Tls { error, seen } => tls_message(error, seen.as_ref()),
            other => other.to_string(),
        };
        ClientError::new(operation, node, self.class(), message)
    }
}

pub(super) fn tls_class(error: &TlsError) -> ErrorClass {
    match error {
        TlsError::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        )
        | TlsError::AlertReceived(AlertDescription::CertificateExpired) => ErrorClass::ClockSkew,
        TlsError::InvalidCertificate(_)
        | TlsError::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            // What rustls says for a signature by another CA of the same name, and all Talos CAs have one name.
            | AlertDescription::DecryptError
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::AccessDenied
            | AlertDescription::HandshakeFailure,
        ) => ErrorClass::WrongCertificate,
        _ => ErrorClass::NotTalos,
    }
}

fn tls_message(error: &TlsError, seen: Option<&Fingerprint>) -> String {
    let shown = seen.map(|print| format!(" (its key has the fingerprint {print})")).unwrap_or_default();
    match error {
        TlsError::InvalidCertificate(CertificateError::Other(other)) => {
            match other.0.downcast_ref::<PinMismatch>() {
                Some(mismatch) => mismatch.to_string(),
                None => other.to_string(),
            }
        }
        TlsError::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => format!("by this machine's clock the node's certificate is not valid yet: {error}"),
        TlsError::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            format!("by this machine's clock the node's certificate has expired: {error}")
        }
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            format!("the node's certificate was not made by the CA of this cluster{shown}")
        }
        TlsError::InvalidCertificate(why) => format!("the node's certificate does not do: {why}{shown}"),
        TlsError::AlertReceived(AlertDescription::CertificateRequired) => {
            format!("the node has a config and asks for a client certificate{shown}")
        }
        TlsError::AlertReceived(AlertDescription::CertificateExpired) => {
            "by the node's clock our client certificate is outside its validity".to_owned()
        }
        TlsError::AlertReceived(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
            format!("the node takes client certificates of another CA only{shown}")
        }
        TlsError::AlertReceived(AlertDescription::BadCertificate) => {
            format!("the node does not take our client certificate{shown}")
        }
        other => format!("the handshake failed: {other}"),
    }
}

/// Sorts what a call came back with. `operation` is the name of the RPC.
pub(super) fn from_status(operation: &'static str, node: &NodeAddress, status: &Status) -> ClientError {
    // Only what was made on our side has a source: the connection broke, and the code says nothing.
    if let Some(source) = status.source() {
        let message = format!("the connection was lost: {}", innermost(source));
        return ClientError::new(operation, node, ErrorClass::ConnectionLost, message);
    }
    let class = status_class(operation, status.code(), status.message());
    let mut error = ClientError::new(operation, node, class, status.message());
    if error.message.is_empty() {
        error.message = status.code().description().to_owned();
    }
    error.code = Some(status.code());
    error
}

fn innermost(error: &dyn Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// Words in Talos' messages that mean "later", where the code alone does not say so.
const LATER: &[&str] = &[
    "no controlplane endpoints discovered yet",
    "connection refused",
    "was not registered",
    "not available yet",
    "not in sync yet",
    "error dialing",
    "no such host",
    "already in progress",
    "is rebooting",
    "etcd is not running",
];

/// Pure: the class of a status that the node itself sent.
pub fn status_class(operation: &str, code: Code, message: &str) -> ErrorClass {
    let later = LATER.iter().any(|words| message.contains(words));
    match (operation, code) {
        ("ApplyConfiguration", Code::InvalidArgument) => {
            ErrorClass::RefusedConfig { message: message.to_owned() }
        }
        // In maintenance mode a config that can't be parsed comes back without a code of its own.
        ("ApplyConfiguration", Code::Unknown) if message.contains("config") && !later => {
            ErrorClass::RefusedConfig { message: message.to_owned() }
        }
        ("Bootstrap", Code::AlreadyExists) => ErrorClass::AlreadyBootstrapped,
        (_, Code::FailedPrecondition) if later => ErrorClass::StillBooting,
        (_, Code::Unknown | Code::Internal) if later => ErrorClass::StillBooting,
        (_, Code::Unavailable) => ErrorClass::StillBooting,
        (_, Code::PermissionDenied | Code::Unauthenticated) => ErrorClass::Denied,
        (_, Code::Unimplemented) => ErrorClass::Unimplemented,
        (_, Code::DeadlineExceeded) => ErrorClass::TimedOut,
        (_, Code::Cancelled | Code::Aborted) => ErrorClass::ConnectionLost,
        (_, Code::FailedPrecondition | Code::InvalidArgument | Code::NotFound | Code::AlreadyExists) => {
            ErrorClass::Refused
        }
        _ => ErrorClass::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: &str) -> ErrorClass {
        ErrorClass::RefusedConfig { message: message.to_owned() }
    }

    #[test]
    fn statuses_fall_into_their_class() {
        let bad = "configuration validation failed: 1 error occurred";
        let unparsable = "failed to parse config: yaml: line 3";
        let table = [
            ("ApplyConfiguration", Code::InvalidArgument, bad, refused(bad)),
            ("ApplyConfiguration", Code::Unknown, unparsable, refused(unparsable)),
            (
                "ApplyConfiguration",
                Code::FailedPrecondition,
                "another apply configuration is already in progress",
                ErrorClass::StillBooting,
            ),
            (
                "ApplyConfiguration",
                Code::Unimplemented,
                "apply configuration --mode='no-reboot' is not supported in maintenance mode",
                ErrorClass::Unimplemented,
            ),
            (
                "Bootstrap",
                Code::AlreadyExists,
                "etcd data directory is not empty",
                ErrorClass::AlreadyBootstrapped,
            ),
            (
                "Bootstrap",
                Code::FailedPrecondition,
                "bootstrap is not available yet",
                ErrorClass::StillBooting,
            ),
            ("Bootstrap", Code::FailedPrecondition, "time is not in sync yet", ErrorClass::StillBooting),
            (
                "Bootstrap",
                Code::FailedPrecondition,
                "bootstrap can only be performed on a control plane node",
                ErrorClass::Refused,
            ),
            (
                "EtcdMemberList",
                Code::Unknown,
                "no controlplane endpoints discovered yet",
                ErrorClass::StillBooting,
            ),
            ("EtcdMemberList", Code::Unknown, "rpc error: something odd", ErrorClass::Other),
            (
                "Kubeconfig",
                Code::Unimplemented,
                "kubeconfig is only available on control plane nodes",
                ErrorClass::Unimplemented,
            ),
            ("Logs", Code::Unknown, "log \"etcd\" was not registered", ErrorClass::StillBooting),
            ("Reset", Code::PermissionDenied, "not authorized", ErrorClass::Denied),
            ("Version", Code::DeadlineExceeded, "context deadline exceeded", ErrorClass::TimedOut),
            ("Version", Code::Unavailable, "connection error", ErrorClass::StillBooting),
        ];
        for (operation, code, message, expected) in table {
            assert_eq!(status_class(operation, code, message), expected, "{operation} {code:?} {message}");
        }
    }

    #[test]
    fn tls_failures_fall_into_their_class() {
        use AlertDescription as Alert;
        let table = [
            (TlsError::AlertReceived(Alert::CertificateRequired), ErrorClass::WrongCertificate),
            (TlsError::AlertReceived(Alert::UnknownCA), ErrorClass::WrongCertificate),
            (TlsError::AlertReceived(Alert::BadCertificate), ErrorClass::WrongCertificate),
            (TlsError::AlertReceived(Alert::CertificateExpired), ErrorClass::ClockSkew),
            (TlsError::InvalidCertificate(CertificateError::UnknownIssuer), ErrorClass::WrongCertificate),
            (TlsError::InvalidCertificate(CertificateError::NotValidForName), ErrorClass::WrongCertificate),
            (TlsError::InvalidCertificate(CertificateError::Expired), ErrorClass::ClockSkew),
            (TlsError::InvalidCertificate(CertificateError::NotValidYet), ErrorClass::ClockSkew),
            (TlsError::NoApplicationProtocol, ErrorClass::NotTalos),
        ];
        for (error, expected) in table {
            assert_eq!(tls_class(&error), expected, "{error}");
        }
    }

    #[test]
    fn a_closed_port_and_a_silent_one_mean_wait() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(matches!(OpenError::from_io(&refused, None), OpenError::Refused));
        for kind in [io::ErrorKind::ConnectionRefused, io::ErrorKind::TimedOut, io::ErrorKind::UnexpectedEof]
        {
            assert_eq!(OpenError::from_io(&kind.into(), None).class(), ErrorClass::NotThereYet, "{kind}");
        }
        let proxy = |code| OpenError::Proxy { code, reason: String::new() }.class();
        assert_eq!(
            (proxy(407), proxy(403), proxy(502)),
            (ErrorClass::Denied, ErrorClass::Denied, ErrorClass::NotThereYet)
        );
    }

    #[test]
    fn every_class_has_a_remedy_and_the_error_names_operation_and_node() {
        let node: NodeAddress = "10.0.0.9".parse().unwrap();
        let status = Status::already_exists("etcd data directory is not empty");
        let error = from_status("Bootstrap", &node, &status);
        assert_eq!(error.to_string(), "Bootstrap on node 10.0.0.9: etcd data directory is not empty");
        assert!(error.remedy().contains("reset"));
        assert!(!error.is_temporary());
        assert_eq!(error.code(), Some(Code::AlreadyExists));
    }
}
