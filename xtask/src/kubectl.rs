//! The same kubectl commands on two servers, and what they answered, side by side.
//!
//! `kubectl/script.txt` holds the commands, `kubectl/files.txt` the manifests. Every command is typed into each kubectl that
//! the peers carry, on the real control plane and on the embedded server; output, error output and exit code must be the
//! same but for times, ids and ports ([`normal`]), and but for the differences that are listed here with their reason.

mod normal;
mod script;

use anyhow::{Context, Result};
use normal::Normal;
use script::{Names, Step};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::{sleep, timeout};

const SCRIPT: &str = include_str!("kubectl/script.txt");
const FILES: &str = include_str!("kubectl/files.txt");

/// The longest that one command may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Commands whose answer is known to differ, and why. `docs/apiserver-differences.md` says more.
const DIFFERENCES: &[(&str, &str)] = &[
    ("explain gizmos.{group}", "apiVersion, kind and metadata are described in our own words"),
    ("explain configmaps", "the embedded server carries no descriptions of built-in kinds"),
    ("explain deployments.spec.replicas", "the embedded server carries no descriptions of built-in kinds"),
];

/// A server, as kubectl sees it.
pub(crate) struct Target {
    pub(crate) kubeconfig: PathBuf,
}

/// What one command answered.
#[derive(Debug, Clone, PartialEq)]
struct Answer {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// How many commands answered the same, and how many did not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

/// Runs the script with one kubectl on both servers; what differs is told to `report`.
pub(crate) async fn compare(
    kubectl: &Path,
    version: &str,
    real: &Target,
    embedded: &Target,
    report: &mut impl FnMut(String),
) -> Result<Tally> {
    let steps = script::parse(SCRIPT)?;
    let (real, embedded) =
        tokio::try_join!(run(kubectl, version, real, &steps), run(kubectl, version, embedded, &steps))?;
    let mut tally = Tally::default();
    for ((step, real), embedded) in steps.iter().zip(&real).zip(&embedded) {
        let listed = DIFFERENCES.iter().find(|(command, _)| *command == step.text());
        match (real == embedded, listed) {
            (true, None) => tally.passed += 1,
            (false, Some((_, reason))) => {
                tally.passed += 1;
                report(format!("differs, as listed: kubectl {}: {reason}", step.text()));
            }
            (false, None) => {
                tally.failed += 1;
                report(format!("kubectl {version} {}\n{}", step.text(), both(real, embedded)));
            }
            (true, Some(_)) => {
                tally.failed += 1;
                report(format!("kubectl {version} {}: is listed as a difference, and is none", step.text()));
            }
        }
    }
    Ok(tally)
}

/// How many half seconds a document may take to be published.
const PUBLISHED_WITHIN: usize = 60;

/// One run of the script.
async fn run(kubectl: &Path, version: &str, target: &Target, steps: &[Step]) -> Result<Vec<Answer>> {
    let folder = tempfile::tempdir().context("make a folder for the manifests")?;
    let session = Session { kubectl, target, folder: folder.path(), normal: Normal::new()? };
    let mut names = Names::default();
    let label = version.trim_start_matches('v').replace('.', "-");
    names.set("ns", &format!("transcript-{label}"));
    names.set("group", &format!("v{label}.example.com"));
    script::write_files(FILES, folder.path(), &names)?;
    let mut answers = Vec::with_capacity(steps.len());
    for step in steps {
        let mut answer = session.step(step, &mut names).await;
        // A real server publishes the documents of a new CRD some time after it is established.
        for _ in 0..PUBLISHED_WITHIN {
            let unpublished = |a: &Answer| a.stderr.contains("couldn't find resource for");
            if !(step.text().starts_with("explain ") && answer.as_ref().is_ok_and(unpublished)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            answer = session.step(step, &mut names).await;
        }
        answers.push(answer.with_context(|| format!("run kubectl {}", step.text()))?);
    }
    Ok(answers)
}

/// Both answers, part by part where they differ.
fn both(real: &Answer, embedded: &Answer) -> String {
    let mut out = String::new();
    let parts = [
        ("exit code", format!("{:?}", real.code), format!("{:?}", embedded.code)),
        ("stdout", real.stdout.clone(), embedded.stdout.clone()),
        ("stderr", real.stderr.clone(), embedded.stderr.clone()),
    ];
    for (part, real, embedded) in parts {
        if real != embedded {
            out.push_str(&format!("  {part}\n{}{}", marked("real", &real), marked("embedded", &embedded)));
        }
    }
    out
}

fn marked(who: &str, text: &str) -> String {
    text.lines().map(|line| format!("    {who:>8} | {line}\n")).collect()
}

// === impl Session ===

/// One kubectl on one server.
struct Session<'a> {
    kubectl: &'a Path,
    target: &'a Target,
    folder: &'a Path,
    normal: Normal,
}

impl Session<'_> {
    async fn step(&self, step: &Step, names: &mut Names) -> Result<Answer> {
        match step {
            Step::Run(text) => self.finish(self.command(text, names)).await,
            Step::Let(name, text) => {
                let raw = self.raw(self.command(text, names)).await?;
                names.set(name, &raw.stdout);
                script::write_files(FILES, self.folder, names)?;
                Ok(self.normalised(raw))
            }
            Step::Edit(expression, text) => {
                let mut command = self.command(text, names);
                command.env("KUBE_EDITOR", self.editor(expression)?);
                self.finish(command).await
            }
            Step::Watch(lines, text, inner) => self.watch(*lines, text, inner, names).await,
        }
    }

    fn command(&self, text: &str, names: &Names) -> Command {
        let mut command = Command::new(self.kubectl);
        command
            .args(text.split(' ').map(|word| names.fill(word)))
            .current_dir(self.folder)
            .env("KUBECONFIG", &self.target.kubeconfig)
            // Discovery is cached below the home folder, and must not be shared between servers.
            .env("HOME", self.folder)
            .env("KUBECACHEDIR", self.folder.join("cache"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// A script that edits with sed, for kubectl to run on the file it wrote.
    fn editor(&self, expression: &str) -> Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.folder.join("editor.sh");
        std::fs::write(&path, format!("#!/bin/sh\nexec sed -i '{expression}' \"$1\"\n"))
            .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)))
            .context("write the editor")?;
        Ok(path)
    }

    async fn finish(&self, command: Command) -> Result<Answer> {
        Ok(self.normalised(self.raw(command).await?))
    }

    async fn raw(&self, mut command: Command) -> Result<Answer> {
        let output =
            timeout(PATIENCE, command.output()).await.context("it took too long")?.context("start it")?;
        Ok(Answer {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    fn normalised(&self, answer: Answer) -> Answer {
        let folder = self.folder.to_string_lossy();
        Answer {
            code: answer.code,
            stdout: self.normal.apply(&answer.stdout, &folder),
            stderr: self.normal.apply(&answer.stderr, &folder),
        }
    }

    /// Watches while the inner commands run; the answer is what the watch printed.
    async fn watch(&self, lines: usize, text: &str, inner: &[String], names: &Names) -> Result<Answer> {
        let mut command = self.command(text, names);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("start it")?;
        let stdout = child.stdout.take().context("read what it prints")?;
        let mut reader = BufReader::new(stdout).lines();
        // kubectl says nothing when its watch stands.
        sleep(Duration::from_millis(1500)).await;
        let mut complaints = String::new();
        for text in inner {
            complaints.push_str(&self.raw(self.command(text, names)).await?.stderr);
        }
        let mut seen = String::new();
        for _ in 0..lines {
            match timeout(Duration::from_secs(15), reader.next_line()).await {
                Ok(line) => match line.context("read what it prints")? {
                    Some(line) => seen.push_str(&(line + "\n")),
                    None => break,
                },
                Err(_) => break,
            }
        }
        child.kill().await.context("end the watch")?;
        Ok(self.normalised(Answer { code: None, stdout: seen, stderr: complaints }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_shows_only_the_parts_that_differ() {
        let real = Answer { code: Some(0), stdout: "a\n".into(), stderr: String::new() };
        let embedded = Answer { code: Some(0), stdout: "b\n".into(), stderr: String::new() };
        assert_eq!(both(&real, &embedded), "  stdout\n        real | a\n    embedded | b\n");
    }

    #[test]
    fn every_listed_difference_is_a_command_of_the_script() {
        let steps = script::parse(SCRIPT).unwrap();
        for (command, _) in DIFFERENCES {
            assert!(steps.iter().any(|step| step.text() == *command), "{command} is not in the script");
        }
    }
}
