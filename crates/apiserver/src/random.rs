//! Random names, from the operating system's generator.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};

/// Letters of generated names: no vowels, so that no words appear; no digits that look like letters.
const NAME_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// `N` random bytes. The system generator failing means that the kernel is broken; all-zero bytes would make colliding
/// uids, so the process stops there.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut out = [0u8; N];
    if SystemRandom::new().fill(&mut out).is_err() {
        tracing::error!("the operating system's random generator failed");
        std::process::abort();
    }
    out
}

/// A version 4 UUID.
pub(crate) fn uuid() -> String {
    let mut b = bytes::<16>();
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let mut out = String::with_capacity(36);
    for (i, byte) in b.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        out.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        out.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
    }
    out
}

/// The five letters behind a `generateName`.
pub(crate) fn name_suffix() -> String {
    bytes::<5>().iter().map(|b| NAME_LETTERS[*b as usize % NAME_LETTERS.len()] as char).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn uuids_have_their_version_and_differ() {
        let (a, b) = (super::uuid(), super::uuid());
        assert_ne!(a, b);
        assert_eq!((a.len(), &a[14..15], &a[8..9]), (36, "4", "-"));
    }
}
