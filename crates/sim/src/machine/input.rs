//! What can happen to a machine, and what it then does: the two alphabets of [`step`](super::step).

use super::state::{Member, ServiceState, Wipe};
use crate::config::{ConfigError, NodeConfig};
use std::sync::Arc;
use tonic::Code;

/// Something that happens to a machine.
#[derive(Debug, Clone)]
pub enum Input {
    PowerOn,
    /// The plug is pulled.
    PowerOff,
    /// What [`Effect::Start`] began in boot `.1` has ended.
    Done(Task, u32),
    Apply(Apply),
    Bootstrap,
    Reboot {
        actor: String,
    },
    Shutdown {
        actor: String,
    },
    Reset {
        actor: String,
        graceful: bool,
        reboot: bool,
        wipe: Wipe,
    },
    Upgrade {
        actor: String,
        version: String,
        stage: bool,
    },
    /// Worker: a control plane's trustd has signed the certificate. The number is the boot that asked.
    Certified(u32),
    /// The data directory is written: as the first member, or as a learner of a cluster that was found.
    EtcdMember {
        member: Member,
        learner: bool,
    },
    /// There is no cluster to join yet.
    EtcdNotFound,
    /// The process of a known member is up.
    EtcdStarted {
        learner: bool,
    },
    EtcdPromoted,
    /// The learner can't vote yet; it is tried again.
    EtcdNotPromoted,
    /// The cluster does not know this member any more.
    EtcdRemoved,
    /// The answer to [`EtcdCall::Leave`].
    EtcdLeft(Result<(), String>),
    /// Something outside says whether the Kubernetes node is ready.
    KubernetesReady(bool),
}

/// `ApplyConfiguration`, with the outcome of the strict check.
#[derive(Debug, Clone)]
pub struct Apply {
    pub config: Result<Arc<NodeConfig>, ConfigError>,
    pub mode: ApplyMode,
    pub dry_run: bool,
}

/// The modes of `ApplyConfiguration`, by their numbers on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApplyMode {
    Reboot = 0,
    Auto = 1,
    NoReboot = 2,
    Staged = 3,
    Try = 4,
}

impl ApplyMode {
    pub(crate) fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::Reboot,
            1 => Self::Auto,
            2 => Self::NoReboot,
            3 => Self::Staged,
            4 => Self::Try,
            _ => return None,
        })
    }

    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Reboot => "reboot",
            Self::Auto => "auto",
            Self::NoReboot => "no-reboot",
            Self::Staged => "staged",
            Self::Try => "try",
        }
    }
}

/// Something that takes time. Its length is in the table of `delays.rs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    /// Power to the end of the initialize sequence.
    Boot,
    /// From the answer to an apply until the maintenance port is closed.
    CloseMaintenance,
    Install,
    /// Services down, and the way to the next boot.
    Reboot,
    Apid,
    Cri,
    TimeSync,
    Kubelet,
    /// One try to find a cluster to join.
    EtcdJoin,
    /// From the bootstrap request to the first byte in the data directory.
    EtcdData,
    /// Image, process, first health check.
    EtcdStart,
    EtcdPromote,
    StaticPods,
    Reset,
    Upgrade,
    Shutdown,
    /// The end of `try` mode number n.
    TryTimeout(u32),
}

/// What the shell has to do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// The answer to the caller; the first effect when there is one.
    Answer(Answer),
    Serve(Port),
    /// Closes every port. Not gracefully: connections are cut as by a pulled plug.
    Close {
        graceful: bool,
    },
    Start(Task),
    /// Worker: ask a control plane's trustd until one signs.
    RequestCertificate,
    Etcd(EtcdCall),
    Emit(Event),
    /// A line of the kernel log.
    Log(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    Maintenance,
    Apid,
    Trustd,
}

/// A call to the world's etcd clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EtcdCall {
    /// A new cluster with this node as its only member.
    Create,
    /// Join the cluster of the same secrets, when there is one with a quorum.
    Join,
    Start(Member),
    Stop(Member),
    Promote(Member),
    Leave(Member),
}

/// What goes into the event stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Sequence { name: &'static str, action: Action, error: Option<String> },
    Phase { name: &'static str, action: Action },
    Task { name: &'static str, action: Action },
    Service { id: &'static str, state: ServiceState, message: String, healthy: Option<bool> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Noop = 0,
    Start = 1,
    Stop = 2,
}

/// What a caller is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Done,
    /// `mode` is the number that the reply carries.
    Applied {
        mode: i32,
        details: String,
        warnings: Vec<String>,
    },
    Refused {
        code: Code,
        message: String,
    },
}

impl Answer {
    pub(crate) fn refused(code: Code, message: impl Into<String>) -> Self {
        Self::Refused { code, message: message.into() }
    }
}
