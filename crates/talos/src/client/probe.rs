//! Which of its two faces a node shows, told by what its port really answers.
//!
//! ```text
//!  TCP      refused ............................... Refused      booting, installing, rebooting
//!           no answer ............................. Unreachable
//!  TLS with our certificate, checked by our CA
//!           accepted .............................. Configured { Ours }
//!           certificate outside its validity ...... ClockSkew
//!           ours, but refuses us or names others .. CertificateTrouble
//!           another issuer ........................ ask again without certificate:
//!  TLS without certificate, unchecked
//!           asks for a certificate ................ Configured { Foreign, or Unknown when we have no CA to compare }
//!           serves HTTP/2, and Version answers .... Maintenance { fingerprint }
//!           anything else ......................... NotTalos
//! ```

use std::sync::Arc;

use rustls::{AlertDescription as Alert, CertificateError, Error as TlsError};

use super::{
    address::{NodeAddress, Settings},
    error::{ClientError, ErrorClass, OpenError},
    open::open,
    session::Client,
    tls::{Access, Credentials, Fingerprint},
};

/// Whose CA made a configured node's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Ours,
    Foreign,
    /// We have no CA to compare with.
    Unknown,
}

/// What a node's port answers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    Refused,
    Unreachable { reason: String },
    Maintenance { fingerprint: Fingerprint },
    Configured { owner: Owner, fingerprint: Option<Fingerprint> },
    ClockSkew { reason: String },
    CertificateTrouble { reason: String },
    NotTalos { reason: String },
}

impl std::fmt::Display for NodeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused => f.write_str("the port is closed"),
            Self::Maintenance { fingerprint } => write!(f, "in maintenance mode (fingerprint {fingerprint})"),
            Self::Configured { owner: Owner::Ours, .. } => f.write_str("configured"),
            Self::Configured { owner: Owner::Foreign, .. } => f.write_str("configured, for another cluster"),
            Self::Configured { owner: Owner::Unknown, .. } => f.write_str("configured, for some cluster"),
            Self::Unreachable { reason }
            | Self::ClockSkew { reason }
            | Self::CertificateTrouble { reason }
            | Self::NotTalos { reason } => f.write_str(reason),
        }
    }
}

impl NodeState {
    /// What a person can do when another state was hoped for.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Refused | Self::Unreachable { .. } => ErrorClass::NotThereYet.remedy(),
            Self::Maintenance { .. } => "apply a config",
            Self::Configured { owner: Owner::Ours, .. } => "nothing: it is configured",
            Self::Configured { owner: Owner::Unknown, .. } => "use the talosconfig of its cluster",
            Self::Configured { owner: Owner::Foreign, .. } | Self::CertificateTrouble { .. } => {
                ErrorClass::WrongCertificate.remedy()
            }
            Self::ClockSkew { .. } => ErrorClass::ClockSkew.remedy(),
            Self::NotTalos { .. } => ErrorClass::NotTalos.remedy(),
        }
    }
}

/// A node and all that is needed to speak to it in any of its states.
#[derive(Debug, Clone)]
pub struct Node {
    address: NodeAddress,
    credentials: Option<Credentials>,
    pin: Option<Fingerprint>,
    settings: Arc<Settings>,
}

/// A look at a node, with the connection when there is one.
pub(super) enum Look {
    Ours(Client),
    Maintenance(Client, Fingerprint),
    Nothing(NodeState),
}

impl Node {
    pub fn new(address: NodeAddress, settings: Arc<Settings>) -> Self {
        Self { address, credentials: None, pin: None, settings }
    }

    /// For the configured node.
    #[must_use]
    pub fn with_credentials(self, credentials: Credentials) -> Self {
        Self { credentials: Some(credentials), ..self }
    }

    /// For the node in maintenance mode: no other key is spoken to.
    #[must_use]
    pub fn with_pin(self, pin: Fingerprint) -> Self {
        Self { pin: Some(pin), ..self }
    }

    pub fn address(&self) -> &NodeAddress {
        &self.address
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// To the configured node, with our certificate.
    pub async fn connect(&self) -> Result<Client, ClientError> {
        let Some(credentials) = &self.credentials else {
            let message = "no client certificate was given";
            return Err(ClientError::new("connect", &self.address, ErrorClass::Denied, message));
        };
        Client::connect(&self.address, &Access::Mutual(credentials.clone()), self.settings.clone()).await
    }

    /// To the node in maintenance mode. Who it is, only a pin can tell.
    pub async fn connect_maintenance(&self) -> Result<Client, ClientError> {
        let access = Access::Maintenance { pin: self.pin.clone() };
        Client::connect(&self.address, &access, self.settings.clone()).await
    }

    pub async fn probe(&self) -> NodeState {
        match self.look().await {
            Look::Ours(client) => {
                NodeState::Configured { owner: Owner::Ours, fingerprint: client.fingerprint().cloned() }
            }
            Look::Maintenance(_, fingerprint) => NodeState::Maintenance { fingerprint },
            Look::Nothing(state) => state,
        }
    }

    pub(super) async fn look(&self) -> Look {
        if let Some(found) = self.look_with_certificate().await {
            return found;
        }
        let found = self.look_without_certificate().await;
        if matches!(&found, Look::Nothing(NodeState::Configured { owner: Owner::Foreign, .. })) {
            // It may have left maintenance mode between the two looks, and be ours after all.
            return self.look_with_certificate().await.unwrap_or(found);
        }
        found
    }

    /// `None`: there are no credentials, or the node's own certificate is not from their CA.
    async fn look_with_certificate(&self) -> Option<Look> {
        let access = Access::Mutual(self.credentials.clone()?);
        match open(&self.address, &access, &self.settings).await {
            Ok(opened) => Some(match Client::over(opened, &self.address, self.settings.clone()).await {
                Ok(client) => Look::Ours(client),
                Err(error) => Look::Nothing(NodeState::Unreachable { reason: error.message().to_owned() }),
            }),
            Err(OpenError::Tls {
                error:
                    TlsError::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature),
                ..
            }) => None,
            Err(error) => Some(Look::Nothing(self.state_of(error))),
        }
    }

    async fn look_without_certificate(&self) -> Look {
        let access = Access::Maintenance { pin: None };
        let opened = match open(&self.address, &access, &self.settings).await {
            Ok(opened) => opened,
            // Go says bad_certificate for a missing one in TLS 1.2, certificate_required in 1.3.
            Err(OpenError::Tls {
                error:
                    TlsError::AlertReceived(
                        Alert::CertificateRequired | Alert::BadCertificate | Alert::HandshakeFailure,
                    ),
                seen,
            }) => {
                let owner = if self.credentials.is_some() { Owner::Foreign } else { Owner::Unknown };
                return Look::Nothing(NodeState::Configured { owner, fingerprint: seen });
            }
            Err(error) => return Look::Nothing(self.state_of(error)),
        };
        let shown = opened.fingerprint.clone();
        let client = match Client::over(opened, &self.address, self.settings.clone()).await {
            Ok(client) => client,
            Err(error) => return Look::Nothing(NodeState::NotTalos { reason: error.message().to_owned() }),
        };
        let Some(fingerprint) = shown else {
            return Look::Nothing(NodeState::NotTalos { reason: "it has no certificate".to_owned() });
        };
        // Maintenance mode answers Version with "unimplemented"; over a SideroLink tunnel it answers it.
        match client.version().await {
            Ok(_) => {}
            Err(error) if *error.class() == ErrorClass::Unimplemented => {}
            Err(error) if error.is_temporary() => {
                return Look::Nothing(NodeState::Unreachable { reason: error.message().to_owned() });
            }
            Err(error) => return Look::Nothing(NodeState::NotTalos { reason: error.message().to_owned() }),
        }
        match &self.pin {
            Some(pin) if *pin != fingerprint => {
                let reason =
                    format!("the node's key has the fingerprint {fingerprint}, not the pinned {pin}");
                Look::Nothing(NodeState::CertificateTrouble { reason })
            }
            _ => Look::Maintenance(client, fingerprint),
        }
    }

    fn state_of(&self, error: OpenError) -> NodeState {
        if matches!(error, OpenError::Refused) {
            return NodeState::Refused;
        }
        let error = error.into_error("probe", &self.address);
        let reason = error.message().to_owned();
        match error.class() {
            ErrorClass::ClockSkew => NodeState::ClockSkew { reason },
            ErrorClass::WrongCertificate => NodeState::CertificateTrouble { reason },
            ErrorClass::NotTalos => NodeState::NotTalos { reason },
            _ => NodeState::Unreachable { reason },
        }
    }
}
