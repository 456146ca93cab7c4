//! Label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.

use crate::store::Object;

/// All requirements must hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
    Above(i64),
    Below(i64),
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Word(String),
    Symbol(&'static str),
    End,
}

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: tokens(text), at: 0 };
        let mut requirements = Vec::new();
        if parser.peek() == &Token::End {
            return Ok(Self::default());
        }
        loop {
            requirements.push(parser.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?);
            match parser.next() {
                Token::End => return Ok(Self { requirements }),
                Token::Symbol(",") if parser.peek() != &Token::End => {}
                Token::Symbol(",") => return Err("found '', expected: identifier after ','".into()),
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.requirements.iter().all(|r| r.matches(object.label(&r.key)))
    }
}

impl Requirement {
    fn matches(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match &self.test {
            Test::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
            Test::NotIn(values) => value.is_none_or(|v| !values.iter().any(|w| w == v)),
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::Above(limit) => number().is_some_and(|n| n > *limit),
            Test::Below(limit) => number().is_some_and(|n| n < *limit),
        }
    }
}

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(w) => w,
            Self::Symbol(s) => s,
            Self::End => "",
        }
    }
}

const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn tokens(text: &str) -> Vec<Token> {
    let mut out = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            out.push(Token::End);
            return out;
        }
        if let Some(symbol) = SYMBOLS.iter().find(|s| rest.starts_with(**s)) {
            out.push(Token::Symbol(symbol));
            rest = &rest[symbol.len()..];
            continue;
        }
        let end = rest.find(|c: char| c.is_whitespace() || "=!(),<>".contains(c)).unwrap_or(rest.len());
        out.push(Token::Word(rest[..end].to_string()));
        rest = &rest[end..];
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.at).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        if self.peek() == &Token::Symbol("!") {
            self.next();
            let key = self.key("identifier")?;
            return Ok(Requirement { key, test: Test::Absent });
        }
        let key = self.key("!, identifier, or 'end of string'")?;
        let test = match self.next() {
            Token::Symbol("=" | "==") => Test::In(vec![self.value(&key)?]),
            Token::Symbol("!=") => Test::NotIn(vec![self.value(&key)?]),
            Token::Symbol(">") => Test::Above(self.number(&key)?),
            Token::Symbol("<") => Test::Below(self.number(&key)?),
            Token::Word(w) if w == "in" => Test::In(self.values(&key)?),
            Token::Word(w) if w == "notin" => Test::NotIn(self.values(&key)?),
            token @ (Token::End | Token::Symbol(",")) => {
                self.at -= 1;
                debug_assert_ne!(token, Token::Symbol("="));
                Test::Exists
            }
            other => {
                return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.text()));
            }
        };
        Ok(Requirement { key, test })
    }

    fn key(&mut self, expected: &str) -> Result<String, String> {
        match self.next() {
            Token::Word(key) => match crate::schema::names::qualified_name(&key).into_iter().next() {
                None => Ok(key),
                Some(problem) => Err(format!("<nil>: Invalid value: {key:?}: {problem}")),
            },
            other => Err(format!("found '{}', expected: {expected}", other.text())),
        }
    }

    fn value(&mut self, key: &str) -> Result<String, String> {
        // Nothing behind the sign means the empty value.
        match self.peek().clone() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(value) => {
                self.next();
                checked_value(key, value)
            }
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn number(&mut self, key: &str) -> Result<i64, String> {
        let text = self.value(key)?;
        text.parse().map_err(|_| {
            format!(
                "values[0]: Invalid value: {text:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        })
    }

    fn values(&mut self, key: &str) -> Result<Vec<String>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        let mut out = Vec::new();
        loop {
            match self.next() {
                Token::Symbol(")") => {
                    if out.is_empty() {
                        out.push(String::new());
                    }
                    return Ok(out);
                }
                Token::Symbol(",") => {
                    if matches!(self.peek(), Token::Symbol(")" | ",")) {
                        out.push(String::new());
                    }
                }
                Token::Word(value) => out.push(checked_value(key, value)?),
                other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.text())),
            }
        }
    }
}

fn checked_value(key: &str, value: String) -> Result<String, String> {
    match crate::schema::names::label_value(&value).into_iter().next() {
        None => Ok(value),
        Some(problem) => Err(format!("values[0][{key}]: Invalid value: {value:?}: {problem}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Draft, Key};
    use serde_json::json;

    fn object(labels: serde_json::Value) -> Object {
        let mut value = json!({"metadata": {"name": "x", "labels": labels}});
        Draft::new(&mut value).unwrap().seal(Key::new("", "x"), 1)
    }

    #[test]
    fn each_operator_selects_what_kubernetes_selects() {
        let o = object(json!({"a": "b", "n": "5", "e": ""}));
        for (text, expected) in [
            ("", true),
            ("a=b", true),
            ("a==b", true),
            ("a!=b", false),
            ("zz!=b", true),
            ("a in (b, c)", true),
            ("a notin (b)", false),
            ("zz notin (b)", true),
            ("a", true),
            ("!a", false),
            ("!zz", true),
            ("n>4", true),
            ("n<5", false),
            ("e=", true),
            ("e=,a=b", true),
            (" a = b , n in (5) ", true),
            ("a in (b),a in (c)", false),
        ] {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(&o), expected, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["a=b=c", "a in b", "a in (b", ",", "a,", "a b", "!", "a>x", "-a=b", "a=b c", "a=-"] {
            assert!(LabelSelector::parse(text).is_err(), "{text}");
        }
    }
}
