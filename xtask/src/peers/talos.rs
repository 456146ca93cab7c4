//! Talos' own parts: the machinery of every supported minor release behind a pipe (`xtask/peers/talos-machinery/main.go`),
//! and talosctl. They live beside the other peers, in a cache folder whose name is a hash over these pins alone.
//!
//! The registry does not serve every patch release, and some that it serves are not in the checksum database. Pinned is
//! the newest patch release of each minor that can be verified. Two things in `xtask/peers/talosctl` differ from what the
//! release itself was built with, because the module that its own `go.mod` names can't be verified or had:
//!
//! - v1.9.5 takes etcd's modules at v3.5.19 in place of v3.5.18, with the few golang.org/x modules that those raise;
//! - v1.13.0 takes containerd and wgctrl as their authors publish them, in place of two forks for the node's side.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::{cache_dir, golang, lock, pins, remove_leftovers};

const MAIN: &str = include_str!("../../peers/talos-machinery/main.go");
const TALOSCTL: &str = "github.com/siderolabs/talos/cmd/talosctl";

/// A release of one of the parts, and the module that pins it.
#[derive(Debug, Clone, Copy)]
struct Pin {
    minor: &'static str,
    version: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
}

macro_rules! pin {
    ($part:literal, $minor:literal, $version:literal) => {
        Pin {
            minor: $minor,
            version: $version,
            go_mod: include_str!(concat!("../../peers/", $part, "/v", $minor, "/go.mod")),
            go_sum: include_str!(concat!("../../peers/", $part, "/v", $minor, "/go.sum")),
        }
    };
}

/// Oldest first.
const MACHINERIES: &[Pin] = &[
    pin!("talos-machinery", "1.9", "v1.9.5"),
    pin!("talos-machinery", "1.10", "v1.10.6"),
    pin!("talos-machinery", "1.11", "v1.11.6"),
    pin!("talos-machinery", "1.12", "v1.12.7"),
    pin!("talos-machinery", "1.13", "v1.13.9"),
];

/// Oldest first.
const TALOSCTLS: &[Pin] = &[pin!("talosctl", "1.9", "v1.9.5"), pin!("talosctl", "1.13", "v1.13.0")];

/// Where the programs are. Holding one means: they are all there.
#[derive(Debug, Clone)]
pub(crate) struct TalosPeers {
    pub(crate) machineries: Vec<Machinery>,
    pub(crate) talosctls: Vec<Talosctl>,
}

/// The machinery of one minor release, behind a pipe.
#[derive(Debug, Clone)]
pub(crate) struct Machinery {
    /// `1.9`
    pub(crate) minor: &'static str,
    /// `v1.9.5`
    pub(crate) version: &'static str,
    pub(crate) path: PathBuf,
}

#[derive(Debug, Clone)]
pub(crate) struct Talosctl {
    /// `v1.9.5`
    pub(crate) version: &'static str,
    pub(crate) path: PathBuf,
}

// === impl TalosPeers ===

impl TalosPeers {
    /// The peers in the cache, after whatever was missing has been built.
    pub(crate) fn ensure() -> Result<Self> {
        Ok(Self { machineries: Self::machineries()?, talosctls: Self::talosctls()? })
    }

    /// The machinery alone: some minutes less than with talosctl on the first run.
    pub(crate) fn machineries() -> Result<Vec<Machinery>> {
        let found = |pin: &Pin, path| Machinery { minor: pin.minor, version: pin.version, path };
        ensure_all("talos-machinery", MACHINERIES, found)
    }

    fn talosctls() -> Result<Vec<Talosctl>> {
        let found = |pin: &Pin, path| Talosctl { version: pin.version, path };
        ensure_all("talosctl", TALOSCTLS, found)
    }
}

/// All releases of a part. The usual case takes no lock: programs appear by a rename and are never taken away.
fn ensure_all<T>(part: &str, pins: &[Pin], found: impl Fn(&Pin, PathBuf) -> T) -> Result<Vec<T>> {
    let cache = cache_dir()?;
    let bin = cache.join(key()).join("bin");
    let path = |pin: &Pin| bin.join(file_name(part, pin.version));
    if !pins.iter().all(|pin| path(pin).is_file()) {
        fs::create_dir_all(&bin).with_context(|| format!("create {}", bin.display()))?;
        let _lock = lock(&cache)?;
        remove_leftovers(&bin)?;
        let go = golang::toolchain(&cache)?;
        for pin in pins.iter().filter(|pin| !path(pin).is_file()) {
            build(&go, &bin, part, pin)?;
        }
    }
    Ok(pins.iter().map(|pin| found(pin, path(pin))).collect())
}

fn build(go: &Path, bin: &Path, part: &str, pin: &Pin) -> Result<()> {
    let own = part != "talosctl";
    let mut files = vec![("go.mod", pin.go_mod), ("go.sum", pin.go_sum)];
    files.extend(own.then_some(("main.go", MAIN)));
    let recipe = golang::Recipe {
        name: &file_name(part, pin.version),
        package: if own { "." } else { TALOSCTL },
        files: &files,
        link_flags: "-s -w",
    };
    golang::build_in(go, bin, &recipe)
}

fn file_name(part: &str, version: &str) -> String {
    format!("{part}-{version}")
}

/// Names the cache folder: the first half of a hash over all pins.
fn key() -> String {
    let mut key = pins::sha256(format!("{MAIN}\0{MACHINERIES:?}\0{TALOSCTLS:?}").as_bytes());
    key.truncate(16);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_code_and_in_the_modules_agree() {
        for (module, pins) in [
            ("github.com/siderolabs/talos/pkg/machinery", MACHINERIES),
            ("github.com/siderolabs/talos", TALOSCTLS),
        ] {
            for pin in pins {
                let required = format!("{module} {}", pin.version);
                assert!(pin.go_mod.contains(&required), "{required} is not in the go.mod of {}", pin.minor);
                assert!(pin.go_sum.contains(&format!("{required} h1:")), "{required} is not in go.sum");
                assert!(pin.version.starts_with(&format!("v{}.", pin.minor)), "{pin:?}");
            }
        }
    }

    /// A talosctl with another machinery than its own would be another program.
    #[test]
    fn talosctl_comes_with_its_own_machinery() {
        for pin in TALOSCTLS {
            let module = "github.com/siderolabs/talos/pkg/machinery";
            let replaced = format!("{module} => {module} {}", pin.version);
            assert!(pin.go_mod.contains(&replaced), "{replaced} is not in the go.mod of {}", pin.minor);
        }
    }

    #[test]
    fn every_supported_minor_release_is_there_once() {
        let minors: Vec<&str> = MACHINERIES.iter().map(|pin| pin.minor).collect();
        assert_eq!(minors, ["1.9", "1.10", "1.11", "1.12", "1.13"]);
        assert_eq!(key().len(), 16);
    }
}
