//! `butleradm talos reset`: wipes nodes.

use super::reach::{Reach, explain, explain_wait, parse_duration, wait};
use crate::output;
use anyhow::{Result, bail};
use butler_talos::client::{Client, NodeAddress, ResetOptions, wait_until_gone, wait_until_maintenance};
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// Leave etcd in order first. Say false for the last control plane, and for one that is broken.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    graceful: bool,
    /// Boot again afterwards, instead of power off.
    #[arg(long)]
    reboot: bool,
    /// Wipe only these system partitions, such as STATE and EPHEMERAL; the rest, also the installed system, stays.
    #[arg(long, value_name = "LABEL", value_delimiter = ',')]
    system_labels_to_wipe: Vec<String>,
    /// Wipe these disks too.
    #[arg(long, value_name = "DEVICE", value_delimiter = ',')]
    user_disks_to_wipe: Vec<String>,
    /// Wait until the node has gone, and with --reboot until it is back in maintenance mode.
    #[arg(long)]
    wait: bool,
    /// How long to wait for each node.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = parse_duration)]
    timeout: Duration,
    /// Yes, the data on these nodes is to be lost.
    #[arg(long)]
    yes: bool,
}

pub(super) async fn run(args: Args) -> Result<ExitCode> {
    // Not from the talosconfig's defaults: what is wiped is said here and now.
    let road = args.reach.explicit()?.road()?;
    road.require_credentials()?;
    if args.wait {
        road.require_direct("--wait")?;
    }
    if !args.yes {
        let named: Vec<String> = road.nodes.iter().map(ToString::to_string).collect();
        bail!("this wipes {}: say --yes if that is meant", named.join(", "));
    }
    let options = ResetOptions {
        graceful: args.graceful,
        reboot: args.reboot,
        partitions: args.system_labels_to_wipe,
        user_disks: args.user_disks_to_wipe,
    };
    for address in &road.nodes {
        let deadline = Instant::now() + args.timeout;
        let client = road.client(address).await?;
        if options.graceful {
            refuse_last_member(&client, address).await?;
        }
        client.reset(&options).await.map_err(explain)?;
        output::line(&format!("{address} is being reset"));
        if args.wait {
            wait_until_gone(&client, &wait(address, "the node to go down", deadline))
                .await
                .map_err(explain_wait)?;
            if options.reboot {
                let wait = wait(address, "maintenance mode", deadline);
                wait_until_maintenance(&road.node(address, None), &wait).await.map_err(explain_wait)?;
                output::line(&format!("{address} is in maintenance mode"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The last member of etcd can't leave it: Talos would try for long and fail.
async fn refuse_last_member(client: &Client, address: &NodeAddress) -> Result<()> {
    // Workers and a control plane without etcd answer with an error: nothing stands in the way there.
    match client.etcd_member_list(true).await {
        Ok(members) if members.len() == 1 => {
            bail!(
                "{address} is the last member of etcd and can't leave it\n  what to do: say --graceful=false; the cluster's state is lost then"
            )
        }
        _ => Ok(()),
    }
}
