//! As much DER as a certificate needs, both ways.
//!
//! Written by hand because a certificate must carry its issuer's name byte for byte as the CA has it (Talos' CAs use
//! PrintableString, and one has no name at all), which certificate builders re-encode in their own way.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const NULL: u8 = 0x05;
pub(super) const OID: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const PRINTABLE_STRING: u8 = 0x13;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// One element.
pub(super) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 6);
    out.push(tag);
    let length = content.len();
    if length < 0x80 {
        out.push(length as u8);
    } else {
        let bytes: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
        out.push(0x80 | bytes.len() as u8);
        out.extend(bytes);
    }
    out.extend_from_slice(content);
    out
}

/// A sequence of parts that are encoded already.
pub(super) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    element(SEQUENCE, &parts.concat())
}

/// A positive integer from its big-endian bytes.
pub(super) fn positive(bytes: &[u8]) -> Vec<u8> {
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len().saturating_sub(1));
    let mut content = bytes[first.min(bytes.len())..].to_vec();
    if content.first().is_none_or(|byte| *byte >= 0x80) {
        content.insert(0, 0);
    }
    element(INTEGER, &content)
}

/// A string of whole bytes.
pub(super) fn bits(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes].concat())
}

/// Flags, the first in the highest bit, without trailing zero bits, as DER wants named bits.
pub(super) fn flags(byte: u8) -> Vec<u8> {
    let unused = (byte.trailing_zeros() as u8).min(8);
    if byte == 0 { element(BIT_STRING, &[0]) } else { element(BIT_STRING, &[unused, byte]) }
}

/// The element at the beginning of `input`: its tag, its content, and what is after it.
pub(super) fn take(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = input.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        // More than four bytes of length is no key.
        if count == 0 || count > 4 || rest.len() < count {
            return None;
        }
        let (bytes, rest) = rest.split_at(count);
        (bytes.iter().fold(0usize, |sum, byte| (sum << 8) | usize::from(*byte)), rest)
    };
    (rest.len() >= length).then(|| (tag, &rest[..length], &rest[length..]))
}

/// The content of an element of that tag, and what is after it.
pub(super) fn expect(tag: u8, input: &[u8]) -> Option<(&[u8], &[u8])> {
    take(input).filter(|(found, _, _)| *found == tag).map(|(_, content, rest)| (content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_go_both_ways() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 70_000] {
            let content = vec![7u8; length];
            let encoded = [element(OCTET_STRING, &content), vec![9]].concat();
            assert_eq!(take(&encoded), Some((OCTET_STRING, content.as_slice(), [9u8].as_slice())));
            assert_eq!(expect(SEQUENCE, &encoded), None);
        }
        for bad in [&[][..], &[4], &[4, 2, 1], &[4, 0x80], &[4, 0x85, 0, 0, 0, 0, 0], &[4, 0x82, 1]] {
            assert_eq!(take(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn integers_stay_positive_and_short() {
        assert_eq!(positive(&[0, 0, 1]), [2, 1, 1]);
        assert_eq!(positive(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(positive(&[0]), [2, 1, 0]);
        assert_eq!(positive(&[]), [2, 1, 0]);
    }

    #[test]
    fn named_bits_have_no_trailing_zeros() {
        assert_eq!(flags(0b1000_0100), [3, 2, 2, 0b1000_0100]);
        assert_eq!(flags(0b1010_0000), [3, 2, 5, 0b1010_0000]);
        assert_eq!(flags(0), [3, 1, 0]);
    }
}
