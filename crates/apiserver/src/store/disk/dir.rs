//! A directory of the real file system, held by one process at a time.

use super::{Disk, DiskFile};
use rustix::fs::{FlockOperation, flock};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Objects hold secrets: files are for their owner only.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
const LOCK: &str = "LOCK";

/// A directory that this process holds alone; the hold ends with the last clone.
#[derive(Debug, Clone)]
pub struct DirDisk {
    inner: Arc<Inner>,
}

/// An open file of a [`DirDisk`].
#[derive(Debug)]
pub struct DirFile {
    file: File,
}

/// Why a directory could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    #[error(
        "{path} is in use by {}: two servers on one data directory would destroy it; stop that one or choose another directory",
        holder(*pid)
    )]
    InUse { path: PathBuf, pid: Option<u32> },
    #[error("can't {action} {path}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// The directory itself, open for fsync.
    dir: File,
    /// Carries the flock; the kernel lets go of it when the process ends, however it ends.
    _lock: File,
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

// === impl DirDisk ===

impl DirDisk {
    /// Takes a directory, making it if need be. An existing directory keeps its mode.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DirError> {
        let path = path.as_ref().to_path_buf();
        let failed = |action, path: &Path| {
            let path = path.to_path_buf();
            move |source| DirError::Io { action, path, source }
        };
        if !path.is_dir() {
            let new: Vec<&Path> =
                path.ancestors().take_while(|p| !p.as_os_str().is_empty() && !p.exists()).collect();
            let made = DirBuilder::new().recursive(true).mode(DIR_MODE).create(&path);
            made.map_err(failed("make the data directory", &path))?;
            // The names of new directories must survive a power cut, too.
            for made in new {
                let parent = made.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                File::open(parent).and_then(|d| d.sync_all()).map_err(failed("sync", parent))?;
            }
        }
        let lock = lock(&path)?;
        let dir = File::open(&path).map_err(failed("open the data directory", &path))?;
        Ok(Self { inner: Arc::new(Inner { path, dir, _lock: lock }) })
    }

    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    fn at(&self, name: &str) -> PathBuf {
        self.inner.path.join(name)
    }
}

fn lock(path: &Path) -> Result<File, DirError> {
    let name = path.join(LOCK);
    let failed = |action| {
        let path = name.clone();
        move |source| DirError::Io { action, path, source }
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
    let mut file = options.open(&name).map_err(failed("open the lock file"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut text = String::new();
            // Only for the message: an unreadable pid is no reason to fail differently.
            let pid = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
            return Err(DirError::InUse { path: path.to_path_buf(), pid });
        }
        Err(errno) => return Err(failed("lock")(errno.into())),
    }
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(failed("write the process id into"))?;
    Ok(file)
}

impl Disk for DirDisk {
    type File = DirFile;

    fn create(&self, name: &str) -> io::Result<DirFile> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(FILE_MODE);
        Ok(DirFile { file: options.open(self.at(name))? })
    }

    fn open(&self, name: &str) -> io::Result<DirFile> {
        Ok(DirFile { file: OpenOptions::new().write(true).open(self.at(name))? })
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        std::fs::read(self.at(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.at(from), self.at(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.at(name))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for item in std::fs::read_dir(&self.inner.path)? {
            // Names that are no text are not ours.
            if let Ok(name) = item?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.inner.dir.sync_all()
    }

    fn describe(&self) -> String {
        self.inner.path.display().to_string()
    }
}

// === impl DirFile ===

impl DiskFile for DirFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync: content and length, without the times.
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_second_holder_is_told_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        let first = DirDisk::open(&path).unwrap();
        let clone = first.clone();
        drop(first);
        let error = DirDisk::open(&path).unwrap_err();
        assert!(
            matches!(error, DirError::InUse { pid: Some(pid), .. } if pid == std::process::id()),
            "{error}"
        );
        assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
        drop(clone);
        DirDisk::open(&path).unwrap();
    }

    #[test]
    fn files_are_for_their_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let disk = DirDisk::open(&path).unwrap();
        let file = disk.create("x").unwrap();
        assert_eq!(file.write_at(2, b"abc").unwrap(), 3);
        file.sync().unwrap();
        disk.rename("x", "y").unwrap();
        disk.sync_dir().unwrap();
        assert_eq!(disk.read("y").unwrap(), b"\0\0abc");
        let mode = |p: PathBuf| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(path.join("y")), 0o600);
        assert_eq!(mode(path.join("LOCK")), 0o600);
        assert_eq!(mode(path), 0o700);
    }
}
