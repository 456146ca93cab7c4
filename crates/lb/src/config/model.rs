//! The one YAML file, as types. Every field has a default where one makes sense, and its meaning in a sentence: the JSON
//! schema and the reference page are made from this file.

use super::formats;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// A whole configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// Ports that are listened on, and where their connections go.
    #[serde(default)]
    pub listeners: Vec<Listener>,
    /// Addresses that this machine shares with its peers.
    #[serde(default)]
    pub vips: Vec<Vip>,
    /// The runtime API and the metrics.
    #[serde(default)]
    pub admin: Admin,
    /// Where connections are written down.
    #[serde(default)]
    pub access_log: AccessLog,
    /// Threads that forward, at most: further ones are used when those in use are busy and a core is free. Default: one per core.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1024))]
    pub threads: Option<usize>,
}

/// A port, and where its connections go.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Listener {
    /// Name, unique; in metrics, logs and commands.
    #[schemars(with = "formats::Name")]
    pub name: String,
    /// Addresses and ports to listen on. An address that is not here yet (a virtual one) is bound all the same.
    #[schemars(with = "Vec<formats::HostPort>", length(min = 1))]
    pub bind: Vec<SocketAddr>,
    /// Where connections go.
    #[schemars(length(min = 1))]
    pub backends: Vec<Backend>,
    /// How a backend is chosen.
    #[serde(default)]
    pub balance: Balance,
    /// How backends are checked.
    #[serde(default)]
    pub health: HealthCheck,
    /// Who may connect. Empty: everyone. With acceptProxy: who sends the header, and whom it names.
    #[serde(default)]
    #[schemars(with = "Vec<formats::Cidr>")]
    pub allow: Vec<String>,
    /// Most connections at once; more wait. 0: no limit.
    #[serde(default)]
    pub max_connections: u32,
    /// Connections that may wait for room, and how long.
    #[serde(default)]
    pub queue: Queue,
    /// Times.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// PROXY protocol that clients must send.
    #[serde(default)]
    pub accept_proxy: bool,
    /// PROXY protocol that backends are sent, by checks too unless these have a port of their own.
    #[serde(default)]
    pub send_proxy: ProxyProtocol,
    /// What happens when no backend is healthy.
    #[serde(default)]
    pub all_down: AllDown,
    /// How long a drained backend's connections may stay, in seconds. Default: 30.
    #[serde(default = "thirty")]
    pub deregistration_delay: u64,
    /// Evens out long-lived connections when a backend comes back.
    #[serde(default)]
    pub rebalance: Rebalance,
}

/// Where connections go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Backend {
    /// Name, unique in its listener.
    #[schemars(with = "formats::Name")]
    pub name: String,
    /// Address and port.
    #[schemars(with = "formats::HostPort")]
    pub address: SocketAddr,
    /// Share of new connections beside the others', 1 to 256. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 256))]
    pub weight: u32,
    /// Most connections at once. 0: no limit.
    #[serde(default)]
    pub max_connections: u32,
}

/// How a backend is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Balance {
    /// In turn.
    RoundRobin,
    /// The one with the fewest connections for its weight.
    #[default]
    LeastConnections,
    /// The better of two drawn at random.
    PowerOfTwo,
    /// By the client's address (Maglev): the same client gets the same backend, also from another balancer.
    SourceHash,
}

/// How backends are checked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheck {
    /// Values to start from: apiserver (default) or guide.
    #[serde(default)]
    pub profile: Profile,
    /// What is done: tcp, tls or https.
    #[serde(default)]
    pub kind: Option<CheckKind>,
    /// Port in place of the backend's.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Path, for https. Default: /readyz.
    #[serde(default)]
    pub path: Option<String>,
    /// Statuses that are good, for https. Default: 200 to 299.
    #[serde(default)]
    #[schemars(inner(range(min = 100, max = 599)))]
    pub statuses: Vec<u16>,
    /// Name in the backend's certificate. Default: its address.
    #[serde(default)]
    pub server_name: Option<String>,
    /// File with the certificate authorities that the backend's certificate is checked by. Without one it is not checked.
    #[serde(default)]
    pub ca_file: Option<String>,
    /// File with a client certificate.
    #[serde(default)]
    pub cert_file: Option<String>,
    /// File with its key.
    #[serde(default)]
    pub key_file: Option<String>,
    /// File with a bearer token.
    #[serde(default)]
    pub token_file: Option<String>,
    /// Milliseconds between two checks.
    #[serde(default)]
    #[schemars(range(min = 10, max = 3_600_000))]
    pub interval_ms: Option<u64>,
    /// Milliseconds that a check may take.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3_600_000))]
    pub timeout_ms: Option<u64>,
    /// Good checks in a row that make a backend healthy.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    pub healthy: Option<u32>,
    /// Bad checks in a row that make it unhealthy.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    pub unhealthy: Option<u32>,
    /// Failed connections of clients in a row that take a backend out until its next good check. 0: never. Default: 2.
    #[serde(default = "two")]
    pub passive: u32,
    /// Seconds in which a backend that came back works up to its full share. Default: 0 (at once).
    #[serde(default)]
    pub slow_start: u64,
}

/// Values to start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Profile {
    /// https /readyz every 1 s, timeout 1 s, 2 good, 2 bad.
    #[default]
    Apiserver,
    /// tcp every 10 s, timeout 5 s, 2 good, 2 bad.
    Guide,
}

/// What a check does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CheckKind {
    /// Connects.
    Tcp,
    /// Connects and shakes hands.
    Tls,
    /// Asks for a path and looks at the status.
    Https,
}

/// Connections that wait for room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Queue {
    /// How many. Default: 1024.
    #[serde(default = "queue_length")]
    pub length: u32,
    /// How long, in milliseconds. Default: 5000.
    #[serde(default = "five_seconds")]
    #[schemars(range(min = 1))]
    pub timeout_ms: u64,
}

/// Times of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Timeouts {
    /// To reach one backend, in milliseconds; then the next is tried. Default: 2000.
    #[serde(default = "connect_ms")]
    #[schemars(range(min = 1, max = 600_000))]
    pub connect_ms: u64,
    /// Backends that are tried for one connection. Default: 3.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 100))]
    pub tries: u32,
    /// Seconds without a byte after which a connection is ended. Default: 86400.
    #[serde(default = "day")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub idle: u64,
    /// Seconds of silence after which the kernel asks whether the other side lives. Default: 30.
    #[serde(default = "thirty")]
    #[schemars(range(min = 1, max = 32_767))]
    pub keepalive: u64,
}

/// PROXY protocol to backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProxyProtocol {
    /// None.
    #[default]
    None,
    /// The text form.
    V1,
    /// The binary form.
    V2,
}

/// What happens when no backend is healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AllDown {
    /// Connections are refused at once.
    Refuse,
    /// All backends are tried, as if they were healthy.
    #[default]
    TryAll,
}

/// Seconds of quiet after which a connection to a backend that is not ready is closed, unless `closeUnready` is shorter.
pub(crate) const UNREADY_IDLE: u64 = 10;

/// Evens out long-lived connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rebalance {
    /// Whether shares are evened out. `closeUnready` works without it. Default: true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Connections that are shed per second at most, over all backends. Default: 10.
    #[serde(default = "ten")]
    #[schemars(range(min = 1))]
    pub per_second: u32,
    /// How far from even a share may be before anything is shed, in percent. Default: 10.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 100))]
    pub tolerance: u32,
    /// Seconds after which idle connections to a backend that is not ready are closed, while others are well. Idle: not a byte
    /// either way for 10 seconds, or for this time where it is shorter. One that is in use stays until it is idle. Half of the time
    /// all may stay, then fewer and fewer of those that are idle. 0: all are closed at once, in use or not. Default: 30.
    #[serde(default = "thirty")]
    pub close_unready: u64,
}

/// An address that machines share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Vip {
    /// Name, unique; in metrics, logs and commands.
    #[schemars(with = "formats::Name")]
    pub name: String,
    /// The addresses, with prefix lengths; all IPv4 or all IPv6.
    #[schemars(with = "Vec<formats::Prefixed>", length(min = 1, max = 255))]
    pub addresses: Vec<String>,
    /// Network interface that carries them.
    #[schemars(with = "formats::Interface")]
    pub interface: String,
    /// Number of the virtual router, 1 to 255, the same on all peers.
    #[schemars(range(min = 1))]
    pub router_id: u8,
    /// 1 to 254; the highest that is fit holds the addresses. Default: 100.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 254))]
    pub priority: u8,
    /// VRRP version: 3 (default) or 2.
    #[serde(default = "three_u8")]
    #[schemars(range(min = 2, max = 3))]
    pub version: u8,
    /// Milliseconds between two adverts, from 10. Default: 100.
    #[serde(default = "advert")]
    #[schemars(range(min = 10, max = 255_000))]
    pub advert_ms: u32,
    /// Peers that adverts are sent to one by one. Empty: multicast.
    #[serde(default)]
    pub peers: Vec<IpAddr>,
    /// Address of this machine that adverts come from, as the others list it in peers. Default: the one on the interface that is in
    /// the peers' network.
    #[serde(default)]
    pub source: Option<IpAddr>,
    /// Whether a higher priority takes the addresses from a holder that works. Default: false.
    #[serde(default)]
    pub preempt: bool,
    /// Seconds that a higher priority waits before it does. Default: 0.
    #[serde(default)]
    pub preempt_delay: u64,
    /// What must be so for this machine to be fit.
    #[serde(default)]
    pub track: Vec<Track>,
    /// Signs adverts; only for peers that are all ours.
    #[serde(default)]
    pub sign: Option<Signing>,
    /// Finds out within milliseconds that a peer is gone.
    #[serde(default)]
    pub bfd: Option<Bfd>,
    /// Gratuitous announcements after a takeover. Default: 5.
    #[serde(default = "five")]
    #[schemars(range(min = 1, max = 100))]
    pub announcements: u32,
}

/// What must be so for a machine to be fit. What is not so is subtracted from its priority, or makes it unfit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Track {
    /// What is looked at.
    pub check: TrackCheck,
    /// Subtracted while it is not so. 0 (default): unfit.
    #[serde(default)]
    pub weight: u8,
}

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TrackCheck {
    /// A listener of ours accepts and has a healthy backend.
    Listener(String),
    /// An API server on this machine is ready: its URL.
    LocalApiserver(String),
    /// A network interface is up.
    Interface(String),
}

/// Signed adverts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Signing {
    /// File with keys, one `id base64` per line. The first one signs, all are taken.
    pub key_file: String,
}

/// Bidirectional forwarding detection (RFC 5880), asynchronous mode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bfd {
    /// Milliseconds between two packets. Default: 10.
    #[serde(default = "bfd_ms")]
    #[schemars(range(min = 5, max = 60_000))]
    pub interval_ms: u32,
    /// Missed packets after which a peer is gone. Default: 3.
    #[serde(default = "three_u8")]
    #[schemars(range(min = 2))]
    pub multiplier: u8,
}

/// The runtime API and the metrics.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Admin {
    /// Unix socket. Default: /run/butler-lb.sock.
    #[serde(default = "socket")]
    #[schemars(with = "formats::AbsolutePath")]
    pub socket: String,
    /// Loopback address and port for the metrics. Default: none.
    #[serde(default)]
    #[schemars(with = "Option<formats::HostPort>")]
    pub metrics: Option<SocketAddr>,
}

/// Where connections are written down.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessLog {
    /// File, or `-` for standard output. Default: none.
    #[serde(default)]
    pub path: Option<String>,
}

/// The values of a check, with its profile's in place of what was left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckTimes {
    /// What is done.
    pub kind: CheckKind,
    /// Milliseconds between two checks.
    pub interval_ms: u64,
    /// Milliseconds that one may take.
    pub timeout_ms: u64,
    /// Good ones in a row that make a backend healthy.
    pub healthy: u32,
    /// Bad ones in a row that make it unhealthy.
    pub unhealthy: u32,
}

impl HealthCheck {
    /// The values in force.
    pub fn times(&self) -> CheckTimes {
        let (kind, interval, timeout) = match self.profile {
            Profile::Apiserver => (CheckKind::Https, 1000, 1000),
            Profile::Guide => (CheckKind::Tcp, 10_000, 5000),
        };
        CheckTimes {
            kind: self.kind.unwrap_or(kind),
            interval_ms: self.interval_ms.unwrap_or(interval),
            timeout_ms: self.timeout_ms.unwrap_or(timeout),
            healthy: self.healthy.unwrap_or(2),
            unhealthy: self.unhealthy.unwrap_or(2),
        }
    }
}

/// The default of a type is what an empty object decodes to.
macro_rules! from_empty {
    ($($type:ident { $($field:ident: $value:expr),* $(,)? })*) => {$(
        impl Default for $type {
            fn default() -> Self {
                $type { $($field: $value),* }
            }
        }
    )*};
}

from_empty! {
    HealthCheck {
        profile: Profile::default(), kind: None, port: None, path: None, statuses: Vec::new(), server_name: None,
        ca_file: None, cert_file: None, key_file: None, token_file: None, interval_ms: None, timeout_ms: None,
        healthy: None, unhealthy: None, passive: two(), slow_start: 0,
    }
    Queue { length: queue_length(), timeout_ms: five_seconds() }
    Timeouts { connect_ms: connect_ms(), tries: three(), idle: day(), keepalive: thirty() }
    Rebalance { enabled: true, per_second: ten(), tolerance: ten(), close_unready: thirty() }
    Bfd { interval_ms: bfd_ms(), multiplier: three_u8() }
    Admin { socket: socket(), metrics: None }
}

fn yes() -> bool {
    true
}
fn one() -> u32 {
    1
}
fn two() -> u32 {
    2
}
fn three() -> u32 {
    3
}
fn three_u8() -> u8 {
    3
}
fn five() -> u32 {
    5
}
fn ten() -> u32 {
    10
}
fn hundred() -> u8 {
    100
}
fn advert() -> u32 {
    100
}
fn bfd_ms() -> u32 {
    10
}
fn thirty() -> u64 {
    30
}
fn day() -> u64 {
    86_400
}
fn connect_ms() -> u64 {
    2000
}
fn five_seconds() -> u64 {
    5000
}
fn queue_length() -> u32 {
    1024
}
fn socket() -> String {
    "/run/butler-lb.sock".to_owned()
}
