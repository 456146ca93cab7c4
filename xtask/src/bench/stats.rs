//! Medians, quantiles, and figures as people read them.

use std::time::Duration;

pub(super) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// The value below which the share `q` of a sorted list lies (nearest rank). Zero of an empty list.
pub(super) fn quantile(sorted: &[Duration], q: f64) -> Duration {
    let rank = (sorted.len() as f64 * q).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or_default()
}

/// A figure over all rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

// === impl Spread ===

impl Spread {
    /// `None` of nothing.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
        Some(Self { median, least, most })
    }

    /// `median [least..most]`, without the brackets when there is only one value.
    pub(super) fn show(&self) -> String {
        if self.least == self.most {
            return figure(self.median);
        }
        format!("{} [{}..{}]", figure(self.median), figure(self.least), figure(self.most))
    }
}

/// Three significant digits, as many as such measurements carry.
pub(super) fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_have_the_middle_and_the_ends() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]).unwrap().show(), "2.00 [1.00..3.00]");
        assert_eq!(Spread::of([1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of([250.4]).unwrap().show(), "250");
    }

    #[test]
    fn quantiles_are_taken_from_the_list() {
        let sorted: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(quantile(&sorted, 0.5), Duration::from_millis(50));
        assert_eq!(quantile(&sorted, 0.99), Duration::from_millis(99));
        assert_eq!(quantile(&sorted[..1], 0.99), Duration::from_millis(1));
        assert_eq!(quantile(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn figures_keep_three_digits() {
        let shown: Vec<String> = [1423.4, 19.66, 1.284, 0.0523, 0.0].map(figure).into();
        assert_eq!(shown, ["1423", "19.7", "1.28", "0.052", "0"]);
    }
}
