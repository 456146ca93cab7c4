//! `cargo xtask fuzz`: coverage-guided fuzzing of what the load balancer reads (`fuzz/`), with the toolchain of the repository.
//!
//! ```text
//!   fuzz/seeds, fuzz/regressions (committed) --every one of them once--> target
//!   target/fuzz/corpus (grows, not committed) <--what covers something new-- target <--changes-- seeds and corpus
//!   a crash: made small --> fuzz/regressions, to be committed with what mends it
//! ```

use crate::builtins::say;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

const TARGETS: [&str; 8] = ["bfd", "config", "election", "http", "neighbour", "proxy", "signed", "vrrp"];

/// Edge counters with a table of places, and every comparison told to the fuzzer: what `cargo fuzz --sanitizer none` sets. All of
/// it is known to stable compilers; address sanitizing is not, and safe code has little use for it.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
];

/// No input takes so long, in seconds: one that does is a finding.
const SLOW: &str = "-timeout=10";
const MEMORY: &str = "-rss_limit_mb=1024";
/// For making a finding small.
const SMALLER: &str = "-max_total_time=20";

#[derive(Debug, clap::Args)]
pub(crate) struct FuzzArgs {
    /// Only this one; may be given again
    #[arg(long = "target", value_name = "NAME", value_parser = TARGETS)]
    targets: Vec<String>,
    /// How long each is fuzzed. 0: only the committed inputs are run
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// So many side by side. Default: one per core
    #[arg(long)]
    jobs: Option<usize>,
}

/// Where things are.
struct Places {
    fuzz: PathBuf,
    /// Everything that is made: programs, corpora, findings, logs.
    made: PathBuf,
    programs: PathBuf,
}

/// What a run of one target has shown.
#[derive(Debug, PartialEq, Eq)]
struct Figures {
    executions: u64,
    per_second: u64,
    covered_first: u64,
    covered_last: u64,
}

pub(crate) fn run(args: &FuzzArgs) -> Result<()> {
    let places = Places::new()?;
    compiler()?;
    let names: Vec<&str> = TARGETS
        .into_iter()
        .filter(|name| args.targets.is_empty() || args.targets.iter().any(|t| t == name))
        .collect();
    build(&places, &names)?;
    let jobs = args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let left = Mutex::new(names.into_iter());
    let next = || left.lock().ok().and_then(|mut left| left.next());
    let failed = Mutex::new(Vec::new());
    say("target     inputs   executions     per s   coverage at start, at end");
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(name) = next() {
                    match fuzz(&places, name, args.seconds) {
                        Ok(line) => say(&line),
                        Err(error) => {
                            failed.lock().map(|mut failed| failed.push(format!("{error:#}"))).unwrap_or(())
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_default();
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

impl Places {
    fn new() -> Result<Places> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is not in a folder")?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let made = target.join("fuzz");
        Ok(Places {
            fuzz: root.join("fuzz"),
            programs: made.join("build").join(triple()).join("release"),
            made,
        })
    }

    /// The committed inputs of a target, those that once failed first.
    fn inputs(&self, name: &str) -> Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        for kind in ["regressions", "seeds"] {
            let mut files = files(&self.fuzz.join(kind).join(name))?;
            files.sort();
            all.extend(files);
        }
        Ok(all)
    }
}

fn triple() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// libFuzzer is C++, and is built from source.
fn compiler() -> Result<()> {
    let named = std::env::var("CXX").ok();
    let works = |name: &str| {
        let out = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        out.is_ok_and(|status| status.success())
    };
    if works(named.as_deref().unwrap_or("c++")) {
        return Ok(());
    }
    let may = rustix::process::geteuid().is_root() && Path::new("/usr/bin/apt-get").exists();
    ensure!(may && named.is_none(), "a C++ compiler is missing: install g++, or name one in CXX");
    say("g++ is missing: apt-get installs it");
    let status = Command::new("apt-get")
        .args(["install", "--yes", "--no-install-recommends", "g++"])
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdout(Stdio::null())
        .status()
        .context("start apt-get")?;
    ensure!(status.success() && works("c++"), "apt-get could not install g++: {status}");
    Ok(())
}

fn build(places: &Places, names: &[&str]) -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked", "--release", "--target", &triple()]);
    cargo.arg("--manifest-path").arg(places.fuzz.join("Cargo.toml"));
    cargo.arg("--target-dir").arg(places.made.join("build"));
    cargo.args(names.iter().flat_map(|name| ["--bin", name]));
    // With a target named, these reach neither build scripts nor macros.
    cargo.env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f")).env_remove("RUSTFLAGS");
    ensure!(cargo.status().context("cannot run cargo")?.success(), "the fuzz targets do not build");
    Ok(())
}

/// Runs one target; its line of the table.
fn fuzz(places: &Places, name: &str, seconds: u32) -> Result<String> {
    let inputs = places.inputs(name)?;
    ensure!(!inputs.is_empty(), "{name}: there are no seeds in fuzz/seeds/{name}");
    replay(places, name, &inputs)?;
    if seconds == 0 {
        return Ok(format!("{name:<9} {:>7}", inputs.len()));
    }
    let (corpus, found) = (places.made.join("corpus").join(name), places.made.join("found").join(name));
    for folder in [&corpus, &found] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let before: BTreeSet<PathBuf> = files(&found)?.into_iter().collect();
    let mut program = program(places, name);
    // What is new goes into the first folder.
    program.arg(&corpus).arg(places.fuzz.join("seeds").join(name));
    let regressions = places.fuzz.join("regressions").join(name);
    program.args(regressions.exists().then_some(regressions));
    program.arg(format!("-artifact_prefix={}/", found.display())).arg(format!("-max_total_time={seconds}"));
    program.args(["-print_final_stats=1", SLOW, MEMORY]);
    if name != "config" {
        // Half-right comparisons count as progress; the file's are too many for that.
        program.arg("-use_value_profile=1");
    }
    if name == "config" {
        program.arg(format!("-dict={}", dictionary(places)?.display()));
    }
    let out = program.output().with_context(|| format!("cannot run {name}"))?;
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let log = places.made.join(format!("{name}.log"));
    fs::write(&log, &said).with_context(|| format!("cannot write {}", log.display()))?;
    if !out.status.success() {
        let new = files(&found)?.into_iter().find(|file| !before.contains(file));
        let Some(new) = new else { bail!("{name}: ended with {}; see {}", out.status, log.display()) };
        let kept = keep(places, name, &new)?;
        bail!("{name}: {}\n{}", reason(&said), remedy(name, &kept));
    }
    let Figures { executions, per_second, covered_first, covered_last } =
        figures(&said).with_context(|| format!("{name}: no figures in {}", log.display()))?;
    let line = format!(
        "{name:<9} {:>7} {executions:>12} {per_second:>9}   {covered_first}, {covered_last}",
        inputs.len()
    );
    Ok(line)
}

/// Runs inputs that are known, each once.
fn replay(places: &Places, name: &str, inputs: &[PathBuf]) -> Result<()> {
    let out = program(places, name).args(inputs).args([SLOW, MEMORY]).output()?;
    if out.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&out.stderr);
    let running = said.lines().rev().find_map(|line| line.strip_prefix("Running: "));
    let input = running.map_or_else(|| places.fuzz.join("seeds").join(name), PathBuf::from);
    bail!("{name}: {}\n{}", reason(&said), remedy(name, &input));
}

fn program(places: &Places, name: &str) -> Command {
    let mut program = Command::new(places.programs.join(name));
    // Findings of a replay are not written beside the sources.
    program.current_dir(&places.made).env("RUST_BACKTRACE", "0").stdin(Stdio::null());
    program
}

/// Makes a finding small, and puts it where it is run from now on.
fn keep(places: &Places, name: &str, found: &Path) -> Result<PathBuf> {
    let small = found.with_extension("small");
    let file = found.file_name().and_then(|name| name.to_str()).unwrap_or("crash");
    if file.starts_with("crash-") {
        let mut program = program(places, name);
        program.args(["-minimize_crash=1", SMALLER, MEMORY]).arg(found);
        program.arg(format!("-exact_artifact_path={}", small.display()));
        // It ends as a crash does; whether there is a smaller one shows in the file.
        program.output().with_context(|| format!("cannot run {name}"))?;
    }
    let folder = places.fuzz.join("regressions").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let kept = folder.join(&file[..file.len().min(18)]);
    let from = if small.exists() { &small } else { found };
    fs::copy(from, &kept).with_context(|| format!("cannot write {}", kept.display()))?;
    Ok(kept)
}

/// What a panic, or libFuzzer itself, has said.
fn reason(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let panicked = lines.iter().position(|line| line.contains("panicked at "));
    let fallback = || lines.iter().position(|line| line.contains("ERROR: libFuzzer"));
    let Some(at) = panicked.or_else(fallback) else { return "failed without a word".to_owned() };
    lines[at..]
        .iter()
        .take(4)
        .take_while(|line| !line.starts_with("note: "))
        .copied()
        .collect::<Vec<_>>()
        .join("\n")
}

fn remedy(name: &str, input: &Path) -> String {
    format!(
        "input: {}\nagain: cargo xtask fuzz --target {name} --seconds 0\n\
         Mend what it shows, with a test beside the code, and commit the input under a name that says what it was.",
        input.display()
    )
}

/// The figures in what libFuzzer said.
fn figures(said: &str) -> Option<Figures> {
    let after = |line: &str, word: &str| line.split(word).nth(1)?.split_whitespace().next()?.parse().ok();
    let stat = |name: &str| said.lines().find_map(|line| after(line, name));
    Some(Figures {
        executions: stat("stat::number_of_executed_units:")?,
        per_second: stat("stat::average_exec_per_sec:")?,
        covered_first: said.lines().filter(|l| l.contains("INITED")).find_map(|line| after(line, "cov: "))?,
        covered_last: said
            .lines()
            .rev()
            .filter(|l| l.starts_with('#'))
            .find_map(|line| after(line, "cov: "))?,
    })
}

/// The words of the configuration file, from its schema.
fn dictionary(places: &Places) -> Result<PathBuf> {
    let schema = places.fuzz.with_file_name("docs/reference/butler-lb.schema.json");
    let text = fs::read_to_string(&schema).with_context(|| format!("cannot read {}", schema.display()))?;
    let mut words = BTreeSet::new();
    collect(&serde_json::from_str(&text)?, &mut words);
    let lines: Vec<String> = words.iter().map(|word| format!("\"{word}\"\n")).collect();
    let file = places.made.join("config.dict");
    fs::write(&file, lines.concat()).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// Names of fields, and choices.
fn collect(schema: &Value, words: &mut BTreeSet<String>) {
    match schema {
        Value::Object(map) => {
            let fields = map.get("properties").and_then(Value::as_object).into_iter().flatten();
            words.extend(fields.map(|(name, _)| format!("{name}: ")));
            words.extend(map.get("const").and_then(Value::as_str).map(str::to_owned));
            let choices = map.get("enum").and_then(Value::as_array).into_iter().flatten();
            words.extend(choices.filter_map(Value::as_str).map(str::to_owned));
            map.values().for_each(|value| collect(value, words));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, words)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
#2\tINITED cov: 24 ft: 24 corp: 1/1b exec/s: 0 rss: 27Mb
#262144\tpulse  cov: 918 ft: 3579 corp: 922/41Kb lim: 285 exec/s: 87381 rss: 29Mb
#483897\tDONE   cov: 940 ft: 3872 corp: 1038/91Kb lim: 859 exec/s: 53766 rss: 29Mb
stat::number_of_executed_units: 483897
stat::average_exec_per_sec:     53766
";

    #[test]
    fn figures_are_read_from_what_is_said() {
        let expected =
            Figures { executions: 483_897, per_second: 53_766, covered_first: 24, covered_last: 940 };
        assert_eq!(figures(SAID), Some(expected));
        assert_eq!(figures("#2\tINITED cov: 24"), None);
    }

    #[test]
    fn a_finding_says_why_and_how_to_see_it_again() {
        let said = "#9 NEW\nthread '<unnamed>' (7) panicked at src/vrrp.rs:40:45:\nindex out of bounds\nnote: run with\n";
        assert_eq!(
            reason(said),
            "thread '<unnamed>' (7) panicked at src/vrrp.rs:40:45:\nindex out of bounds"
        );
        assert_eq!(
            reason("== ERROR: libFuzzer: timeout after 10 seconds"),
            "== ERROR: libFuzzer: timeout after 10 seconds"
        );
        assert!(remedy("vrrp", Path::new("fuzz/regressions/vrrp/a")).contains("--target vrrp --seconds 0"));
    }

    #[test]
    fn every_target_is_built_and_has_seeds() {
        let places = Places::new().unwrap();
        let manifest = fs::read_to_string(places.fuzz.join("Cargo.toml")).unwrap();
        assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
        for name in TARGETS {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
            assert!(!places.inputs(name).unwrap().is_empty(), "{name} has no seeds");
        }
    }

    #[test]
    fn the_dictionary_has_fields_and_choices() {
        let mut words = BTreeSet::new();
        let schema = serde_json::json!({"properties": {"bind": {"items": {"enum": ["v1"]}}, "x": {"oneOf": [{"const": "c"}]}}});
        collect(&schema, &mut words);
        assert_eq!(words.into_iter().collect::<Vec<_>>(), ["bind: ", "c", "v1", "x: "]);
    }
}
