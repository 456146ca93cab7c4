//! A real control plane on this machine: etcd, kube-apiserver and (if wanted) kube-controller-manager, on free loopback
//! ports, in a folder of its own, gone without a trace when it is dropped. It is what our own server is compared with.
//!
//! ```text
//! <parent>/real-cluster-XXXX/       0700, removed on drop unless kept
//!     admin.kubeconfig              client certificate, group system:masters
//!     alice.kubeconfig ...          bearer tokens, one per identity
//!     etcd/                         data, written with fsync as in production
//!     *.log *.crt *.key tokens.csv
//! ```
//!
//! There is no kubelet, no scheduler and no cloud: pods stay Pending, and the controllers that look after nodes are off.

mod pki;
mod process;

use std::{
    fs::Permissions,
    io::Write,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api, Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use self::process::Process;
use crate::peers::Peers;

pub(crate) use self::pki::Identity;

/// A question that takes longer is asked again.
const ONE_LOOK: Duration = Duration::from_secs(2);

/// Controllers that need nodes or a cloud, of which there are none. A Node that a test creates stays as it was created.
const CONTROLLERS: &str = "--controllers=*,-node-ipam-controller,-node-lifecycle-controller,-node-route-controller,\
    -taint-eviction-controller,-cloud-node-lifecycle-controller,-service-lb-controller";

/// A running control plane. Dropping it ends its programs and removes its folder.
#[derive(Debug)]
pub(crate) struct RealCluster {
    /// Where the API is: `https://127.0.0.1:PORT`.
    pub(crate) url: String,
    /// Logs in by client certificate as `admin`, group `system:masters`.
    pub(crate) kubeconfig: PathBuf,
    /// Users with bearer tokens: `token-admin` (system:masters), `alice` and `bob` (no rights of their own).
    pub(crate) identities: Vec<Identity>,
    pub(crate) timings: Timings,
    // Fields are dropped in this order: first who asks, last who is asked, then the folder.
    controller_manager: Option<Process>,
    apiserver: Process,
    etcd: Process,
    launch: Launch,
    folder: Folder,
}

/// What starts the same API again over the same data.
#[derive(Debug)]
struct Launch {
    etcd_port: u16,
    etcd_args: Vec<String>,
    apiserver_args: Vec<String>,
}

/// From the start of a program until it said that it is ready.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timings {
    pub(crate) etcd: Duration,
    pub(crate) apiserver: Duration,
}

/// Process ids, for measuring what they use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pids {
    pub(crate) etcd: u32,
    pub(crate) apiserver: u32,
    pub(crate) controller_manager: Option<u32>,
}

/// What to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parts {
    /// etcd and kube-apiserver: nobody collects garbage, finishes namespaces or makes service accounts.
    ApiOnly,
    /// With kube-controller-manager.
    WithControllers,
}

/// The cluster's folder; `Kept` stays when the cluster ends.
#[derive(Debug)]
enum Folder {
    Temporary(TempDir),
    Kept(PathBuf),
}

// === impl RealCluster ===

impl RealCluster {
    /// Starts a new, empty control plane in a new folder below `parent`, and waits until all of it is ready.
    pub(crate) async fn start(peers: &Peers, parent: &Path, parts: Parts) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("real-cluster-")
            // It holds private keys, which get no mode of their own.
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)
            .with_context(|| format!("make a folder for the cluster in {}", parent.display()))?;
        // Absolute, because kubeconfigs name their certificates by path.
        let dir = folder.path().canonicalize().context("find the cluster's folder")?;
        let [client_port, peer_port, api_port] = free_ports()?;
        let url = format!("https://127.0.0.1:{api_port}");
        let pki = pki::create(&dir, &url)?;

        let launch = Launch {
            etcd_port: client_port,
            etcd_args: etcd_args(client_port, peer_port),
            apiserver_args: apiserver_args(&pki, client_port, api_port),
        };
        let client = client(&pki.admin_kubeconfig).await?;
        let (etcd, apiserver, timings) = launch.start(peers, &dir, &client).await?;

        let controller_manager = match parts {
            Parts::ApiOnly => None,
            Parts::WithControllers => Some(start_controllers(peers, &dir, &pki, client).await?),
        };
        Ok(Self {
            url,
            kubeconfig: pki.admin_kubeconfig,
            identities: pki.identities,
            timings,
            controller_manager,
            apiserver,
            etcd,
            launch,
            folder: Folder::Temporary(folder),
        })
    }

    pub(crate) fn pids(&self) -> Pids {
        Pids {
            etcd: self.etcd.pid(),
            apiserver: self.apiserver.pid(),
            controller_manager: self.controller_manager.as_ref().map(Process::pid),
        }
    }

    /// Ends the API as an operator would (SIGTERM, kube-apiserver first) and starts it again over the same data; `timings`
    /// are those of the new start. kube-controller-manager, if there is one, stays and finds the new server by itself.
    pub(crate) async fn restart(&mut self, peers: &Peers) -> Result<()> {
        self.apiserver.terminate().await?;
        self.etcd.terminate().await?;
        let dir = self.dir().canonicalize().context("find the cluster's folder")?;
        let client = client(&self.kubeconfig).await?;
        (self.etcd, self.apiserver, self.timings) = self.launch.start(peers, &dir, &client).await?;
        Ok(())
    }

    /// Where data, logs and certificates are.
    pub(crate) fn dir(&self) -> &Path {
        match &self.folder {
            Folder::Temporary(dir) => dir.path(),
            Folder::Kept(dir) => dir,
        }
    }

    /// Leaves the folder behind when the cluster ends, for a look at data and logs.
    pub(crate) fn keep_folder(mut self) -> Self {
        if let Folder::Temporary(dir) = self.folder {
            self.folder = Folder::Kept(dir.keep());
        }
        self
    }
}

// === impl Launch ===

impl Launch {
    /// etcd, then kube-apiserver, each waited for.
    async fn start(&self, peers: &Peers, dir: &Path, client: &Client) -> Result<(Process, Process, Timings)> {
        let mut etcd = Process::start("etcd", &peers.etcd, dir, &self.etcd_args)?;
        let etcd_ready = etcd.ready(async || etcd_is_healthy(self.etcd_port).await).await?;
        let mut apiserver =
            Process::start("kube-apiserver", &peers.kube_apiserver, dir, &self.apiserver_args)?;
        let apiserver_ready = apiserver.ready(async || api_is_ready(client).await).await?;
        Ok((etcd, apiserver, Timings { etcd: etcd_ready, apiserver: apiserver_ready }))
    }
}

// === programs and their arguments ===

fn etcd_args(client_port: u16, peer_port: u16) -> Vec<String> {
    vec![
        "--data-dir=etcd".to_owned(),
        format!("--listen-client-urls=http://127.0.0.1:{client_port}"),
        format!("--advertise-client-urls=http://127.0.0.1:{client_port}"),
        format!("--listen-peer-urls=http://127.0.0.1:{peer_port}"),
        format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}"),
        format!("--initial-cluster=default=http://127.0.0.1:{peer_port}"),
    ]
}

fn apiserver_args(pki: &pki::Pki, etcd_port: u16, port: u16) -> Vec<String> {
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        "--bind-address=127.0.0.1".to_owned(),
        "--advertise-address=127.0.0.1".to_owned(),
        // A loopback address may not stand in an Endpoints object, so nobody is to write it there.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--secure-port={port}"),
        flag("tls-cert-file", &pki.server.certificate),
        flag("tls-private-key-file", &pki.server.key),
        flag("client-ca-file", &pki.ca),
        flag("token-auth-file", &pki.tokens),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        flag("service-account-key-file", &pki.service_account_public_key),
        flag("service-account-signing-key-file", &pki.service_account_key),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
    ]
}

fn controller_manager_args(pki: &pki::Pki) -> Vec<String> {
    vec![
        flag("kubeconfig", &pki.controller_manager_kubeconfig),
        flag("service-account-private-key-file", &pki.service_account_key),
        flag("root-ca-file", &pki.ca),
        "--use-service-account-credentials=true".to_owned(),
        // Nobody asks it anything, and there is no second one to elect against.
        "--secure-port=0".to_owned(),
        "--leader-elect=false".to_owned(),
        CONTROLLERS.to_owned(),
    ]
}

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// The controllers work when the default namespace has got its service account.
async fn start_controllers(peers: &Peers, dir: &Path, pki: &pki::Pki, client: Client) -> Result<Process> {
    let args = controller_manager_args(pki);
    let mut process = Process::start("kube-controller-manager", &peers.kube_controller_manager, dir, &args)?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
    process
        .ready(async || matches!(timeout(ONE_LOOK, accounts.get_opt("default")).await, Ok(Ok(Some(_)))))
        .await?;
    Ok(process)
}

// === looking ===

/// Ports that were free a moment ago. All are held at once, so that they differ.
fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
        *port = listener.local_addr().context("find a free port")?.port();
        held.push(listener);
    }
    Ok(ports)
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let config =
        Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("understand {}", kubeconfig.display()))?;
    Client::try_from(config).context("make a client")
}

async fn api_is_ready(client: &Client) -> bool {
    let Ok(request) = http_get("/readyz") else { return false };
    matches!(timeout(ONE_LOOK, client.request_text(request)).await, Ok(Ok(answer)) if answer == "ok")
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    http::Request::get(path).body(Vec::new()).with_context(|| format!("make a request for {path}"))
}

async fn etcd_is_healthy(port: u16) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    matches!(timeout(ONE_LOOK, ask).await, Ok(Ok(answer)) if answer.contains("\"health\":\"true\""))
}

// === the command ===

/// `cargo xtask cluster`: a control plane to ask questions, until Ctrl-C.
#[derive(Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// The real kube-apiserver with etcd and kube-controller-manager (our own is `butleradm apiserver`)
    #[arg(long)]
    real: bool,
    /// Without kube-controller-manager
    #[arg(long)]
    api_only: bool,
    /// Leave the folder with data and logs behind
    #[arg(long)]
    keep: bool,
}

pub(crate) async fn run_command(args: ClusterArgs) -> Result<()> {
    ensure!(args.real, "only --real is known here; `butleradm apiserver` starts our own server");
    let peers = Peers::ensure()?;
    let parts = if args.api_only { Parts::ApiOnly } else { Parts::WithControllers };
    let mut cluster = RealCluster::start(&peers, &std::env::temp_dir(), parts).await?;
    if args.keep {
        cluster = cluster.keep_folder();
    }
    describe(&cluster, &peers)?;
    wait_for_end().await?;
    let mut out = std::io::stdout().lock();
    if args.keep {
        writeln!(out, "left behind: {}", cluster.dir().display())?;
    }
    Ok(())
}

fn describe(cluster: &RealCluster, peers: &Peers) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready {}", cluster.url)?;
    let Timings { etcd, apiserver } = cluster.timings;
    writeln!(
        out,
        "# ready after: etcd {} ms, kube-apiserver {} ms",
        etcd.as_millis(),
        apiserver.as_millis()
    )?;
    let Pids { etcd, apiserver, controller_manager } = cluster.pids();
    write!(out, "# process ids: etcd {etcd}, kube-apiserver {apiserver}")?;
    controller_manager.map_or(Ok(()), |pid| write!(out, ", kube-controller-manager {pid}"))?;
    writeln!(out)?;
    writeln!(out, "export KUBECONFIG={}", cluster.kubeconfig.display())?;
    for identity in &cluster.identities {
        let groups = identity.groups.join(", ");
        writeln!(out, "# as {} ({groups}): {}", identity.user, identity.kubeconfig.display())?;
    }
    for kubectl in &peers.kubectls {
        writeln!(out, "# kubectl {}: {}", kubectl.version, kubectl.path.display())?;
    }
    writeln!(out, "# Ctrl-C ends it")?;
    out.flush()?;
    Ok(())
}

/// SIGTERM counts as well: the programs must end also when a script ends us.
pub(crate) async fn wait_for_end() -> Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result.context("listen for Ctrl-C"),
        _ = terminate.recv() => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_differ() {
        let [a, b, c] = free_ports().unwrap();
        assert!(a != b && b != c && a != c);
    }

    #[tokio::test]
    async fn an_etcd_that_is_not_there_is_not_healthy() {
        let [port] = free_ports().unwrap();
        assert!(!etcd_is_healthy(port).await);
    }
}
