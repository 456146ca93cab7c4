//! The table: what was measured on both sides, how they compare, and whether that is what we set out to reach.

use std::fmt::Write as _;

use super::{
    round::{CLIENTS, Figures, Key, WATCHERS, WRITES},
    stats::{Spread, figure},
    writes::Write,
};

/// What a run was made with.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) date: String,
    pub(super) machine: String,
    /// Names of the sides, with versions: the reference first.
    pub(super) sides: [String; 2],
    pub(super) objects: usize,
    /// The tool that counted syncs.
    pub(super) sync_tool: Option<&'static str>,
}

/// The figures of one round: the reference, then ours.
pub(super) type Round = [Figures; 2];

struct Row {
    key: Key,
    label: String,
    better: Better,
    goal: Goal,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    Less,
    More,
}

#[derive(Clone, Copy)]
enum Goal {
    /// Ours under this value, whatever the other side does.
    Under(f64),
    /// Ours better by this factor.
    Times(f64),
    /// Ours at most this part of the other.
    Part(f64),
    NotWorse,
}

// === impl Goal ===

impl Goal {
    fn show(self) -> String {
        match self {
            Self::Under(limit) => format!("< {limit}"),
            Self::Times(factor) => format!("≥ {factor}×"),
            Self::Part(part) => format!("≤ 1/{part}"),
            Self::NotWorse => "not worse".to_owned(),
        }
    }

    fn is_met(self, ours: f64, ratio: f64) -> bool {
        match self {
            Self::Under(limit) => ours < limit,
            Self::Times(factor) | Self::Part(factor) => ratio >= factor,
            Self::NotWorse => ratio >= 1.0,
        }
    }
}

// === the rows ===

fn rows(objects: usize) -> Vec<Row> {
    let row = |key, label: &str, better, goal| Row { key, label: label.to_owned(), better, goal };
    let less = |key, label: &str, goal| row(key, label, Better::Less, goal);
    let mut rows = vec![
        less(Key::ColdStart, "cold start to the first answer, ms", Goal::Under(50.0)),
        less(Key::ColdStartWithoutStore, "the same, etcd already up, ms", Goal::NotWorse),
        less(Key::Restart, &format!("restart with {objects} objects, ms"), Goal::NotWorse),
        less(Key::ResidentIdle, "resident, idle, MiB", Goal::Part(15.0)),
        less(Key::ResidentFull, &format!("resident, {objects} objects written, MiB"), Goal::Part(15.0)),
        less(
            Key::ResidentRestarted,
            &format!("resident, restarted with {objects} objects, MiB"),
            Goal::NotWorse,
        ),
        less(Key::ProportionalIdle, "proportional (PSS), idle, MiB", Goal::NotWorse),
        less(Key::ProportionalFull, &format!("proportional (PSS), {objects} objects, MiB"), Goal::NotWorse),
    ];
    for clients in CLIENTS {
        let goal = Goal::Times(if clients == 1 { 3.0 } else { 5.0 });
        rows.extend(WRITES.map(|write| {
            row(
                Key::Rate(write, clients),
                &format!("{}/s, {}", plural(write), by(clients)),
                Better::More,
                goal,
            )
        }));
    }
    for clients in CLIENTS {
        rows.extend(WRITES.map(|write| {
            let label = format!("server CPU per {}, {}, ms", single(write), by(clients));
            less(Key::Cpu(write, clients), &label, Goal::Part(10.0))
        }));
    }
    rows.extend(CLIENTS.map(|clients| {
        less(Key::Syncs(clients), &format!("disk syncs per create, {}", by(clients)), Goal::NotWorse)
    }));
    rows.extend([
        less(Key::List, &format!("list of {objects}, p50 ms"), Goal::Times(3.0)),
        less(Key::Table, &format!("list of {objects} as Table, p50 ms"), Goal::Times(3.0)),
        less(Key::WatchMedian, &format!("watch, {WATCHERS} watchers, p50 ms"), Goal::Times(3.0)),
        less(Key::WatchTail, &format!("watch, {WATCHERS} watchers, p99 ms"), Goal::Times(3.0)),
        less(Key::WatchCpu, "server CPU per watch event, µs", Goal::NotWorse),
    ]);
    rows
}

fn by(clients: usize) -> String {
    if clients == 1 { "1 client".to_owned() } else { format!("{clients} clients") }
}

fn single(write: Write) -> &'static str {
    match write {
        Write::Create => "create",
        Write::Update => "update",
        Write::Apply => "apply",
    }
}

fn plural(write: Write) -> &'static str {
    match write {
        Write::Create => "creates",
        Write::Update => "updates",
        Write::Apply => "server-side applies",
    }
}

// === figures over rounds ===

fn spread(rounds: &[Round], side: usize, key: Key) -> Option<Spread> {
    Spread::of(rounds.iter().filter_map(|round| round[side].get(&key).copied()))
}

/// How many times better ours is, compared within each round.
fn ratio(rounds: &[Round], row: &Row) -> Option<Spread> {
    Spread::of(rounds.iter().filter_map(|[theirs, ours]| {
        let (theirs, ours) = (*theirs.get(&row.key)?, *ours.get(&row.key)?);
        Some(if row.better == Better::Less { theirs / ours } else { ours / theirs })
    }))
}

// === text ===

/// The whole document, in Markdown.
pub(super) fn write(setting: &Setting, rounds: &[Round]) -> String {
    let mut text = head(setting, rounds);
    let (table, missed) = comparison(setting, rounds);
    text.push_str(&table);
    let verdict = match missed {
        0 => "Every goal is met.\n".to_owned(),
        1 => "One goal is not met.\n".to_owned(),
        missed => format!("{missed} goals are not met.\n"),
    };
    text.push('\n');
    text.push_str(&verdict);
    text.push_str(&latencies(setting, rounds));
    text.push_str(&method(setting, rounds));
    text
}

fn head(setting: &Setting, rounds: &[Round]) -> String {
    let Setting { date, machine, sides: [theirs, ours], .. } = setting;
    let others = |side| spread(rounds, side, Key::Others).map_or(0.0, |spread| spread.most);
    format!(
        "# Benchmarks\n\n\
         Written by `cargo xtask bench api --write`; not to be edited by hand.\n\n\
         - Date: {date}\n\
         - Machine: {machine}\n\
         - Reference: {theirs}\n\
         - Ours: {ours}\n\
         - Rounds: {}, a fresh server for each side in each, taking turns\n\
         - Cores used by others, at worst during writes: {:.2} (reference), {:.2} (ours)\n\n",
        rounds.len(),
        others(0),
        others(1)
    )
}

/// The table, and how many goals are missed.
fn comparison(setting: &Setting, rounds: &[Round]) -> (String, usize) {
    let mut missed = 0;
    let mut text = String::from(
        "Median [least..most] over the rounds. The factor says how many times better ours is, taken within each round.\n\n\
         | | kube-apiserver + etcd | ours | better by | goal | |\n|---|---|---|---|---|---|\n",
    );
    for row in rows(setting.objects) {
        let cells = (spread(rounds, 0, row.key), spread(rounds, 1, row.key), ratio(rounds, &row));
        let line = if let (Some(theirs), Some(ours), Some(ratio)) = cells {
            let met = row.goal.is_met(ours.median, ratio.median);
            missed += usize::from(!met);
            let verdict = if met { "met" } else { "**not met**" };
            format!(
                "| {} | {} | {} | {}× | {} | {verdict} |",
                row.label,
                theirs.show(),
                ours.show(),
                ratio.show(),
                row.goal.show()
            )
        } else {
            format!("| {} | not measured | not measured | | {} | |", row.label, row.goal.show())
        };
        text.push_str(&line);
        text.push('\n');
    }
    (text, missed)
}

fn latencies(setting: &Setting, rounds: &[Round]) -> String {
    let mut text = String::from(
        "\n## Latency of writes\n\nFrom the sending of a request to its whole answer, ms, median over the rounds.\n\n\
         | | reference p50 | ours p50 | reference p99 | ours p99 |\n|---|---|---|---|---|\n",
    );
    for clients in CLIENTS {
        for write in WRITES {
            let cell = |side, key| spread(rounds, side, key).map_or_else(String::new, |s| figure(s.median));
            let (median, tail) = (Key::LatencyMedian(write, clients), Key::LatencyTail(write, clients));
            // Writing into a string can't fail.
            let _ = writeln!(
                text,
                "| {}, {} | {} | {} | {} | {} |",
                single(write),
                by(clients),
                cell(0, median),
                cell(1, median),
                cell(0, tail),
                cell(1, tail)
            );
        }
    }
    let size = |side| spread(rounds, side, Key::ListSize).map_or(0.0, |s| s.median / 1e6);
    let events = |side| spread(rounds, side, Key::Events).map_or(0.0, |s| s.median);
    let _ = writeln!(
        text,
        "\nA list of {} objects is {:.2} MB from the reference and {:.2} MB from ours. Watchers saw {} and {} events a\n\
         round: every one, once, in order (a run in which one is missing fails).",
        setting.objects,
        size(0),
        size(1),
        events(0),
        events(1)
    );
    text
}

fn method(setting: &Setting, rounds: &[Round]) -> String {
    let load = |side| {
        let keys = WRITES.iter().flat_map(|write| CLIENTS.map(|clients| Key::LoadCpu(*write, clients)));
        let all = keys.filter_map(|key| spread(rounds, side, key)).map(|spread| spread.median);
        Spread::of(all).map_or_else(String::new, |s| format!("{}..{}", figure(s.least), figure(s.most)))
    };
    let per_event =
        |side| spread(rounds, side, Key::WatchLoadCpu).map_or_else(String::new, |s| figure(s.median));
    let syncs = match setting.sync_tool {
        Some("perf") => {
            "fsync and fdatasync calls of all server processes, counted by perf in the kernel, in a short pass of their own"
        }
        Some(_) => {
            "fsync and fdatasync calls of all server processes, counted by strace in a short pass of their own; strace\n  \
             slows a server down, which changes how many writes share a sync"
        }
        None => "not counted: neither perf nor strace works on this machine",
    };
    format!(
        "\n## How it was measured\n\n\
         - Both sides: TLS, HTTP/1.1, one kept-open connection per client, an administrator's client certificate,\n  \
           durability on, data on the same disk. Load and server share the machine's cores. The load takes {} ms of CPU\n  \
           per write against the reference and {} ms against ours.\n\
         - Objects: a small custom resource under a structural schema. Updates are PUTs with the last resourceVersion;\n  \
           applies are forced, by a manager of their own. Every write changes something and must succeed.\n\
         - Start: from the start of the first program until a client that knows only the kubeconfig has its first\n  \
           authenticated answer. Ours makes its certificates in that time; the reference finds them made.\n\
         - Restart: after SIGTERM, over the same data, to the same answer and the first stored object; then every\n  \
           object must be there.\n\
         - Memory: VmRSS (PSS) of all server processes, two seconds after the last request.\n\
         - CPU: user and system time of all server processes, from /proc.\n\
         - Disk syncs: {syncs}.\n\
         - Lists: consistent (no resourceVersion), uncompressed, median of a series, to the last byte.\n\
         - Watches: 50 creates a second, from the sending of the create to the parsed event in each of the {WATCHERS} watchers.\n  \
           The load takes {} µs of CPU per event from the reference and {} µs per event from ours.\n\
         - The first create of a kind comes three seconds after its definition, because kube-apiserver holds it back by two.\n",
        load(0),
        load(1),
        per_event(0),
        per_event(1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting() -> Setting {
        Setting {
            date: "2026-01-02".to_owned(),
            machine: "a machine".to_owned(),
            sides: ["theirs 1".to_owned(), "ours 2".to_owned()],
            objects: 100,
            sync_tool: None,
        }
    }

    fn round(figures: &[(Key, f64, f64)]) -> Round {
        let side = |pick: fn(&(Key, f64, f64)) -> f64| figures.iter().map(|f| (f.0, pick(f))).collect();
        [side(|f| f.1), side(|f| f.2)]
    }

    fn line<'a>(text: &'a str, start: &str) -> &'a str {
        text.lines().find(|line| line.starts_with(start)).unwrap()
    }

    #[test]
    fn goals_are_judged_by_the_median_of_the_rounds() {
        let create = Key::Rate(Write::Create, 32);
        let rounds = [
            round(&[(create, 1000.0, 6000.0), (Key::ColdStart, 2000.0, 49.0)]),
            round(&[(create, 1000.0, 5500.0), (Key::ColdStart, 2000.0, 51.0)]),
            round(&[(create, 2000.0, 6000.0), (Key::ColdStart, 2000.0, 52.0)]),
        ];
        let text = write(&setting(), &rounds);
        assert_eq!(
            line(&text, "| creates/s, 32 clients"),
            "| creates/s, 32 clients | 1000 [1000..2000] | 6000 [5500..6000] | 5.50 [3.00..6.00]× | ≥ 5× | met |"
        );
        assert!(line(&text, "| cold start to").ends_with("| < 50 | **not met** |"), "{text}");
        assert!(text.contains("One goal is not met."), "{text}");
    }

    #[test]
    fn less_is_better_where_it_is() {
        let rounds = [round(&[(Key::ResidentIdle, 300.0, 10.0), (Key::List, 100.0, 50.0)])];
        let text = write(&setting(), &rounds);
        assert_eq!(
            line(&text, "| resident, idle"),
            "| resident, idle, MiB | 300 | 10.0 | 30.0× | ≤ 1/15 | met |"
        );
        assert!(line(&text, "| list of 100, p50").ends_with("| 2.00× | ≥ 3× | **not met** |"), "{text}");
    }

    #[test]
    fn what_was_not_measured_says_so_and_is_no_missed_goal() {
        let text = write(&setting(), &[round(&[])]);
        assert!(line(&text, "| disk syncs per create, 1 client").contains("not measured"), "{text}");
        assert!(text.contains("Every goal is met."), "{text}");
    }
}
