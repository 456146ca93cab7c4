//! What the kernel has said about this machine's interfaces and addresses, kept current by what it says later.

use super::netlink::{Assigned, Change, Heard, Interface, Monitor, Netlink};
use super::renewer::Renewer;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::net::IpAddr;

/// Interfaces and addresses, and the way to change the latter.
#[derive(Debug)]
pub(super) struct Machine {
    netlink: Netlink,
    renewer: Renewer,
    monitor: Monitor,
    interfaces: Vec<Interface>,
    assigned: Vec<Assigned>,
}

// === impl Machine ===

impl Machine {
    pub(super) fn look() -> rustix::io::Result<Self> {
        // First the monitor: what changes while we look is then told afterwards.
        let monitor = Monitor::open()?;
        let mut netlink = Netlink::open()?;
        let (interfaces, assigned) = (netlink.interfaces()?, netlink.addresses()?);
        let renewer = Renewer::start(Netlink::open()?)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        Ok(Self { netlink, renewer, monitor, interfaces, assigned })
    }

    pub(super) fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    pub(super) fn assigned(&self) -> &[Assigned] {
        &self.assigned
    }

    pub(super) fn find(&self, interface: u32, address: IpAddr) -> Option<&Assigned> {
        self.assigned.iter().find(|a| a.interface == interface && a.address == address)
    }

    /// Puts an address on an interface for so many seconds.
    pub(super) fn add(
        &mut self,
        interface: u32,
        address: IpAddr,
        prefix: u8,
        lifetime: u32,
    ) -> rustix::io::Result<()> {
        self.netlink.add_address(interface, address, prefix, lifetime)?;
        self.renewer.hold(interface, address, prefix);
        let (ours, tentative, lifetime) = (true, false, Some(lifetime));
        self.take(Change::Address(Assigned { interface, address, prefix, ours, tentative, lifetime }));
        Ok(())
    }

    /// Has an address that was put on stay for so many seconds, without waiting for it.
    pub(super) fn renew(&self, interface: u32, address: IpAddr, lifetime: u32) {
        self.renewer.renew(interface, address, lifetime);
    }

    pub(super) fn delete(&mut self, interface: u32, address: IpAddr, prefix: u8) -> rustix::io::Result<()> {
        self.renewer.let_go(interface, address);
        self.netlink.delete_address(interface, address, prefix)?;
        self.assigned.retain(|a| a.interface != interface || a.address != address);
        Ok(())
    }

    /// Takes what the kernel has said since the last call.
    pub(super) fn refresh(&mut self) -> rustix::io::Result<()> {
        match self.monitor.heard()? {
            Heard::Changes(changes) => changes.into_iter().for_each(|change| self.take(change)),
            Heard::Lost => {
                self.interfaces = self.netlink.interfaces()?;
                self.assigned = self.netlink.addresses()?;
            }
        }
        Ok(())
    }

    fn take(&mut self, change: Change) {
        match change {
            Change::Link(link) => {
                self.interfaces.retain(|known| known.index != link.index);
                self.interfaces.push(link);
            }
            Change::LinkGone(index) => {
                self.interfaces.retain(|known| known.index != index);
                self.assigned.retain(|a| a.interface != index);
            }
            Change::Address(new) => {
                let same = |a: &Assigned| a.interface == new.interface && a.address == new.address;
                // In place: the order of addresses decides which one adverts come from.
                match self.assigned.iter_mut().find(|a| same(a)) {
                    Some(known) => *known = new,
                    None => self.assigned.push(new),
                }
            }
            Change::AddressGone(gone) => {
                self.assigned.retain(|a| a.interface != gone.interface || a.address != gone.address);
            }
        }
    }
}

impl AsFd for Machine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.monitor.as_fd()
    }
}
