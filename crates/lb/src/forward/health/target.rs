//! What a listener's checks need, worked out from its configuration.

use std::{fmt::Write as _, fs, time::Duration};

use rustls::pki_types::ServerName;

use super::tls::Tls;
use crate::{
    config::{CheckKind, HealthCheck, ProxyProtocol},
    core::proxy::{Header, encode_v1, encode_v2},
};

const DEFAULT_PATH: &str = "/readyz";

#[derive(Debug)]
pub(in crate::forward) struct Target {
    pub(super) kind: CheckKind,
    pub(super) port: Option<u16>,
    pub(super) timeout: Duration,
    pub(super) server_name: Option<ServerName<'static>>,
    pub(super) tls: Option<Tls>,
    /// What is said before all else: the PROXY header of a connection that is nobody's but ours.
    pub(super) preface: Vec<u8>,
    path: String,
    statuses: Vec<u16>,
    token_file: Option<String>,
}

/// Why checks cannot be made as configured.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A file with certificates or a key.
    #[error("read {file}")]
    File {
        /// Which file.
        file: String,
        /// What is wrong with it.
        source: rustls::pki_types::pem::Error,
    },
    /// A file without anything in it that is of use.
    #[error("{0} holds no certificate")]
    Empty(String),
    /// A name that is none.
    #[error("{0} is not a name that a certificate can have")]
    Name(String),
    /// A certificate without a key, or a key without one.
    #[error("a client certificate needs both certFile and keyFile")]
    Half,
    /// What the TLS library says.
    #[error("set up TLS")]
    Tls(#[from] rustls::Error),
}

// === impl Target ===

impl Target {
    pub(in crate::forward) fn new(check: &HealthCheck, proxy: ProxyProtocol) -> Result<Self, TargetError> {
        let times = check.times();
        let server_name = check
            .server_name
            .as_ref()
            .map(|name| ServerName::try_from(name.clone()).map_err(|_| TargetError::Name(name.clone())));
        let tls = if times.kind == CheckKind::Tcp { None } else { Some(Tls::new(check)?) };
        // Where checks have a port of their own, it is not said that anybody there expects a header.
        let preface = match proxy {
            ProxyProtocol::V1 if check.port.is_none() => encode_v1(&Header::Local),
            ProxyProtocol::V2 if check.port.is_none() => encode_v2(&Header::Local),
            _ => Vec::new(),
        };
        Ok(Self {
            preface,
            kind: times.kind,
            port: check.port,
            timeout: Duration::from_millis(times.timeout_ms),
            server_name: server_name.transpose()?,
            tls,
            path: check.path.clone().unwrap_or_else(|| DEFAULT_PATH.to_owned()),
            statuses: check.statuses.clone(),
            token_file: check.token_file.clone(),
        })
    }

    pub(super) fn is_good(&self, status: u16) -> bool {
        if self.statuses.is_empty() { (200..300).contains(&status) } else { self.statuses.contains(&status) }
    }

    /// The whole question. The token is read each time, since tokens are renewed.
    pub(super) fn request(&self) -> String {
        let host = self.server_name.as_ref().map_or_else(|| "kubernetes".into(), ServerName::to_str);
        let mut request = format!(
            "GET {} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: butler-lb/{}\r\nConnection: close\r\n",
            self.path,
            env!("CARGO_PKG_VERSION"),
        );
        if let Some(file) = &self.token_file {
            match fs::read_to_string(file) {
                Ok(token) => {
                    let _ = write!(request, "Authorization: Bearer {}\r\n", token.trim());
                }
                // Without it the answer will say what is wrong; the file is named here.
                Err(error) => tracing::warn!(file, %error, "the token of a health check cannot be read"),
            }
        }
        request.push_str("\r\n");
        request
    }
}
