//! RFC 6902 on the v1alpha1 document.

use super::PatchError;
use crate::config::{Document, MAIN, MachineConfig};
use crate::contract::Contract;
use crate::yaml::Node;
use json_patch::PatchOperation;
use serde_json::{Value, json};

/// What a contract has moved out of the v1alpha1 document: since when, from where, to where.
const MOVED: [(Contract, &str, &str); 10] = [
    (Contract::V1_12, "/machine/network/hostname", "HostnameConfig"),
    (Contract::V1_12, "/machine/features/stableHostname", "HostnameConfig"),
    (Contract::V1_12, "/machine/network/interfaces", "LinkConfig"),
    (Contract::V1_12, "/machine/network/nameservers", "ResolverConfig"),
    (Contract::V1_12, "/machine/network/searchDomains", "ResolverConfig"),
    (Contract::V1_12, "/machine/network/disableSearchDomain", "ResolverConfig"),
    (Contract::V1_12, "/machine/network/extraHostEntries", "StaticHostConfig"),
    (Contract::V1_12, "/machine/time", "TimeSyncConfig"),
    (Contract::V1_12, "/machine/registries", "RegistryMirrorConfig"),
    (Contract::V1_13, "/machine/network/kubespan", "KubeSpanConfig"),
];

pub(super) fn parse(patch: &str, operations: &[Node]) -> Result<Vec<PatchOperation>, PatchError> {
    operations
        .iter()
        .enumerate()
        .map(|(index, node)| {
            serde_json::from_value(node.to_value()).map_err(|error| PatchError::Operation {
                patch: patch.to_owned(),
                index,
                why: reason(&error),
            })
        })
        .collect()
}

/// The library's own words, without the value that it quotes: it may be a secret.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.as_str() {
        text if text.starts_with("missing field") || text.starts_with("unknown variant") => text.to_owned(),
        _ => "it needs op, path, and what belongs to the op".to_owned(),
    }
}

pub(super) fn apply(
    patch: &str,
    operations: &[PatchOperation],
    config: &mut MachineConfig,
    contract: Contract,
) -> Result<(), PatchError> {
    if operations.is_empty() {
        return Ok(());
    }
    if config.main().is_none() {
        config.documents.insert(0, Document::new(MAIN, json!({})));
    }
    let Some(main) = config.documents.iter_mut().find(|document| document.kind == MAIN) else {
        return Ok(());
    };
    for (index, operation) in operations.iter().enumerate() {
        let path = operation.path().to_string();
        let moved = |document| PatchError::Moved {
            patch: patch.to_owned(),
            index,
            path: path.clone(),
            contract,
            document,
        };
        if let Some((_, document)) = moved_paths(contract).find(|(from, _)| is_below(&path, from)) {
            return Err(moved(document));
        }
        let before: Vec<bool> =
            moved_paths(contract).map(|(from, _)| main.value.pointer(from).is_some()).collect();
        let one = json_patch::Patch(vec![operation.clone()]);
        json_patch::patch(&mut main.value, &one).map_err(|error| PatchError::Json {
            patch: patch.to_owned(),
            index,
            op: op_name(operation),
            path: path.clone(),
            why: explain(&main.value, &path, &error.kind),
        })?;
        // The path may be above what has moved, with the moved key in the value.
        let appeared = moved_paths(contract)
            .zip(before)
            .find(|((from, _), was)| !was && main.value.pointer(from).is_some());
        if let Some(((_, document), _)) = appeared {
            return Err(moved(document));
        }
    }
    Ok(())
}

fn moved_paths(contract: Contract) -> impl Iterator<Item = (&'static str, &'static str)> {
    MOVED.into_iter().filter(move |(since, _, _)| contract >= *since).map(|(_, from, to)| (from, to))
}

fn is_below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn op_name(operation: &PatchOperation) -> &'static str {
    match operation {
        PatchOperation::Add(_) => "add",
        PatchOperation::Remove(_) => "remove",
        PatchOperation::Replace(_) => "replace",
        PatchOperation::Move(_) => "move",
        PatchOperation::Copy(_) => "copy",
        PatchOperation::Test(_) => "test",
    }
}

/// Why an operation fails, with the part of its path that is there.
fn explain(document: &Value, path: &str, kind: &json_patch::PatchErrorKind) -> String {
    let mut there = String::new();
    for part in path.split('/').skip(1) {
        let next = format!("{there}/{part}");
        if document.pointer(&next).is_none() {
            let place = if there.is_empty() { "the document".to_owned() } else { there };
            return format!("{kind}: {place} has no {part:?}");
        }
        there = next;
    }
    kind.to_string()
}
