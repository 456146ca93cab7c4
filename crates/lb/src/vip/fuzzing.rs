//! What the fuzzer needs to see of what peers and API servers say. Only there with `--cfg fuzzing`.

use super::{apiserver, connections};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Whether a connection is open, its client, and its service.
pub type Entry = (bool, SocketAddr, SocketAddr);

/// The virtual router that a datagram is about, and what it says.
pub fn decode_connections(bytes: &[u8]) -> Option<(u8, Vec<Entry>)> {
    let (router_id, entries) = connections::decode(bytes)?;
    assert_eq!(connections::router_of(bytes), Some(router_id));
    let plain = |e: connections::Entry| (e.open, e.connection.client, e.connection.service);
    Some((router_id, entries.into_iter().map(plain).collect()))
}

/// A datagram that says this.
pub fn encode_connections(router_id: u8, entries: &[Entry]) -> Vec<u8> {
    let entry = |(open, client, service): &Entry| connections::Entry {
        open: *open,
        connection: connections::Connection { client: *client, service: *service },
    };
    connections::encode(router_id, &entries.iter().map(entry).collect::<Vec<_>>())
}

/// The connections that the kernel's table shows, as clients and services.
pub fn read_table(table: &str, services: &[IpAddr]) -> Vec<(SocketAddr, SocketAddr)> {
    let mut found = BTreeSet::new();
    connections::read_table(table, services, &mut found);
    found.into_iter().map(|connection| (connection.client, connection.service)).collect()
}

/// Host, port and path of an API server's URL.
pub fn read_url(url: &str) -> Option<(&str, u16, &str)> {
    apiserver::read_url(url).map(|place| (place.host, place.port, place.path))
}

/// The status in an API server's answer.
pub fn read_status(answer: &[u8]) -> Option<u16> {
    apiserver::read_status(answer)
}
