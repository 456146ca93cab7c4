//! What Go's JSON decoder says about a text that is not JSON. Clients and people search for these words.
//!
//! Runs only after parsing has failed, so it is written for clearness.

/// The complaint about `text`, in Go's words.
pub(crate) fn complaint(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut scan = Scan { chars: &chars, at: 0, depth: 0 };
    match scan.document() {
        Err(Stop::End) => "unexpected end of JSON input".into(),
        Err(Stop::At(c, context)) => format!("invalid character {} {context}", quoted(c)),
        // It is JSON after all; the number or the nesting was too much for us.
        Ok(()) => "the text can't be held as JSON".into(),
    }
}

/// How deep Go goes. We stop earlier, and say the same.
const MAX_DEPTH: usize = 120;

enum Stop {
    End,
    At(char, String),
}

struct Scan<'a> {
    chars: &'a [char],
    at: usize,
    depth: usize,
}

fn quoted(c: char) -> String {
    match c {
        '\'' => r"'\''".into(),
        '"' => "'\"'".into(),
        c if (c as u32) < 0x20 && !"\t\n\r".contains(c) => format!("'\\x{:02x}'", c as u32),
        c => format!("'{}'", c.escape_debug()),
    }
}

impl Scan<'_> {
    fn peek(&self) -> Result<char, Stop> {
        self.chars.get(self.at).copied().ok_or(Stop::End)
    }

    fn space(&mut self) {
        while self.chars.get(self.at).is_some_and(|c| " \t\r\n".contains(*c)) {
            self.at += 1;
        }
    }

    fn document(&mut self) -> Result<(), Stop> {
        self.value()?;
        self.space();
        match self.chars.get(self.at) {
            None => Ok(()),
            Some(c) => Err(Stop::At(*c, "after top-level value".into())),
        }
    }

    fn value(&mut self) -> Result<(), Stop> {
        self.space();
        match self.peek()? {
            open @ ('{' | '[') => {
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(Stop::At(open, "exceeded max depth".into()));
                }
                if open == '{' {
                    self.object()?
                } else {
                    self.array()?
                }
                self.depth -= 1;
                Ok(())
            }
            '"' => self.string(),
            't' => self.word("true"),
            'f' => self.word("false"),
            'n' => self.word("null"),
            '-' | '0'..='9' => self.number(),
            c => Err(Stop::At(c, "looking for beginning of value".into())),
        }
    }

    fn object(&mut self) -> Result<(), Stop> {
        self.at += 1;
        self.space();
        if self.peek()? == '}' {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.space();
            match self.peek()? {
                '"' => self.string()?,
                c => return Err(Stop::At(c, "looking for beginning of object key string".into())),
            }
            self.space();
            match self.peek()? {
                ':' => self.at += 1,
                c => return Err(Stop::At(c, "after object key".into())),
            }
            self.value()?;
            self.space();
            match self.peek()? {
                ',' => self.at += 1,
                '}' => {
                    self.at += 1;
                    return Ok(());
                }
                c => return Err(Stop::At(c, "after object key:value pair".into())),
            }
        }
    }

    fn array(&mut self) -> Result<(), Stop> {
        self.at += 1;
        self.space();
        if self.peek()? == ']' {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value()?;
            self.space();
            match self.peek()? {
                ',' => self.at += 1,
                ']' => {
                    self.at += 1;
                    return Ok(());
                }
                c => return Err(Stop::At(c, "after array element".into())),
            }
        }
    }

    fn string(&mut self) -> Result<(), Stop> {
        self.at += 1;
        loop {
            match self.peek()? {
                '"' => {
                    self.at += 1;
                    return Ok(());
                }
                '\\' => {
                    self.at += 1;
                    match self.peek()? {
                        'u' => {
                            self.at += 1;
                            for _ in 0..4 {
                                let c = self.peek()?;
                                if !c.is_ascii_hexdigit() {
                                    return Err(Stop::At(c, "in \\u hexadecimal character escape".into()));
                                }
                                self.at += 1;
                            }
                        }
                        c if "bfnrt\\/\"".contains(c) => self.at += 1,
                        c => return Err(Stop::At(c, "in string escape code".into())),
                    }
                }
                c if (c as u32) < 0x20 => return Err(Stop::At(c, "in string literal".into())),
                _ => self.at += 1,
            }
        }
    }

    fn word(&mut self, word: &str) -> Result<(), Stop> {
        for expected in word.chars() {
            let c = self.peek()?;
            if c != expected {
                return Err(Stop::At(c, format!("in literal {word} (expecting {})", quoted(expected))));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Stop> {
        let digits = |scan: &mut Self| {
            let start = scan.at;
            while scan.chars.get(scan.at).is_some_and(char::is_ascii_digit) {
                scan.at += 1;
            }
            scan.at > start
        };
        if self.peek()? == '-' {
            self.at += 1;
        }
        if self.peek()? == '0' {
            self.at += 1;
        } else if !digits(self) {
            return Err(Stop::At(self.peek()?, "in numeric literal".into()));
        }
        if self.chars.get(self.at) == Some(&'.') {
            self.at += 1;
            if !digits(self) {
                return Err(Stop::At(self.peek()?, "after decimal point in numeric literal".into()));
            }
        }
        if self.chars.get(self.at).is_some_and(|c| "eE".contains(*c)) {
            self.at += 1;
            if "+-".contains(self.peek()?) {
                self.at += 1;
            }
            if !digits(self) {
                return Err(Stop::At(self.peek()?, "in exponent of numeric literal".into()));
            }
        }
        Ok(())
    }
}

/// Replaces escapes of half a surrogate pair, which Go reads as U+FFFD.
pub(crate) fn mend_surrogates(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let unit = |t: &str| {
            t.strip_prefix("\\u").and_then(|t| t.get(..4)).and_then(|h| u16::from_str_radix(h, 16).ok())
        };
        match unit(rest) {
            Some(high @ 0xd800..=0xdbff) => {
                let low = rest.get(6..).and_then(unit).filter(|l| (0xdc00..=0xdfff).contains(l));
                let (text, skip) = if low.is_some() { (&rest[..12], 12) } else { ("\\ufffd", 6) };
                debug_assert!(high >= 0xd800);
                out.push_str(text);
                rest = &rest[skip..];
            }
            Some(0xdc00..=0xdfff) => {
                out.push_str("\\ufffd");
                rest = &rest[6..];
            }
            _ => {
                let skip = rest.char_indices().nth(2).map_or(rest.len(), |(i, _)| i);
                out.push_str(&rest[..skip]);
                rest = &rest[skip..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_would_say_the_same() {
        for (text, expected) in [
            ("", "unexpected end of JSON input"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 2}", "invalid character '2' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("[.5]", "invalid character '.' looking for beginning of value"),
            ("\"\u{1}\"", "invalid character '\\x01' in string literal"),
            ("[nil]", "invalid character 'i' in literal null (expecting 'u')"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ] {
            assert_eq!(complaint(text), expected, "{text}");
        }
        assert_eq!(complaint(&"[".repeat(200_000)), "invalid character '[' exceeded max depth");
    }

    #[test]
    fn only_half_pairs_are_replaced() {
        assert_eq!(mend_surrogates(r#""\ud800""#), r#""\ufffd""#);
        assert_eq!(mend_surrogates(r#""\ud83d\ude00 \\ud800 \n""#), r#""\ud83d\ude00 \\ud800 \n""#);
        assert_eq!(mend_surrogates(r#""\udc00x"#), r#""\ufffdx"#);
    }
}
