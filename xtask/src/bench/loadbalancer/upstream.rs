//! How often the first Butler would ask the cloud in the same time, from its fixed intervals. A model: nothing of it is run.
//!
//! Its AWS provider is known: a machine is looked for, launched, and looked at every 10 s until it runs; a control plane then
//! registers itself; the load balancer is made part by part, each looked for first; from the moment at which it has targets,
//! every 30 s the target group is looked up, each target is registered anew, and the targets' health is read twice. Its
//! bootstrap hands targets on every 15 s.
//!
//! Its Google provider is not known: the same intervals are taken with Google's calls of the documented way (address, health
//! check, target pool, forwarding rule), and no more than one look at the pool every 30 s.
//!
//! It is kind to that flow: calls take no time and never fail, operations are not followed, the bootstrap takes no longer than
//! ours although its waits are fixed.

use anyhow::Result;

use super::path::{machine, total};
use super::{Count, HOUR, Place, Table};

pub(super) const CONTROL_PLANES: f64 = 3.0;
pub(super) const WORKERS: f64 = 3.0;

const MACHINE_POLL: f64 = 10.0;
const MACHINES_POLL: f64 = 15.0;
/// A load balancer that is Ready, and a machine that runs.
const RESYNC: f64 = 30.0;

/// Calls for one purpose, and how they come about.
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) calls: Count,
    pub(super) how: String,
}

/// One bootstrap that takes so many seconds.
pub(super) fn bootstrap(place: Place, table: &Table, took: f64) -> Result<Vec<Row>> {
    let machines = CONTROL_PLANES + WORKERS;
    let starts = total(&machine(place, table)?);
    let looks = (starts / MACHINE_POLL - 1e-9).ceil().max(1.0);
    let mut rows = vec![Row {
        what: "machines",
        calls: Count { reads: machines * (1.0 + looks), writes: machines },
        how: format!(
            "{machines} × (looked for, launched, {looks} looks every {MACHINE_POLL:.0} s until {starts:.0} s)"
        ),
    }];
    if place == Place::Aws {
        rows.push(Row {
            what: "control planes register themselves",
            calls: Count { reads: CONTROL_PLANES, writes: CONTROL_PLANES },
            how: format!("{CONTROL_PLANES} × (target group looked up, target registered)"),
        });
    }
    rows.push(Row { what: "load balancer", calls: parts(place), how: parts_in_words(place) });
    let seen = next(next(starts, MACHINE_POLL), MACHINES_POLL);
    let passes = 1.0 + ((took - seen) / RESYNC).floor().max(0.0);
    rows.push(Row {
        what: "targets",
        calls: match place {
            Place::Aws => pass(place).times(passes),
            Place::Gcp => pass(place).times(passes).plus(Count { reads: 0.0, writes: CONTROL_PLANES }),
        },
        how: format!(
            "{passes:.0} passes, from {seen:.0} s on every {RESYNC:.0} s until {took:.0} s; {}",
            pass_in_words(place)
        ),
    });
    Ok(rows)
}

/// An hour after it. Machines are told apart: their looks every 30 s only begin when that program is started anew.
pub(super) fn idle_hour(place: Place) -> Vec<Row> {
    let passes = HOUR / RESYNC;
    let machines = CONTROL_PLANES + WORKERS;
    vec![
        Row {
            what: "load balancer",
            calls: pass(place).times(passes),
            how: format!("{passes:.0} passes, one every {RESYNC:.0} s; {}", pass_in_words(place)),
        },
        Row {
            what: "machines, after a restart of it; none before",
            calls: Count { reads: machines * passes, writes: 0.0 },
            how: format!("{machines} × {passes:.0} looks, one every {RESYNC:.0} s"),
        },
    ]
}

/// Each part is looked for and made.
fn parts(place: Place) -> Count {
    let parts = match place {
        Place::Gcp => 4.0,
        Place::Aws => 3.0,
    };
    Count { reads: parts, writes: parts }
}

fn parts_in_words(place: Place) -> String {
    match place {
        Place::Gcp => {
            "address, health check, target pool, forwarding rule: each looked for and made".to_owned()
        }
        Place::Aws => "load balancer, target group, listener: each looked for and made".to_owned(),
    }
}

/// One look at the targets.
fn pass(place: Place) -> Count {
    match place {
        Place::Gcp => Count { reads: 1.0, writes: 0.0 },
        Place::Aws => Count { reads: 3.0, writes: CONTROL_PLANES },
    }
}

fn pass_in_words(place: Place) -> String {
    match place {
        Place::Gcp => format!("a pass looks at the pool (assumed); {CONTROL_PLANES} targets are added once"),
        Place::Aws => {
            format!(
                "a pass looks up the target group, registers {CONTROL_PLANES} targets, reads their health twice"
            )
        }
    }
}

pub(super) fn sum(rows: &[Row]) -> Count {
    rows.iter().fold(Count::default(), |sum, row| sum.plus(row.calls))
}

/// When something is seen that is looked at every so often.
fn next(seconds: f64, every: f64) -> f64 {
    (seconds / every - 1e-9).ceil().max(0.0) * every
}

#[cfg(test)]
mod tests {
    use super::super::path::tests::table;
    use super::*;

    #[test]
    fn a_bootstrap_at_aws_is_added_up() {
        // Machines run at 8 s: seen at 10 s, handed on at 15 s, so that passes are at 15, 45, 75 and 105 s.
        let rows = bootstrap(Place::Aws, &table(), 110.0).unwrap();
        let counts: Vec<(f64, f64)> = rows.iter().map(|row| (row.calls.reads, row.calls.writes)).collect();
        assert_eq!(counts, [(12.0, 6.0), (3.0, 3.0), (3.0, 3.0), (12.0, 12.0)]);
        assert_eq!(sum(&rows).total(), 54.0);
        assert!(rows[3].how.starts_with("4 passes, from 15 s on every 30 s until 110 s"), "{}", rows[3].how);
    }

    #[test]
    fn a_bootstrap_at_google_is_added_up() {
        // Machines run at 12 s: seen at 20 s, handed on at 30 s.
        let rows = bootstrap(Place::Gcp, &table(), 95.0).unwrap();
        let counts: Vec<(f64, f64)> = rows.iter().map(|row| (row.calls.reads, row.calls.writes)).collect();
        assert_eq!(counts, [(18.0, 6.0), (4.0, 4.0), (3.0, 3.0)]);
    }

    #[test]
    fn targets_are_looked_at_once_however_short_it_was() {
        let rows = bootstrap(Place::Aws, &table(), 1.0).unwrap();
        assert_eq!(rows[3].calls, pass(Place::Aws));
    }

    #[test]
    fn an_idle_hour_has_a_pass_every_half_minute() {
        let aws = idle_hour(Place::Aws);
        assert_eq!(aws[0].calls, Count { reads: 360.0, writes: 360.0 });
        assert_eq!(aws[1].calls, Count { reads: 720.0, writes: 0.0 });
        assert_eq!(idle_hour(Place::Gcp)[0].calls, Count { reads: 120.0, writes: 0.0 });
    }
}
