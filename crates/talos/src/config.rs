//! A machine config: the v1alpha1 document and those beside it.

use crate::contract::Contract;
use crate::fields::{self, Reader, Type, TypeOrder};
use crate::validate::{Problem, Source};
use crate::yaml::{self, Data, Mark, Node};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// All documents of one node. The text of it is secret; `Debug` shows the kinds only.
#[derive(Clone, PartialEq)]
pub struct MachineConfig {
    pub(crate) documents: Vec<Document>,
}

/// One document.
#[derive(Clone, PartialEq)]
pub struct Document {
    /// `Config` for the v1alpha1 document, which has no kind of its own.
    pub(crate) kind: &'static str,
    pub(crate) value: Value,
}

/// What tells documents apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DocumentId {
    pub kind: String,
    /// Empty when documents of this kind have no name.
    pub name: String,
}

/// The kind by which the v1alpha1 document goes here.
pub(crate) const MAIN: &str = "Config";
const API_VERSION: &str = "v1alpha1";
/// More than any config, which a node takes only below 32 MiB anyway.
const MAX_BYTES: usize = 32 << 20;

/// A text that was read: the config, what is wrong with it, and the trees with the places of everything.
pub(crate) struct Read {
    pub(crate) config: MachineConfig,
    pub(crate) trees: Vec<(DocumentId, Node)>,
    pub(crate) problems: Vec<Problem>,
}

// === impl MachineConfig ===

impl MachineConfig {
    /// Reads a config as strictly as Talos does: unknown keys, wrong types and repeated documents are problems.
    ///
    /// Without a contract, the fields of all supported versions are known.
    pub fn from_yaml(text: &str, contract: Option<Contract>) -> Result<MachineConfig, Vec<Problem>> {
        let read = read(text, contract);
        if read.problems.is_empty() { Ok(read.config) } else { Err(read.problems) }
    }

    /// The text for a node, in the shape of Talos' own encoder, without comments. It is secret.
    pub fn to_yaml(&self) -> String {
        self.documents.iter().map(Document::to_yaml).collect::<Vec<_>>().join("---\n")
    }

    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// The v1alpha1 document.
    pub fn main(&self) -> Option<&Value> {
        self.documents.iter().find(|document| document.kind == MAIN).map(|document| &document.value)
    }

    /// The first document of a kind, with that name if one is asked for.
    pub fn document(&self, kind: &str, name: Option<&str>) -> Option<&Value> {
        self.documents
            .iter()
            .find(|document| document.kind == kind && name.is_none_or(|name| document.name() == name))
            .map(|document| &document.value)
    }

    /// A value of the v1alpha1 document by its path, such as `cluster.controlPlane.endpoint`.
    pub fn get(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(self.main()?, |value, key| value.get(key))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.get(path).and_then(Value::as_str)
    }

    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Document> {
        self.documents.iter().filter(move |document| document.kind == kind)
    }
}

impl fmt::Debug for MachineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.documents.iter().map(Document::id)).finish()
    }
}

// === impl Document ===

impl Document {
    /// A document of a kind that the table has; `value` without `apiVersion` and `kind`.
    pub(crate) fn new(kind: &'static str, mut value: Value) -> Document {
        if kind != MAIN {
            value["apiVersion"] = API_VERSION.into();
            value["kind"] = kind.into();
        }
        Document { kind, value }
    }

    /// `Config` for the v1alpha1 document.
    pub fn kind(&self) -> &str {
        self.kind
    }

    pub fn name(&self) -> &str {
        match self.kind {
            MAIN => "",
            _ => self.value.get("name").and_then(Value::as_str).unwrap_or_default(),
        }
    }

    pub fn value(&self) -> &Value {
        &self.value
    }

    pub fn id(&self) -> DocumentId {
        DocumentId { kind: self.kind.to_owned(), name: self.name().to_owned() }
    }

    pub(crate) fn ty(&self) -> Type {
        Type::Struct(self.kind)
    }

    fn to_yaml(&self) -> String {
        yaml::write(&self.value, &TypeOrder(self.ty()))
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id())
    }
}

impl fmt::Display for DocumentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind.as_str(), self.name.as_str()) {
            (MAIN, _) => f.write_str("v1alpha1"),
            (kind, "") => f.write_str(kind),
            (kind, name) => write!(f, "{kind}/{name}"),
        }
    }
}

// === reading ===

/// Reads all documents, as far as they can be read.
pub(crate) fn read(text: &str, contract: Option<Contract>) -> Read {
    let mut out =
        Read { config: MachineConfig { documents: Vec::new() }, trees: Vec::new(), problems: Vec::new() };
    if text.len() > MAX_BYTES {
        let text = format!("is larger than {} MiB", MAX_BYTES >> 20);
        out.problems.push(Problem::error(Source::Talos, "", "", text));
        return out;
    }
    let mut seen = BTreeSet::new();
    for parsed in yaml::parse(text) {
        let node = match parsed {
            Ok(node) => node,
            Err(error) => {
                out.problems.push(Problem::error(Source::Talos, "", "", error.why).at(error.at));
                continue;
            }
        };
        let kind = match kind_of(&node, contract) {
            Ok(kind) => kind,
            Err((text, at)) => {
                out.problems.push(Problem::error(Source::Talos, "", "", text).at(at));
                continue;
            }
        };
        let (document, mut problems) = read_document(&node, kind, contract);
        let id = document.id();
        out.problems.append(&mut problems);
        if !seen.insert(id.clone()) {
            let text = format!("the document {id} is there twice");
            out.problems.push(Problem::error(Source::Talos, "", "", text).at(node.at));
        }
        out.trees.push((id, node));
        out.config.documents.push(document);
    }
    // Talos writes the v1alpha1 document first, wherever it was.
    out.config.documents.sort_by_key(|document| document.kind != MAIN);
    out
}

/// One document of a known kind, and what is wrong with it.
pub(crate) fn read_document(
    node: &Node,
    kind: &'static str,
    contract: Option<Contract>,
) -> (Document, Vec<Problem>) {
    let mut problems = Vec::new();
    let value =
        Reader { contract, document: kind, problems: &mut problems }.read(node, &Type::Struct(kind), "");
    let document = Document { kind, value };
    for problem in &mut problems {
        problem.document = document.id();
    }
    (document, problems)
}

/// Which document a tree is.
pub(crate) fn kind_of(node: &Node, contract: Option<Contract>) -> Result<&'static str, (String, Mark)> {
    let Data::Map(entries) = &node.data else {
        return Err((format!("a document must be a map, not {}", node.kind()), node.at));
    };
    let Some(kind) = node.get("kind") else {
        let main = ["machine", "cluster", "debug", "persist"];
        let is_main = entries.iter().any(|(_, key, _)| main.contains(&key.as_str()))
            || node.get("version").and_then(Node::text) == Some(API_VERSION);
        return if is_main { Ok(MAIN) } else { Err(("the document has no kind".into(), node.at)) };
    };
    let name = kind.text().unwrap_or_default();
    match node.get("apiVersion").map(|node| node.text().unwrap_or_default()) {
        None => return Err((format!("the document {name} has no apiVersion"), node.at)),
        Some(API_VERSION) => {}
        Some(other) => return Err((format!("{name} has no version {other:?}"), kind.at)),
    }
    match fields::document_kind(name) {
        Some(known) if fields::document_known(known, contract) => Ok(known),
        Some(known) => {
            let since = fields::document_since(known).map(|c| c.to_string()).unwrap_or_default();
            let version = contract.map(|c| c.to_string()).unwrap_or_default();
            Err((format!("{known} is not known to Talos {version}: it came with {since}"), kind.at))
        }
        None => Err((format!("{name:?} is not a kind of document that Talos has"), kind.at)),
    }
}
