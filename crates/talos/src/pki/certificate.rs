//! Certificates: making, signing, reading.

use super::key::{KeyAlgorithm, PrivateKey};
use super::{PkiError, der, pem, random};
use crate::secret::Secret;
use jiff::Timestamp;
use std::net::IpAddr;
use std::time::Duration;
use x509_parser::extensions::ParsedExtension;

/// A CA certificate and its key.
#[derive(Debug)]
pub struct Ca {
    certificate: Certificate,
    key: PrivateKey,
}

/// A certificate that was read, or made here.
#[derive(Clone)]
pub struct Certificate {
    pem: String,
    der: Vec<u8>,
    facts: Facts,
}

/// A certificate in PEM form with the key that belongs to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    pub cert_pem: String,
    pub key_pem: Secret,
}

/// What to put into a certificate that a CA signs.
#[derive(Debug, Clone)]
pub struct Leaf {
    pub common_name: Option<String>,
    /// In this order, each in a set of its own.
    pub organizations: Vec<String>,
    pub names: Vec<Name>,
    pub usage: Usage,
    /// RSA-style clients of Kubernetes expect `keyEncipherment` too.
    pub key_encipherment: bool,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// A subject alternative name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    Dns(String),
    Ip(IpAddr),
}

/// The extended key usage: exactly these, because apid compares the list for equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    Client,
    Server,
    ClientAndServer,
}

#[derive(Clone)]
struct Facts {
    is_ca: bool,
    not_before: i64,
    not_after: i64,
    /// DER, byte for byte.
    subject: Vec<u8>,
    public_key_info: Vec<u8>,
    key_id: Option<Vec<u8>>,
    organizations: Vec<String>,
}

const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const DIGITAL_SIGNATURE: u8 = 0b1000_0000;
const KEY_ENCIPHERMENT: u8 = 0b0010_0000;
const KEY_CERT_SIGN: u8 = 0b0000_0100;
const DER_TRUE: &[u8] = &[0x01, 0x01, 0xff];

/// What differs between certificates, encoded already.
struct Body<'a> {
    issuer: &'a [u8],
    subject: &'a [u8],
    not_before: Timestamp,
    not_after: Timestamp,
    public_key_info: &'a [u8],
    extensions: Vec<Vec<u8>>,
}

// === impl Ca ===

impl Ca {
    /// A new self-signed CA, as Talos makes them. Without an organization its name is empty (so is the front-proxy CA's).
    pub fn generate(
        algorithm: KeyAlgorithm,
        organization: Option<&str>,
        not_before: Timestamp,
        life: Duration,
    ) -> Result<Ca, PkiError> {
        let key = PrivateKey::generate(algorithm)?;
        let name = distinguished_name(None, organization.as_slice());
        let public_key_info = key.public_key_info()?;
        let body = Body {
            issuer: &name,
            subject: &name,
            not_before,
            not_after: not_before.checked_add(life).map_err(|_| PkiError::Time)?,
            extensions: vec![
                extension(KEY_USAGE, true, &der::flags(DIGITAL_SIGNATURE | KEY_CERT_SIGN)),
                extended_usage(Usage::ClientAndServer),
                extension(BASIC_CONSTRAINTS, true, &der::sequence(&[DER_TRUE])),
                extension(
                    SUBJECT_KEY_ID,
                    false,
                    &der::element(der::OCTET_STRING, &key_id(&public_key_info)?),
                ),
            ],
            public_key_info: &public_key_info,
        };
        let certificate = Certificate::from_der(body.sign(&key)?)?;
        Ok(Ca { certificate, key })
    }

    /// A CA that somebody made. Checks that certificate and key belong together; not whether it is a CA or still valid.
    pub fn from_pem(cert_pem: &str, key_pem: &str) -> Result<Ca, PkiError> {
        let certificate = Certificate::from_pem(cert_pem)?;
        let key = PrivateKey::from_pem(key_pem)?;
        if key.public_key_info()? != certificate.facts.public_key_info {
            return Err(PkiError::KeyMismatch);
        }
        Ok(Ca { certificate, key })
    }

    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    pub fn key(&self) -> &PrivateKey {
        &self.key
    }

    pub fn cert_pem(&self) -> &str {
        &self.certificate.pem
    }

    pub fn key_pem(&self) -> &Secret {
        self.key.pem()
    }

    /// A new key of that algorithm, and the certificate for it.
    pub fn issue(&self, algorithm: KeyAlgorithm, leaf: &Leaf) -> Result<Pair, PkiError> {
        let key = PrivateKey::generate(algorithm)?;
        let cert_pem = self.sign(&key.public_key_info()?, leaf)?;
        Ok(Pair { cert_pem, key_pem: key.pem().clone() })
    }

    /// The certificate (PEM) for somebody else's public key, a SubjectPublicKeyInfo in DER form.
    pub fn sign(&self, public_key_info: &[u8], leaf: &Leaf) -> Result<String, PkiError> {
        let mut key_usage = DIGITAL_SIGNATURE;
        if leaf.key_encipherment {
            key_usage |= KEY_ENCIPHERMENT;
        }
        let mut extensions =
            vec![extension(KEY_USAGE, true, &der::flags(key_usage)), extended_usage(leaf.usage)];
        let authority = match &self.certificate.facts.key_id {
            Some(id) => id.clone(),
            None => key_id(&self.certificate.facts.public_key_info)?,
        };
        extensions.push(extension(
            AUTHORITY_KEY_ID,
            false,
            &der::sequence(&[&der::element(0x80, &authority)]),
        ));
        let organizations: Vec<&str> = leaf.organizations.iter().map(String::as_str).collect();
        let nameless = leaf.common_name.is_none() && organizations.is_empty();
        if !leaf.names.is_empty() {
            // A certificate without a name is known by its alternative names alone, so they must be understood.
            extensions.push(extension(ALTERNATIVE_NAME, nameless, &alternative_names(&leaf.names)));
        }
        let body = Body {
            issuer: &self.certificate.facts.subject,
            subject: &distinguished_name(leaf.common_name.as_deref(), &organizations),
            not_before: leaf.not_before,
            not_after: leaf.not_after,
            public_key_info,
            extensions,
        };
        Ok(pem::encode(pem::CERTIFICATE, &body.sign(&self.key)?))
    }
}

// === impl Certificate ===

impl Certificate {
    pub fn from_pem(text: &str) -> Result<Certificate, PkiError> {
        let (label, der) = pem::decode(text).ok_or(PkiError::NotPem)?;
        if label != pem::CERTIFICATE {
            return Err(PkiError::CertificateLabel { label: label.to_owned() });
        }
        let facts = Facts::read(&der)?;
        Ok(Certificate { pem: text.to_owned(), der, facts })
    }

    pub fn from_der(der: Vec<u8>) -> Result<Certificate, PkiError> {
        let facts = Facts::read(&der)?;
        Ok(Certificate { pem: pem::encode(pem::CERTIFICATE, &der), der, facts })
    }

    pub fn pem(&self) -> &str {
        &self.pem
    }

    pub fn der(&self) -> &[u8] {
        &self.der
    }

    pub fn is_ca(&self) -> bool {
        self.facts.is_ca
    }

    pub fn not_before(&self) -> Timestamp {
        Timestamp::from_second(self.facts.not_before).unwrap_or(Timestamp::MIN)
    }

    pub fn not_after(&self) -> Timestamp {
        Timestamp::from_second(self.facts.not_after).unwrap_or(Timestamp::MAX)
    }

    /// The O values of its subject: the roles of a Talos client certificate.
    pub fn organizations(&self) -> &[String] {
        &self.facts.organizations
    }

    /// SubjectPublicKeyInfo, DER.
    pub fn public_key_info(&self) -> &[u8] {
        &self.facts.public_key_info
    }

    /// `None` for an algorithm that Talos does not use.
    pub fn algorithm(&self) -> Option<KeyAlgorithm> {
        KeyAlgorithm::of_public_key_info(&self.facts.public_key_info)
    }

    /// SHA-256 of the whole certificate, in hexadecimal.
    pub fn fingerprint(&self) -> String {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &self.der);
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Certificate")
            .field("fingerprint", &self.fingerprint())
            .field("is_ca", &self.facts.is_ca)
            .field("not_after", &self.not_after())
            .finish()
    }
}

impl Facts {
    fn read(der: &[u8]) -> Result<Facts, PkiError> {
        let (rest, parsed) =
            x509_parser::parse_x509_certificate(der).map_err(|_| PkiError::BrokenCertificate)?;
        if !rest.is_empty() {
            return Err(PkiError::BrokenCertificate);
        }
        let key_id = parsed.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        Ok(Facts {
            is_ca: parsed.is_ca(),
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            subject: parsed.subject().as_raw().to_vec(),
            public_key_info: parsed.public_key().raw.to_vec(),
            key_id,
            organizations: parsed
                .subject()
                .iter_organization()
                .filter_map(|name| name.as_str().ok().map(str::to_owned))
                .collect(),
        })
    }
}

// === impl Body ===

impl Body<'_> {
    /// The whole certificate, DER.
    fn sign(&self, key: &PrivateKey) -> Result<Vec<u8>, PkiError> {
        let algorithm = key.signature_algorithm();
        let mut serial = random::<16>()?;
        // A serial of zero is not allowed, and one that begins with zeros is only ugly.
        serial[0] |= 0x40;
        let to_be_signed = der::sequence(&[
            &der::element(0xa0, &der::element(der::INTEGER, &[2])),
            &der::positive(&serial),
            &algorithm,
            self.issuer,
            &der::sequence(&[&time(self.not_before)?, &time(self.not_after)?]),
            self.subject,
            self.public_key_info,
            &der::element(0xa3, &der::element(der::SEQUENCE, &self.extensions.concat())),
        ]);
        let signature = key.sign(&to_be_signed)?;
        Ok(der::sequence(&[&to_be_signed, &algorithm, &der::bits(&signature)]))
    }
}

fn extension(oid: &[u8], critical: bool, value: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { DER_TRUE } else { &[] };
    der::sequence(&[&der::element(der::OID, oid), critical, &der::element(der::OCTET_STRING, value)])
}

fn extended_usage(usage: Usage) -> Vec<u8> {
    let (server, client) = (der::element(der::OID, SERVER_AUTH), der::element(der::OID, CLIENT_AUTH));
    let value = match usage {
        Usage::Client => der::sequence(&[&client]),
        Usage::Server => der::sequence(&[&server]),
        Usage::ClientAndServer => der::sequence(&[&server, &client]),
    };
    extension(EXTENDED_KEY_USAGE, false, &value)
}

fn alternative_names(names: &[Name]) -> Vec<u8> {
    let names: Vec<u8> = names
        .iter()
        .flat_map(|name| match name {
            Name::Dns(name) => der::element(0x82, name.as_bytes()),
            Name::Ip(IpAddr::V4(address)) => der::element(0x87, &address.octets()),
            Name::Ip(IpAddr::V6(address)) => der::element(0x87, &address.octets()),
        })
        .collect();
    der::element(der::SEQUENCE, &names)
}

/// Organizations first, then the common name, as Go orders them.
fn distinguished_name(common_name: Option<&str>, organizations: &[&str]) -> Vec<u8> {
    let mut parts = Vec::new();
    if !organizations.is_empty() {
        // Go puts all organizations into one set, which DER wants sorted.
        let mut values: Vec<Vec<u8>> =
            organizations.iter().map(|name| attribute(ORGANIZATION, name)).collect();
        values.sort();
        parts.extend(der::element(der::SET, &values.concat()));
    }
    if let Some(name) = common_name {
        parts.extend(der::element(der::SET, &attribute(COMMON_NAME, name)));
    }
    der::element(der::SEQUENCE, &parts)
}

fn attribute(oid: &[u8], value: &str) -> Vec<u8> {
    let printable = |c: char| c.is_ascii_alphanumeric() || " '()+,-./:=?".contains(c);
    let tag = if value.chars().all(printable) { der::PRINTABLE_STRING } else { der::UTF8_STRING };
    der::sequence(&[&der::element(der::OID, oid), &der::element(tag, value.as_bytes())])
}

/// Two-digit years until 2049, as the standard says.
fn time(at: Timestamp) -> Result<Vec<u8>, PkiError> {
    let civil = at.to_zoned(jiff::tz::TimeZone::UTC).datetime();
    let year = civil.year();
    if !(1970..=9999).contains(&year) {
        return Err(PkiError::Time);
    }
    let rest = format!(
        "{:02}{:02}{:02}{:02}{:02}Z",
        civil.month(),
        civil.day(),
        civil.hour(),
        civil.minute(),
        civil.second()
    );
    Ok(if year < 2050 {
        der::element(der::UTC_TIME, format!("{:02}{rest}", year % 100).as_bytes())
    } else {
        der::element(der::GENERALIZED_TIME, format!("{year:04}{rest}").as_bytes())
    })
}

/// SHA-1 of the public key's bits: an identifier, not a protection.
fn key_id(public_key_info: &[u8]) -> Result<Vec<u8>, PkiError> {
    let bits = der::expect(der::SEQUENCE, public_key_info)
        .and_then(|(inside, _)| der::expect(der::SEQUENCE, inside))
        .and_then(|(_, rest)| der::expect(der::BIT_STRING, rest))
        .map(|(bits, _)| bits.get(1..).unwrap_or_default())
        .ok_or(PkiError::Encode)?;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, bits);
    Ok(digest.as_ref().to_vec())
}
