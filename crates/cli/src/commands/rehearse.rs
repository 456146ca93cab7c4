//! `butleradm rehearse`: the whole bootstrap on a simulated data centre, in this process.

use super::datacentre::{self, Knobs};
use super::load::{load, load_text, sources};
use super::words::{ProviderName, span};
use super::{addons, block_on};
use crate::config::{Need, Settings, Surroundings};
use crate::engine::{Home, Kept, Reach, Session, Signals, scratch_folder};
use crate::exit::{Ended, Exit};
use crate::output;
use crate::progress::OutputFormat;
use anyhow::Result;
use butler_api::Provider;
use butler_controllers::addons::Sources;
use butler_sim::DataCentre;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The bootstrap file. Without it a built-in example is rehearsed: three control planes and three workers.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The infrastructure of the built-in example: proxmox (default), gcp or aws. A file names the same.
    #[arg(long, value_enum)]
    provider: Option<ProviderName>,
    #[command(flatten)]
    knobs: Knobs,
    /// Keep the data centre and the cluster after success, until Ctrl-C, so that kubectl can be used.
    #[arg(long)]
    keep: bool,
    /// A bundle of addons in place of the stand-ins.
    #[arg(long, value_name = "FILE", env = "BUTLER_BUNDLE")]
    bundle: Option<PathBuf>,
    /// How to speak.
    #[arg(long, short, value_enum, default_value_t, env = "BUTLER_OUTPUT")]
    output: OutputFormat,
    /// Stop after this time.
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "30m", env = "BUTLER_TIMEOUT")]
    timeout: Duration,
}

/// The examples that are rehearsed without a file; the first without a provider either.
const EXAMPLES: [(Provider, &str); 3] = [
    (Provider::Proxmox, include_str!("../../../../examples/bootstrap-proxmox.yaml")),
    (Provider::Gcp, include_str!("../../../../examples/bootstrap-gcp.yaml")),
    (Provider::Aws, include_str!("../../../../examples/bootstrap-aws.yaml")),
];

pub(crate) fn run(args: Args) -> Result<Exit> {
    block_on(rehearse(args))
}

async fn rehearse(args: Args) -> Result<Exit> {
    let signals = Signals::listen()?;
    let mut settings = settings(args.file.as_deref(), args.provider.map(Into::into))?;
    let sources = sources(args.bundle.as_deref(), true)?;
    let scratch = scratch_folder(&format!("butler-rehearsal-{}-", settings.cluster()), args.keep)?;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let data_centre = datacentre::start(&mut settings, &args.knobs, listen).await?;
    let home = Home::at(scratch.path());
    if args.output == OutputFormat::Text {
        introduce(&settings, &args, sources.as_ref());
    }
    let session = Session {
        reach: Reach::of(&settings),
        settings: &settings,
        home: &home,
        sources: sources.clone(),
        output: args.output,
        timeout: Some(args.timeout),
        simulated: true,
        // The data centre was made for the file.
        preflight: false,
        passing: !args.keep,
        skip_cleanup: false,
        again: "butleradm rehearse".to_owned(),
    };
    let ran = session.run(&signals).await;
    if let (true, Ok(ran)) = (args.keep, &ran)
        && let Some(kept) = &ran.kept
        && !signals.is_asked()
    {
        stay(&data_centre, &home, kept, &signals, args.output).await;
    }
    let calls = data_centre.gate().calls().len();
    data_centre.stop().await;
    let ran = ran?;
    if args.output == OutputFormat::Text {
        farewell(&settings, &args, ran.exit, calls);
    }
    Ok(ran.exit)
}

fn settings(file: Option<&Path>, provider: Option<Provider>) -> Result<Settings> {
    if let Some(file) = file {
        return load(Some(file), provider, Need::AnyCredentials, &Home::usual());
    }
    let wanted = provider.unwrap_or(EXAMPLES[0].0);
    let Some((_, text)) = EXAMPLES.iter().find(|(known, _)| *known == wanted) else {
        let text = format!("there is no built-in example of {wanted}: only of proxmox, gcp and aws");
        return Err(Ended::error(Exit::Usage, text));
    };
    let around = Surroundings { variables: BTreeMap::new(), ..Surroundings::of(Path::new("example")) };
    load_text("the built-in example", text, None, Need::AnyCredentials, &around)
}

/// What is real here and what is not.
fn introduce(settings: &Settings, args: &Args, sources: &dyn Sources) {
    let what = match &args.file {
        Some(file) => file.display().to_string(),
        None => "a built-in example".to_owned(),
    };
    output::line(&format!(
        "SIMULATED: {what} on a data centre that exists in this process only. The driver, the Talos client, the \
         controllers and the Kubernetes API are the real ones."
    ));
    let stand_ins = addons::stand_ins(settings, sources);
    if !stand_ins.is_empty() {
        output::line(&format!("STAND-INS in place of charts: {}", stand_ins.join(", ")));
    }
}

/// Keeps everything alive for kubectl.
async fn stay(data_centre: &DataCentre, home: &Home, kept: &Kept, signals: &Signals, format: OutputFormat) {
    if format == OutputFormat::Text {
        for line in [
            String::new(),
            format!(
                "the SIMULATED data centre stays until Ctrl-C, behind http://{}; try:",
                data_centre.proxy_address()
            ),
            format!("  kubectl --kubeconfig {} get nodes", kept.kubeconfig.display()),
            format!("  kubectl --kubeconfig {} get pods -A", kept.kubeconfig.display()),
            format!("  butleradm talos health --talosconfig {}", kept.talosconfig.display()),
            format!("  BUTLER_HOME={} butleradm status", home.path().display()),
        ] {
            output::line(&line);
        }
    }
    signals.asked().await;
}

fn farewell(settings: &Settings, args: &Args, exit: Exit, calls: usize) {
    output::line("");
    match (exit, &args.file) {
        (Exit::Ok, Some(file)) => output::line(&format!(
            "the rehearsal made {calls} calls into the data centre; the real thing: butleradm bootstrap {} --config {}",
            settings.provider,
            file.display()
        )),
        (Exit::Ok, None) => output::line(&format!(
            "the rehearsal made {calls} calls into the data centre; add --keep to use kubectl on it, or rehearse your own \
             file: butleradm rehearse FILE"
        )),
        _ => output::line(&format!(
            "the rehearsal did not get there; it made {calls} calls into the data centre"
        )),
    }
}
