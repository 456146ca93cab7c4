//! The disks of an instance: what they are made from, and the image on the one that it boots.

use super::instances::zone_of;
use super::request::Refusal;
use super::state::{Doc, Fields, State, link, name_of};
use serde_json::{Value, json};

impl State {
    pub(super) fn check_disks(&self, path: &str, fields: &mut Fields) -> Result<(), Refusal> {
        let mut disks = fields.get("disks").and_then(Value::as_array).cloned().unwrap_or_default();
        if disks.first().is_none_or(|disk| disk["boot"] != true) {
            return Err(Refusal::invalid(
                "Invalid value for field 'resource.disks': ''. Boot disk must be the first disk attached to the instance.",
            ));
        }
        for (index, disk) in disks.iter_mut().enumerate() {
            let Some(params) = disk["initializeParams"].as_object() else {
                return Err(Refusal::not_simulated("Attaching a disk that is there already"));
            };
            let (disk_path, made) = self.new_disk(path, index, params)?;
            disk["source"] = link(&disk_path).into();
            disk["type"] = "PERSISTENT".into();
            disk["index"] = index.into();
            // What is kept for the moment at which the disk is made; the API does not show it.
            disk["initializeParams"] = made;
        }
        fields.insert("disks".into(), disks.into());
        Ok(())
    }

    /// Path and document of a disk that is to be made for an instance.
    fn new_disk(&self, path: &str, index: usize, params: &Fields) -> Result<(String, Value), Refusal> {
        let at = |field: &str| format!("resource.disks[{index}].initializeParams.{field}");
        let text = |name: &str| params.get(name).and_then(Value::as_str).unwrap_or_default();
        let name = match (text("diskName"), index) {
            ("", 0) => name_of(path).to_string(),
            ("", index) => format!("{}-{index}", name_of(path)),
            (given, _) => given.to_string(),
        };
        let disk_path = format!("projects/{}/zones/{}/disks/{name}", self.project, zone_of(path));
        if self.docs.contains_key(&disk_path) {
            return Err(Refusal::exists(&disk_path));
        }
        let image = match text("sourceImage") {
            "" if index == 0 => return Err(Refusal::required(&at("sourceImage"))),
            "" => None,
            given => Some(self.image(&at("sourceImage"), given)?),
        };
        let size = size_of(params.get("diskSizeGb"));
        let least =
            image.as_ref().map(|image| self.text(image, "diskSizeGb").parse::<u64>().unwrap_or_default());
        if let Some(size) = size.filter(|size| *size < least.unwrap_or(1)) {
            let least = least.unwrap_or(1);
            let why = format!("Requested disk size cannot be smaller than the image size ({least} GB)");
            return Err(Refusal::field(&at("diskSizeGb"), &size.to_string(), &why));
        }
        let kind = match text("diskType") {
            "" => format!("projects/{}/zones/{}/diskTypes/pd-standard", self.project, zone_of(path)),
            given => {
                let malformed = || Refusal::field(&at("diskType"), given, "The URL is malformed.");
                self.path_of(given).ok_or_else(malformed)?
            }
        };
        if !matches!(name_of(&kind), "pd-standard" | "pd-balanced" | "pd-ssd") {
            return Err(Refusal::not_found(&kind));
        }
        let mut made = json!({
            "sizeGb": size.or(least).unwrap_or(500).to_string(), "type": link(&kind), "status": "READY",
        });
        for name in ["labels", "description"] {
            if let Some(given) = params.get(name) {
                made[name] = given.clone();
            }
        }
        if let Some(image) = image {
            made["sourceImage"] = link(&image).into();
        }
        Ok((disk_path, made))
    }

    /// The image behind a link, or the newest of a family.
    fn image(&self, at: &str, given: &str) -> Result<String, Refusal> {
        let path = self
            .path_of(given)
            .ok_or_else(|| Refusal::field(at, given, "The referenced image resource cannot be found."))?;
        match path.split('/').collect::<Vec<_>>()[..] {
            ["projects", project, "global", "images", "family", family] => self.newest(project, family),
            ["projects", _, "global", "images", _] if self.docs.contains_key(&path) => Ok(path),
            _ => Err(Refusal::not_found(&path)),
        }
    }

    /// The newest image of a family that is not deprecated.
    pub(super) fn newest(&self, project: &str, family: &str) -> Result<String, Refusal> {
        let fits = |path: &&String| {
            path.starts_with(&format!("projects/{project}/"))
                && self.text(path, "family") == family
                && self.doc(path).is_some_and(|doc| !doc.fields.contains_key("deprecated"))
        };
        let newest = self.all("images").map(|(path, _)| path).filter(fits).last();
        newest
            .cloned()
            .ok_or_else(|| Refusal::not_found(&format!("projects/{project}/global/images/family/{family}")))
    }

    /// Makes the disks; the system on the boot disk comes back.
    pub(super) fn make_disks(&mut self, path: &str, fields: &mut Fields, now: u64) -> Option<String> {
        let disks = fields.get("disks").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut system = None;
        for disk in &disks {
            let Some(disk_path) = disk["source"].as_str().and_then(|source| self.path_of(source)) else {
                continue;
            };
            let image =
                disk["initializeParams"]["sourceImage"].as_str().and_then(|image| self.path_of(image));
            if disk["boot"] == true {
                system = image.and_then(|image| self.doc(&image)?.system.clone());
            }
            let made = disk["initializeParams"].as_object().cloned().unwrap_or_default();
            self.put(&disk_path, Doc { fields: made, ..Doc::default() }, now);
        }
        hide_disks(fields);
        tracing::debug!(path, disks = disks.len(), "SIMULATED: disks made");
        system
    }
}

/// What disks are made from is shown of no instance.
pub(super) fn hide_disks(fields: &mut Fields) {
    for disk in fields.get_mut("disks").and_then(Value::as_array_mut).into_iter().flatten() {
        let size = disk["initializeParams"]["sizeGb"].clone();
        if let Some(entry) = disk.as_object_mut() {
            entry.remove("initializeParams");
            entry.insert("diskSizeGb".into(), size);
        }
    }
}

fn size_of(value: Option<&Value>) -> Option<u64> {
    let value = value?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}
