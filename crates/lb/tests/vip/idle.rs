//! How soon the clients of idle connections learn that the holder has changed. `BUTLER_LB_ROUNDS` repeats it and prints figures.

use crate::agent::Agent;
use crate::lab::{Lab, PATIENCE, wait};
use crate::ours::{VIP, pair, vip};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Far above what it takes, and far below what a client's own keepalive would.
const SOON: Duration = Duration::from_secs(4);

/// How a holder is lost.
#[derive(Debug, Clone, Copy)]
enum End {
    Killed,
    Stopped,
}

/// Whether the standby has heard of the connections for long when that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Known,
    /// They were made in the moment before.
    New,
}

/// Idle connections of the client to `a`.
fn crowd(lab: &Lab, count: usize) -> Vec<TcpStream> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let all = (0..count).map(|_| {
        let (stream, name) = lab.idle_connection(VIP);
        assert_eq!(name, "a");
        stream
    });
    all.collect()
}

/// When each of them has learnt of its end, counted from `begin`, and how many have not.
fn learnt(mut streams: Vec<TcpStream>, begin: Instant) -> (Vec<Duration>, usize) {
    let mut times = Vec::new();
    while !streams.is_empty() && begin.elapsed() < PATIENCE {
        let mut fds: Vec<_> = streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })).unwrap();
        let now = begin.elapsed();
        let over: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut over = over.into_iter();
        let before = streams.len();
        streams.retain(|_| over.next() == Some(false));
        times.resize(times.len() + before - streams.len(), now);
    }
    (times, streams.len())
}

/// Keeps every core busy until it is dropped.
struct Load(Arc<AtomicBool>, Vec<thread::JoinHandle<()>>);

impl Load {
    fn start() -> Load {
        let over = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(2, usize::from);
        let spin = |over: Arc<AtomicBool>| thread::spawn(move || while !over.load(Ordering::Relaxed) {});
        Load(over.clone(), (0..2 * cores).map(|_| spin(over.clone())).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        self.1.drain(..).for_each(|thread| thread.join().unwrap());
    }
}

/// Loses the holder once: the times of the first, the middle and the last of its clients to learn.
fn lose(lab: &Lab, end: End, when: When, count: usize, loaded: bool) -> [Duration; 3] {
    lab.take_off_everywhere(VIP);
    let (mut a, mut b) = pair_again(lab, when);
    let streams = crowd(lab, count);
    if when == When::Known {
        // Those of earlier rounds are still there on its side.
        wait("the standby knows of all", || {
            let known = b.mirrored();
            if known >= count { Ok(()) } else { Err(format!("{known} of {count}")) }
        });
    }
    let _load = loaded.then(Load::start);
    let streams = if when == When::New { crowd(lab, count) } else { streams };
    let begin = Instant::now();
    let clients = thread::spawn(move || learnt(streams, begin));
    match end {
        End::Killed => a.kill(),
        End::Stopped => a.stop(),
    }
    let (times, unaware) = clients.join().unwrap();
    assert_eq!(unaware, 0, "clients that were not told, of {count}");
    [times[0], times[times.len() / 2], times[times.len() - 1]]
}

fn pair_again(lab: &Lab, when: When) -> (Agent, Agent) {
    // The shorter the interval, the less time there is between the last word of a holder and its end.
    let more = if when == When::New { r#", "advertMs": 10"# } else { "" };
    let a = Agent::start(lab, "a", &vip(150, more));
    lab.wait_for_holder("a", VIP);
    let mut b = Agent::start(lab, "b", &vip(100, more));
    b.wait_for_status("role: Backup");
    // The end of the holder's process is noticed at once.
    b.wait_for_status("lifeline: true");
    (a, b)
}

fn rounds() -> usize {
    std::env::var("BUTLER_LB_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn time_it(end: End, when: When, count: usize, loaded: bool) {
    let Some(lab) = Lab::new(&["a", "b", "client"]) else { return };
    drop(pair(&lab, VIP, ""));
    for _ in 0..rounds() {
        let [first, middle, last] = lose(&lab, end, when, count, loaded);
        println!("{end:?} {when:?} {count} loaded={loaded}: first {first:?} middle {middle:?} last {last:?}");
        assert!(last < SOON, "{end:?}: {last:?}");
    }
}

#[test]
fn an_idle_client_learns_of_a_kill() {
    time_it(End::Killed, When::Known, 1, false);
}

#[test]
fn an_idle_client_learns_of_a_clean_stop() {
    time_it(End::Stopped, When::Known, 1, false);
}

#[test]
fn a_crowd_of_idle_clients_learns_of_a_clean_stop_on_a_busy_machine() {
    time_it(End::Stopped, When::Known, 200, true);
}

#[test]
fn a_crowd_of_idle_clients_learns_of_a_kill_on_a_busy_machine() {
    time_it(End::Killed, When::Known, 200, true);
}

#[test]
fn clients_that_came_just_before_a_clean_stop_learn_of_it_on_a_busy_machine() {
    time_it(End::Stopped, When::New, 5, true);
}
