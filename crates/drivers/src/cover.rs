//! Whether ranges together cover another. Pure: addresses and ports alike.

/// First and last.
pub(crate) type Range = (u32, u32);

/// Whether all of a range lies in some others together, however it is cut among them.
pub(crate) fn covers(ranges: impl IntoIterator<Item = Range>, (first, last): Range) -> bool {
    let mut ranges: Vec<Range> = ranges.into_iter().collect();
    ranges.sort_unstable();
    let mut next = u64::from(first);
    for (from, to) in ranges {
        if u64::from(from) > next {
            break;
        }
        next = next.max(u64::from(to) + 1);
    }
    next > u64::from(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_make_a_whole() {
        assert!(covers([(0, u32::MAX)], (7, 9)) && covers([(5, 9), (0, 4)], (0, 9)));
        assert!(covers([(0, 6), (4, u32::MAX)], (0, u32::MAX)));
        assert!(!covers([(0, 3), (5, 9)], (0, 9)) && !covers([], (1, 1)) && !covers([(2, 9)], (1, 9)));
    }
}
