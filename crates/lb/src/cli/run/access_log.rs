//! The file of the access log. It is opened again after a reload, so that logrotate and others can move it away.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Asks for the file to be opened again.
#[derive(Debug, Clone, Default)]
pub(super) struct Reopen(Arc<AtomicBool>);

/// The file, or standard output.
pub(super) enum AccessLog {
    Output(io::Stdout),
    File { path: PathBuf, file: File, again: Reopen },
}

impl Reopen {
    /// With the next line.
    pub(super) fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl AccessLog {
    /// `-` is standard output.
    pub(super) fn open(path: &str, again: Reopen) -> io::Result<AccessLog> {
        if path == "-" {
            return Ok(AccessLog::Output(io::stdout()));
        }
        Ok(AccessLog::File { path: path.into(), file: append(Path::new(path))?, again })
    }
}

/// Clients' addresses are nobody's business but the administrators'.
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o640).open(path)
}

impl Write for AccessLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            AccessLog::Output(out) => out.write(bytes),
            AccessLog::File { path, file, again } => {
                if again.0.swap(false, Ordering::Relaxed) {
                    *file = append(path)?;
                }
                file.write(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            AccessLog::Output(out) => out.flush(),
            AccessLog::File { file, .. } => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_moved_away_is_made_again_when_asked() {
        let folder = tempfile::tempdir().unwrap();
        let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
        let again = Reopen::default();
        let mut log = AccessLog::open(path.to_str().unwrap(), again.clone()).unwrap();
        log.write_all(b"one\n").unwrap();
        std::fs::rename(&path, &old).unwrap();
        log.write_all(b"two\n").unwrap();
        again.ask();
        log.write_all(b"three\n").unwrap();
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "three\n");
    }
}
