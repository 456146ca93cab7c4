//! `butleradm bootstrap <provider>`: a management cluster from a bootstrap file.

use super::load::{load, sources};
use super::words::{ProviderName, span};
use super::{addons, block_on, dry_run};
use crate::config::Need;
use crate::engine::{Elsewhere, Home, Reach, Session, Signals};
use crate::exit::{Ended, Exit};
use crate::progress::OutputFormat;
use anyhow::Result;
use butler_api::Provider;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The infrastructure; the bootstrap file names the same.
    #[arg(value_enum)]
    provider: ProviderName,
    /// The bootstrap file. Default: ./bootstrap.yaml, then ~/.butler/bootstrap.yaml.
    #[arg(long, short, value_name = "FILE", env = "BUTLER_CONFIG")]
    config: Option<PathBuf>,
    /// Say everything that would be made, and make nothing. Contacts nobody.
    #[arg(long)]
    dry_run: bool,
    /// Do not look at the infrastructure first: for networks whose rules can't be judged from outside.
    #[arg(long)]
    skip_preflight: bool,
    /// Leave the bootstrap API serving after success, until Ctrl-C.
    #[arg(long)]
    skip_cleanup: bool,
    /// Keep the objects in the cluster of this kubeconfig, instead of the embedded API.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Keep the objects in the cluster of this context, instead of the embedded API.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// A bundle of addons: a file with manifests and digests. Needed until charts can be fetched, unless all addons are off.
    #[arg(long, value_name = "FILE", env = "BUTLER_BUNDLE")]
    bundle: Option<PathBuf>,
    /// How to speak.
    #[arg(long, short, value_enum, default_value_t, env = "BUTLER_OUTPUT")]
    output: OutputFormat,
    /// Stop after this time, with everything kept. Default: none; each thing that is waited for has a deadline of its own.
    #[arg(long, value_name = "SPAN", value_parser = span, env = "BUTLER_TIMEOUT")]
    timeout: Option<Duration>,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    block_on(bootstrap(args))
}

async fn bootstrap(args: Args) -> Result<Exit> {
    let home = Home::usual();
    let provider = Provider::from(args.provider);
    let need = if args.dry_run { Need::NoCredentials } else { Need::Credentials };
    let settings = load(args.config.as_deref(), Some(provider), need, &home)?;
    let sources = sources(args.bundle.as_deref(), false)?;
    if args.dry_run {
        return dry_run::show(&settings, sources, args.output).await;
    }
    let missing = addons::missing(&settings, sources.as_ref());
    if !missing.is_empty() {
        // Better now than after half an hour of machines.
        let text = format!("there is no source for the addons {}; {}", missing.join(", "), addons::REMEDY);
        return Err(Ended::error(Exit::Usage, text));
    }
    let objects = match (&args.kubeconfig, &args.context) {
        (None, None) => None,
        (kubeconfig, context) => {
            // Later commands may run elsewhere.
            let kubeconfig = kubeconfig.as_ref().map(std::path::absolute).transpose()?;
            Some(Elsewhere { kubeconfig, context: context.clone() })
        }
    };
    let session = Session {
        reach: Reach { objects, ..Reach::of(&settings) },
        settings: &settings,
        home: &home,
        sources,
        output: args.output,
        timeout: args.timeout,
        simulated: false,
        preflight: !args.skip_preflight,
        passing: false,
        skip_cleanup: args.skip_cleanup,
        again: again(),
    };
    Ok(session.run(&Signals::listen()?).await?.exit)
}

/// The command as it was typed. No secret is ever on a command line.
fn again() -> String {
    let words = std::env::args().skip(1).map(|word| match word.contains([' ', '\'', '"', '$']) {
        true => format!("'{}'", word.replace('\'', "'\\''")),
        false => word,
    });
    std::iter::once("butleradm".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
