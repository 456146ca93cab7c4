//! Frames by which a neighbour says where an address lives. Whoever is on the link can send them.

use crate::feed::Feed;
use butler_lb::core::neighbour::{Operation, claim, gratuitous_arp, unsolicited_advertisement};
use std::net::IpAddr;

const ETHERNET: usize = 14;
const MESSAGE: usize = ETHERNET + 40;

/// A frame as it comes; with an odd first byte, as an advertisement with its headers and its sum made right.
pub fn neighbour(data: &[u8]) {
    let mut feed = Feed::new(data);
    let mend = feed.flag();
    let mut frame = feed.rest().to_vec();
    if mend {
        make_right(&mut frame);
    }
    let Some(said) = claim(&frame) else { return };
    let again = match said.address {
        IpAddr::V4(address) => {
            assert!(!address.is_unspecified(), "a question is no claim");
            let reply = gratuitous_arp(said.mac, address, Operation::Reply);
            assert_eq!(claim(&reply), Some(said));
            gratuitous_arp(said.mac, address, Operation::Request).to_vec()
        }
        IpAddr::V6(address) => unsolicited_advertisement(said.mac, address).to_vec(),
    };
    assert_eq!(claim(&again), Some(said), "what was read is written and read as the same");
    // However much of it is missing: nothing else is read.
    for end in 0..frame.len() {
        let part = claim(&frame[..end]);
        assert!(part.is_none() || part == Some(said), "{end}: {part:?} {said:?}");
    }
}

fn make_right(frame: &mut [u8]) {
    let Some(length) = frame.len().checked_sub(MESSAGE).and_then(|length| u16::try_from(length).ok()) else {
        return;
    };
    if length < 4 {
        return;
    }
    frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame[20..22].copy_from_slice(&[58, 255]);
    frame[MESSAGE..MESSAGE + 4].copy_from_slice(&[136, 0, 0, 0]);
    // Both addresses, length, protocol, message.
    let words =
        frame[22..].chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum = words.sum::<u32>() + u32::from(length) + 58;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    frame[MESSAGE + 2..MESSAGE + 4].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}
