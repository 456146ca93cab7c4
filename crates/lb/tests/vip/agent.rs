//! One of ours in a host, as a process of its own that can be killed: this test program, started again.
//!
//! It reads orders from its standard input, and hands its addresses over when that is closed.

use crate::lab::{Lab, Process, wait};
use butler_lb::config::{Config, Vip};
use butler_lb::vip::Vips;
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

const CONFIG: &str = "BUTLER_LB_TEST_VIPS";

/// An agent in a host.
pub(crate) struct Agent {
    process: Process,
    input: Option<ChildStdin>,
    answers: mpsc::Receiver<String>,
}

impl Agent {
    /// Starts one with these virtual addresses: the JSON of `vips`.
    pub(crate) fn start(lab: &Lab, host: &str, vips: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--ignored", "--exact", "agent::process", "--nocapture"])
            .env(CONFIG, vips)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = lab.spawn(host, &mut command);
        let input = process.child().stdin.take();
        let output = process.child().stdout.take().unwrap();
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(answer) = line.strip_prefix("answer ") {
                    let _ = sender.send(answer.to_owned());
                }
            }
        });
        Self { process, input, answers }
    }

    fn order(&mut self, order: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{order}").unwrap();
        self.answers.recv().unwrap()
    }

    pub(crate) fn status(&mut self) -> String {
        self.order("status")
    }

    /// Connections at the holder that it knows of.
    pub(crate) fn mirrored(&mut self) -> usize {
        let status = self.status();
        let number = status.split_once("mirrored: ").map(|(_, rest)| rest);
        let digits = number.and_then(|rest| rest.split(',').next());
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    /// Whether the listener that may be tracked works.
    pub(crate) fn set_listener(&mut self, ready: bool) {
        self.order(if ready { "listener up" } else { "listener down" });
    }

    pub(crate) fn reload(&mut self, vips: &str) {
        assert_eq!(self.order(&format!("reload {vips}")), "Ok(())");
    }

    pub(crate) fn wait_for_status(&mut self, part: &str) {
        wait(&format!("the status has {part}"), || {
            let status = self.status();
            if status.contains(part) { Ok(()) } else { Err(status) }
        });
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Stands still, and goes on.
    pub(crate) fn freeze(&mut self, frozen: bool) {
        self.process.signal(if frozen { Signal::STOP } else { Signal::CONT });
    }

    /// Hands over and ends.
    pub(crate) fn stop(&mut self) {
        drop(self.input.take());
        self.process.wait();
    }
}

fn read(text: &str) -> Vec<Vip> {
    serde_json::from_str::<Config>(&format!(r#"{{"vips": {text}}}"#)).unwrap().vips
}

#[test]
#[ignore = "the other tests start it as a process"]
fn process() {
    let Ok(text) = std::env::var(CONFIG) else { return };
    let listener = Arc::new(AtomicBool::new(true));
    let shared = listener.clone();
    let vips = Vips::start(&read(&text), Arc::new(move |_| shared.load(Ordering::Relaxed))).unwrap();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let answer = match line.split_once(' ') {
            None => format!("{:?}", vips.status()),
            Some(("listener", state)) => {
                listener.store(state == "up", Ordering::Relaxed);
                String::new()
            }
            Some((_, config)) => format!("{:?}", vips.reload(&read(config))),
        };
        println!("answer {answer}");
    }
    vips.stop();
}
