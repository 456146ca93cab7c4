//! The handle of a running balancer: starts its threads, drains backends, tells how things are, ends.

use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, RwLock};
use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

use super::{
    access::Log,
    apply::State,
    bell::Bell,
    clock::Clock,
    health::{Charge, Keeper, TargetError},
    inbox::{Command, Inbox, Inboxes},
    mover::Tuning,
    shared::Shared,
    spread::Spread,
    worker::{Start, Worker},
};
use crate::{
    config,
    core::{BackendId, Pool, Time},
    sys,
};

/// Makes balancers.
#[derive(Debug)]
pub struct LoadBalancer;

/// What a balancer is given besides its configuration.
#[derive(Default)]
pub struct Options {
    /// Where connections are written down.
    pub access_log: Option<Box<dyn Write + Send>>,
    /// Sizes and thresholds.
    pub tuning: Tuning,
    /// Randomness of choices and of the times of checks.
    pub seed: u64,
}

/// Why a configuration could not be put into force. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket.
    #[error("listen on {address} for {listener}")]
    Listen {
        /// Which listener.
        listener: String,
        /// Which of its addresses.
        address: SocketAddr,
        /// What the kernel said.
        source: Errno,
    },
    /// A network that is none.
    #[error("listener {listener}: allow: {text} is not a network")]
    Network {
        /// Which listener.
        listener: String,
        /// What was written.
        text: String,
    },
    /// Health checks.
    #[error("health checks of {listener}")]
    Health {
        /// Which listener.
        listener: String,
        /// What is wrong with them.
        source: TargetError,
    },
    /// A reload after a stop has begun.
    #[error("it is stopping")]
    Stopping,
    /// The number of threads.
    #[error("threads can only be changed by a restart")]
    Threads,
    /// A thread.
    #[error("start a thread")]
    Thread(#[source] std::io::Error),
    /// What a thread needs.
    #[error("prepare a thread")]
    Prepare(#[source] Errno),
}

/// A listener or backend that there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownError {
    /// A listener.
    #[error("there is no listener {0}")]
    Listener(String),
    /// A backend.
    #[error("listener {listener} has no backend {backend}")]
    Backend {
        /// The listener.
        listener: String,
        /// The backend.
        backend: String,
    },
}

/// A running balancer. Dropping it ends it at once.
pub struct Handle {
    pub(super) clock: Clock,
    pub(super) seed: u64,
    pub(super) inboxes: Arc<Inboxes>,
    spread: Arc<Spread>,
    /// Locked for as long as a reload takes.
    pub(super) state: Mutex<State>,
    /// The listeners again, for who must not wait for a reload.
    pub(super) known: RwLock<Vec<Arc<Shared>>>,
    pub(super) charge: Arc<Charge>,
    open: Vec<Arc<AtomicU64>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

// === impl LoadBalancer ===

impl LoadBalancer {
    /// Starts the threads and the listeners of a configuration.
    pub fn start(config: &config::Config, options: Options) -> Result<Handle, StartError> {
        raise_limit();
        let clock = Clock::start();
        let count = threads(config);
        let inboxes = Inboxes::new(count).map(Arc::new).map_err(StartError::Prepare)?;
        let bell = Bell::new().map(Arc::new).map_err(StartError::Prepare)?;
        let charge = Arc::new(Charge { bell, over: AtomicBool::new(false), kept: Mutex::default() });
        let handle = Handle {
            clock,
            seed: options.seed,
            inboxes,
            spread: Arc::new(Spread::new(count, options.tuning.least_threads)),
            state: Mutex::default(),
            known: RwLock::default(),
            charge,
            open: (0..count).map(|_| Arc::default()).collect(),
            threads: Mutex::default(),
        };
        handle.start_threads(options)?;
        handle.apply(config)?;
        Ok(handle)
    }
}

/// How many threads a configuration asks for.
pub(super) fn threads(config: &config::Config) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    config.threads.unwrap_or_else(cores).max(1)
}

/// Every connection takes two descriptors, and the usual limit is for programs that have a few.
fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || (limit.current.is_some() && limit.maximum.is_none()) {
        // Without it there is room for fewer connections, which is told when it runs out.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
}

// === impl Handle ===

impl Handle {
    /// Puts another configuration into force, in place: connections stay, listeners that are in both are never closed.
    pub fn reload(&self, config: &config::Config) -> Result<(), StartError> {
        // A file that leaves it open has nothing against what is there, whatever became of the cores.
        if config.threads.is_some() && threads(config) != self.inboxes.each().len() {
            return Err(StartError::Threads);
        }
        self.apply(config)
    }

    /// Where a listener is really bound.
    pub fn addresses(&self, listener: &str) -> Vec<SocketAddr> {
        let state = self.state.lock();
        let serving = state.serving.iter().find(|serving| serving.shared.name == listener);
        serving.map(|serving| serving.binds.iter().map(|(_, actual)| *actual).collect()).unwrap_or_default()
    }

    /// Connections that are there now.
    pub fn connections(&self) -> u64 {
        // Those that move first: who arrives meanwhile is counted twice rather than not at all.
        let moving: u64 = self.inboxes.each().iter().map(Inbox::moving).sum();
        moving + self.open.iter().map(|open| open.load(Ordering::Relaxed)).sum::<u64>()
    }

    /// Threads that new connections go to, and those that there are.
    pub fn threads(&self) -> (usize, usize) {
        (self.spread.used(), self.inboxes.each().len())
    }

    /// Whether a listener is there and would find a healthy backend for a connection. Answers at once, also while a reload
    /// is under way, and is not shaken by one: what was ready stays so until its new backends have been checked.
    pub fn is_ready(&self, listener: &str) -> bool {
        self.known
            .read()
            .iter()
            .find(|shared| shared.name == listener)
            .is_some_and(|shared| shared.is_ready())
    }

    /// No new connections for a backend; those that are there may end within the deregistration delay.
    pub fn drain(&self, listener: &str, backend: &str) -> Result<(), UnknownError> {
        self.change(listener, backend, |pool, id, now| pool.drain(id, now))
    }

    /// Takes a backend back that was drained.
    pub fn undrain(&self, listener: &str, backend: &str) -> Result<(), UnknownError> {
        self.change(listener, backend, |pool, id, now| pool.undrain(id, now))
    }

    /// Cuts connections of clients that came by one of these addresses: it has moved to another machine, so that they would
    /// never end by themselves.
    pub fn leave(&self, addresses: &[IpAddr]) {
        let addresses: Arc<[IpAddr]> = addresses.into();
        self.inboxes.tell_all(|_| Command::Leave { addresses: Arc::clone(&addresses) });
    }

    /// Takes no more connections, and no more reloads; waits until those that are there have ended or `grace` is over, and ends.
    pub fn stop(&self, grace: Duration) {
        let mut state = self.state.lock();
        state.stopping = true;
        let listeners = std::mem::take(&mut state.serving);
        drop(state);
        self.known.write().clear();
        for serving in &listeners {
            self.serve(&serving.shared, &serving.settings, &[], &[], Vec::new());
        }
        let until = Instant::now() + grace;
        while self.connections() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.end();
    }

    fn change(
        &self,
        listener: &str,
        backend: &str,
        change: impl FnOnce(&mut Pool, BackendId, Time),
    ) -> Result<(), UnknownError> {
        let now = self.clock.now();
        let state = self.state.lock();
        let serving = state.serving.iter().find(|serving| serving.shared.name == listener);
        let serving = serving.ok_or_else(|| UnknownError::Listener(listener.to_owned()))?;
        if !serving.shared.change(backend, now, |pool, id| change(pool, id, now)) {
            return Err(UnknownError::Backend { listener: listener.to_owned(), backend: backend.to_owned() });
        }
        self.charge.bell.ring();
        Ok(())
    }

    fn start_threads(&self, options: Options) -> Result<(), StartError> {
        let mut threads = self.threads.lock();
        let mut spawn = |name: String, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name).spawn(run).map_err(StartError::Thread)?;
            threads.push(thread);
            Ok(())
        };
        let log = match options.access_log {
            Some(out) => {
                let (log, writer) = Log::new(out);
                spawn("lb-access-log".to_owned(), Box::new(writer))?;
                Some(log)
            }
            None => None,
        };
        let keeper = Keeper::new(self.clock, Arc::clone(&self.charge));
        let check = || {
            let guard = Irreplaceable("lb-health".to_owned());
            keeper.run();
            std::mem::forget(guard);
        };
        spawn("lb-health".to_owned(), Box::new(check))?;
        for (number, open) in self.open.iter().enumerate() {
            let worker = Worker::new(Start {
                number,
                clock: self.clock,
                inboxes: Arc::clone(&self.inboxes),
                spread: Arc::clone(&self.spread),
                open: Arc::clone(open),
                tuning: options.tuning,
                log: log.clone(),
            });
            let worker = worker.map_err(StartError::Prepare)?;
            let run = move || {
                if let Err(errno) = sys::take_short_turns() {
                    tracing::debug!(%errno, "no shorter turns on a core: answers can be late on a busy machine");
                }
                let guard = Irreplaceable(format!("lb-{number}"));
                match worker.run() {
                    Ok(()) => std::mem::forget(guard),
                    Err(errno) => {
                        tracing::error!(%errno, "a thread of the balancer can't wait for its sockets")
                    }
                }
            };
            spawn(format!("lb-{number}"), Box::new(run))?;
        }
        Ok(())
    }

    fn end(&self) {
        self.charge.over.store(true, Ordering::Release);
        self.charge.bell.ring();
        self.inboxes.tell_all(|_| Command::End);
        // The log ends when those who write to it have.
        for thread in self.threads.lock().drain(..).rev() {
            if thread.join().is_err() {
                tracing::error!("a thread of the balancer has panicked");
            }
        }
    }
}

/// A thread without which the process is of no use: its clients are gone, or nobody looks at backends any more, whoever gives it
/// an order waits for ever, and a process that still looks alive keeps its shared addresses. So it ends, and is started again
/// or replaced by its peer.
pub(super) struct Irreplaceable(pub(super) String);

impl Drop for Irreplaceable {
    fn drop(&mut self) {
        tracing::error!(thread = %self.0, "a thread of the balancer has failed, and the process ends with it");
        std::process::abort();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.end();
    }
}
