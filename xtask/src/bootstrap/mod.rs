//! Whole bootstraps with the programs that users have: butleradm as it is built, the data centre as a process of its own, real
//! kubectls, and the real kube-apiserver.
//!
//! ```text
//!   looks    kubectl  -->  bootstrap API during a run  |  new cluster through its VIP, also after the VIP's holder died
//!   real     butleradm bootstrap --kubeconfig  -->  kube-apiserver + etcd + kube-controller-manager
//!   clouds   the same two on Google Cloud and AWS, through their load balancers
//!   exits    every exit code by a run that ends with it
//!   sigkill  butleradm killed without warning, started again, and what the data centre holds in the end
//! ```

mod centre;
mod clouds;
mod exits;
mod looks;
mod real;
mod sigkill;
mod user;

pub(crate) use sigkill::{Deaths, run_command as sigkill_command};

use crate::kubectl::Tally;
use crate::peers::Peers;
use anyhow::{Context, Result};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The machines of the highly available example.
const MACHINES: [&str; 6] = [
    "butler-mgmt-cp-0",
    "butler-mgmt-cp-1",
    "butler-mgmt-cp-2",
    "butler-mgmt-worker-0",
    "butler-mgmt-worker-1",
    "butler-mgmt-worker-2",
];
const CLUSTER: &str = "butler-mgmt";

/// Counts checks, and says each.
pub(crate) struct Report {
    tally: Tally,
    last: Instant,
}

/// All parts, or those on clouds alone. Without peers, those that need none.
pub(crate) async fn conformance(program: &Path, peers: Option<&Peers>, clouds_alone: bool) -> Result<Tally> {
    let mut report = Report::new();
    if clouds_alone {
        let peers = peers.context("clouds need the real peers")?;
        clouds::run(program, peers, &mut report).await?;
        return Ok(report.tally);
    }
    if let Some(peers) = peers {
        looks::run(program, peers, &mut report).await?;
        let answer = real::run(program, peers).await;
        report.check("a whole life on the real kube-apiserver", answer)?;
        clouds::run(program, peers, &mut report).await?;
    }
    exits::run(program, &mut report).await?;
    let answer = sigkill::run(program, &Deaths::gate()).await;
    report.check("killed without warning", answer)?;
    Ok(report.tally)
}

impl Report {
    fn new() -> Report {
        Report { tally: Tally::default(), last: Instant::now() }
    }

    /// Says how a check ended; `false` when it failed.
    pub(crate) fn check(&mut self, name: &str, answer: Result<()>) -> Result<bool> {
        let took = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let passed = answer.is_ok();
        match answer {
            Ok(()) => {
                self.tally.passed += 1;
                say(&format!("bootstrap: {name}: ok, {took:.1} s"))?;
            }
            Err(error) => {
                self.tally.failed += 1;
                say(&format!("bootstrap: {name}: FAILED after {took:.1} s: {error:#}"))?;
            }
        }
        Ok(passed)
    }
}

/// A file of the examples.
fn example(name: &str) -> Result<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
    path.canonicalize().with_context(|| format!("find the example {name}"))
}

fn say(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").context("print")
}
