//! Has the kernel keep the addresses that we hold. It is asked by a thread of its own: the kernel may make who changes an address
//! wait for others that change the network (on a machine with many containers, for longer than an advert may be late).
//!
//! Every renewal is asked for by the thread that holds the addresses. When that one hangs, nothing is renewed.

use super::netlink::{self, Netlink};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, mpsc};

/// An address on an interface.
type Place = (u32, IpAddr);

/// The thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Renewer {
    asked: mpsc::Sender<(Place, u32)>,
    held: Held,
}

/// What is held, with prefix lengths. Locked while an address is renewed: one that was taken off must not come back by it.
type Held = Arc<Mutex<BTreeMap<Place, u8>>>;

// === impl Renewer ===

impl Renewer {
    pub(super) fn start(mut netlink: Netlink) -> std::io::Result<Self> {
        let (asked, asks) = mpsc::channel();
        let held = Held::default();
        let known = Arc::clone(&held);
        std::thread::Builder::new().name("vip-renewer".to_owned()).spawn(move || {
            for (place, lifetime) in asks {
                let held = known.lock();
                if let Some(prefix) = held.get(&place)
                    && let Err(errno) = netlink.add_address(place.0, place.1, *prefix, lifetime)
                {
                    // When it is gone the machine says so, and it is put back or given up.
                    let (address, why) = (place.1, netlink::told(errno));
                    tracing::warn!(%address, why, "an address could not be renewed");
                }
            }
        })?;
        Ok(Self { asked, held })
    }

    /// It was put on.
    pub(super) fn hold(&self, interface: u32, address: IpAddr, prefix: u8) {
        self.held.lock().insert((interface, address), prefix);
    }

    /// It is about to be taken off.
    pub(super) fn let_go(&self, interface: u32, address: IpAddr) {
        self.held.lock().remove(&(interface, address));
    }

    /// Has one that is held stay for so many seconds. Waits for nothing.
    pub(super) fn renew(&self, interface: u32, address: IpAddr, lifetime: u32) {
        let _ = self.asked.send(((interface, address), lifetime));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_let_go_does_not_come_back_and_nobody_waits_for_a_renewal() {
        if !rustix::process::geteuid().is_root() {
            crate::skipped::skip("it needs root");
            return;
        }
        let here = IpAddr::from([127, 66, 66, 66]);
        let mut netlink = Netlink::open().unwrap();
        let is_there = |netlink: &mut Netlink| netlink.addresses().unwrap().iter().any(|a| a.address == here);
        let renewer = Renewer::start(Netlink::open().unwrap()).unwrap();
        netlink.add_address(1, here, 32, 3).unwrap();
        renewer.hold(1, here, 32);
        {
            // As long as another one changes the network.
            let _busy = renewer.held.lock();
            renewer.renew(1, here, 3600);
        }
        renewer.renew(1, here, 3600);
        renewer.let_go(1, here);
        netlink.delete_address(1, here, 32).unwrap();
        renewer.renew(1, here, 3600);
        // It has worked off everything when it is gone.
        let held = Arc::downgrade(&renewer.held);
        drop(renewer);
        while held.strong_count() > 0 {
            std::thread::yield_now();
        }
        assert!(!is_there(&mut netlink));
    }
}
