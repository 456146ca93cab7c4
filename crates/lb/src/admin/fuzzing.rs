//! What the fuzzer needs to see of the runtime API. Only there with `--cfg fuzzing`.

use super::routes::{Control, Scope};
use super::{http, server};
use std::io::{Read, Write};

/// One request and its answer, as on the unix socket, or as on the port for metrics.
pub fn converse(stream: impl Read + Write, metrics_only: bool, control: &dyn Control) {
    let scope = if metrics_only { Scope::Metrics } else { Scope::Everything };
    server::converse(stream, scope, control);
}

/// Status and body of an answer.
pub fn parse_answer(bytes: &[u8]) -> Option<(u16, String)> {
    http::parse_answer(bytes)
}
