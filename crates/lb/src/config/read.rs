//! From the text of a file to a configuration, or to everything that is wrong with it.

use super::document::{self, Data, Node};
use super::finding::{Finding, Severity, TOP, has_errors, report};
use super::model::Config;
use super::{files, rules, schema, shape};
use std::io::Read as _;
use std::path::Path;

/// A file that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// What is hardly meant.
    pub warnings: Vec<Finding>,
}

/// A file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not there, or not readable.
    #[error("cannot read {file}: {why}")]
    Unreadable {
        /// Its name.
        file: String,
        /// What the system says.
        why: String,
    },
    /// It says something that can't work.
    #[error("{}", report(file, findings).join("\n"))]
    Wrong {
        /// Its name.
        file: String,
        /// All that is wrong, and all that is hardly meant.
        findings: Vec<Finding>,
    },
}

/// More than any sane file, and little enough to hold in memory with its marks.
const MAX_BYTES: u64 = 4 << 20;

/// Reads and checks a file, and looks at the files that it names. `-` is standard input.
pub fn load(file: &Path) -> Result<Loaded, ReadError> {
    let shown = shown(file);
    let text = text_of(file).map_err(|why| ReadError::Unreadable { file: shown.clone(), why })?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (config, findings) = check(&text, Some(folder));
    match config {
        Some(config) => Ok(Loaded { config, warnings: findings }),
        None => Err(ReadError::Wrong { file: shown, findings }),
    }
}

/// The socket of the runtime API that a file names, whatever else is wrong with it: who reloads a wrong file must be told so by
/// the process that refuses it.
pub fn admin_socket(file: &Path) -> Option<String> {
    let text = text_of(file).ok()?;
    let root = document::parse(&text).ok()??;
    root.to_value().pointer("/admin/socket")?.as_str().map(str::to_owned)
}

/// A file's name in messages.
pub fn shown(file: &Path) -> String {
    if file == Path::new("-") { "<stdin>".to_owned() } else { file.display().to_string() }
}

/// Checks a text. With a folder, paths in it are relative to that folder, and the files that it names are looked at.
pub fn check(text: &str, folder: Option<&Path>) -> (Option<Config>, Vec<Finding>) {
    let mut findings = Vec::new();
    let Some(root) = only_document(text, &mut findings) else { return (None, findings) };
    shape::check(&root, schema::whole(), &mut findings);
    if has_errors(&findings) {
        return (None, findings);
    }
    let mut config = match serde_json::from_value::<Config>(root.to_value().without_nulls()) {
        Ok(config) => config,
        Err(error) => {
            findings.push(wrong(error.to_string(), ""));
            return (None, findings);
        }
    };
    let mut report = rules::Report { root: &root, findings };
    rules::check(&config, &mut report);
    if let Some(folder) = folder {
        files::resolve(&mut config, folder);
        files::check(&config, &mut report);
    }
    let findings = report.findings;
    ((!has_errors(&findings)).then_some(config), findings)
}

/// The one document of the file.
fn only_document(text: &str, findings: &mut Vec<Finding>) -> Option<Node> {
    let help = "it begins with listeners: or vips:";
    match document::parse(text) {
        Err(slip) => {
            let text = format!("not YAML: {}", slip.why);
            findings.push(Finding { at: slip.at, severity: Severity::Error, text, help: String::new() });
            None
        }
        Ok(None) => {
            findings.push(wrong("the file is empty".to_owned(), help));
            None
        }
        Ok(Some(node)) if !matches!(node.data, Data::Map(_)) => {
            findings.push(wrong("not a configuration: a mapping is expected".to_owned(), help));
            None
        }
        Ok(Some(node)) => Some(node),
    }
}

fn wrong(text: String, help: &str) -> Finding {
    Finding { at: TOP, severity: Severity::Error, text, help: help.to_owned() }
}

fn text_of(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = match file == Path::new("-") {
        true => std::io::stdin().take(MAX_BYTES + 1).read_to_end(&mut bytes),
        false => std::fs::File::open(file).and_then(|open| open.take(MAX_BYTES + 1).read_to_end(&mut bytes)),
    };
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("it is larger than {} MiB", MAX_BYTES >> 20));
    }
    String::from_utf8(bytes)
        .map_err(|error| format!("it is not UTF-8 from byte {} on", error.utf8_error().valid_up_to()))
}

/// An empty value means the same as a key that is not there.
trait WithoutNulls {
    fn without_nulls(self) -> Self;
}

impl WithoutNulls for serde_json::Value {
    fn without_nulls(self) -> Self {
        match self {
            serde_json::Value::Object(map) => {
                let kept = map.into_iter().filter(|(_, value)| !value.is_null());
                kept.map(|(key, value)| (key, value.without_nulls())).collect()
            }
            serde_json::Value::Array(items) => items.into_iter().map(WithoutNulls::without_nulls).collect(),
            other => other,
        }
    }
}
