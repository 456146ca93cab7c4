//! What a simulated machine is at one moment: everything that [`step`](super::step) decides from.

use crate::config::NodeConfig;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the machine is in its life. The drawing at the top of `machine/mod.rs` shows how one leads to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// No power.
    Off,
    /// Firmware, kernel and the first services; no port is open.
    PoweringOn,
    /// Without a configuration; the maintenance API answers.
    Maintenance,
    /// A configuration was taken; the maintenance API is about to close.
    LeavingMaintenance,
    /// The installer writes the disk; no port is open.
    Installing,
    /// Between two boots; no port is open.
    Rebooting,
    /// Configured and starting its services. A control plane stays here until etcd runs.
    Booting,
    /// All services run.
    Running,
    /// On its way to being off.
    ShuttingDown,
    /// The disk is being wiped.
    Resetting,
    /// A new version is being written.
    Upgrading,
}

impl Stage {
    /// All of them, in the order of a life.
    pub const ALL: [Stage; 11] = [
        Self::Off,
        Self::PoweringOn,
        Self::Maintenance,
        Self::LeavingMaintenance,
        Self::Installing,
        Self::Rebooting,
        Self::Booting,
        Self::Running,
        Self::ShuttingDown,
        Self::Resetting,
        Self::Upgrading,
    ];

    /// Our own name for it, as fault scripts use it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::PoweringOn => "powering-on",
            Self::Maintenance => "maintenance",
            Self::LeavingMaintenance => "leaving-maintenance",
            Self::Installing => "installing",
            Self::Rebooting => "rebooting",
            Self::Booting => "booting",
            Self::Running => "running",
            Self::ShuttingDown => "shutting-down",
            Self::Resetting => "resetting",
            Self::Upgrading => "upgrading",
        }
    }

    /// The stage of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }

    /// The name that Talos' `MachineStatus` resource has for it.
    #[must_use]
    pub fn talos_name(self) -> &'static str {
        match self {
            Self::Off => "unknown",
            Self::PoweringOn | Self::Booting => "booting",
            Self::Maintenance | Self::LeavingMaintenance => "maintenance",
            Self::Installing => "installing",
            Self::Running => "running",
            Self::Rebooting => "rebooting",
            Self::ShuttingDown => "shutting down",
            Self::Resetting => "resetting",
            Self::Upgrading => "upgrading",
        }
    }

    /// The number that it has in Talos' protobuf messages.
    #[must_use]
    pub fn talos_number(self) -> i32 {
        match self {
            Self::Off => 0,
            Self::PoweringOn | Self::Booting => 1,
            Self::Installing => 2,
            Self::Maintenance | Self::LeavingMaintenance => 3,
            Self::Running => 4,
            Self::Rebooting => 5,
            Self::ShuttingDown => 6,
            Self::Resetting => 7,
            Self::Upgrading => 8,
        }
    }
}

/// What the machine boots from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Media {
    /// ISO or network boot: taking a configuration installs to disk and reboots.
    #[default]
    Iso,
    /// A disk image that has Talos on it already (clouds): no install and no reboot.
    DiskImage,
}

/// What a node is in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    ControlPlane,
    Worker,
}

/// A member of one etcd cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    pub cluster: u64,
    pub id: u64,
}

/// What survives a reboot.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    /// The Talos version that is installed.
    pub installed: Option<String>,
    /// The configuration in the STATE partition.
    pub config: Option<Arc<NodeConfig>>,
    /// A configuration that takes effect at the next boot (mode `staged`).
    pub staged: Option<Arc<NodeConfig>>,
    /// A version that is installed at the next boot (upgrade with `stage`).
    pub staged_version: Option<String>,
    /// `/var/lib/etcd` in the EPHEMERAL partition.
    pub etcd: Option<Member>,
}

/// How far etcd has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Etcd {
    /// Not started (yet), or not on this machine at all.
    #[default]
    Stopped,
    /// Ready to join a cluster; looks for one again and again.
    Joining,
    /// Asked to be the first member; nothing is written yet.
    Bootstrapping,
    /// There are data; the process is coming up.
    Starting,
    Running {
        learner: bool,
    },
    Failed(String),
}

/// What Talos calls the state of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceState {
    Preparing,
    Waiting,
    Running,
    Stopping,
    Finished,
    Failed,
    Starting,
}

impl ServiceState {
    /// As `ServiceList` spells it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Preparing => "Preparing",
            Self::Waiting => "Waiting",
            Self::Running => "Running",
            Self::Stopping => "Stopping",
            Self::Finished => "Finished",
            Self::Failed => "Failed",
            Self::Starting => "Starting",
        }
    }

    /// The number in `ServiceStateEvent`.
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::Preparing => 1,
            Self::Waiting => 2,
            Self::Running => 3,
            Self::Stopping => 4,
            Self::Finished => 5,
            Self::Failed => 6,
            Self::Starting => 8,
        }
    }
}

/// What this boot has reached so far; a reboot starts it again from its default.
#[derive(Debug, Clone, Default)]
pub struct Run {
    pub apid: bool,
    pub cri: bool,
    pub time_synced: bool,
    pub kubelet: bool,
    pub etcd: Etcd,
    /// The control plane's static pods are up.
    pub static_pods: bool,
    pub services: BTreeMap<&'static str, ServiceState>,
    /// What a reset, upgrade or shutdown that is under way does at its end.
    pub then: Option<Then>,
    /// The actor id of the request that is under way.
    pub actor: String,
    /// What `try` mode goes back to, and which try it was.
    pub tried: Option<(u32, Arc<NodeConfig>)>,
}

/// The end of a sequence that takes a node down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    Reset { wipe: Wipe, reboot: bool },
    Upgrade { version: String },
    Shutdown,
}

/// What a reset wipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wipe {
    /// The whole disk, with Talos itself.
    pub everything: bool,
    pub state: bool,
    pub ephemeral: bool,
}

/// A simulated machine.
#[derive(Debug, Clone)]
pub struct Machine {
    pub stage: Stage,
    /// Counts boots: what an earlier boot started is ignored when it ends.
    pub boot: u32,
    pub media: Media,
    /// The version of the boot media, run until another one is installed.
    pub media_version: String,
    /// The version that runs now.
    pub version: String,
    pub disk: Disk,
    pub run: Run,
    /// Its name until a configuration gives it another.
    pub hostname: String,
    /// What Kubernetes says of this node, when something outside (a CNI) decides that. `None`: ready when it is up.
    pub kubernetes_ready: Option<bool>,
    /// Counts `try` applies, so that only the last one is taken back.
    pub tries: u32,
}

impl Machine {
    /// A machine that is off, and whose disk has what its media brings.
    #[must_use]
    pub fn new(media: Media, version: &str) -> Self {
        let installed = (media == Media::DiskImage).then(|| version.to_string());
        Self {
            stage: Stage::Off,
            boot: 0,
            media,
            media_version: version.to_string(),
            version: version.to_string(),
            disk: Disk { installed, ..Disk::default() },
            run: Run::default(),
            hostname: "talos".to_string(),
            kubernetes_ready: None,
            tries: 0,
        }
    }

    /// The configuration in force.
    #[must_use]
    pub fn config(&self) -> Option<&Arc<NodeConfig>> {
        self.disk.config.as_ref()
    }

    #[must_use]
    pub fn hostname(&self) -> &str {
        self.config().and_then(|config| config.hostname.as_deref()).unwrap_or(&self.hostname)
    }

    #[must_use]
    pub fn role(&self) -> Option<Role> {
        self.config().map(|config| config.role)
    }

    pub(crate) fn is_control_plane(&self) -> bool {
        self.role() == Some(Role::ControlPlane)
    }

    /// Whether the configured API (apid) is what answers now.
    #[must_use]
    pub fn serves_apid(&self) -> bool {
        self.run.apid
            && matches!(
                self.stage,
                Stage::Booting | Stage::Running | Stage::ShuttingDown | Stage::Resetting | Stage::Upgrading
            )
    }
}
