//! One run of `butleradm talos gen`, and the files that it wrote.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// The folder that the program wrote. It goes away when this is dropped.
pub(super) struct Generated {
    folder: tempfile::TempDir,
}

// === impl Generated ===

impl Generated {
    /// Runs the program with these arguments, and a new folder for the files.
    pub(super) async fn run<I, S>(butleradm: &Path, args: I) -> Result<Self>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let folder = tempfile::tempdir().context("make a folder for the configurations")?;
        let mut command = Command::new(butleradm);
        command.args(["talos", "gen"]).args(args).arg("--out").arg(folder.path().join("out"));
        let output = command
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("start {}", butleradm.display()))?;
        ensure!(
            output.status.success(),
            "butleradm talos gen: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(Self { folder })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("out").join(name)
    }

    pub(super) fn read(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    }

    /// The names of the machine configurations, sorted.
    pub(super) fn nodes(&self) -> Result<Vec<String>> {
        let folder = self.path("");
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).with_context(|| format!("look into {}", folder.display()))? {
            let name = entry.context("look at a file")?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".yaml") && name != "secrets.yaml" {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}
