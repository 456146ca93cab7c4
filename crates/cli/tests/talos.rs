//! `butleradm talos` against simulated nodes: the words that a person types, from a blank machine to a cluster and back.
#![allow(clippy::unwrap_used, reason = "helpers of a test are not test functions themselves")]

use butler_sim::{NodeHandle, NodeOptions, Stage, World, WorldOptions};
use butler_talos::{
    ClusterIntent, Endpoint, InstallDisk, NodeIntent, Role, SecretsBundle, TalosVersion, Talosconfig, render,
};
use jiff::Timestamp;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// An RSA key takes a while: all tests share it.
static SECRETS: LazyLock<SecretsBundle> =
    LazyLock::new(|| SecretsBundle::generate(Timestamp::now()).unwrap().bundle);

/// Simulated machines, and a directory with a talosconfig and a config per role.
struct Site {
    world: World,
    nodes: Vec<NodeHandle>,
    dir: tempfile::TempDir,
}

/// What a command left behind.
struct Said {
    ok: bool,
    out: String,
    err: String,
}

impl Site {
    async fn new(addresses: &[[u8; 4]]) -> Self {
        let world = World::new(WorldOptions { speed: 0.0, seed: 3 });
        let mut nodes = Vec::new();
        for address in addresses {
            let options = NodeOptions { port: 0, trustd_port: 0, ..NodeOptions::new(IpAddr::from(*address)) };
            let node = world.add_node(options).await.unwrap();
            assert!(node.reaches(Stage::Maintenance, PATIENCE).await);
            nodes.push(node);
        }
        let dir = tempfile::tempdir().unwrap();
        let life = Duration::from_secs(3600);
        let talosconfig = Talosconfig::generate("c1", Vec::new(), &SECRETS, Timestamp::now(), life).unwrap();
        std::fs::write(dir.path().join("talosconfig"), talosconfig.to_yaml()).unwrap();
        let version = TalosVersion::parse("v1.9.2").unwrap();
        let cluster = ClusterIntent::new("c1", Endpoint::parse("https://127.64.9.99:6443").unwrap(), version);
        for number in 0..addresses.len() {
            // A name of its own each: etcd puts out the member whose name a newcomer has.
            let mut cp = NodeIntent::new(Role::ControlPlane, format!("cp{number}"));
            cp.install_disk = Some(InstallDisk::Path("/dev/sda".into()));
            let text = render(&cluster, &cp, &SECRETS).unwrap().to_yaml();
            std::fs::write(dir.path().join(format!("cp{number}.yaml")), &text).unwrap();
            std::fs::write(dir.path().join("bad.yaml"), text.replace("    token:", "    tokn:")).unwrap();
        }
        Self { world, nodes, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn address(&self, node: usize) -> String {
        self.nodes[node].api_address().to_string()
    }

    /// Runs `butleradm talos` with the words of `line`; `{0}` is the address of the first node, `{dir}` the directory.
    async fn run(&self, line: &str) -> Said {
        let mut line = line.replace("{dir}", self.dir.path().to_str().unwrap());
        for node in 0..self.nodes.len() {
            line = line.replace(&format!("{{{node}}}"), &self.address(node));
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_butleradm"));
        command.arg("talos").args(line.split_whitespace());
        command.env("TALOSCONFIG", self.path("talosconfig")).env_remove("BUTLER_LOG");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        Said {
            ok: output.status.success(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    async fn succeeds(&self, line: &str) -> Said {
        let said = self.run(line).await;
        assert!(said.ok, "{line}\n{}{}", said.out, said.err);
        said
    }

    async fn fails(&self, line: &str, with: &str) -> Said {
        let said = self.run(line).await;
        assert!(!said.ok && said.err.contains(with), "{line}\n{}{}", said.out, said.err);
        said
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blank_machine_becomes_a_cluster_and_a_blank_machine_again() {
    let site = Site::new(&[[127, 64, 21, 1]]).await;
    let fingerprint = site.nodes[0].fingerprint().unwrap();

    // A config is a secret: an unverified node gets it only when told so.
    let hint = format!("--cert-fingerprint {fingerprint}");
    site.fails("apply --nodes {0} --file {dir}/cp0.yaml", &hint).await;
    let other = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";
    let wrong = format!("apply --nodes {{0}} --file {{dir}}/cp0.yaml --cert-fingerprint {other}");
    site.fails(&wrong, &fingerprint).await;
    assert_eq!(site.nodes[0].stage(), Stage::Maintenance);
    site.succeeds(&format!("apply --nodes {{0}} --file {{dir}}/cp0.yaml {hint} --dry-run")).await;
    assert_eq!(site.nodes[0].stage(), Stage::Maintenance);
    let said = site.succeeds(&format!("apply --nodes {{0}} --file {{dir}}/cp0.yaml {hint} --wait")).await;
    let address = site.address(0);
    assert_eq!(said.out, format!("{address} has the config\n{address} has booted\n"));

    let said = site.succeeds("bootstrap --nodes {0} --control-planes {0}").await;
    assert_eq!(said.out, format!("{address} starts etcd\n{address} has a healthy etcd\n"));
    let said = site.succeeds("bootstrap --nodes {0} --control-planes {0}").await;
    assert!(said.err.contains("bootstrapped before"), "{}", said.err);

    site.succeeds("kubeconfig --nodes {0} {dir}/kubeconfig").await;
    let file = site.path("kubeconfig");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(std::fs::read_to_string(&file).unwrap().contains("current-context: admin@c1"));
    site.fails("kubeconfig --nodes {0} {dir}/kubeconfig", "--force").await;
    site.succeeds("kubeconfig --nodes {0} {dir}/kubeconfig --force").await;

    // Without a CNI the Kubernetes node is not Ready, and the Talos node is healthy.
    let said = site.succeeds("health --nodes {0}").await;
    assert!(said.out.contains("v1.9.2 stage running") && said.out.contains("etcd of 1"), "{}", said.out);

    site.fails("reset --graceful=false --yes", "say --nodes").await;
    site.fails("reset --nodes {0} --graceful=false", "say --yes").await;
    site.fails("reset --nodes {0} --yes", "last member").await;
    let said = site.succeeds("reset --nodes {0} --graceful=false --reboot --wait --yes").await;
    assert!(said.out.contains("is in maintenance mode"), "{}", said.out);
    assert_eq!(site.nodes[0].stage(), Stage::Maintenance);
    site.world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_etcd_is_refused() {
    let site = Site::new(&[[127, 64, 22, 1], [127, 64, 22, 2]]).await;
    site.succeeds("apply --nodes {0} --file {dir}/cp0.yaml --insecure").await;
    site.succeeds("apply --nodes {1} --file {dir}/cp1.yaml --insecure").await;
    for node in &site.nodes {
        assert!(node.reaches(Stage::Booting, PATIENCE).await, "{:?}", node.stage());
    }
    // The other one is silent: nobody knows what it holds.
    site.nodes[1].power_off().await;
    let refused = "bootstrap --nodes {0} --control-planes {0},{1} --timeout 1s";
    site.fails(refused, "whether etcd has data").await;
    site.nodes[1].power_on().await;
    site.succeeds("bootstrap --nodes {0} --control-planes {0},{1} --timeout 30s").await;
    // Before the second has joined, and after: it is not to be bootstrapped.
    let said = site.run("bootstrap --nodes {1} --control-planes {0},{1} --no-wait").await;
    assert!(said.err.contains("second cluster") != said.ok, "{}{}", said.out, said.err);
    assert!(!said.out.contains("starts etcd"), "{}", said.out);
    site.fails("bootstrap --nodes {0},{1}", "exactly one node").await;
    site.fails("bootstrap --nodes {1} --control-planes {0}", "not one of the control planes").await;
    site.world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_config_is_explained_without_its_secrets() {
    let site = Site::new(&[[127, 64, 23, 1]]).await;
    let token = SECRETS.trustd_token.expose();
    assert!(std::fs::read_to_string(site.path("bad.yaml")).unwrap().contains(token));
    let said = site.fails("apply --nodes {0} --file {dir}/bad.yaml --insecure", "tokn").await;
    assert!(!said.err.contains(token) && said.err.contains("what to do"), "{}", said.err);
    assert_eq!(site.nodes[0].stage(), Stage::Maintenance);
    site.world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxys_password_is_not_repeated() {
    let site = Site::new(&[]).await;
    let said = site.fails("kubeconfig --nodes 127.64.24.1 --proxy socks5://bob:hunter2@x -", "--proxy").await;
    assert!(!said.err.contains("hunter2"), "{}", said.err);
}
