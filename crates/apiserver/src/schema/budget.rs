//! A bound on what a CEL rule may cost on a value, taken before it runs.
//!
//! A comprehension visits at most as many elements as the value has parts; nested ones multiply. The bound is coarse and on
//! the safe side: a rule that exceeds it refuses the object, as Kubernetes' own budget does.

use serde_json::Value;

/// The functions that run an expression for each element.
const LOOPS: [&str; 12] = [
    "all",
    "exists",
    "exists_one",
    "existsOne",
    "map",
    "filter",
    "sortBy",
    "transformList",
    "transformMap",
    "fold",
    "reduce",
    "max",
];

/// How deep loops are nested in a rule, by its text: strings are passed over, parentheses are matched.
pub(super) fn nesting(rule: &str) -> u32 {
    let chars: Vec<char> = rule.chars().collect();
    // For each open parenthesis: whether it is a loop's.
    let mut open: Vec<bool> = Vec::new();
    let (mut depth, mut deepest) = (0u32, 0u32);
    let mut word = String::new();
    let mut i = 0;
    while i < chars.len() {
        match chars[i] {
            quote @ ('"' | '\'') => {
                i += 1;
                while i < chars.len() && chars[i] != quote {
                    i += if chars[i] == '\\' { 2 } else { 1 };
                }
                word.clear();
            }
            '(' => {
                let is_loop = LOOPS.contains(&word.as_str());
                open.push(is_loop);
                depth += u32::from(is_loop);
                deepest = deepest.max(depth);
                word.clear();
            }
            ')' => {
                if open.pop() == Some(true) {
                    depth -= 1;
                }
                word.clear();
            }
            c if c.is_alphanumeric() || c == '_' => word.push(c),
            c if c.is_whitespace() => {}
            _ => word.clear(),
        }
        i += 1;
    }
    deepest
}

/// How many steps loops nested `nesting` deep may take on a value.
pub(super) fn steps(value: &Value, nesting: u32) -> u64 {
    parts(value).max(16).saturating_pow(nesting)
}

/// The number of elements and fields anywhere in a value.
fn parts(value: &Value) -> u64 {
    match value {
        Value::Array(items) => items.iter().map(|item| 1 + parts(item)).sum(),
        Value::Object(fields) => fields.values().map(|field| 1 + parts(field)).sum(),
        // Strings can be split into characters, and looped over then.
        Value::String(text) => text.len() as u64 / 8,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn loops_are_counted_where_they_are_nested() {
        for (rule, expected) in [
            ("self.size > 0", 0),
            ("self.items.all(i, i > 0)", 1),
            ("self.items.all(i, i > 0) && self.items.exists(i, i == 2)", 1),
            ("self.a.all(x, self.b.exists(y, y == x))", 2),
            ("self.a.map(x, self.b.filter(y, self.c.all(z, (z + x) > y)))", 3),
            ("self.name == 'a.all(b.all('", 0),
            ("size(self.all) > 0 && self.all.size() > 0", 0),
        ] {
            assert_eq!(nesting(rule), expected, "{rule}");
        }
    }

    #[test]
    fn long_lists_in_nested_loops_are_too_much() {
        let long = json!((0..1000).collect::<Vec<_>>());
        assert!(steps(&long, 1) < 10_000);
        assert!(steps(&long, 3) > 20_000_000);
        assert!(steps(&json!({"a": 1}), 4) < 20_000_000);
    }
}
