//! Signature version 4: what makes a request to AWS the caller's own. Pure; the time is an argument.
//!
//! ```text
//!   request -> canonical request -> hash -> string to sign -> HMAC by a key of date, region and service -> header
//! ```

use aws_lc_rs::{digest, hmac};
use jiff::Timestamp;
use std::fmt;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A pair of keys, and the token that belongs to temporary ones.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

/// Everything of a request that is signed.
pub(crate) struct Signable<'a> {
    pub(crate) method: &'a str,
    /// Escaped already.
    pub(crate) path: &'a str,
    /// Escaped and sorted already.
    pub(crate) query: &'a str,
    /// With lower-case names.
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: &'a str,
}

/// Where a signature is good.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    pub(crate) region: &'a str,
    pub(crate) service: &'a str,
    pub(crate) at: Timestamp,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The headers to send beside those that are given: date, token and authorization.
pub(crate) fn sign(mut request: Signable<'_>, keys: &Keys, scope: Scope<'_>) -> Vec<(&'static str, String)> {
    let stamp = scope.at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let mut added = vec![("x-amz-date", stamp.clone())];
    if let Some(token) = &keys.token {
        added.push(("x-amz-security-token", token.clone()));
    }
    request.headers.extend(added.iter().cloned());
    request.headers.sort();
    let names: Vec<&str> = request.headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let day = &stamp[..8];
    let place = format!("{day}/{}/{}/aws4_request", scope.region, scope.service);
    let hash = hex(digest::digest(&digest::SHA256, canonical(&request, &names).as_bytes()).as_ref());
    let to_sign = format!("{ALGORITHM}\n{stamp}\n{place}\n{hash}");
    let mut key = hmac_of(format!("AWS4{}", keys.secret).as_bytes(), day);
    for part in [scope.region, scope.service, "aws4_request"] {
        key = hmac_of(&key, part);
    }
    let signature = hex(&hmac_of(&key, &to_sign));
    let authorization =
        format!("{ALGORITHM} Credential={}/{place}, SignedHeaders={names}, Signature={signature}", keys.id);
    added.push(("authorization", authorization));
    added
}

fn canonical(request: &Signable<'_>, names: &str) -> String {
    let mut text = format!("{}\n{}\n{}\n", request.method, request.path, request.query);
    for (name, value) in &request.headers {
        // Runs of spaces count as one.
        let value: Vec<&str> = value.split_whitespace().collect();
        text.push_str(&format!("{name}:{}\n", value.join(" ")));
    }
    let body = hex(digest::digest(&digest::SHA256, request.body.as_bytes()).as_ref());
    text.push_str(&format!("\n{names}\n{body}"));
    text
}

fn hmac_of(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// SHA-256 of a text, for names and tokens that have to be the same in every run.
pub(crate) fn sha256(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(token: Option<&str>) -> Keys {
        Keys {
            id: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
            token: token.map(str::to_owned),
        }
    }

    fn scope(service: &str) -> Scope<'_> {
        Scope { region: "us-east-1", service, at: "2015-08-30T12:36:00Z".parse().unwrap() }
    }

    fn signature(request: Signable<'_>, keys: &Keys, scope: Scope<'_>) -> String {
        let headers = sign(request, keys, scope);
        let (_, text) = headers.last().unwrap();
        text.rsplit_once("Signature=").unwrap().1.to_owned()
    }

    fn request<'a>(method: &'a str, headers: &[(&'static str, &str)], body: &'a str) -> Signable<'a> {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        Signable { method, path: "/", query: "", headers, body }
    }

    /// The published vectors: get-vanilla, post-vanilla, post-x-www-form-urlencoded, post-sts-header-before, and the example of
    /// the documentation.
    #[test]
    fn published_vectors_come_out() {
        let host = [("host", "example.amazonaws.com")];
        assert_eq!(
            signature(request("GET", &host, ""), &keys(None), scope("service")),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
        );
        assert_eq!(
            signature(request("POST", &host, ""), &keys(None), scope("service")),
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
        );
        let form = [("host", "example.amazonaws.com"), ("content-type", "application/x-www-form-urlencoded")];
        assert_eq!(
            signature(request("POST", &form, "Param1=value1"), &keys(None), scope("service")),
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"
        );
        let token = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
        assert_eq!(
            signature(request("POST", &host, ""), &keys(Some(token)), scope("service")),
            "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"
        );
        let list = Signable {
            query: "Action=ListUsers&Version=2010-05-08",
            ..request(
                "GET",
                &[
                    ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
                    ("host", "iam.amazonaws.com"),
                ],
                "",
            )
        };
        assert_eq!(
            signature(list, &keys(None), scope("iam")),
            "5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
        );
    }

    #[test]
    fn keys_do_not_show_their_secrets() {
        let shown = format!("{:?}", keys(Some("tttt")));
        assert!(
            shown.contains("AKIDEXAMPLE") && !shown.contains("wJalr") && !shown.contains("tttt"),
            "{shown}"
        );
    }

    #[test]
    fn every_part_of_a_request_counts() {
        let host = [("host", "example.amazonaws.com")];
        let all = [
            signature(request("GET", &host, ""), &keys(None), scope("ec2")),
            signature(request("GET", &host, "x"), &keys(None), scope("ec2")),
            signature(request("POST", &host, ""), &keys(None), scope("ec2")),
            signature(request("GET", &[("host", "other")], ""), &keys(None), scope("ec2")),
            signature(request("GET", &host, ""), &keys(None), scope("sts")),
            signature(request("GET", &host, ""), &keys(Some("t")), scope("ec2")),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[index + 1..].contains(one));
        }
    }
}
