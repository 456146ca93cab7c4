//! Whose turn it is among the links that have more to move than one turn allows.

use super::slab::Key;

/// Links in the order in which they asked. A round is those that asked before it began: whoever has still more asks again, and
/// comes after epoll was asked.
#[derive(Debug, Default)]
pub(super) struct Turns {
    waiting: Vec<(Key, usize)>,
    /// Kept for its memory.
    spare: Vec<(Key, usize)>,
}

// === impl Turns ===

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// This end of a link has more. Asked once until its turn has come.
    pub(super) fn ask(&mut self, key: Key, from: usize) {
        self.waiting.push((key, from));
    }

    /// Everyone whose turn it is. To be given back empty.
    pub(super) fn begin(&mut self) -> Vec<(Key, usize)> {
        std::mem::replace(&mut self.waiting, std::mem::take(&mut self.spare))
    }

    pub(super) fn end(&mut self, round: Vec<(Key, usize)>) {
        self.spare = round;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_always_have_more_all_get_as_many_turns() {
        let mut turns = Turns::default();
        (0..5).for_each(|index| turns.ask(Key { index, generation: 1 }, 0));
        let mut had = [0; 5];
        for _ in 0..10 {
            let mut round = turns.begin();
            for (key, from) in round.drain(..) {
                had[key.index as usize] += 1;
                turns.ask(key, from);
            }
            turns.end(round);
        }
        assert_eq!(had, [10; 5]);
    }
}
