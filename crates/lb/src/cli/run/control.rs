//! What runs, and how the runtime API steers it.

use super::access_log::Reopen;
use super::{longest_delay, status};
use butler_lb::admin::{Control, Drain, Refusal, Status, Threads};
use butler_lb::config::{Config, Loaded, Vip, load, report};
use butler_lb::forward::Handle;
use butler_lb::vip::{Failed, Vips};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a reload is told once a stop has begun. It would take the addresses back from the peer that has just got them, and
/// open listeners in threads that end.
pub(super) const STOPPING: &str = "it is stopping: the file is not read again, and nothing has changed";

/// Everything that runs.
pub(super) struct Running {
    file: PathBuf,
    started: Instant,
    forward: Arc<Handle>,
    /// There from the first shared address on, until they have been handed over.
    vips: Mutex<Option<Vips>>,
    access_log: Reopen,
    /// Locked for as long as a reload takes: one at a time.
    in_force: Mutex<InForce>,
}

/// The configuration in force.
struct InForce {
    config: Config,
    since: Instant,
    failed_reloads: u64,
    /// It never changes again.
    stopping: bool,
}

impl Running {
    /// Takes part in the election of the shared addresses, if there are any; forwarding runs already.
    pub(super) fn start(
        file: &Path,
        config: Config,
        forward: Arc<Handle>,
        access_log: Reopen,
    ) -> Result<Running, Failed> {
        let now = Instant::now();
        let vips = if config.vips.is_empty() { None } else { Some(elect(&config.vips, &forward)?) };
        let in_force = Mutex::new(InForce { config, since: now, failed_reloads: 0, stopping: false });
        Ok(Running {
            file: file.to_owned(),
            started: now,
            forward,
            vips: Mutex::new(vips),
            access_log,
            in_force,
        })
    }

    /// `2 listeners, 1 vip`, with where they are.
    pub(super) fn in_a_line(&self) -> String {
        let config = &self.in_force.lock().config;
        let listeners = config.listeners.iter().map(|listener| {
            let binds: Vec<String> = listener.bind.iter().map(ToString::to_string).collect();
            format!("{} on {}", listener.name, binds.join(", "))
        });
        let vips = config.vips.iter().map(|vip| format!("vip {} ({})", vip.name, vip.addresses.join(", ")));
        listeners.chain(vips).collect::<Vec<_>>().join("; ")
    }

    /// What a stop begins with, in words.
    pub(super) fn to_hand_over(&self) -> &'static str {
        if self.vips.lock().is_some() { "addresses are handed over, " } else { "" }
    }

    /// The first step of a stop: a reload that is under way ends, and there is none after it. Returns how long connections are
    /// waited for.
    pub(super) fn refuse_reloads(&self) -> Duration {
        let mut in_force = self.in_force.lock();
        in_force.stopping = true;
        longest_delay(&in_force.config)
    }

    /// Hands the addresses over, then ends forwarding.
    pub(super) fn stop(&self, grace: Duration) {
        self.refuse_reloads();
        // What answers at the addresses runs until a peer has them.
        let vips = self.vips.lock().take();
        if let Some(vips) = vips {
            vips.stop();
            let config = self.in_force.lock().config.clone();
            let addresses = config.vips.iter().flat_map(|vip| &vip.addresses);
            // Clients of an address that has moved talk to its new holder now.
            self.forward.leave(&addresses.filter_map(|address| host(address)).collect::<Vec<_>>());
        }
        self.forward.stop(grace);
    }

    fn put_into_force(&self, in_force: &mut InForce) -> Result<Vec<String>, Vec<String>> {
        let file = self.file.display().to_string();
        let Loaded { config, warnings } = load(&self.file).map_err(|error| lines(&error.to_string()))?;
        let fixed = fixed(&in_force.config, &config);
        if !fixed.is_empty() {
            return Err(fixed
                .iter()
                .map(|field| format!("{file}: {field} can't change while it runs: restart"))
                .collect());
        }
        let refused = |error: &dyn std::error::Error| vec![super::super::output::chain(error)];
        // Both or none: what can be refused of either is done before anything of the other changes.
        let mut vips = self.vips.lock();
        if vips.is_none() && !config.vips.is_empty() {
            *vips = Some(elect(&[], &self.forward).map_err(|error| refused(&error))?);
        }
        let change = vips.as_ref().map(|vips| vips.prepare(&config.vips)).transpose();
        let change = change.map_err(|error| refused(&error))?;
        self.forward.reload(&config).map_err(|error| refused(&error))?;
        if let (Some(vips), Some(change)) = (vips.as_ref(), change)
            && let Err(error) = vips.commit(change)
        {
            // The new listeners serve all the same; the kernel takes the addresses off when nobody renews them.
            tracing::error!("shared addresses are not looked after any more: {error}. Restart this process");
        }
        drop(vips);
        self.access_log.ask();
        *in_force = InForce { config, since: Instant::now(), failed_reloads: 0, stopping: false };
        Ok(report(&file, &warnings))
    }
}

impl Control for Running {
    fn status(&self) -> Status {
        let in_force = self.in_force.lock();
        let (used, all) = self.forward.threads();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime: self.started.elapsed().as_secs(),
            config_age: in_force.since.elapsed().as_secs(),
            failed_reloads: in_force.failed_reloads,
            threads: Threads { used, all },
            listeners: status::listeners(self.forward.status()),
            vips: status::vips(self.vips.lock().as_ref().map(Vips::status).unwrap_or_default()),
        }
    }

    fn reload(&self) -> Result<Vec<String>, Refusal> {
        let mut in_force = self.in_force.lock();
        if in_force.stopping {
            tracing::warn!("{STOPPING}");
            return Err(Refusal::NotNow(STOPPING.to_owned()));
        }
        match self.put_into_force(&mut in_force) {
            Ok(warnings) => {
                warnings.iter().for_each(|line| tracing::warn!("{line}"));
                let done = format!("{} is in force", self.file.display());
                tracing::info!("{done}");
                Ok(warnings.into_iter().chain([done]).collect())
            }
            Err(mut problems) => {
                in_force.failed_reloads += 1;
                problems.push("nothing has changed: the configuration of before stays in force".to_owned());
                problems.iter().for_each(|line| tracing::error!("{line}"));
                Err(Refusal::Wrong(problems))
            }
        }
    }

    fn drain(&self, drain: &Drain) -> Result<String, Refusal> {
        let config = self.in_force.lock().config.clone();
        let wanted = |name: &str| drain.listener.as_deref().is_none_or(|only| only == name);
        let mut found = Vec::new();
        for listener in config.listeners.iter().filter(|listener| wanted(&listener.name)) {
            if !listener.backends.iter().any(|backend| backend.name == drain.backend) {
                continue;
            }
            let done = match drain.undo {
                true => self.forward.undrain(&listener.name, &drain.backend),
                false => self.forward.drain(&listener.name, &drain.backend),
            };
            done.map_err(|error| Refusal::NotFound(error.to_string()))?;
            found.push(format!("{} ({} s)", listener.name, listener.deregistration_delay));
        }
        if found.is_empty() {
            let place =
                drain.listener.as_ref().map(|name| format!(" in a listener {name:?}")).unwrap_or_default();
            return Err(Refusal::NotFound(format!("there is no backend {:?}{place}", drain.backend)));
        }
        let said = match drain.undo {
            true => format!("{} gets connections again in {}", drain.backend, found.join(", ")),
            false => format!("{} gets no new connections in {}", drain.backend, found.join(", ")),
        };
        tracing::info!("{said}");
        Ok(said)
    }
}

/// Takes part in the election of the shared addresses.
fn elect(vips: &[Vip], forward: &Arc<Handle>) -> Result<Vips, Failed> {
    let (ready, leaving) = (forward.clone(), forward.clone());
    let lost = move |addresses: &[IpAddr]| {
        tracing::info!(?addresses, "connections by addresses that are another's now are ended");
        leaving.leave(addresses);
    };
    Vips::start_telling(vips, Arc::new(move |listener: &str| ready.is_ready(listener)), Arc::new(lost))
}

/// The address without its prefix length.
fn host(address: &str) -> Option<IpAddr> {
    address.split('/').next()?.parse().ok()
}

/// Fields that are read once, when the process starts, and differ.
fn fixed(old: &Config, new: &Config) -> Vec<&'static str> {
    let differ = [
        ("admin", old.admin != new.admin),
        ("accessLog", old.access_log != new.access_log),
        ("threads", old.threads != new.threads),
    ];
    differ.into_iter().filter(|(_, differs)| *differs).map(|(field, _)| field).collect()
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use butler_lb::forward::{LoadBalancer, Options};

    #[test]
    fn a_reload_that_lacks_rights_touches_no_listener() {
        let backend = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = backend.local_addr().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        let listener = |backend: &str| {
            format!(
                "listeners: [{{name: web, bind: [\"{free}\"], health: {{kind: tcp}}, \
                 backends: [{{name: {backend}, address: \"{address}\"}}]}}]\n"
            )
        };
        std::fs::write(&path, listener("old")).unwrap();
        let Loaded { config, .. } = load(&path).unwrap();
        let forward = Arc::new(LoadBalancer::start(&config, Options::default()).unwrap());
        let running = Running::start(&path, config, forward.clone(), Reopen::default()).unwrap();
        while !forward.is_ready("web") {
            std::thread::yield_now();
        }
        let vip = "vips: [{name: a, addresses: [192.0.2.1], interface: lo, routerId: 1}]\n";
        std::fs::write(&path, listener("new") + vip).unwrap();
        // Capabilities belong to a thread: this one gives up all it has.
        let refused = std::thread::scope(|scope| {
            let reload = || {
                let none = rustix::thread::CapabilitySet::empty();
                let sets =
                    rustix::thread::CapabilitySets { effective: none, permitted: none, inheritable: none };
                rustix::thread::set_capabilities(None, sets).unwrap();
                running.reload()
            };
            scope.spawn(reload).join().unwrap()
        });
        assert!(
            matches!(&refused, Err(Refusal::Wrong(lines)) if lines[0].contains("NET_ADMIN")),
            "{refused:?}"
        );
        let backend = forward.status().listeners.remove(0).backends.remove(0);
        assert_eq!((backend.name.as_str(), backend.state), ("old", "up"), "as it was, and not made anew");
        running.stop(Duration::ZERO);
    }

    #[test]
    fn what_a_reload_cannot_change_is_named() {
        let config = |text: &str| {
            let text =
                format!("vips: [{{name: a, addresses: [192.0.2.1], interface: eth0, routerId: 1}}]\n{text}");
            butler_lb::config::check(&text, None).0.unwrap()
        };
        let old = config("");
        assert!(fixed(&old, &config("")).is_empty());
        assert_eq!(fixed(&old, &config("threads: 3\n")), ["threads"]);
        let both = config("admin: {socket: /run/x}\naccessLog: {path: /x}\n");
        assert_eq!(fixed(&old, &both), ["admin", "accessLog"]);
    }
}
