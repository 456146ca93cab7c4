//! Repository chores. `cargo xtask --help` lists them.

mod bench;
mod bootstrap;
mod builtins;
mod check;
mod cluster;
mod conformance;
mod dist;
mod faults;
mod fuzz;
mod generate;
mod generate_lb;
mod kubectl;
mod models;
mod peers;
mod protos;
mod simulate;
mod talos;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "xtask", about = "Repository chores")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Check who imports whom, that lints are inherited, and that pure files are pure
    Check,
    /// Make the tables of built-in kinds from the published documents of Kubernetes
    Builtins {
        /// Change nothing; fail when a committed table is not current
        #[arg(long)]
        check: bool,
    },
    /// Make the table of protobuf messages from the published definitions of Kubernetes
    Protos {
        /// Change nothing; fail when the committed table is not current
        #[arg(long)]
        check: bool,
    },
    /// Make the tables of what cloud APIs accept from the vendors' published models
    Models {
        /// Change nothing; fail when a committed table is not current
        #[arg(long)]
        check: bool,
    },
    /// Make the CRDs and the field reference from the source
    Generate {
        /// Change nothing; fail when a committed file is not current
        #[arg(long)]
        check: bool,
    },
    /// Build the static release binary, and prove that it is static
    Dist,
    /// Build or fetch the real programs that our servers are compared with, into the user's cache folder
    Peers,
    /// Start a control plane on this machine, until Ctrl-C
    Cluster(cluster::ClusterArgs),
    /// Run the behaviour suite and kubectl transcripts against the real servers and ours
    Conformance(conformance::ConformanceArgs),
    /// Measure our servers side by side with the real ones
    Bench(bench::BenchArgs),
    /// Die and fail at every external call of a bootstrap and of a destroy, and see that a second life ends well
    Faults(faults::FaultsArgs),
    /// Run the load balancer's decisions under a million seeded schedules of faults
    Simulate(simulate::SimulateArgs),
    /// Fuzz what the load balancer reads: its file, PROXY headers, packets of peers, requests
    Fuzz(fuzz::FuzzArgs),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Args::parse().chore {
        Chore::Check => check::run(),
        Chore::Builtins { check } => builtins::run(check),
        Chore::Protos { check } => protos::run(check),
        Chore::Models { check } => models::run(check),
        Chore::Generate { check } => generate::run(check),
        Chore::Dist => dist::run(),
        Chore::Peers => peers::run_command(),
        Chore::Cluster(args) => cluster::run_command(args).await,
        Chore::Conformance(args) => conformance::run_command(args).await,
        Chore::Bench(args) => bench::run_command(args).await,
        Chore::Simulate(args) => simulate::run(&args),
        Chore::Fuzz(args) => fuzz::run(&args),
        Chore::Faults(args) => match args.deaths() {
            Some(deaths) => bootstrap::sigkill_command(deaths).await,
            None => faults::run(&args),
        },
    }
}
