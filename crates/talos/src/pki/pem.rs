//! PEM with the labels that Talos writes and, in 1.9, insists on.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

pub(super) const CERTIFICATE: &str = "CERTIFICATE";
/// SEC1.
pub(super) const EC: &str = "EC PRIVATE KEY";
/// PKCS#1.
pub(super) const RSA: &str = "RSA PRIVATE KEY";
/// PKCS#8, under a label of Talos' own.
pub(super) const ED25519: &str = "ED25519 PRIVATE KEY";
/// PKCS#8 under its usual label: Talos reads it from 1.10 on.
pub(super) const PKCS8: &str = "PRIVATE KEY";

/// A block of PEM text, which ends with a newline.
pub(super) fn encode(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

/// The first block: its label and its bytes. `None` when there is none, or when it is damaged.
pub(super) fn decode(text: &str) -> Option<(&str, Vec<u8>)> {
    let start = text.find("-----BEGIN ")? + "-----BEGIN ".len();
    let rest = &text[start..];
    let (label, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once(&format!("-----END {label}-----"))?;
    let body: String = body.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    STANDARD.decode(body).ok().map(|der| (label, der))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_both_ways() {
        for length in [0usize, 1, 47, 48, 49, 500] {
            let der = vec![0xab; length];
            let text = encode(EC, &der);
            assert!(text.ends_with("-----END EC PRIVATE KEY-----\n"));
            assert!(text.lines().all(|line| line.len() <= 64));
            assert_eq!(decode(&text), Some((EC, der)));
        }
    }

    #[test]
    fn damage_is_no_pem() {
        for bad in [
            "",
            "-----BEGIN X-----",
            "-----BEGIN X-----\n!!\n-----END X-----\n",
            "-----BEGIN X-----\nQUJD\n-----END Y-----\n",
        ] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
