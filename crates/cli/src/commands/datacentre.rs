//! The simulated data centre of a bootstrap file: has everything that the file names, and room for its machines. In this process
//! for `rehearse`, as a process of its own for `sim datacentre`.

mod aws;
mod gcp;
mod proxmox;

use super::call_log::CallLog;
use super::load::load;
use super::words::factor;
use super::{addons, block_on};
use crate::config::{Need, Settings};
use crate::engine::{Home, Signals};
use crate::exit::{Ended, Exit};
use crate::output;
use crate::talos::files;
use anyhow::{Context as _, Result};
use butler_api::{Provider, ProviderConfigSpec};
use butler_sim::{DataCentre, DataCentreOptions, FaultScript};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};

/// What of a data centre the command line decides.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Knobs {
    /// Scales all delays: 1 is real time, 0.1 a tenth of it, 0 as fast as possible.
    #[arg(long, value_name = "FACTOR", default_value_t = 0.0, value_parser = factor)]
    pub(crate) speed: f64,
    /// Where ids, jitter and random faults come from. Keys are never drawn from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Faults: a YAML file that says which calls fail and which machines die. `sim datacentre` reads it again on SIGUSR1.
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) fault: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The bootstrap file that the data centre is made for.
    #[arg(long, short, value_name = "FILE", env = "BUTLER_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    knobs: Knobs,
    /// Where the way into it listens: an HTTP proxy. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where to write the certificate authority of its endpoints.
    #[arg(long, value_name = "FILE", default_value = "datacentre-ca.crt")]
    ca: PathBuf,
    /// Where to write the key of its service account, for a file of gcp.
    #[arg(long, value_name = "FILE", default_value = "datacentre-key.json")]
    key: PathBuf,
    /// Where to write a bundle of stand-ins for the file's addons, for `bootstrap --bundle`. Default: none.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Where to write every call that comes to it, as lines of JSON. Default: none.
    #[arg(long, value_name = "FILE")]
    calls: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<Exit> {
    block_on(serve(args))
}

async fn serve(args: Args) -> Result<Exit> {
    let signals = Signals::listen()?;
    let mut settings = load(args.config.as_deref(), None, Need::AnyCredentials, &Home::usual())?;
    let theirs = settings.credentials.0.clone();
    let mut again = signal(SignalKind::user_defined1()).context("cannot listen for SIGUSR1")?;
    let data_centre = start(&mut settings, &args.knobs, args.listen).await?;
    files::write_one(&args.ca, &data_centre.ca_pem(), true)
        .with_context(|| format!("cannot write {}", args.ca.display()))?;
    if let Some(path) = &args.bundle {
        let bundle = addons::stand_in_bundle(&settings)?;
        std::fs::write(path, bundle).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let calls = args.calls.as_deref().map(|path| CallLog::start(path, data_centre.gate())).transpose()?;
    output::note("SIMULATED data centre: there are no machines behind it. Use it with:");
    output::note(&format!("  export BUTLER_PROXY=http://{}", data_centre.proxy_address()));
    let ca = std::path::absolute(&args.ca).unwrap_or_else(|_| args.ca.clone());
    let block = settings.provider.as_str().to_uppercase();
    output::note(&format!("  export BUTLER_PROVIDERCONFIG_{block}_CAFILE={}", ca.display()));
    // What the user has given already needs no word.
    let made =
        settings.credentials.0.iter().any(|(key, value)| key != "ca.crt" && theirs.get(key) != Some(value));
    if made {
        output::note(&format!("  {}", exports(&settings, &args.key)?));
    }
    output::line(&format!("ready http://{} {}", data_centre.proxy_address(), ca.display()));
    loop {
        tokio::select! {
            () = signals.asked() => break,
            _ = again.recv() => read_again(&data_centre, args.knobs.fault.as_deref()).await,
        }
    }
    data_centre.stop().await;
    if let Some(calls) = calls {
        calls.end().await?;
    }
    Ok(Exit::Ok)
}

/// Other faults while it runs. A file that can't be read changes nothing.
async fn read_again(data_centre: &DataCentre, path: Option<&Path>) {
    match path.map(script).transpose() {
        Ok(Some(faults)) => {
            data_centre.gate().change_faults(faults).await;
            output::note("the faults were read again");
        }
        Ok(None) => output::note("there is no file of faults to read again: start it with --fault"),
        Err(error) => output::note(&format!("the faults stay as they were: {}", output::chain(&error))),
    }
}

/// Starts the data centre of a bootstrap, and makes the settings fit it: its CA is trusted, everything goes through its proxy,
/// and where the user gave no credentials, its own are used.
pub(crate) async fn start(settings: &mut Settings, knobs: &Knobs, listen: SocketAddr) -> Result<DataCentre> {
    let faults = knobs.fault.as_deref().map(script).transpose()?.unwrap_or_default();
    let site = site(settings)?;
    let options =
        DataCentreOptions { seed: knobs.seed, speed: knobs.speed, faults, proxy_listen: listen, ..site };
    let data_centre = DataCentre::start(options).await.context("the simulated data centre does not start")?;
    settings.credentials.0.insert("ca.crt".to_owned(), data_centre.ca_pem());
    settings.proxy = Some(format!("http://{}", data_centre.proxy_address()));
    // Names are resolved by the proxy, in its own network.
    settings.host_aliases.clear();
    Ok(data_centre)
}

/// The infrastructure that a file describes, and credentials for it where the user has none.
fn site(settings: &mut Settings) -> Result<DataCentreOptions> {
    let spec = settings.provider_config.spec.clone();
    match (settings.provider, spec) {
        (Provider::Proxmox, ProviderConfigSpec { proxmox: Some(block), .. }) => {
            proxmox::credentials(&mut settings.credentials);
            Ok(DataCentreOptions::for_site(proxmox::site(settings, &block)))
        }
        (Provider::Gcp, ProviderConfigSpec { gcp: Some(block), .. }) => {
            Ok(DataCentreOptions::for_gce(gcp::site(settings, &block)?))
        }
        (Provider::Aws, ProviderConfigSpec { aws: Some(block), .. }) => {
            Ok(DataCentreOptions::for_aws(aws::site(settings, &block)))
        }
        (other, _) => {
            let text = format!("proxmox, gcp and aws can be simulated so far, and the file is for {other}");
            Err(Ended::error(Exit::Usage, text))
        }
    }
}

/// What to export so that another command uses the data centre's credentials.
fn exports(settings: &Settings, key: &Path) -> Result<String> {
    match settings.provider {
        Provider::Gcp => gcp::exports(settings, key),
        Provider::Aws => Ok(aws::exports()),
        _ => Ok(proxmox::exports()),
    }
}

fn script(path: &Path) -> Result<FaultScript> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Ended::error(Exit::Usage, format!("cannot read {}: {error}", path.display())))?;
    FaultScript::parse(&text).map_err(|problems| {
        let list: Vec<String> =
            problems.iter().map(|problem| format!("{}: {problem}", path.display())).collect();
        Ended::error(Exit::Usage, list.join("\n"))
    })
}
