//! Bars at the foot of a terminal; everything that was said stays above them.

use super::model::Progress;
use super::text::{Style, duration};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::time::Duration;

pub(super) struct Bars {
    all: MultiProgress,
    phase: ProgressBar,
    machines: ProgressBar,
    addons: ProgressBar,
    style: Style,
}

impl Bars {
    pub(super) fn new(colour: bool) -> Bars {
        let all = MultiProgress::new();
        // Bars go to standard error, so that standard output can be kept.
        all.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        let phase = all.add(ProgressBar::new_spinner());
        phase.set_style(template("{spinner} {msg}", colour));
        phase.enable_steady_tick(Duration::from_millis(120));
        let machines = all.add(ProgressBar::new(0));
        let addons = all.add(ProgressBar::new(0));
        for bar in [&machines, &addons] {
            bar.set_style(template("  {prefix:<9} {bar:30} {msg}", colour));
        }
        machines.set_prefix("machines");
        addons.set_prefix("addons");
        Bars { all, phase, machines, addons, style: Style { colour } }
    }

    pub(super) fn style(&self) -> Style {
        self.style
    }

    pub(super) fn update(&mut self, progress: &Progress, elapsed: Duration) {
        let waiting = progress.waiting().map(|text| format!(" - {text}")).unwrap_or_default();
        self.phase.set_message(format!("{} {}{waiting}", progress.current_phase(), duration(elapsed)));
        let (up, configured, joined, total) = progress.machine_counts();
        // A machine comes up, takes its config and joins: three steps.
        self.machines.set_length(3 * total as u64);
        self.machines.set_position((up + configured + joined) as u64);
        self.machines.set_message(format!("{up} up, {configured} configured, {joined} joined of {total}"));
        let (installed, addons) = progress.addon_counts();
        self.addons.set_length(addons as u64);
        self.addons.set_position(installed as u64);
        self.addons.set_message(format!("{installed} of {addons}"));
    }

    /// Lines above the bars.
    pub(super) fn say(&self, lines: &[String]) {
        self.all.suspend(|| lines.iter().for_each(|line| crate::output::line(line)));
    }

    pub(super) fn clear(&self) {
        self.phase.finish_and_clear();
        self.machines.finish_and_clear();
        self.addons.finish_and_clear();
        let _ = self.all.clear();
    }
}

/// A wrong template would be a slip of this file; the plain one does no harm then.
fn template(text: &str, colour: bool) -> ProgressStyle {
    let text = if colour { text.replace("{bar:30}", "{bar:30.green}") } else { text.to_owned() };
    ProgressStyle::with_template(&text).unwrap_or_else(|_| ProgressStyle::default_bar())
}
