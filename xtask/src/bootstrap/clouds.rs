//! Google Cloud and AWS: kubectl through the load balancer, also with a control plane less, and the controllers on the real
//! kube-apiserver.

use super::centre::DataCentre;
use super::looks::{Shell, newest, rehearsal};
use super::real::bootstraps;
use super::user::User;
use super::{CLUSTER, Report, example};
use crate::cluster::{Parts, RealCluster};
use crate::peers::Peers;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long a load balancer may take to notice that a machine is dead.
const NOTICE: Duration = Duration::from_secs(60);
/// So many requests in a row have to be answered then: the dead machine would have had its share of them.
const REQUESTS: usize = 20;
/// The machine that dies.
const VICTIM: &str = "butler-mgmt-cp-1";

pub(super) async fn run(program: &Path, peers: &Peers, report: &mut Report) -> Result<()> {
    for provider in ["gcp", "aws"] {
        let answer = rehearsal(program, newest(peers)?, &["--provider", provider]).await;
        report.check(&format!("kubectl on a kept rehearsal of {provider}"), answer)?;
        let answer = one_dies(program, peers, provider).await;
        report.check(
            &format!("kubectl through the load balancer of {provider}, a control plane dies"),
            answer,
        )?;
        let answer = on_the_real_server(program, peers, provider).await;
        report.check(&format!("a whole life on the real kube-apiserver, on {provider}"), answer)?;
    }
    Ok(())
}

/// Every kubectl on the new cluster through its load balancer, and a control plane that loses its power for good.
async fn one_dies(program: &Path, peers: &Peers, provider: &str) -> Result<()> {
    let mut user = User::new(program)?;
    let config = example(&format!("bootstrap-{provider}.yaml"))?;
    let (key, faults) = (user.folder().join("key.json"), user.folder().join("faults.yaml"));
    std::fs::write(&faults, "{}\n").context("write a script without faults")?;
    let more = ["--key", &*key.to_string_lossy(), "--fault", &*faults.to_string_lossy()];
    let centre = DataCentre::start(&user, &config, &more).await?;
    user.use_centre(&centre);
    let (file, bundle) = (config.to_string_lossy(), centre.bundle.to_string_lossy());
    let bootstrap = ["bootstrap", provider, "--config", &*file, "--bundle", &*bundle];
    user.run(&bootstrap).await?.expect(0, "bootstrap")?;
    let kubeconfig = user.home().join(format!("{CLUSTER}-kubeconfig"));
    for kubectl in &peers.kubectls {
        Shell::new(&user, kubectl, kubeconfig.clone()).new_cluster().await?;
    }
    let dead =
        format!("machines: [{{machine: {VICTIM}, fault: die}}, {{machine: {VICTIM}, fault: never-boots}}]\n");
    std::fs::write(&faults, dead).context("write a script that kills a machine")?;
    centre.read_faults()?;
    let shell = Shell::new(&user, newest(peers)?, kubeconfig);
    keeps_working(&shell).await?;
    shell.deployment("after").await?;
    user.run(&["destroy", "--yes"]).await?.expect(0, "destroy, with a machine that is off")?;
    nothing_by_tag(&user, &file).await?;
    centre.end().await
}

/// Once the cluster and its load balancer have noticed the death, no request is lost any more.
async fn keeps_working(shell: &Shell<'_>) -> Result<()> {
    let deadline = Instant::now() + NOTICE;
    let mut answered = 0;
    while answered < REQUESTS {
        let answer = shell.type_("get nodes --no-headers --request-timeout=5s").await?;
        let ready = answer.stdout.lines().filter(|line| line.split_whitespace().nth(1) == Some("Ready"));
        // Before it is noticed, some are sent to the dead machine, and all nodes seem to be well.
        let noticed = answer.code == Some(0) && ready.count() == super::MACHINES.len() - 1;
        answered = if noticed { answered + 1 } else { 0 };
        ensure!(Instant::now() < deadline, "not {REQUESTS} answers in a row; the last: {answer:?}");
        if !noticed {
            sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

/// Code 3: nothing in the cloud carries the tags.
async fn nothing_by_tag(user: &User, file: &str) -> Result<()> {
    let by_tag = ["destroy", CLUSTER, "--by-tag", "--yes", "--config", file];
    user.run(&by_tag).await?.expect(3, "destroy --by-tag").map(|_| ())
}

/// Up to Ready and down to nothing, with the objects in a real Kubernetes.
async fn on_the_real_server(program: &Path, peers: &Peers, provider: &str) -> Result<()> {
    let real = RealCluster::start(peers, &std::env::temp_dir(), Parts::WithControllers).await?;
    let mut user = User::new(program)?;
    let config = example(&format!("bootstrap-{provider}.yaml"))?;
    let key = user.folder().join("key.json").to_string_lossy().into_owned();
    let centre = DataCentre::start(&user, &config, &["--key", &key]).await?;
    user.use_centre(&centre);
    let (file, bundle) = (config.to_string_lossy(), centre.bundle.to_string_lossy());
    let there = real.kubeconfig.to_string_lossy();
    let bootstrap =
        ["bootstrap", provider, "--config", &*file, "--bundle", &*bundle, "--kubeconfig", &*there];
    user.run(&bootstrap).await?.expect(0, "bootstrap")?;
    ensure!(bootstraps(&centre)? == 1, "etcd was made more than once");
    let ask = async |text: &str| {
        let words: Vec<&str> = text.split(' ').collect();
        user.kubectl(&newest(peers)?.path, &real.kubeconfig, &words).await
    };
    let answer = ask("get lbr -n butler-system").await?;
    let table: Vec<Vec<&str>> =
        answer.expect(0, "kubectl get lbr")?.lines().map(|line| line.split_whitespace().collect()).collect();
    let header = ["NAME", "CLUSTER", "PHASE", "ENDPOINT", "TARGETS", "AGE"];
    ensure!(table.first().is_some_and(|line| *line == header), "other columns: {table:?}");
    let name = format!("{CLUSTER}-lb");
    let row = table.get(1).filter(|row| row.starts_with(&[name.as_str(), CLUSTER, "Ready"]));
    ensure!(row.is_some(), "the load balancer is not ready: {table:?}");

    user.run(&["destroy", "--yes"]).await?.expect(0, "destroy")?;
    for kind in ["cb,mr,lbr,providerconfigs", "secrets"] {
        let answer = ask(&format!("get {kind} -n butler-system -o name")).await?;
        ensure!(answer.expect(0, "kubectl get")?.is_empty(), "left on the real server: {}", answer.stdout);
    }
    nothing_by_tag(&user, &file).await?;
    centre.end().await
}
