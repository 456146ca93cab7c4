//! Tests that can't run here say so.

/// Says by name which test does not run here, and why. What is printed by the macros is kept from everyone by a test that
/// passes, as one that was skipped does; what is written is not.
pub(crate) fn skip(reason: &str) {
    use std::io::Write as _;
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // In one piece, between the lines of others.
    let line = format!("skipped {test}: {reason}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
