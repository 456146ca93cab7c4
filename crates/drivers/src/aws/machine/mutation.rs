//! The changes that are made to machines: as a call, and in words.

use crate::aws::client::{Params, Service, Wire, param};
use crate::aws::tags::{self, Tags};
use crate::change::PlannedChange;
use base64::Engine as _;
use std::net::IpAddr;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mutation {
    /// The machine, in our words.
    pub(crate) name: String,
    pub(crate) verb: Verb,
}

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verb {
    Launch(Box<Launch>),
    Start { id: String },
    Terminate { id: String },
    DeleteVolume { id: String },
}

/// A new instance.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) token: String,
    pub(crate) image: String,
    /// How the image was asked for: its id, or a name.
    pub(crate) image_words: String,
    pub(crate) root_device: String,
    pub(crate) instance_type: String,
    pub(crate) subnet: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) public_address: bool,
    pub(crate) profile: Option<String>,
    pub(crate) root_gb: u32,
    /// Size and type of each further disk.
    pub(crate) disks: Vec<(i32, String)>,
    pub(crate) volume_type: String,
    pub(crate) encrypt: Option<bool>,
    pub(crate) user_data: Option<String>,
    pub(crate) tags: Tags,
}

impl std::fmt::Debug for Launch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // User data holds secrets.
        f.debug_struct("Launch")
            .field("token", &self.token)
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}

impl Launch {
    fn params(&self) -> Params {
        let mut all = vec![
            param("ImageId", &self.image),
            param("InstanceType", &self.instance_type),
            param("MinCount", "1"),
            param("MaxCount", "1"),
            param("ClientToken", &self.token),
            // Credentials of the machine are given only to those who can ask for a session first.
            param("MetadataOptions.HttpTokens", "required"),
            param("MetadataOptions.HttpEndpoint", "enabled"),
        ];
        all.extend(self.card());
        for (index, (gb, kind)) in self.all_disks().enumerate() {
            let at = format!("BlockDeviceMapping.{}", index + 1);
            let device = match index {
                0 => self.root_device.clone(),
                further => device(further),
            };
            all.push(param(format!("{at}.DeviceName"), device));
            all.push(param(format!("{at}.Ebs.VolumeSize"), gb.to_string()));
            all.push(param(format!("{at}.Ebs.VolumeType"), kind));
            all.push(param(format!("{at}.Ebs.DeleteOnTermination"), "true"));
            all.extend(self.encrypt.map(|yes| param(format!("{at}.Ebs.Encrypted"), yes.to_string())));
        }
        if let Some(profile) = &self.profile {
            let key = if profile.starts_with("arn:") {
                "IamInstanceProfile.Arn"
            } else {
                "IamInstanceProfile.Name"
            };
            all.push(param(key, profile));
        }
        if let Some(data) = &self.user_data {
            all.push(param("UserData", base64::engine::general_purpose::STANDARD.encode(data)));
        }
        for (index, kind) in ["instance", "volume", "network-interface"].into_iter().enumerate() {
            all.extend(tags::specification(index + 1, kind, &self.tags));
        }
        all
    }

    fn card(&self) -> Params {
        let at = "NetworkInterface.1";
        let mut all = vec![
            param(format!("{at}.DeviceIndex"), "0"),
            param(format!("{at}.DeleteOnTermination"), "true"),
            param(format!("{at}.AssociatePublicIpAddress"), self.public_address.to_string()),
        ];
        all.extend(self.subnet.iter().map(|subnet| param(format!("{at}.SubnetId"), subnet)));
        all.extend(self.address.iter().map(|ip| param(format!("{at}.PrivateIpAddress"), ip.to_string())));
        let groups = self.groups.iter().map(String::as_str);
        all.extend(crate::aws::client::numbered(&format!("{at}.SecurityGroupId"), groups));
        all
    }

    /// Size and type, the root disk first.
    fn all_disks(&self) -> impl Iterator<Item = (i64, &str)> {
        let root = (i64::from(self.root_gb), self.volume_type.as_str());
        let further = self.disks.iter().map(|(gb, kind)| (i64::from(*gb), kind.as_str()));
        std::iter::once(root).chain(further)
    }

    fn words(&self) -> String {
        let place = self.subnet.as_deref().unwrap_or("the default subnet");
        let groups = match self.groups.is_empty() {
            true => "the default security group".to_owned(),
            false => format!("security groups {}", self.groups.join(", ")),
        };
        let address = match (self.address, self.public_address) {
            (Some(ip), true) => format!("address {ip} and a public one"),
            (Some(ip), false) => format!("address {ip}"),
            (None, true) => "a public address".to_owned(),
            (None, false) => "a private address".to_owned(),
        };
        let mut words = format!(
            "launch {} from {} in {place}, root disk of {} GiB {}, {groups}, {address}",
            self.instance_type, self.image_words, self.root_gb, self.volume_type
        );
        for (index, (gb, kind)) in self.disks.iter().enumerate() {
            words.push_str(&format!(", disk {} of {gb} GiB {kind}", device(index + 1)));
        }
        words
    }
}

/// The name that further disks are attached under; machines of today show them in this order as NVMe devices.
fn device(index: usize) -> String {
    let letter = u8::try_from(index).ok().and_then(|index| b'a'.checked_add(index)).unwrap_or(b'z');
    format!("/dev/sd{}", char::from(letter))
}

impl Mutation {
    pub(crate) fn wire(&self) -> Wire {
        let (action, params) = match &self.verb {
            Verb::Launch(launch) => ("RunInstances", launch.params()),
            Verb::Start { id } => ("StartInstances", vec![param("InstanceId.1", id)]),
            Verb::Terminate { id } => ("TerminateInstances", vec![param("InstanceId.1", id)]),
            Verb::DeleteVolume { id } => ("DeleteVolume", vec![param("VolumeId", id)]),
        };
        Wire { service: Service::Ec2, action, params }
    }

    /// In words, the same in a dry run and in a real one.
    pub(crate) fn change(&self) -> PlannedChange {
        let detail = match &self.verb {
            Verb::Launch(launch) => launch.words(),
            Verb::Start { .. } => "start the instance".to_owned(),
            Verb::Terminate { .. } => "terminate the instance with its disks".to_owned(),
            Verb::DeleteVolume { .. } => "delete a disk that was left behind".to_owned(),
        };
        PlannedChange::new("machine", &self.name, detail)
    }

    /// What is waited for afterwards.
    pub(crate) fn waiting_for(&self) -> String {
        match &self.verb {
            Verb::Launch(_) => "the new instance to run".to_owned(),
            Verb::Start { id } => format!("the instance {id} to start"),
            Verb::Terminate { id } => format!("the instance {id} to end"),
            Verb::DeleteVolume { id } => format!("the disk {id} to be gone"),
        }
    }
}
