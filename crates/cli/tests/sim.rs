//! `butleradm sim node` as a process: what it says, and that it ends when it is told to.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

fn start(more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_butleradm"))
        .args(["sim", "node", "--port", "0", "--trustd-port", "0"])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_node_tells_its_address_and_fingerprint_and_stops_when_told() {
    let mut process = start(&["--address", "127.64.8.1", "--speed", "0"]);
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| line.ok().filter(|line| line.starts_with("maintenance "))).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    assert!(words[1].starts_with("https://127.64.8.1:"), "{line}");
    assert_eq!((words[2], words[3].len()), ("fingerprint", 44), "{line}");

    assert!(Command::new("kill").arg(process.id().to_string()).status().unwrap().success());
    assert!(process.wait().unwrap().success());
    let mut said = String::new();
    process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.lines().all(|line| line.contains("SIMULATED")), "{said}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    for wrong in [&["--address", "127.64.8.2", "--speed=-1"][..], &["--address", "nowhere"], &[]] {
        let mut process = start(wrong);
        assert_eq!(process.wait().unwrap().code(), Some(2), "{wrong:?}");
    }
}
