//! `butleradm crds`: our custom resource definitions as YAML.

use crate::output;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write one file for each definition into this directory, made when it is missing, instead of printing them all.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    match args.out {
        Some(folder) => write_files(&folder)?,
        None => output::line(butler_api::crds_yaml()?.trim_end()),
    }
    Ok(ExitCode::SUCCESS)
}

fn write_files(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the directory {}", folder.display()))?;
    for crd in butler_api::crds() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        let file = folder.join(format!("{name}.yaml"));
        let text = butler_api::crd_yaml(&crd)?;
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        output::line(&file.display().to_string());
    }
    Ok(())
}
