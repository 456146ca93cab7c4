//! The string formats that Kubernetes checks. All others are remembered and published, but not enforced.
//!
//! The rules are those of the Go functions behind each format, including where they are lax.

use super::names;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Names are compared without dashes: `date-time` and `datetime` are the same.
const KNOWN: &[&str] = &[
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8slongname",
    "k8sshortname",
    "mac",
    "password",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

pub(crate) fn is_known(format: &str) -> bool {
    if format.contains('-') {
        KNOWN.contains(&format.replace('-', "").as_str())
    } else {
        KNOWN.contains(&format)
    }
}

/// Whether `text` is in `format`; `None` when the format is not checked.
pub(crate) fn check(format: &str, text: &str) -> Option<bool> {
    let plain;
    let name = if format.contains('-') {
        plain = format.replace('-', "");
        plain.as_str()
    } else {
        format
    };
    Some(match name {
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "byte" => is_base64(text),
        "cidr" => is_cidr(text),
        "creditcard" => is_credit_card(text),
        "date" => is_date(text),
        "datetime" => is_date_time(text),
        "duration" => is_duration(text),
        "email" => is_email(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        }
        "hostname" => is_hostname(text),
        "ipv4" => text.contains('.') && parse_ip(text).is_some(),
        "ipv6" => text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "isbn" => is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10(text),
        "isbn13" => is_isbn13(text),
        "k8slongname" => text.len() <= 253 && names::is_subdomain(text),
        "k8sshortname" => names::dns1123_label(text).is_empty(),
        "mac" => is_mac(text),
        "password" => true,
        "rgbcolor" => is_rgb(text),
        "ssn" => is_ssn(text),
        "uri" => is_uri(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        _ => return None,
    })
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/'))
}

/// An address; leading zeros in IPv4 are tolerated, as they always were.
fn parse_ip(text: &str) -> Option<IpAddr> {
    if text.contains(':') {
        return text.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    let parts: Vec<&str> = text.split('.').collect();
    let [a, b, c, d] = parts.as_slice() else { return None };
    let octet = |s: &str| {
        (!s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse::<u8>().ok()).flatten()
    };
    Some(IpAddr::V4(Ipv4Addr::new(octet(a)?, octet(b)?, octet(c)?, octet(d)?)))
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let Some(ip) = parse_ip(address) else { return false };
    let max = if ip.is_ipv4() { 32 } else { 128 };
    length.bytes().all(|b| b.is_ascii_digit()) && length.parse::<u8>().is_ok_and(|n| n <= max)
}

fn is_credit_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let number: String = digits.iter().map(u32::to_string).collect();
    let starts = |list: &[&str]| list.iter().any(|p| number.starts_with(p));
    let brand = match number.len() {
        13 => starts(&["4"]),
        14 => starts(&["300", "301", "302", "303", "304", "305", "36", "38"]),
        15 => starts(&["34", "37", "2131", "1800"]),
        16 => starts(&["4", "51", "52", "53", "54", "55", "6011", "65", "35"]),
        _ => false,
    };
    let luhn: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, d)| if i % 2 == 1 { (d * 2) / 10 + (d * 2) % 10 } else { *d })
        .sum();
    brand && luhn.is_multiple_of(10)
}

fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digits = |range: std::ops::Range<usize>| {
        text.get(range).is_some_and(|s| s.bytes().all(|b| b.is_ascii_digit()))
    };
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return false;
    }
    if !(digits(0..4) && digits(5..7) && digits(8..10)) {
        return false;
    }
    let number = |s: &str| s.parse::<i16>().unwrap_or_default();
    jiff::civil::Date::new(number(&text[..4]), number(&text[5..7]) as i8, number(&text[8..]) as i8).is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    is_date(date) && is_time(time)
}

/// `hh:mm:ss[.fraction](z|+hh:mm)`, in lower case.
fn is_time(time: &str) -> bool {
    let Some((clock, rest)) = time.split_at_checked(8) else { return false };
    let pair = |s: &str, max: u8| {
        s.len() == 2 && s.bytes().all(|b| b.is_ascii_digit()) && s.parse::<u8>().is_ok_and(|n| n <= max)
    };
    let parts: Vec<&str> = clock.split(':').collect();
    let [hour, minute, second] = parts.as_slice() else { return false };
    let rest = match rest.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if zone.len() == fraction.len() {
                return false;
            }
            zone
        }
        None => rest,
    };
    let zone = rest == "z"
        || rest
            .strip_prefix(['+', '-'])
            .and_then(|o| o.split_once(':'))
            .is_some_and(|(h, m)| pair(h, 99) && pair(m, 99));
    pair(hour, 23) && pair(minute, 59) && pair(second, 59) && zone
}

/// Go's durations (`1h30m`), and numbers with longer units (`3 days`).
fn is_duration(text: &str) -> bool {
    if is_go_duration(text) {
        return true;
    }
    let mut rest = text;
    let mut found = false;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let after = rest[at..].trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        let unit_len = after.find(|c: char| !(c.is_ascii_alphabetic() || c == 'µ')).unwrap_or(after.len());
        let unit = after[..unit_len].to_lowercase();
        found |= is_long_unit(&unit);
        rest = &after[unit_len..];
    }
    found
}

fn is_long_unit(unit: &str) -> bool {
    let exact = ["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"];
    let prefixes = ["nano", "micro", "milli", "sec", "min", "hour", "day", "week"];
    exact.contains(&unit) || prefixes.iter().any(|p| unit.starts_with(p))
}

fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let digits = &rest[..number];
        if !digits.bytes().any(|b| b.is_ascii_digit()) || digits.matches('.').count() > 1 {
            return false;
        }
        rest = &rest[number..];
        // Longer units first: `ms` is not `m`.
        let Some(unit) = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"].iter().find(|u| rest.starts_with(**u))
        else {
            return false;
        };
        rest = &rest[unit.len()..];
    }
    true
}

/// `a@b` or `Name <a@b>`.
fn is_email(text: &str) -> bool {
    let address = match text.trim().strip_suffix('>') {
        Some(open) => match open.rsplit_once('<') {
            Some((_, inner)) => inner,
            None => return false,
        },
        None => text.trim(),
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |b: u8| b.is_ascii_alphanumeric() || b >= 0x80 || b"!#$%&'*+-/=?^_`{|}~".contains(&b);
    let dot_atom = |s: &str| !s.is_empty() && s.split('.').all(|p| !p.is_empty() && p.bytes().all(atom));
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.starts_with('[') && domain.ends_with(']');
    (quoted || dot_atom(local)) && (literal || dot_atom(domain))
}

fn is_hostname(text: &str) -> bool {
    let symbol =
        |c: char| c.is_ascii_alphanumeric() || (!c.is_ascii() && (c.is_alphabetic() || !c.is_alphanumeric()));
    let labels: Vec<&str> = text.split('.').collect();
    if text.is_empty() || text.len() > 255 || labels.iter().any(|l| l.is_empty() || l.len() > 63) {
        return false;
    }
    if let [only] = labels.as_slice() {
        // A single label may hold one dash, as its second character.
        let mut chars = only.chars();
        let first = chars.next().is_some_and(symbol);
        let rest = chars.as_str();
        let rest = rest.strip_prefix('-').unwrap_or(rest);
        return first && rest.chars().all(symbol) || framed_label(only, symbol);
    }
    let (Some(top), rest) = (labels.last(), &labels[..labels.len() - 1]) else { return false };
    top.chars().count() >= 2
        && top.chars().all(char::is_alphabetic)
        && rest.iter().all(|label| framed_label(label, symbol))
}

fn framed_label(label: &str, symbol: impl Fn(char) -> bool) -> bool {
    label.starts_with(&symbol) && label.ends_with(&symbol) && label.chars().all(|c| symbol(c) || c == '-')
}

fn is_isbn10(text: &str) -> bool {
    let plain: Vec<char> = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    plain.len() == 10
        && plain
            .iter()
            .enumerate()
            .try_fold(0u32, |sum, (i, c)| {
                let digit = if i == 9 && *c == 'X' { Some(10) } else { c.to_digit(10) };
                digit.map(|d| sum + (i as u32 + 1) * d)
            })
            .is_some_and(|sum| sum % 11 == 0)
}

fn is_isbn13(text: &str) -> bool {
    let plain: Vec<char> = text.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    plain.len() == 13
        && plain
            .iter()
            .enumerate()
            .try_fold(0u32, |sum, (i, c)| c.to_digit(10).map(|d| sum + if i % 2 == 0 { d } else { 3 * d }))
            .is_some_and(|sum| sum % 10 == 0)
}

/// 6, 8 or 20 bytes, in the three usual spellings.
fn is_mac(text: &str) -> bool {
    let hex = |s: &str, len: usize| s.len() == len && s.bytes().all(|b| b.is_ascii_hexdigit());
    let spelled = |separator: char, len: usize, counts: [usize; 3]| {
        let parts: Vec<&str> = text.split(separator).collect();
        counts.contains(&parts.len()) && parts.iter().all(|p| hex(p, len))
    };
    spelled(':', 2, [6, 8, 20]) || spelled('-', 2, [6, 8, 20]) || spelled('.', 4, [3, 4, 10])
}

fn is_rgb(text: &str) -> bool {
    let Some(inner) = text.strip_prefix("rgb(").and_then(|t| t.strip_suffix(')')) else { return false };
    let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
    parts.len() == 3 && parts.iter().all(|p| p.parse::<u8>().is_ok())
}

fn is_ssn(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    digits == 9
        && matches!(
            shape.replace(' ', "-").as_str(),
            "999999999" | "999-99-9999" | "999-999999" | "99999-9999"
        )
}

/// A URI as it stands in a request line: absolute, or a path from the root.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    let scheme_end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')));
    let rest = match scheme_end {
        Some(at)
            if at > 0
                && text[at..].starts_with(':')
                && text.starts_with(|c: char| c.is_ascii_alphabetic()) =>
        {
            &text[at + 1..]
        }
        _ if text.starts_with('/') => text,
        _ => return text == "*",
    };
    valid_escapes(rest)
        && rest.strip_prefix("//").is_none_or(|r| valid_host(&r[..r.find(['/', '?']).unwrap_or(r.len())]))
}

fn valid_escapes(text: &str) -> bool {
    text.split('%')
        .skip(1)
        .all(|part| part.len() >= 2 && part.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit))
}

fn valid_host(authority: &str) -> bool {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if host.bytes().any(|b| matches!(b, b' ' | b'<' | b'>' | b'"' | b'\\' | b'^' | b'`' | b'{' | b'}' | b'|'))
    {
        return false;
    }
    let port = match host.rsplit_once(']') {
        Some((_, port)) => port.strip_prefix(':').unwrap_or(port),
        None => host.rsplit_once(':').map_or("", |(_, port)| port),
    };
    port.bytes().all(|b| b.is_ascii_digit())
}

/// 32 hexadecimal digits, with or without the dashes; the version digit and the variant where they are told.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut rest = text;
    for (index, len) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((part, after)) = rest.split_at_checked(len) else { return false };
        let first = part.chars().next().unwrap_or_default().to_ascii_lowercase();
        if !part.bytes().all(|b| b.is_ascii_hexdigit())
            || (index == 2 && version.is_some_and(|v| v != first))
            || (index == 3 && matches!(version, Some('4' | '5')) && !matches!(first, '8' | '9' | 'a' | 'b'))
        {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}
