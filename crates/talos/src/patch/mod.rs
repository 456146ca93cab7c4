//! The user's own changes to a rendered config: RFC 6902 patches and strategic merge patches, told apart as Talos does.
//!
//! Better than talosctl in one point: RFC 6902 patches apply to the v1alpha1 document whatever other documents there are. A
//! path that a contract has moved into such a document is an error with its new place, not a setting without effect.

mod delete;
mod json;
mod merge;

use crate::config::{DocumentId, MachineConfig, read};
use crate::contract::Contract;
use crate::validate::Problem;
use crate::yaml::{self, Data, Node};

/// A patch that was read.
#[derive(Debug, Clone)]
pub struct Patch {
    /// How it is called in errors: a file name, or `configPatches[2]`.
    name: String,
    form: Form,
}

#[derive(Clone)]
enum Form {
    /// Operations in order.
    Json(Vec<json_patch::PatchOperation>),
    Merge(Vec<Node>),
}

#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    #[error("cannot read the patch {patch}: line {line}: {why}")]
    NotYaml { patch: String, line: usize, why: String },
    #[error("cannot read the patch {patch}: operation {index} is not one of RFC 6902: {why}")]
    Operation { patch: String, index: usize, why: String },
    #[error("cannot apply the patch {patch}: operation {index} ({op} {path}): {why}")]
    Json { patch: String, index: usize, op: &'static str, path: String, why: String },
    #[error(
        "cannot apply the patch {patch}: operation {index} ({path}): in Talos {contract} this is in the document {document}: use a strategic merge patch for that"
    )]
    Moved { patch: String, index: usize, path: String, contract: Contract, document: &'static str },
    #[error("cannot apply the patch {patch}: {document}: {path}: {why}")]
    Merge { patch: String, document: DocumentId, path: String, why: String },
    #[error("cannot apply the patch {patch}: {}", list(problems))]
    Problems { patch: String, problems: Vec<Problem> },
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

// === impl Patch ===

impl Patch {
    /// Reads a patch: config documents are a strategic merge patch, a list of operations (in YAML or JSON) is RFC 6902. An
    /// empty text is a patch that changes nothing.
    pub fn parse(name: impl Into<String>, text: &str) -> Result<Patch, PatchError> {
        let name = name.into();
        let mut documents = Vec::new();
        for parsed in yaml::parse(text) {
            match parsed {
                Ok(node) => documents.push(node),
                Err(error) => {
                    return Err(PatchError::NotYaml { patch: name, line: error.at.line, why: error.why });
                }
            }
        }
        let form = match documents.as_slice() {
            [Node { data: Data::List(operations), .. }] => Form::Json(json::parse(&name, operations)?),
            _ => Form::Merge(documents),
        };
        Ok(Patch { name, form })
    }

    /// The config with this patch applied, checked as strictly as a config that comes from outside.
    pub fn apply(&self, config: &MachineConfig, contract: Contract) -> Result<MachineConfig, PatchError> {
        let mut patched = config.clone();
        match &self.form {
            Form::Json(operations) => json::apply(&self.name, operations, &mut patched, contract)?,
            Form::Merge(documents) => {
                for document in documents {
                    merge::apply(&self.name, document, &mut patched, contract)?;
                }
            }
        }
        // A number for a string's place is fine in YAML; reading the text again makes it one.
        let again = read(&patched.to_yaml(), Some(contract));
        if again.problems.is_empty() {
            Ok(again.config)
        } else {
            let mut problems = again.problems;
            // Places in a text that nobody sees help nobody.
            problems.iter_mut().for_each(|problem| problem.mark = None);
            Err(PatchError::Problems { patch: self.name.clone(), problems })
        }
    }
}

impl std::fmt::Debug for Form {
    /// Patches may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Form::Json(operations) => write!(f, "Json({} operations)", operations.len()),
            Form::Merge(documents) => write!(f, "Merge({} documents)", documents.len()),
        }
    }
}

/// Applies patches in order.
pub fn apply_patches(
    config: MachineConfig,
    patches: &[Patch],
    contract: Contract,
) -> Result<MachineConfig, PatchError> {
    patches.iter().try_fold(config, |config, patch| patch.apply(&config, contract))
}

#[cfg(test)]
mod tests;
