//! The real talosctl on a node that is only simulated: from maintenance to a running control plane and back.
//!
//! ```text
//! apply-config --insecure --> version (until it answers) --> bootstrap, once and again --> service (until etcd is well)
//!   --> etcd members, kubeconfig --> reset --> get machinestatus --insecure (until maintenance)
//! ```

use std::{
    fs,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use super::{Count, generated::Generated};
use crate::peers::Talosctl;

/// The Talos API has no other port.
const PORT: u16 = 50_000;

/// How long one command, and everything that is waited for, may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at a node.
const PAUSE: Duration = Duration::from_millis(200);

/// How a node is spoken to.
#[derive(Debug, Clone, Copy)]
enum Door {
    /// Before it has a configuration: anybody may.
    Maintenance,
    /// With certificates on both sides.
    Mutual,
}

/// What a command answered.
struct Answer {
    well: bool,
    text: String,
}

/// The simulated node as its own process, which ends when this is dropped.
struct Node {
    address: Ipv4Addr,
    _process: Child,
}

/// One talosctl, the node that it speaks to, and the files of the cluster.
struct Session<'a> {
    talosctl: &'a Talosctl,
    node: Node,
    files: &'a Generated,
    folder: tempfile::TempDir,
    count: Count,
}

pub(super) async fn run(butleradm: &Path, talosctl: &Talosctl) -> Result<Count> {
    let address = free_address()?;
    let endpoint = format!("https://{address}:6443");
    let host = address.to_string();
    let args = ["simulated", &endpoint, "--control-plane", &host, "--talos-version", talosctl.version];
    let files = Generated::run(butleradm, args).await?;
    let node = Node::start(butleradm, talosctl.version, address).await?;
    let folder = tempfile::tempdir().context("make a folder for talosctl")?;
    let mut session = Session { talosctl, node, files: &files, folder, count: Count::default() };
    session.refused().await?;
    session.install().await?;
    session.bootstrap().await?;
    session.look().await?;
    session.reset().await?;
    Ok(session.count)
}

// === impl Node ===

impl Node {
    async fn start(butleradm: &Path, version: &str, address: Ipv4Addr) -> Result<Self> {
        let mut process = Command::new(butleradm)
            .args(["sim", "node", "--speed", "0", "--talos-version", version])
            .args(["--address", &address.to_string()])
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {} sim node", butleradm.display()))?;
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect((address, PORT)).is_err() {
            if let Some(status) = process.try_wait().context("look at the simulated node")? {
                bail!("the simulated node ended before it listened: {status}");
            }
            if Instant::now() > deadline {
                bail!("the simulated node does not listen on {address}:{PORT}");
            }
            sleep(PAUSE).await;
        }
        Ok(Self { address, _process: process })
    }
}

/// A loopback address on which nobody has the port of the Talos API. The whole of 127.0.0.0/8 is this machine's own.
fn free_address() -> Result<Ipv4Addr> {
    (1..=250)
        .map(|last| Ipv4Addr::new(127, 65, 0, last))
        .find(|address| [PORT, PORT + 1].iter().all(|port| TcpListener::bind((*address, *port)).is_ok()))
        .context("find a loopback address for a simulated node: the port is taken on all of them")
}

// === impl Session ===

impl Session<'_> {
    /// A configuration with a key that Talos does not know stays outside.
    async fn refused(&mut self) -> Result<()> {
        let name = self.config()?;
        let wrong = self.files.read(&name)?.replacen("\nmachine:", "\nunknownKey: true\nmachine:", 1);
        let path = self.folder.path().join("wrong.yaml");
        fs::write(&path, wrong).context("write a wrong configuration")?;
        let answer =
            self.ask(Door::Maintenance, &["apply-config", "--file", &path.to_string_lossy()]).await?;
        let problems = match (answer.well, answer.text.contains("unknown keys")) {
            (false, true) => Vec::new(),
            _ => vec![answer.text],
        };
        self.check("a configuration with an unknown key is refused", problems)
    }

    async fn install(&mut self) -> Result<()> {
        let path = self.files.path(&self.config()?);
        let answer =
            self.ask(Door::Maintenance, &["apply-config", "--file", &path.to_string_lossy()]).await?;
        self.passes("apply-config --insecure", answer)?;
        let answer = self.until(Door::Mutual, &["version"], |text| text.contains("Server:")).await?;
        self.passes("version, over mutual TLS", answer)
    }

    async fn bootstrap(&mut self) -> Result<()> {
        let answer = self.until(Door::Mutual, &["bootstrap"], |_| true).await?;
        self.passes("bootstrap", answer)?;
        let answer = self.until(Door::Mutual, &["service"], etcd_is_well).await?;
        self.passes("service, with etcd running", answer)?;
        let again = self.ask(Door::Mutual, &["bootstrap"]).await?;
        let problems = match (again.well, again.text.contains("AlreadyExists")) {
            (false, true) => Vec::new(),
            _ => vec![again.text],
        };
        self.check("a second bootstrap is refused with AlreadyExists", problems)
    }

    async fn look(&mut self) -> Result<()> {
        let members = self.ask(Door::Mutual, &["etcd", "members"]).await?;
        let address = self.node.address.to_string();
        let named = Answer { well: members.well && members.text.contains(&address), text: members.text };
        self.passes("etcd members", named)?;
        let status = self.ask(Door::Mutual, &["get", "machinestatus"]).await?;
        let columns = status.text.contains("STAGE") && status.text.contains("READY");
        let shown = columns && status.text.contains("running");
        self.passes("get machinestatus, with its columns", Answer { well: status.well && shown, ..status })?;
        let target = self.folder.path().join("kubeconfig");
        let fetched =
            self.ask(Door::Mutual, &["kubeconfig", "--merge=false", &target.to_string_lossy()]).await?;
        self.passes("kubeconfig", fetched)?;
        let text = fs::read_to_string(&target).unwrap_or_default();
        let wanted = [format!("server: https://{address}:6443"), "admin@simulated".to_owned()];
        let missing = wanted.iter().filter(|part| !text.contains(*part));
        let problems = missing.map(|part| format!("{part} is not in it")).collect();
        self.check("the fetched kubeconfig names the cluster and its administrator", problems)
    }

    /// As talosctl does it by itself: it follows the node's events, and then looks whether the node is back.
    async fn reset(&mut self) -> Result<()> {
        let answer = self.ask(Door::Mutual, &["reset", "--graceful=false", "--reboot"]).await?;
        self.passes("reset, followed to its end", answer)?;
        let maintenance = |text: &str| text.contains("stage: maintenance");
        let answer =
            self.until(Door::Maintenance, &["get", "machinestatus", "--output", "yaml"], maintenance).await?;
        self.passes("the node is back in maintenance", answer)
    }

    fn config(&self) -> Result<String> {
        self.files.nodes()?.into_iter().next().context("no machine configuration was written")
    }

    async fn ask(&self, door: Door, args: &[&str]) -> Result<Answer> {
        let mut command = self.command(args);
        match door {
            Door::Maintenance => command.arg("--insecure"),
            Door::Mutual => command
                .arg("--talosconfig")
                .arg(self.files.path("talosconfig"))
                .args(["--endpoints", &self.node.address.to_string()]),
        };
        self.answer(command).await
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.talosctl.path);
        command
            .args(args)
            .args(["--nodes", &self.node.address.to_string()])
            .env("HOME", self.folder.path())
            .env_remove("TALOSCONFIG")
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn answer(&self, mut command: Command) -> Result<Answer> {
        let Ok(output) = timeout(PATIENCE, command.output()).await else {
            return Ok(Answer { well: false, text: format!("no answer in {} s", PATIENCE.as_secs()) });
        };
        let output = output.with_context(|| format!("start {}", self.talosctl.path.display()))?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Ok(Answer { well: output.status.success(), text: format!("{out}{err}") })
    }

    /// Asks again until the answer is as wanted, or for too long; then the last answer counts as a failure.
    async fn until(&self, door: Door, args: &[&str], wanted: impl Fn(&str) -> bool) -> Result<Answer> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.ask(door, args).await?;
            let is_wanted = answer.well && wanted(&answer.text);
            if is_wanted || Instant::now() > deadline {
                return Ok(Answer { well: is_wanted, ..answer });
            }
            sleep(PAUSE).await;
        }
    }

    fn passes(&mut self, what: &str, answer: Answer) -> Result<()> {
        let problems = if answer.well { Vec::new() } else { vec![answer.text] };
        self.check(what, problems)
    }

    fn check(&mut self, what: &str, problems: Vec<String>) -> Result<()> {
        self.count.check(&format!("talosctl {}: {what}", self.talosctl.version), &problems)
    }
}

/// In the table of services: `NODE  SERVICE  STATE  HEALTH  LAST CHANGE  LAST EVENT`.
fn etcd_is_well(table: &str) -> bool {
    table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>()).any(|words| {
        words.get(1) == Some(&"etcd") && words.get(2) == Some(&"Running") && words.get(3) == Some(&"OK")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_is_well_when_it_runs_and_says_so() {
        let table = |state: &str| {
            format!(
                "NODE SERVICE STATE HEALTH LAST\n127.65.0.1 apid Running OK 1s\n127.65.0.1 etcd {state} 1s\n"
            )
        };
        assert!(etcd_is_well(&table("Running   OK")));
        assert!(!etcd_is_well(&table("Running   ?")));
        assert!(!etcd_is_well(&table("Preparing OK")));
        assert!(!etcd_is_well("127.65.0.1 apid Running OK 1s\n"));
    }

    #[test]
    fn a_taken_address_is_not_offered() {
        let first = free_address().unwrap();
        let _taken = TcpListener::bind((first, PORT)).unwrap();
        assert_ne!(free_address().unwrap(), first);
    }
}
