//! Random numbers that come out the same for the same seed.

/// SplitMix64: small, good enough for ids and jitter, never for keys.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In 0..1.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit a double")]
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A random (version 4) UUID.
    pub(crate) fn uuid(&mut self) -> String {
        let high = (self.next() & 0xffff_ffff_ffff_0fff) | 0x4000;
        let low = (self.next() & 0x3fff_ffff_ffff_ffff) | 0x8000_0000_0000_0000;
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }

    /// Twenty letters that look like the ids of Talos' events.
    pub(crate) fn event_id(&mut self) -> String {
        const LETTERS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
        (0..20).map(|_| char::from(LETTERS[(self.next() % 32) as usize])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_one_does_not() {
        let draw = |seed| Random::new(seed).uuid();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let uuid = draw(3);
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
    }
}
