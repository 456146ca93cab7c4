//! Signature version 4, from the side that checks it. Pure.
//!
//! The caller's secret is known here, so that the signature is made again from what arrived, and compared.

use super::request::{Refusal, Service};
use aws_lc_rs::{constant_time, digest, hmac};
use std::collections::BTreeMap;

/// How far a request's time may be from ours, in seconds.
const SKEW: u64 = 300;
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A request as it arrived.
#[derive(Debug)]
pub(super) struct Arrived<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    /// Lower-case names.
    pub(super) headers: &'a BTreeMap<String, String>,
    pub(super) body: &'a [u8],
}

/// What the header `Authorization` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) key: String,
    pub(super) date: String,
    pub(super) region: String,
    pub(super) service: String,
    signed: Vec<String>,
    signature: String,
}

impl Signature {
    /// Reads the header.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(ALGORITHM)?.trim();
        let parts: BTreeMap<&str, &str> =
            rest.split(',').filter_map(|part| part.trim().split_once('=')).collect();
        let scope: Vec<&str> = parts.get("Credential")?.split('/').collect();
        let [key, date, region, service, "aws4_request"] = scope[..] else { return None };
        Some(Self {
            key: key.to_string(),
            date: date.to_string(),
            region: region.to_string(),
            service: service.to_string(),
            signed: parts.get("SignedHeaders")?.split(';').map(ToString::to_string).collect(),
            signature: (*parts.get("Signature")?).to_string(),
        })
    }

    /// Whether it is the signature of this request with this secret, made just now for this service.
    ///
    /// # Errors
    /// Says what is wrong, in the words of the service.
    pub(super) fn check(
        &self,
        request: &Arrived<'_>,
        secret: &str,
        service: Service,
        region: &str,
        now: u64,
    ) -> Result<(), Refusal> {
        let stamp = request.headers.get("x-amz-date").map_or("", String::as_str);
        let time =
            seconds(stamp).ok_or_else(|| mismatch(service, "Date must be in ISO-8601 'basic format'"))?;
        if !stamp.starts_with(&self.date) {
            return Err(mismatch(service, "Date in Credential scope does not match YYYYMMDD of X-Amz-Date"));
        }
        if time.abs_diff(now) > SKEW {
            let code = if service == Service::Ec2 { "RequestExpired" } else { "SignatureDoesNotMatch" };
            let status = if service == Service::Ec2 { 400 } else { 403 };
            let why = format!("Signature expired: {stamp} is too far from now");
            return Err(Refusal::new(code, why).with_status(status));
        }
        if self.region != region || self.service != service.name() {
            let why =
                format!("Credential should be scoped to a valid region and to service '{}'", service.name());
            return Err(mismatch(service, &why));
        }
        // A host that is not signed could be any host, and a body that is not the signed one any body.
        if !self.signed.iter().any(|name| name == "host") {
            return Err(mismatch(service, "'Host' must be a 'SignedHeader' in the AWS Authorization"));
        }
        let again = self.sign(request, secret, stamp);
        match constant_time::verify_slices_are_equal(again.as_bytes(), self.signature.as_bytes()) {
            Ok(()) => Ok(()),
            Err(_) => Err(mismatch(
                service,
                "The request signature we calculated does not match the signature you provided",
            )),
        }
    }

    fn sign(&self, request: &Arrived<'_>, secret: &str, stamp: &str) -> String {
        let canonical = self.canonical(request);
        let scope = format!("{}/{}/{}/aws4_request", self.date, self.region, self.service);
        let text = format!("{ALGORITHM}\n{stamp}\n{scope}\n{}", hash(canonical.as_bytes()));
        let mut key = format!("AWS4{secret}").into_bytes();
        for part in [self.date.as_str(), &self.region, &self.service, "aws4_request", &text] {
            let signing = hmac::Key::new(hmac::HMAC_SHA256, &key);
            key = hmac::sign(&signing, part.as_bytes()).as_ref().to_vec();
        }
        hex(&key)
    }

    fn canonical(&self, request: &Arrived<'_>) -> String {
        let mut query: Vec<&str> = request.query.split('&').filter(|pair| !pair.is_empty()).collect();
        query.sort_unstable();
        let squeeze = |value: &str| value.split_whitespace().collect::<Vec<_>>().join(" ");
        let value = |name: &String| request.headers.get(name).map(|v| squeeze(v)).unwrap_or_default();
        let headers: String = self.signed.iter().map(|name| format!("{name}:{}\n", value(name))).collect();
        format!(
            "{}\n{}\n{}\n{headers}\n{}\n{}",
            request.method,
            request.path,
            query.join("&"),
            self.signed.join(";"),
            hash(request.body)
        )
    }
}

/// The header of a request that is signed with these, for tests.
#[cfg(test)]
pub(super) fn sign_for_test(request: &Arrived<'_>, key: &str, secret: &str, scope: (&str, &str)) -> String {
    let stamp = request.headers["x-amz-date"].clone();
    let (region, service) = scope;
    let signed: Vec<String> = request.headers.keys().cloned().collect();
    let mut signature = Signature {
        key: key.to_string(),
        date: stamp[..8].to_string(),
        region: region.to_string(),
        service: service.to_string(),
        signed,
        signature: String::new(),
    };
    signature.signature = signature.sign(request, secret, &stamp);
    let Signature { date, signed, signature, .. } = signature;
    let signed = signed.join(";");
    format!(
        "{ALGORITHM} Credential={key}/{date}/{region}/{service}/aws4_request, SignedHeaders={signed}, Signature={signature}"
    )
}

fn mismatch(service: Service, why: &str) -> Refusal {
    match service {
        Service::Ec2 => {
            Refusal::new("AuthFailure", "AWS was not able to validate the provided access credentials")
                .with_status(401)
        }
        _ => Refusal::new("SignatureDoesNotMatch", why).with_status(403),
    }
}

fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Seconds since 1970 of `20261116T000000Z`.
fn seconds(stamp: &str) -> Option<u64> {
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", stamp).ok()?;
    let zoned = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    u64::try_from(zoned.timestamp().as_second()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example that the vendor's documentation of signing works through: its inputs and its result are facts.
    #[test]
    fn a_published_example_is_believed_and_every_change_to_it_is_not() {
        let headers = |host: &str| -> BTreeMap<String, String> {
            [
                ("host", host),
                ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
                ("x-amz-date", "20150830T123600Z"),
            ]
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .into()
        };
        let text = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
                    SignedHeaders=content-type;host;x-amz-date, \
                    Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7";
        let signature = Signature::parse(text).unwrap();
        assert_eq!(signature.key, "AKIDEXAMPLE");
        let right = headers("iam.amazonaws.com");
        let sign = |headers: &BTreeMap<String, String>, query: &str, secret: &str| {
            let request = Arrived { method: "GET", path: "/", query, headers, body: b"" };
            signature.sign(&request, secret, "20150830T123600Z")
        };
        let secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
        let query = "Action=ListUsers&Version=2010-05-08";
        assert_eq!(sign(&right, query, secret), signature.signature);
        assert_ne!(sign(&headers("iam.example.com"), query, secret), signature.signature);
        assert_ne!(sign(&right, "Action=ListRoles&Version=2010-05-08", secret), signature.signature);
        assert_ne!(sign(&right, query, "another"), signature.signature);
        assert!(Signature::parse("Bearer abc").is_none());
    }

    #[test]
    fn times_are_read() {
        assert_eq!(seconds("20150830T123600Z"), Some(1_440_938_160));
        assert_eq!(seconds("yesterday"), None);
    }
}
