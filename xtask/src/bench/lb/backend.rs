//! The backends of the bench: three ports served by one thread of this program, with as little work as possible, so that
//! what a proxy costs stays visible beside them. What a client's first byte says is done:
//!
//! ```text
//! G  answer, and wait for the next question      C  answer and close      B  send bytes for as long as somebody takes them
//! ```

use std::{
    net::{Ipv4Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::{
    event::epoll::{self, Event, EventData, EventFlags},
    io::Errno,
    net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt},
    time::Timespec,
};

pub(super) const COUNT: usize = 3;
/// What a question is answered with: about as much as a short HTTP answer with its headers.
pub(super) const ANSWER: [u8; 240] = [b'a'; 240];
const CHUNK: usize = 256 << 10;

/// Dropping it ends it.
pub(super) struct Backends {
    pub(super) addresses: Vec<SocketAddr>,
    over: Arc<AtomicBool>,
    /// The first one is to die.
    doomed: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

struct Server {
    epoll: OwnedFd,
    /// `None` is dead.
    listeners: Vec<Option<OwnedFd>>,
    /// By place, with the listener's; the place of a listener is below `COUNT`.
    connections: Vec<Option<(OwnedFd, usize)>>,
    free: Vec<usize>,
    chunk: Vec<u8>,
}

// === impl Backends ===

impl Backends {
    pub(super) fn start() -> Result<Self> {
        let server = Server::new().context("start the backends")?;
        let addresses = server
            .listeners
            .iter()
            .flatten()
            .map(|socket| SocketAddr::try_from(net::getsockname(socket)?).map_err(anyhow::Error::from))
            .collect::<Result<_>>()?;
        let (over, doomed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let thread = std::thread::Builder::new().name("backends".to_owned()).spawn({
            let (over, doomed) = (Arc::clone(&over), Arc::clone(&doomed));
            move || server.run(&over, &doomed)
        })?;
        Ok(Self { addresses, over, doomed, thread: Some(thread) })
    }

    /// Ends the first backend as `kill -9` would: nobody listens any more, and its connections are reset.
    pub(super) fn kill_one(&self) {
        self.doomed.store(true, Ordering::SeqCst);
        while self.doomed.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
}

impl Drop for Backends {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // It looks up every 100 ms.
            let _ = thread.join();
        }
    }
}

// === impl Server ===

impl Server {
    fn new() -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut listeners = Vec::new();
        for place in 0..COUNT {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
            sockopt::set_tcp_nodelay(&socket, true)?;
            net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            net::listen(&socket, 65_535)?;
            epoll::add(&epoll, &socket, EventData::new_u64(place as u64), EventFlags::IN)?;
            listeners.push(Some(socket));
        }
        Ok(Self { epoll, listeners, connections: Vec::new(), free: Vec::new(), chunk: vec![b'b'; CHUNK] })
    }

    fn run(mut self, over: &AtomicBool, doomed: &AtomicBool) -> Result<()> {
        let mut events: Vec<Event> = Vec::with_capacity(256);
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        while !over.load(Ordering::SeqCst) {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno).context("wait for clients"),
            }
            if doomed.load(Ordering::SeqCst) {
                self.kill_one();
                doomed.store(false, Ordering::SeqCst);
            }
            for event in &events {
                let (place, flags) = (event.data.u64() as usize, event.flags);
                if place < COUNT {
                    self.accept(place);
                } else {
                    self.serve(place - COUNT, flags);
                }
            }
        }
        Ok(())
    }

    fn kill_one(&mut self) {
        self.listeners[0] = None;
        for (place, entry) in (0..).zip(&mut self.connections) {
            if let Some((socket, _)) = entry.take_if(|(_, listener)| *listener == 0) {
                // Closed like this it is reset.
                let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
                self.free.push(place);
            }
        }
    }

    fn accept(&mut self, listener: usize) {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        while let Some(Ok(socket)) =
            self.listeners[listener].as_ref().map(|listening| net::accept_with(listening, flags))
        {
            let place = self.free.pop().unwrap_or(self.connections.len());
            if place == self.connections.len() {
                self.connections.push(None);
            }
            let data = EventData::new_u64((place + COUNT) as u64);
            if epoll::add(&self.epoll, &socket, data, EventFlags::IN | EventFlags::ET).is_ok() {
                self.connections[place] = Some((socket, listener));
            }
        }
    }

    fn serve(&mut self, place: usize, flags: EventFlags) {
        let Some(Some((socket, _))) = self.connections.get(place) else { return };
        let mut question = [0; 1024];
        let stays = if flags.contains(EventFlags::IN) {
            match net::recv(socket, &mut question, RecvFlags::empty()) {
                Ok((_, 1..)) => match question[0] {
                    b'G' => net::send(socket, &ANSWER, SendFlags::NOSIGNAL).is_ok(),
                    b'B' => {
                        let data = EventData::new_u64((place + COUNT) as u64);
                        epoll::modify(
                            &self.epoll,
                            socket,
                            data,
                            EventFlags::IN | EventFlags::OUT | EventFlags::ET,
                        )
                        .is_ok()
                    }
                    _ => {
                        let _ = net::send(socket, &ANSWER, SendFlags::NOSIGNAL);
                        false
                    }
                },
                Err(Errno::AGAIN) => true,
                _ => false,
            }
        } else {
            self.pour(socket)
        };
        if !stays || flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            self.connections[place] = None;
            self.free.push(place);
        }
    }

    /// As much as goes in.
    fn pour(&self, socket: &OwnedFd) -> bool {
        loop {
            match net::send(socket, &self.chunk, SendFlags::NOSIGNAL) {
                Ok(_) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }
}
