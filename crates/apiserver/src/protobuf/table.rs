//! The generated table of messages: which fields they have, and how these look in JSON.
//!
//! `cargo xtask protos` makes `messages.gz` and describes its lines. It is unpacked when the first binary body comes: a
//! server whose clients speak JSON never pays for it.

use flate2::read::GzDecoder;
use std::collections::HashMap;
use std::io::Read;
use std::sync::OnceLock;

static PACKED: &[u8] = include_bytes!("messages.gz");

/// Where the messages are kept that belong to all API versions.
const META: &str = "meta/v1";

/// All messages; types refer to them by position.
#[derive(Debug, Default)]
pub(super) struct Table {
    messages: Vec<Vec<Field>>,
    /// `apps/v1:Deployment` to position.
    names: HashMap<String, usize>,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) name: Box<str>,
    pub(super) shape: Shape,
    pub(super) ty: Type,
    /// A zero that was sent is kept: Go has a pointer there, or always writes the field.
    pub(super) keeps_zero: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Shape {
    One,
    List,
    Map,
    /// The fields of the message are fields of its parent.
    Inline,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Type {
    Text,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    Time,
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON inside of a message.
    Raw,
    /// A message that is a plain list of text.
    TextList,
    /// A message that is a list, a schema or a flag, whichever it has.
    Choice(usize),
    Message(usize),
}

/// The one table, unpacked at first use.
pub(super) fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let mut text = String::new();
        // The bytes are part of the program; a test unpacks them. Should they ever be damaged, no kind is known in this
        // format, and requests say so.
        if let Err(error) = GzDecoder::new(PACKED).read_to_string(&mut text) {
            tracing::error!(%error, "unpacking the table of protobuf messages");
        }
        Table::parse(&text)
    })
}

// === impl Table ===

impl Table {
    /// The message of a kind. Those for options and answers are the same in every API version.
    pub(super) fn find(&self, api_version: &str, kind: &str) -> Option<usize> {
        let in_version = |version: &str| self.names.get(&format!("{version}:{kind}")).copied();
        let shared = || in_version(META).filter(|_| kind.ends_with("Options") || kind == "Status");
        in_version(api_version).or_else(shared)
    }

    pub(super) fn fields(&self, message: usize) -> &[Field] {
        self.messages.get(message).map_or(&[], Vec::as_slice)
    }

    fn parse(text: &str) -> Self {
        let mut names = HashMap::new();
        let mut lines = Vec::new();
        let mut version = "";
        for line in text.lines() {
            match (line.strip_prefix('='), line.split_once('\t')) {
                (Some(name), _) => version = name,
                (None, Some((name, fields))) => {
                    names.insert(format!("{version}:{name}"), lines.len());
                    lines.push((version, fields));
                }
                (None, None) => {}
            }
        }
        let fields = |(version, text): &(&str, &str)| {
            text.split(';').filter_map(|field| parse_field(field, version, &names)).collect()
        };
        let messages = lines.iter().map(fields).collect();
        Self { messages, names }
    }

    /// Messages by name: for tests that walk everything.
    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, usize)> {
        self.names.iter().map(|(name, position)| (name.as_str(), *position))
    }
}

fn parse_field(text: &str, version: &str, names: &HashMap<String, usize>) -> Option<Field> {
    let mut words = text.split(' ');
    let (head, name, ty) = (words.next()?, words.next()?, words.next()?);
    let digits = head.find(|c: char| !c.is_ascii_digit()).unwrap_or(head.len());
    let (number, flags) = head.split_at(digits);
    let shape = match flags {
        flags if flags.contains('r') => Shape::List,
        flags if flags.contains('m') => Shape::Map,
        flags if flags.contains('i') => Shape::Inline,
        _ => Shape::One,
    };
    let ty = parse_type(ty, version, names)?;
    Some(Field {
        number: number.parse().ok()?,
        name: name.into(),
        shape,
        ty,
        keeps_zero: flags.contains('k'),
    })
}

fn parse_type(text: &str, version: &str, names: &HashMap<String, usize>) -> Option<Type> {
    Some(match text {
        "string" => Type::Text,
        "bytes" => Type::Bytes,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "double" => Type::Double,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "quantity" => Type::Quantity,
        "intorstring" => Type::IntOrString,
        "raw" => Type::Raw,
        "*string" => Type::TextList,
        _ => {
            let (is_choice, name) = text.strip_prefix('~').map_or((false, text), |name| (true, name));
            let position = match name.contains(':') {
                true => names.get(name),
                false => names.get(&format!("{version}:{name}")),
            };
            let position = *position?;
            if is_choice { Type::Choice(position) } else { Type::Message(position) }
        }
    })
}
