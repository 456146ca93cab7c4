//! What a thread has to know of a listener, worked out from its configuration once.

use std::{net::IpAddr, time::Duration};

use super::sockets::Liveness;
use crate::{
    config::{self, ProxyProtocol},
    core::Time,
};

/// One listener's values, in the units of the loop.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) allow: Vec<Network>,
    pub(super) connect: Time,
    pub(super) tries: usize,
    pub(super) idle: Time,
    /// Quiet for so long, a connection to a backend that is not ready is closed.
    pub(super) unready_idle: Time,
    pub(super) queue_length: usize,
    pub(super) queue: Time,
    pub(super) liveness: Liveness,
    pub(super) accept_proxy: bool,
    pub(super) send_proxy: ProxyProtocol,
}

/// An address with a prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    /// Without this, `::/0` would hold all IPv4 addresses too.
    is_ipv4: bool,
    address: u128,
    mask: u128,
}

// === impl Settings ===

impl Settings {
    /// The values of a listener. `Err` holds a network that is none.
    pub(super) fn new(listener: &config::Listener) -> Result<Self, String> {
        let times = &listener.timeouts;
        let allow = listener
            .allow
            .iter()
            .map(|text| Network::parse(text).ok_or_else(|| text.clone()))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            allow,
            connect: times.connect_ms.saturating_mul(1000),
            tries: times.tries.max(1) as usize,
            idle: times.idle.saturating_mul(1_000_000),
            unready_idle: config::UNREADY_IDLE
                .min(listener.rebalance.close_unready)
                .saturating_mul(1_000_000),
            queue_length: listener.queue.length as usize,
            queue: listener.queue.timeout_ms.saturating_mul(1000),
            liveness: liveness(listener),
            accept_proxy: listener.accept_proxy,
            send_proxy: listener.send_proxy,
        })
    }

    pub(super) fn allows(&self, client: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|network| network.contains(client))
    }
}

pub(super) fn liveness(listener: &config::Listener) -> Liveness {
    Liveness { keepalive: Duration::from_secs(listener.timeouts.keepalive) }
}

// === impl Network ===

impl Network {
    /// `10.0.0.0/8`, `fd00::/8`, or one address.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address.parse::<IpAddr>().ok()?, Some(length.parse::<u32>().ok()?)),
            None => (text.parse::<IpAddr>().ok()?, None),
        };
        // All addresses are compared as IPv6 ones: an IPv4 prefix of n bits is one of 96 + n.
        let (most, before) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
        let length = length.unwrap_or(most);
        if length > most {
            return None;
        }
        let mask = u128::MAX.checked_shl(128 - before - length).unwrap_or(0);
        Some(Self { is_ipv4: address.is_ipv4(), address: wide(address) & mask, mask })
    }

    fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.is_ipv4 && wide(address) & self.mask == self.address
    }
}

fn wide(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_what_they_should() {
        for (network, address, inside) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.1/8", "10.9.9.9", true),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("0.0.0.0/0", "fd00::1", false),
            ("::/0", "fd00::1", true),
            ("::/0", "1.2.3.4", false),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
        ] {
            let parsed = Network::parse(network).unwrap();
            assert_eq!(parsed.contains(address.parse().unwrap()), inside, "{network} {address}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/x", "host"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
