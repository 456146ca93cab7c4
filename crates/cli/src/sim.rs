//! `butleradm sim`: simulated machines, or a whole data centre, as a process of its own.

use crate::commands::datacentre;
use crate::output;
use anyhow::{Context, Result};
use butler_sim::{Media, NodeHandle, NodeOptions, Stage, World, WorldOptions};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run simulated Talos nodes until Ctrl-C. Prints a line whenever one of them is in another stage.
    Node(NodeArgs),
    /// Run a simulated data centre for a bootstrap file, until Ctrl-C. Prints how it is reached.
    Datacentre(datacentre::Args),
}

#[derive(Debug, clap::Args)]
struct NodeArgs {
    /// The node's address; on Linux all of 127.0.0.0/8 works. Repeat it for more nodes, which can then form a cluster.
    #[arg(long, value_name = "IP", required = true)]
    address: Vec<IpAddr>,
    /// The port of the Talos API. 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = butler_sim::API_PORT)]
    port: u16,
    /// The port of trustd, which signs the certificates of workers. 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = butler_sim::TRUSTD_PORT)]
    trustd_port: u16,
    /// Scales all delays: 1 is real time, 0.1 a tenth of it, 0 as fast as possible.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = crate::commands::words::factor, allow_negative_numbers = true)]
    speed: f64,
    /// Where ids and jitter come from. Keys are never drawn from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The Talos version on the boot media.
    #[arg(long, value_name = "VERSION", default_value = "v1.9.2", value_parser = version)]
    talos_version: String,
    /// What the machine boots from: an ISO (installs and reboots) or a disk image (does neither).
    #[arg(long, value_enum, default_value_t = MediaArg::Iso)]
    media: MediaArg,
    /// A machine configuration as user data: the node boots with it, and is never in maintenance mode. One node only.
    #[arg(long, value_name = "FILE")]
    user_data: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum MediaArg {
    Iso,
    DiskImage,
}

fn version(text: &str) -> Result<String, String> {
    butler_talos::TalosVersion::parse(text)
        .map(|version| version.to_string())
        .map_err(|error| error.to_string())
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let args = match args.command {
        Command::Node(args) => args,
        Command::Datacentre(args) => return datacentre::run(args).map(ExitCode::from),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(nodes(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn nodes(args: NodeArgs) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    anyhow::ensure!(
        args.user_data.is_none() || args.address.len() == 1,
        "--user-data is for one node, but --address is there {} times",
        args.address.len()
    );
    let user_data = match &args.user_data {
        Some(file) => {
            Some(std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?)
        }
        None => None,
    };
    let world = World::new(WorldOptions { speed: args.speed, seed: args.seed });
    let mut reporters = Vec::new();
    for address in args.address {
        let options = NodeOptions {
            port: args.port,
            trustd_port: args.trustd_port,
            talos_version: args.talos_version.clone(),
            media: match args.media {
                MediaArg::Iso => Media::Iso,
                MediaArg::DiskImage => Media::DiskImage,
            },
            user_data: user_data.clone(),
            ..NodeOptions::new(address)
        };
        output::note(&format!(
            "SIMULATED Talos {} node at {address}: there is no machine behind it",
            args.talos_version
        ));
        let node = world.add_node(options).await?;
        reporters.push(tokio::spawn(report(node)));
    }
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    output::note("stopping: the SIMULATED machines are switched off");
    reporters.iter().for_each(tokio::task::JoinHandle::abort);
    world.stop().await;
    Ok(())
}

/// A line for every stage that lasts long enough to be seen.
async fn report(node: NodeHandle) {
    let mut machine = node.watch();
    let mut last = None;
    loop {
        let line = describe(&node, machine.borrow_and_update().stage);
        // Two stages of ours may be one of Talos'.
        if line.is_some() && line != last {
            line.iter().for_each(|line| output::line(line));
            last = line;
        }
        if machine.changed().await.is_err() {
            return;
        }
    }
}

fn describe(node: &NodeHandle, stage: Stage) -> Option<String> {
    let url = format!("https://{}", node.api_address());
    Some(match stage {
        Stage::LeavingMaintenance => return None,
        Stage::Maintenance => format!("maintenance {url} fingerprint {}", node.fingerprint()?),
        Stage::Off => format!("off {url}"),
        other => format!("{} {url}", other.talos_name()),
    })
}
