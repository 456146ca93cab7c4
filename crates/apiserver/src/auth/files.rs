//! Files with secrets: readable by the owner only, and whole or absent after a crash.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;

/// A private folder of small text files. Writes are gathered and come into effect together with [`Folder::commit`].
pub(super) struct Folder {
    dir: PathBuf,
    /// Nothing is there yet: the whole folder is written beside its place and moved there, which is both atomic and
    /// quick, since all files are synced at once.
    fresh: bool,
    pending: Vec<(String, String)>,
}

// === impl Folder ===

impl Folder {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let fresh = match fs::read_dir(dir) {
            Ok(mut entries) => entries.next().is_none(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => true,
            Err(e) => return Err(e),
        };
        if !fresh {
            close_to_others(dir)?;
        }
        Ok(Self { dir: dir.to_path_buf(), fresh, pending: Vec::new() })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The text of a file, `None` if there is none. What was given to [`Folder::write`] is not seen here.
    pub(super) fn read(&self, name: &str) -> io::Result<Option<String>> {
        if self.fresh { Ok(None) } else { read_text(&self.path(name)) }
    }

    pub(super) fn write(&mut self, name: &str, text: &str) {
        self.pending.push((name.to_string(), text.to_string()));
    }

    /// Makes all writes durable: all at once in a new folder, else one after the other in the order given.
    pub(super) fn commit(self) -> io::Result<()> {
        if !self.fresh {
            return self
                .pending
                .iter()
                .try_for_each(|(name, text)| write_private(&self.dir.join(name), text.as_bytes()));
        }
        let parent = parent(&self.dir);
        make_private_dir(parent)?;
        let name = self.dir.file_name().unwrap_or_default().to_string_lossy();
        let draft = parent.join(format!(".{name}.{}.tmp", std::process::id()));
        if fs::symlink_metadata(&draft).is_ok() {
            fs::remove_dir_all(&draft)?;
        }
        DirBuilder::new().mode(0o700).create(&draft)?;
        thread::scope(|scope| {
            let writers: Vec<_> = self
                .pending
                .iter()
                .map(|(name, text)| {
                    let path = draft.join(name);
                    scope.spawn(move || write_new(&path, text.as_bytes()))
                })
                .collect();
            let failed = || io::Error::other("a writing thread failed");
            writers.into_iter().try_for_each(|w| w.join().unwrap_or_else(|_| Err(failed())))
        })?;
        File::open(&draft)?.sync_all()?;
        fs::rename(&draft, &self.dir)?;
        File::open(parent)?.sync_all()
    }
}

/// Replaces `path` by a 0600 file with `contents`: written beside it, synced, renamed, and the rename synced too.
pub(super) fn write_private(path: &Path, contents: &[u8]) -> io::Result<()> {
    let dir = parent(path);
    let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let draft = dir.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    // What a crash left behind, or what someone put there to be written through.
    match fs::remove_file(&draft) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let written = write_new(&draft, contents).and_then(|()| fs::rename(&draft, path));
    if let Err(e) = written {
        let _ = fs::remove_file(&draft);
        return Err(e);
    }
    File::open(dir)?.sync_all()
}

fn write_new(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes the folder if it is not there.
fn make_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn close_to_others(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// `None` if there is no such file.
fn read_text(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_private_even_over_an_open_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_private(&path, b"new").unwrap();
        assert_eq!((read_text(&path).unwrap().unwrap().as_str(), mode(&path)), ("new", 0o600));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn a_planted_draft_is_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        let draft = dir.path().join(format!(".key.{}.tmp", std::process::id()));
        std::os::unix::fs::symlink(&victim, &draft).unwrap();
        write_private(&dir.path().join("key"), b"secret").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut out: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        out.sort();
        out
    }

    #[test]
    fn a_new_folder_appears_whole_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data/pki");
        let mut folder = Folder::open(&path).unwrap();
        assert_eq!(folder.read("a").unwrap(), None);
        folder.write("a", "1");
        folder.write("b", "2");
        assert!(!path.exists(), "nothing before the commit");
        // What an earlier crash left does not get in the way, nor into the folder.
        let draft = dir.path().join(format!("data/.pki.{}.tmp", std::process::id()));
        fs::create_dir_all(&draft).unwrap();
        fs::write(draft.join("stale"), "").unwrap();
        folder.commit().unwrap();
        assert_eq!((names(&path), mode(&path)), (vec!["a".to_string(), "b".into()], 0o700));
        assert_eq!(mode(&path.join("a")), 0o600);
        assert_eq!(names(&dir.path().join("data")), ["pki"]);
    }

    #[test]
    fn an_existing_folder_is_closed_and_changed_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pki");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(path.join("a"), "old").unwrap();
        let mut folder = Folder::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(folder.read("a").unwrap().as_deref(), Some("old"));
        folder.write("b", "2");
        folder.write("a", "new");
        folder.commit().unwrap();
        assert_eq!(names(&path), ["a", "b"]);
        assert_eq!(fs::read_to_string(path.join("a")).unwrap(), "new");
    }

    #[test]
    fn an_empty_folder_counts_as_new() {
        let dir = tempfile::tempdir().unwrap();
        let mut folder = Folder::open(dir.path()).unwrap();
        folder.write("a", "1");
        folder.commit().unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a")).unwrap(), "1");
    }
}
