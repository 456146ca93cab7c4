//! Where a cluster's state is: `~/.butler/<cluster>/`, one command at a time.
//!
//! ```text
//! ~/.butler/                        mode 0700
//!   <cluster>-kubeconfig            mode 0600, after success
//!   <cluster>-talosconfig           mode 0600, after success
//!   <cluster>/                      mode 0700
//!     api/                          data of the embedded Kubernetes API: objects, secrets, certificates
//!     bootstrap-kubeconfig          the way into that API while a command runs
//!     journal.jsonl                 the flight recorder
//!     inventory.json                what the cluster is made of
//!     reach.json                    how the outside and the objects are reached
//!     lock                          held by the running command, with its process id
//! ```

use crate::config;
use crate::exit::{Ended, Exit};
use anyhow::{Context as _, Result};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// `~/.butler`, or what `BUTLER_HOME` names.
#[derive(Debug, Clone)]
pub(crate) struct Home(PathBuf);

/// The folder of one cluster, held by this process.
#[derive(Debug)]
pub(crate) struct Folder {
    home: Home,
    cluster: String,
    /// Closing the file lets others in.
    _lock: File,
}

/// What is at a cluster's folder.
pub(crate) enum Claim {
    /// It is ours now.
    Ours(Folder),
    /// Another process works there; its id, when it is known.
    Busy(Option<u32>),
}

/// A folder of our own among the system's temporary ones, under a name that nobody could have taken before. It is gone when it is
/// dropped, unless it is to be kept.
pub(crate) fn scratch_folder(prefix: &str, keep: bool) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix(prefix)
        .permissions(fs::Permissions::from_mode(0o700))
        .disable_cleanup(keep)
        .tempdir()
        .with_context(|| format!("cannot make a folder in {}", std::env::temp_dir().display()))
}

impl Home {
    /// The home that the environment names.
    pub(crate) fn usual() -> Home {
        match std::env::var_os("BUTLER_HOME").filter(|path| !path.is_empty()) {
            Some(path) => Home(PathBuf::from(path)),
            None => Home(config::home().join(".butler")),
        }
    }

    /// A home at a path.
    pub(crate) fn at(path: impl Into<PathBuf>) -> Home {
        Home(path.into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn folder(&self, cluster: &str) -> PathBuf {
        self.0.join(cluster)
    }

    pub(crate) fn kubeconfig(&self, cluster: &str) -> PathBuf {
        self.0.join(format!("{cluster}-kubeconfig"))
    }

    pub(crate) fn talosconfig(&self, cluster: &str) -> PathBuf {
        self.0.join(format!("{cluster}-talosconfig"))
    }

    /// Talosconfigs that are there, of all clusters.
    pub(crate) fn talosconfigs(&self) -> Vec<PathBuf> {
        self.clusters().iter().map(|cluster| self.talosconfig(cluster)).filter(|path| path.exists()).collect()
    }

    /// All clusters that have state here.
    pub(crate) fn clusters(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(&self.0) else { return Vec::new() };
        let mut names: Vec<String> = entries
            .filter_map(Result::ok)
            .filter(|entry| {
                entry.path().join("api").is_dir() || entry.path().join(super::work::FILE).is_file()
            })
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| !name.starts_with('.'))
            .collect();
        names.sort();
        names
    }

    /// The cluster that is meant: as named, or the only one.
    pub(crate) fn choose(&self, named: Option<&str>) -> Result<String> {
        let all = self.clusters();
        let missing = |what: String| {
            let known = match all.is_empty() {
                true => format!("there is no state in {}", self.0.display()),
                false => format!("{} has: {}", self.0.display(), all.join(", ")),
            };
            Ended::error(Exit::NotFound, format!("{what}; {known}"))
        };
        match (named, all.as_slice()) {
            (Some(name), _) if all.iter().any(|known| known == name) => Ok(name.to_owned()),
            (Some(name), _) => Err(missing(format!("nothing is known of a cluster {name}"))),
            (None, [only]) => Ok(only.clone()),
            (None, []) => Err(missing("there is no cluster".to_owned())),
            (None, _) => Err(missing("say which cluster is meant".to_owned())),
        }
    }

    /// Makes the folder of a cluster when it is missing, and claims it.
    pub(crate) fn claim(&self, cluster: &str) -> Result<Claim> {
        for folder in [&self.0, &self.folder(cluster)] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .with_context(|| format!("cannot make the state folder {}", folder.display()))?;
        }
        let path = self.folder(cluster).join("lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let _ = lock.read_to_string(&mut text);
                return Ok(Claim::Busy(text.trim().parse().ok()));
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        // Who holds it is only a help for people; the lock itself is the kernel's.
        let written = lock
            .set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}", std::process::id()));
        written.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Claim::Ours(Folder { home: self.clone(), cluster: cluster.to_owned(), _lock: lock }))
    }

    /// [`Home::claim`], or an error that says who is in the way.
    pub(crate) fn open(&self, cluster: &str) -> Result<Folder> {
        match self.claim(cluster)? {
            Claim::Ours(folder) => Ok(folder),
            Claim::Busy(process) => {
                let process = process.map(|id| format!(" (process {id})")).unwrap_or_default();
                Err(Ended::error(
                    Exit::Busy,
                    format!(
                        "another butleradm{process} works on {cluster}; wait for it or stop it. \
                         `butleradm status {cluster}` shows how far it is"
                    ),
                ))
            }
        }
    }
}

impl Folder {
    pub(crate) fn path(&self) -> PathBuf {
        self.home.folder(&self.cluster)
    }

    pub(crate) fn api(&self) -> PathBuf {
        self.path().join("api")
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path().join("journal.jsonl")
    }

    pub(crate) fn inventory(&self) -> PathBuf {
        self.path().join("inventory.json")
    }

    pub(crate) fn bootstrap_kubeconfig(&self) -> PathBuf {
        self.path().join("bootstrap-kubeconfig")
    }

    /// Removes everything that is kept of the cluster. Only for one that is gone.
    pub(crate) fn forget(self) -> Result<()> {
        for file in [self.home.kubeconfig(&self.cluster), self.home.talosconfig(&self.cluster)] {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", file.display()));
                }
                _ => {}
            }
        }
        // Out of sight at once: a folder that is half removed would look like a cluster whose state is damaged.
        let (path, gone) = (self.path(), self.home.path().join(format!(".{}.gone", self.cluster)));
        let removed =
            remove_all(&gone).and_then(|()| fs::rename(&path, &gone)).and_then(|()| remove_all(&gone));
        removed.with_context(|| format!("cannot remove {}", path.display()))
    }
}

/// Removes a folder, if it is there.
fn remove_all(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_folder_is_private_and_goes_unless_it_is_kept() {
        for keep in [false, true] {
            let folder = scratch_folder("butler-test-", keep).unwrap();
            let path = folder.path().to_owned();
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            fs::write(path.join("file"), "text").unwrap();
            drop(folder);
            assert_eq!((mode, path.exists()), (0o700, keep), "{}", path.display());
            remove_all(&path).unwrap();
        }
    }

    #[test]
    fn a_folder_is_private_and_held_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("butler"));
        let folder = home.open("m1").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(home.path()), mode(&folder.path())), (0o700, 0o700));
        assert_eq!(mode(&folder.path().join("lock")), 0o600);
        let error = home.open("m1").unwrap_err();
        assert_eq!(Exit::of(&error), Exit::Busy);
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        assert!(home.open("m2").is_ok());
        drop(folder);
        assert!(home.open("m1").is_ok());
    }

    #[test]
    fn the_cluster_that_is_meant() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let error = |named| Exit::of(&home.choose(named).unwrap_err());
        assert_eq!((error(None), error(Some("a"))), (Exit::NotFound, Exit::NotFound));
        fs::create_dir_all(dir.path().join("a/api")).unwrap();
        fs::create_dir_all(dir.path().join("charts")).unwrap();
        assert_eq!(home.choose(None).unwrap(), "a");
        fs::create_dir_all(dir.path().join("b/api")).unwrap();
        assert_eq!(home.choose(Some("b")).unwrap(), "b");
        assert!(home.choose(None).unwrap_err().to_string().contains("has: a, b"));
    }

    #[test]
    fn forgetting_leaves_other_clusters() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        for name in ["a", "b"] {
            fs::write(home.kubeconfig(name), "k").unwrap();
        }
        // As a run leaves it that is killed while it forgets.
        fs::create_dir_all(dir.path().join(".a.gone/api")).unwrap();
        fs::create_dir_all(home.folder("a").join("api")).unwrap();
        assert_eq!(home.clusters(), ["a"]);
        home.open("a").unwrap().forget().unwrap();
        assert!(!dir.path().join(".a.gone").exists());
        assert!(
            !home.kubeconfig("a").exists() && !home.folder("a").exists() && home.kubeconfig("b").exists()
        );
    }
}
