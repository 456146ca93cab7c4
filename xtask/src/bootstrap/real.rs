//! The same controllers on the real kube-apiserver: up to Ready, and down to nothing.

use super::centre::DataCentre;
use super::looks::nothing_left;
use super::user::User;
use super::{CLUSTER, MACHINES, example};
use crate::cluster::{Parts, RealCluster};
use crate::peers::Peers;
use anyhow::{Context, Result, ensure};
use std::path::Path;

pub(super) async fn run(program: &Path, peers: &Peers) -> Result<()> {
    let real = RealCluster::start(peers, &std::env::temp_dir(), Parts::WithControllers).await?;
    let mut user = User::new(program)?;
    let config = example("bootstrap-proxmox.yaml")?;
    let centre = DataCentre::start(&user, &config, &[]).await?;
    user.use_centre(&centre);
    let (file, bundle) = (config.to_string_lossy(), centre.bundle.to_string_lossy());
    let there = real.kubeconfig.to_string_lossy();
    let bootstrap = ["bootstrap", "proxmox", "--config", &*file, "--bundle", &*bundle];
    user.run(&[&bootstrap[..], &["--kubeconfig", &*there]].concat()).await?.expect(0, "bootstrap")?;
    wanted_machines(&centre).await?;
    ensure!(!user.home().join(CLUSTER).join("api").exists(), "there is an embedded API beside the real one");

    let kubectl = peers.kubectls.first().context("there is no kubectl")?;
    let ask = async |text: &str| {
        let words: Vec<&str> = text.split(' ').collect();
        user.kubectl(&kubectl.path, &real.kubeconfig, &words).await
    };
    let answer = ask("get cb -n butler-system --no-headers").await?;
    let row = answer.expect(0, "kubectl get cb")?;
    ensure!(row.split_whitespace().nth(3) == Some("Ready"), "not ready on the real server: {row}");
    // Where the objects are is remembered: neither needs to be told.
    let answer = user.run(&["status"]).await?;
    ensure!(answer.expect(0, "status")?.contains("Ready"), "{answer:?}");
    user.run(&bootstrap).await?.expect(0, "bootstrap once more")?;
    ensure!(bootstraps(&centre)? == 1, "etcd was made more than once");

    user.run(&["destroy", "--yes"]).await?.expect(0, "destroy")?;
    nothing_left(&user, &centre).await?;
    for kind in ["cb,mr,is,providerconfigs", "secrets"] {
        let answer = ask(&format!("get {kind} -n butler-system -o name")).await?;
        ensure!(answer.expect(0, "kubectl get")?.is_empty(), "left on the real server: {}", answer.stdout);
    }
    centre.end().await
}

/// All machines of the example, each once, running, and nothing else.
pub(super) async fn wanted_machines(centre: &DataCentre) -> Result<()> {
    let vms = centre.vms().await?;
    let names: Vec<&str> = vms.iter().map(|vm| vm.name.as_str()).collect();
    ensure!(names == MACHINES && vms.iter().all(|vm| vm.running), "other machines than wanted: {vms:?}");
    let stray = centre.stray_volumes().await?;
    ensure!(stray.is_empty(), "volumes of nobody: {stray:?}");
    Ok(())
}

/// How often etcd was made and the maker was told so.
pub(super) fn bootstraps(centre: &DataCentre) -> Result<usize> {
    let calls = centre.calls()?;
    let is = |call: &&serde_json::Value| call["operation"] == "Bootstrap" && call["outcome"] == "answered";
    Ok(calls.iter().filter(is).count())
}
