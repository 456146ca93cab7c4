//! What is wrong with a machine config: all that Talos itself would say, and what it finds out too late to say.
//!
//! - `talos.rs`, `network.rs`, `documents.rs`: Talos' own checks, with its own words, so that what a node answers and what
//!   we say before are the same. Reading strictly (unknown keys, types) is done when the text is read.
//! - `ours.rs`: what Talos takes and what then does not work, seen from one config.
//! - `cluster.rs`: the same, seen from a whole cluster.
//!
//! Everything is found at once. No message holds a secret.

mod cluster;
mod documents;
mod names;
mod network;
mod ours;
mod problem;
mod selector;
mod talos;

pub use cluster::{check_cluster, check_together};
pub use problem::{Problem, Severity, Source};

use crate::config::{DocumentId, MachineConfig, read};
use crate::contract::{Contract, TalosVersion};
use crate::yaml::{Data, Mark, Node};
use serde_json::Value;

/// Where a node runs, as far as its config is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Talos installs itself to a disk.
    Metal,
    /// It is installed already.
    Cloud,
    Container,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Metal => "metal",
            Mode::Cloud => "cloud",
            Mode::Container => "container",
        }
    }
}

/// Everything that is wrong with a text, with places. The contract is that of its installer image if none is given.
pub fn validate_text(text: &str, mode: Mode, contract: Option<Contract>) -> Vec<Problem> {
    let contract = contract.or_else(|| contract_of(&read(text, None).config));
    let read = read(text, contract);
    let mut problems = read.problems;
    if read.config.documents.is_empty() {
        if problems.is_empty() {
            problems.push(Problem::error(Source::Talos, "", "", "there is no document in it"));
        }
        return problems;
    }
    let mut checked = validate(&read.config, mode, contract);
    for problem in &mut checked {
        let tree = read.trees.iter().find(|(id, _)| *id == problem.document).or(read.trees.first());
        problem.mark = tree.map(|(_, node)| place(node, &problem.path));
    }
    // A value that could not be read is missing to the checks, which is no second problem.
    checked.retain(|found| {
        !problems.iter().any(|known| known.path == found.path && known.document == found.document)
    });
    problems.append(&mut checked);
    problems.sort_by_key(|problem| (problem.mark.is_none(), problem.mark, problem.severity));
    problems
}

/// Everything that is wrong with a config.
pub fn validate(config: &MachineConfig, mode: Mode, contract: Option<Contract>) -> Vec<Problem> {
    let contract = contract.or_else(|| contract_of(config));
    let mut checker = Checker { config, mode, contract, problems: Vec::new() };
    talos::check(&mut checker);
    documents::check(&mut checker);
    ours::check(&mut checker);
    checker.problems
}

/// The contract of the Talos that a config installs, when its installer image says so.
pub fn contract_of(config: &MachineConfig) -> Option<Contract> {
    let image = config.text("machine.install.image")?;
    let (_, tag) = image.rsplit_once(":v")?;
    TalosVersion::parse(tag.split('@').next()?).ok().map(|version| version.contract())
}

/// The checks of one config, in progress.
struct Checker<'a> {
    config: &'a MachineConfig,
    mode: Mode,
    contract: Option<Contract>,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    /// About the v1alpha1 document, by Talos.
    fn error(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(Problem::error(Source::Talos, crate::config::MAIN, path, message));
    }

    fn warning(&mut self, path: &str, message: impl Into<String>) {
        let problem = Problem::error(Source::Talos, crate::config::MAIN, path, message);
        self.problems.push(Problem { severity: Severity::Warning, ..problem });
    }

    /// About the v1alpha1 document, by us.
    fn ours(&mut self, path: &str, message: impl Into<String>) {
        self.problems.push(Problem::error(Source::Butler, crate::config::MAIN, path, message));
    }

    fn about(&mut self, source: Source, document: DocumentId, path: &str, message: impl Into<String>) {
        self.problems.push(Problem { document, ..Problem::error(source, "", path, message) });
    }

    fn text(&self, path: &str) -> &str {
        self.config.text(path).unwrap_or_default()
    }

    fn flag(&self, path: &str) -> bool {
        self.config.get(path).and_then(Value::as_bool).unwrap_or_default()
    }

    fn list(&self, path: &str) -> Vec<Value> {
        self.config.get(path).and_then(Value::as_array).cloned().unwrap_or_default()
    }

    /// The texts of a list, with their paths.
    fn texts(&self, path: &str) -> Vec<(String, String)> {
        self.list(path)
            .iter()
            .enumerate()
            .filter_map(|(index, value)| Some((format!("{path}[{index}]"), value.as_str()?.to_owned())))
            .collect()
    }

    fn is_set(&self, path: &str) -> bool {
        self.config.get(path).is_some_and(|value| !value.is_null())
    }

    fn is_control_plane(&self) -> bool {
        matches!(self.text("machine.type"), "controlplane" | "init")
    }
}

/// The place of a path, or of the nearest thing to it that is there.
fn place(root: &Node, path: &str) -> Mark {
    let (mut node, mut mark, mut rest) = (root, root.at, path);
    loop {
        rest = rest.strip_prefix('.').unwrap_or(rest);
        let (key, after) = if let Some(inside) = rest.strip_prefix('[') {
            inside.split_once(']').unwrap_or((inside, ""))
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            rest.split_at(end)
        };
        if key.is_empty() {
            return mark;
        }
        let next = match &node.data {
            Data::Map(entries) => {
                entries.iter().find(|(_, name, _)| name == key).map(|(at, _, node)| (*at, node))
            }
            Data::List(items) => {
                key.parse::<usize>().ok().and_then(|index| items.get(index)).map(|node| (node.at, node))
            }
            Data::Scalar(_) => None,
        };
        let Some((at, found)) = next else { return mark };
        (mark, node, rest) = (at, found, after);
    }
}

#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod tests;
