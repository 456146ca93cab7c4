//! Where in an object a walk stands.
//!
//! A path is a linked list on the stack: a walk that finds nothing wrong never writes one out. Kubernetes spells paths
//! in two ways, depending on which of its validators speaks; both are here.

use std::fmt::Write;

/// A place in an object or in a schema.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    Root,
    /// A ready-made prefix.
    Base(&'a str),
    Field(&'a Path<'a>, &'a str),
    /// A key of a map.
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

/// What Kubernetes writes for the object as a whole.
pub(crate) const WHOLE: &str = "<nil>";

impl<'a> Path<'a> {
    pub(crate) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    pub(crate) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    pub(crate) fn is_root(&self) -> bool {
        matches!(self, Path::Root)
    }

    /// The OpenAPI validator's form: map keys look like fields (`spec.sizes.a`), and the whole object is empty.
    pub(crate) fn dotted(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, false);
        out
    }

    /// The form of all other validators: map keys stand in brackets (`spec.sizes[a]`).
    pub(crate) fn bracketed(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, true);
        if out.is_empty() { WHOLE.to_string() } else { out }
    }

    fn write(&self, out: &mut String, bracket_keys: bool) {
        match *self {
            Path::Root => {}
            Path::Base(text) => out.push_str(text),
            Path::Key(parent, key) if bracket_keys => {
                parent.write(out, bracket_keys);
                out.push('[');
                out.push_str(key);
                out.push(']');
            }
            Path::Field(parent, name) | Path::Key(parent, name) => {
                parent.write(out, bracket_keys);
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Path::Index(parent, index) => {
                parent.write(out, bracket_keys);
                // Writing to a string cannot fail.
                let _ = write!(out, "[{index}]");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings() {
        let spec = Path::Root.field("spec");
        let sizes = spec.field("sizes");
        let one = sizes.key("a.b");
        let item = one.index(3);
        assert_eq!(item.dotted(), "spec.sizes.a.b[3]");
        assert_eq!(item.bracketed(), "spec.sizes[a.b][3]");
        assert_eq!(Path::Root.dotted(), "");
        assert_eq!(Path::Root.bracketed(), "<nil>");
        assert_eq!(Path::Base("spec.versions[0]").field("name").bracketed(), "spec.versions[0].name");
    }
}
