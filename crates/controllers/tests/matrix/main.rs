//! The fault matrix: for every call of a whole HA bootstrap and of a destroy, a death on either side of it, and errors.
//! Errors are met by a second life, and some of them also by a first one that goes on.
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
use lives::Place;
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

/// With an image from a factory, machines made from it, and fixed addresses.
#[test]
fn a_sample_of_the_matrix_with_an_image() {
    let choice =
        Choice { every: SAMPLE, given_secrets: true, place: Place::ProxmoxImage, ..Choice::default() };
    matrix(&[Goal::Bootstrap, Goal::Destroy], &choice);
}

/// Clouds have more calls, and each point takes longer.
const CLOUD_SAMPLE: usize = 171;

#[test]
fn a_sample_of_the_matrix_in_gcp() {
    let choice = Choice { every: CLOUD_SAMPLE, given_secrets: true, place: Place::Gcp, ..Choice::default() };
    matrix(&[Goal::Bootstrap, Goal::Destroy], &choice);
}

#[test]
fn a_sample_of_the_matrix_in_aws() {
    let choice = Choice { every: CLOUD_SAMPLE, given_secrets: true, place: Place::Aws, ..Choice::default() };
    matrix(&[Goal::Bootstrap, Goal::Destroy], &choice);
}

/// `BUTLER_FAULTS_ON=gcp` runs it there. `BUTLER_FAULTS=all` runs every class of error at every call; `BUTLER_FAULTS="bootstrap 17"` all
/// of one call; `BUTLER_FAULTS="part 2 4"` the second quarter.
#[test]
#[ignore = "takes minutes: run it with `cargo xtask faults`"]
fn the_whole_matrix() {
    matrix(&[Goal::Bootstrap, Goal::Destroy], &Choice::from_env());
}
