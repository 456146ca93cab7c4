//! A copy of a state folder in memory: what is on disk at one moment, as a process that dies then leaves it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files are kept in pieces, so that a log that has grown shares its beginning with what it was before.
const PIECE: usize = 32 << 10;

/// Everything in a folder. Clones share it.
#[derive(Clone, Default)]
pub struct Image {
    files: BTreeMap<PathBuf, Vec<Arc<Vec<u8>>>>,
}

impl Image {
    /// Copies a folder. What is as in `earlier` is kept once.
    pub fn take(folder: &Path, earlier: &Image) -> Image {
        let mut image = Image::default();
        image.add(folder, folder, earlier);
        image
    }

    fn add(&mut self, root: &Path, folder: &Path, earlier: &Image) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.add(root, &path, earlier);
                continue;
            }
            // A temporary file may have been renamed in between.
            let Ok(bytes) = fs::read(&path) else { continue };
            let name = path.strip_prefix(root).unwrap().to_owned();
            let known = earlier.files.get(&name).map(Vec::as_slice).unwrap_or_default();
            let pieces = bytes.chunks(PIECE).enumerate().map(|(at, piece)| {
                let same = known.get(at).filter(|known| known.as_slice() == piece);
                same.cloned().unwrap_or_else(|| Arc::new(piece.to_vec()))
            });
            self.files.insert(name, pieces.collect());
        }
    }

    /// Writes the copy into an empty folder.
    pub fn restore(&self, folder: &Path) {
        for (name, pieces) in &self.files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<u8>>())
                .unwrap();
        }
    }
}
