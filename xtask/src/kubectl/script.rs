//! Reads the script and the files that go with it.

use anyhow::{Context, Result, bail};
use std::path::Path;

/// One thing that is done with kubectl.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Run(String),
    /// Keeps the output under a name.
    Let(String, String),
    /// `kubectl edit` with this sed expression as the editor.
    Edit(String, String),
    /// Runs until so many lines were printed, while the commands run.
    Watch(usize, String, Vec<String>),
}

/// Words that stand for something else: `{name}`.
#[derive(Debug, Clone, Default)]
pub(super) struct Names(Vec<(String, String)>);

impl Step {
    /// The command line as it stands in the script: what differences are listed by.
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Run(text) | Self::Let(_, text) | Self::Edit(_, text) | Self::Watch(_, text, _) => text,
        }
    }
}

impl Names {
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.0.retain(|(known, _)| known != name);
        self.0.push((name.to_owned(), value.to_owned()));
    }

    pub(super) fn fill(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }
}

/// The steps of the script.
pub(super) fn parse(script: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for line in script.lines() {
        let text = line.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if line.starts_with(' ') {
            let Some(Step::Watch(_, _, inner)) = steps.last_mut() else { bail!("{line:?} follows no watch") };
            inner.push(text.to_owned());
            continue;
        }
        steps.push(parse_line(text).with_context(|| format!("read {text:?} in the script"))?);
    }
    Ok(steps)
}

fn parse_line(text: &str) -> Result<Step> {
    let mut words = text.splitn(3, ' ');
    let (first, second, rest) = (words.next().unwrap_or_default(), words.next(), words.next());
    Ok(match (first, second, rest) {
        ("let", Some(name), Some(rest)) => {
            Step::Let(name.to_owned(), rest.strip_prefix("= ").context("no `=`")?.to_owned())
        }
        ("watch", Some(lines), Some(rest)) => {
            Step::Watch(lines.parse().context("no number of lines")?, rest.to_owned(), Vec::new())
        }
        ("edit", Some(_), Some(_)) => {
            // The expression may hold escaped spaces; it ends at the first other one.
            let end = unescaped_space(&text["edit ".len()..]).context("no expression")? + "edit ".len();
            let expression = text["edit ".len()..end].replace("\\ ", " ");
            Step::Edit(expression, format!("edit{}", &text[end..]))
        }
        _ => Step::Run(text.to_owned()),
    })
}

fn unescaped_space(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    (0..bytes.len()).find(|&i| bytes[i] == b' ' && (i == 0 || bytes[i - 1] != b'\\'))
}

/// Writes the files (`=== NAME` before each) into a folder, with the names filled in.
pub(super) fn write_files(files: &str, dir: &Path, names: &Names) -> Result<()> {
    for part in files.split("=== ").skip(1) {
        let (name, content) = part.split_once('\n').context("a file without content")?;
        let path = dir.join(name);
        std::fs::write(&path, names.fill(content)).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_steps() {
        let script = "# note\n\nget x\nlet a = get y\nedit s/a\\ b/c/ cm z\nwatch 2 get -w\n    create q\n";
        let expected = [
            Step::Run("get x".into()),
            Step::Let("a".into(), "get y".into()),
            Step::Edit("s/a b/c/".into(), "edit cm z".into()),
            Step::Watch(2, "get -w".into(), vec!["create q".into()]),
        ];
        assert_eq!(parse(script).unwrap(), expected);
        assert!(parse("  lost").is_err());
        assert!(parse("watch many get").is_err());
    }

    #[test]
    fn names_are_filled_in_and_braces_of_others_stay() {
        let mut names = Names::default();
        names.set("ns", "one");
        names.set("ns", "two");
        assert_eq!(names.fill("get -n {ns} -o jsonpath={.spec}"), "get -n two -o jsonpath={.spec}");
    }

    #[test]
    fn the_script_and_its_files_are_whole() {
        let steps = parse(super::super::SCRIPT).unwrap();
        assert!(steps.len() > 130, "{}", steps.len());
        let dir = tempfile::tempdir().unwrap();
        write_files(super::super::FILES, dir.path(), &Names::default()).unwrap();
        let named =
            steps.iter().flat_map(|step| step.text().split(' ')).filter(|word| word.ends_with(".yaml"));
        for file in named {
            assert!(dir.path().join(file).is_file(), "{file} is not among the files");
        }
    }
}
