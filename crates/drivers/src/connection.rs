//! How infrastructures are reached, and with which credentials. The same settings for every driver.

use crate::recorder::{NoRecorder, SharedRecorder};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How an infrastructure's API is reached.
#[derive(Clone)]
pub struct Connection {
    /// Dial this instead of the endpoint in the ProviderConfig (tests, tunnels).
    pub base_url: Option<String>,
    /// Certificate authorities in PEM that are trusted beside the built-in ones.
    pub ca_pem: Option<String>,
    /// Every connection goes through it: `http://host:port`, with HTTP CONNECT.
    pub proxy: Option<String>,
    /// Name to address, in place of a look-up.
    pub host_aliases: BTreeMap<String, IpAddr>,
    /// To reach the port and shake hands.
    pub connect_timeout: Duration,
    /// For one whole call.
    pub call_timeout: Duration,
    /// Told every call.
    pub recorder: SharedRecorder,
}

/// The contents of a credentials Secret. Shows its keys, never its values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials(pub BTreeMap<String, String>);

impl Default for Connection {
    fn default() -> Self {
        Self {
            base_url: None,
            ca_pem: None,
            proxy: None,
            host_aliases: BTreeMap::new(),
            connect_timeout: Duration::from_secs(5),
            call_timeout: Duration::from_secs(30),
            recorder: Arc::new(NoRecorder),
        }
    }
}

impl Connection {
    /// Also trusts the certificate authority that comes with credentials: it travels with them, wherever the controllers run.
    pub(crate) fn trusting(&self, credentials: &Credentials) -> Self {
        let mut connection = self.clone();
        if let Some(pem) = credentials.get("ca.crt") {
            let given = connection.ca_pem.take().unwrap_or_default();
            connection.ca_pem = Some(format!("{given}\n{pem}"));
        }
        connection
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A proxy's URL can hold a password.
        f.debug_struct("Connection")
            .field("base_url", &self.base_url)
            .field("ca_pem", &self.ca_pem.is_some())
            .field("proxy", &self.proxy.is_some())
            .field("host_aliases", &self.host_aliases)
            .finish_non_exhaustive()
    }
}

impl Credentials {
    /// The value of a key, unless it is missing or empty.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
