//! So many new connections while the configuration of ours is changed and read again all the time. One that is refused,
//! reset or cut short ends it. By itself: `cargo xtask bench lb --reloads N`.

use std::{
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    CLIENTS,
    backend::Backends,
    load,
    sides::{Proxy, Side, butler},
};

/// Between two reloads.
const PAUSE: Duration = Duration::from_millis(50);

/// What was seen, in a sentence.
pub(super) fn prove(ours: &Path, folder: &Path, count: u64) -> Result<String> {
    let backends = Backends::start()?;
    let proxy = Side::Ours.start(ours, folder, &backends.addresses)?;
    let over = AtomicBool::new(false);
    let reloads = AtomicU64::new(0);
    let shown = std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let number = reloads.fetch_add(1, Ordering::Relaxed);
                change(&proxy, folder, &backends, number)?;
                std::thread::sleep(PAUSE);
            }
            anyhow::Ok(())
        });
        let shown = load::connect(proxy.address, CLIENTS, count);
        over.store(true, Ordering::Relaxed);
        let changed = changer.join().map_err(|_| anyhow::anyhow!("the thread that reloads has panicked"))?;
        changed.and(shown)
    })?;
    let reloads = reloads.load(Ordering::Relaxed);
    ensure!(
        proxy.pids().first().is_some_and(|pid| Path::new(&format!("/proc/{pid}")).exists()),
        "it has ended"
    );
    let seconds = shown.elapsed.as_secs_f64();
    Ok(format!("{} connections in {seconds:.0} s with {reloads} reloads: none failed", shown.count))
}

/// Another number of backends every time.
fn change(proxy: &Proxy, folder: &Path, backends: &Backends, number: u64) -> Result<()> {
    let used = 1 + number as usize % backends.addresses.len();
    let (file, new) = (Side::Ours.file(folder), folder.join("new.conf"));
    fs::write(&new, butler(proxy.address, &backends.addresses[..used], folder))
        .context("write a configuration")?;
    fs::rename(&new, &file).context("put a configuration in place")?;
    proxy.reload()
}
