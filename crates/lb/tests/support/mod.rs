//! Backends on loopback that do as they are told, and a configuration to start from.
#![allow(dead_code, unreachable_pub)] // every test file uses its own part

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use butler_lb::config::{Backend, CheckKind, Config, HealthCheck, Listener};
use butler_lb::forward::{Handle, LoadBalancer, Options};
use rustix::net::{self, AddressFamily, SocketType};

/// Nothing in these tests should take so long; a hang becomes a failure.
pub const LONG: Duration = Duration::from_secs(20);

/// A server on loopback, with one thread per connection. Dropping it closes its port.
pub struct Server {
    pub address: SocketAddr,
    pub served: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::start_on("127.0.0.1:0".parse().unwrap(), serve)
    }

    pub fn start_on(address: SocketAddr, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (served, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::spawn({
            let (served, over, serve) = (Arc::clone(&served), Arc::clone(&over), Arc::new(serve));
            move || {
                while let Ok((stream, _)) = listener.accept() {
                    served.fetch_add(1, Ordering::SeqCst);
                    let serve = Arc::clone(&serve);
                    std::thread::spawn(move || serve(stream));
                    // Whoever was accepted is served: only those that were not see it die.
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                }
            }
        });
        Self { address, served, over, thread: Some(thread) }
    }

    /// Says its name and ends.
    pub fn named(name: &'static str) -> Self {
        Self::start(move |mut stream| {
            let _ = stream.write_all(name.as_bytes());
        })
    }

    /// Says back what it is told, to the end.
    pub fn echo() -> Self {
        Self::start(echo)
    }

    pub fn served(&self) -> usize {
        self.served.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the accept; when that fails it is awake already.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
    let _ = stream.shutdown(Shutdown::Write);
}

/// An address at which nobody listens, and nobody else can for as long as this is there.
pub struct Nobody {
    pub address: SocketAddr,
    _socket: OwnedFd,
}

pub fn nobody() -> Nobody {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    let address = net::getsockname(&socket).unwrap().try_into().unwrap();
    Nobody { address, _socket: socket }
}

pub fn listener(backends: &[SocketAddr]) -> Listener {
    let backends: Vec<serde_json::Value> = backends
        .iter()
        .enumerate()
        .map(|(number, address)| serde_json::json!({"name": format!("b{number}"), "address": address}))
        .collect();
    let mut listener: Listener = serde_json::from_value(serde_json::json!({
        "name": "test", "bind": ["127.0.0.1:0"], "backends": backends, "balance": "roundRobin",
    }))
    .unwrap();
    listener.health = HealthCheck {
        kind: Some(CheckKind::Tcp),
        interval_ms: Some(60_000),
        port: Some(always_well()),
        ..HealthCheck::default()
    };
    listener
}

/// A port at which checks are always good, so that they are not among what a server serves.
fn always_well() -> u16 {
    static PORT: OnceLock<u16> = OnceLock::new();
    *PORT.get_or_init(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Until the process ends: the kernel keeps 128 that nobody takes, and lets further checks wait.
        std::thread::spawn(move || listener.incoming().for_each(drop));
        port
    })
}

pub fn config(listener: Listener) -> Config {
    let mut config: Config = serde_json::from_str("{}").unwrap();
    config.listeners.push(listener);
    config.threads = Some(2);
    config
}

pub fn start(listener: Listener) -> (Handle, SocketAddr) {
    start_with(listener, Options::default())
}

/// With both threads in use, so that whatever they share is shared.
pub fn start_with(listener: Listener, mut options: Options) -> (Handle, SocketAddr) {
    options.tuning.least_threads = 2;
    let handle = LoadBalancer::start(&config(listener), options).unwrap();
    let address = handle.addresses("test")[0];
    (handle, address)
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream
}

/// Everything that comes until the end.
pub fn hear(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut text = String::new();
    stream.read_to_string(&mut text).map(|_| text)
}

/// Connects and listens to the end.
pub fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(LONG))?;
    hear(&mut stream)
}

/// Waits until the listener says so of its health.
pub fn healthy(handle: &Handle, summary: &str) {
    until(summary, || handle.status().listeners[0].summary == summary);
}

/// Looks until it is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + LONG;
    while !so() {
        assert!(std::time::Instant::now() < end, "{what}: not within {LONG:?}");
        std::thread::yield_now();
    }
}

pub fn backend(name: &str, address: SocketAddr) -> Backend {
    Backend { name: name.to_owned(), address, weight: 1, max_connections: 0 }
}
