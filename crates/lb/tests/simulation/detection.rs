//! Two machines that watch each other by BFD.
//!
//! What is proved: a peer that is no longer heard is told as down within the detection time (and a late timer); after the
//! last fault has healed both are up within four seconds, and stay up.

use butler_lb::core::bfd::{Control, Output, Session, Settings, State};
use butler_lb::core::{MILLISECOND, NEVER, Random, SECOND, Time};

const FAULTY: Time = 8 * SECOND;
const SETTLE: Time = 4 * SECOND;
const END: Time = FAULTY + SETTLE + SECOND;

struct World {
    now: Time,
    random: Random,
    ends: [End; 2],
    wire: Vec<(Time, usize, [u8; 24])>,
    interval: Time,
    loss: u64,
    ups: u64,
    trace: bool,
}

struct End {
    session: Session,
    wake: Time,
    /// Whether packets from here are lost.
    cut: bool,
    paused: bool,
    /// What arrived during a pause.
    inbox: Vec<[u8; 24]>,
    /// When it last heard something.
    heard: Time,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Cut(usize, bool),
    Pause(usize, bool),
    Loss(u64),
    Restart(usize),
}

#[test]
fn silence_is_told_in_time_and_peers_find_each_other_again() {
    let ups = crate::run(15, |seed, trace| World::new(seed, trace).run());
    assert!(ups > 0);
}

impl World {
    fn new(seed: u64, trace: bool) -> World {
        let mut random = Random::new(seed ^ 0xbfd);
        let interval = [50, 100, 300][random.below(3) as usize] * MILLISECOND;
        let ends = [0, 1].map(|_| End {
            session: session(&mut random, interval, 0),
            wake: 0,
            cut: false,
            paused: false,
            inbox: Vec::new(),
            heard: 0,
        });
        World { now: 0, random, ends, wire: Vec::new(), interval, loss: 0, ups: 0, trace }
    }

    fn script(&mut self) -> Vec<(Time, Action)> {
        let mut script = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let from = self.random.below(FAULTY);
            let until = (from + self.random.below(2 * SECOND)).min(FAULTY);
            let end = self.random.below(2) as usize;
            match self.random.below(5) {
                0 => script.extend([(from, Action::Cut(end, true)), (until, Action::Cut(end, false))]),
                1 => {
                    script.extend([(from, Action::Cut(0, true)), (until, Action::Cut(0, false))]);
                    script.extend([(from, Action::Cut(1, true)), (until, Action::Cut(1, false))]);
                }
                2 => script.extend([(from, Action::Pause(end, true)), (until, Action::Pause(end, false))]),
                3 => script.extend([(from, Action::Loss(self.random.below(70))), (until, Action::Loss(0))]),
                _ => script.push((from, Action::Restart(end))),
            }
        }
        let ends =
            [Action::Cut(0, false), Action::Cut(1, false), Action::Pause(0, false), Action::Pause(1, false)];
        script.extend(ends.map(|action| (FAULTY, action)));
        script.push((FAULTY, Action::Loss(0)));
        script.sort_by_key(|(at, _)| *at);
        script
    }

    fn run(mut self) -> Result<u64, String> {
        let script = self.script();
        let mut next_action = 0;
        loop {
            let action = script.get(next_action).map_or(NEVER, |(at, _)| *at);
            let packet = self.wire.iter().map(|(at, ..)| *at).min().unwrap_or(NEVER);
            let wake = self.ends.iter().filter(|end| !end.paused).map(|end| end.wake).min().unwrap_or(NEVER);
            self.now = action.min(packet).min(wake);
            if self.now > END {
                break;
            }
            if packet == self.now {
                self.deliver()?;
            } else if action == self.now {
                self.act(script[next_action].1)?;
                next_action += 1;
            } else if let Some(at) = self.ends.iter().position(|end| !end.paused && end.wake == self.now) {
                let outputs = self.ends[at].session.on_timer(self.now);
                self.obey(at, outputs);
            }
            self.check()?;
        }
        if self.ups < 2 {
            return Err("they never found each other".to_owned());
        }
        Ok(self.ups)
    }

    fn deliver(&mut self) -> Result<(), String> {
        let Some(at) = self.wire.iter().position(|(at, ..)| *at == self.now) else { return Ok(()) };
        let (_, to, bytes) = self.wire.swap_remove(at);
        if self.ends[to].paused {
            self.ends[to].inbox.push(bytes);
            return Ok(());
        }
        self.hear(to, &bytes)
    }

    fn hear(&mut self, to: usize, bytes: &[u8]) -> Result<(), String> {
        let packet = Control::decode(bytes).map_err(|error| error.to_string())?;
        self.ends[to].heard = self.now;
        let outputs = self.ends[to].session.on_packet(&packet, self.now);
        self.obey(to, outputs);
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), String> {
        if self.trace {
            println!("{:>10} {action:?}", self.now);
        }
        match action {
            Action::Cut(end, cut) => self.ends[end].cut = cut,
            Action::Loss(percent) => self.loss = percent,
            Action::Pause(end, true) => self.ends[end].paused = true,
            Action::Pause(end, false) => return self.resume(end),
            Action::Restart(end) => {
                self.ends[end].session = session(&mut self.random, self.interval, self.now);
                self.ends[end].wake = self.now;
            }
        }
        Ok(())
    }

    /// What waited in the socket is read before the clock is looked at.
    fn resume(&mut self, at: usize) -> Result<(), String> {
        let end = &mut self.ends[at];
        if !std::mem::take(&mut end.paused) {
            return Ok(());
        }
        // Its silence begins to count when it could have been noticed.
        let patience = end.session.detection_time().unwrap_or(0);
        end.heard = end.heard.max(self.now.saturating_sub(patience));
        end.wake = end.wake.max(self.now);
        for bytes in std::mem::take(&mut end.inbox) {
            self.hear(at, &bytes)?;
        }
        Ok(())
    }

    fn obey(&mut self, at: usize, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Send(packet) => self.send(at, &packet),
                Output::Up => self.ups += 1,
                Output::Down(why) if self.trace => println!("{:>10} {at} down: {why:?}", self.now),
                Output::Down(_) => {}
            }
        }
        let late = self.random.below(MILLISECOND);
        let end = &mut self.ends[at];
        end.wake = end.session.next_deadline().max(self.now).saturating_add(late);
    }

    fn send(&mut self, from: usize, packet: &Control) {
        if self.ends[from].cut || self.random.chance(self.loss) {
            return;
        }
        let at = self.now + 1 + self.random.below(self.interval / 10);
        self.wire.push((at, 1 - from, packet.encode()));
        if self.now < FAULTY && self.random.chance(5) {
            self.wire.push((at + self.random.below(self.interval / 4), 1 - from, packet.encode()));
        }
    }

    fn check(&self) -> Result<(), String> {
        for (index, end) in self.ends.iter().enumerate() {
            let up = end.session.state() == State::Up;
            let patience = end.session.detection_time().unwrap_or(NEVER);
            let silent = self.now.saturating_sub(end.heard);
            if up && !end.paused && silent > patience.saturating_add(4 * MILLISECOND) {
                return Err(format!("{index} is up after {silent} of silence at {}", self.now));
            }
            if !up && self.now > FAULTY + SETTLE {
                return Err(format!("{index} is {:?} at {}", end.session.state(), self.now));
            }
        }
        Ok(())
    }
}

fn session(random: &mut Random, interval: Time, now: Time) -> Session {
    let discriminator = 1 + random.below(1 << 31) as u32;
    Session::new(Settings { discriminator, interval, multiplier: 3 }, random.draw(), now)
}
