//! From a field of an object back to the field of the bootstrap file that it came from.

use serde_json::Value;

/// Fields of a ProviderConfig that the file may spell otherwise: object, then file.
const SPELLINGS: [(&str, &str); 4] = [
    ("spec.proxmox.vmidRange.start", "providerConfig.proxmox.vmidStart"),
    ("spec.proxmox.vmidRange.end", "providerConfig.proxmox.vmidEnd"),
    ("spec.aws.subnetIDs[0]", "providerConfig.aws.subnetID"),
    ("spec.aws.securityGroupIDs[0]", "providerConfig.aws.securityGroupID"),
];

/// The file's path for a path of the ClusterBootstrap.
pub(super) fn of_bootstrap(path: &str) -> String {
    path.strip_prefix("spec.").unwrap_or(path).to_owned()
}

/// The file's path for a path of the ProviderConfig.
pub(super) fn of_provider(path: &str, file: &Value) -> String {
    for (object, written) in SPELLINGS {
        if path == object && has(file, written) {
            return written.to_owned();
        }
    }
    if path == "spec.proxmox.vmidRange" && has(file, "providerConfig.proxmox.vmidStart") {
        return "providerConfig.proxmox.vmidStart".to_owned();
    }
    match path.strip_prefix("spec.network") {
        Some(rest) if rest.starts_with(".nodeAddresses") && has(file, "network.nodeAddresses") => {
            format!("network{rest}")
        }
        Some(rest) => format!("providerNetwork{rest}"),
        None => format!("providerConfig.{}", path.strip_prefix("spec.").unwrap_or(path)),
    }
}

/// A rule's words with the file's paths in them.
pub(super) fn words_of_bootstrap(text: &str) -> String {
    text.replace("spec.", "")
}

/// The same, for the ProviderConfig.
pub(super) fn words_of_provider(text: &str) -> String {
    text.replace("spec.network", "providerNetwork").replace("spec.", "providerConfig.")
}

fn has(file: &Value, path: &str) -> bool {
    file.pointer(&format!("/{}", path.replace('.', "/"))).is_some_and(|value| !value.is_null())
}
