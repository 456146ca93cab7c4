//! Who calls, and what they may: OAuth tokens, and permissions by method.

use super::model::Request;
use super::request::{Answer, Call, Refusal};
use super::site::SiteAccount;
use super::state::{Fields, State};
use crate::gate::Pattern;
use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD as BASE64, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

/// Seconds that an access token is good for.
const LIFETIME: u64 = 3600;
/// Seconds that clocks may differ.
const SKEW: i64 = 300;
const JWT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const AUDIENCES: [&str; 2] =
    ["https://oauth2.googleapis.com/token", "https://www.googleapis.com/oauth2/v4/token"];
const SCOPES: [&str; 2] =
    ["https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/compute"];

impl State {
    /// `POST https://oauth2.googleapis.com/token`.
    pub(super) fn token(&mut self, call: &Call, now: u64) -> Answer {
        let form = call.form();
        let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        let account = match field("grant_type") {
            JWT => self.by_assertion(field("assertion"), now),
            "refresh_token" => {
                let known = |account: &&SiteAccount| {
                    account.refresh_token.as_ref().is_some_and(|token| token.is(field("refresh_token")))
                        && !account.disabled
                };
                let found = self.accounts.iter().find(known).map(|account| account.email.clone());
                found.ok_or_else(|| invalid_grant("Token has been expired or revoked."))
            }
            _ => Err(Answer::oauth(400, "unsupported_grant_type", "Invalid grant_type")),
        };
        match account {
            Ok(email) => self.give_token(&email, now),
            Err(answer) => answer,
        }
    }

    fn give_token(&mut self, email: &str, now: u64) -> Answer {
        let token = format!("ya29.c.{:016x}{:016x}", self.draw(), self.draw());
        self.tokens.insert(token.clone(), (email.to_string(), now + LIFETIME * 1000));
        Answer {
            status: 200,
            body: json!({ "access_token": token, "expires_in": LIFETIME - 1, "token_type": "Bearer" }),
        }
    }

    /// The account that signed an assertion.
    fn by_assertion(&self, assertion: &str, now: u64) -> Result<String, Answer> {
        let malformed = || invalid_grant("Bad Request");
        let (signed, signature) = assertion.rsplit_once('.').ok_or_else(malformed)?;
        let (header, claims) = signed.split_once('.').ok_or_else(malformed)?;
        let part = |text: &str| -> Option<Value> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()
        };
        let (header, claims) = (part(header).ok_or_else(malformed)?, part(claims).ok_or_else(malformed)?);
        if header["alg"] != "RS256" {
            return Err(invalid_grant("Invalid JWT: alg must be RS256."));
        }
        let email = claims["iss"].as_str().unwrap_or_default();
        let account = self.accounts.iter().find(|account| account.email == email && !account.disabled);
        let account = account.ok_or_else(|| invalid_grant("Invalid grant: account not found"))?;
        let key = BASE64.decode(&account.public_key).unwrap_or_default();
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| malformed())?;
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| invalid_grant("Invalid JWT Signature."))?;
        check_claims(&claims, now)?;
        Ok(account.email.clone())
    }

    /// The metadata server of a machine: plain HTTP, and no credentials.
    pub(super) fn metadata(&mut self, call: &Call, now: u64) -> Answer {
        let plain = |status, text: &str| Answer { status, body: Value::String(text.to_string()) };
        if !self.metadata_server {
            return plain(404, "there is no metadata server here");
        }
        if !call.metadata_flavor {
            return plain(403, "Missing required header \"Metadata-Flavor\": \"Google\"");
        }
        let Some(email) = self.accounts.first().map(|account| account.email.clone()) else {
            return plain(404, "no service account");
        };
        match call.path.as_str() {
            "/" | "/computeMetadata/v1/" => plain(200, "instance/\nproject/\n"),
            "/computeMetadata/v1/instance/service-accounts/default/token" => self.give_token(&email, now),
            "/computeMetadata/v1/instance/service-accounts/default/email" => plain(200, &email),
            "/computeMetadata/v1/project/project-id" => plain(200, &self.project),
            _ => plain(404, "Not Found"),
        }
    }

    /// The account that a call is made by.
    pub(super) fn caller(&self, call: &Call, now: u64) -> Result<&SiteAccount, Refusal> {
        let token = call.token.as_deref().ok_or_else(Refusal::unauthenticated)?;
        let (email, until) = self.tokens.get(token).ok_or_else(Refusal::unauthenticated)?;
        if *until <= now {
            return Err(Refusal::unauthenticated());
        }
        let account = self.accounts.iter().find(|account| account.email == *email && !account.disabled);
        account.ok_or_else(Refusal::unauthenticated)
    }

    /// `projects.testIamPermissions`.
    pub(super) fn test_permissions(&self, account: &SiteAccount, body: &Fields) -> Value {
        let asked = body.get("permissions").and_then(Value::as_array).cloned().unwrap_or_default();
        let held: Vec<Value> =
            asked.into_iter().filter(|one| one.as_str().is_some_and(|one| account.may(one))).collect();
        // An empty list is left out, as everywhere in Google's JSON.
        if held.is_empty() { json!({}) } else { json!({ "permissions": held }) }
    }
}

impl SiteAccount {
    /// Whether it has a permission.
    pub(super) fn may(&self, permission: &str) -> bool {
        let fits = |patterns: &[String]| patterns.iter().any(|p| Pattern::from(p.as_str()).fits(permission));
        fits(&self.permissions) && !fits(&self.lacks)
    }

    /// Refuses a call for which a permission is missing.
    pub(super) fn check(&self, request: &Request, body: &Fields, on: &str) -> Result<(), Refusal> {
        let mut needed = vec![permission(request)];
        needed.extend(further(request, body));
        match needed.into_iter().find(|permission| !self.may(permission)) {
            Some(missing) => Err(Refusal::forbidden(&missing, on)),
            None => Ok(()),
        }
    }
}

fn invalid_grant(description: &str) -> Answer {
    Answer::oauth(400, "invalid_grant", description)
}

fn check_claims(claims: &Value, now: u64) -> Result<(), Answer> {
    let now = i64::try_from(now / 1000).unwrap_or(i64::MAX);
    let (issued, expires) =
        (claims["iat"].as_i64().unwrap_or_default(), claims["exp"].as_i64().unwrap_or_default());
    if expires - issued > 3600 || issued > now + SKEW || expires < now - SKEW || expires <= issued {
        return Err(invalid_grant(
            "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. Check your iat and exp values in the JWT claim.",
        ));
    }
    if !claims["aud"].as_str().is_some_and(|audience| AUDIENCES.contains(&audience)) {
        return Err(invalid_grant("Invalid JWT: Failed audience check."));
    }
    let scopes = claims["scope"].as_str().unwrap_or_default();
    if !scopes.split(' ').any(|scope| SCOPES.contains(&scope)) {
        return Err(Answer::oauth(
            400,
            "invalid_scope",
            "Invalid OAuth scope or ID token audience provided.",
        ));
    }
    Ok(())
}

/// The permission that a method needs.
fn permission(request: &Request) -> String {
    let (collection, verb) = (request.collection(), request.verb());
    if !request.is_compute() {
        return "resourcemanager.projects.get".to_string();
    }
    let verb = match (collection, verb) {
        (_, "insert") => "create",
        (_, "aggregatedList") | ("instanceGroups", "listInstances") => "list",
        ("instanceGroups", "addInstances" | "removeInstances") | (_, "patch" | "update") => "update",
        (_, "getHealth" | "wait") => "get",
        (_, other) => other,
    };
    format!("compute.{collection}.{verb}")
}

/// Permissions to use what the new resource refers to.
fn further(request: &Request, body: &Fields) -> Vec<String> {
    let has = |field: &str| body.get(field).is_some_and(|value| !value.is_null());
    let mut more: Vec<&str> = Vec::new();
    match (request.collection(), request.verb()) {
        ("instances", "insert") => {
            more.extend(["compute.disks.create", "compute.subnetworks.use"]);
            let external =
                body.get("networkInterfaces").is_some_and(|all| all.to_string().contains("accessConfigs"));
            let project = request.path.get("project").map(String::as_str).unwrap_or_default();
            let image = format!("projects/{project}/global/images/");
            let own_image = body.get("disks").is_some_and(|disks| disks.to_string().contains(&image));
            let optional = [
                (own_image, "compute.images.useReadOnly"),
                (has("labels"), "compute.instances.setLabels"),
                (has("metadata"), "compute.instances.setMetadata"),
                (has("tags"), "compute.instances.setTags"),
                (has("serviceAccounts"), "iam.serviceAccounts.actAs"),
                (external, "compute.subnetworks.useExternalIp"),
            ];
            more.extend(optional.into_iter().filter(|(needed, _)| *needed).map(|(_, permission)| permission));
        }
        ("forwardingRules", "insert") => {
            let internal = body.get("loadBalancingScheme").and_then(Value::as_str) == Some("INTERNAL");
            let optional = [
                (has("IPAddress") && !internal, "compute.addresses.use"),
                (has("IPAddress") && internal, "compute.addresses.useInternal"),
                (internal, "compute.networks.use"),
                (has("backendService"), "compute.regionBackendServices.use"),
                (has("target"), "compute.targetPools.use"),
            ];
            more.extend(optional.into_iter().filter(|(needed, _)| *needed).map(|(_, permission)| permission));
        }
        ("regionBackendServices", "insert" | "patch" | "update") => {
            let optional = [
                (has("backends"), "compute.instanceGroups.use"),
                (has("healthChecks"), "compute.regionHealthChecks.useReadOnly"),
            ];
            more.extend(optional.into_iter().filter(|(needed, _)| *needed).map(|(_, permission)| permission));
        }
        ("addresses", "insert") if body.get("addressType").and_then(Value::as_str) == Some("INTERNAL") => {
            more.extend(["compute.addresses.createInternal", "compute.subnetworks.use"]);
        }
        ("instanceGroups", "addInstances") | ("targetPools", "addInstance") => {
            more.push("compute.instances.use")
        }
        ("firewalls", "insert" | "patch" | "update" | "delete") => more.push("compute.networks.updatePolicy"),
        _ => {}
    }
    more.into_iter().map(ToString::to_string).collect()
}
