//! The addresses of a member on its interface: put there, renewed, announced, taken off. Nobody else's are touched.

use super::super::netlink::{self, Assigned};
use super::{Hands, Member};
use crate::core::neighbour::{self, Operation};
use crate::core::{SECOND, Time};
use std::net::IpAddr;

/// Seconds that an address stays without us, at least. The kernel looks once a second.
const SHORTEST_LIFE: u32 = 3;

impl Member {
    /// Seconds after which the kernel takes an address off that nobody renews: a process that was killed or hangs must not keep it
    /// beside its next holder, and that one must not be slower.
    fn lifetime(&self) -> u32 {
        (3 * self.config.advert_ms).div_ceil(1000).max(SHORTEST_LIFE)
    }

    /// Whether we put an address on the interface, in this life or an earlier one. Nothing else is ever taken off.
    pub(super) fn is_ours(&self, found: &Assigned) -> bool {
        let in_this_life = self.held.iter().any(|(address, _)| *address == found.address);
        let bare = self
            .addresses
            .iter()
            .any(|(address, prefix)| (*address, *prefix) == (found.address, found.prefix));
        in_this_life || put_on_by_us(found, bare, self.lifetime())
    }

    /// Has exactly the configured addresses on the interface, for another while.
    pub(super) fn hold(&mut self, hands: &mut Hands<'_>) -> Result<(), String> {
        let Some(index) = self.interface else { return Ok(()) };
        for (address, prefix) in self.held.extract_if(.., |held| !self.addresses.contains(held)) {
            report("take off", address, hands.machine.delete(index, address, prefix));
        }
        let lifetime = self.lifetime();
        let (mut held, mut outcome) = (Vec::new(), Ok(()));
        for (address, prefix) in &self.addresses {
            let found = hands.machine.find(index, *address);
            if let Some(found) = found.filter(|found| !self.is_ours(found)) {
                outcome = Err(not_ours(found, &self.config.interface));
                continue;
            }
            held.push((*address, *prefix));
            if found.is_some() && self.held.contains(&(*address, *prefix)) {
                hands.machine.renew(index, *address, lifetime);
                continue;
            }
            let added = hands.machine.add(index, *address, *prefix, lifetime);
            if let Err(errno) = &added {
                let why = netlink::told(*errno);
                outcome = Err(format!("{address} can't be put on {}: {why}", self.config.interface));
            }
            report("put on", *address, added);
        }
        self.held = held;
        self.renew_at = hands.now + Time::from(lifetime) * SECOND / 3;
        outcome
    }

    /// Takes our addresses off the interface, and those that an earlier life left there.
    pub(super) fn let_go(&mut self, hands: &mut Hands<'_>) {
        let Some(index) = self.interface else { return };
        self.renew_at = Time::MAX;
        for (address, _) in self.held.iter().chain(&self.addresses) {
            if let Some(found) = hands.machine.find(index, *address).copied().filter(|f| self.is_ours(f)) {
                report("take off", *address, hands.machine.delete(index, *address, found.prefix));
            }
        }
        self.held.clear();
    }

    /// Puts back what someone else took off.
    pub(super) fn put_back(&mut self, hands: &mut Hands<'_>) {
        let Some(index) = self.wire.as_ref().map(|wire| wire.interface().index) else { return };
        let gone = |(address, _): &(IpAddr, u8)| hands.machine.find(index, *address).is_none();
        if self.unable.is_none() && self.held.iter().any(gone) {
            tracing::warn!(vip = %self.config.name, "someone took an address off that we hold; it is put back");
            let held = self.hold(hands);
            if held.is_ok() {
                self.announce();
            }
            self.fail_on(held, hands);
        }
    }

    pub(super) fn announce(&self) {
        let Some(wire) = &self.wire else { return };
        let mac = wire.interface().mac;
        for (address, _) in &self.addresses {
            let sent = match address {
                IpAddr::V4(v4) => wire
                    .send_frame(&neighbour::gratuitous_arp(mac, *v4, Operation::Request))
                    .and_then(|()| wire.send_frame(&neighbour::gratuitous_arp(mac, *v4, Operation::Reply))),
                IpAddr::V6(v6) => wire.send_frame(&neighbour::unsolicited_advertisement(mac, *v6)),
            };
            if let Err(errno) = sent {
                tracing::warn!(vip = %self.config.name, %address, %errno, "an address could not be announced");
            }
        }
    }
}

/// By its mark; or, on kernels that keep no mark, by its network and its time: nobody else gives an address so little that it
/// is not there for longer than ours may be. What is there for good, or for as long as a lease, is somebody else's, and so is
/// what has another network than ours has: a lease can be near its end, and adverts far apart.
fn put_on_by_us(found: &Assigned, with_our_network: bool, lifetime: u32) -> bool {
    found.ours || (with_our_network && found.lifetime.is_some_and(|seconds| seconds <= lifetime))
}

pub(super) fn not_ours(found: &Assigned, interface: &str) -> String {
    let address = format!("{}/{}", found.address, found.prefix);
    format!(
        "{address} is on {interface} already, and butler-lb did not put it there: it is not touched, and not shared. If it is \
         this machine's own, the vip needs another address; if something else left it there: ip addr del {address} dev {interface}"
    )
}

fn report(operation: &str, address: IpAddr, outcome: rustix::io::Result<()>) {
    if let Err(errno) = outcome {
        tracing::error!(%address, "{operation} the interface: {}", netlink::told(errno));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_ours_by_its_mark_or_by_its_short_time_and_never_because_it_is_bare() {
        let found = |ours, lifetime| Assigned {
            interface: 2,
            address: IpAddr::from([10, 0, 0, 9]),
            prefix: 32,
            ours,
            tentative: false,
            lifetime,
        };
        assert!(put_on_by_us(&found(true, None), true, 3), "an earlier version put it on for good");
        assert!(put_on_by_us(&found(true, None), false, 3), "with another prefix than now");
        assert!(put_on_by_us(&found(false, Some(3)), true, 3));
        assert!(!put_on_by_us(&found(false, None), true, 3));
        assert!(!put_on_by_us(&found(false, Some(3600)), true, 3), "a lease");
        assert!(!put_on_by_us(&found(false, Some(60)), false, 123), "a lease that is about to be renewed");
    }
}
