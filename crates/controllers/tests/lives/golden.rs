//! Compares a journal with the one that is committed.

use std::path::PathBuf;

/// Compares with the file of that name, or writes it.
pub fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    if known == text {
        return;
    }
    let differs = known.lines().zip(text.lines()).position(|(known, new)| known != new);
    let at = differs.unwrap_or_else(|| known.lines().count().min(text.lines().count()));
    let line = |text: &str| text.lines().nth(at).unwrap_or("(the end)").to_owned();
    panic!(
        "{} differs from line {} on:\n  was: {}\n  now: {}\nUPDATE_GOLDEN=1 writes it anew. Now it is:\n{text}",
        path.display(),
        at + 1,
        line(&known),
        line(text),
    );
}
