//! Programs that come as packages of the system: they are installed where they are missing and may be installed.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::say;

/// A program, and the package that brings it.
pub(crate) struct Packaged {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
}

/// Holds virtual addresses.
pub(crate) const KEEPALIVED: Packaged = Packaged { program: "/usr/sbin/keepalived", package: "keepalived" };
/// Forwards connections.
pub(crate) const HAPROXY: Packaged = Packaged { program: "/usr/sbin/haproxy", package: "haproxy" };
/// Asks HAProxy whether it serves, for Keepalived.
pub(crate) const CURL: Packaged = Packaged { program: "/usr/bin/curl", package: "curl" };
/// Forwards connections too.
pub(crate) const NGINX: Packaged = Packaged { program: "/usr/sbin/nginx", package: "nginx-light" };
/// The part of it that does.
pub(crate) const NGINX_STREAM: Packaged =
    Packaged { program: "/usr/lib/nginx/modules/ngx_stream_module.so", package: "libnginx-mod-stream" };
/// Runs containers.
pub(crate) const RUNC: Packaged = Packaged { program: "/usr/sbin/runc", package: "runc" };
/// Speaks BFD.
pub(crate) const FRR: Packaged = Packaged { program: "/usr/lib/frr/bfdd", package: "frr" };

// === impl Packaged ===

impl Packaged {
    fn is_there(&self) -> bool {
        Path::new(self.program).is_file()
    }
}

/// Installs what is missing by `apt-get`. None of it is started: each test starts its own.
pub(crate) fn ensure_packages(wanted: &[Packaged]) -> Result<()> {
    let missing: Vec<&str> = wanted.iter().filter(|w| !w.is_there()).map(|w| w.package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    say(&format!("installing {}", missing.join(", ")));
    let status = Command::new("apt-get")
        .args(["install", "--yes", "--no-install-recommends"])
        .args(&missing)
        .env("DEBIAN_FRONTEND", "noninteractive")
        // Packages of servers start them; this word to the policy keeps them still.
        .env("RUNLEVEL", "1")
        .status()
        .with_context(|| format!("start apt-get to install {}", missing.join(", ")))?;
    ensure!(status.success(), "apt-get install {}: {status}", missing.join(" "));
    let absent: Vec<&str> = wanted.iter().filter(|w| !w.is_there()).map(|w| w.program).collect();
    ensure!(absent.is_empty(), "{} not there after it was installed", absent.join(", "));
    Ok(())
}
