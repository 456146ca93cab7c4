//! The tables of `cargo xtask bench lb`, and the goals.

use std::{fmt::Write as _, time::Duration};

use super::load::Casualties;
use super::{CLIENTS, Changes, QUIET, Round, Row, Side, sides};
use crate::bench::stats::{Spread, figure};

/// A line of the table.
struct Line {
    row: Row,
    name: &'static str,
    /// Whether more is better; `None` is no contest.
    more: Option<bool>,
}

const LINES: [Line; 14] = [
    line(Row::Requests, "keep-alive, thousand requests/s", Some(true)),
    line(Row::RequestP50, "p50, ms", Some(false)),
    line(Row::RequestP99, "p99, ms", Some(false)),
    line(Row::RequestCpu, "proxy CPU, us/request", Some(false)),
    line(Row::Connections, "thousand new connections/s", Some(true)),
    line(Row::ConnectionP50, "p50, ms", Some(false)),
    line(Row::ConnectionP99, "p99, ms", Some(false)),
    line(Row::ConnectionCpu, "proxy CPU, us/connection", Some(false)),
    line(Row::BulkOne, "bulk, 1 stream, Gbit/s", Some(true)),
    line(Row::BulkFour, "bulk, 4 streams, Gbit/s", Some(true)),
    line(Row::BulkCpu, "proxy CPU, s/GB", Some(false)),
    line(Row::Resident, "resident with quiet connections, MiB", Some(false)),
    line(Row::PerConnection, "KiB per quiet connection (PSS)", Some(false)),
    line(Row::Others, "cores that others used, at most", None),
];

/// Cores that others may use before the report warns.
const QUIET_ENOUGH: f64 = 0.25;

const fn line(row: Row, name: &'static str, more: Option<bool>) -> Line {
    Line { row, name, more }
}

pub(super) fn write(
    machine: &str,
    versions: &str,
    stretch: Duration,
    rounds: &[Round],
    changes: &Changes,
) -> String {
    let mut text = format!(
        "# The load balancer beside HAProxy and nginx\n\n\
         Made by `cargo xtask bench lb --write`. {}, {machine}.\n\
         {versions}, butler-lb {}; {} rounds, every stretch {:.1} s, median [least..most].\n\n\
         The load, three backends and the proxy share the machine. {CLIENTS} connections ask at once; a question is 110 bytes, \
         an answer 240. Every proxy has two threads or processes where nothing else is said, the backends in turn, and a TCP check per \
         second where it has checks; butler-lb uses its second thread only while a core is free for it. `direct` is no proxy at all: the limit of the load and the backends. {QUIET} quiet connections have asked once. \
         Bulk bytes are taken without a copy. Proxy CPU is with the time of the kernel's ksoftirqd threads. The sides take turns in each round, and factors are taken within a round.\n\n",
        jiff::Timestamp::now().strftime("%Y-%m-%d"),
        env!("CARGO_PKG_VERSION"),
        rounds.len(),
        stretch.as_secs_f64(),
    );
    let others = rounds
        .iter()
        .flat_map(|round| round.values())
        .filter_map(|figures| figures.get(&Row::Others).copied());
    if let Some(spread) = Spread::of(others).filter(|spread| spread.median > QUIET_ENOUGH) {
        let _ = writeln!(
            text,
            "**The machine was busy with other work** ({} cores): rates and times below say little, CPU per operation and memory \
             more. To be made again when it is quiet.\n",
            spread.show()
        );
    }
    let shown: Vec<Side> =
        sides::ALL.into_iter().filter(|side| rounds.iter().any(|round| round.contains_key(side))).collect();
    table(&mut text, &shown, rounds);
    if shown.contains(&Side::Ours) && shown.contains(&Side::Haproxy) {
        text.push_str(
            "\n## How many times as good as HAProxy\n\nAbove 1 is better, for times and memory too.\n\n",
        );
        factors(&mut text, &shown, rounds);
        goals(&mut text, rounds);
    }
    what_fails(&mut text, changes);
    text
}

fn what_fails(text: &mut String, changes: &Changes) {
    if changes.killed.is_empty() {
        return;
    }
    text.push_str(
        "\n## What fails when something changes\n\nOne of three backends dies while new connections are made all the time: its \
         port is closed and its connections are reset. Sums of all runs; what it had in hand then is lost with it.\n\n",
    );
    text.push_str("| | runs | begun after it and answered | begun after it and failed | under way then and cut |\n|---|---|---|---|---|\n");
    for (side, runs) in &changes.killed {
        let sum = |of: fn(&Casualties) -> u64| runs.iter().map(of).sum::<u64>().to_string();
        let cells = [runs.len().to_string(), sum(|c| c.answered), sum(|c| c.failed), sum(|c| c.cut)];
        row(text, side.name(), cells.into_iter());
    }
    if let Some(seen) = &changes.reloads {
        let _ = writeln!(text, "\nWith another number of backends by every reload of butler-lb: {seen}.");
    }
}

fn table(text: &mut String, shown: &[Side], rounds: &[Round]) {
    head(text, shown.iter().map(|side| side.name()));
    for line in &LINES {
        let cells = shown.iter().map(|side| {
            let spread =
                Spread::of(rounds.iter().filter_map(|round| round.get(side)?.get(&line.row).copied()));
            spread.map_or_else(|| "–".to_owned(), |spread| spread.show())
        });
        row(text, line.name, cells);
    }
}

fn factors(text: &mut String, shown: &[Side], rounds: &[Round]) {
    let others: Vec<Side> =
        shown.iter().copied().filter(|side| !matches!(side, Side::Direct | Side::Haproxy)).collect();
    head(text, others.iter().map(|side| side.name()));
    for line in LINES.iter().filter(|line| line.more.is_some()) {
        let cells = others.iter().map(|side| {
            factor(rounds, line, *side, Side::Haproxy).map_or_else(|| "–".to_owned(), |spread| spread.show())
        });
        row(text, line.name, cells);
    }
}

/// How many times as good one side is as another, within each round.
fn factor(rounds: &[Round], line: &Line, side: Side, other: Side) -> Option<Spread> {
    let more = line.more?;
    Spread::of(rounds.iter().filter_map(|round| {
        let (one, two) = (round.get(&side)?.get(&line.row)?, round.get(&other)?.get(&line.row)?);
        Some(if more { one / two } else { two / one })
    }))
}

fn goals(text: &mut String, rounds: &[Round]) {
    let factors: Vec<(&Line, f64)> = LINES
        .iter()
        .filter_map(|line| Some((line, factor(rounds, line, Side::Ours, Side::Haproxy)?.median)))
        .collect();
    let below: Vec<String> = factors
        .iter()
        .filter(|(_, factor)| *factor < 1.0)
        .map(|(line, factor)| format!("{} {}", line.name, figure(*factor)))
        .collect();
    let well = factors.iter().filter(|(_, factor)| *factor >= 1.15).count();
    text.push_str("\n## Goals\n\n");
    let _ = writeln!(
        text,
        "- at least 1.0 times HAProxy on every row: {}",
        if below.is_empty() { "met".to_owned() } else { format!("not met ({})", below.join("; ")) }
    );
    let _ = writeln!(
        text,
        "- 1.15 times on most: {} ({well} of {} rows)",
        if well * 2 > factors.len() { "met" } else { "not met" },
        factors.len()
    );
    for row in [Row::RequestCpu, Row::ConnectionCpu] {
        let Some(line) = LINES.iter().find(|line| line.row == row) else { continue };
        if let Some(spread) = factor(rounds, line, Side::Ours, Side::Nginx) {
            let met = if spread.median > 1.0 { "met" } else { "not met" };
            let _ = writeln!(text, "- {} below nginx's: {met} ({} times as good)", line.name, spread.show());
        }
    }
}

fn head<'a>(text: &mut String, names: impl Iterator<Item = &'a str>) {
    let names: Vec<&str> = names.collect();
    let _ = writeln!(text, "| | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
}

fn row(text: &mut String, name: &str, cells: impl Iterator<Item = String>) {
    let cells: Vec<String> = cells.collect();
    let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(ours: f64, theirs: f64) -> Round {
        let figures = |value| LINES.iter().map(|line| (line.row, value)).collect();
        Round::from([
            (Side::Ours, figures(ours)),
            (Side::Haproxy, figures(theirs)),
            (Side::Nginx, figures(theirs)),
        ])
    }

    #[test]
    fn less_is_better_for_times() {
        let rounds = [round(2.0, 1.0), round(3.0, 1.0)];
        assert_eq!(factor(&rounds, &LINES[0], Side::Ours, Side::Haproxy).unwrap().median, 2.5);
        assert_eq!(factor(&rounds, &LINES[1], Side::Ours, Side::Haproxy).unwrap().most, 0.5);
    }

    #[test]
    fn goals_name_what_is_below() {
        let text =
            write("machine", "versions", Duration::from_secs(2), &[round(2.0, 1.0)], &Changes::default());
        assert!(text.contains("every row: not met (p50, ms 0.500"), "{text}");
        assert!(text.contains("| butler-lb |"), "{text}");
    }
}
