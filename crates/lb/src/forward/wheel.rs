//! Deadlines of connections: a wheel with a fine and a coarse ring. Nothing is moved while bytes flow; a deadline that has
//! become later is found out when its slot comes up, and set again. So a connection costs one insertion and one removal.

use crate::core::Time;

/// A fine slot is 2^14 us (16 ms), a coarse one 2^22 us (4.2 s): one coarse slot is one turn of the fine ring.
const FINE_SHIFT: u32 = 14;
const COARSE_SHIFT: u32 = 22;
const SLOTS: u64 = 256;
const NOWHERE: u32 = u32::MAX;
const NO_SLOT: u16 = u16::MAX;

/// Keys are small numbers (places in a slab), each at most once in the wheel.
#[derive(Debug)]
pub(super) struct Wheel {
    nodes: Vec<Node>,
    rings: [Ring; 2],
}

/// A place in the list of its slot.
#[derive(Debug, Clone, Copy)]
struct Node {
    before: u32,
    after: u32,
    /// Ring and slot: `ring * 256 + slot`.
    slot: u16,
}

#[derive(Debug)]
struct Ring {
    shift: u32,
    heads: Box<[u32]>,
    filled: [u64; 4],
    /// The first tick that has not come up yet.
    position: u64,
}

// === impl Wheel ===

impl Wheel {
    pub(super) fn new(now: Time) -> Self {
        Self { nodes: Vec::new(), rings: [Ring::new(FINE_SHIFT, now), Ring::new(COARSE_SHIFT, now)] }
    }

    /// Has `key` come up at `deadline` or, if that is far away, some time before it.
    pub(super) fn set(&mut self, key: u32, deadline: Time) {
        self.clear(key);
        let index = key as usize;
        if self.nodes.len() <= index {
            self.nodes.resize(index + 1, Node { before: NOWHERE, after: NOWHERE, slot: NO_SLOT });
        }
        let fine = ((deadline >> FINE_SHIFT) + 1).max(self.rings[0].position);
        let (ring, tick) = if fine - self.rings[0].position < SLOTS {
            (0, fine)
        } else {
            let first = self.rings[1].position;
            (1, (deadline >> COARSE_SHIFT).clamp(first, first + SLOTS - 1))
        };
        self.link(index, ring, (tick % SLOTS) as usize);
    }

    /// Takes `key` out, if it is in.
    pub(super) fn clear(&mut self, key: u32) {
        let Some(node) = self.nodes.get(key as usize).copied() else { return };
        if node.slot == NO_SLOT {
            return;
        }
        let (ring, slot) = (usize::from(node.slot >> 8), usize::from(node.slot & 0xff));
        match self.nodes.get_mut(node.before as usize) {
            Some(before) => before.after = node.after,
            None => self.rings[ring].put_head(slot, node.after),
        }
        if let Some(after) = self.nodes.get_mut(node.after as usize) {
            after.before = node.before;
        }
        self.nodes[key as usize].slot = NO_SLOT;
    }

    /// Takes out all keys whose slot has come up. Those that are not due yet are to be set again.
    pub(super) fn come_up(&mut self, now: Time, out: &mut Vec<u32>) {
        for ring in 0..self.rings.len() {
            let last = now >> self.rings[ring].shift;
            let first = self.rings[ring].position;
            if last < first {
                continue;
            }
            self.rings[ring].position = last + 1;
            // After a long pause every slot has come up once, not more.
            for tick in first..=last.min(first + SLOTS - 1) {
                let slot = (tick % SLOTS) as usize;
                while self.rings[ring].heads[slot] != NOWHERE {
                    let key = self.rings[ring].heads[slot];
                    self.clear(key);
                    out.push(key);
                }
            }
        }
    }

    /// When the next slot with anything in it comes up.
    pub(super) fn next(&self) -> Option<Time> {
        self.rings.iter().filter_map(Ring::next).min()
    }

    fn link(&mut self, index: usize, ring: usize, slot: usize) {
        let key = index as u32;
        let head = self.rings[ring].heads[slot];
        if let Some(first) = self.nodes.get_mut(head as usize) {
            first.before = key;
        }
        self.nodes[index] = Node { before: NOWHERE, after: head, slot: (ring << 8 | slot) as u16 };
        self.rings[ring].put_head(slot, key);
    }
}

// === impl Ring ===

impl Ring {
    fn new(shift: u32, now: Time) -> Self {
        let heads = vec![NOWHERE; SLOTS as usize].into_boxed_slice();
        Self { shift, heads, filled: [0; 4], position: (now >> shift) + 1 }
    }

    fn put_head(&mut self, slot: usize, key: u32) {
        self.heads[slot] = key;
        let bit = 1_u64 << (slot % 64);
        if key == NOWHERE {
            self.filled[slot / 64] &= !bit;
        } else {
            self.filled[slot / 64] |= bit;
        }
    }

    fn next(&self) -> Option<Time> {
        let start = (self.position % SLOTS) as usize;
        // Five looks: the word in which we start is looked at twice, its upper part first and its lower part last.
        (0..5).find_map(|step| {
            let word = (start / 64 + step) % 4;
            let upper = u64::MAX << (start % 64);
            let mask = match step {
                0 => upper,
                4 => !upper,
                _ => u64::MAX,
            };
            let bits = self.filled[word] & mask;
            (bits != 0).then(|| {
                let slot = (word * 64) as u64 + u64::from(bits.trailing_zeros());
                let away = (slot + SLOTS - start as u64) % SLOTS;
                (self.position + away) << self.shift
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Time = 1_000_000;

    /// Goes through time as a loop does, and tells when each key was really due.
    fn run(wheel: &mut Wheel, deadlines: &[Time]) -> Vec<Time> {
        let mut ended = vec![0; deadlines.len()];
        let mut out = Vec::new();
        while let Some(now) = wheel.next() {
            wheel.come_up(now, &mut out);
            for key in out.drain(..) {
                if deadlines[key as usize] <= now {
                    ended[key as usize] = now;
                } else {
                    wheel.set(key, deadlines[key as usize]);
                }
            }
        }
        ended
    }

    #[test]
    fn every_deadline_is_met_and_none_early() {
        let start = 12_345_678;
        let mut wheel = Wheel::new(start);
        let deadlines: Vec<Time> =
            [0, 1, 20_000, SECOND, 4 * SECOND, 5 * SECOND, 61 * SECOND, 3600 * SECOND, 86_400 * SECOND]
                .map(|after| start + after)
                .to_vec();
        for (key, deadline) in deadlines.iter().enumerate() {
            wheel.set(key as u32, *deadline);
        }
        for (deadline, ended) in deadlines.iter().zip(run(&mut wheel, &deadlines)) {
            assert!(ended >= *deadline, "{deadline} ended at {ended}");
            assert!(ended - deadline < 2 << FINE_SHIFT, "{deadline} ended at {ended}");
        }
    }

    #[test]
    fn what_is_cleared_does_not_come_up() {
        let mut wheel = Wheel::new(0);
        for key in 0..10 {
            wheel.set(key, SECOND);
        }
        for key in [0, 4, 9, 4] {
            wheel.clear(key);
        }
        let mut out = Vec::new();
        wheel.come_up(2 * SECOND, &mut out);
        out.sort_unstable();
        assert_eq!(out, [1, 2, 3, 5, 6, 7, 8]);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn a_long_pause_loses_nothing() {
        let mut wheel = Wheel::new(0);
        for key in 0..300 {
            wheel.set(key, Time::from(key) * SECOND);
        }
        let mut out = Vec::new();
        wheel.come_up(7 * 86_400 * SECOND, &mut out);
        assert_eq!(out.len(), 300);
    }
}
