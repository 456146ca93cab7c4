//! `butler-lb status`.

use super::ask::{self, Socket};
use super::{Exit, output};
use butler_lb::admin::{BackendState, ListenerStatus, Status, VipState, VipStatus};
use std::path::Path;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// As JSON, with everything that is known.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    socket: Socket,
}

pub(super) fn run(args: &Args, config: &Path) -> Exit {
    let answer = match ask::ask(&args.socket, config, "GET", "/v1/status") {
        Ok(answer) => answer,
        Err(error) => return ask::unreachable(&error),
    };
    if args.json {
        output::line(answer.body.trim_end());
        return Exit::Ok;
    }
    match serde_json::from_str::<Status>(&answer.body) {
        Ok(status) => {
            page(&status).iter().for_each(|line| output::line(line));
            Exit::Ok
        }
        Err(error) => {
            output::error(&format!("the answer is not a status: {error}"));
            Exit::General
        }
    }
}

/// The status for people.
fn page(status: &Status) -> Vec<String> {
    let mut lines = vec![format!(
        "butler-lb {}, up {}, configuration read {} ago",
        status.version,
        duration(status.uptime),
        duration(status.config_age)
    )];
    if status.failed_reloads > 0 {
        lines.push(format!(
            "the file was refused {} times since then: run butler-lb check",
            status.failed_reloads
        ));
    }
    for listener in &status.listeners {
        lines.push(String::new());
        lines.extend(listener_lines(listener));
    }
    for vip in &status.vips {
        lines.push(String::new());
        lines.extend(vip_lines(vip));
    }
    lines
}

fn listener_lines(listener: &ListenerStatus) -> Vec<String> {
    let binds: Vec<String> = listener.bind.iter().map(ToString::to_string).collect();
    let mut lines = vec![format!("listener {} on {}: {}", listener.name, binds.join(", "), listener.summary)];
    let mut counts = format!("  {} open, {} taken", listener.connections, listener.accepted);
    for (count, word) in [
        (listener.queued, "waiting"),
        (listener.refused, "refused"),
        (listener.denied, "not allowed"),
        (listener.retried, "taken by a second backend"),
        (listener.shed, "shed"),
    ] {
        if count > 0 {
            counts.push_str(&format!(", {count} {word}"));
        }
    }
    lines.push(counts);
    let mut rows =
        vec![["backend", "address", "state", "open", "opened", "failed", "why not"].map(str::to_owned)];
    for backend in &listener.backends {
        let state = match backend.state {
            BackendState::New => "not checked yet",
            BackendState::Up => "up",
            BackendState::Down => "DOWN",
            BackendState::Ejected => "OUT (connections fail)",
            BackendState::Draining => "draining",
            BackendState::Removed => "removed",
        };
        rows.push([
            backend.name.clone(),
            backend.address.to_string(),
            state.to_owned(),
            backend.connections.to_string(),
            backend.opened.to_string(),
            backend.failed.to_string(),
            backend.check.clone(),
        ]);
    }
    lines.extend(table(&rows));
    lines
}

fn vip_lines(vip: &VipStatus) -> Vec<String> {
    let state = match vip.state {
        VipState::Master => "held by this machine".to_owned(),
        VipState::Resigning => "being handed over".to_owned(),
        VipState::Backup | VipState::Unfit => match vip.holder {
            Some(holder) => format!("held by {holder}"),
            None => "not held by this machine".to_owned(),
        },
        VipState::Init => "not started".to_owned(),
        VipState::Stopped => "stopped".to_owned(),
    };
    let fit = if vip.priority == 0 { "UNFIT".to_owned() } else { format!("priority {}", vip.priority) };
    let addresses = vip.addresses.join(", ");
    let mut lines = vec![format!("vip {} ({addresses} on {}): {state}, {fit}", vip.name, vip.interface)];
    lines.extend(vip.problem.iter().map(|problem| format!("  PROBLEM: {problem}")));
    for track in &vip.tracks {
        lines.push(format!("  {}: {}", track.check, if track.good { "good" } else { "NOT GOOD" }));
    }
    for (count, why) in [
        (vip.clock_refused, "a peer's clock differs from ours; use NTP"),
        (vip.replayed, "heard before; somebody repeats or delays them, or they overtook each other"),
        (vip.wrong_key, "not signed with a key of ours; compare the key files"),
    ] {
        if count > 0 {
            lines.push(format!("  {count} adverts refused: {why}"));
        }
    }
    if vip.foreign_claims > 0 {
        let count = vip.foreign_claims;
        lines.push(format!("  {count} times another machine claimed the address; the log has its MAC"));
    }
    for session in &vip.bfd {
        lines.push(format!("  BFD with {}: {}", session.peer, if session.up { "up" } else { "DOWN" }));
    }
    lines
}

/// Rows with columns under each other.
fn table<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("  {}", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// The two largest parts of a time: `3 h 12 min`.
fn duration(seconds: u64) -> String {
    let parts = [
        (seconds / 86_400, "d"),
        (seconds / 3600 % 24, "h"),
        (seconds / 60 % 60, "min"),
        (seconds % 60, "s"),
    ];
    let shown = parts.iter().skip_while(|(count, _)| *count == 0).take(2);
    let words: Vec<String> =
        shown.filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count} {unit}")).collect();
    if words.is_empty() { "0 s".to_owned() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_for_refused_adverts_are_told_apart() {
        let vip = |clock_refused, replayed, wrong_key| {
            vip_lines(&VipStatus {
                name: "api".to_owned(),
                addresses: vec!["192.0.2.30/32".to_owned()],
                interface: "eth0".to_owned(),
                state: VipState::Backup,
                priority: 100,
                holder: None,
                transitions: 0,
                rejected: 9,
                clock_refused,
                replayed,
                wrong_key,
                foreign_claims: 0,
                tracks: Vec::new(),
                bfd: Vec::new(),
                problem: None,
            })
        };
        assert_eq!(vip(0, 0, 0).len(), 1);
        assert!(vip(1, 0, 0)[1].contains("clock"));
        let replayed = vip(0, 2, 0);
        assert!(replayed[1].starts_with("  2 adverts refused: heard before") && replayed.len() == 2);
        assert!(vip(0, 0, 3)[1].contains("key files"));
    }

    #[test]
    fn times_are_short() {
        for (seconds, text) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3725, "1 h 2 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(duration(seconds), text);
        }
    }

    #[test]
    fn columns_stand_under_each_other() {
        let rows = [["a", "bb"], ["ccc", "d"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows), ["  a    bb", "  ccc  d"]);
    }
}
