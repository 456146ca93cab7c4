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
            Ok(_) => self.texts.iter().try_for_each(|(name, text)| replace(&folder.join(name), text)),
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
        let written = self
            .texts
            .iter()
            .try_for_each(|(name, text)| create(&draft.join(name), text))
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

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let draft = path.with_file_name(name);
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let written = create(&draft, text).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written?;
    File::open(parent(path))?.sync_all()
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
            replace(&path, text).unwrap();
            assert_eq!(keep_old(&path).unwrap(), Some(dir.path().join(kept)));
            assert_eq!(fs::read_to_string(dir.path().join(kept)).unwrap(), text);
        }
    }
}
