//! Regular expressions as Kubernetes reads them.
//!
//! Schemas are written for Go's RE2 syntax. Rust's engine is of the same family but differs in details that occur in
//! real CRDs: `\d` and friends are ASCII in Go, a `{` that starts no repetition is a plain character, and brackets,
//! `&&`, `--` and `~~` have no meaning inside a class. [`compile`] translates those.

use super::Pattern;
use std::iter::Peekable;
use std::str::CharIndices;

/// Large counted repetitions need room; beyond this a pattern is refused.
const SIZE_LIMIT: usize = 32 << 20;

/// Go refuses larger counts, and so do we.
const MAX_REPEAT: u32 = 1000;

/// Compiles `source`, or says what is wrong in the words of Go's parser where the mistake is a common one.
pub(crate) fn compile(source: &str) -> Result<Pattern, String> {
    let translated = translate(source)?;
    regex::RegexBuilder::new(&translated)
        .size_limit(SIZE_LIMIT)
        .build()
        .map(|regex| Pattern { source: source.to_string(), regex })
        .map_err(|error| format!("error parsing regexp: {}", explain(source, &error)))
}

/// A short reason for a pattern that did not compile.
fn explain(source: &str, error: &regex::Error) -> String {
    for look in ["(?=", "(?!", "(?<=", "(?<!"] {
        if source.contains(look) {
            let shown = if look.starts_with("(?<") { "(?<" } else { look };
            return format!("invalid or unsupported Perl syntax: `{shown}`");
        }
    }
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
    match last {
        "unclosed group" => format!("missing closing ): `{source}`"),
        "unopened group" => format!("unexpected ): `{source}`"),
        "unclosed character class" => {
            let from = source.rfind('[').map_or(source, |at| &source[at..]);
            format!("missing closing ]: `{from}`")
        }
        "repetition operator missing expression" => {
            let at = source.find(['*', '+', '?']).unwrap_or(0);
            format!("missing argument to repetition operator: `{}`", &source[at..=at])
        }
        other => other.to_string(),
    }
}

fn translate(source: &str) -> Result<String, String> {
    let mut out = String::with_capacity(source.len() + 16);
    let mut chars = source.char_indices().peekable();
    let mut class_depth = false;
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => escape(&mut out, &mut chars),
            '[' if !class_depth => {
                class_depth = true;
                open_class(&mut out, &mut chars);
            }
            ']' if class_depth => {
                class_depth = false;
                out.push(']');
            }
            // POSIX classes are the one kind of bracket that means something inside a class.
            '[' if source[at..].starts_with("[:") => posix_class(&mut out, &mut chars),
            '[' | '&' | '~' if class_depth => {
                out.push('\\');
                out.push(c);
            }
            '{' if !class_depth => match repetition(&source[at..]) {
                Some(counts) if counts.iter().any(|n| *n > MAX_REPEAT) => {
                    let end = source[at..].find('}').map_or(source.len(), |e| at + e + 1);
                    return Err(format!(
                        "error parsing regexp: invalid repeat count: `{}`",
                        &source[at..end]
                    ));
                }
                Some(_) => out.push('{'),
                None => out.push_str("\\{"),
            },
            other => out.push(other),
        }
    }
    Ok(out)
}

/// After `[`: a leading `^` and a leading `]` are part of the opening.
fn open_class(out: &mut String, chars: &mut Peekable<CharIndices<'_>>) {
    out.push('[');
    if chars.next_if(|(_, c)| *c == '^').is_some() {
        out.push('^');
    }
    if chars.next_if(|(_, c)| *c == ']').is_some() {
        out.push_str("\\]");
    }
}

fn posix_class(out: &mut String, chars: &mut Peekable<CharIndices<'_>>) {
    out.push('[');
    for (_, c) in chars.by_ref() {
        out.push(c);
        if c == ']' {
            break;
        }
    }
}

/// The Perl classes are ASCII in Go, and Unicode in Rust.
fn escape(out: &mut String, chars: &mut Peekable<CharIndices<'_>>) {
    let Some((_, c)) = chars.next() else {
        out.push('\\');
        return;
    };
    match c {
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        's' => out.push_str("[\\t\\n\\x0C\\r ]"),
        'S' => out.push_str("[^\\t\\n\\x0C\\r ]"),
        'b' => out.push_str("(?-u:\\b)"),
        'B' => out.push_str("(?-u:\\B)"),
        // Go lets any punctuation be escaped.
        c if c.is_ascii_punctuation() || c.is_ascii_alphanumeric() || !c.is_ascii() => {
            if c.is_ascii() {
                out.push('\\');
            }
            out.push(c);
        }
        other => out.push(other),
    }
}

/// The counts of `{n}`, `{n,}` or `{n,m}` at the start of `text`, if that is what stands there.
fn repetition(text: &str) -> Option<Vec<u32>> {
    let inner = text.strip_prefix('{')?.split_once('}')?.0;
    let (low, high) = inner.split_once(',').map_or((inner, None), |(l, h)| (l, Some(h)));
    let number = |s: &str| {
        (!s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().unwrap_or(u32::MAX))
    };
    let mut counts = vec![number(low)?];
    match high {
        None | Some("") => {}
        Some(high) => counts.push(number(high)?),
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap().regex.is_match(text)
    }

    #[test]
    fn go_only_spellings_work() {
        assert!(matches(r"^\d+$", "123"));
        assert!(!matches(r"^\d+$", "\u{0663}"), "ASCII digits only");
        assert!(matches(r"^[\w.-]+$", "a_b.c-d"));
        assert!(!matches(r"^\w+$", "é"));
        assert!(matches(r"^[^\s]+$", "abc"));
        assert!(matches(r"^{[a-z]}$", "{q}"), "a brace that repeats nothing is a brace");
        assert!(matches(r"^a{2,3}$", "aaa"));
        assert!(matches(r"^[[a]+$", "[a"));
        assert!(matches(r"^[a&&b]+$", "a&b"));
        assert!(matches(r"^[[:alpha:]]+$", "abc"));
        assert!(matches(r"^[]a]+$", "]a"));
        assert!(matches(r"^/dev/.+\/x$", "/dev/sda/x"));
        assert!(matches(r"\bfoo\b", "a foo b"));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(
            compile("(?=a)b").unwrap_err(),
            "error parsing regexp: invalid or unsupported Perl syntax: `(?=`"
        );
        assert_eq!(compile("(a").unwrap_err(), "error parsing regexp: missing closing ): `(a`");
        assert_eq!(compile("x[a").unwrap_err(), "error parsing regexp: missing closing ]: `[a`");
        assert_eq!(
            compile("*a").unwrap_err(),
            "error parsing regexp: missing argument to repetition operator: `*`"
        );
        assert_eq!(
            compile("a{1,2000}").unwrap_err(),
            "error parsing regexp: invalid repeat count: `{1,2000}`"
        );
    }
}
