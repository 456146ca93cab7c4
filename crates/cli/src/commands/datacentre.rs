//! The simulated data centre of a bootstrap file: has the hosts, storages, template and addresses that the file names, and
//! room for its machines. In this process for `rehearse`, as a process of its own for `sim datacentre`.

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
use butler_api::{Endpoint, Provider, ProxmoxConfig};
use butler_drivers::Credentials;
use butler_sim::proxmox::{ProxmoxSite, SiteNames};
use butler_sim::{DataCentre, DataCentreOptions, FaultScript};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// What of a data centre the command line decides.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Knobs {
    /// Scales all delays: 1 is real time, 0.1 a tenth of it, 0 as fast as possible.
    #[arg(long, value_name = "FACTOR", default_value_t = 0.0, value_parser = factor)]
    pub(crate) speed: f64,
    /// Where ids, jitter and random faults come from. Keys are never drawn from it.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Faults: a YAML file that says which calls fail and which machines die.
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
    /// Where to write a bundle of stand-ins for the file's addons, for `bootstrap --bundle`. Default: none.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
    /// Where to write every call that comes to it, as lines of JSON. Default: none.
    #[arg(long, value_name = "FILE")]
    calls: Option<PathBuf>,
}

/// The token that a rehearsal uses when the user has given none.
const USER: &str = "root@pam!rehearsal";
const SECRET: &str = "00000000-5ee0-4c0f-9a1b-4e4ea45a1000";

pub(crate) fn run(args: Args) -> Result<Exit> {
    block_on(serve(args))
}

async fn serve(args: Args) -> Result<Exit> {
    let signals = Signals::listen()?;
    let mut settings = load(args.config.as_deref(), None, Need::AnyCredentials, &Home::usual())?;
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
    output::note(&format!("  export BUTLER_PROVIDERCONFIG_PROXMOX_CAFILE={}", ca.display()));
    if settings.credentials.get("token") == Some(USER) {
        output::note(&format!("  export PROXMOX_TOKEN_ID='{USER}' PROXMOX_TOKEN_SECRET={SECRET}"));
    }
    output::line(&format!("ready http://{} {}", data_centre.proxy_address(), ca.display()));
    signals.asked().await;
    data_centre.stop().await;
    if let Some(calls) = calls {
        calls.end().await?;
    }
    Ok(Exit::Ok)
}

/// Starts the data centre of a bootstrap, and makes the settings fit it: its CA is trusted, everything goes through its proxy,
/// and where the user gave no credentials, its own are used.
pub(crate) async fn start(settings: &mut Settings, knobs: &Knobs, listen: SocketAddr) -> Result<DataCentre> {
    let Some(proxmox) = settings.provider_config.spec.proxmox.clone() else {
        let text = format!(
            "only {} can be simulated so far, and the file is for {}",
            Provider::Proxmox,
            settings.provider
        );
        return Err(Ended::error(Exit::Usage, text));
    };
    let faults = knobs.fault.as_deref().map(script).transpose()?.unwrap_or_default();
    credentials(&mut settings.credentials);
    let options = DataCentreOptions {
        seed: knobs.seed,
        speed: knobs.speed,
        proxmox: site(settings, &proxmox),
        faults,
        proxy_listen: listen,
    };
    let data_centre = DataCentre::start(options).await.context("the simulated data centre does not start")?;
    settings.credentials.0.insert("ca.crt".to_owned(), data_centre.ca_pem());
    settings.proxy = Some(format!("http://{}", data_centre.proxy_address()));
    // Names are resolved by the proxy, in its own network.
    settings.host_aliases.clear();
    Ok(data_centre)
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

fn credentials(credentials: &mut Credentials) {
    let token = credentials.get("token").is_some() && credentials.get("tokenSecret").is_some();
    let password = credentials.get("username").is_some() && credentials.get("password").is_some();
    if !token && !password {
        credentials.0.insert("token".to_owned(), USER.to_owned());
        credentials.0.insert("tokenSecret".to_owned(), SECRET.to_owned());
    }
}

/// The site that a file describes.
fn site(settings: &Settings, proxmox: &ProxmoxConfig) -> ProxmoxSite {
    let spec = &settings.bootstrap.spec;
    let credentials = &settings.credentials;
    let (user, secret) = match (credentials.get("token"), credentials.get("tokenSecret")) {
        (Some(token), Some(secret)) => (token, secret),
        _ => {
            (credentials.get("username").unwrap_or_default(), credentials.get("password").unwrap_or_default())
        }
    };
    let v4 = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    };
    let vip = spec.network.endpoint().and_then(Result::ok).as_ref().and_then(Endpoint::ip).and_then(v4);
    let pool = spec.network.load_balancer_pool.as_ref().and_then(|pool| pool.range().ok());
    let network = settings.provider_config.spec.network.as_ref();
    let fixed =
        network.and_then(|network| network.node_addresses.as_ref()).and_then(|fixed| fixed.range().ok());
    let ranges = [pool, fixed].into_iter().flatten();
    let taken =
        ranges.flat_map(|range| (0..range.count().min(1024)).filter_map(move |index| range.nth(index)));
    let reserved: Vec<Ipv4Addr> = vip.into_iter().chain(taken.filter_map(v4)).collect();
    let mut site = ProxmoxSite::for_config(&SiteNames {
        endpoint: proxmox.endpoint.clone(),
        nodes: proxmox.nodes.clone(),
        storage: proxmox.storage.clone(),
        template_id: proxmox.template_id.and_then(|id| u32::try_from(id).ok()),
        talos_version: Some(spec.talos.version.clone()),
        user: user.to_owned(),
        secret: secret.to_owned(),
        within: reserved.first().copied(),
        reserved,
        images: images(settings),
    });
    site.network.bridge = proxmox.bridge().to_owned();
    for storage in &mut site.storages {
        storage.total = storage.total.max(2 * disks(settings) * GIB);
    }
    site
}

const GIB: u64 = 1 << 30;

/// GiB of all disks of the cluster.
fn disks(settings: &Settings) -> u64 {
    let spec = &settings.bootstrap.spec;
    let workers = spec.effective_workers().map(|pool| (pool, pool.replicas));
    let pools = std::iter::once((&spec.cluster.control_plane, spec.control_plane_count())).chain(workers);
    let sum: i64 = pools
        .map(|(pool, count)| {
            let extra: i64 = pool.extra_disks.iter().map(|disk| i64::from(disk.size_gb)).sum();
            i64::from(count) * (i64::from(pool.disk_gb) + extra)
        })
        .sum();
    u64::try_from(sum).unwrap_or(0)
}

/// The image that the bootstrap is going to fetch.
fn images(settings: &Settings) -> Vec<(String, String)> {
    let factory = settings.butler_config.as_ref().and_then(|config| config.spec.image_factory.as_ref());
    let talos = &settings.bootstrap.spec.talos;
    let profile = butler_drivers::Profile::of(settings.provider);
    let url = |base: &str| {
        format!(
            "{}/image/{}/{}/{}-amd64.{}",
            base.trim_end_matches('/'),
            talos.schematic,
            talos.version,
            profile.image_platform,
            profile.image_format
        )
    };
    factory.map(|factory| (url(&factory.url), String::new())).into_iter().collect()
}
