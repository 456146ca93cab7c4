//! How far what is shown is behind what there is, beyond the short time that instances and load balancers take to be seen anyway.
//!
//! ```text
//!   made --lag--> listed --lag--> its tags are seen --lag--> the other service knows it
//! ```
//!
//! Nothing of this is so unless a lag is set: then a thing is met without its tags, and a security group that EC2 shows is not
//! known to the load balancers.

use super::input::{list, text, texts};
use super::request::{Outcome, Refusal};
use super::state::State;
use serde_json::Value;

impl State {
    /// From now on what is made is seen so many milliseconds later, its tags after as long again, and by other services still later.
    pub fn set_lag(&mut self, millis: u64) {
        self.lag = millis;
    }

    /// Whether something has been there for so many lags.
    fn is_old(&self, id: &str, lags: u64, now: u64) -> bool {
        self.born.get(id).is_none_or(|born| born + lags * self.lag <= now)
    }

    /// # Errors
    /// Refuses a call that names a security group of which EC2 alone knows.
    pub(super) fn check_known(&self, action: &str, input: &Value, now: u64) -> Result<(), Refusal> {
        if !matches!(action, "CreateLoadBalancer" | "SetSecurityGroups") {
            return Ok(());
        }
        match texts(input, "SecurityGroups").iter().find(|id| !self.is_old(id, 3, now)) {
            Some(id) => {
                let why = format!("One or more security groups are invalid: {id}");
                Err(Refusal::new("InvalidSecurityGroup", why))
            }
            None => Ok(()),
        }
    }

    /// What is seen of an answer now; and what was made is remembered.
    pub(super) fn as_seen(&mut self, action: &str, input: &Value, outcome: Outcome, now: u64) -> Outcome {
        let mut answer = outcome?;
        if self.lag == 0 {
            return Ok(answer);
        }
        let first = |key: &str, id: &str| list(&answer, key).first().and_then(|one| text(one, id));
        let made = match action {
            "RunInstances" => first("Instances", "InstanceId"),
            "CreateSecurityGroup" => text(&answer, "GroupId"),
            "CreateTargetGroup" => first("TargetGroups", "TargetGroupArn"),
            "CreateLoadBalancer" => first("LoadBalancers", "LoadBalancerArn"),
            _ => None,
        };
        if let Some(id) = made.map(ToString::to_string) {
            self.born.entry(id).or_insert(now);
        }
        let by_tag = list(input, "Filters")
            .iter()
            .any(|filter| text(filter, "Name").is_some_and(|name| name.starts_with("tag")));
        let (all, key, lags) = match action {
            "DescribeSecurityGroups" => ("SecurityGroups", "GroupId", if by_tag { 2 } else { 1 }),
            "DescribeInstances" => ("Reservations", "InstanceId", 1),
            "DescribeTargetGroups" => ("TargetGroups", "TargetGroupArn", 1),
            "DescribeLoadBalancers" => ("LoadBalancers", "LoadBalancerArn", 1),
            "DescribeTags" => ("TagDescriptions", "ResourceArn", 2),
            _ => return Ok(answer),
        };
        if let Some(Value::Array(shown)) = answer.get_mut(all) {
            // An instance is told inside of its reservation.
            let id = |one: &Value| {
                text(list(one, "Instances").first().unwrap_or(one), key).map(ToString::to_string)
            };
            shown.retain(|one| id(one).is_none_or(|id| self.is_old(&id, lags, now)));
            for one in shown {
                let bare = text(one, key).is_some_and(|id| !self.is_old(id, 2, now));
                if bare && one.get("Tags").is_some() {
                    one["Tags"] = Value::Array(Vec::new());
                }
            }
        }
        Ok(answer)
    }
}
