//! What EC2 says of instances, volumes and images, read once.

use crate::aws::tags::{self, Tags};
use crate::aws::xml::Element;
use crate::seam::MachineFacts;
use std::net::IpAddr;

/// An instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) state: State,
    pub(crate) zone: String,
    pub(crate) private: Option<IpAddr>,
    pub(crate) public: Option<IpAddr>,
    pub(crate) mac: Option<String>,
    pub(crate) launched: String,
    pub(crate) tags: Tags,
    /// Why it stopped: a code of EC2's, and its words.
    pub(crate) why: Option<(String, String)>,
}

/// Where an instance is in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Pending,
    Running,
    Stopping,
    Stopped,
    ShuttingDown,
    /// Shown for about an hour, and not there any more.
    Terminated,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) id: String,
    pub(crate) state: String,
}

/// An image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) architecture: String,
    pub(crate) root_device: String,
    pub(crate) created: String,
}

impl Instance {
    pub(crate) fn read(element: &Element) -> Self {
        let address = |path: &str| element.text(path).and_then(|text| text.parse().ok());
        let mac = element.list("networkInterfaceSet").find_map(|card| card.text("macAddress"));
        Self {
            id: element.string("instanceId"),
            state: State::read(&element.string("instanceState/name")),
            zone: element.string("placement/availabilityZone"),
            private: address("privateIpAddress"),
            public: address("ipAddress"),
            mac: mac.map(str::to_owned),
            launched: element.string("launchTime"),
            tags: tags::of_ec2(element),
            why: element
                .text("stateReason/code")
                .map(|code| (code.to_owned(), element.string("stateReason/message"))),
        }
    }

    /// All instances in an answer, the oldest first.
    pub(crate) fn list(answer: &Element) -> Vec<Self> {
        let all = answer.list("reservationSet").flat_map(|reservation| reservation.list("instancesSet"));
        let mut all: Vec<Self> = all.map(Self::read).collect();
        all.sort_by(|a, b| (&a.launched, &a.id).cmp(&(&b.launched, &b.id)));
        all
    }

    pub(crate) fn name(&self) -> &str {
        self.tags.get("Name").map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn is_there(&self) -> bool {
        self.state != State::Terminated
    }

    /// Whether it is gone or on its way.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::ShuttingDown | State::Terminated)
    }

    /// Why it ended, unless somebody wanted it to.
    pub(crate) fn died_of(&self) -> Option<(&str, &str)> {
        let (code, words) = self.why.as_ref()?;
        let wanted = ["Client.UserInitiated", "Client.InstanceInitiatedShutdown", "Server.SpotInstance"];
        let died = self.is_over() && !code.is_empty() && !wanted.iter().any(|kind| code.starts_with(kind));
        died.then_some((code, words))
    }

    /// `aws:///<zone>/<instance id>`
    pub(crate) fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.id)
    }

    pub(crate) fn facts(&self) -> MachineFacts {
        let addresses: Vec<IpAddr> = self.private.into_iter().chain(self.public).collect();
        MachineFacts {
            provider_id: self.provider_id(),
            reach: self.public.or(self.private),
            addresses,
            mac: self.mac.clone(),
            zone: Some(self.zone.clone()).filter(|zone| !zone.is_empty()),
            running: self.state == State::Running,
        }
    }
}

impl State {
    fn read(text: &str) -> Self {
        match text {
            "running" => State::Running,
            "stopping" => State::Stopping,
            "stopped" => State::Stopped,
            "shutting-down" => State::ShuttingDown,
            "terminated" => State::Terminated,
            _ => State::Pending,
        }
    }
}

impl Volume {
    pub(crate) fn list(answer: &Element) -> Vec<Self> {
        let all = answer.list("volumeSet");
        all.map(|volume| Self { id: volume.string("volumeId"), state: volume.string("status") }).collect()
    }
}

impl Image {
    /// All images in an answer, the newest first.
    pub(crate) fn list(answer: &Element) -> Vec<Self> {
        let mut all: Vec<Self> = answer
            .list("imagesSet")
            .map(|image| Self {
                id: image.string("imageId"),
                name: image.string("name"),
                state: image.string("imageState"),
                architecture: image.string("architecture"),
                root_device: image.string("rootDeviceName"),
                created: image.string("creationDate"),
            })
            .collect();
        all.sort_by(|a, b| (&b.created, &b.id).cmp(&(&a.created, &a.id)));
        all
    }
}
