//! `butleradm doctor`: looks at everything that a bootstrap needs, and changes nothing.

mod dial;
mod ports;
mod stored;

use super::load::{load, sources};
use super::words::ProviderName;
use super::{addons, block_on};
use crate::config::{Need, Settings};
use crate::engine::{Home, Made, Reach, wanted};
use crate::exit::Exit;
use crate::output;
use crate::progress::OutputFormat;
use anyhow::Result;
use butler_api::{AddressRange, ControlPlaneHaType};
use butler_controllers::addons::Sources;
use butler_drivers::{Finding, NoRecorder, SharedRecorder, Verdict};
use dial::{Answer, Dialled, Dialler};
use serde_json::json;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use stored::{Stored, stored};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The infrastructure; the bootstrap file names the same. Not needed.
    #[arg(value_enum)]
    provider: Option<ProviderName>,
    /// The bootstrap file. Default: ./bootstrap.yaml, then ~/.butler/bootstrap.yaml.
    #[arg(long, short, value_name = "FILE", env = "BUTLER_CONFIG")]
    config: Option<PathBuf>,
    /// A bundle of addons that the bootstrap is going to use.
    #[arg(long, value_name = "FILE", env = "BUTLER_BUNDLE")]
    bundle: Option<PathBuf>,
    /// How to speak.
    #[arg(long, short, value_enum, default_value_t, env = "BUTLER_OUTPUT")]
    output: OutputFormat,
}

/// Ports at which a host that is there would answer or refuse.
const TELLING_PORTS: [u16; 4] = [6443, 50000, 443, 22];
/// No pool is looked at beyond this many addresses.
const MOST_ADDRESSES: u128 = 256;
/// A clock before this is wrong: it is when this was written, 2026-11-01.
const EARLIEST_SECOND: i64 = 1_793_491_200;

pub(crate) fn run(args: Args) -> Result<Exit> {
    block_on(doctor(args))
}

async fn doctor(args: Args) -> Result<Exit> {
    let home = Home::usual();
    let wanted = args.provider.map(Into::into);
    let settings = load(args.config.as_deref(), wanted, Need::Credentials, &home)?;
    let sources = sources(args.bundle.as_deref(), false)?;
    let reach = Reach::of(&settings);
    let known = home.clusters().iter().any(|name| name == settings.cluster());
    let mut findings = vec![state_folder(&home, settings.cluster()), clock()];
    findings.push(addon_sources(&settings, sources.as_ref()));
    let dialler = Dialler::new(reach.proxy.as_deref())?;
    let stored = match known {
        true => stored(&home, settings.cluster()).await.unwrap_or_else(|error| {
            let remedy = "end what else uses the state folder; machines of this cluster are taken for others' until then";
            findings.push(found("stored state", Verdict::Warn, output::chain(&error), remedy));
            Stored::unread(Made::Cluster)
        }),
        false => Stored::unread(Made::Nothing),
    };
    let (infrastructure, network, ports) = tokio::join!(
        infrastructure(&settings, &reach, stored.uid.clone()),
        network(&settings, &dialler, stored.made),
        ports::ports(&settings, &stored, &dialler),
    );
    findings.extend(infrastructure);
    findings.extend(network);
    findings.extend(ports);
    findings.iter().for_each(|finding| say(finding, args.output));
    let failed = findings.iter().filter(|finding| finding.verdict == Verdict::Fail).count();
    if failed == 0 {
        return Ok(Exit::Ok);
    }
    if args.output == OutputFormat::Text {
        output::line(&format!("{failed} of {} checks failed", findings.len()));
    }
    Ok(Exit::General)
}

fn say(finding: &Finding, format: OutputFormat) {
    let verdict = match finding.verdict {
        Verdict::Pass => "PASS",
        Verdict::Warn => "WARN",
        Verdict::Fail => "FAIL",
        Verdict::Skip => "SKIP",
    };
    match format {
        OutputFormat::Json => output::line(
            &json!({
                "event": "check", "time": jiff::Timestamp::now().to_string(), "check": finding.check,
                "verdict": verdict, "detail": finding.detail, "remedy": finding.remedy,
            })
            .to_string(),
        ),
        OutputFormat::Text => {
            output::line(&format!("{verdict}  {}: {}", finding.check, finding.detail));
            if !finding.remedy.is_empty() && finding.verdict != Verdict::Pass {
                output::line(&format!("      what to do: {}", finding.remedy));
            }
        }
    }
}

fn found(
    check: impl Into<String>,
    verdict: Verdict,
    detail: impl Into<String>,
    remedy: impl Into<String>,
) -> Finding {
    Finding { check: check.into(), verdict, detail: detail.into(), remedy: remedy.into() }
}

fn state_folder(home: &Home, cluster: &str) -> Finding {
    let there = home.folder(cluster).exists();
    let shown = home.path().display().to_string();
    match home.claim(cluster) {
        Ok(claim) => {
            if !there {
                // Looking must leave nothing behind. While it is still held: a run that starts meanwhile must not lose its lock.
                let _ = std::fs::remove_file(home.folder(cluster).join("lock"));
                let _ = std::fs::remove_dir(home.folder(cluster));
            }
            drop(claim);
            found("state folder", Verdict::Pass, format!("{shown} can be written"), "")
        }
        Err(error) => {
            let detail = output::chain(&error);
            found("state folder", Verdict::Fail, detail, "mend its rights, or name another with BUTLER_HOME")
        }
    }
}

fn clock() -> Finding {
    let now = jiff::Timestamp::now();
    let (verdict, remedy) = match now.as_second() >= EARLIEST_SECOND {
        true => (Verdict::Pass, ""),
        false => (Verdict::Fail, "set the clock: certificates made now would not be valid"),
    };
    found("clock", verdict, format!("this computer says {}", now.strftime("%Y-%m-%d %H:%M:%S UTC")), remedy)
}

/// Whether every addon that is to be installed has its manifests.
fn addon_sources(settings: &Settings, sources: &dyn Sources) -> Finding {
    let missing = addons::missing(settings, sources);
    match missing.is_empty() {
        true => found("addons", Verdict::Pass, "all of them have a source", ""),
        false => found(
            "addons",
            Verdict::Fail,
            format!("there is no source for {}", missing.join(", ")),
            addons::REMEDY,
        ),
    }
}

async fn infrastructure(settings: &Settings, reach: &Reach, uid: Option<String>) -> Vec<Finding> {
    let recorder: SharedRecorder = Arc::new(NoRecorder);
    let connection = reach.connection(&recorder);
    match butler_drivers::connect(&settings.provider_config.spec, &settings.credentials, &connection) {
        Ok(infrastructure) => infrastructure.preflight.check(&wanted(settings, uid)).await,
        Err(failure) => {
            vec![found(settings.provider.to_string(), Verdict::Fail, failure.message, failure.remedy)]
        }
    }
}

/// Addresses that must be nobody's yet. What the cluster has made may be in use: nodes' addresses once there are machines, all
/// others once there is etcd.
async fn network(settings: &Settings, dialler: &Dialler, made: Made) -> Vec<Finding> {
    let spec = &settings.bootstrap.spec;
    let mut findings = Vec::new();
    let vip = spec.network.endpoint().and_then(Result::ok);
    let to_take = spec.provider.is_on_prem()
        && matches!(
            spec.effective_control_plane_ha(),
            ControlPlaneHaType::KubeVip | ControlPlaneHaType::TalosVip
        );
    if let Some(ip) = vip.as_ref().and_then(butler_api::Endpoint::ip) {
        findings.push(match to_take {
            true => free("network.vip", &[ip], dialler, made >= Made::Cluster).await,
            false => found("network.vip", Verdict::Skip, format!("{ip} is taken as it is"), ""),
        });
    }
    if let Some(range) = spec.network.load_balancer_pool.as_ref().and_then(|pool| pool.range().ok()) {
        let pool = addresses(range);
        findings.push(free("network.loadBalancerPool", &pool, dialler, made >= Made::Cluster).await);
    }
    let fixed =
        settings.provider_config.spec.network.as_ref().and_then(|network| network.node_addresses.clone());
    if let Some(range) = fixed.and_then(|fixed| fixed.range().ok()) {
        let nodes = addresses(range);
        findings.push(free("network.nodeAddresses", &nodes, dialler, made >= Made::Machines).await);
    }
    findings
}

fn addresses(range: AddressRange) -> Vec<IpAddr> {
    (0..range.count().min(MOST_ADDRESSES)).filter_map(|index| range.nth(index)).collect()
}

async fn free(check: &str, addresses: &[IpAddr], dialler: &Dialler, ours: bool) -> Finding {
    let Dialled { taken, unknown } = dialler.look(addresses, &TELLING_PORTS).await;
    let count = addresses.len();
    if let (true, Some(status)) = (taken.is_empty(), unknown) {
        return ports::not_looked(check, status);
    }
    match taken.first() {
        None => {
            let detail = format!("nobody answers at {}", shown(addresses));
            found(check, Verdict::Pass, detail, "")
        }
        Some(_) if ours => found(check, Verdict::Warn, "in use, as it is when the cluster runs already", ""),
        Some((address, port, answer)) => {
            let how = match answer {
                Answer::Open => format!("port {port} is open"),
                Answer::Refused => format!("port {port} is refused, so a host has the address"),
                Answer::Nobody | Answer::Unknown(_) => "somebody has the address".to_owned(),
            };
            let more = if taken.len() > 1 {
                format!("; {} of {count} are taken", taken.len())
            } else {
                String::new()
            };
            found(check, Verdict::Fail, format!("{address}: {how}{more}"), "choose addresses that are free")
        }
    }
}

fn shown(addresses: &[IpAddr]) -> String {
    match addresses {
        [] => "no address".to_owned(),
        [only] => only.to_string(),
        [first, .., last] => format!("{first} to {last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Schemas, Surroundings, check};
    use std::collections::BTreeMap;
    use std::path::Path;

    const FILE: &str = include_str!("../../../../examples/bootstrap-proxmox.yaml");

    #[tokio::test]
    async fn an_address_in_use_is_judged_by_whose_it_can_be() {
        let around = Surroundings { variables: BTreeMap::new(), ..Surroundings::of(Path::new("f")) };
        let checked = check(&Schemas::new().unwrap(), FILE, None, Need::AnyCredentials, &around);
        let mut settings = checked.settings.unwrap();
        let spec = &mut settings.bootstrap.spec;
        // This computer answers, and nobody else is asked.
        spec.network.vip = Some("127.0.0.1".to_owned());
        spec.network.load_balancer_pool = None;
        let dialler = Dialler::new(None).unwrap();
        let verdict = async |settings: &Settings, made| {
            let findings = network(settings, &dialler, made).await;
            assert_eq!(findings.len(), 1, "{findings:?}");
            findings[0].verdict
        };
        assert_eq!(verdict(&settings, Made::Nothing).await, Verdict::Fail);
        assert_eq!(verdict(&settings, Made::Machines).await, Verdict::Fail, "machines alone do not hold it");
        assert_eq!(verdict(&settings, Made::Cluster).await, Verdict::Warn);
        settings.bootstrap.spec.addons.control_plane_ha.type_ = ControlPlaneHaType::External;
        assert_eq!(
            verdict(&settings, Made::Nothing).await,
            Verdict::Skip,
            "it is there already, as it should be"
        );
    }
}
