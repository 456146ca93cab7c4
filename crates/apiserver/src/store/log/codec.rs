//! The bytes of the log: names of files, head of a segment, batches, records. All numbers are little endian.
//!
//! ```text
//! segment  = head batch* zeros*
//! head     = "BTLRLOG" version | first revision u64 | first sequence u64 | crc32 of the 24 bytes before
//! batch    = magic u32 | payload length u32 | sequence u64 | first revision u64 | records u32
//!            | crc32 of the payload | crc32 of the 32 bytes before | payload
//! payload  = record*
//! record   = revision u64 | key length u32 | value length u32 (all ones: deleted) | key | value
//! ```
//!
//! Sequence numbers count batches over all segments and never skip, so a batch that was left over from another life of
//! the file is not taken for the next one, and a missing one is noticed.

use super::Record;
use bytes::Bytes;

/// Has bytes that no UTF-8 text contains, so an object's text is never mistaken for the start of a batch.
const BATCH_MAGIC: [u8; 4] = [0xF5, b'B', 0xFE, b'L'];
const SEGMENT_MAGIC: [u8; 8] = *b"BTLRLOG\x01";
pub(super) const BATCH_HEAD: usize = 36;
pub(super) const SEGMENT_HEAD: usize = 28;
const RECORD_HEAD: usize = 16;
const DELETED: u32 = u32::MAX;
/// A batch holds at most this much; the length field could say more, memory should not have to.
pub(super) const MAX_PAYLOAD: usize = 1 << 30;

pub(super) const TEMPORARY: &str = ".tmp";

/// The head of a batch, after its checksum was found right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BatchHead {
    pub(super) length: usize,
    pub(super) sequence: u64,
    pub(super) first_revision: u64,
    pub(super) records: u32,
    payload_crc: u32,
}

/// The head of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentHead {
    pub(super) first_revision: u64,
    pub(super) first_sequence: u64,
}

pub(super) fn segment_name(first_revision: u64) -> String {
    format!("log-{first_revision:020}")
}

pub(super) fn snapshot_name(revision: u64) -> String {
    format!("snapshot-{revision:020}")
}

/// The number in a file name of the given kind; other names are none of the log's business.
pub(super) fn number_in(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    (digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok())?
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// How many bytes a record takes.
pub(super) fn record_len(record: &Record) -> usize {
    RECORD_HEAD + record.key.len() + record.value.as_ref().map_or(0, Bytes::len)
}

/// Appends one record. Lengths were checked against [`MAX_PAYLOAD`] by the caller.
pub(super) fn put_record(out: &mut Vec<u8>, revision: u64, key: &str, value: Option<&[u8]>) {
    out.extend_from_slice(&revision.to_le_bytes());
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(&value.map_or(DELETED, |v| v.len() as u32).to_le_bytes());
    out.extend_from_slice(key.as_bytes());
    out.extend_from_slice(value.unwrap_or_default());
}

/// Reads one record and tells where the next one starts.
///
/// Values are copied: a slice of the file's buffer would keep the whole file in memory for as long as one object lives.
pub(super) fn take_record(bytes: &[u8], at: usize) -> Option<(Record, usize)> {
    let revision = u64_at(bytes, at)?;
    let key_len = u32_at(bytes, at + 8)? as usize;
    let value_len = u32_at(bytes, at + 12)?;
    let key_at = at + RECORD_HEAD;
    let value_at = key_at.checked_add(key_len)?;
    let key = std::str::from_utf8(bytes.get(key_at..value_at)?).ok()?.into();
    if value_len == DELETED {
        return Some((Record { revision, key, value: None }, value_at));
    }
    let end = value_at.checked_add(value_len as usize)?;
    let value = Some(Bytes::copy_from_slice(bytes.get(value_at..end)?));
    Some((Record { revision, key, value }, end))
}

/// Writes a batch into an empty buffer. The caller checked that it is not empty and not too large.
pub(super) fn encode_batch(out: &mut Vec<u8>, sequence: u64, records: &[Record]) {
    out.clear();
    out.resize(BATCH_HEAD, 0);
    for record in records {
        put_record(out, record.revision, &record.key, record.value.as_deref());
    }
    let (head, payload) = out.split_at_mut(BATCH_HEAD);
    let first = records.first().map_or(0, |r| r.revision);
    head[0..4].copy_from_slice(&BATCH_MAGIC);
    head[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    head[8..16].copy_from_slice(&sequence.to_le_bytes());
    head[16..24].copy_from_slice(&first.to_le_bytes());
    head[24..28].copy_from_slice(&(records.len() as u32).to_le_bytes());
    head[28..32].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
    let crc = crc32fast::hash(&head[..32]);
    head[32..36].copy_from_slice(&crc.to_le_bytes());
}

/// The head of the batch at an offset, if there is a right one.
pub(super) fn batch_head(bytes: &[u8], at: usize) -> Option<BatchHead> {
    let head = bytes.get(at..at.checked_add(BATCH_HEAD)?)?;
    if head[..4] != BATCH_MAGIC || crc32fast::hash(&head[..32]) != u32_at(head, 32)? {
        return None;
    }
    Some(BatchHead {
        length: u32_at(head, 4)? as usize,
        sequence: u64_at(head, 8)?,
        first_revision: u64_at(head, 16)?,
        records: u32_at(head, 24)?,
        payload_crc: u32_at(head, 28)?,
    })
}

/// The payload that belongs to a head at an offset, if it is all there and right.
pub(super) fn batch_payload(bytes: &[u8], at: usize, head: BatchHead) -> Option<&[u8]> {
    let start = at + BATCH_HEAD;
    let payload = bytes.get(start..start.checked_add(head.length)?)?;
    (crc32fast::hash(payload) == head.payload_crc).then_some(payload)
}

/// The records of a payload; `None` if it does not hold exactly what its head says, in rising order.
pub(super) fn batch_records(payload: &[u8], head: BatchHead) -> Option<Vec<Record>> {
    let mut records: Vec<Record> = Vec::new();
    let mut at = 0;
    while at < payload.len() {
        let (record, next) = take_record(payload, at)?;
        if records.last().is_some_and(|last| last.revision >= record.revision) {
            return None;
        }
        records.push(record);
        at = next;
    }
    let first = records.first()?.revision;
    (first == head.first_revision && records.len() == head.records as usize).then_some(records)
}

/// The first whole and right batch at or after an offset whose sequence number is above the given one.
pub(super) fn find_batch_after(bytes: &[u8], from: usize, above: u64) -> Option<(usize, BatchHead)> {
    let tail = bytes.get(from..)?;
    let starts = tail.windows(4).enumerate().filter(|(_, w)| **w == BATCH_MAGIC);
    starts.map(|(at, _)| from + at).find_map(|at| {
        let head = batch_head(bytes, at).filter(|h| h.sequence > above)?;
        batch_payload(bytes, at, head).map(|_| (at, head))
    })
}

pub(super) fn encode_segment_head(head: SegmentHead) -> [u8; SEGMENT_HEAD] {
    let mut out = [0; SEGMENT_HEAD];
    out[..8].copy_from_slice(&SEGMENT_MAGIC);
    out[8..16].copy_from_slice(&head.first_revision.to_le_bytes());
    out[16..24].copy_from_slice(&head.first_sequence.to_le_bytes());
    let crc = crc32fast::hash(&out[..24]);
    out[24..].copy_from_slice(&crc.to_le_bytes());
    out
}

pub(super) fn segment_head(bytes: &[u8]) -> Option<SegmentHead> {
    let head = bytes.get(..SEGMENT_HEAD)?;
    if head[..8] != SEGMENT_MAGIC || crc32fast::hash(&head[..24]) != u32_at(head, 24)? {
        return None;
    }
    Some(SegmentHead { first_revision: u64_at(head, 8)?, first_sequence: u64_at(head, 16)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(revision: u64, key: &str, value: Option<&[u8]>) -> Record {
        Record { revision, key: key.into(), value: value.map(Bytes::copy_from_slice) }
    }

    fn decode(bytes: &[u8], at: usize) -> Option<Vec<Record>> {
        let head = batch_head(bytes, at)?;
        batch_records(batch_payload(bytes, at, head)?, head)
    }

    #[test]
    fn a_batch_comes_back_as_it_was() {
        let records = [record(7, "a", Some(b"one")), record(9, "", None), record(12, "b/ü", Some(b""))];
        let mut bytes = Vec::new();
        encode_batch(&mut bytes, 3, &records);
        assert_eq!(decode(&bytes, 0).unwrap(), records);
        assert_eq!(bytes.len(), BATCH_HEAD + records.iter().map(record_len).sum::<usize>());
        let head = batch_head(&bytes, 0).unwrap();
        assert_eq!((head.sequence, head.first_revision, head.records), (3, 7, 3));
    }

    #[test]
    fn every_single_flipped_bit_is_noticed() {
        let mut bytes = Vec::new();
        encode_batch(&mut bytes, 1, &[record(1, "key", Some(b"value")), record(2, "key", None)]);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bytes, 0), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(decode(&bytes, 0).is_some());
    }

    #[test]
    fn every_shortened_batch_is_noticed() {
        let mut bytes = Vec::new();
        encode_batch(&mut bytes, 1, &[record(1, "key", Some(b"value"))]);
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len], 0), None, "length {len}");
        }
    }

    #[test]
    fn revisions_that_fall_are_refused_although_the_checksums_are_right() {
        let mut bytes = Vec::new();
        encode_batch(&mut bytes, 1, &[record(2, "a", None), record(2, "b", None)]);
        let head = batch_head(&bytes, 0).unwrap();
        assert!(batch_payload(&bytes, 0, head).is_some());
        assert_eq!(decode(&bytes, 0), None);
    }

    #[test]
    fn only_names_of_ours_have_numbers() {
        assert_eq!(number_in(&segment_name(42), "log-"), Some(42));
        assert_eq!(number_in(&snapshot_name(u64::MAX), "snapshot-"), Some(u64::MAX));
        for name in [
            "log-42",
            "LOCK",
            "log-99999999999999999999",
            "snapshot-00000000000000000001.tmp",
            "log-+0000000000000000001",
        ] {
            assert_eq!(number_in(name, "log-"), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..310) {
            prop_assert!(decode(&bytes, at).is_none());
            let head = BatchHead { length: bytes.len(), sequence: 0, first_revision: 0, records: 1, payload_crc: 0 };
            let _ = batch_records(&bytes, head);
            prop_assert!(segment_head(&bytes).is_none());
        }
    }
}
