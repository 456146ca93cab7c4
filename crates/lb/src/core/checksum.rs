//! The internet checksum (RFC 1071), and the pseudo headers that go into it.

use std::net::IpAddr;

/// The checksum over parts that follow each other. Every part but the last has an even length.
pub(super) fn internet(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u32::from(u16::from_be_bytes([pair[0], low]));
            // Folded as it goes, so that no length can overflow it.
            sum = (sum & 0xffff) + (sum >> 16);
        }
    }
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

/// The pseudo header of a message of `length` bytes. Addresses of different families have none.
pub(super) fn pseudo_header(source: IpAddr, destination: IpAddr, protocol: u8, length: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(40);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            header.extend_from_slice(&source.octets());
            header.extend_from_slice(&destination.octets());
            header.extend_from_slice(&[0, protocol]);
            header.extend_from_slice(&(length as u16).to_be_bytes());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            header.extend_from_slice(&source.octets());
            header.extend_from_slice(&destination.octets());
            header.extend_from_slice(&(length as u32).to_be_bytes());
            header.extend_from_slice(&[0, 0, 0, protocol]);
        }
        _ => {}
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc_sums_to_its_value() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(internet(&[&bytes]), !0xddf2);
    }

    #[test]
    fn an_odd_end_is_filled_with_zero_and_a_message_with_its_sum_checks_to_zero() {
        assert_eq!(internet(&[&[0xab]]), internet(&[&[0xab, 0x00]]));
        let sum = internet(&[&[0x12, 0x34, 0x56, 0x78]]).to_be_bytes();
        assert_eq!(internet(&[&[0x12, 0x34, 0x56, 0x78], &sum]), 0);
    }
}
