//! `cargo xtask dist`: the release binaries, static, and the proof that they are.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

const PACKAGES: [&str; 2] = ["butler-cli", "butler-lb"];
const BINARIES: [&str; 2] = ["butleradm", "butler-lb"];

pub(crate) fn run() -> Result<()> {
    let target = target();
    build()?;
    for built in BINARIES.map(|binary| folder().join(&target).join("release").join(binary)) {
        check_static(&built)?;
        let size = std::fs::metadata(&built)?.len();
        say(&format!("{}: static, {:.1} MiB", built.display(), size as f64 / 1048576.0));
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "a chore speaks")]
fn say(text: &str) {
    println!("{text}");
}

fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

/// Arguments of cargo that build as for a release. Whatever is to be like the release is built with them, and shares its
/// dependencies. The flag goes to this target only: build scripts and macros run here and must stay dynamic.
pub(crate) fn as_released() -> Vec<String> {
    let target = target();
    let flags = format!("target.{target}.rustflags=[\"-C\",\"target-feature=+crt-static\"]");
    ["--release", "--locked", "--target", &target, "--config", &flags].map(str::to_owned).into()
}

/// Both at once: they share what both are made of.
fn build() -> Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command.arg("build").args(as_released()).args(PACKAGES.iter().flat_map(|package| ["-p", package]));
    if !command.status()?.success() {
        bail!("the release build failed");
    }
    Ok(())
}

fn folder() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

fn check_static(binary: &Path) -> Result<()> {
    let out = Command::new("ldd").arg(binary).output().context("cannot run ldd")?;
    let said = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if said.contains("statically linked") || said.contains("not a dynamic executable") {
        return Ok(());
    }
    bail!("{} is not static; ldd says:\n{said}", binary.display());
}
