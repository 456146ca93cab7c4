//! What the log does with files as it finds them: whole, torn, damaged, missing, and with a disk that gets full.

use super::*;
use crate::store::disk::{DirDisk, Restart, SimDisk};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn put(revision: u64, key: &str, value: &str) -> Record {
    Record { revision, key: key.into(), value: Some(Bytes::copy_from_slice(value.as_bytes())) }
}

fn delete(revision: u64, key: &str) -> Record {
    Record { revision, key: key.into(), value: None }
}

fn open(disk: &SimDisk) -> (Log<SimDisk>, Recovered) {
    Log::open(disk.clone()).unwrap()
}

fn refused(disk: &SimDisk) -> OpenError {
    Log::open(disk.clone()).map(|(_, recovered)| recovered).unwrap_err()
}

fn values(recovered: &Recovered) -> Vec<(&str, u64, &str)> {
    recovered.entries.iter().map(|e| (&*e.key, e.revision, std::str::from_utf8(&e.value).unwrap())).collect()
}

/// Three batches; returns where each starts and where the last one ends.
fn three_batches(disk: &SimDisk) -> [u64; 4] {
    let (mut log, _) = open(disk);
    let mut at = [log.end; 4];
    for revision in 1..=3 {
        log.append(&[put(revision, &format!("k{revision}"), "value")]).unwrap();
        at[revision as usize] = log.end;
    }
    at
}

/// Snapshots what a log would recover right now.
fn snapshot(log: &mut Log<SimDisk>, state: &BTreeMap<&str, (u64, &str)>) -> SnapshotReport {
    let job = log.rotate(log.revision(), 0).unwrap();
    let entry = |(key, (revision, value)): (&&str, &(u64, &str))| {
        let value = Bytes::copy_from_slice(value.as_bytes());
        Entry { key: (*key).into(), revision: *revision, value }
    };
    job.run(state.iter().map(entry).collect::<Vec<_>>()).unwrap()
}

const FIRST: &str = "log-00000000000000000001";

#[test]
fn a_new_folder_is_empty_and_what_was_appended_comes_back() {
    let disk = SimDisk::new(1);
    let (mut log, found) = open(&disk);
    assert_eq!(found, Recovered::default());
    log.append(&[put(1, "a", "1"), put(2, "b", "2")]).unwrap();
    log.append(&[delete(3, "a"), put(4, "c", "")]).unwrap();
    log.append(&[]).unwrap();
    let (log, found) = open(&disk.restart(Restart::PowerCut));
    assert_eq!(values(&found), [("b", 2, "2"), ("c", 4, "")]);
    assert_eq!(found.tail, [put(1, "a", "1"), put(2, "b", "2"), delete(3, "a"), put(4, "c", "")]);
    assert_eq!((found.revision, found.floor, found.cut), (4, 0, None));
    assert_eq!(log.bytes_since_snapshot(), log.end - SEGMENT_HEAD as u64);
}

#[test]
fn a_small_append_is_one_write_and_one_sync() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    for revision in 1..100 {
        let (writes, syncs) = disk.writes_and_syncs();
        let operations = disk.operations();
        log.append(&[put(revision, "key", "value")]).unwrap();
        assert_eq!(disk.writes_and_syncs(), (writes + 1, syncs + 1));
        assert_eq!(disk.operations(), operations + 2);
    }
}

#[test]
fn revisions_must_rise() {
    let (mut log, _) = open(&SimDisk::new(1));
    log.append(&[put(5, "a", "")]).unwrap();
    for batch in [vec![put(5, "a", "")], vec![put(6, "a", ""), put(6, "b", "")]] {
        assert!(matches!(log.append(&batch), Err(AppendError::Order { .. })));
    }
    assert!(matches!(log.rotate(4, 0), Err(RotateError::Order { last: 5, got: 4 })));
    log.append(&[put(6, "a", "")]).unwrap();
}

#[test]
fn a_flipped_bit_before_the_last_batch_refuses_and_names_it() {
    let at = three_batches(&SimDisk::new(1));
    for byte in at[1]..at[2] {
        let disk = SimDisk::new(1);
        three_batches(&disk);
        disk.flip_bit(FIRST, byte, (byte % 8) as u8);
        let before = disk.read(FIRST).unwrap();
        let error = refused(&disk);
        let OpenError::Damaged { file, offset, from, to, .. } = &error else {
            panic!("byte {byte}: {error}")
        };
        assert_eq!((file.as_str(), *offset, *from, *to), (FIRST, at[1], 2, Some(2)), "byte {byte}");
        let text = error.to_string();
        for part in
            ["simulated/log-00000000000000000001", "revision 2 to 2", "Restore the folder", "truncate -s"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(disk.read(FIRST).unwrap(), before, "a refused file is left as it is");
    }
}

#[test]
fn the_remedy_in_the_message_works() {
    let disk = SimDisk::new(1);
    let at = three_batches(&disk);
    disk.flip_bit(FIRST, at[1] + 3, 0);
    assert!(matches!(refused(&disk), OpenError::Damaged { .. }));
    disk.open(FIRST).unwrap().truncate(at[1]).unwrap();
    let (_, found) = open(&disk);
    assert_eq!((values(&found), found.cut.as_ref()), (vec![("k1", 1, "value")], None));
}

/// A flipped bit in the last batch looks exactly like a torn write, so it is cut. It is reported.
#[test]
fn a_flipped_bit_in_the_last_batch_is_cut_and_reported() {
    let at = three_batches(&SimDisk::new(1));
    for byte in at[2]..at[3] {
        let disk = SimDisk::new(1);
        three_batches(&disk);
        disk.flip_bit(FIRST, byte, (byte % 8) as u8);
        let (mut log, found) = open(&disk);
        assert_eq!(values(&found), [("k1", 1, "value"), ("k2", 2, "value")], "byte {byte}");
        let cut = found.cut.unwrap();
        assert_eq!((cut.file.as_str(), cut.offset, cut.after_revision), (FIRST, at[2], 2), "byte {byte}");
        log.append(&[put(3, "new", "x")]).unwrap();
        let (_, found) = open(&disk.restart(Restart::PowerCut));
        assert_eq!(values(&found).last(), Some(&("new", 3, "x")));
        assert_eq!(found.cut, None);
    }
}

#[test]
fn every_shortened_last_batch_is_cut() {
    let at = three_batches(&SimDisk::new(1));
    for length in at[2]..at[3] {
        let disk = SimDisk::new(1);
        three_batches(&disk);
        disk.open(FIRST).unwrap().truncate(length).unwrap();
        let (_, found) = open(&disk);
        assert_eq!((found.revision, found.cut.is_some()), (2, length > at[2]), "length {length}");
    }
}

#[test]
fn a_batch_of_another_life_of_the_file_is_not_taken() {
    let disk = SimDisk::new(1);
    let at = three_batches(&disk);
    let bytes = disk.read(FIRST).unwrap();
    let file = disk.open(FIRST).unwrap();
    // Batch 2 once more after batch 3, whole but with a number that was there already.
    file.write_at(at[3], &bytes[at[1] as usize..at[2] as usize]).unwrap();
    let (_, found) = open(&disk);
    assert_eq!((found.revision, found.cut.map(|c| c.offset)), (3, Some(at[3])));
    // Batch 3 in the place of batch 2: one is missing.
    file.write_at(at[1], &bytes[at[2] as usize..at[3] as usize]).unwrap();
    assert!(matches!(refused(&disk), OpenError::Damaged { offset, .. } if offset == at[1]));
}

#[test]
fn text_that_looks_like_a_log_inside_a_torn_batch_is_not_a_later_batch() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    let mut inner = Vec::new();
    codec::encode_batch(&mut inner, 77, &[put(99, "x", "y")]);
    let start = log.end;
    log.append(&[Record { revision: 1, key: "k".into(), value: Some(inner.into()) }]).unwrap();
    disk.flip_bit(FIRST, start + codec::BATCH_HEAD as u64, 0);
    assert_eq!(open(&disk).1.cut.map(|c| c.offset), Some(start));
}

#[test]
fn a_snapshot_replaces_what_is_older_than_the_one_before_it() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    log.append(&[put(1, "a", "1"), put(2, "b", "2"), delete(3, "a")]).unwrap();
    assert!(log.bytes_since_snapshot() > 0);
    let state = BTreeMap::from([("b", (2, "2"))]);
    let report = snapshot(&mut log, &state);
    assert_eq!((report.revision, report.entries, report.removed.len()), (3, 1, 0));
    assert_eq!(log.bytes_since_snapshot(), 0);
    log.append(&[put(4, "c", "4")]).unwrap();
    // The history reaches back over the snapshot.
    let (mut log, found) = open(&disk.restart(Restart::PowerCut));
    assert_eq!(values(&found), [("b", 2, "2"), ("c", 4, "4")]);
    assert_eq!((found.floor, found.tail.len(), found.revision), (0, 4, 4));
    log.append(&[delete(5, "b"), delete(6, "c")]).unwrap();
    let disk = log.disk.clone();
    let report = snapshot(&mut log, &BTreeMap::new());
    assert_eq!(report.removed, [FIRST]);
    let (_, found) = open(&disk.restart(Restart::PowerCut));
    assert_eq!((found.floor, found.revision), (3, 6));
    assert_eq!(found.tail, [put(4, "c", "4"), delete(5, "b"), delete(6, "c")]);
    assert!(found.entries.is_empty(), "a snapshot without entries still carries the revision");
}

#[test]
fn a_snapshot_refuses_entries_from_after_its_revision() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    log.append(&[put(1, "a", "1")]).unwrap();
    let job = log.rotate(1, 0).unwrap();
    let late = Entry { key: "a".into(), revision: 2, value: Bytes::new() };
    assert!(matches!(job.run([late]), Err(SnapshotError::TooNew { got: 2, revision: 1, .. })));
    assert_eq!(disk.list().unwrap(), [FIRST, "log-00000000000000000002"]);
}

#[test]
fn a_half_written_snapshot_is_removed_and_other_files_are_let_be() {
    let disk = SimDisk::new(1);
    disk.create("snapshot-00000000000000000009.tmp").unwrap();
    disk.create("notes.tmp").unwrap();
    open(&disk);
    assert_eq!(disk.list().unwrap(), [FIRST, "notes.tmp"]);
}

#[test]
fn a_bad_snapshot_is_replaced_by_what_it_was_made_from() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    log.append(&[put(1, "a", "1")]).unwrap();
    snapshot(&mut log, &BTreeMap::from([("a", (1, "1"))]));
    log.append(&[put(2, "b", "2")]).unwrap();
    let bad = "snapshot-00000000000000000001";
    for byte in 0..disk.read(bad).unwrap().len() as u64 {
        disk.flip_bit(bad, byte, 3);
        let (_, found) = open(&disk);
        assert_eq!(values(&found), [("a", 1, "1"), ("b", 2, "2")], "byte {byte}");
        assert_eq!(found.bad_snapshots, [bad]);
        disk.rename(&format!("damaged-{bad}"), bad).unwrap();
        disk.flip_bit(bad, byte, 3);
    }
    // Without the first segment there is nothing to fall back to.
    disk.flip_bit(bad, 20, 3);
    disk.remove(FIRST).unwrap();
    let error = refused(&disk);
    assert!(matches!(&error, OpenError::Missing { file, from: 1, .. } if file == FIRST), "{error}");
}

#[test]
fn a_bad_snapshot_whose_source_is_gone_refuses() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    log.append(&[put(1, "a", "1")]).unwrap();
    snapshot(&mut log, &BTreeMap::from([("a", (1, "1"))]));
    disk.flip_bit("snapshot-00000000000000000001", 40, 0);
    disk.remove("log-00000000000000000002").unwrap();
    disk.open(FIRST).unwrap().truncate(SEGMENT_HEAD as u64).unwrap();
    let error = refused(&disk);
    assert!(matches!(&error, OpenError::Snapshot { reached: 0, .. }), "{error}");
    assert!(error.to_string().contains("its checksum is wrong"), "{error}");
}

#[test]
fn a_segment_missing_in_the_middle_refuses() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    for revision in 1..=3 {
        log.append(&[put(revision, "a", "1")]).unwrap();
        drop(log.rotate(revision, 0).unwrap());
    }
    assert_eq!(open(&disk).1.revision, 3);
    disk.remove("log-00000000000000000002").unwrap();
    let error = refused(&disk);
    assert!(matches!(&error, OpenError::Segment { from: 3, .. }), "{error}");
    assert!(error.to_string().contains("changes in between are missing"), "{error}");
}

#[test]
fn damage_that_the_newest_snapshot_covers_costs_only_history() {
    let disk = SimDisk::new(1);
    three_batches(&disk);
    let (mut log, _) = open(&disk);
    let state = BTreeMap::from([("k1", (1, "value")), ("k2", (2, "value")), ("k3", (3, "value"))]);
    snapshot(&mut log, &state);
    log.append(&[put(4, "k4", "value")]).unwrap();
    disk.flip_bit(FIRST, 70, 0);
    let (_, found) = open(&disk);
    assert_eq!((found.entries.len(), found.floor, found.revision), (4, 3, 4));
    assert_eq!(found.tail, [put(4, "k4", "value")]);
}

#[test]
fn a_missing_segment_refuses_and_an_empty_file_gives_it_up() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    log.append(&[put(1, "a", "1")]).unwrap();
    snapshot(&mut log, &BTreeMap::from([("a", (1, "1"))]));
    log.append(&[put(2, "b", "2")]).unwrap();
    let second = "log-00000000000000000002";
    disk.remove(second).unwrap();
    let error = refused(&disk);
    assert!(matches!(&error, OpenError::Missing { file, from: 2, .. } if file == second), "{error}");
    disk.create(second).unwrap();
    let (mut log, found) = open(&disk);
    assert_eq!(values(&found), [("a", 1, "1")]);
    log.append(&[put(2, "c", "")]).unwrap();
    assert_eq!(open(&disk.restart(Restart::PowerCut)).1.entries.len(), 2);
}

#[test]
fn a_segment_with_a_bad_head_refuses() {
    let disk = SimDisk::new(1);
    three_batches(&disk);
    disk.flip_bit(FIRST, 9, 1);
    let error = refused(&disk);
    assert!(matches!(&error, OpenError::Segment { from: 1, .. }), "{error}");
    assert!(error.to_string().contains("its head can't be read"), "{error}");
}

#[test]
fn a_full_disk_refuses_cleanly_and_goes_on_when_there_is_room() {
    for room in 0..120 {
        let disk = SimDisk::new(room);
        let (mut log, _) = open(&disk);
        log.append(&[put(1, "a", "1")]).unwrap();
        // Beyond the zeros that were written ahead, so that growing is needed.
        log.file.truncate(log.end).unwrap();
        log.allocated = log.end;
        disk.set_room(Some(room));
        let result = log.append(&[put(2, "b", &"x".repeat(64))]);
        if let Err(error) = result {
            assert!(matches!(error, AppendError::Full { needed: 117, .. }), "{error:?}");
            assert!(room < 117, "room {room}");
            assert_eq!(log.revision(), 1);
            log.append(&[put(2, "b", "")])
                .map_or_else(|e| assert!(room < 53, "{e}"), |()| assert!(room >= 53));
        } else {
            assert!(room >= 117, "room {room}");
        }
        disk.set_room(None);
        log.append(&[put(9, "c", "")]).unwrap();
        let (_, found) = open(&disk.restart(Restart::PowerCut));
        let keys: Vec<&str> = found.entries.iter().map(|e| &*e.key).collect();
        assert_eq!(keys, if room < 53 { vec!["a", "c"] } else { vec!["a", "b", "c"] }, "room {room}");
        assert_eq!(found.cut, None);
    }
}

#[test]
fn a_full_disk_stops_a_rotation_but_not_the_log() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    log.append(&[put(1, "a", "1")]).unwrap();
    disk.set_room(Some(10));
    assert!(matches!(log.rotate(1, 0), Err(RotateError::Start { .. })));
    log.append(&[put(2, "b", "2")]).unwrap();
    disk.set_room(None);
    let (_, found) = open(&disk.restart(Restart::PowerCut));
    assert_eq!((found.revision, disk.restart(Restart::Kill).list().unwrap()), (2, vec![FIRST.to_owned()]));
}

#[test]
fn after_a_failed_sync_nothing_is_accepted_until_a_restart() {
    let disk = SimDisk::new(1);
    let (mut log, _) = open(&disk);
    log.append(&[put(1, "a", "1")]).unwrap();
    disk.fail_syncs(1);
    for _ in 0..2 {
        let error = log.append(&[put(2, "b", "2")]).unwrap_err();
        assert!(matches!(error, AppendError::Poisoned { .. }), "{error:?}");
        assert!(error.to_string().contains("restart"), "{error}");
    }
    assert!(matches!(log.rotate(1, 0), Err(RotateError::Poisoned(_))));
    assert!(log.is_poisoned());
    let (mut log, _) = open(&disk.restart(Restart::PowerCut));
    log.append(&[put(3, "c", "3")]).unwrap();
}

#[test]
fn the_real_file_system_does_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Log::open(DirDisk::open(dir.path().join("data")).unwrap()).unwrap();
    let (mut log, _) = open();
    log.append(&[put(1, "a", "1")]).unwrap();
    let job = log.rotate(1, 0).unwrap();
    let runner = std::thread::spawn(|| job.run([Entry { key: "a".into(), revision: 1, value: "1".into() }]));
    log.append(&[put(2, "b", "2")]).unwrap();
    assert_eq!(runner.join().unwrap().unwrap().entries, 1);
    drop(log);
    let (log, found) = open();
    assert_eq!(values(&found), [("a", 1, "1"), ("b", 2, "2")]);
    assert_eq!((found.revision, found.tail.len(), found.cut), (2, 2, None));
    drop(log);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Arbitrary bytes in files of ours: an answer, never a panic.
    #[test]
    fn arbitrary_files_never_panic(
        files in proptest::collection::btree_map(
            ("(log|snapshot)-", prop_oneof![0u64..4, Just(u64::MAX)]), proptest::collection::vec(any::<u8>(), 0..200), 0..4),
    ) {
        let disk = SimDisk::new(0);
        for ((prefix, number), bytes) in &files {
            disk.create(&format!("{prefix}{number:020}")).unwrap().write_at(0, bytes).unwrap();
        }
        if let Ok((mut log, found)) = Log::open(disk.clone()) {
            prop_assert_eq!(&found.entries, &[]);
            log.append(&[put(found.revision + 1, "k", "v")]).unwrap();
            prop_assert_eq!(Log::open(disk).unwrap().1.entries.len(), 1);
        }
    }

    /// Whatever is scribbled over a good log: what is recovered is a prefix of what was written.
    #[test]
    fn scribbles_never_invent_data(at in 0u64..300, junk in proptest::collection::vec(any::<u8>(), 1..80), cut in 0u64..400) {
        let disk = SimDisk::new(0);
        three_batches(&disk);
        let file = disk.open(FIRST).unwrap();
        file.truncate(300).unwrap();
        file.write_at(at, &junk).unwrap();
        file.truncate(cut).unwrap();
        if let Ok((_, found)) = Log::open(disk) {
            let all: Vec<Record> = (1..=3).map(|r| put(r, &format!("k{r}"), "value")).collect();
            prop_assert!(all.starts_with(&found.tail));
            prop_assert_eq!(found.entries.len(), found.tail.len());
        }
    }
}
