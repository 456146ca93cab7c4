//! The generator behind a pipe: one JSON request per line on stdin, one JSON answer per line on stdout. It speaks like the
//! pipe to Talos' own machinery (`xtask/peers/talos-machinery/main.go`), so that `cargo xtask bench talos` can measure both
//! with the same requests.
//!
//! ```text
//! {"op": "bundle", "rounds": 20, "secrets": "…", "name": "…", "endpoint": "…", "contract": "v1.13.9", …}
//! {"op": "rsa", "rounds": 1}
//! {"ok": true, "nanoseconds": [612345, …]}
//! ```

use std::{
    error::Error,
    io::{BufRead, Write},
    net::IpAddr,
    time::{Duration, Instant},
};

use butler_talos::{
    ClusterIntent, Endpoint, InstallDisk, KubernetesVersion, NodeIntent, Role, SecretsBundle, TalosVersion,
    Talosconfig,
    pki::{KeyAlgorithm, PrivateKey},
    render,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct Request {
    op: String,
    rounds: usize,
    secrets: String,
    name: String,
    endpoint: String,
    kubernetes: String,
    contract: String,
    install_disk: String,
    control_planes: Vec<IpAddr>,
    workers: Vec<IpAddr>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let answer = match answer(&line?) {
            Ok(nanoseconds) => json!({"ok": true, "nanoseconds": nanoseconds}),
            Err(error) => json!({"ok": false, "errors": [error.to_string()]}),
        };
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
    Ok(())
}

/// How long each round took.
fn answer(line: &str) -> Result<Vec<u128>, Box<dyn Error>> {
    let request: Request = serde_json::from_str(line)?;
    let mut nanoseconds = Vec::new();
    for _ in 0..request.rounds.max(1) {
        let started = Instant::now();
        match request.op.as_str() {
            "bundle" => drop(std::hint::black_box(bundle(&request)?)),
            "rsa" => drop(std::hint::black_box(PrivateKey::generate(KeyAlgorithm::Rsa)?)),
            other => return Err(format!("there is no operation {other:?}").into()),
        }
        nanoseconds.push(started.elapsed().as_nanos());
    }
    Ok(nanoseconds)
}

/// The text of every file of a cluster.
fn bundle(request: &Request) -> Result<Vec<String>, Box<dyn Error>> {
    let now = Timestamp::now();
    let secrets = SecretsBundle::from_yaml(&request.secrets, now)?;
    let talos = TalosVersion::parse(&request.contract)?;
    let mut cluster = ClusterIntent::new(&request.name, Endpoint::parse(&request.endpoint)?, talos);
    cluster.kubernetes = KubernetesVersion::parse(&request.kubernetes)?;
    cluster.control_planes.clone_from(&request.control_planes);
    let endpoints = request.control_planes.iter().map(ToString::to_string).collect();
    let talosconfig = Talosconfig::generate(&request.name, endpoints, &secrets, now, YEAR)?;
    let mut files = vec![talosconfig.to_yaml()];
    let roles = [(Role::ControlPlane, &request.control_planes), (Role::Worker, &request.workers)];
    for (role, addresses) in roles {
        for (number, address) in addresses.iter().enumerate() {
            let mut node = NodeIntent::new(role, format!("{}-{}-{number}", request.name, role.name()));
            node.address = Some(*address);
            node.install_disk = Some(InstallDisk::Path(request.install_disk.clone()));
            files.push(render(&cluster, &node, &secrets)?.to_yaml());
        }
    }
    Ok(files)
}
