//! `butleradm apiserver`: the embedded Kubernetes API as a process of its own.

use crate::output;
use anyhow::{Context, Result, bail};
use butler_apiserver::{ApiService, HistoryLimits, Options, Server, User};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where objects, certificates and keys are kept. Made when it is missing; one server at a time may use it.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
    /// The address to serve on. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// A further name or address that clients use, for the certificate. May be repeated.
    #[arg(long, value_name = "HOST")]
    tls_host: Vec<String>,
    /// Where to write the administrator's kubeconfig (mode 0600, context `butler-bootstrap`).
    #[arg(long, value_name = "FILE")]
    write_kubeconfig: PathBuf,
    /// Install Butler's own custom resource definitions.
    #[arg(long)]
    crds: bool,
    /// How many changes of each kind are kept for watches that resume.
    #[arg(long, value_name = "N", default_value_t = HistoryLimits::default().events)]
    history: usize,
}

/// The context in the kubeconfig.
pub(crate) const CONTEXT: &str = "butler-bootstrap";

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn serve(args: Args) -> Result<()> {
    check_ours(&args.write_kubeconfig)?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let listener = tokio::net::TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {} (is the address in use?)", args.listen))?;
    let mut hosts = args.tls_host;
    hosts.push(args.listen.ip().to_string());
    let history = HistoryLimits { events: args.history.max(1), ..HistoryLimits::default() };
    let server = Server::open(Options { data_dir: args.data_dir, hosts, history }).await?;
    if args.crds {
        install_crds(&server.service(User::new("butleradm", &["system:masters"]))).await?;
    }
    let running = server.serve(listener)?;
    running.write_kubeconfig(&args.write_kubeconfig, CONTEXT)?;
    output::line(&format!("ready {}", running.url()));
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    output::note("stopping: finishing what is under way");
    running.stop().await;
    Ok(())
}

/// A kubeconfig that somebody else made is not overwritten: it may hold the way into other clusters.
fn check_ours(path: &Path) -> Result<()> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => bail!("cannot look at {}: {error}", path.display()),
    };
    let known: serde_json::Value = serde_saphyr::from_str(&text).unwrap_or_default();
    let contexts = known["contexts"].as_array().map_or(0, Vec::len);
    if text.trim().is_empty() || (contexts == 1 && known["contexts"][0]["name"] == CONTEXT) {
        return Ok(());
    }
    bail!(
        "{} exists and was not written by this command: it would be lost. Name another file for --write-kubeconfig",
        path.display()
    );
}

/// Applies our CRDs, so that a newer binary brings an older data directory up to date.
pub(crate) async fn install_crds(service: &ApiService) -> Result<()> {
    for crd in butler_api::crds() {
        let name = crd.metadata.name.clone().unwrap_or_default();
        let body = serde_json::to_vec(&crd)?;
        let path = format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}?fieldManager=butleradm&force=true"
        );
        let (code, answer) = service.send("PATCH", &path, "application/apply-patch+yaml", body.into()).await;
        if code >= 300 {
            let why = answer["message"].as_str().unwrap_or("no reason given").to_string();
            bail!("cannot install the custom resource definition {name}: {why}");
        }
    }
    Ok(())
}
