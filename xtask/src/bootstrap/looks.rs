//! kubectl on a bootstrap: on its API while it runs, on the new cluster through its VIP, and while the VIP moves.

use super::centre::DataCentre;
use super::user::{Answer, User};
use super::{CLUSTER, MACHINES, Report, example};
use crate::peers::{Kubectl, Peers};
use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Slow enough to be watched: about 20 seconds to Ready.
const SPEED: &str = "0.05";
/// How long the VIP may take to be held by another.
const MOVE: Duration = Duration::from_secs(60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// A kubectl on a cluster.
pub(super) struct Shell<'a> {
    user: &'a User,
    kubectl: &'a Kubectl,
    kubeconfig: PathBuf,
}

pub(super) async fn run(program: &Path, peers: &Peers, report: &mut Report) -> Result<()> {
    let mut user = User::new(program)?;
    let config = example("bootstrap-proxmox.yaml")?;
    let centre = DataCentre::start(&user, &config, &["--speed", SPEED]).await?;
    user.use_centre(&centre);
    let answer = during(&user, &config, &centre, peers, report).await;
    if !report.check("Ready after a pause by kubectl", answer)? {
        return Ok(());
    }
    for kubectl in &peers.kubectls {
        let shell = Shell::new(&user, kubectl, user.home().join(format!("{CLUSTER}-kubeconfig")));
        let answer = shell.new_cluster().await;
        report.check(&format!("kubectl {} on the new cluster through its VIP", kubectl.version), answer)?;
    }
    let answer = holder_dies(&user, &centre, peers).await;
    report.check("kubectl goes on when the VIP's holder dies", answer)?;
    let answer = gone(&user, &centre).await;
    report.check("destroy, with a machine that is off", answer)?;
    centre.end().await?;
    let answer = rehearsal(program, newest(peers)?, &[]).await;
    report.check("kubectl on a rehearsal that is kept", answer)?;
    Ok(())
}

pub(super) fn newest(peers: &Peers) -> Result<&Kubectl> {
    peers.kubectls.first().context("there is no kubectl")
}

/// A bootstrap that is paused by kubectl, looked at by all of them, and let go again.
async fn during(
    user: &User,
    config: &Path,
    centre: &DataCentre,
    peers: &Peers,
    report: &mut Report,
) -> Result<()> {
    let (config, bundle) = (config.to_string_lossy(), centre.bundle.to_string_lossy());
    let mut running = user.start(&["bootstrap", "proxmox", "--config", &config, "--bundle", &bundle])?;
    let machine = running.until(|turn| turn["event"] == "machine").await?;
    machine.with_context(|| format!("it ended before there was a machine: {:?}", running.turns))?;
    let kubeconfig = user.home().join(CLUSTER).join("bootstrap-kubeconfig");
    let first = Shell::new(user, newest(peers)?, kubeconfig.clone());
    first.pause(true).await?;
    for kubectl in &peers.kubectls {
        let answer = Shell::new(user, kubectl, kubeconfig.clone()).bootstrap_api().await;
        report.check(&format!("kubectl {} on the bootstrap API", kubectl.version), answer)?;
    }
    first.pause(false).await?;
    let answer = running.end().await?;
    answer.expect(0, "bootstrap")?;
    Ok(())
}

/// The plug of the machine that holds the VIP is pulled.
async fn holder_dies(user: &User, centre: &DataCentre, peers: &Peers) -> Result<()> {
    let shell = Shell::new(user, newest(peers)?, user.home().join(format!("{CLUSTER}-kubeconfig")));
    let held_by = shell.vip_holder().await?;
    let vm = centre.vms().await?.into_iter().find(|vm| vm.name == held_by);
    let vm = vm.with_context(|| format!("find the machine {held_by} that holds the VIP"))?;
    centre.pull_plug(&vm).await?;
    let deadline = Instant::now() + MOVE;
    loop {
        // Until the lease has run out nobody answers at the address.
        match shell.vip_holder().await {
            Ok(now) if now != held_by => break,
            other => ensure!(Instant::now() < deadline, "nobody else holds the VIP in time: {other:?}"),
        }
        sleep(BETWEEN_LOOKS).await;
    }
    shell.deployment("after").await?;
    loop {
        let answer = shell.type_("get nodes").await?;
        let nodes = answer.expect(0, "get nodes")?;
        let dead =
            nodes.lines().find(|line| line.starts_with(&held_by)).context("the dead node is listed")?;
        let ready = nodes.lines().filter(|line| line.split_whitespace().nth(1) == Some("Ready")).count();
        if dead.contains("NotReady") && ready == MACHINES.len() - 1 {
            return Ok(());
        }
        ensure!(Instant::now() < deadline + MOVE, "the dead node is never noticed:\n{nodes}");
        sleep(BETWEEN_LOOKS).await;
    }
}

async fn gone(user: &User, centre: &DataCentre) -> Result<()> {
    user.run(&["destroy", "--yes"]).await?.expect(0, "destroy")?;
    nothing_left(user, centre).await
}

/// Neither in the data centre nor at home.
pub(super) async fn nothing_left(user: &User, centre: &DataCentre) -> Result<()> {
    let (vms, volumes) = (centre.vms().await?, centre.stray_volumes().await?);
    ensure!(vms.is_empty() && volumes.is_empty(), "something is left: {vms:?} {volumes:?}");
    let home: Vec<_> = std::fs::read_dir(user.home()).context("look at home")?.flatten().collect();
    ensure!(home.is_empty(), "something is left at home: {home:?}");
    Ok(())
}

/// `rehearse --keep`, used with kubectl, until Ctrl-C.
pub(super) async fn rehearsal(program: &Path, kubectl: &Kubectl, more: &[&str]) -> Result<()> {
    let user = User::new(program)?;
    let mut running = user.start(&[&["rehearse", "--keep"], more].concat())?;
    let done = running.until(|turn| turn["event"] == "done").await?;
    let done = done.with_context(|| format!("the rehearsal ended: {:?}", running.turns))?;
    let kubeconfig = done["kubeconfig"].as_str().context("it says where the kubeconfig is")?;
    Shell::new(&user, kubectl, kubeconfig.into()).new_cluster().await?;
    running.interrupt()?;
    running.end().await?.expect(0, "rehearse --keep")?;
    Ok(())
}

impl<'a> Shell<'a> {
    pub(super) fn new(user: &'a User, kubectl: &'a Kubectl, kubeconfig: PathBuf) -> Shell<'a> {
        Shell { user, kubectl, kubeconfig }
    }

    pub(super) async fn type_(&self, text: &str) -> Result<Answer> {
        let words: Vec<&str> = text.split(' ').collect();
        self.user.kubectl(&self.kubectl.path, &self.kubeconfig, &words).await
    }

    /// The output of a command that works.
    async fn good(&self, text: &str) -> Result<String> {
        let answer = self.type_(text).await?;
        Ok(answer.expect(0, &format!("kubectl {text}"))?.to_owned())
    }

    async fn pause(&self, paused: bool) -> Result<()> {
        let patch = format!(r#"{{"spec":{{"paused":{paused}}}}}"#);
        self.good(&format!("patch cb {CLUSTER} -n butler-system --type merge -p {patch}")).await?;
        if paused {
            let condition = "--for=condition=Progressing=False";
            self.good(&format!("wait cb/{CLUSTER} -n butler-system {condition} --timeout=30s")).await?;
        }
        Ok(())
    }

    /// What people type while they wait.
    async fn bootstrap_api(&self) -> Result<()> {
        let table = self.good("get cb -n butler-system").await?;
        let lines = words(&table);
        let header = ["NAME", "CLUSTER", "TOPOLOGY", "PHASE", "ENDPOINT", "AGE"];
        ensure!(lines.first().is_some_and(|line| *line == header), "other columns:\n{table}");
        ensure!(lines.get(1).is_some_and(|line| line.starts_with(&[CLUSTER, CLUSTER, "ha"])), "{table}");
        let all = self.good("get cb,mr,is -n butler-system").await?;
        let machines = all.matches("machinerequest.butler.butlerlabs.dev/").count();
        ensure!(machines == MACHINES.len(), "{machines} machines:\n{all}");
        let machine_header = ["NAME", "MACHINE", "ROLE", "PHASE", "IP", "AGE"];
        ensure!(words(&all).iter().any(|line| *line == machine_header), "other columns:\n{all}");
        let description = self.good(&format!("describe cb {CLUSTER} -n butler-system")).await?;
        for part in ["Kind:         ClusterBootstrap", "Reason:                Paused", "Events:"] {
            ensure!(description.contains(part), "no {part:?} in:\n{description}");
        }
        ensure!(!description.contains(super::centre::SECRET), "the description holds the token's secret");
        let field = self.good("explain cb.spec.network.vip").await?;
        ensure!(field.contains("FIELD: vip <string>"), "{field}");
        let events = self.good("events -n butler-system").await?;
        ensure!(events.contains(&format!("ClusterBootstrap/{CLUSTER}")), "no events:\n{events}");
        let secrets = self.good("get secrets -n butler-system").await?;
        ensure!(secrets.contains("butler-mgmt-proxmox-credentials"), "{secrets}");
        Ok(())
    }

    /// What people type when they have a new cluster.
    pub(super) async fn new_cluster(&self) -> Result<()> {
        let nodes = self.good("get nodes --no-headers").await?;
        let ready = words(&nodes).iter().filter(|line| line.get(1) == Some(&"Ready")).count();
        ensure!(ready == MACHINES.len(), "{ready} nodes are ready:\n{nodes}");
        let pods = self.good("get pods -A --no-headers").await?;
        ensure!(pods.lines().count() > 10, "few pods:\n{pods}");
        for pod in words(&pods) {
            let ready = pod.get(2).and_then(|ready| ready.split_once('/')).is_some_and(|(a, b)| a == b);
            let fine = matches!(pod.get(3), Some(&"Running") if ready) || pod.get(3) == Some(&"Completed");
            ensure!(fine, "a pod does not run: {pod:?}");
        }
        self.deployment(&format!("hello-{}", self.kubectl.version.replace('.', "-"))).await
    }

    /// A deployment from nothing to ready, and away again.
    pub(super) async fn deployment(&self, name: &str) -> Result<()> {
        self.good(&format!("create deployment {name} --image=registry.example/{name}:1 --replicas=2"))
            .await?;
        self.good(&format!("rollout status deployment/{name} --timeout=60s")).await?;
        let shown = self.good(&format!("get deployment {name} --no-headers")).await?;
        ensure!(words(&shown).first().and_then(|line| line.get(1)) == Some(&"2/2"), "{shown}");
        self.good(&format!("delete deployment {name}")).await.map(|_| ())
    }

    /// The name of the machine that holds the VIP.
    async fn vip_holder(&self) -> Result<String> {
        let path = "-o jsonpath={.spec.holderIdentity} --request-timeout=5s";
        self.good(&format!("get lease kube-vip-lease -n kube-system {path}")).await
    }
}

/// A table as words.
fn words(table: &str) -> Vec<Vec<&str>> {
    table.lines().map(|line| line.split_whitespace().collect()).collect()
}
