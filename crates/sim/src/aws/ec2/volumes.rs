//! Disks.

use crate::aws::input::{Filters, paged, show_tags, text, texts, time};
use crate::aws::request::{Outcome, Refusal};
use crate::aws::state::State;
use serde_json::{Value, json};

impl State {
    pub(in crate::aws) fn describe_volumes(&self, input: &Value) -> Outcome {
        let filters = Filters::read(
            input,
            &["volume-id", "status", "attachment.instance-id", "availability-zone", "volume-type"],
        )?;
        let ids = texts(input, "VolumeIds");
        if let Some(id) = ids.iter().find(|id| !self.volumes.contains_key(*id)) {
            return Err(Refusal::new("InvalidVolume.NotFound", format!("The volume '{id}' does not exist.")));
        }
        let mut told = Vec::new();
        for (id, volume) in &self.volumes {
            let status = if volume.attached.is_some() { "in-use" } else { "available" };
            let of = |name: &str| match name {
                "volume-id" => vec![id.clone()],
                "status" => vec![status.to_string()],
                "attachment.instance-id" => volume.attached.clone().into_iter().collect(),
                "availability-zone" => vec![volume.zone.clone()],
                _ => vec![volume.kind.clone()],
            };
            if (ids.is_empty() || ids.contains(id)) && filters.fit(&volume.tags, of) {
                let attachments: Vec<Value> = volume
                    .attached
                    .iter()
                    .map(|instance| {
                        json!({
                            "VolumeId": id, "InstanceId": instance, "State": "attached",
                            "DeleteOnTermination": volume.dies_with_instance,
                        })
                    })
                    .collect();
                told.push(json!({
                    "VolumeId": id, "Size": volume.size, "VolumeType": volume.kind, "State": status,
                    "AvailabilityZone": volume.zone, "Encrypted": volume.encrypted,
                    "CreateTime": time(volume.created), "Attachments": attachments,
                    "Tags": show_tags(&volume.tags),
                }));
            }
        }
        Ok(paged("Volumes", told, input))
    }

    pub(in crate::aws) fn delete_volume(&mut self, input: &Value) -> Outcome {
        let id = text(input, "VolumeId").unwrap_or_default();
        match self.volumes.get(id).map(|volume| volume.attached.clone()) {
            None => Err(Refusal::new("InvalidVolume.NotFound", format!("The volume '{id}' does not exist."))),
            Some(Some(instance)) => {
                let why = format!("Volume {id} is currently attached to {instance}");
                Err(Refusal::new("VolumeInUse", why))
            }
            Some(None) => {
                self.volumes.remove(id);
                Ok(json!({}))
            }
        }
    }
}
