//! The kubeconfig as a node sends it: a gzipped tar with one file, which Talos never finishes.

use std::io::Read;

use flate2::read::GzDecoder;

use crate::secret::Secret;

/// No kubeconfig is larger; an archive that claims so is refused.
const LIMIT: u64 = 4 << 20;

/// Takes the first file and looks no further: what follows it in a Talos archive is neither padding nor an end.
pub(super) fn unpack(archive: &[u8]) -> Result<Secret, String> {
    if archive.is_empty() {
        return Err("the node sent no kubeconfig".to_owned());
    }
    let mut tar = tar::Archive::new(GzDecoder::new(archive));
    let unreadable = |error: std::io::Error| format!("the node's kubeconfig archive can't be read: {error}");
    let entry = tar.entries().map_err(unreadable)?.next();
    let Some(entry) = entry else { return Err("the node's kubeconfig archive is empty".to_owned()) };
    let entry = entry.map_err(unreadable)?;
    if entry.size() > LIMIT {
        return Err(format!("the node's kubeconfig claims to have {} bytes", entry.size()));
    }
    let expected = entry.size();
    let mut text = String::new();
    entry.take(LIMIT).read_to_string(&mut text).map_err(unreadable)?;
    // A connection that broke off would leave half a file.
    if text.len() as u64 != expected {
        return Err(format!("the node's kubeconfig has {} bytes of {expected}", text.len()));
    }
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn archive(text: &str, cut: usize) -> Vec<u8> {
        let mut header = tar::Header::new_ustar();
        header.set_path("kubeconfig").unwrap();
        header.set_size(text.len() as u64);
        header.set_cksum();
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(header.as_bytes()).unwrap();
        gzip.write_all(&text.as_bytes()[..text.len() - cut]).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn an_archive_that_never_ends_is_read() {
        let got = unpack(&archive("apiVersion: v1\n", 0)).unwrap();
        assert_eq!(got.expose(), "apiVersion: v1\n");
        assert_eq!(format!("{got:?}"), "<secret>");
    }

    #[test]
    fn a_broken_archive_is_told() {
        assert!(unpack(b"").unwrap_err().contains("no kubeconfig"));
        assert!(unpack(b"not gzip").unwrap_err().contains("can't be read"));
        assert!(unpack(&archive("apiVersion: v1\n", 4)).is_err());
    }
}
