//! `List` and `Read`: the few files that clients of a node look at.

use super::Api;
use crate::machine::Machine;
use butler_talos::api::machine::FileInfo;
use tonic::{Code, Status};

const ETCD: &str = "/var/lib/etcd";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const DIRECTORY: u32 = 0o20_000_000_700;
const FILE: u32 = 0o600;

impl Api {
    pub(super) fn list_files(&self, root: &str, recurse: bool) -> Result<Vec<FileInfo>, Status> {
        let machine = self.node.machine();
        let root = if root.len() > 1 { root.trim_end_matches('/') } else { root };
        let below = root.strip_prefix(ETCD).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        if below.is_none() {
            return Err(Status::unimplemented(format!("simulated node: List of {root} is not simulated")));
        }
        let all = etcd_tree(&machine);
        if !all.iter().any(|(path, _)| path == root) {
            // Talos puts it into the stream as an error of the entry's.
            let error = format!("lstat {root}: no such file or directory");
            return Ok(vec![FileInfo { name: root.to_string(), error, ..FileInfo::default() }]);
        }
        let inside = |path: &str| {
            let rest = path.strip_prefix(root)?;
            let rest = if rest.is_empty() { "." } else { rest.strip_prefix('/')? };
            (recurse || rest.matches('/').count() == 0).then(|| rest.to_string())
        };
        let found = all.iter().filter_map(|(path, is_dir)| {
            inside(path).map(|relative_name| FileInfo {
                name: path.clone(),
                relative_name,
                is_dir: *is_dir,
                mode: if *is_dir { DIRECTORY } else { FILE },
                size: if *is_dir { 4096 } else { 64_000_000 },
                ..FileInfo::default()
            })
        });
        Ok(found.collect())
    }

    pub(super) fn read_file(&self, path: &str) -> Result<String, Status> {
        if path == BOOT_ID {
            return Ok(format!("{}\n", self.node.journal.boot_id()));
        }
        Err(Status::new(Code::Unimplemented, format!("simulated node: Read of {path} is not simulated")))
    }
}

/// The data directory: always there on a control plane, empty until etcd has written into it.
fn etcd_tree(machine: &Machine) -> Vec<(String, bool)> {
    let mut tree = Vec::new();
    if machine.is_control_plane() {
        tree.push((ETCD.to_string(), true));
    }
    if machine.disk.etcd.is_some() {
        for name in ["member", "member/snap", "member/wal"] {
            tree.push((format!("{ETCD}/{name}"), true));
        }
        tree.push((format!("{ETCD}/member/snap/db"), false));
        tree.push((format!("{ETCD}/member/wal/0000000000000000-0000000000000000.wal"), false));
    }
    tree
}
