//! Source hash by Maglev's table: even shares, the same on every balancer with the same backends, and few clients move
//! when a backend is added or removed.
//!
//! The table is made of all configured backends. A client whose backend can't be used is hashed again, so the clients of
//! healthy backends stay where they are, and nothing is rebuilt when health changes.

use super::super::random::mix;
use std::net::IpAddr;

/// Slots; a prime. Shares are even to about a percent up to a hundredth as many backends.
const SLOTS: usize = 16_381;
/// Draws before the rest is searched one by one.
const DRAWS: u64 = 64;

#[derive(Debug, Clone, Default)]
pub(super) struct Table(Vec<u16>);

impl Table {
    /// The table of backends given by place, name and weight.
    pub(super) fn new<'a>(backends: impl Iterator<Item = (usize, &'a str, u32)>) -> Table {
        let mut rows: Vec<Row> =
            backends.map(|(place, name, weight)| Row::new(place, name, weight)).collect();
        let Some(heaviest) = rows.iter().map(|row| row.weight).max() else {
            return Table::default();
        };
        // The turns go by name, so that the order in the file does not matter.
        rows.sort_by_key(|row| (row.offset, row.step));
        let mut slots = vec![u16::MAX; SLOTS];
        let mut left = SLOTS;
        while left > 0 {
            for row in &mut rows {
                // A lighter one sits out turns until its weights add up to the heaviest's.
                row.credit += row.weight;
                if row.credit < heaviest || left == 0 {
                    continue;
                }
                row.credit -= heaviest;
                while slots[row.next()] != u16::MAX {}
                slots[row.at] = row.place as u16;
                left -= 1;
            }
        }
        Table(slots)
    }

    /// The backend of a client among those that may be used; the same for the same client while they are the same.
    pub(super) fn pick(&self, client: IpAddr, usable: &[usize]) -> Option<usize> {
        if self.0.is_empty() {
            return usable.first().copied();
        }
        let key = hash(client);
        for draw in 0..DRAWS {
            let slot = mix(key ^ mix(draw)) % SLOTS as u64;
            let index = usize::from(self.0[slot as usize]);
            if usable.contains(&index) {
                return Some(index);
            }
        }
        let at = usize::try_from(key).unwrap_or(0);
        usable.get(at % usable.len().max(1)).copied()
    }
}

/// One backend's permutation of the slots.
struct Row {
    place: usize,
    offset: usize,
    step: usize,
    weight: u64,
    credit: u64,
    turn: usize,
    at: usize,
}

impl Row {
    fn new(place: usize, name: &str, weight: u32) -> Row {
        // FNV-1a, then mixed: names that differ in one digit must not land side by side.
        let key = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Row {
            place,
            offset: (mix(key) % SLOTS as u64) as usize,
            step: (mix(!key) % (SLOTS as u64 - 1) + 1) as usize,
            weight: u64::from(weight.max(1)),
            credit: 0,
            turn: 0,
            at: 0,
        }
    }

    fn next(&mut self) -> usize {
        self.at = (self.offset + self.turn * self.step) % SLOTS;
        self.turn += 1;
        self.at
    }
}

fn hash(client: IpAddr) -> u64 {
    // An IPv4 client of an IPv6 socket is the same client.
    match client.to_canonical() {
        IpAddr::V4(address) => mix(u64::from(u32::from(address)) | 4 << 32),
        IpAddr::V6(address) => {
            let bits = u128::from(address);
            mix(mix(bits as u64) ^ (bits >> 64) as u64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const NAMES: [&str; 5] = ["cp-1", "cp-2", "cp-3", "cp-4", "cp-5"];

    fn table(names: &[&str]) -> Table {
        Table::new(names.iter().enumerate().map(|(place, name)| (place, *name, 1)))
    }

    fn clients() -> impl Iterator<Item = IpAddr> {
        (0..20_000u32).map(|n| Ipv4Addr::from(0x0a00_0000 + n * 7).into())
    }

    #[test]
    fn shares_follow_the_weights() {
        let table = Table::new([(0, "a", 1), (1, "b", 2), (2, "c", 5)].into_iter());
        let mut counts = [0u32; 3];
        for client in clients() {
            counts[table.pick(client, &[0, 1, 2]).unwrap()] += 1;
        }
        for (count, expected) in counts.iter().zip([2500.0, 5000.0, 12_500.0]) {
            assert!((f64::from(*count) / expected - 1.0).abs() < 0.08, "{counts:?}");
        }
    }

    #[test]
    fn a_backend_that_cannot_be_used_moves_only_its_own_clients_and_spreads_them() {
        let table = table(&NAMES);
        let mut moved = [0u32; 5];
        for client in clients() {
            let before = table.pick(client, &[0, 1, 2, 3, 4]).unwrap();
            let after = table.pick(client, &[0, 1, 3, 4]).unwrap();
            if before == 2 {
                moved[after] += 1;
            } else {
                assert_eq!(before, after);
            }
        }
        assert_eq!(moved[2], 0);
        assert!(moved.iter().enumerate().all(|(i, n)| i == 2 || (800..1200).contains(n)), "{moved:?}");
    }

    #[test]
    fn the_order_in_the_file_does_not_matter() {
        let (one, other) = (table(&NAMES), table(&["cp-3", "cp-1", "cp-5", "cp-2", "cp-4"]));
        let order = [2, 0, 4, 1, 3];
        for client in clients() {
            let all = [0, 1, 2, 3, 4];
            assert_eq!(one.pick(client, &all), other.pick(client, &all).map(|index| order[index]));
        }
    }

    #[test]
    fn a_new_backend_takes_its_share_and_little_else_moves() {
        let (before, after) = (table(&NAMES[..4]), table(&NAMES));
        let mut other = 0;
        for client in clients() {
            let (old, new) = (before.pick(client, &[0, 1, 2, 3]), after.pick(client, &[0, 1, 2, 3, 4]));
            if new != Some(4) && old != new {
                other += 1;
            }
        }
        assert!(other < 1200, "{other} of 20000 clients moved between old backends");
    }

    #[test]
    fn a_mapped_address_is_the_address() {
        let table = table(&NAMES);
        for client in clients().take(100) {
            let IpAddr::V4(v4) = client else { continue };
            let all = [0, 1, 2, 3, 4];
            assert_eq!(table.pick(client, &all), table.pick(v4.to_ipv6_mapped().into(), &all));
        }
    }
}
