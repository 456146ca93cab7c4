//! The changes that the driver makes at Proxmox: as a request, and in words.

use crate::change::PlannedChange;
use crate::http::escape;
use reqwest::Method;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mutation {
    pub(crate) node: String,
    pub(crate) vmid: u32,
    /// The machine, in our words.
    pub(crate) name: String,
    /// Whether the id was chosen by us, and so is the same in every run.
    pub(crate) fixed_id: bool,
    pub(crate) verb: Verb,
}

/// What is done to the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verb {
    Clone {
        template: u32,
        template_node: String,
        storage: String,
        description: String,
    },
    /// From a downloaded image; everything is said in one call.
    Create {
        image: String,
        settings: Vec<(String, String)>,
        words: String,
    },
    /// Refused when the configuration has changed since it was read: a late second call must not attach disks twice.
    Configure {
        settings: Vec<(String, String)>,
        digest: Option<String>,
        words: String,
    },
    Resize {
        disk: String,
        gb: u32,
    },
    Start,
    Stop,
    Destroy,
}

/// A request, before it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wire {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) form: Vec<(String, String)>,
}

impl Mutation {
    pub(crate) fn wire(&self) -> Wire {
        let (node, vmid) = (escape(&self.node), self.vmid);
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let machine = format!("/nodes/{node}/qemu/{vmid}");
        let (method, path, form) = match &self.verb {
            Verb::Clone { template, template_node, storage, description } => {
                let mut form = vec![
                    pair("newid", &vmid.to_string()),
                    pair("name", &self.name),
                    pair("full", "1"),
                    pair("storage", storage),
                    pair("description", description),
                ];
                if *template_node != self.node {
                    form.push(pair("target", &self.node));
                }
                (Method::POST, format!("/nodes/{}/qemu/{template}/clone", escape(template_node)), form)
            }
            Verb::Create { settings, .. } => {
                let mut form = vec![pair("vmid", &vmid.to_string()), pair("name", &self.name)];
                form.extend(settings.iter().cloned());
                (Method::POST, format!("/nodes/{node}/qemu"), form)
            }
            Verb::Configure { settings, digest, .. } => {
                let mut form = settings.clone();
                form.extend(digest.iter().map(|digest| pair("digest", digest)));
                (Method::POST, format!("{machine}/config"), form)
            }
            Verb::Resize { disk, gb } => (
                Method::PUT,
                format!("{machine}/resize"),
                vec![pair("disk", disk), pair("size", &format!("{gb}G"))],
            ),
            Verb::Start => (Method::POST, format!("{machine}/status/start"), Vec::new()),
            Verb::Stop => (Method::POST, format!("{machine}/status/stop"), Vec::new()),
            // Only the disks in its configuration. Unreferenced ones go by the id in their name, and on a storage that sites
            // share they may be those of another site's machine with the same id.
            Verb::Destroy => (Method::DELETE, machine, vec![pair("purge", "1")]),
        };
        Wire { method, path, form }
    }

    /// In words, the same in a dry run and in a real one.
    pub(crate) fn change(&self) -> PlannedChange {
        let vm = if self.fixed_id { format!("VM {}", self.vmid) } else { "the VM".to_owned() };
        let new = if self.fixed_id { vm.clone() } else { "a VM with the next free id".to_owned() };
        let node = &self.node;
        let detail = match &self.verb {
            Verb::Clone { template, storage, .. } => {
                format!("clone template {template} to {new} on {node}, disks on {storage}")
            }
            Verb::Create { image, words, .. } => {
                format!("create {new} on {node} from {}: {words}", shown(image))
            }
            Verb::Configure { words, .. } => format!("set up {vm}: {words}"),
            Verb::Resize { disk, gb } => format!("grow {disk} of {vm} to {gb} GiB"),
            Verb::Start => format!("start {vm}"),
            Verb::Stop => format!("stop {vm}"),
            Verb::Destroy => format!("delete {vm} with its disks"),
        };
        PlannedChange::new("machine", &self.name, detail)
    }

    /// What is waited for afterwards.
    pub(crate) fn waiting_for(&self) -> String {
        let vmid = self.vmid;
        match &self.verb {
            Verb::Clone { template, .. } => {
                format!("the clone of template {template} to VM {vmid} to finish")
            }
            Verb::Create { image, .. } => format!("VM {vmid} to be made from {image}"),
            Verb::Configure { .. } => format!("VM {vmid} to be set up"),
            Verb::Resize { disk, .. } => format!("{disk} of VM {vmid} to grow"),
            Verb::Start => format!("VM {vmid} to start"),
            Verb::Stop => format!("VM {vmid} to stop"),
            Verb::Destroy => format!("VM {vmid} and its disks to be deleted"),
        }
    }
}

/// An image of ours without the ids in its name, which differ from run to run.
fn shown(image: &str) -> &str {
    image.split_once(".butler.").map_or(image, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_goes_with_its_own_disks_only() {
        let node = "pve1".to_owned();
        let gone = Mutation { node, vmid: 200, name: "a".to_owned(), fixed_id: true, verb: Verb::Destroy };
        let wire = gone.wire();
        assert_eq!((wire.method, wire.path.as_str()), (Method::DELETE, "/nodes/pve1/qemu/200"));
        assert_eq!(wire.form, [("purge".to_owned(), "1".to_owned())], "no disks that only carry the id");
    }
}
