//! Certificates and keys as Talos makes them, offline.
//!
//! - [`PrivateKey`]: three algorithms, with the PEM labels that Talos 1.9 insists on.
//! - [`Ca`]: a CA certificate with its key; makes and signs [`Leaf`] certificates.
//! - [`Certificate`]: what the rest of the crate asks of a certificate that it was given.
//!
//! Times are arguments: nothing here reads a clock.

mod certificate;
mod der;
mod key;
mod pem;

pub use certificate::{Ca, Certificate, Leaf, Name, Pair, Usage};
pub use key::{KeyAlgorithm, PrivateKey};

use std::time::Duration;

/// What Talos gives all its CAs: ten years.
pub const CA_LIFE: Duration = Duration::from_secs(87_600 * 3600);
/// What Talos gives client certificates: one year.
pub const CLIENT_LIFE: Duration = Duration::from_secs(8_760 * 3600);
/// Certificates begin this much in the past, for peers whose clock is behind.
pub const BACKDATE: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("cannot make a {what} key")]
    Generate { what: &'static str },
    #[error("not in PEM form")]
    NotPem,
    #[error("the PEM label {label:?} is not that of a private key that Talos reads")]
    KeyLabel { label: String },
    #[error("the PEM label {label:?} is not CERTIFICATE")]
    CertificateLabel { label: String },
    #[error("not a usable private key (PEM label {label:?})")]
    BrokenKey { label: String },
    #[error("not an X.509 certificate")]
    BrokenCertificate,
    #[error("the certificate does not belong to the key")]
    KeyMismatch,
    #[error("cannot encode a key")]
    Encode,
    #[error("cannot sign")]
    Sign,
    #[error("cannot draw random bytes")]
    Random,
    #[error("a certificate cannot begin or end before 1970 or after 9999")]
    Time,
}

/// Bytes from the system's random number generator.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], PkiError> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| PkiError::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
