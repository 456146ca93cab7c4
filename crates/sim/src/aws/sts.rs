//! Who am I, and who else may I be.

use super::input::{number, text, time};
use super::request::{Outcome, Refusal, Service};
use super::route::Context;
use super::site::AwsSecret;
use super::state::{Key, State};
use serde_json::{Value, json};

/// Seconds that temporary keys are good for, when nobody says how long.
const HOUR: u64 = 3600;

impl State {
    pub(super) fn route_sts(&mut self, action: &str, input: &Value, context: &Context<'_>) -> Outcome {
        match action {
            "GetCallerIdentity" => Ok(json!({
                "UserId": "AIDASIMULATEDEXAMPLE", "Account": self.account, "Arn": context.caller,
            })),
            "AssumeRole" => self.assume_role(input, context),
            other => Err(Service::Sts.not_simulated(other)),
        }
    }

    fn assume_role(&mut self, input: &Value, context: &Context<'_>) -> Outcome {
        let arn = text(input, "RoleArn").unwrap_or_default();
        let session = text(input, "RoleSessionName").unwrap_or_default();
        let trusted = match self.roles.get(arn) {
            Some(None) => true,
            Some(Some(external)) => text(input, "ExternalId") == Some(external),
            None => false,
        };
        if !trusted {
            // The same words for a role that is not there and for one that does not trust the caller.
            let why = format!(
                "User: {} is not authorized to perform: sts:AssumeRole on resource: {arn}",
                context.caller
            );
            return Err(Refusal::new("AccessDenied", why).with_status(403));
        }
        let id = format!("ASIA{:016X}", self.draw());
        let (secret, token) = (format!("{:032x}", self.draw()), format!("{:048x}", self.draw()));
        let length: u64 = number(input, "DurationSeconds").unwrap_or(HOUR);
        let expires = context.now / 1000 + length;
        let role = arn.rsplit('/').next().unwrap_or_default();
        let assumed = format!("arn:aws:sts::{}:assumed-role/{role}/{session}", self.account);
        let key = Key {
            secret: AwsSecret::new(secret.clone()),
            token: Some(AwsSecret::new(token.clone())),
            expires: Some(expires),
            arn: assumed.clone(),
        };
        self.keys.insert(id.clone(), key);
        Ok(json!({
            "Credentials": {
                "AccessKeyId": id, "SecretAccessKey": secret, "SessionToken": token,
                "Expiration": time(expires * 1000),
            },
            "AssumedRoleUser": { "AssumedRoleId": format!("AROASIMULATED:{session}"), "Arn": assumed },
        }))
    }
}
