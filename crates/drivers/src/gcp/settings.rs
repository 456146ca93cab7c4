//! The Google part of a ProviderConfig, parsed once, and the choices that follow from it alone: zone, machine type, image.

use super::names::{google_name, number_of, tail};
use crate::failure::{Class, Failure};
use crate::seam::MachineWanted;
use butler_api::ProviderConfigSpec;

/// What begins every URL of a thing.
const ROOT: &str = "https://www.googleapis.com/compute/v1/projects/";

/// Where things go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) project: String,
    pub(crate) region: String,
    /// Empty: all zones of the region.
    pub(crate) zones: Vec<String>,
    /// As URLs.
    pub(crate) network: String,
    pub(crate) subnetwork: Option<String>,
    machine_type: Option<String>,
    image: Option<String>,
    image_project: String,
    pub(crate) service_account: Option<String>,
    tags: Vec<String>,
    pub(crate) disk_type: String,
    pub(crate) external_address: bool,
    pub(crate) can_ip_forward: bool,
    pub(crate) firewall_rules: bool,
}

fn invalid(reason: &str, message: impl Into<String>, remedy: &str) -> Failure {
    Failure::new(Class::InvalidConfig, reason, message, remedy)
}

fn set(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

impl Settings {
    pub(crate) fn read(config: &ProviderConfigSpec) -> Result<Self, Failure> {
        let Some(block) = &config.gcp else {
            let message = "the ProviderConfig has no block gcp";
            return Err(invalid("BlockMissing", message, "add the block with projectID and region"));
        };
        let (project, region) = (block.project_id.trim().to_owned(), block.region.trim().to_owned());
        if project.is_empty() || region.is_empty() {
            let message = "the block gcp names no project or no region";
            return Err(invalid("SettingsMissing", message, "set projectID and region"));
        }
        let zones = match (block.zones.as_slice(), set(&block.zone)) {
            ([], None) => Vec::new(),
            ([], Some(zone)) => vec![zone.to_owned()],
            (zones, _) => zones.to_vec(),
        };
        if let Some(zone) = zones.iter().find(|zone| !zone.starts_with(&format!("{region}-"))) {
            let message = format!("the zone {zone} is not in the region {region}");
            return Err(invalid("ZoneInvalid", message, "name zones of the region, such as us-central1-a"));
        }
        let image_project = set(&block.image_project).unwrap_or(&project).to_owned();
        let image = match (set(&block.image), set(&block.image_family)) {
            (Some(image), _) => Some(image_url(&image_project, image, false)),
            (None, Some(family)) => Some(image_url(&image_project, family, true)),
            (None, None) => None,
        };
        let in_project = |text: &str, folder: &str| match text.contains('/') {
            true => url(tail(text)),
            false => url(&format!("{project}/{folder}/{text}")),
        };
        Ok(Self {
            network: in_project(set(&block.network).unwrap_or("default"), "global/networks"),
            subnetwork: set(&block.subnetwork)
                .map(|name| in_project(name, &format!("regions/{region}/subnetworks"))),
            machine_type: set(&block.machine_type).map(str::to_owned),
            service_account: set(&block.service_account).map(str::to_owned),
            disk_type: set(&block.disk_type).unwrap_or("pd-balanced").to_owned(),
            tags: block.tags.clone(),
            external_address: block.external_address,
            can_ip_forward: block.can_ip_forward,
            firewall_rules: block.firewall_rules,
            zones,
            image,
            image_project,
            project,
            region,
        })
    }

    /// The URL of something in the project.
    pub(crate) fn url(&self, path: &str) -> String {
        url(&format!("{}/{path}", self.project))
    }

    /// Whether the network is this project's own; firewall rules of a shared one are its owner's business.
    pub(crate) fn owns_network(&self) -> bool {
        tail(&self.network).split('/').next() == Some(self.project.as_str())
    }

    /// Whether images are taken from this project.
    pub(crate) fn owns_images(&self) -> bool {
        self.image_project == self.project
    }

    /// Network tags of a cluster's machines: its name first, which firewall rules go by.
    pub(crate) fn tags(&self, cluster: &str) -> Vec<String> {
        let mut tags = vec![google_name(cluster)];
        tags.extend(self.tags.iter().filter(|tag| **tag != tags[0]).cloned().collect::<Vec<_>>());
        tags
    }

    /// The zone of a machine: by its number, so that the machines of a role are spread, and the same in every run.
    pub(crate) fn place<'a>(&self, name: &str, zones: &'a [String]) -> Result<&'a str, Failure> {
        zones.get(number_of(name) % zones.len().max(1)).map(String::as_str).ok_or_else(|| {
            invalid("NoZones", format!("the region {} has no zones", self.region), "name another region")
        })
    }

    /// The image of a machine: its own (a family's name, or a URL), or that of the settings.
    pub(crate) fn image(&self, wanted: &MachineWanted) -> Result<String, Failure> {
        match set(&wanted.image) {
            Some(image) => Ok(image_url(&self.image_project, image, true)),
            None => self.image.clone().ok_or_else(|| {
                let message = format!("{} has no image to be made from", wanted.name);
                invalid("NoImage", message, "set image or imageFamily in the ProviderConfig")
            }),
        }
    }

    /// The machine type that is given, or a custom one.
    pub(crate) fn machine_type(&self, cpu: u32, memory_mb: u32) -> String {
        self.machine_type.clone().unwrap_or_else(|| custom_type(cpu, memory_mb))
    }
}

/// A custom machine type with at least so many CPUs and so much memory.
///
/// Google takes an even number of CPUs, memory in steps of 256 MiB, and from 0.5 to 8 GiB of it for each CPU. The cheap series
/// E2 ends at 32 CPUs; more memory for each CPU is "extended", which it lacks.
fn custom_type(cpu: u32, memory_mb: u32) -> String {
    let cpu = cpu.max(2).next_multiple_of(if cpu > 32 { 4 } else { 2 });
    let memory = memory_mb.max(cpu * 512).next_multiple_of(256);
    let extended = memory > cpu * 8192;
    let series = if cpu > 32 || extended || memory > 128 * 1024 { "n2" } else { "e2" };
    format!("{series}-custom-{cpu}-{memory}{}", if extended { "-ext" } else { "" })
}

/// The URL of an image, given as a name, as a path or as a URL.
fn image_url(project: &str, image: &str, family: bool) -> String {
    match (image.contains("projects/"), image.contains('/'), family) {
        (true, _, _) => url(tail(image)),
        // `family/talos`, or what comes below the project.
        (false, true, _) => {
            let path = image.trim_start_matches("global/images/");
            url(&format!("{project}/global/images/{path}"))
        }
        (false, false, true) => url(&format!("{project}/global/images/family/{image}")),
        (false, false, false) => url(&format!("{project}/global/images/{image}")),
    }
}

/// The URL of something, by what comes behind `projects/`.
pub(crate) fn url(tail: &str) -> String {
    format!("{ROOT}{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn custom_types_hold_what_is_asked_for() {
        let table = [
            (4, 8192, "e2-custom-4-8192"),
            (1, 1024, "e2-custom-2-1024"),
            (3, 5000, "e2-custom-4-5120"),
            (16, 2048, "e2-custom-16-8192"),
            (34, 65536, "n2-custom-36-65536"),
            (2, 32768, "n2-custom-2-32768-ext"),
            (32, 262_144, "n2-custom-32-262144"),
        ];
        for (cpu, memory, expected) in table {
            assert_eq!(custom_type(cpu, memory), expected);
        }
    }

    #[test]
    fn images_are_found_by_name_family_and_url() {
        let p = "https://www.googleapis.com/compute/v1/projects/";
        assert_eq!(image_url("p", "talos-v1-12", false), format!("{p}p/global/images/talos-v1-12"));
        assert_eq!(image_url("p", "talos", true), format!("{p}p/global/images/family/talos"));
        assert_eq!(image_url("p", "family/talos", false), format!("{p}p/global/images/family/talos"));
        assert_eq!(image_url("p", "projects/q/global/images/x", true), format!("{p}q/global/images/x"));
        let full = format!("{p}q/global/images/x");
        assert_eq!(image_url("p", &full, true), full);
    }
}
