//! `butleradm talos kubeconfig`: the administrator's kubeconfig, as the node makes it.

use super::reach::{Reach, explain, parse_duration};
use crate::output;
use anyhow::{Context, Result, bail};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// The file to write (mode 0600), or - for standard output.
    #[arg(value_name = "FILE", default_value = "kubeconfig")]
    out: PathBuf,
    /// Replace the file if it is there.
    #[arg(long)]
    force: bool,
    /// How long to try.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
}

pub(super) async fn run(args: Args) -> Result<ExitCode> {
    let to_stdout = args.out.as_os_str() == "-";
    // Before the nodes are asked: nothing is fetched that can't be kept.
    if !to_stdout && !args.force && args.out.symlink_metadata().is_ok() {
        bail!("{} is there already: say --force to replace it", args.out.display());
    }
    let road = args.reach.road()?;
    road.require_credentials()?;
    let fetch = async {
        let mut last = None;
        for address in &road.nodes {
            let fetched = match road.client(address).await {
                Ok(client) => client.kubeconfig().await.map_err(explain),
                Err(error) => Err(error),
            };
            match fetched {
                Ok(kubeconfig) => return Ok(kubeconfig),
                Err(error) => {
                    if road.nodes.len() > 1 {
                        output::note(&format!("{address}: {error}"));
                    }
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("no node was asked")))
    };
    let kubeconfig = match tokio::time::timeout(args.timeout, fetch).await {
        Ok(fetched) => fetched?,
        Err(_) => bail!("no node gave a kubeconfig within {:?}", args.timeout),
    };
    if to_stdout {
        output::line(kubeconfig.expose().trim_end());
    } else {
        write(&args.out, kubeconfig.expose(), args.force)?;
        output::note(&format!("wrote {}", args.out.display()));
    }
    Ok(ExitCode::SUCCESS)
}

/// With mode 0600 from the first byte on. A file that is replaced is replaced whole, or not at all.
fn write(path: &Path, text: &str, force: bool) -> Result<()> {
    let create = |path: &Path| -> Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot create {}", path.display()))?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .with_context(|| format!("cannot write {}", path.display()))
    };
    if !force {
        return create(path);
    }
    let mut name = path.file_name().context("the file to write has no name")?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = path.with_file_name(name);
    create(&beside)?;
    fs::rename(&beside, path)
        .inspect_err(|_| {
            // Best effort: the error below is the one that counts.
            let _ = fs::remove_file(&beside);
        })
        .with_context(|| format!("cannot replace {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_file_is_private_and_never_replaced_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write(&path, "one", false).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode()), ("one", 0o600));
        assert!(write(&path, "two", false).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write(&path, "two", true).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode()), ("two", 0o600));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
