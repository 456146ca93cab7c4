//! Takes out of kubectl's output what differs between two runs of the same thing: times, ids, ports, paths.

use anyhow::{Context, Result};
use regex::Regex;

pub(super) struct Normal(Vec<(Regex, &'static str)>);

/// In this order: an earlier one may leave something for a later one.
const RULES: &[(&str, &str)] = &[
    (r"eyJ[\w-]+\.[\w-]+\.[\w-]+", "<token>"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( ?[+-]\d{4}|Z)?", "<time>"),
    (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<time>"),
    (r#"(resourceVersion"?: ?|Resource Version: +)"?\d+"?"#, "${1}<version>"),
    (r"https?://127\.0\.0\.1:\d+", "<server>"),
    (r"\S*/(LIVE|MERGED)-\d+/", "<folder>/"),
    (r"\b10\.\d+\.\d+\.\d+\b", "<address>"),
    (r"\bmade-[a-z0-9]{5}\b", "made-<random>"),
    (r"kubectl-edit-\d+", "kubectl-edit-<random>"),
    (r"(?m)(^|[ (])(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?(d|h|m|s|ms)($|[ )])", "${1}<age>${7}"),
    // kubectl itself falls over on a few inputs; where in its memory does not matter.
    (r"(?s)(panic: [^\n]*\n).*", "${1}"),
    // The width of a column follows its widest cell, also when that is an age.
    (r" {2,}", "  "),
    (r"(?m) +$", ""),
];

impl Normal {
    pub(super) fn new() -> Result<Self> {
        let rules = RULES.iter().map(|(pattern, by)| {
            let regex = Regex::new(pattern).with_context(|| format!("compile the pattern {pattern}"))?;
            Ok((regex, *by))
        });
        Ok(Self(rules.collect::<Result<_>>()?))
    }

    /// `folder` is where the run had its files.
    pub(super) fn apply(&self, text: &str, folder: &str) -> String {
        let text = text.replace(folder, "<files>");
        let text = self.0.iter().fold(text, |text, (regex, by)| regex.replace_all(&text, *by).into_owned());
        in_order(&text)
    }
}

/// Several causes of one refusal come in any order, one per line after a star.
fn in_order(text: &str) -> String {
    let mut lines: Vec<&str> = text.split('\n').collect();
    for causes in lines.chunk_by_mut(|a, b| a.starts_with("* ") && b.starts_with("* ")) {
        causes.sort_unstable();
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(Normal::new().unwrap().apply(text, "/tmp/x"), expected);
    }

    #[test]
    fn ages_and_widths() {
        check("NAME   SIZE   AGE\none    1      3m12s\n", "NAME  SIZE  AGE\none  1  <age>\n");
        check("one  1  0s", "one  1  <age>");
        check("5m (x2 over 3h)   Normal", "<age> (x2 over <age>)  Normal");
        check("size: 12", "size: 12");
    }

    #[test]
    fn causes_have_no_order() {
        check("invalid:\n* b\n* a\nother\n", "invalid:\n* a\n* b\nother\n");
        check("panic: oh\n\ngoroutine 1 [running]:\nmain.main()\n", "panic: oh\n");
    }

    #[test]
    fn ids_times_and_places() {
        check("uid: 8e89ab35-fde8-4451-a59b-e1afb4ea9e8c", "uid: <uid>");
        check("  resourceVersion: \"1125\"", "  resourceVersion: <version>");
        check("creationTimestamp: \"2026-11-15T17:50:10Z\"", "creationTimestamp: \"<time>\"");
        check("+++ /tmp/MERGED-123/v1.x\t2026-11-15 18:00:00.123 +0000", "+++ <folder>/v1.x\t<time>");
        check("open /tmp/x/a.yaml", "open <files>/a.yaml");
        check("gizmo/made-x2b4c created", "gizmo/made-<random> created");
    }
}
