//! The fault matrix: for every call of a whole HA bootstrap and of a destroy, a death on either side of it, and errors.
//!
//! ```text
//!   first life ---k---k+1---k+2---> Ready                 run once, stopped on both sides of every call
//!                 |
//!                 +-- copy of the data centre and of the folder --> second life ---> Ready, with exactly what is wanted
//! ```
//!
//! `cargo test` runs a sample. The whole is run by `cargo xtask faults`, with every class of error by `--all`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "modules of a test are seen by nobody else")]

mod branch;
#[path = "../lives/mod.rs"]
mod lives;
mod points;
mod record;

use branch::Goal;
use points::{Choice, matrix};

/// Of so many calls, one is in the sample.
const SAMPLE: usize = 89;

#[test]
fn a_sample_of_the_matrix() {
    matrix(
        &[Goal::Bootstrap, Goal::Destroy],
        &Choice { every: SAMPLE, given_secrets: true, ..Choice::default() },
    );
}

/// `BUTLER_FAULTS=all` runs every class of error at every call; `BUTLER_FAULTS="bootstrap 17"` all of one call.
#[test]
#[ignore = "takes minutes: run it with `cargo xtask faults`"]
fn the_whole_matrix() {
    matrix(&[Goal::Bootstrap, Goal::Destroy], &Choice::from_env());
}
