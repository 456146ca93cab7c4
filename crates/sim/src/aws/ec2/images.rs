//! Machine images.

use crate::aws::input::{Filters, fits, paged, show_tags, texts};
use crate::aws::request::{Outcome, Refusal};
use crate::aws::state::{Image, State};
use serde_json::{Value, json};

impl State {
    pub(in crate::aws) fn describe_images(&self, input: &Value) -> Outcome {
        let filters = Filters::read(
            input,
            &[
                "name",
                "architecture",
                "state",
                "owner-id",
                "image-id",
                "image-type",
                "root-device-type",
                "virtualization-type",
                "is-public",
            ],
        )?;
        let ids = texts(input, "ImageIds");
        for id in &ids {
            self.image(id)?;
        }
        let owners = texts(input, "Owners");
        let is_owner = |image: &Image| {
            let own =
                |owner: &String| *owner == image.owner || (owner == "self" && image.owner == self.account);
            owners.is_empty() || owners.iter().any(own)
        };
        let mut told = Vec::new();
        for (id, image) in &self.images {
            let of = |name: &str| {
                vec![match name {
                    "name" => image.name.clone(),
                    "architecture" => image.architecture.clone(),
                    "state" => "available".to_string(),
                    "owner-id" => image.owner.clone(),
                    "image-id" => id.clone(),
                    "image-type" => "machine".to_string(),
                    "root-device-type" => "ebs".to_string(),
                    "virtualization-type" => "hvm".to_string(),
                    _ => "true".to_string(),
                }]
            };
            let named = ids.is_empty() || ids.iter().any(|wanted| fits(wanted, id));
            if named && is_owner(image) && filters.fit(&image.tags, of) {
                told.push(show(id, image));
            }
        }
        Ok(paged("Images", told, input))
    }

    pub(in crate::aws) fn image(&self, id: &str) -> Result<&Image, Refusal> {
        if !id.starts_with("ami-") {
            return Err(Refusal::new(
                "InvalidAMIID.Malformed",
                format!("Invalid id: \"{id}\" (expecting \"ami-...\")"),
            ));
        }
        self.images.get(id).ok_or_else(|| {
            Refusal::new("InvalidAMIID.NotFound", format!("The image id '[{id}]' does not exist"))
        })
    }
}

fn show(id: &str, image: &Image) -> Value {
    json!({
        "ImageId": id, "Name": image.name, "OwnerId": image.owner, "Architecture": image.architecture,
        "State": "available", "Public": true, "ImageType": "machine", "RootDeviceType": "ebs",
        "RootDeviceName": "/dev/xvda", "VirtualizationType": "hvm", "EnaSupport": true, "Hypervisor": "xen",
        "CreationDate": "2025-01-23T12:00:00.000Z", "Tags": show_tags(&image.tags),
        "BlockDeviceMappings": [{
            "DeviceName": "/dev/xvda",
            "Ebs": { "VolumeSize": image.size, "VolumeType": "gp3", "DeleteOnTermination": true, "Encrypted": false },
        }],
    })
}
