//! Control packets, as bytes and as what moves a session.

use crate::feed::Feed;
use butler_lb::core::bfd::{Control, Diagnostic, Output, Session, Settings, State};
use butler_lb::core::{MILLISECOND, SECOND, Time};

const OURS: u32 = 7;
/// Calls at one moment after which a timer must have moved on.
const PATIENCE: usize = 4;
const END_OF_TIME: Time = 1 << 60;

/// One packet, or a sequence of events for one session.
pub fn bfd(data: &[u8]) {
    let mut feed = Feed::new(data);
    match feed.byte() {
        0x80.. => session(&mut feed),
        how => packet(how & 1 == 1, feed.rest()),
    }
}

fn packet(mend: bool, bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if mend {
        mend_header(&mut bytes);
    }
    let Ok(control) = Control::decode(&bytes) else { return };
    assert!(control.mine != 0 && control.multiplier != 0);
    assert!(control.yours != 0 || matches!(control.state, State::Down | State::AdminDown));
    let written = control.encode();
    assert_eq!(Control::decode(&written).as_ref(), Ok(&control));
    // The same bytes again, but for the flag that only concerns hardware, the length, and echoes.
    let kept = |bytes: &[u8]| [&[bytes[0], bytes[1] & !0x08, bytes[2]][..], &bytes[4..20]].concat();
    assert_eq!(kept(&written), kept(&bytes));
}

/// Version 1, our length, nothing that is not supported.
fn mend_header(bytes: &mut [u8]) {
    if bytes.len() >= 24 {
        bytes[0] = bytes[0] & 0x1f | 0x20;
        bytes[1] &= !0x05;
        bytes[3] = 24;
    }
}

struct Watch {
    session: Session,
    now: Time,
    up: bool,
    /// When the peer was last heard, and how long it may be silent since.
    silent_after: Time,
}

fn session(feed: &mut Feed<'_>) {
    let settings = Settings {
        discriminator: OURS,
        interval: feed.within(5, 60_000) * MILLISECOND,
        multiplier: feed.byte().max(1),
    };
    let now = feed.number(4);
    let session = Session::new(settings, feed.number(8), now);
    let mut watch = Watch { session, now, up: false, silent_after: Time::MAX };
    while !feed.is_empty() && watch.now < END_OF_TIME {
        watch.event(feed);
    }
}

impl Watch {
    fn event(&mut self, feed: &mut Feed<'_>) {
        let before = self.session.state();
        let kind = feed.byte();
        let outputs = match kind % 7 {
            0 => self.wait(feed.number(2) * 10),
            1 => {
                self.wait(self.session.next_deadline().min(self.now + 1000 * SECOND).saturating_sub(self.now))
            }
            2 => self.wait(feed.number(4) * MILLISECOND),
            3 if kind >= 240 => {
                self.silent_after = Time::MAX;
                self.session.stop(self.now)
            }
            3 | 4 => {
                let control = peer_says(feed);
                self.hear(&control)
            }
            _ => {
                let mut bytes = feed.take(24).to_vec();
                mend_header(&mut bytes);
                Control::decode(&bytes).map_or(Vec::new(), |control| self.hear(&control))
            }
        };
        self.obey(before, &outputs);
        self.moves_on();
    }

    fn wait(&mut self, span: Time) -> Vec<Output> {
        self.now += span;
        let outputs = self.session.on_timer(self.now);
        let gone = self.now >= self.silent_after;
        assert!(!gone || !matches!(self.session.state(), State::Init | State::Up), "silent, and still there");
        outputs
    }

    fn hear(&mut self, control: &Control) -> Vec<Output> {
        let outputs = self.session.on_packet(control, self.now);
        let ours = control.yours == 0 || control.yours == OURS;
        if ours && self.session.state() != State::AdminDown {
            self.silent_after =
                self.now.saturating_add(self.session.detection_time().expect("a peer is known"));
        }
        let answers =
            outputs.iter().any(|output| matches!(output, Output::Send(Control { finish: true, .. })));
        assert_eq!(answers, ours && control.poll && self.session.state() != State::AdminDown);
        outputs
    }

    fn obey(&mut self, before: State, outputs: &[Output]) {
        for output in outputs {
            match output {
                Output::Up => {
                    assert!(!self.up, "up twice: {outputs:?}");
                    self.up = true;
                }
                Output::Down(why) => {
                    assert!(self.up && *why != Diagnostic::None, "{outputs:?}");
                    self.up = false;
                }
                Output::Send(control) => {
                    assert_eq!(
                        Control::decode(&control.encode()).as_ref(),
                        Ok(control),
                        "a peer would not take it"
                    );
                    assert!(control.mine == OURS && !(control.poll && control.finish));
                }
            }
        }
        let state = self.session.state();
        assert_eq!(self.up, state == State::Up, "{before:?} to {state:?}: {outputs:?}");
        assert!(before != State::AdminDown || state == before, "it was ended on purpose");
    }

    fn moves_on(&mut self) {
        for _ in 0..PATIENCE {
            if self.session.next_deadline() > self.now {
                return;
            }
            let before = self.session.state();
            let outputs = self.session.on_timer(self.now);
            self.obey(before, &outputs);
        }
        panic!("{:?} asks to be woken at {} for ever", self.session.state(), self.now);
    }
}

/// A peer that mostly knows our number.
fn peer_says(feed: &mut Feed<'_>) -> Control {
    let kinds = feed.byte();
    let state = [State::AdminDown, State::Down, State::Init, State::Up][usize::from(kinds & 3)];
    let knows = kinds & 4 == 4 || matches!(state, State::Init | State::Up);
    Control {
        diagnostic: Diagnostic::None,
        state,
        poll: kinds & 8 == 8,
        finish: kinds & 16 == 16,
        demand: kinds & 32 == 32,
        multiplier: feed.byte().max(1),
        mine: 1 + u32::from(kinds >> 6),
        yours: if knows { OURS } else { 0 },
        desired_tx: feed.number(4),
        required_rx: if kinds & 128 == 128 { feed.number(4) } else { 10 * MILLISECOND },
    }
}
