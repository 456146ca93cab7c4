//! `butleradm talos kubeconfig`: the administrator's kubeconfig, as the node makes it.

use super::files::write_one;
use super::reach::{Reach, explain, parse_duration};
use crate::output;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
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
        write_one(&args.out, kubeconfig.expose(), args.force)
            .with_context(|| format!("cannot write {}", args.out.display()))?;
        output::note(&format!("wrote {}", args.out.display()));
    }
    Ok(ExitCode::SUCCESS)
}
