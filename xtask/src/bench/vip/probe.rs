//! The client's view: a datagram every millisecond and a new connection every five, and when each was answered. The outage
//! is the longest silence between two answers; answers that come late do not shorten it.
//!
//! The hosts' side is here too ([`answer`]): a process per host, so that it can die with the program that is measured.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr, TcpListener, UdpSocket},
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, sockopt},
};

const PORT: u16 = 7000;
const DATAGRAM_EVERY: Duration = Duration::from_millis(1);
const CONNECT_EVERY: Duration = Duration::from_millis(5);
/// A connection attempt that was not answered by then is given up: its repetition would come a second later.
const GIVE_UP: Duration = Duration::from_millis(300);

/// When answers came.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) datagrams: Vec<Instant>,
    pub(super) connections: Vec<Instant>,
}

// === impl Answers ===

impl Answers {
    /// The longest silence after `from`, by datagrams and by connections. What was being asked for at the end counts.
    pub(super) fn outages(&self, from: Instant, end: Instant) -> (Duration, Duration) {
        (longest(&self.datagrams, from, end), longest(&self.connections, from, end))
    }
}

fn longest(answers: &[Instant], from: Instant, end: Instant) -> Duration {
    // The last answer before the event begins the first silence.
    let first = answers.iter().rev().find(|at| **at <= from).copied().unwrap_or(from);
    let mut longest = Duration::ZERO;
    let mut last = first;
    for at in answers.iter().filter(|at| **at > from).chain([&end]) {
        longest = longest.max(at.saturating_duration_since(last));
        last = *at;
    }
    longest
}

/// Answers at an address, whether this host has it yet or not, until it is killed.
pub(super) fn answer(address: IpAddr) -> Result<()> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).context("bind TCP")?;
    // Bound to the address: answers from any other would not be taken for answers.
    let socket =
        rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).context("make a socket")?;
    sockopt::set_ip_freebind(&socket, true).context("bind before the address is there")?;
    rustix::net::bind(&socket, &SocketAddr::new(address, PORT)).context("bind UDP")?;
    let socket = UdpSocket::from(socket);
    thread::spawn(move || {
        for stream in listener.incoming() {
            drop(stream);
        }
    });
    let mut buffer = [0; 64];
    loop {
        // A client's port that is gone comes back as an error of a later call.
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

/// Whether an address answers a datagram.
pub(super) fn is_answered(address: IpAddr) -> bool {
    let ask = || -> std::io::Result<usize> {
        let socket = UdpSocket::bind(("0.0.0.0", 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        socket.connect((address, PORT))?;
        socket.send(b"?")?;
        socket.recv(&mut [0; 8])
    };
    ask().is_ok()
}

/// Asks until told to stop. Runs in the client's namespace.
pub(super) fn ask(address: IpAddr, stop: &AtomicBool) -> Result<Answers> {
    let to = SocketAddr::new(address, PORT);
    let socket = UdpSocket::bind(("0.0.0.0", 0)).context("bind the client's socket")?;
    socket.set_read_timeout(Some(Duration::from_millis(20))).context("set a timeout")?;
    thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut next = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                // While nobody has the address this fails, and that is what is measured.
                let _ = socket.send_to(b"?", to);
                next += DATAGRAM_EVERY;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        let connector = scope.spawn(|| connect(to, stop));
        let mut datagrams = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            if socket.recv(&mut [0; 8]).is_ok() {
                datagrams.push(Instant::now());
            }
        }
        let _ = sender.join();
        let connections = connector.join().unwrap_or_default();
        Ok(Answers { datagrams, connections })
    })
}

/// Opens connections side by side, so that one that hangs does not hide that the next would be answered.
fn connect(to: SocketAddr, stop: &AtomicBool) -> Vec<Instant> {
    let mut answered = Vec::new();
    let mut open: VecDeque<(Instant, OwnedFd)> = VecDeque::new();
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now >= next {
            next += CONNECT_EVERY;
            open.extend(begin(to).map(|socket| (now, socket)));
        }
        while open.front().is_some_and(|(begun, _)| now - *begun > GIVE_UP) {
            open.pop_front();
        }
        let wait = next.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        let mut fds: Vec<_> = open.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::OUT)).collect();
        if rustix::event::poll(&mut fds, Some(&timeout)).is_err() {
            continue;
        }
        let ended: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let mut ended = ended.into_iter();
        open.retain(|(_, socket)| {
            if !ended.next().unwrap_or(false) {
                return true;
            }
            if matches!(sockopt::socket_error(socket), Ok(Ok(()))) {
                answered.push(Instant::now());
            }
            false
        });
    }
    answered
}

fn begin(to: SocketAddr) -> Option<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).ok()?;
    // Closed by a reset: no port stays taken.
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).ok()?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Some(socket),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_silence_begins_before_the_event_and_may_last_to_the_end() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let answers = [at(0), at(90), at(110), at(150), at(160)];
        assert_eq!(longest(&answers, at(100), at(165)), Duration::from_millis(40));
        assert_eq!(longest(&answers, at(100), at(400)), Duration::from_millis(240));
        assert_eq!(longest(&answers, at(112), at(160)), Duration::from_millis(40));
        assert_eq!(longest(&[], at(0), at(50)), Duration::from_millis(50));
    }
}
