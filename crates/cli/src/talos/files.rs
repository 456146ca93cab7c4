//! A folder of secret files: mode 0600, and after a crash either whole or not there.

use anyhow::{Context as _, Result, bail};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Texts that belong together, in the order in which they are to appear.
#[derive(Default)]
pub(super) struct Files {
    texts: Vec<(String, String)>,
}

impl Files {
    pub(super) fn add(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.texts.push((name.into(), text.into()));
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|(name, _)| name.as_str())
    }

    /// Refuses when a file is there already, and names all that are.
    pub(super) fn refuse_existing(&self, folder: &Path) -> Result<()> {
        if folder.metadata().is_ok_and(|found| !found.is_dir()) {
            bail!("{} is not a folder", folder.display());
        }
        let there: Vec<&str> =
            self.names().filter(|name| folder.join(name).symlink_metadata().is_ok()).collect();
        if !there.is_empty() {
            bail!("{} has {} already: say --force to replace", folder.display(), there.join(", "));
        }
        Ok(())
    }

    /// Writes all. A new folder appears with everything in it; in an old one each file is replaced as a whole, in order.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let result = match folder.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.write_new_folder(folder),
            Err(error) => Err(error),
            Ok(_) => self.replace_in(folder),
        };
        result.with_context(|| format!("cannot write into {}", folder.display()))
    }

    fn write_new_folder(&self, folder: &Path) -> io::Result<()> {
        let parent = parent(folder);
        fs::create_dir_all(parent)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let draft = parent.join(format!(".{name}.{}.tmp", std::process::id()));
        if draft.symlink_metadata().is_ok() {
            fs::remove_dir_all(&draft)?;
        }
        DirBuilder::new().mode(0o700).create(&draft)?;
        let all: Vec<(PathBuf, &str)> =
            self.texts.iter().map(|(name, text)| (draft.join(name), text.as_str())).collect();
        let written = create_all(&all)
            .and_then(|()| File::open(&draft)?.sync_all())
            .and_then(|()| fs::rename(&draft, folder));
        if written.is_err() {
            // What is left of a draft holds secrets, and is of no use.
            let _ = fs::remove_dir_all(&draft);
        }
        written?;
        File::open(parent)?.sync_all()
    }
}

impl Files {
    /// All drafts are on the disk before the first file is replaced.
    fn replace_in(&self, folder: &Path) -> io::Result<()> {
        let drafts: Vec<(PathBuf, &str)> =
            self.texts.iter().map(|(name, text)| (draft_of(&folder.join(name)), text.as_str())).collect();
        let replaced = drafts
            .iter()
            .try_for_each(|(draft, _)| remove_leftover(draft))
            .and_then(|()| create_all(&drafts))
            .and_then(|()| {
                let mut pairs = drafts.iter().zip(self.names());
                pairs.try_for_each(|((draft, _), name)| fs::rename(draft, folder.join(name)))
            });
        if replaced.is_err() {
            // Drafts hold secrets too, and are of no use. Those that were renamed are not there any more.
            drafts.iter().for_each(|(draft, _)| drop(fs::remove_file(draft)));
        }
        replaced?;
        File::open(folder)?.sync_all()
    }
}

/// One file, of mode 0600 from its first byte on. Without `force`, one that is there stays; with it, it is replaced whole.
pub(crate) fn write_one(path: &Path, text: &str, force: bool) -> io::Result<()> {
    let draft = draft_of(path);
    remove_leftover(&draft)?;
    let written = create(&draft, text).and_then(|()| match force {
        true => fs::rename(&draft, path),
        // A link fails when the name is taken.
        false => fs::hard_link(&draft, path),
    });
    if written.is_err() || !force {
        let _ = fs::remove_file(&draft);
    }
    written?;
    File::open(parent(path))?.sync_all()
}

/// Keeps a file under a name that is free: `secrets.yaml.old`, `secrets.yaml.old.1`, ...
pub(super) fn keep_old(path: &Path) -> Result<Option<PathBuf>> {
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    for number in 0.. {
        let mut name = path.as_os_str().to_owned();
        name.push(if number == 0 { ".old".to_owned() } else { format!(".old.{number}") });
        let kept = PathBuf::from(name);
        // A link fails when the name is taken, so nothing is lost to somebody who is quicker.
        match fs::hard_link(path, &kept) {
            Ok(()) => return Ok(Some(kept)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error).with_context(|| format!("cannot keep {}", path.display())),
        }
    }
    Ok(None)
}

fn draft_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

/// Of a process that had our number and was killed.
fn remove_leftover(draft: &Path) -> io::Result<()> {
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Side by side: most of the time goes into waiting for the disk, and a file system brings many files to it at once.
fn create_all(files: &[(PathBuf, &str)]) -> io::Result<()> {
    std::thread::scope(|scope| {
        let writers: Vec<_> =
            files.iter().map(|(path, text)| scope.spawn(move || create(path, text))).collect();
        let written: Vec<io::Result<()>> = writers
            .into_iter()
            .map(|writer| writer.join().unwrap_or_else(|_| Err(io::Error::other("a writer panicked"))))
            .collect();
        written.into_iter().collect()
    })
}

fn create(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn files() -> Files {
        let mut files = Files::default();
        files.add("secrets.yaml", "new\n");
        files.add("a.yaml", "a\n");
        files
    }

    #[test]
    fn a_new_folder_is_private_and_has_no_leftovers() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("deep/out");
        files().refuse_existing(&folder).unwrap();
        files().write(&folder).unwrap();
        assert_eq!(fs::read_to_string(folder.join("secrets.yaml")).unwrap(), "new\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join("a.yaml"))), (0o700, 0o600));
        assert_eq!(fs::read_dir(folder.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_there_is_refused_by_name_and_then_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), "old").unwrap();
        fs::write(dir.path().join("mine"), "mine").unwrap();
        let on_a_file = files().refuse_existing(&dir.path().join("mine")).unwrap_err().to_string();
        assert!(on_a_file.ends_with("mine is not a folder"), "{on_a_file}");
        let error = files().refuse_existing(dir.path()).unwrap_err().to_string();
        assert!(error.contains("has a.yaml already") && !error.contains("secrets"), "{error}");
        files().write(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("a.yaml")).unwrap(), "a\n");
        assert_eq!(fs::metadata(dir.path().join("a.yaml")).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(dir.path().join("mine")).unwrap(), "mine");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn old_secrets_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.yaml");
        assert_eq!(keep_old(&path).unwrap(), None);
        for (text, kept) in [("one", "secrets.yaml.old"), ("two", "secrets.yaml.old.1")] {
            write_one(&path, text, true).unwrap();
            assert_eq!(keep_old(&path).unwrap(), Some(dir.path().join(kept)));
            assert_eq!(fs::read_to_string(dir.path().join(kept)).unwrap(), text);
        }
    }

    #[test]
    fn the_file_is_private_and_never_replaced_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write_one(&path, "one", false).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode()), ("one", 0o600));
        assert!(write_one(&path, "two", false).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        write_one(&path, "two", true).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode()), ("two", 0o600));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
