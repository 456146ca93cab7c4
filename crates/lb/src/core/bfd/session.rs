//! One session with one peer.
//!
//! Numbers in brackets are sections of RFC 5880. The session is always active: it sends without being sent to.

use super::super::{MILLISECOND, NEVER, Random, SECOND, Time};
use super::packet::{Control, Diagnostic, State};
use crate::config;

/// A session that is not up sends no more often than this (6.8.3): a peer that is gone is not flooded.
const SLOW: Time = SECOND;

/// What a session is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Our number for it, unique on this machine and not 0.
    pub discriminator: u32,
    /// Time between two packets, both ways.
    pub interval: Time,
    /// Missed packets after which a peer counts as gone.
    pub multiplier: u8,
}

/// What is to be done, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send this to the peer.
    Send(Control),
    /// The peer hears us and we hear it.
    Up,
    /// The session was up, and is no more. `AdminDown`: the peer ended it on purpose, which says nothing about the path.
    Down(Diagnostic),
}

/// The state of one session.
#[derive(Debug)]
pub struct Session {
    settings: Settings,
    state: State,
    diagnostic: Diagnostic,
    remote: Option<Remote>,
    /// Whether a change of ours waits for the peer's word that it knows (6.5).
    polling: bool,
    next_send: Time,
    /// Where it has ended: the interval that the peer expects packets in, and until when it is told.
    leaving: Option<(Time, Time)>,
    /// That time is over: there is nothing to be woken for.
    told: bool,
    /// When the peer counts as gone.
    detect_at: Time,
    random: Random,
}

/// What the peer last said.
#[derive(Debug, Clone)]
struct Remote {
    discriminator: u32,
    desired_tx: Time,
    required_rx: Time,
    multiplier: u8,
}

impl Settings {
    /// Those of the configuration.
    pub fn from_config(bfd: &config::Bfd, discriminator: u32) -> Settings {
        let interval = Time::from(bfd.interval_ms.max(1)) * MILLISECOND;
        Settings { discriminator: discriminator.max(1), interval, multiplier: bfd.multiplier.max(1) }
    }
}

impl Session {
    /// A session that begins at `now`.
    pub fn new(settings: Settings, seed: u64, now: Time) -> Session {
        Session {
            settings,
            state: State::Down,
            diagnostic: Diagnostic::None,
            remote: None,
            polling: false,
            next_send: now,
            leaving: None,
            told: false,
            detect_at: NEVER,
            random: Random::new(seed),
        }
    }

    /// What it is.
    pub fn state(&self) -> State {
        self.state
    }

    /// Our number for it: packets for it carry it, once the peer knows it.
    pub fn discriminator(&self) -> u32 {
        self.settings.discriminator
    }

    /// How long the peer may be silent, as far as it is known.
    pub fn detection_time(&self) -> Option<Time> {
        let remote = self.remote.as_ref()?;
        Some(self.settings.interval.max(remote.desired_tx) * Time::from(remote.multiplier))
    }

    /// When `on_timer` is to be called at the latest.
    pub fn next_deadline(&self) -> Time {
        if self.told {
            return NEVER;
        }
        let end = self.leaving.map_or(NEVER, |(_, end)| end);
        self.next_send.min(self.detect_at).min(end)
    }

    /// A packet came from the peer (6.8.6). What has arrived is told before a timer that expired meanwhile.
    pub fn on_packet(&mut self, packet: &Control, now: Time) -> Vec<Output> {
        if packet.yours != 0 && packet.yours != self.settings.discriminator {
            return Vec::new();
        }
        self.remote = Some(Remote {
            discriminator: packet.mine,
            desired_tx: packet.desired_tx,
            required_rx: packet.required_rx,
            multiplier: packet.multiplier,
        });
        if packet.finish {
            self.polling = false;
        }
        if self.state == State::AdminDown {
            return Vec::new();
        }
        self.detect_at = now.saturating_add(self.detection_time().unwrap_or(NEVER));
        let mut outputs = self.follow(packet.state, now);
        if packet.poll {
            outputs.push(self.send(true));
        }
        // A peer that can take more than before gets it now, not after a slow interval has passed.
        self.next_send = self.next_send.min(now.saturating_add(self.transmit_interval()));
        outputs
    }

    /// Time went by.
    pub fn on_timer(&mut self, now: Time) -> Vec<Output> {
        if self.is_over(now) {
            self.told = true;
            return Vec::new();
        }
        let mut outputs = Vec::new();
        if now >= self.detect_at {
            self.detect_at = NEVER;
            // What it said is no longer true (6.8.1): its number is forgotten, and it is not asked to be quick.
            self.remote = None;
            if matches!(self.state, State::Init | State::Up) {
                outputs.extend(self.turn(State::Down, Diagnostic::Expired, now));
            }
        }
        if now >= self.next_send {
            outputs.push(self.send(false));
            self.plan_next(now);
        }
        outputs
    }

    /// Ends on purpose: the peer is told, so that it does not take it for a failure. It is told for as long as it would wait for us
    /// (6.8.16), and as often as it has heard us until now: one packet may get lost. See [`Session::is_over`].
    pub fn stop(&mut self, now: Time) -> Vec<Output> {
        let interval = self.transmit_interval();
        let waits = matches!(self.state, State::Init | State::Up) && interval != NEVER;
        let patience = if waits { interval.saturating_mul(self.settings.multiplier.into()) } else { 0 };
        self.leaving = Some((interval, now.saturating_add(patience)));
        let mut outputs = self.turn(State::AdminDown, Diagnostic::AdminDown, now);
        self.detect_at = NEVER;
        outputs.push(self.send(false));
        self.plan_next(now);
        outputs
    }

    /// Whether it has ended, and the peer has been told often enough.
    pub fn is_over(&self, now: Time) -> bool {
        self.leaving.is_some_and(|(_, end)| now >= end)
    }

    /// The transitions (6.2): what the peer is decides, with what we are, what we become.
    fn follow(&mut self, remote: State, now: Time) -> Vec<Output> {
        match (self.state, remote) {
            (State::Init | State::Up, State::AdminDown) => {
                let outputs = self.turn(State::Down, Diagnostic::NeighbourDown, now);
                outputs.iter().map(|_| Output::Down(Diagnostic::AdminDown)).collect()
            }
            (State::Down, State::Down) => self.turn(State::Init, self.diagnostic, now),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.turn(State::Up, Diagnostic::None, now)
            }
            (State::Up, State::Down) => self.turn(State::Down, Diagnostic::NeighbourDown, now),
            _ => Vec::new(),
        }
    }

    fn turn(&mut self, state: State, diagnostic: Diagnostic, now: Time) -> Vec<Output> {
        let before = std::mem::replace(&mut self.state, state);
        self.diagnostic = diagnostic;
        // The peer waits for this; it is not told only at the next slow interval.
        self.next_send = now;
        // Up, we send faster than we said before: that has to be agreed on.
        self.polling = state == State::Up;
        match (before, state) {
            (_, State::Up) => vec![Output::Up],
            (State::Up, _) => vec![Output::Down(diagnostic)],
            _ => Vec::new(),
        }
    }

    /// How often we say that we send.
    fn desired_tx(&self) -> Time {
        if self.state == State::Up { self.settings.interval } else { self.settings.interval.max(SLOW) }
    }

    /// How often we send: no more often than we want and the peer can take (6.8.2).
    fn transmit_interval(&self) -> Time {
        if let Some((interval, _)) = self.leaving {
            return interval;
        }
        match &self.remote {
            Some(remote) if remote.required_rx == 0 => NEVER,
            Some(remote) => self.desired_tx().max(remote.required_rx),
            None => self.desired_tx(),
        }
    }

    /// The next packet, 75 to 100 % of the interval away, or 75 to 90 % where one lost packet is one too many (6.8.7).
    fn plan_next(&mut self, now: Time) {
        let interval = self.transmit_interval();
        if interval == NEVER {
            self.next_send = NEVER;
            return;
        }
        let (least, spread) = if self.settings.multiplier == 1 { (75, 15) } else { (75, 25) };
        let jitter = self.random.below(interval * spread / 100 + 1);
        self.next_send = now + interval * least / 100 + jitter;
    }

    fn send(&self, finish: bool) -> Output {
        Output::Send(Control {
            diagnostic: self.diagnostic,
            state: self.state,
            // Never both in one packet (6.5).
            poll: self.polling && !finish,
            finish,
            demand: false,
            multiplier: self.settings.multiplier,
            mine: self.settings.discriminator,
            yours: self.remote.as_ref().map_or(0, |remote| remote.discriminator),
            desired_tx: self.desired_tx(),
            required_rx: self.settings.interval,
        })
    }
}
