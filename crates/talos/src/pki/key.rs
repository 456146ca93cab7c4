//! Private keys in the three forms that Talos writes: P-256 as SEC1, Ed25519 as PKCS#8 v1, RSA as PKCS#1.

use super::PkiError;
use super::{der, pem};
use crate::secret::Secret;
use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use std::fmt;

/// `1.3.101.112`
const ED25519_OID: &[u8] = &[0x2b, 0x65, 0x70];
/// `1.2.840.10045.2.1`
const EC_OID: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
/// `1.2.840.113549.1.1.1`
const RSA_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// `1.2.840.10045.4.3.2`
const ECDSA_SHA256_OID: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// `1.2.840.113549.1.1.11`
const RSA_SHA256_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyAlgorithm {
    P256,
    Ed25519,
    /// 4096 bits when made here; any size that aws-lc signs with when read.
    Rsa,
}

/// A private key.
pub struct PrivateKey {
    pair: Pair,
    pem: Secret,
}

enum Pair {
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl PrivateKey {
    pub fn generate(algorithm: KeyAlgorithm) -> Result<PrivateKey, PkiError> {
        let failed = |_| PkiError::Generate { what: algorithm.name() };
        let pair = match algorithm {
            KeyAlgorithm::P256 => {
                Pair::P256(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(failed)?)
            }
            KeyAlgorithm::Ed25519 => Pair::Ed25519(Ed25519KeyPair::generate().map_err(failed)?),
            KeyAlgorithm::Rsa => Pair::Rsa(RsaKeyPair::generate(KeySize::Rsa4096).map_err(failed)?),
        };
        let pem = Secret::new(pair.to_pem().ok_or(PkiError::Generate { what: algorithm.name() })?);
        Ok(PrivateKey { pair, pem })
    }

    /// Reads any of Talos' labels, and PKCS#8 under its usual one. The text is kept as it was given.
    pub fn from_pem(text: &str) -> Result<PrivateKey, PkiError> {
        let (label, der) = pem::decode(text).ok_or(PkiError::NotPem)?;
        let broken = || PkiError::BrokenKey { label: label.to_owned() };
        let pair = match label {
            pem::EC => Pair::p256_from_sec1(&der),
            pem::RSA => RsaKeyPair::from_der(&der).ok().map(Pair::Rsa),
            pem::ED25519 => Pair::ed25519(&der),
            pem::PKCS8 => Pair::ed25519(&der)
                .or_else(|| {
                    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der).ok().map(Pair::P256)
                })
                .or_else(|| RsaKeyPair::from_pkcs8(&der).ok().map(Pair::Rsa)),
            _ => return Err(PkiError::KeyLabel { label: label.to_owned() }),
        };
        Ok(PrivateKey { pair: pair.ok_or_else(broken)?, pem: Secret::new(text) })
    }

    pub fn algorithm(&self) -> KeyAlgorithm {
        match &self.pair {
            Pair::P256(_) => KeyAlgorithm::P256,
            Pair::Ed25519(_) => KeyAlgorithm::Ed25519,
            Pair::Rsa(_) => KeyAlgorithm::Rsa,
        }
    }

    /// Bits of an RSA modulus; 256 for the others.
    pub fn bits(&self) -> usize {
        match &self.pair {
            Pair::Rsa(pair) => pair.public_modulus_len() * 8,
            _ => 256,
        }
    }

    pub fn pem(&self) -> &Secret {
        &self.pem
    }

    /// PKCS#8 DER, for TLS libraries: they do not know Talos' label for Ed25519 keys.
    pub fn pkcs8_der(&self) -> Result<Vec<u8>, PkiError> {
        match &self.pair {
            Pair::P256(pair) => pair.to_pkcs8v1().ok().map(|document| document.as_ref().to_vec()),
            Pair::Ed25519(pair) => pair.to_pkcs8v1().ok().map(|document| document.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let der: Option<Pkcs8V1Der<'_>> = pair.as_der().ok();
                der.map(|der| der.as_ref().to_vec())
            }
        }
        .ok_or(PkiError::Encode)
    }

    /// SubjectPublicKeyInfo, DER.
    pub fn public_key_info(&self) -> Result<Vec<u8>, PkiError> {
        let der: Result<PublicKeyX509Der<'_>, _> = match &self.pair {
            Pair::P256(pair) => pair.public_key().as_der(),
            Pair::Ed25519(pair) => pair.public_key().as_der(),
            Pair::Rsa(pair) => pair.public_key().as_der(),
        };
        der.map(|der| der.as_ref().to_vec()).map_err(|_| PkiError::Encode)
    }

    /// The signature of a message, and the AlgorithmIdentifier that names how it was made.
    pub(super) fn signature_algorithm(&self) -> Vec<u8> {
        match self.algorithm() {
            KeyAlgorithm::P256 => der::sequence(&[&der::element(der::OID, ECDSA_SHA256_OID)]),
            KeyAlgorithm::Ed25519 => der::sequence(&[&der::element(der::OID, ED25519_OID)]),
            KeyAlgorithm::Rsa => {
                der::sequence(&[&der::element(der::OID, RSA_SHA256_OID), &der::element(der::NULL, &[])])
            }
        }
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, PkiError> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::P256(pair) => {
                pair.sign(&random, message).map(|s| s.as_ref().to_vec()).map_err(|_| PkiError::Sign)
            }
            Pair::Ed25519(pair) => {
                pair.try_sign(message).map(|s| s.as_ref().to_vec()).map_err(|_| PkiError::Sign)
            }
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map_err(|_| PkiError::Sign)?;
                Ok(signature)
            }
        }
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.algorithm().name())
    }
}

// === impl Pair ===

impl Pair {
    fn to_pem(&self) -> Option<String> {
        Some(match self {
            Pair::P256(pair) => {
                let key = pair.private_key();
                let der: EcPrivateKeyRfc5915Der<'_> = key.as_der().ok()?;
                pem::encode(pem::EC, &with_public_key(der.as_ref(), pair.public_key().as_ref())?)
            }
            // The 48 bytes that Go writes: version 1, without the public key.
            Pair::Ed25519(pair) => pem::encode(pem::ED25519, pair.to_pkcs8v1().ok()?.as_ref()),
            Pair::Rsa(pair) => {
                let der: Pkcs8V1Der<'_> = pair.as_der().ok()?;
                pem::encode(pem::RSA, pkcs8_content(der.as_ref())?)
            }
        })
    }

    fn p256_from_sec1(der: &[u8]) -> Option<Pair> {
        EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, der).ok().map(Pair::P256)
    }

    fn ed25519(der: &[u8]) -> Option<Pair> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(Pair::Ed25519)
    }
}

impl KeyAlgorithm {
    pub fn name(self) -> &'static str {
        match self {
            KeyAlgorithm::P256 => "P-256",
            KeyAlgorithm::Ed25519 => "Ed25519",
            KeyAlgorithm::Rsa => "RSA",
        }
    }

    /// What the key type of a SubjectPublicKeyInfo is.
    pub(super) fn of_public_key_info(info: &[u8]) -> Option<KeyAlgorithm> {
        let (info, _) = der::expect(der::SEQUENCE, info)?;
        let (algorithm, _) = der::expect(der::SEQUENCE, info)?;
        match der::expect(der::OID, algorithm)?.0 {
            ED25519_OID => Some(KeyAlgorithm::Ed25519),
            EC_OID => Some(KeyAlgorithm::P256),
            RSA_OID => Some(KeyAlgorithm::Rsa),
            _ => None,
        }
    }
}

/// The key inside a PKCS#8 wrapper.
fn pkcs8_content(der: &[u8]) -> Option<&[u8]> {
    let (inside, _) = der::expect(der::SEQUENCE, der)?;
    let (_, inside) = der::expect(der::INTEGER, inside)?;
    let (_, inside) = der::expect(der::SEQUENCE, inside)?;
    Some(der::expect(der::OCTET_STRING, inside)?.0)
}

/// The SEC1 form that Go writes has the curve and the public key in it, in this order.
fn with_public_key(sec1: &[u8], public: &[u8]) -> Option<Vec<u8>> {
    let (inside, _) = der::expect(der::SEQUENCE, sec1)?;
    let (_, after) = der::expect(der::INTEGER, inside)?;
    let (secret, _) = der::expect(der::OCTET_STRING, after)?;
    /// `1.2.840.10045.3.1.7`
    const CURVE: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    Some(der::sequence(&[
        &der::element(der::INTEGER, &[1]),
        &der::element(der::OCTET_STRING, secret),
        &der::element(0xa0, &der::element(der::OID, CURVE)),
        &der::element(0xa1, &der::bits(public)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_form_that_talos_writes() {
        for (algorithm, label, bytes) in [
            (KeyAlgorithm::P256, "EC PRIVATE KEY", Some(121)),
            (KeyAlgorithm::Ed25519, "ED25519 PRIVATE KEY", Some(48)),
        ] {
            let key = PrivateKey::generate(algorithm).unwrap();
            let (found, der) = pem::decode(key.pem().expose()).unwrap();
            assert_eq!(found, label);
            assert_eq!(Some(der.len()), bytes);
            let again = PrivateKey::from_pem(key.pem().expose()).unwrap();
            assert_eq!(again.algorithm(), algorithm);
            assert_eq!(again.public_key_info().unwrap(), key.public_key_info().unwrap());
            assert_eq!(KeyAlgorithm::of_public_key_info(&key.public_key_info().unwrap()), Some(algorithm));
        }
    }

    #[test]
    fn pkcs8_is_read_too() {
        for algorithm in [KeyAlgorithm::P256, KeyAlgorithm::Ed25519] {
            let key = PrivateKey::generate(algorithm).unwrap();
            let text = pem::encode(pem::PKCS8, &key.pkcs8_der().unwrap());
            let again = PrivateKey::from_pem(&text).unwrap();
            assert_eq!(again.public_key_info().unwrap(), key.public_key_info().unwrap());
        }
    }

    #[test]
    fn what_is_no_key_is_refused_without_showing_it() {
        let secret = pem::encode(pem::EC, b"not a key at all");
        let error = PrivateKey::from_pem(&secret).unwrap_err().to_string();
        assert!(error.contains("EC PRIVATE KEY") && !error.contains("bm90"), "{error}");
        assert!(matches!(PrivateKey::from_pem("hello"), Err(PkiError::NotPem)));
        let other = pem::encode("DSA PRIVATE KEY", b"x");
        assert!(
            matches!(PrivateKey::from_pem(&other), Err(PkiError::KeyLabel { label }) if label == "DSA PRIVATE KEY")
        );
        let key = PrivateKey::generate(KeyAlgorithm::Ed25519).unwrap();
        assert_eq!(format!("{key:?}"), "PrivateKey(Ed25519)");
    }
}
