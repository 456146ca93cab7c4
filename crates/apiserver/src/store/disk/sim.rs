//! A disk in memory that keeps only what [`Disk`] promises and breaks everything else, by seed.
//!
//! It holds, for each file, what is durable and what was done since. A power cut keeps an arbitrary part of the latter:
//! each 512-byte sector of each unsynced write is kept, dropped, torn in the middle, or (where the file grew) filled with
//! what lay in that place before; unsynced truncations and directory changes happen or don't. A kill keeps what the
//! kernel has in memory but syncs nothing. Full disks, short writes and failing syncs can be asked for.

use super::{Disk, DiskFile};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

const SECTOR: u64 = 512;

/// A handle to a simulated disk, good until the next restart.
#[derive(Debug, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    life: u64,
}

/// An open file of a [`SimDisk`].
#[derive(Debug)]
pub struct SimFile {
    disk: SimDisk,
    inode: u64,
}

/// How the machine went down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// Only the process ended; what it wrote is still in the kernel's memory, synced or not.
    Kill,
    PowerCut,
}

#[derive(Debug, Default)]
struct State {
    random: Random,
    /// Counts restarts; handles of an earlier life are dead.
    life: u64,
    next_inode: u64,
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    unsynced_names: Vec<NameChange>,
    down: bool,
    /// Operations left until the machine goes down.
    fuse: Option<u64>,
    /// Bytes that files may still grow by.
    room: Option<u64>,
    short_writes: bool,
    failing_syncs: u32,
    operations: u64,
    writes: u64,
    syncs: u64,
}

#[derive(Debug, Default)]
struct Inode {
    durable: Vec<u8>,
    /// What readers see.
    cached: Vec<u8>,
    unsynced: Vec<Change>,
}

#[derive(Debug)]
enum Change {
    Write { at: u64, bytes: Vec<u8> },
    Truncate(u64),
}

#[derive(Debug)]
enum NameChange {
    Add(String, u64),
    Rename(String, String, u64),
    Remove(String),
}

/// How kind a power cut is. Extremes are drawn as often as the wild middle, as they are what finds ordinary mistakes.
#[derive(Clone, Copy, Default)]
struct Mood {
    /// Of 8 sectors, how many are kept and how many are torn.
    kept: u64,
    torn: u64,
    stale: bool,
    names_in_order: bool,
}

/// SplitMix64: small, seeded, good enough to choose what to break.
#[derive(Debug, Default)]
struct Random(u64);

// === impl Random ===

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

// === impl SimDisk ===

impl SimDisk {
    pub fn new(seed: u64) -> Self {
        let state = State { random: Random(seed), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), life: 0 }
    }

    /// Lets the machine go down in the middle of the given operation from now (0: the next one).
    pub fn go_down_after(&self, operations: u64) {
        self.state.lock().fuse = Some(operations);
    }

    /// Takes the machine down now, whatever it is doing, and starts it again. Older handles are dead.
    pub fn restart(&self, how: Restart) -> Self {
        let mut state = self.state.lock();
        if how == Restart::PowerCut {
            state.lose_power();
        }
        state.life += 1;
        state.down = false;
        state.fuse = None;
        state.failing_syncs = 0;
        Self { state: Arc::clone(&self.state), life: state.life }
    }

    /// How many bytes files may grow by before the disk is full.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.state.lock().room = bytes;
    }

    /// Lets every write take only a part of what it is given.
    pub fn set_short_writes(&self, on: bool) {
        self.state.lock().short_writes = on;
    }

    /// Lets the next syncs of files fail, losing what they were to store.
    pub fn fail_syncs(&self, count: u32) {
        self.state.lock().failing_syncs = count;
    }

    /// Flips one bit of what is stored, as failing media do.
    pub fn flip_bit(&self, name: &str, byte: u64, bit: u8) {
        let mut state = self.state.lock();
        let inode = state.names.get(name).copied().unwrap_or_default();
        if let Some(inode) = state.inodes.get_mut(&inode) {
            for content in [&mut inode.durable, &mut inode.cached] {
                if let Some(byte) = content.get_mut(byte as usize) {
                    *byte ^= 1 << (bit % 8);
                }
            }
        }
    }

    /// Reads, writes, syncs and changes of names so far.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Write calls and file syncs so far.
    pub fn writes_and_syncs(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.writes, state.syncs)
    }

    /// Starts an operation; the flag says that the machine goes down in the middle of it.
    fn begin(&self) -> io::Result<(MutexGuard<'_, State>, bool)> {
        let mut state = self.state.lock();
        if state.down || state.life != self.life {
            return Err(gone());
        }
        state.operations += 1;
        match &mut state.fuse {
            Some(0) => state.down = true,
            Some(fuse) => *fuse -= 1,
            None => {}
        }
        let down = state.down;
        Ok((state, down))
    }

    fn file(&self, inode: u64) -> SimFile {
        SimFile { disk: self.clone(), inode }
    }

    /// Changes names, or, if the machine is going down, perhaps.
    fn change_names(&self, change: impl FnOnce(&State) -> io::Result<NameChange>) -> io::Result<()> {
        let (mut state, down) = self.begin()?;
        let change = change(&state)?;
        if !down || state.random.below(2) == 0 {
            change.apply(&mut state.names);
            state.unsynced_names.push(change);
        }
        if down { Err(gone()) } else { Ok(()) }
    }
}

fn gone() -> io::Error {
    io::Error::other("the simulated machine is down")
}

fn absent(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {name}"))
}

impl Disk for SimDisk {
    type File = SimFile;

    fn create(&self, name: &str) -> io::Result<SimFile> {
        let there = self.state.lock().names.get(name).copied();
        if let Some(inode) = there {
            let file = self.file(inode);
            file.truncate(0)?;
            return Ok(file);
        }
        let inode = {
            let mut state = self.state.lock();
            state.next_inode += 1;
            let inode = state.next_inode;
            state.inodes.insert(inode, Inode::default());
            inode
        };
        self.change_names(|_| Ok(NameChange::Add(name.to_owned(), inode)))?;
        Ok(self.file(inode))
    }

    fn open(&self, name: &str) -> io::Result<SimFile> {
        let (state, _) = self.begin()?;
        state.names.get(name).map(|inode| self.file(*inode)).ok_or_else(|| absent(name))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let (state, _) = self.begin()?;
        let inode = state.names.get(name).ok_or_else(|| absent(name))?;
        Ok(state.inodes.get(inode).map(|i| i.cached.clone()).unwrap_or_default())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change_names(|state| {
            let inode = *state.names.get(from).ok_or_else(|| absent(from))?;
            Ok(NameChange::Rename(from.to_owned(), to.to_owned(), inode))
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change_names(|state| {
            state
                .names
                .contains_key(name)
                .then(|| NameChange::Remove(name.to_owned()))
                .ok_or_else(|| absent(name))
        })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let (state, _) = self.begin()?;
        Ok(state.names.keys().cloned().collect())
    }

    fn sync_dir(&self) -> io::Result<()> {
        let (mut state, down) = self.begin()?;
        if down {
            return Err(gone());
        }
        state.durable_names = state.names.clone();
        state.unsynced_names.clear();
        Ok(())
    }

    fn describe(&self) -> String {
        "simulated".to_owned()
    }
}

// === impl SimFile ===

impl DiskFile for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let (mut state, down) = self.disk.begin()?;
        state.writes += 1;
        let length = state.inodes.get(&self.inode).map_or(0, |i| i.cached.len() as u64);
        let mut take = bytes.len() as u64;
        if down {
            take = state.random.below(take + 1);
        } else if state.short_writes && take > 1 {
            take = 1 + state.random.below(take);
        }
        if let Some(room) = state.room {
            take = take.min((length + room).saturating_sub(offset));
            let growth = (offset + take).saturating_sub(length);
            state.room = Some(room - growth.min(room));
        }
        if let Some(inode) = state.inodes.get_mut(&self.inode).filter(|_| take > 0) {
            inode.change(Change::Write { at: offset, bytes: bytes[..take as usize].to_vec() });
        }
        match take {
            _ if down => Err(gone()),
            0 if !bytes.is_empty() => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(take as usize),
        }
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        let (mut state, down) = self.disk.begin()?;
        if down && state.random.below(2) == 0 {
            return Err(gone());
        }
        let before = state.inodes.get(&self.inode).map_or(0, |i| i.cached.len() as u64);
        state.room = state.room.map(|room| room + before.saturating_sub(len));
        if let Some(inode) = state.inodes.get_mut(&self.inode) {
            inode.change(Change::Truncate(len));
        }
        if down { Err(gone()) } else { Ok(()) }
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, down) = self.disk.begin()?;
        state.syncs += 1;
        if down {
            return Err(gone());
        }
        let fail = state.failing_syncs > 0;
        state.failing_syncs = state.failing_syncs.saturating_sub(1);
        let (mood, stale) = if fail { (state.mood(), state.stale()) } else { Default::default() };
        let State { random, inodes, .. } = &mut *state;
        let Some(inode) = inodes.get_mut(&self.inode) else { return Ok(()) };
        if fail {
            // Some of it got through; the rest is still seen, and never synced again.
            inode.keep_some(random, mood, &stale);
            return Err(io::Error::from_raw_os_error(5));
        }
        for change in std::mem::take(&mut inode.unsynced) {
            change.apply(&mut inode.durable);
        }
        Ok(())
    }
}

// === impl Change ===

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { at, bytes } => put(content, *at, bytes),
            Self::Truncate(len) => content.resize(*len as usize, 0),
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Add(name, inode) => {
                names.insert(name.clone(), *inode);
            }
            Self::Rename(from, to, inode) => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            Self::Remove(name) => {
                names.remove(name);
            }
        }
    }
}

fn put(content: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let (start, end) = (at as usize, at as usize + bytes.len());
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(bytes);
}

// === impl Inode ===

impl Inode {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.cached);
        self.unsynced.push(change);
    }
}

// === impl State ===

impl State {
    /// Decides what of the unsynced survives.
    fn lose_power(&mut self) {
        let mood = self.mood();
        let stale = self.stale();
        let State { random, inodes, .. } = self;
        for inode in inodes.values_mut() {
            inode.keep_some(random, mood, &stale);
            inode.cached.clone_from(&inode.durable);
        }
        let mut in_order = true;
        for change in std::mem::take(&mut self.unsynced_names) {
            let happened = self.random.below(2) == 0;
            in_order &= happened;
            if if mood.names_in_order { in_order } else { happened } {
                change.apply(&mut self.durable_names);
            }
        }
        self.names = self.durable_names.clone();
        let names = &self.names;
        self.inodes.retain(|inode, _| names.values().any(|named| named == inode));
    }

    /// What may lie in blocks that were never written since they were given to a file.
    fn stale(&self) -> Vec<u8> {
        self.inodes.values().flat_map(|i| &i.durable).copied().take(16 << 10).collect()
    }

    fn mood(&mut self) -> Mood {
        let (kept, torn) = [(0, 0), (8, 0), (4, 0), (7, 0), (6, 1), (3, 2)][self.random.below(6) as usize];
        let (stale, names_in_order) = (self.random.below(4) == 0, self.random.below(2) == 0);
        Mood { kept, torn, stale, names_in_order }
    }
}

impl Inode {
    /// Makes an arbitrary part of the unsynced changes durable and forgets the rest.
    fn keep_some(&mut self, random: &mut Random, mood: Mood, stale: &[u8]) {
        if self.unsynced.is_empty() {
            return;
        }
        let mut content = std::mem::take(&mut self.durable);
        let old_len = content.len() as u64;
        for change in self.unsynced.drain(..) {
            match change {
                Change::Write { at, bytes } => {
                    for (at, piece) in sectors(at, &bytes) {
                        persist(&mut content, at, piece, random, mood, (at >= old_len).then_some(stale));
                    }
                }
                Change::Truncate(len) if random.below(2) == 0 => content.resize(len as usize, 0),
                Change::Truncate(_) => {}
            }
        }
        // The length may have been stored although the data was not.
        if content.len() < self.cached.len() && random.below(2) == 0 {
            content.resize(self.cached.len(), 0);
        }
        self.durable = content;
    }
}

/// A write, split where the sectors of the file are.
fn sectors(at: u64, mut bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut at = at;
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let take = (SECTOR - at % SECTOR).min(bytes.len() as u64);
        let (piece, rest) = bytes.split_at(take as usize);
        let item = (at, piece);
        (at, bytes) = (at + take, rest);
        Some(item)
    })
}

/// One sector of an unsynced write: kept, torn at some byte, or dropped. `stale`: what may lie in a place that is new.
fn persist(
    content: &mut Vec<u8>,
    at: u64,
    piece: &[u8],
    random: &mut Random,
    mood: Mood,
    stale: Option<&[u8]>,
) {
    let fate = random.below(8);
    let length = piece.len() as u64;
    if fate < mood.kept {
        put(content, at, piece);
    } else if fate < mood.kept + mood.torn {
        let cut = random.below(length + 1) as usize;
        let (start, end) = piece.split_at(cut);
        if random.below(2) == 0 {
            put(content, at, start);
        } else {
            put(content, at + cut as u64, end);
        }
    } else if let Some(stale) = stale.filter(|_| mood.stale && random.below(2) == 0) {
        let from = random.below(stale.len() as u64) as usize;
        let old = stale.get(from..(from + piece.len()).min(stale.len())).unwrap_or_default();
        put(content, at, old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synced(disk: &SimDisk, name: &str, bytes: &[u8]) -> SimFile {
        let file = disk.create(name).unwrap();
        file.write_at(0, bytes).unwrap();
        file.sync().unwrap();
        disk.sync_dir().unwrap();
        file
    }

    #[test]
    fn synced_data_survives_every_power_cut_and_unsynced_data_takes_every_form() {
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..300 {
            let disk = SimDisk::new(seed);
            let file = synced(&disk, "a", &[1; 600]);
            file.write_at(500, &[2; 600]).unwrap();
            let disk = disk.restart(Restart::PowerCut);
            let content = disk.read("a").unwrap();
            assert!(content.len() >= 600 && content[..500].iter().all(|b| *b == 1), "seed {seed}");
            assert!(content[500..600].iter().all(|b| [1, 2].contains(b)), "seed {seed}");
            assert!(file.sync().is_err(), "a handle from before the cut is dead");
            seen.insert(content);
        }
        assert!(seen.contains([1; 600].as_slice()), "all dropped");
        assert!(seen.contains([[1; 500].as_slice(), &[2; 600]].concat().as_slice()), "all kept");
        assert!(seen.len() > 20, "torn and reordered: {}", seen.len());
    }

    #[test]
    fn a_kill_keeps_what_was_written_and_leaves_it_unsynced() {
        let mut lost = 0;
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            synced(&disk, "a", b"old").write_at(0, b"new").unwrap();
            let disk = disk.restart(Restart::Kill);
            assert_eq!(disk.read("a").unwrap(), b"new");
            lost += usize::from(disk.restart(Restart::PowerCut).read("a").unwrap() == b"old");
        }
        assert!(lost > 5);
    }

    #[test]
    fn a_failed_sync_loses_data_although_the_next_one_succeeds() {
        let mut lost = 0;
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            let file = synced(&disk, "a", b"old");
            file.write_at(0, b"new").unwrap();
            disk.fail_syncs(1);
            assert!(file.sync().is_err());
            file.sync().unwrap();
            assert_eq!(disk.read("a").unwrap(), b"new");
            lost += usize::from(disk.restart(Restart::PowerCut).read("a").unwrap() == b"old");
        }
        assert!(lost > 5);
    }

    #[test]
    fn names_are_durable_only_after_the_directory_was_synced() {
        let mut outcomes = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let disk = SimDisk::new(seed);
            synced(&disk, "a", b"x");
            disk.rename("a", "b").unwrap();
            disk.create("c").unwrap().sync().unwrap();
            outcomes.insert(disk.restart(Restart::PowerCut).list().unwrap());
        }
        let names = |n: &[&str]| n.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        for expected in [names(&["a"]), names(&["b"]), names(&["b", "c"]), names(&["a", "c"])] {
            assert!(outcomes.contains(&expected), "{expected:?}");
        }
    }

    #[test]
    fn a_full_disk_takes_a_part_and_then_nothing() {
        let disk = SimDisk::new(1);
        let file = synced(&disk, "a", b"0123");
        disk.set_room(Some(2));
        assert_eq!(file.write_at(4, b"4567").unwrap(), 2);
        assert_eq!(file.write_at(6, b"67").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(file.write_at(0, b"abcdef").unwrap(), 6, "overwriting needs no room");
        file.truncate(4).unwrap();
        assert_eq!(file.write_at(4, b"45").unwrap(), 2, "truncating gives room back");
    }
}
