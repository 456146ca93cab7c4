//! Our Talos parts beside Talos' own: configurations and secrets in the machinery of every supported minor release, and the
//! real talosctl on a simulated node.
//!
//! ```text
//! mod        what is run in which order, and the count
//! configs    `butleradm talos gen` over a grid, and the property test's corpus   -->  machinery 1.9 .. 1.13
//! patches    a table of patches, by us and by the machinery                          -->  machinery 1.9 .. 1.13
//! secrets    bundles in both directions                                          -->  machinery 1.9 .. 1.13
//! node       apply, bootstrap, kubeconfig, services, reset                       -->  talosctl on `butleradm sim node`
//!   machinery  the pipe to the machinery        generated  one run of `butleradm talos gen`
//! ```

mod configs;
mod generated;
mod machinery;
mod node;
mod patches;
mod secrets;

pub(crate) use machinery::Pipe;

use std::{io::Write, path::Path};

use anyhow::{Context, Result};

use crate::{kubectl::Tally, peers::TalosPeers};

/// Counts checks, and says at once which of them failed.
#[derive(Debug, Default)]
struct Count {
    tally: Tally,
}

// === impl Count ===

impl Count {
    /// One check: `problems` is empty when it passed.
    fn check(&mut self, what: &str, problems: &[String]) -> Result<()> {
        if problems.is_empty() {
            self.tally.passed += 1;
            return Ok(());
        }
        self.tally.failed += 1;
        say(&format!("FAILED {what}"))?;
        problems
            .iter()
            .try_for_each(|problem| say(&format!("    {}", problem.trim_end().replace('\n', "\n    "))))
    }

    fn add(&mut self, part: Self) {
        self.tally.passed += part.tally.passed;
        self.tally.failed += part.tally.failed;
    }
}

/// Everything that can be held against Talos itself. `butleradm` is the built program.
pub(crate) async fn conformance(butleradm: &Path) -> Result<Tally> {
    let peers = TalosPeers::ensure().context("get Talos' own parts")?;
    let mut total = Count::default();
    for machinery in &peers.machineries {
        let mut count = secrets::run(butleradm, machinery).await?;
        count.add(patches::run(butleradm, machinery).await?);
        count.add(configs::grid(butleradm, machinery).await?);
        report(&format!("Talos machinery {}", machinery.version), &count)?;
        total.add(count);
    }
    let count = configs::corpus(&peers.machineries).await?;
    report("generated configurations in the machinery", &count)?;
    total.add(count);
    for talosctl in &peers.talosctls {
        let what = format!("talosctl {} on a simulated node", talosctl.version);
        let count = match node::run(butleradm, talosctl).await {
            Ok(count) => count,
            Err(error) => {
                let mut count = Count::default();
                count.check(&what, &[format!("{error:#}")])?;
                count
            }
        };
        report(&what, &count)?;
        total.add(count);
    }
    Ok(total.tally)
}

fn report(what: &str, count: &Count) -> Result<()> {
    say(&format!("{what}: {} passed, {} failed", count.tally.passed, count.tally.failed))
}

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("print")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_with_problems_is_a_failure() {
        let mut count = Count::default();
        count.check("one", &[]).unwrap();
        count.check("two", &["it is wrong".to_owned()]).unwrap();
        let mut total = Count::default();
        total.add(count);
        assert_eq!((total.tally.passed, total.tally.failed), (1, 1));
    }
}
