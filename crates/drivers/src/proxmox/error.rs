//! What Proxmox says when it refuses, and who has to move then.
//!
//! Most refusals are a 500 (or 595, 596 from a node that another node asked) whose only content is a sentence, so the
//! sentences have to be known. They are matched in one table, top to bottom.

use crate::failure::{Class, Failure};
use crate::http::Answer;
use serde_json::Value;
use std::collections::BTreeMap;

/// A refusal in Proxmox' own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) message: String,
    /// Parameter to complaint, from "Parameter verification failed".
    pub(crate) fields: BTreeMap<String, String>,
}

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallError {
    /// It was answered with a refusal.
    Refused(Refusal),
    /// There was no answer, or no login.
    Failed(Failure),
}

/// Part of a sentence, in which a star stands for any text, and what it means.
struct Meaning {
    text: &'static str,
    class: Class,
    reason: &'static str,
    remedy: &'static str,
}

impl Meaning {
    /// Whether a sentence has all parts, in their order.
    fn is_of(&self, sentence: &str) -> bool {
        let mut rest = Some(sentence);
        for part in self.text.split('*') {
            rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, after)| after);
        }
        rest.is_some()
    }
}

const fn meaning(text: &'static str, class: Class, reason: &'static str, remedy: &'static str) -> Meaning {
    Meaning { text, class, reason, remedy }
}

const ROOM: &str = "free some space on the storage, or name another one in the ProviderConfig";
const STORAGE: &str = "name a storage that exists, is enabled, is on that node and takes this content";
const LOCK: &str = "it is tried again; another task holds the lock";
const AGAIN: &str = "it is tried again; when it lasts, look at the load and the tasks of the Proxmox nodes";

/// Sentences in lower case; the first that fits wins.
const MEANINGS: &[Meaning] = &[
    meaning("already exists", Class::Retryable, "VmidTaken", AGAIN),
    meaning("already defined on node", Class::Retryable, "VmidTaken", AGAIN),
    meaning("can't lock file", Class::Retryable, "Locked", LOCK),
    // A storage is locked by its cluster-wide name while a disk is made, and whoever does not get the lock within seconds
    // fails: with many clones at once that is the usual answer, and says nothing against the storage.
    meaning("lock request timeout", Class::Retryable, "Locked", LOCK),
    meaning("-locked command timed out", Class::Retryable, "Locked", LOCK),
    meaning("no quorum", Class::Retryable, "NoQuorum", "bring enough Proxmox nodes back"),
    meaning(
        "storage*is not online",
        Class::Retryable,
        "StorageOffline",
        "bring the storage's server back, or the way to it; it is tried again",
    ),
    meaning("detected modified configuration", Class::Retryable, "ConfigChanged", AGAIN),
    meaning("got timeout", Class::Retryable, "Busy", AGAIN),
    meaning("vm is locked", Class::Retryable, "Locked", "wait for the other task, or run qm unlock"),
    meaning("not enough space", Class::Quota, "StorageFull", ROOM),
    meaning("no space left", Class::Quota, "StorageFull", ROOM),
    meaning("insufficient free space", Class::Quota, "StorageFull", ROOM),
    meaning("out of space", Class::Quota, "StorageFull", ROOM),
    meaning("storage is full", Class::Quota, "StorageFull", ROOM),
    meaning("is full", Class::Quota, "StorageFull", ROOM),
    meaning("exceeds pool quota", Class::Quota, "QuotaExceeded", "raise the pool's quota"),
    meaning(
        "vm uses local storage",
        Class::InvalidConfig,
        "TemplateNotShared",
        "put the template on shared storage, or list only the template's node in the ProviderConfig",
    ),
    meaning(
        "no such storage",
        Class::InvalidConfig,
        "NoSuchStorage",
        "name a storage that exists (pvesm status lists them)",
    ),
    // Only what a storage is said to be or to lack: its mere name is in many a sentence that will not be true tomorrow.
    meaning("storage*does not exist", Class::InvalidConfig, "StorageUnusable", STORAGE),
    meaning("storage*is disabled", Class::InvalidConfig, "StorageUnusable", STORAGE),
    meaning("storage*is not available on node", Class::InvalidConfig, "StorageUnusable", STORAGE),
    meaning("storage*is not configured for content", Class::InvalidConfig, "StorageUnusable", STORAGE),
    meaning("storage*does not support", Class::InvalidConfig, "StorageUnusable", STORAGE),
    meaning("not a file based storage", Class::InvalidConfig, "StorageUnusable", STORAGE),
    meaning("non-shared storage", Class::InvalidConfig, "StorageUnusable", STORAGE),
    meaning("cfs-lock", Class::Retryable, "Locked", LOCK),
    meaning(
        "unable to find configuration file",
        Class::InvalidConfig,
        "NoSuchVm",
        "check the template id in the ProviderConfig",
    ),
    meaning(
        "configuration file",
        Class::InvalidConfig,
        "NoSuchVm",
        "check the template id in the ProviderConfig",
    ),
    meaning(
        "download failed",
        Class::Retryable,
        "DownloadFailed",
        "check that the image is at that URL, and that the Proxmox node reaches it (proxy, name server); it is tried again",
    ),
    meaning("checksum mismatch", Class::InvalidConfig, "ChecksumMismatch", "check the image and its SHA-256"),
    meaning(
        "bridge",
        Class::InvalidConfig,
        "BridgeUnusable",
        "name a bridge that exists on every node in the ProviderConfig",
    ),
    meaning(
        "hostname lookup",
        Class::InvalidConfig,
        "NoSuchNode",
        "name nodes that exist in the ProviderConfig",
    ),
    meaning("no such cluster node", Class::InvalidConfig, "NoSuchNode", "name nodes that exist"),
    meaning("not enough memory", Class::Quota, "OutOfMemory", "free memory on the node, or ask for less"),
    meaning(
        "cannot allocate memory",
        Class::Quota,
        "OutOfMemory",
        "free memory on the node, or ask for less",
    ),
    meaning("max vcpus", Class::InvalidConfig, "TooManyCpus", "ask for fewer CPUs than the node has"),
    meaning("permission check failed", Class::Auth, "PermissionDenied", RIGHTS),
];

const RIGHTS: &str =
    "give the user or token the missing rights; with privilege separation the token needs its own";

impl Refusal {
    /// Reads a refusal.
    pub(crate) fn read(answer: &Answer) -> Self {
        let mut fields = BTreeMap::new();
        if let Some(errors) = answer.body.get("errors").and_then(Value::as_object) {
            for (name, text) in errors {
                let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
                fields.insert(name.clone(), text.trim().to_owned());
            }
        }
        let said = answer.body.get("message").and_then(Value::as_str).unwrap_or_default().trim();
        let message = match (said.is_empty(), answer.reason.is_empty()) {
            (false, _) => said.to_owned(),
            (true, false) => answer.reason.clone(),
            (true, true) => format!("status {}", answer.status),
        };
        Self { status: answer.status, message, fields }
    }

    /// A task's last words.
    pub(crate) fn of_task(exit: &str) -> Self {
        Self { status: 500, message: exit.trim().to_owned(), fields: BTreeMap::new() }
    }

    /// The whole of what was said.
    pub(crate) fn words(&self) -> String {
        let fields: Vec<String> = self.fields.iter().map(|(name, text)| format!("{name}: {text}")).collect();
        if fields.is_empty() {
            self.message.clone()
        } else {
            format!("{} ({})", self.message, fields.join("; "))
        }
    }

    /// The id is taken by a machine, or the name by a file.
    pub(crate) fn id_taken(&self) -> bool {
        let text = self.words().to_lowercase();
        ["already exists", "already defined on node", "refusing to override"]
            .iter()
            .any(|part| text.contains(part))
    }

    /// The machine that was named in the path is not there.
    pub(crate) fn machine_gone(&self) -> bool {
        let text = self.words().to_lowercase();
        self.status != 401
            && self.status != 403
            && (text.contains("no such vm (")
                || text.contains("unable to find configuration file")
                || (text.contains("does not exist") && text.contains("configuration file")))
    }

    /// It is as the change wanted it already.
    pub(crate) fn done_already(&self) -> bool {
        let text = self.words().to_lowercase();
        text.contains("already running") || text.ends_with(" not running") || self.machine_gone()
    }

    /// The guest agent can't be asked yet.
    pub(crate) fn agent_silent(&self) -> bool {
        let text = self.words().to_lowercase();
        text.contains("guest agent is not running")
            || text.contains("no qemu guest agent configured")
            || (text.contains("agent") && text.contains("timeout"))
    }

    /// The task is not known (any more).
    pub(crate) fn no_such_task(&self) -> bool {
        let text = self.words().to_lowercase();
        text.contains("no such task") || text.contains("unable to parse worker upid")
    }

    /// The failure that this refusal is. `what` names the operation and its object.
    pub(crate) fn failure(&self, what: &str) -> Failure {
        let (class, reason, remedy) = self.classify();
        Failure::new(class, reason, format!("{what}: Proxmox says: {}", self.words()), remedy)
    }

    fn classify(&self) -> (Class, &'static str, &'static str) {
        let text = self.words().to_lowercase();
        match self.status {
            401 => {
                return (
                    Class::Auth,
                    "LoginFailed",
                    "check user and password, or token and tokenSecret, in the credentials",
                );
            }
            403 => return (Class::Auth, "PermissionDenied", RIGHTS),
            429 => return (Class::Throttled, "TooManyCalls", AGAIN),
            501 => {
                return (
                    Class::InvalidConfig,
                    "MethodUnknown",
                    "check that the endpoint is Proxmox VE 8 or later",
                );
            }
            408 | 502..=504 => return (Class::Retryable, "Unavailable", AGAIN),
            _ => {}
        }
        if let Some(found) = MEANINGS.iter().find(|meaning| meaning.is_of(&text)) {
            return (found.class, found.reason, found.remedy);
        }
        match self.status {
            400 => (
                Class::InvalidConfig,
                "ParametersRefused",
                "correct the fields that are named, in the spec or the ProviderConfig",
            ),
            404 => (Class::InvalidConfig, "NotFound", "check the endpoint's URL"),
            // 595 and 596: the node that was asked could not reach the node that the path names.
            595..=599 => (
                Class::Retryable,
                "NodeUnreachable",
                "bring the Proxmox node back, or take it out of the list",
            ),
            status if (400..500).contains(&status) => {
                (Class::InvalidConfig, "Refused", "see what Proxmox says")
            }
            _ => (Class::Retryable, "ProxmoxError", "it is tried again; see the task's log in Proxmox"),
        }
    }
}

impl CallError {
    /// The failure that this is.
    pub(crate) fn failure(self, what: &str) -> Failure {
        match self {
            CallError::Refused(refusal) => refusal.failure(what),
            CallError::Failed(failure) => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(status: u16, body: Value) -> Refusal {
        Refusal::read(&Answer { status, reason: String::new(), body })
    }

    #[test]
    fn refusals_have_a_class_a_reason_and_a_remedy() {
        let table = [
            (401, "authentication failure", Class::Auth, "LoginFailed"),
            (401, "No ticket", Class::Auth, "LoginFailed"),
            (403, "Permission check failed (/vms/200, VM.Allocate)", Class::Auth, "PermissionDenied"),
            (429, "too many requests", Class::Throttled, "TooManyCalls"),
            (503, "service unavailable", Class::Retryable, "Unavailable"),
            (595, "no route to host", Class::Retryable, "NodeUnreachable"),
            (596, "connection timed out", Class::Retryable, "NodeUnreachable"),
            (
                500,
                "unable to create VM 200 - VM 200 already exists on node 'pve1'",
                Class::Retryable,
                "VmidTaken",
            ),
            (500, "unable to create VM 200: config file already exists", Class::Retryable, "VmidTaken"),
            (
                500,
                "can't lock file '/var/lock/qemu-server/lock-200.conf' - got timeout",
                Class::Retryable,
                "Locked",
            ),
            (500, "VM is locked (clone)", Class::Retryable, "Locked"),
            (
                500,
                "clone failed: cfs-lock 'storage-ceph-vm' error: got lock request timeout",
                Class::Retryable,
                "Locked",
            ),
            (500, "'storage-ceph-vm'-locked command timed out - aborting", Class::Retryable, "Locked"),
            (500, "cfs-lock 'storage-ceph-vm' error: no quorum!", Class::Retryable, "NoQuorum"),
            (500, "cfs-lock 'storage-ceph-vm' error: something new", Class::Retryable, "Locked"),
            (500, "cfs-lock 'storage-thin' error: no space left on device", Class::Quota, "StorageFull"),
            (500, "storage 'nfs-1' is not online", Class::Retryable, "StorageOffline"),
            (
                500,
                "unable to read '/mnt/storage/x.raw': input/output error",
                Class::Retryable,
                "ProxmoxError",
            ),
            (500, "storage 'fast' is disabled", Class::InvalidConfig, "StorageUnusable"),
            (500, "storage 'fast' is not available on node 'pve2'", Class::InvalidConfig, "StorageUnusable"),
            (
                500,
                "storage 'fast' is not configured for content-type 'import'",
                Class::InvalidConfig,
                "StorageUnusable",
            ),
            (500, "storage 'fast' does not support vm images", Class::InvalidConfig, "StorageUnusable"),
            (500, "storage 'fast' does not exist", Class::InvalidConfig, "StorageUnusable"),
            (500, "no such storage 'fast'", Class::InvalidConfig, "NoSuchStorage"),
            (
                500,
                "lvcreate 'pve/vm-200-disk-0' error: insufficient free space: storage is full",
                Class::Quota,
                "StorageFull",
            ),
            (500, "clone failed: not enough space on storage", Class::Quota, "StorageFull"),
            (
                500,
                "unable to find configuration file for VM 9000 on node 'pve1'",
                Class::InvalidConfig,
                "NoSuchVm",
            ),
            (
                500,
                "Configuration file 'nodes/pve1/qemu-server/9000.conf' does not exist",
                Class::InvalidConfig,
                "NoSuchVm",
            ),
            (
                500,
                "Can't clone VM '9000' to node 'pve2' (VM uses local storage)",
                Class::InvalidConfig,
                "TemplateNotShared",
            ),
            (500, "bridge 'vmbr9' does not exist", Class::InvalidConfig, "BridgeUnusable"),
            (500, "cluster not ready - no quorum?", Class::Retryable, "NoQuorum"),
            (500, "something nobody has heard of", Class::Retryable, "ProxmoxError"),
        ];
        for (status, message, class, reason) in table {
            let failure =
                refusal(status, json!({"data": null, "message": format!("{message}\n")})).failure("x");
            assert_eq!((failure.class, failure.reason.as_str()), (class, reason), "{message}");
            assert!(failure.message.contains(message) && !failure.remedy.is_empty());
        }
    }

    #[test]
    fn parameter_errors_name_their_fields() {
        let body = json!({"data": null, "message": "Parameter verification failed.\n",
            "errors": {"memory": "value must have a minimum value of 16"}});
        let failure = refusal(400, body).failure("set up VM 200");
        assert_eq!((failure.class, failure.reason.as_str()), (Class::InvalidConfig, "ParametersRefused"));
        assert!(failure.message.contains("memory: value must have"), "{}", failure.message);
    }

    #[test]
    fn only_a_missing_machine_is_gone() {
        assert!(
            refusal(
                500,
                json!({"message": "Configuration file 'nodes/a/qemu-server/1.conf' does not exist"})
            )
            .machine_gone()
        );
        assert!(
            refusal(500, json!({"message": "unable to find configuration file for VM 1 on node 'a'"}))
                .machine_gone()
        );
        assert!(!refusal(500, json!({"message": "storage 'x' does not exist"})).machine_gone());
        assert!(!refusal(595, json!({"message": "no route to host"})).machine_gone());
        assert!(
            !refusal(403, json!({"message": "Permission check failed (/vms/1, VM.Audit)"})).machine_gone()
        );
    }

    #[test]
    fn the_status_line_speaks_when_the_body_does_not() {
        let answer = Answer {
            status: 500,
            reason: "QEMU guest agent is not running".to_owned(),
            body: json!({"data": null}),
        };
        assert!(Refusal::read(&answer).agent_silent());
    }
}
