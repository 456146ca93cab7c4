//! Tags of balancers, target groups and listeners.

use super::balancers::no_balancer;
use super::target_groups::no_group;
use crate::aws::input::{list, show_tags, tags, texts};
use crate::aws::request::{Outcome, Refusal};
use crate::aws::state::{State, Tags};
use serde_json::{Value, json};

const MOST: usize = 50;
/// A describing call takes no more than this many names.
const MOST_NAMES: usize = 20;

/// # Errors
/// Says what is wrong with a set of tags.
pub(super) fn check(tags: &Tags) -> Result<(), Refusal> {
    if tags.len() > MOST {
        return Err(Refusal::new("TooManyTags", format!("More than {MOST} tags")));
    }
    match tags.keys().find(|key| key.is_empty() || key.starts_with("aws:")) {
        Some(key) => Err(Refusal::new("ValidationError", format!("Tag key '{key}' is not allowed"))),
        None => Ok(()),
    }
}

impl State {
    fn elb_tags(&mut self, arn: &str) -> Result<&mut Tags, Refusal> {
        if arn.contains(":loadbalancer/") {
            return self.balancers.get_mut(arn).map(|b| &mut b.tags).ok_or_else(|| no_balancer(arn));
        }
        if arn.contains(":targetgroup/") {
            return self.target_groups.get_mut(arn).map(|g| &mut g.tags).ok_or_else(|| no_group(arn));
        }
        self.listeners
            .get_mut(arn)
            .map(|listener| &mut listener.tags)
            .ok_or_else(|| Refusal::new("ListenerNotFound", format!("Listeners '[{arn}]' not found")))
    }

    pub(in crate::aws) fn add_elb_tags(&mut self, input: &Value) -> Outcome {
        let given = tags(list(input, "Tags"));
        for arn in texts(input, "ResourceArns") {
            let mut all = self.elb_tags(&arn)?.clone();
            all.extend(given.clone());
            check(&all)?;
            *self.elb_tags(&arn)? = all;
        }
        Ok(json!({}))
    }

    pub(in crate::aws) fn remove_elb_tags(&mut self, input: &Value) -> Outcome {
        let keys = texts(input, "TagKeys");
        for arn in texts(input, "ResourceArns") {
            self.elb_tags(&arn)?.retain(|key, _| !keys.contains(key));
        }
        Ok(json!({}))
    }

    pub(in crate::aws) fn describe_elb_tags(&mut self, input: &Value) -> Outcome {
        let arns = texts(input, "ResourceArns");
        if arns.len() > MOST_NAMES {
            let why = format!("Up to {MOST_NAMES} resources can be described in one call");
            return Err(Refusal::new("ValidationError", why));
        }
        let mut told = Vec::new();
        for arn in arns {
            let tags = show_tags(self.elb_tags(&arn)?);
            told.push(json!({ "ResourceArn": arn, "Tags": tags }));
        }
        Ok(json!({ "TagDescriptions": told }))
    }
}
