//! Networks and address ranges.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{ValueError, text_value};

/// A network in CIDR notation. Host bits are kept as written ([`Cidr::has_host_bits`]) and count for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

/// The addresses from one to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressRange {
    start: IpAddr,
    end: IpAddr,
}

/// An address as (is it IPv6, its bits): addresses of different families compare, and never touch.
type Point = (bool, u128);

fn point(ip: IpAddr) -> Point {
    match ip {
        IpAddr::V4(ip) => (false, u128::from(ip.to_bits())),
        IpAddr::V6(ip) => (true, ip.to_bits()),
    }
}

fn address((v6, bits): Point) -> IpAddr {
    if v6 {
        IpAddr::V6(Ipv6Addr::from_bits(bits))
    } else {
        // The bits of an IPv4 point fit by construction; masking says so without a cast that could lose anything.
        IpAddr::V4(Ipv4Addr::from_bits((bits & u128::from(u32::MAX)) as u32))
    }
}

impl Cidr {
    /// The pattern that the CRDs carry for pod and service networks. It is loose: octets and prefix are checked by parsing.
    pub const PATTERN: &str = r"^([0-9]{1,3}\.){3}[0-9]{1,3}/[0-9]{1,2}$";

    /// Length of the network part in bits.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// The address as written, host bits and all: 10.40.0.11 of 10.40.0.11/24.
    pub fn written(&self) -> IpAddr {
        self.address
    }

    /// First address.
    pub fn network(&self) -> IpAddr {
        let (v6, bits) = point(self.address);
        address((v6, bits & !self.host_mask()))
    }

    /// Last address.
    pub fn last(&self) -> IpAddr {
        let (v6, bits) = point(self.address);
        address((v6, bits | self.host_mask()))
    }

    /// Whether it was written with bits beyond the prefix, as in `10.244.0.1/16`.
    pub fn has_host_bits(&self) -> bool {
        self.address != self.network()
    }

    /// All its addresses as a range.
    pub fn range(&self) -> AddressRange {
        AddressRange { start: self.network(), end: self.last() }
    }

    /// Whether an address lies in it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.range().contains(ip)
    }

    /// Whether it shares an address with another one.
    pub fn overlaps(&self, other: &Cidr) -> bool {
        self.range().overlaps(&other.range())
    }

    fn host_mask(&self) -> u128 {
        let width = if self.address.is_ipv6() { 128 } else { 32 };
        u128::MAX.checked_shr(128 - (width - u32::from(self.prefix))).unwrap_or(0)
    }
}

impl FromStr for Cidr {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |rule: String| ValueError::new("a CIDR", text, rule, "write it as 10.244.0.0/16");
        let (ip, prefix) = text.split_once('/').ok_or_else(|| wrong("it has no prefix length".to_owned()))?;
        let address: IpAddr = ip.parse().map_err(|_| wrong(address_slip(ip)))?;
        let max = if address.is_ipv6() { 128 } else { 32 };
        let digits = !prefix.is_empty() && prefix.len() <= 3 && prefix.bytes().all(|b| b.is_ascii_digit());
        match prefix.parse::<u8>() {
            Ok(prefix) if digits && prefix <= max => Ok(Cidr { address, prefix }),
            _ => Err(wrong(format!("the prefix length {prefix:?} is not a number from 0 to {max}"))),
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

text_value!(Cidr);

impl AddressRange {
    /// The range from `start` to `end`; refuses two families, and a start after the end.
    pub fn new(start: IpAddr, end: IpAddr) -> Result<AddressRange, ValueError> {
        let wrong = |rule: &str, remedy: &str| {
            Err(ValueError::new("an address range", &format!("{start}-{end}"), rule, remedy))
        };
        if start.is_ipv4() != end.is_ipv4() {
            return wrong("one end is IPv4 and the other is IPv6", "use two addresses of one family");
        }
        if point(start) > point(end) {
            return wrong("its start comes after its end", "swap start and end");
        }
        Ok(AddressRange { start, end })
    }

    /// First address.
    pub fn start(&self) -> IpAddr {
        self.start
    }

    /// Last address.
    pub fn end(&self) -> IpAddr {
        self.end
    }

    /// Whether an address lies in it.
    pub fn contains(&self, ip: IpAddr) -> bool {
        (point(self.start)..=point(self.end)).contains(&point(ip))
    }

    /// Whether it shares an address with another one.
    pub fn overlaps(&self, other: &AddressRange) -> bool {
        point(self.start) <= point(other.end) && point(other.start) <= point(self.end)
    }

    /// The address at a place, counted from 0; `None` behind the end.
    pub fn nth(&self, index: u128) -> Option<IpAddr> {
        let (v6, bits) = point(self.start);
        let found = bits.checked_add(index)?;
        (found <= point(self.end).1).then(|| address((v6, found)))
    }

    /// Number of addresses, as far as a `u128` counts (the whole of IPv6 is one more than that).
    pub fn count(&self) -> u128 {
        (point(self.end).1 - point(self.start).1).saturating_add(1)
    }
}

impl FromStr for AddressRange {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = |rule: String| {
            ValueError::new("an address range", text, rule, "write it as 10.40.0.210-10.40.0.250")
        };
        let (start, end) = text.split_once('-').ok_or_else(|| wrong("it has no dash".to_owned()))?;
        let parse = |part: &str| part.trim().parse::<IpAddr>().map_err(|_| wrong(address_slip(part.trim())));
        AddressRange::new(parse(start)?, parse(end)?)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

text_value!(AddressRange);

/// Why a text is not an address; names the octet when that is what is wrong.
pub(crate) fn address_slip(text: &str) -> String {
    for octet in text.split('.') {
        if let Ok(number) = octet.parse::<u64>() {
            if number > 255 {
                return format!("{octet} in {text:?} is above 255");
            }
            if octet.len() > 1 && octet.starts_with('0') {
                return format!("{octet} in {text:?} has a leading zero");
            }
        }
    }
    format!("{text:?} is not an IP address")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    proptest! {
        #[test]
        fn cidr_round_trip(bits: u32, prefix in 0u8..=32) {
            let text = format!("{}/{prefix}", Ipv4Addr::from_bits(bits));
            prop_assert_eq!(cidr(&text).to_string(), text);
        }

        #[test]
        fn cidr_holds_its_ends_and_not_their_neighbours(bits: u32, prefix in 1u8..=31) {
            let net = cidr(&format!("{}/{prefix}", Ipv4Addr::from_bits(bits)));
            prop_assert!(net.contains(net.network()) && net.contains(net.last()));
            let (IpAddr::V4(first), IpAddr::V4(last)) = (net.network(), net.last()) else { unreachable!() };
            prop_assert_eq!(u64::from(last.to_bits() - first.to_bits()) + 1, 1u64 << (32 - prefix));
            if let Some(before) = first.to_bits().checked_sub(1) {
                prop_assert!(!net.contains(Ipv4Addr::from_bits(before).into()));
            }
            if let Some(after) = last.to_bits().checked_add(1) {
                prop_assert!(!net.contains(Ipv4Addr::from_bits(after).into()));
            }
        }

        #[test]
        fn overlap_is_what_a_shared_address_is(a: u32, b: u32, p in 0u8..=32, q in 0u8..=32) {
            let (x, y) = (cidr(&format!("{}/{p}", Ipv4Addr::from_bits(a))), cidr(&format!("{}/{q}", Ipv4Addr::from_bits(b))));
            // Two networks overlap if and only if one holds the other's first address.
            prop_assert_eq!(x.overlaps(&y), x.contains(y.network()) || y.contains(x.network()));
            prop_assert_eq!(x.overlaps(&y), y.overlaps(&x));
        }

        #[test]
        fn range_round_trip(a: u128, b: u128) {
            let (low, high) = (a.min(b), a.max(b));
            let range = AddressRange::new(Ipv6Addr::from_bits(low).into(), Ipv6Addr::from_bits(high).into()).unwrap();
            prop_assert_eq!(range.to_string().parse::<AddressRange>().unwrap(), range);
        }

        #[test]
        fn parsers_never_panic(text in ".{0,40}") {
            let _ = text.parse::<Cidr>();
            let _ = text.parse::<AddressRange>();
        }
    }

    #[test]
    fn edges_of_the_mask() {
        assert_eq!(cidr("10.0.0.1/32").range().count(), 1);
        assert_eq!(cidr("0.0.0.0/0").last(), IpAddr::V4(Ipv4Addr::BROADCAST));
        assert_eq!(cidr("::/0").range().count(), u128::MAX);
        assert_eq!(cidr("fd00::/8").network(), "fd00::".parse::<IpAddr>().unwrap());
        assert!(cidr("10.244.0.1/16").has_host_bits() && !cidr("10.244.0.0/16").has_host_bits());
    }

    #[test]
    fn families_never_touch() {
        assert!(!cidr("::/0").contains("10.0.0.1".parse().unwrap()));
        assert!(!cidr("0.0.0.0/0").overlaps(&cidr("::/0")));
    }

    #[test]
    fn errors_name_the_slip() {
        for (text, hint) in [
            ("10.300.0.0/16", "300 in \"10.300.0.0\" is above 255"),
            ("10.244.0.0", "no prefix length"),
            ("10.244.0.0/33", "0 to 32"),
            ("10.244.0.0/+8", "0 to 32"),
            ("10.244.00.0/16", "leading zero"),
            ("x/16", "not an IP address"),
        ] {
            let error = text.parse::<Cidr>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
        let error = "10.0.0.9-10.0.0.1".parse::<AddressRange>().unwrap_err().to_string();
        assert!(error.contains("start comes after its end") && error.contains("swap"), "{error}");
        assert!("10.0.0.1-fd00::1".parse::<AddressRange>().is_err());
    }
}
