//! Connections by number. A number carries the generation of its place, so that an event for a connection that is gone
//! does not hit the one that came after it.

/// Names one connection of one thread for as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) index: u32,
    /// From 1.
    pub(super) generation: u32,
}

#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

// === impl Slab ===

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    pub(super) fn insert(&mut self, value: T) -> Key {
        if let Some(index) = self.free.pop() {
            let entry = &mut self.entries[index as usize];
            entry.value = Some(value);
            return Key { index, generation: entry.generation };
        }
        let index = self.entries.len() as u32;
        self.entries.push(Entry { generation: 1, value: Some(value) });
        Key { index, generation: 1 }
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation == key.generation { entry.value.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let entry = self.entries.get_mut(key.index as usize)?;
        if entry.generation != key.generation {
            return None;
        }
        let value = entry.value.take()?;
        // 31 bits, so that a key and a side fit into the 64 bits that epoll carries; 0 is for what is no connection.
        entry.generation = (entry.generation % (u32::MAX >> 1)) + 1;
        self.free.push(key.index);
        Some(value)
    }

    /// The key of whatever is at a place now.
    pub(super) fn key_at(&self, index: u32) -> Option<Key> {
        let entry = self.entries.get(index as usize)?;
        entry.value.as_ref().map(|_| Key { index, generation: entry.generation })
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let key = Key { index: index as u32, generation: entry.generation };
            entry.value.as_ref().map(|value| (key, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_does_not_reach_the_next_tenant() {
        let mut slab = Slab::new();
        let first = slab.insert("a");
        assert_eq!(slab.remove(first), Some("a"));
        let second = slab.insert("b");
        assert_eq!(first.index, second.index);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut "b"));
        assert_eq!(slab.key_at(second.index), Some(second));
        assert_eq!(slab.iter().count(), slab.len());
    }
}
