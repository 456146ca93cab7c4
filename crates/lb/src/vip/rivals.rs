//! Others who claim an address that this machine holds: a laptop that was given it by hand, a program that was forgotten, a peer
//! behind a partition. Nothing can be done against them but to say so, with the hardware address, so that they are found.
//!
//! The kernel sorts frames out: only ARP and neighbour advertisements about our addresses come here. Nobody is woken by them; they are
//! looked at now and then, and the kernel drops what does not fit into a small buffer until then.

use super::netlink::Interface;
use crate::core::neighbour::{self, Claim};
use crate::core::{SECOND, Time};
use crate::sys::{self, LinkAddress};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt};
use std::net::IpAddr;

/// Who takes the addresses over announces it before its advert tells us that they are no longer ours.
const GRACE: Time = SECOND;
/// Between two warnings.
const WARN_EVERY: Time = 60 * SECOND;
/// Frames that are taken in one look.
const AT_ONCE: usize = 64;
/// Bytes that may wait for it: less than so many frames. The kernel takes twice the number, and counts each frame as 768 or more.
const BUFFER: usize = 16 << 10;

const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86DD;

/// Hears claims of some addresses on an interface.
#[derive(Debug)]
pub(super) struct Ear {
    socket: OwnedFd,
    mac: neighbour::Mac,
}

/// What was heard while this machine held the addresses.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    counted: u64,
    /// Heard, and how often; when it counts unless the addresses have moved by then.
    doubtful: Option<(Claim, u64, Time)>,
    warned: Option<Time>,
}

// === impl Ear ===

impl Ear {
    /// `addresses` are of one family.
    pub(super) fn open(interface: &Interface, addresses: &[IpAddr]) -> rustix::io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol it hears nothing until the filter is there.
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        sys::attach_filter(&socket, &filter(addresses))?;
        sockopt::set_socket_recv_buffer_size(&socket, BUFFER)?;
        let protocol = if addresses.iter().any(IpAddr::is_ipv6) { IPV6 } else { ARP };
        rustix::net::bind(&socket, &LinkAddress::new(interface.index, protocol, interface.mac))?;
        Ok(Self { socket, mac: interface.mac })
    }

    /// What others have claimed since the last call.
    pub(super) fn heard(&self) -> Vec<Claim> {
        let mut frame = [0; 256];
        let mut claims = Vec::new();
        for _ in 0..AT_ONCE {
            let Ok((length, _)) = rustix::net::recv(&self.socket, &mut frame[..], RecvFlags::DONTWAIT) else {
                break;
            };
            claims.extend(neighbour::claim(&frame[..length]).filter(|claim| claim.mac != self.mac));
        }
        claims
    }
}

// === impl Rivals ===

impl Rivals {
    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    /// Somebody claims an address that this machine holds.
    pub(super) fn hear(&mut self, claim: Claim, now: Time) {
        match &mut self.doubtful {
            Some((last, count, _)) => (*last, *count) = (claim, *count + 1),
            none => *none = Some((claim, 1, now + GRACE)),
        }
    }

    pub(super) fn next_deadline(&self) -> Time {
        self.doubtful.map_or(Time::MAX, |(_, _, due)| due)
    }

    /// The addresses have moved: it was the next holder.
    pub(super) fn forgive(&mut self) {
        self.doubtful = None;
    }

    /// Time went by, and the addresses are still ours. What is to be said, if it is time to say it.
    pub(super) fn on_timer(&mut self, now: Time) -> Option<Claim> {
        let (claim, count, _) = self.doubtful.take_if(|(_, _, due)| now >= *due)?;
        self.counted += count;
        if self.warned.is_some_and(|last| now < last + WARN_EVERY) {
            return None;
        }
        self.warned = Some(now);
        Some(claim)
    }
}

/// A program for the kernel (classic BPF) that lets frames pass which claim one of the addresses.
fn filter(addresses: &[IpAddr]) -> Vec<libc::sock_filter> {
    const WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const SAME: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const GIVE: u32 = libc::BPF_RET | libc::BPF_K;
    const WHOLE: u32 = u32::MAX;
    /// Where things are in a frame: an ARP sender's address; next header, kind and target of an advertisement.
    const SENDER: u32 = 28;
    const HEADER: u32 = 20;
    const KIND: u32 = 54;
    const TARGET: u32 = 62;
    let step = |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut program = Vec::new();
    if addresses.iter().any(IpAddr::is_ipv6) {
        let nothing = step(GIVE, 0, 0);
        for (at, is) in [(HEADER, 58), (KIND, 136)] {
            program.extend([step(BYTE, at, 0), libc::sock_filter { jt: 1, ..step(SAME, is, 0) }, nothing]);
        }
    }
    for address in addresses {
        let (start, bytes) = match address {
            IpAddr::V4(v4) => (SENDER, v4.octets().to_vec()),
            IpAddr::V6(v6) => (TARGET, v6.octets().to_vec()),
        };
        let words: Vec<u32> =
            bytes.chunks(4).map(|b| b.iter().fold(0, |w, b| w << 8 | u32::from(*b))).collect();
        for (index, word) in words.iter().enumerate() {
            // What differs goes on behind this address: the rest of its comparisons, and the word that lets pass.
            let rest = 2 * (words.len() - index - 1) + 1;
            program.extend([step(WORD, start + 4 * index as u32, 0), step(SAME, *word, rest as u8)]);
        }
        program.push(step(GIVE, WHOLE, 0));
    }
    program.push(step(GIVE, 0, 0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: Claim = Claim { address: IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9)), mac: [2; 6] };

    #[test]
    fn who_takes_over_is_no_rival_and_who_does_not_is_told_of_once_a_minute() {
        let mut rivals = Rivals::default();
        rivals.hear(CLAIM, 0);
        rivals.forgive();
        assert_eq!((rivals.on_timer(GRACE), rivals.counted()), (None, 0));
        rivals.hear(CLAIM, 0);
        rivals.hear(CLAIM, 1);
        assert_eq!(rivals.on_timer(GRACE - 1), None);
        assert_eq!((rivals.on_timer(GRACE), rivals.counted()), (Some(CLAIM), 2));
        rivals.hear(CLAIM, GRACE);
        assert_eq!((rivals.on_timer(2 * GRACE), rivals.counted()), (None, 3), "counted, not said again");
        rivals.hear(CLAIM, WARN_EVERY + GRACE);
        assert_eq!(rivals.on_timer(rivals.next_deadline()), Some(CLAIM));
    }

    #[test]
    fn the_kernel_takes_filters_of_as_many_addresses_as_there_may_be() {
        if !rustix::process::geteuid().is_root() {
            crate::skipped::skip("it needs root");
            return;
        }
        let machine = super::super::machine::Machine::look().unwrap();
        let lo = machine.interface("lo").unwrap();
        let v4: Vec<IpAddr> = (0..255).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        let v6: Vec<IpAddr> = (0..255).map(|n| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, n])).collect();
        for addresses in [v4, v6] {
            let ear = Ear::open(lo, &addresses).unwrap();
            assert_eq!(ear.heard(), []);
        }
    }
}
