//! moto, an independent AWS in Python, from the Python package index. It lives beside the other peers, in a cache folder whose
//! name is a hash over its pins.

use super::{cache_dir, lock, pins, run, say};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

const REQUIREMENTS: &str = include_str!("../../peers/moto/requirements.txt");

/// Serves on a port of the kernel's choice, says which, and ends with its standard input.
const PROGRAM: &str = r#"
import logging, sys
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print("moto http://%s:%d" % server.get_host_and_port(), flush=True)
sys.stdin.read()
server.stop()
"#;

/// How long it may take to start: it imports hundreds of files.
const START: Duration = Duration::from_secs(60);

/// A moto that serves. Ends when it is dropped.
pub(crate) struct Moto {
    pub(crate) url: String,
    process: tokio::process::Child,
}

impl Moto {
    /// Installs it if need be, and starts it.
    pub(crate) async fn start() -> Result<Self> {
        let packages = install()?;
        let mut command = tokio::process::Command::new("python3");
        command
            .args(["-s", "-c", PROGRAM])
            .env("PYTHONPATH", &packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn().context("start moto")?;
        let stdout = process.stdout.take().context("read what moto prints")?;
        let mut lines = BufReader::new(stdout).lines();
        let ready = async {
            while let Some(line) = lines.next_line().await.context("read what moto prints")? {
                if let Some(url) = line.strip_prefix("moto ") {
                    return Ok(url.trim().to_owned());
                }
            }
            bail!("moto ended before it was ready")
        };
        let url = timeout(START, ready).await.context("moto is not ready in time")??;
        Ok(Self { url, process })
    }

    pub(crate) async fn end(mut self) -> Result<()> {
        self.process.kill().await.context("end moto")
    }
}

/// The folder with moto's packages.
fn install() -> Result<PathBuf> {
    let cache = cache_dir()?;
    let key = pins::sha256(REQUIREMENTS.as_bytes());
    let folder = cache.join("moto").join(key.get(..16).unwrap_or_default());
    if folder.is_dir() {
        return Ok(folder);
    }
    let parent = cache.join("moto");
    fs::create_dir_all(&parent).with_context(|| format!("create {}", parent.display()))?;
    let _lock = lock(&cache)?;
    if folder.is_dir() {
        return Ok(folder);
    }
    say("installing moto into the cache");
    let work =
        tempfile::Builder::new().prefix(".pip-").tempdir_in(&parent).context("make a folder for pip")?;
    let requirements = work.path().join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS).context("write requirements.txt")?;
    let target = work.path().join("target");
    run(Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .arg("--root-user-action=ignore")
        .args(["--only-binary=:all:", "--require-hashes", "--target"])
        .arg(&target)
        .arg("--requirement")
        .arg(&requirements))
    .context("install moto with pip")?;
    fs::rename(&target, &folder).with_context(|| format!("move moto to {}", folder.display()))?;
    Ok(folder)
}
