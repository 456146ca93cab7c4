//! Signs what goes to peers and checks what comes from them, with the clock of the world.

use crate::core::auth::{Keys, Refused, Signer, Verifier};
use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

/// The keys of one file, for both directions.
#[derive(Debug)]
pub(super) struct SealKeys {
    sign: Keys,
    verify: Keys,
}

/// Signs and checks one kind of message of one virtual router.
#[derive(Debug)]
pub(super) struct Seal {
    signer: Signer,
    verifier: Verifier,
}

// === impl SealKeys ===

impl SealKeys {
    /// Reads the text of a key file.
    pub(super) fn parse(text: &str) -> Result<Self, crate::core::auth::KeyError> {
        Ok(Self { sign: Keys::parse(text)?, verify: Keys::parse(text)? })
    }
}

// === impl Seal ===

impl Seal {
    /// Goes on with these keys, and remembers what was heard before.
    pub(super) fn renew(seal: Option<Seal>, keys: Option<SealKeys>) -> Option<Seal> {
        let keys = keys?;
        Some(match seal {
            None => Seal { signer: Signer::new(keys.sign), verifier: Verifier::new(keys.verify) },
            Some(mut seal) => {
                seal.signer.set_keys(keys.sign);
                seal.verifier.set_keys(keys.verify);
                seal
            }
        })
    }

    pub(super) fn close(&mut self, message: &[u8], source: IpAddr) -> Vec<u8> {
        self.signer.sign(message, source, wall())
    }

    pub(super) fn open<'a>(&mut self, bytes: &'a [u8], source: IpAddr) -> Result<&'a [u8], Refused> {
        self.verifier.open(bytes, source, wall())
    }
}

/// Microseconds since 1970.
fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
