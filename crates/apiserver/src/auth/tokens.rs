//! Static bearer tokens, in the file format of Kubernetes: `token,user,uid,"group1,group2"`.
//!
//! Tokens are kept only as keyed digests, and compared in constant time.

use super::identity::User;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tokens that do not expire.
pub struct StaticTokens {
    /// Of this process only, so that a digest in memory says nothing about a guessable token.
    key: hmac::Key,
    entries: Vec<(hmac::Tag, Arc<User>)>,
}

/// A token file that cannot be used. Never holds a token.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    #[error("cannot read token file {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("token file line {line}: {problem}")]
    Line { line: usize, problem: &'static str },
    #[error("cannot draw a random key for the token table")]
    Random,
}

// === impl StaticTokens ===

impl fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticTokens").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}

impl StaticTokens {
    /// Reads the file; one that is not there holds no tokens.
    pub fn load(path: &Path) -> Result<Self, TokenFileError> {
        let read = |source| TokenFileError::Read { path: path.to_path_buf(), source };
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(read(e)),
        };
        if !text.is_empty() && fs::metadata(path).map_err(read)?.permissions().mode() & 0o077 != 0 {
            tracing::warn!(path = %path.display(), "token file can be read by other users; run chmod 0600 on it");
        }
        Self::parse(&text)
    }

    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map_err(|_| TokenFileError::Random)?;
        let mut entries: Vec<(hmac::Tag, Arc<User>)> = Vec::new();
        for (line, record) in records(text)? {
            let bad = |problem| TokenFileError::Line { line, problem };
            let [token, name, uid, rest @ ..] = record.as_slice() else {
                return Err(bad("must have at least 3 columns (token, user name, user uid)"));
            };
            if token.is_empty() {
                tracing::warn!(line, "empty token has been found in the token file");
                continue;
            }
            if name.is_empty() {
                return Err(bad("has an empty user name"));
            }
            let groups: Vec<&str> =
                rest.first().map(|g| g.split(',').filter(|g| !g.is_empty()).collect()).unwrap_or_default();
            let user = User { uid: uid.clone(), ..User::new(name, &groups) };
            let tag = hmac::sign(&key, token.as_bytes());
            // The last line of a token wins, as in Kubernetes.
            entries.retain(|(other, _)| verify_slices_are_equal(other.as_ref(), tag.as_ref()).is_err());
            entries.push((tag, Arc::new(user)));
        }
        Ok(Self { key, entries })
    }

    /// Looks at every entry, whether found or not: the time taken tells nothing.
    pub fn find(&self, token: &str) -> Option<Arc<User>> {
        if self.entries.is_empty() || token.is_empty() {
            return None;
        }
        let wanted = hmac::sign(&self.key, token.as_bytes());
        let mut found = None;
        for (tag, user) in &self.entries {
            if verify_slices_are_equal(tag.as_ref(), wanted.as_ref()).is_ok() {
                found = Some(user.clone());
            }
        }
        found
    }
}

/// Comma-separated records with their line numbers. A quoted field may hold commas, line breaks and doubled quotes.
fn records(text: &str) -> Result<Vec<(usize, Vec<String>)>, TokenFileError> {
    let mut out = Vec::new();
    let mut chars = text.chars().peekable();
    let mut line = 1;
    while chars.peek().is_some() {
        let first = line;
        let mut record = Vec::new();
        loop {
            let (field, end) = field(&mut chars, &mut line)?;
            record.push(field);
            if end {
                break;
            }
        }
        let blank = record.len() == 1 && record[0].is_empty();
        if !blank {
            out.push((first, record));
        }
    }
    Ok(out)
}

/// One field, and whether it was the last of its record.
fn field(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    line: &mut usize,
) -> Result<(String, bool), TokenFileError> {
    let mut out = String::new();
    while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
    let quoted = chars.next_if_eq(&'"').is_some();
    let bad = |line: usize, problem| TokenFileError::Line { line, problem };
    let mut open = quoted;
    while let Some(c) = chars.next() {
        match c {
            '"' if open && chars.next_if_eq(&'"').is_some() => out.push('"'),
            '"' if open => open = false,
            '\n' if open => {
                *line += 1;
                out.push(c);
            }
            _ if open => out.push(c),
            ',' => return Ok((out, false)),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\n' => {
                *line += 1;
                return Ok((out, true));
            }
            ' ' | '\t' if quoted => {}
            '"' => return Err(bad(*line, "has a quote inside a field that is not quoted")),
            _ if quoted => return Err(bad(*line, "has text after a closing quote")),
            _ => out.push(c),
        }
    }
    if open {
        return Err(bad(*line, "has a quoted field that never ends"));
    }
    Ok((out, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_format_of_kubernetes_is_read() {
        let text = "\nt1,ann,u1\r\nt2,bob,u2,\"dev,ops\"\nt3,carl,u3,single\n\"t\"\"4\",\"d, e\",u4,\n";
        let tokens = StaticTokens::parse(text).unwrap();
        let groups = |t| tokens.find(t).map(|u| u.groups.join(","));
        assert_eq!(groups("t1").unwrap(), "system:authenticated");
        assert_eq!(groups("t2").unwrap(), "dev,ops,system:authenticated");
        assert_eq!(groups("t3").unwrap(), "single,system:authenticated");
        assert_eq!(tokens.find("t\"4").unwrap().name, "d, e");
        assert!(tokens.find("t5").is_none());
        assert!(tokens.find("").is_none());
    }

    #[test]
    fn bad_lines_are_refused_by_number_and_without_the_token() {
        let table = [
            (
                "a,b,c\nsecret,x",
                "token file line 2: must have at least 3 columns (token, user name, user uid)",
            ),
            ("# secret", "token file line 1: must have at least 3 columns (token, user name, user uid)"),
            ("secret,,c", "token file line 1: has an empty user name"),
            ("secret\",b,c", "token file line 1: has a quote inside a field that is not quoted"),
            ("\"secret\"x,b,c", "token file line 1: has text after a closing quote"),
            ("a,b,\"secret", "token file line 1: has a quoted field that never ends"),
        ];
        for (text, wanted) in table {
            assert_eq!(StaticTokens::parse(text).unwrap_err().to_string(), wanted);
        }
    }

    #[test]
    fn the_last_line_of_a_token_wins_and_empty_tokens_are_skipped() {
        let tokens = StaticTokens::parse("t,one,1\nt,two,2\n,three,3").unwrap();
        assert_eq!(tokens.find("t").unwrap().name, "two");
        assert_eq!(format!("{tokens:?}"), "StaticTokens { entries: 1, .. }");
    }

    #[test]
    fn a_missing_file_holds_nothing() {
        let dir = tempfile::tempdir().unwrap();
        assert!(StaticTokens::load(&dir.path().join("tokens.csv")).unwrap().find("t").is_none());
        assert!(matches!(StaticTokens::load(dir.path()), Err(TokenFileError::Read { .. })));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_reader_panic(text in "[a-c,\"\r\n #\t]{0,60}") {
            let _ = StaticTokens::parse(&text);
        }

        #[test]
        fn quoted_fields_come_back_as_written(token in "[^\\s][^\u{0}]{0,20}", name in ".{1,20}") {
            let quote = |s: &str| format!("\"{}\"", s.replace('"', "\"\""));
            let text = format!("{},{},uid", quote(&token), quote(&name));
            let tokens = StaticTokens::parse(&text).unwrap();
            prop_assert_eq!(&tokens.find(&token).unwrap().name, &name);
        }
    }
}
