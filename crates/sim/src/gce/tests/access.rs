//! Tokens and permissions.

use super::*;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// A signed assertion, as a client makes it from a key file.
fn assertion(file: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&json!({"alg": "RS256", "typ": "JWT"})), part(claims));
    let pem: String =
        file["private_key"].as_str().unwrap().lines().filter(|line| !line.starts_with("-----")).collect();
    let pair = KeyPair::from_pkcs8(&STANDARD.decode(pem).unwrap()).unwrap();
    let mut signature = vec![0; pair.public_modulus_len()];
    pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn ask(bench: &mut Bench, form: &str) -> Answer {
    let call = Call::read("oauth2.googleapis.com", "POST", "/token", form.as_bytes());
    bench.state.handle(&call, bench.now, &|_, _, _| true)
}

fn by_jwt(assertion: &str) -> String {
    format!("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion={assertion}")
}

#[test]
fn a_key_file_gives_a_token_and_a_bad_assertion_does_not() {
    let site = GceSite::example();
    let mut bench = Bench::with(&site, 0.0);
    let file: Value = serde_json::from_str(site.service_account_key().unwrap()).unwrap();
    let now = NOON / 1000;
    let claims = json!({
        "iss": file["client_email"], "aud": file["token_uri"], "iat": now, "exp": now + 3600,
        "scope": "https://www.googleapis.com/auth/cloud-platform",
    });
    let given = ask(&mut bench, &by_jwt(&assertion(&file, &claims)));
    assert_eq!((given.status, given.body["token_type"].as_str()), (200, Some("Bearer")), "{}", given.body);
    let token = given.body["access_token"].as_str().unwrap().to_string();
    let mut call = Call::read("compute.googleapis.com", "GET", "/compute/v1/projects/rehearsal", b"");
    call.token = Some(token);
    assert_eq!(bench.state.handle(&call, NOON, &|_, _, _| true).status, 200);
    assert_eq!(bench.state.handle(&call, NOON + 3_600_001, &|_, _, _| true).status, 401, "it has ended");
    let bad = |change: &str, value: Value| {
        let mut claims = claims.clone();
        claims[change] = value;
        claims
    };
    for (claims, why) in [
        (bad("iss", json!("nobody@x")), "Invalid grant: account not found"),
        (bad("aud", json!("https://example.com")), "Invalid JWT: Failed audience check."),
        (bad("exp", json!(now + 7200)), "Invalid JWT: Token must be a short-lived token"),
        (bad("iat", json!(now + 3000)), "Invalid JWT: Token must be a short-lived token"),
    ] {
        let refused = ask(&mut bench, &by_jwt(&assertion(&file, &claims)));
        let said = refused.body["error_description"].as_str().unwrap();
        assert_eq!(
            (refused.status, refused.body["error"].as_str(), said.starts_with(why)),
            (400, Some("invalid_grant"), true),
            "{said}"
        );
    }
    let other: Value = serde_json::from_str(GceSite::example().service_account_key().unwrap()).unwrap();
    let forged = ask(&mut bench, &by_jwt(&assertion(&other, &claims)));
    assert_eq!(forged.body["error_description"], "Invalid JWT Signature.");
    bench.state.set_disabled(true);
    assert_eq!(ask(&mut bench, &by_jwt(&assertion(&file, &claims))).status, 400);
    assert!(!format!("{site:?}").contains("PRIVATE"), "keys stay out of logs");
}

#[test]
fn a_users_own_key_file_and_refresh_token_are_taken() {
    let own = GceSite::example().service_account_key().unwrap().to_string();
    let names = GceNames {
        project: "p".to_string(),
        region: "r".to_string(),
        key: Some(own.clone()),
        ..GceNames::default()
    };
    let site = GceSite::for_config(&names);
    assert_eq!((site.accounts[0].email.as_str(), site.service_account_key()), (EMAIL, Some(own.as_str())));
    assert!(!site.accounts[0].public_key.is_empty());
    let user =
        json!({"type": "authorized_user", "client_id": "x", "client_secret": "y", "refresh_token": "1//abc"})
            .to_string();
    let mut bench = Bench::with(&GceSite::for_config(&GceNames { key: Some(user), ..names }), 0.0);
    assert_eq!(ask(&mut bench, "grant_type=refresh_token&refresh_token=1%2F%2Fabc").status, 200);
    assert_eq!(
        ask(&mut bench, "grant_type=refresh_token&refresh_token=other").body["error"],
        "invalid_grant"
    );
    assert_eq!(ask(&mut bench, "grant_type=password").body["error"], "unsupported_grant_type");
}

#[test]
fn a_missing_permission_is_named_and_told_from_a_missing_login() {
    let mut bench = Bench::new();
    bench.state.set_lacking(&["compute.addresses.create", "compute.subnetworks.useExternalIp"]);
    let (status, reason, message) =
        bench.refused("POST", &format!("{REGION}/addresses"), json!({"name": "a"}));
    assert_eq!((status, reason.as_str()), (403, "forbidden"));
    assert!(
        message.starts_with("Required 'compute.addresses.create' permission for 'projects/rehearsal/"),
        "{message}"
    );
    let used = bench.refused("POST", &format!("zones/{ZONE}/instances"), instance(ZONE, "a"));
    assert!(used.2.contains("compute.subnetworks.useExternalIp"), "{}", used.2);
    let asked = json!({"permissions": ["compute.addresses.create", "compute.addresses.get"]}).to_string();
    for path in ["/v1/projects/rehearsal:testIamPermissions", "/v3/projects/rehearsal:testIamPermissions"] {
        let mut call = Call::read("cloudresourcemanager.googleapis.com", "POST", path, asked.as_bytes());
        call.token = Some(TOKEN.to_string());
        let held = bench.state.handle(&call, NOON, &|_, _, _| true);
        assert_eq!(held.body, json!({"permissions": ["compute.addresses.get"]}));
    }
    bench.state.expire_tokens();
    assert_eq!(bench.reason("GET", REGION, Value::Null), (401, "authError".to_string()));
}

#[test]
fn a_metadata_server_is_there_only_when_the_site_has_one() {
    let path = "/computeMetadata/v1/instance/service-accounts/default/token";
    let mut call = Call::read("169.254.169.254", "GET", path, b"");
    let mut bench = Bench::new();
    assert_eq!(bench.state.handle(&call, NOON, &|_, _, _| true).status, 404);
    let mut bench = Bench::with(&GceSite { metadata_server: true, ..site() }, 0.0);
    assert_eq!(bench.state.handle(&call, NOON, &|_, _, _| true).status, 403, "the header is missing");
    call.metadata_flavor = true;
    assert_eq!(bench.state.handle(&call, NOON, &|_, _, _| true).status, 200);
}
