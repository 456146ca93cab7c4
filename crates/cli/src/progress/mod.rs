//! How a bootstrap speaks while it runs: a pure model makes turns out of what the API shows, and a speaker tells them as lines,
//! as bars on a terminal, or as JSON.

mod bars;
mod json;
mod model;
mod obstacle;
mod text;

pub(crate) use model::{DELETING, Progress, Snapshot, Turn, Warning, phase_name};
pub(crate) use obstacle::{Obstacle, left, obstacle, split_until};
pub(crate) use text::duration;

use bars::Bars;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use crate::recorder::Journal;

/// How a command speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people: bars on a terminal, plain lines otherwise.
    #[default]
    Text,
    /// For programs: one JSON object to a line on standard output.
    Json,
}

/// Tells turns to the user, and to the journal.
pub(crate) struct Speaker {
    voice: Voice,
    journal: Option<Arc<Journal>>,
    progress: Progress,
}

enum Voice {
    Lines(text::Style),
    Bars(Bars),
    Json,
}

impl Speaker {
    /// A speaker for this process's standard output.
    pub(crate) fn new(format: OutputFormat, journal: Option<Arc<Journal>>) -> Speaker {
        let terminal = std::io::stdout().is_terminal();
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let voice = match format {
            OutputFormat::Json => Voice::Json,
            OutputFormat::Text if terminal && !dumb => Voice::Bars(Bars::new(colour)),
            OutputFormat::Text => Voice::Lines(text::Style { colour }),
        };
        Speaker { voice, journal, progress: Progress::default() }
    }

    /// A cluster is taken down.
    pub(crate) fn take_down(mut self) -> Speaker {
        self.progress = Progress::take_down();
        self
    }

    /// Tells what has changed since the last snapshot.
    pub(crate) fn show(&mut self, snapshot: &Snapshot, elapsed: Duration) {
        for turn in self.progress.turns(snapshot) {
            self.tell(&turn, elapsed);
        }
        if let Voice::Bars(bars) = &mut self.voice {
            bars.update(&self.progress, elapsed);
        }
    }

    /// Tells one turn.
    pub(crate) fn tell(&mut self, turn: &Turn, elapsed: Duration) {
        if let Some(journal) = &self.journal {
            journal.write(json::value(turn, elapsed));
        }
        match &self.voice {
            Voice::Json => crate::output::line(&json::value(turn, elapsed).to_string()),
            Voice::Lines(style) => {
                text::lines(turn, elapsed, *style).iter().for_each(|line| crate::output::line(line));
            }
            Voice::Bars(bars) => bars.say(&text::lines(turn, elapsed, bars.style())),
        }
    }

    /// A line for people; programs do not get it.
    pub(crate) fn note(&self, line: &str) {
        match &self.voice {
            Voice::Json => {}
            Voice::Lines(_) => crate::output::line(line),
            Voice::Bars(bars) => bars.say(&[line.to_owned()]),
        }
    }

    /// Takes the bars away; lines stay.
    pub(crate) fn finish(&mut self) {
        if let Voice::Bars(bars) = &self.voice {
            bars.clear();
        }
    }
}
