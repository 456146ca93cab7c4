//! Tags of resources of the compute cloud.

use crate::aws::input::{Filters, list, paged, tags, text, texts};
use crate::aws::request::{Outcome, Refusal};
use crate::aws::state::{State, Tags};
use serde_json::{Value, json};

const MOST: usize = 50;

/// # Errors
/// Says what is wrong with a set of tags.
pub(in crate::aws) fn check(tags: &Tags) -> Result<(), Refusal> {
    if tags.len() > MOST {
        return Err(Refusal::new("TagLimitExceeded", format!("More than {MOST} tags specified")));
    }
    for (key, value) in tags {
        if key.is_empty() || key.chars().count() > 127 || key.starts_with("aws:") {
            return Err(Refusal::new("InvalidParameterValue", format!("Tag key '{key}' is not allowed")));
        }
        if value.chars().count() > 255 {
            return Err(Refusal::new(
                "InvalidParameterValue",
                format!("The value of tag '{key}' is too long"),
            ));
        }
    }
    Ok(())
}

impl State {
    fn tags_of(&mut self, id: &str) -> Result<&mut Tags, Refusal> {
        let code = match id.split('-').next() {
            Some("i") => "InvalidInstanceID.NotFound",
            Some("vol") => "InvalidVolume.NotFound",
            Some("sg") => "InvalidGroup.NotFound",
            Some("subnet") => "InvalidSubnetID.NotFound",
            Some("vpc") => "InvalidVpcID.NotFound",
            Some("ami") => "InvalidAMIID.NotFound",
            _ => "InvalidID",
        };
        let found = if let Some(instance) = self.instances.get_mut(id) {
            Some(&mut instance.tags)
        } else if let Some(volume) = self.volumes.get_mut(id) {
            Some(&mut volume.tags)
        } else if let Some(group) = self.groups.get_mut(id) {
            Some(&mut group.tags)
        } else if let Some(subnet) = self.subnets.get_mut(id) {
            Some(&mut subnet.tags)
        } else if let Some(vpc) = self.vpcs.get_mut(id) {
            Some(&mut vpc.tags)
        } else {
            self.images.get_mut(id).map(|image| &mut image.tags)
        };
        found.ok_or_else(|| Refusal::new(code, format!("The ID '{id}' does not exist")))
    }

    pub(in crate::aws) fn create_tags(&mut self, input: &Value) -> Outcome {
        let given = tags(list(input, "Tags"));
        check(&given)?;
        let ids = texts(input, "Resources");
        for id in &ids {
            let mut all = self.tags_of(id)?.clone();
            all.extend(given.clone());
            check(&all)?;
        }
        for id in &ids {
            self.tags_of(id)?.extend(given.clone());
        }
        Ok(json!({}))
    }

    pub(in crate::aws) fn delete_tags(&mut self, input: &Value) -> Outcome {
        for id in texts(input, "Resources") {
            let tags = self.tags_of(&id)?;
            for entry in list(input, "Tags") {
                let key = text(entry, "Key").unwrap_or_default();
                // With a value, only a tag of that value goes.
                if text(entry, "Value").is_none_or(|value| tags.get(key).is_some_and(|old| old == value)) {
                    tags.remove(key);
                }
            }
        }
        Ok(json!({}))
    }

    pub(in crate::aws) fn describe_tags(&self, input: &Value) -> Outcome {
        let filters = Filters::read(input, &["key", "value", "resource-id", "resource-type"])?;
        let instances = self.instances.iter().map(|(id, i)| ("instance", id, &i.tags));
        let volumes = self.volumes.iter().map(|(id, v)| ("volume", id, &v.tags));
        let groups = self.groups.iter().map(|(id, g)| ("security-group", id, &g.tags));
        let mut told = Vec::new();
        for (kind, id, tags) in instances.chain(volumes).chain(groups) {
            for (key, value) in tags {
                let of = |name: &str| {
                    vec![match name {
                        "key" => key.clone(),
                        "value" => value.clone(),
                        "resource-id" => id.clone(),
                        _ => kind.to_string(),
                    }]
                };
                let one = Tags::from([(key.clone(), value.clone())]);
                if filters.fit(&one, of) {
                    told.push(json!({ "Key": key, "Value": value, "ResourceId": id, "ResourceType": kind }));
                }
            }
        }
        Ok(paged("Tags", told, input))
    }
}
