//! Sessions step by step.

use super::*;
use crate::core::{MILLISECOND, NEVER, SECOND, Time};

fn session(discriminator: u32) -> Session {
    Session::new(Settings { discriminator, interval: 10 * MILLISECOND, multiplier: 3 }, 7, 0)
}

/// Runs two sessions over a perfect link until `end`; returns when each said what.
fn run(a: &mut Session, b: &mut Session, from: Time, end: Time) -> Vec<(Time, u8, Output)> {
    let mut said = Vec::new();
    let mut now = from;
    while now <= end {
        for side in 0..2u8 {
            let (own, other): (&mut Session, &mut Session) = if side == 0 { (a, b) } else { (b, a) };
            if own.next_deadline() > now {
                continue;
            }
            let outputs = own.on_timer(now);
            deliver(outputs, side, own, other, now, &mut said);
        }
        now = a.next_deadline().min(b.next_deadline()).max(now + 1);
    }
    said
}

fn deliver(
    outputs: Vec<Output>,
    side: u8,
    own: &mut Session,
    other: &mut Session,
    now: Time,
    said: &mut Vec<(Time, u8, Output)>,
) {
    for output in outputs {
        match output {
            Output::Send(packet) => {
                let answers = other.on_packet(&packet, now);
                deliver(answers, 1 - side, other, own, now, said);
            }
            other => said.push((now, side, other)),
        }
    }
}

fn sent(outputs: &[Output]) -> &Control {
    outputs
        .iter()
        .find_map(|output| if let Output::Send(packet) = output { Some(packet) } else { None })
        .unwrap()
}

#[test]
fn two_sessions_come_up_and_stay_up() {
    let (mut a, mut b) = (session(1), session(2));
    let said = run(&mut a, &mut b, 0, 10 * SECOND);
    assert_eq!(said.iter().filter(|(_, _, output)| *output == Output::Up).count(), 2);
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!((a.state(), b.state()), (State::Up, State::Up));
    assert_eq!(a.detection_time(), Some(30 * MILLISECOND));
}

#[test]
fn silence_is_noticed_after_the_detection_time_and_said_with_its_reason() {
    let (mut a, mut b) = (session(1), session(2));
    run(&mut a, &mut b, 0, 3 * SECOND);
    let begin = 3 * SECOND;
    let mut now = begin;
    let down = loop {
        now = a.next_deadline().max(now);
        let outputs = a.on_timer(now);
        if outputs.contains(&Output::Down(Diagnostic::Expired)) {
            break outputs;
        }
        assert!(now < begin + SECOND);
    };
    assert!(now <= begin + 30 * MILLISECOND);
    let packet = sent(&down);
    assert_eq!((packet.state, packet.diagnostic), (State::Down, Diagnostic::Expired));
    assert_eq!((packet.yours, packet.desired_tx), (0, SECOND), "what is gone is not known and not flooded");
}

#[test]
fn a_session_that_is_not_up_sends_once_a_second_at_most() {
    let mut a = session(1);
    let mut count = 0;
    while a.next_deadline() < 10 * SECOND {
        count += a.on_timer(a.next_deadline()).len();
    }
    assert!((10..=14).contains(&count), "{count}");
}

#[test]
fn a_poll_is_answered_at_once_and_ends_ours() {
    let (mut a, mut b) = (session(1), session(2));
    run(&mut a, &mut b, 0, 3 * SECOND);
    let now = 3 * SECOND + 1;
    let packet = Control { poll: true, ..sent(&b.on_timer(b.next_deadline())).clone() };
    let answer = sent(&a.on_packet(&packet, now)).clone();
    assert_eq!((answer.finish, answer.poll, answer.yours), (true, false, 2));
    let later = sent(&a.on_timer(a.next_deadline())).clone();
    assert!(!later.poll, "both sides have agreed long ago");
}

#[test]
fn a_restarted_peer_takes_the_session_down_and_up_again() {
    let (mut a, mut b) = (session(1), session(2));
    run(&mut a, &mut b, 0, 3 * SECOND);
    let mut b = Session::new(
        Settings { discriminator: 77, interval: 10 * MILLISECOND, multiplier: 3 },
        8,
        3 * SECOND,
    );
    let said = run(&mut a, &mut b, 3 * SECOND, 6 * SECOND);
    let ours: Vec<&Output> =
        said.iter().filter(|(_, side, _)| *side == 0).map(|(_, _, output)| output).collect();
    assert_eq!(ours, [&Output::Down(Diagnostic::NeighbourDown), &Output::Up]);
}

#[test]
fn an_end_on_purpose_is_told_as_such() {
    let (mut a, mut b) = (session(1), session(2));
    run(&mut a, &mut b, 0, 3 * SECOND);
    let goodbye = sent(&b.stop(3 * SECOND)).clone();
    assert_eq!(goodbye.state, State::AdminDown);
    assert_eq!(a.on_packet(&goodbye, 3 * SECOND), [Output::Down(Diagnostic::AdminDown)]);
    assert_eq!(a.state(), State::Down);
}

#[test]
fn an_end_on_purpose_is_said_until_a_silent_peer_would_have_been_given_up() {
    let (mut a, mut b) = (session(1), session(2));
    run(&mut a, &mut b, 0, 3 * SECOND);
    // The first one gets lost.
    b.stop(3 * SECOND);
    let (mut said, mut count) = (Vec::new(), 0);
    while said.is_empty() || !b.is_over(b.next_deadline()) {
        let (ours, theirs) = (a.next_deadline(), b.next_deadline());
        assert!(theirs < 3 * SECOND + 30 * MILLISECOND, "{said:?}");
        if theirs <= ours {
            let goodbye = sent(&b.on_timer(theirs)).clone();
            assert_eq!(goodbye.state, State::AdminDown);
            count += 1;
            said.extend(a.on_packet(&goodbye, theirs));
        } else {
            said.extend(a.on_timer(ours));
        }
        said.retain(|output| !matches!(output, Output::Send(_)));
    }
    assert_eq!(said, [Output::Down(Diagnostic::AdminDown)], "it is not taken for dead");
    assert!(count >= 3, "{count}");
    assert!(b.is_over(3 * SECOND + 30 * MILLISECOND));
}

#[test]
fn who_has_ended_asks_for_no_more_time() {
    // Nobody was ever heard, so nobody has to be told for long.
    let mut lonely = session(1);
    lonely.stop(SECOND);
    assert!(lonely.is_over(SECOND));
    assert_eq!(lonely.on_timer(SECOND), []);
    assert_eq!(lonely.next_deadline(), NEVER);
}

#[test]
fn packets_for_another_session_are_not_taken() {
    let (mut a, mut b) = (session(1), session(2));
    run(&mut a, &mut b, 0, 3 * SECOND);
    let stray = Control { yours: 9, state: State::Down, ..sent(&b.on_timer(b.next_deadline())).clone() };
    assert_eq!(a.on_packet(&stray, 3 * SECOND), []);
    assert_eq!(a.state(), State::Up);
}

#[test]
fn a_peer_that_takes_nothing_is_sent_nothing() {
    let (mut a, mut b) = (session(1), session(2));
    let packet = Control { required_rx: 0, ..sent(&b.on_timer(0)).clone() };
    a.on_packet(&packet, 0);
    // The change of state is still told once.
    a.on_timer(a.next_deadline());
    assert!(a.on_timer(500 * MILLISECOND).iter().all(|output| !matches!(output, Output::Send(_))));
}
