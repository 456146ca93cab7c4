//! `butleradm logs`: the flight recorder, for people or as it is.

use crate::engine::Home;
use crate::exit::{Ended, Exit};
use crate::output;
use crate::progress::OutputFormat;
use anyhow::Result;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The cluster. Not needed when there is only one.
    cluster: Option<String>,
    /// Go on printing what is written, until Ctrl-C.
    #[arg(long, short)]
    follow: bool,
    /// Only what failed.
    #[arg(long)]
    failed: bool,
    /// How to speak; json is the recorder's own form.
    #[arg(long, short, value_enum, default_value_t, env = "BUTLER_OUTPUT")]
    output: OutputFormat,
}

/// How often a file that is followed is looked at.
const PAUSE: Duration = Duration::from_millis(200);

pub(crate) fn run(args: Args) -> Result<Exit> {
    let home = Home::usual();
    let cluster = home.choose(args.cluster.as_deref())?;
    let path = home.folder(&cluster).join("journal.jsonl");
    let file = File::open(&path)
        .map_err(|error| Ended::error(Exit::NotFound, format!("cannot read {}: {error}", path.display())))?;
    let mut reader = BufReader::new(file);
    let mut partial = String::new();
    loop {
        let read = reader.read_line(&mut partial)?;
        if partial.ends_with('\n') {
            print(partial.trim_end(), &args);
            partial.clear();
        } else if read == 0 {
            if !args.follow {
                return Ok(Exit::Ok);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

fn print(line: &str, args: &Args) {
    let Ok(entry) = serde_json::from_str::<Value>(line) else { return };
    let failed = entry["error"].is_string() || entry["event"] == "failure";
    if args.failed && !failed {
        return;
    }
    match args.output {
        OutputFormat::Json => output::line(line),
        OutputFormat::Text => output::line(&sentence(&entry)),
    }
}

/// An entry for people.
fn sentence(entry: &Value) -> String {
    let text = |key: &str| entry[key].as_str().unwrap_or_default();
    let time = text("time");
    if entry["event"] == "call" {
        let mark = if entry["mutates"] == true { "*" } else { " " };
        let outcome = match entry["error"].as_str() {
            Some(error) => format!("FAILED ({}): {error}", text("class")),
            None => text("ok").to_owned(),
        };
        return format!(
            "{time} {mark} {:10} {} [{}] {} ms -> {outcome}",
            text("system"),
            text("operation"),
            text("object"),
            entry["milliseconds"]
        );
    }
    let mut rest = Vec::new();
    if let Value::Object(fields) = entry {
        for (key, value) in
            fields.iter().filter(|(key, _)| !["event", "time", "elapsedSeconds"].contains(&key.as_str()))
        {
            match value {
                Value::String(value) => rest.push(format!("{key}={value}")),
                other => rest.push(format!("{key}={other}")),
            }
        }
    }
    format!("{time}   {:10} {}", text("event"), rest.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn entries_in_words() {
        let call = json!({"event": "call", "time": "T", "system": "proxmox", "operation": "POST /x", "object": "machine a", "mutates": true, "milliseconds": 3, "ok": "200"});
        assert_eq!(sentence(&call), "T * proxmox    POST /x [machine a] 3 ms -> 200");
        let failed = json!({"event": "call", "time": "T", "system": "talos", "operation": "Version", "object": "a", "mutates": false, "milliseconds": 3, "class": "auth", "error": "no"});
        assert_eq!(sentence(&failed), "T   talos      Version [a] 3 ms -> FAILED (auth): no");
        assert_eq!(
            sentence(&json!({"event": "phase", "time": "T", "phase": "Ready"})),
            "T   phase      phase=Ready"
        );
    }
}
