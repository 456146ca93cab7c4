//! `butleradm talos gen`: the configs of all nodes of a cluster, with its secrets, from the command line.
//!
//! Everything is made and checked before the first byte is written. Then the secrets come first: a crash never leaves
//! configs whose secrets are nowhere.

use super::files::{Files, keep_old};
use super::reach::secret;
use crate::output;
use anyhow::{Context as _, Result};
use butler_talos::client::Proxy;
use butler_talos::pki::{BACKDATE, CLIENT_LIFE};
use butler_talos::{
    Cidr, ClusterIntent, Cni, Contract, Endpoint, InstallDisk, Installer, KubernetesVersion, LinkName,
    MachineConfig, Mode, NodeIntent, Patch, Problem, Role, Secret, SecretsBundle, Severity, TalosVersion,
    Talosconfig, admin_kubeconfig, apply_patches, check_cluster, check_together, render, validate,
};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The cluster's name; nodes are called NAME-cp-1, NAME-worker-1, ...
    #[arg(value_name = "CLUSTER")]
    cluster: String,
    /// Where the Kubernetes API will be reached: https://host:port.
    #[arg(value_name = "ENDPOINT", value_parser = Endpoint::parse)]
    endpoint: Endpoint,
    /// The address of a control plane; once per node. Without it, one control plane of unknown address.
    #[arg(long = "control-plane", value_name = "IP")]
    control_planes: Vec<IpAddr>,
    /// The address of a worker; once per node. Without it, pods run on the control planes.
    #[arg(long = "worker", value_name = "IP")]
    workers: Vec<IpAddr>,
    /// Talos version, 1.9 to 1.13.
    #[arg(long, value_name = "VERSION", default_value_t = Contract::LATEST.default_talos(), value_parser = TalosVersion::parse)]
    talos_version: TalosVersion,
    /// Kubernetes version; by default the one that the Talos version brings.
    #[arg(long, value_name = "VERSION", value_parser = KubernetesVersion::parse)]
    kubernetes_version: Option<KubernetesVersion>,
    /// Take the secrets from this file instead of making new ones.
    #[arg(long, value_name = "FILE")]
    with_secrets: Option<PathBuf>,
    /// Change all configs: a file (@FILE) or the patch itself, as RFC 6902 operations or as a strategic merge patch.
    #[arg(long = "patch", value_name = "@FILE")]
    patches: Vec<String>,
    /// Change the configs of control planes, after --patch.
    #[arg(long = "patch-control-plane", value_name = "@FILE")]
    control_plane_patches: Vec<String>,
    /// Change the configs of workers, after --patch.
    #[arg(long = "patch-worker", value_name = "@FILE")]
    worker_patches: Vec<String>,
    /// The folder for secrets.yaml, talosconfig, kubeconfig and a config per node, all of mode 0600.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace files that are there. Old secrets are kept as secrets.yaml.old.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    settings: Settings,
}

/// What all nodes share.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Settings of all nodes")]
struct Settings {
    /// The disk to install Talos to.
    #[arg(long, value_name = "DEVICE", default_value = "/dev/vda")]
    install_disk: String,
    /// The schematic of an image factory, for the installer image.
    #[arg(long, value_name = "ID")]
    schematic: Option<String>,
    /// The network of pods; may be repeated, once per IP version.
    #[arg(long = "pod-network", value_name = "CIDR")]
    pod_networks: Vec<Cidr>,
    /// The network of services; may be repeated, once per IP version.
    #[arg(long = "service-network", value_name = "CIDR")]
    service_networks: Vec<Cidr>,
    /// A further name or address of the control planes, for their certificates.
    #[arg(long = "extra-name", value_name = "NAME")]
    extra_names: Vec<String>,
    /// An address that the control planes share, held by Talos itself.
    #[arg(long, value_name = "IP", requires = "vip_link")]
    vip: Option<IpAddr>,
    /// The interface of the shared address: a name, or a hardware address.
    #[arg(long, value_name = "LINK")]
    vip_link: Option<String>,
    /// Talos' own flannel and kube-proxy; by default there are none, and a CNI such as Cilium brings both.
    #[arg(long)]
    flannel: bool,
    /// Do not use the discovery service.
    #[arg(long)]
    no_discovery: bool,
    /// A time server.
    #[arg(long = "time-server", value_name = "HOST")]
    time_servers: Vec<String>,
    /// An HTTP proxy, written into talosconfig and kubeconfig.
    #[arg(long, value_name = "URL", value_parser = secret)]
    proxy_url: Option<Secret>,
}

/// Exit code of a wish that cannot work.
const BAD: u8 = 2;

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let now = now()?;
    let (cluster, nodes) = intent(args);
    if told(&check_cluster(&cluster, &nodes), None) {
        return Ok(ExitCode::from(BAD));
    }
    if let Some(url) = &args.settings.proxy_url {
        url.expose().parse::<Proxy>().context("--proxy-url")?;
    }
    let everywhere = patches("--patch", &args.patches)?;
    let control_planes = patches("--patch-control-plane", &args.control_plane_patches)?;
    let workers = patches("--patch-worker", &args.worker_patches)?;
    // Before anything is made: nothing is drawn that can't be kept.
    let mut files = Files::default();
    let names = ["talosconfig".to_owned(), "kubeconfig".to_owned()].into_iter();
    let names = names.chain(nodes.iter().map(|node| format!("{}.yaml", node.hostname)));
    let mut planned = Files::default();
    names
        .chain(args.with_secrets.is_none().then(|| "secrets.yaml".to_owned()))
        .for_each(|name| planned.add(name, ""));
    if !args.force {
        planned.refuse_existing(&args.out)?;
    }
    let (secrets, made) = secrets(args, now, &mut files)?;
    credentials(args, &cluster, &secrets, now, &mut files)?;
    let mut configs = Vec::new();
    for node in &nodes {
        let own = if node.role == Role::Worker { &workers } else { &control_planes };
        let patches: Vec<Patch> = everywhere.iter().chain(own).cloned().collect();
        let config = render(&cluster, node, &secrets)?;
        let config = apply_patches(config, &patches, cluster.talos.contract())
            .with_context(|| format!("the config of {}", node.hostname))?;
        files.add(format!("{}.yaml", node.hostname), config.to_yaml());
        configs.push(config);
    }
    if bad_configs(&nodes, &configs, cluster.talos.contract()) {
        return Ok(ExitCode::from(BAD));
    }
    if args.with_secrets.is_none()
        && let Some(kept) = keep_old(&args.out.join("secrets.yaml"))?
    {
        output::note(&format!("the secrets that were there are kept as {}", kept.display()));
    }
    files.write(&args.out)?;
    if let Some(made) = made {
        output::note(&made);
    }
    for name in files.names() {
        output::line(&args.out.join(name).display().to_string());
    }
    Ok(ExitCode::SUCCESS)
}

fn now() -> Result<jiff::Timestamp> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(jiff::Timestamp::from_second(now.as_secs().try_into()?)?)
}

fn intent(args: &Args) -> (ClusterIntent, Vec<NodeIntent>) {
    let settings = &args.settings;
    let mut cluster = ClusterIntent::new(&args.cluster, args.endpoint.clone(), args.talos_version.clone());
    if let Some(version) = &args.kubernetes_version {
        cluster.kubernetes = version.clone();
    }
    for (wanted, given) in [
        (&mut cluster.pod_networks, &settings.pod_networks),
        (&mut cluster.service_networks, &settings.service_networks),
    ] {
        if !given.is_empty() {
            wanted.clone_from(given);
        }
    }
    if settings.flannel {
        (cluster.cni, cluster.kube_proxy) = (Cni::Flannel, true);
    }
    cluster.control_planes.clone_from(&args.control_planes);
    cluster.extra_names.clone_from(&settings.extra_names);
    cluster.vip = settings.vip;
    cluster.discovery = !settings.no_discovery;
    cluster.time_servers.clone_from(&settings.time_servers);
    cluster.schedule_on_control_planes = args.workers.is_empty();
    if let Some(schematic) = &settings.schematic {
        cluster.installer = Installer::factory(schematic);
    }
    let vip_link = settings.vip_link.as_ref().map(|link| match link.contains(':') {
        true => LinkName::Mac(link.clone()),
        false => LinkName::Name(link.clone()),
    });
    let control_planes: Vec<Option<IpAddr>> = match args.control_planes.as_slice() {
        [] => vec![None],
        addresses => addresses.iter().copied().map(Some).collect(),
    };
    let node = |role, word: &str, index: usize, address| {
        let mut node = NodeIntent::new(role, format!("{}-{word}-{}", args.cluster, index + 1));
        node.address = address;
        node.install_disk = Some(InstallDisk::Path(settings.install_disk.clone()));
        node.vip_link.clone_from(&vip_link);
        node
    };
    let mut nodes: Vec<NodeIntent> =
        control_planes.into_iter().enumerate().map(|(n, ip)| node(Role::ControlPlane, "cp", n, ip)).collect();
    nodes.extend(args.workers.iter().enumerate().map(|(n, ip)| node(Role::Worker, "worker", n, Some(*ip))));
    (cluster, nodes)
}

/// `option` is how a patch that is not in a file is called.
fn patches(option: &str, given: &[String]) -> Result<Vec<Patch>> {
    given
        .iter()
        .enumerate()
        .map(|(index, text)| match text.strip_prefix('@') {
            Some(file) => {
                let text =
                    std::fs::read_to_string(file).with_context(|| format!("cannot read the patch {file}"))?;
                Ok(Patch::parse(file, &text)?)
            }
            None => Ok(Patch::parse(format!("{option} {}", index + 1), text)?),
        })
        .collect()
}

/// Old secrets from a file, or new ones, which are written first; and then what there is to say about those.
fn secrets(args: &Args, now: jiff::Timestamp, files: &mut Files) -> Result<(SecretsBundle, Option<String>)> {
    if let Some(path) = &args.with_secrets {
        return Ok((load_secrets(path, now)?, None));
    }
    let made = SecretsBundle::generate(now)?;
    let told = format!(
        "made the secrets of {}: the RSA key in {} ms, everything else in {} ms",
        args.cluster,
        made.rsa.as_millis(),
        made.rest.as_millis()
    );
    files.add("secrets.yaml", made.bundle.to_yaml());
    Ok((made.bundle, Some(told)))
}

fn load_secrets(path: &Path, now: jiff::Timestamp) -> Result<SecretsBundle> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    SecretsBundle::from_yaml(&text, now).with_context(|| path.display().to_string())
}

/// talosconfig and kubeconfig, both good from a little while ago on.
fn credentials(
    args: &Args,
    cluster: &ClusterIntent,
    secrets: &SecretsBundle,
    now: jiff::Timestamp,
    files: &mut Files,
) -> Result<()> {
    let begin = now.checked_sub(BACKDATE)?;
    let life = CLIENT_LIFE + BACKDATE;
    let endpoints = args.control_planes.iter().map(ToString::to_string).collect();
    let mut talosconfig = Talosconfig::generate(&cluster.name, endpoints, secrets, begin, life)?;
    let proxy = args.settings.proxy_url.as_ref().map(Secret::expose);
    for context in talosconfig.contexts.values_mut() {
        context.proxy_url = proxy.map(str::to_owned);
    }
    files.add("talosconfig", talosconfig.to_yaml());
    let kubeconfig = admin_kubeconfig(&cluster.name, &cluster.endpoint, secrets, begin, life, proxy)
        .context("cannot make the kubeconfig")?;
    files.add("kubeconfig", kubeconfig.expose());
    Ok(())
}

/// Says what is wrong with the configs as they are after the patches; whether anything is.
fn bad_configs(nodes: &[NodeIntent], configs: &[MachineConfig], contract: Contract) -> bool {
    let mut bad = false;
    for (node, config) in nodes.iter().zip(configs) {
        bad |= told(&validate(config, Mode::Metal, Some(contract)), Some(&node.hostname));
    }
    for (index, problem) in check_together(&configs.iter().collect::<Vec<_>>()) {
        bad |= told(&[problem], nodes.get(index).map(|node| node.hostname.as_str()));
    }
    bad
}

/// Prints problems; whether there was an error among them.
fn told(problems: &[Problem], node: Option<&str>) -> bool {
    for problem in problems {
        let place = node.map(|node| format!("{node}: ")).unwrap_or_default();
        match problem.severity {
            Severity::Error => output::error(&format!("{place}{problem}")),
            Severity::Warning => output::note(&format!("warning: {place}{problem}")),
        }
    }
    problems.iter().any(|problem| problem.severity == Severity::Error)
}
