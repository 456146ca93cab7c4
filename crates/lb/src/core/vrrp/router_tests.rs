//! The election step by step. The schedules that nobody would think of are in the simulation (`tests/simulation`).

use super::*;
use crate::core::{MILLISECOND, SECOND, Time};
use std::net::IpAddr;

const INTERVAL: Time = 100 * MILLISECOND;

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn settings(last: u8, priority: u8) -> Settings {
    Settings {
        version: Version::V3,
        router_id: 51,
        priority,
        interval: INTERVAL,
        preempt: false,
        preempt_delay: 0,
        source: ip(last),
        addresses: vec![ip(100)],
        tracks: Vec::new(),
        announcements: 3,
    }
}

fn backup(settings: Settings) -> Router {
    let mut router = Router::new(settings, 0);
    assert_eq!(router.on_timer(0), [Output::DelAddress, Output::Become(Role::Backup)]);
    router
}

fn master(settings: Settings) -> (Router, Time) {
    let mut router = backup(settings);
    let at = router.next_deadline();
    router.on_timer(at);
    assert_eq!(router.role(), Role::Master);
    (router, at)
}

fn advert(priority: u8) -> Advert {
    Advert { version: Version::V3, router_id: 51, priority, interval: INTERVAL, addresses: vec![ip(100)] }
}

#[test]
fn alone_it_takes_the_addresses_after_three_intervals_and_its_skew() {
    let mut router = backup(settings(1, 100));
    let due = 3 * INTERVAL + INTERVAL * 156 / 256;
    assert_eq!(router.next_deadline(), due);
    assert_eq!(router.on_timer(due - 1), []);
    let outputs = router.on_timer(due);
    let expected =
        [Output::AddAddress, Output::Announce, Output::SendAdvert(advert(100)), Output::Become(Role::Master)];
    assert_eq!(outputs, expected);
}

#[test]
fn version_2_counts_its_skew_in_seconds() {
    let router = backup(Settings { version: Version::V2, interval: 2 * SECOND, ..settings(1, 128) });
    assert_eq!(router.next_deadline(), 6 * SECOND + SECOND / 2);
}

#[test]
fn announcements_are_repeated_and_then_refreshed() {
    let (mut router, at) = master(settings(1, 100));
    let mut announced = Vec::new();
    while announced.len() < 4 {
        let now = router.next_deadline();
        if router.on_timer(now).contains(&Output::Announce) {
            announced.push((now - at).div_ceil(MILLISECOND));
        }
    }
    assert_eq!(announced, [50, 200, 60_200, 120_200]);
}

#[test]
fn without_preemption_a_weaker_holder_is_respected() {
    let mut router = backup(settings(1, 200));
    for tick in 1..50 {
        router.on_advert(&advert(10), ip(2), tick * INTERVAL);
        assert_eq!(router.on_timer(tick * INTERVAL), []);
    }
    assert_eq!((router.role(), router.holder()), (Role::Backup, Some((ip(2), 10))));
}

#[test]
fn preemption_waits_for_its_delay() {
    let mut router = backup(Settings { preempt: true, preempt_delay: 2 * SECOND, ..settings(1, 200) });
    let mut now = 0;
    while router.role() == Role::Backup {
        now += INTERVAL;
        router.on_advert(&advert(10), ip(2), now);
        router.on_timer(now);
        assert!(now < 3 * SECOND);
    }
    assert!(now > 2 * SECOND, "took over after {now}");
}

#[test]
fn of_two_holders_the_stronger_stays_and_tells_the_network_again() {
    let (mut strong, at) = master(settings(1, 150));
    assert_eq!(
        strong.on_advert(&advert(100), ip(2), at + 1),
        [Output::SendAdvert(advert(150)), Output::Announce]
    );
    assert_eq!(strong.on_advert(&advert(100), ip(2), at + 2), [], "once per interval");

    let (mut weak, at) = master(settings(2, 100));
    assert_eq!(weak.on_advert(&advert(150), ip(1), at), [Output::DelAddress, Output::Become(Role::Backup)]);
}

#[test]
fn of_two_equals_the_higher_address_stays() {
    let (mut low, at) = master(settings(1, 100));
    assert_eq!(low.on_advert(&advert(100), ip(2), at)[0], Output::DelAddress);
    let (mut high, at) = master(settings(2, 100));
    assert!(high.on_advert(&advert(100), ip(1), at).contains(&Output::Announce));
}

#[test]
fn a_resignation_leaves_only_the_skew_and_only_the_holder_can_resign() {
    let mut router = backup(settings(1, 156));
    router.on_advert(&advert(200), ip(2), 0);
    router.on_advert(&advert(0), ip(3), 10);
    assert!(router.next_deadline() > 3 * INTERVAL);
    router.on_advert(&advert(0), ip(2), 10);
    assert_eq!(router.next_deadline(), 10 + INTERVAL * 100 / 256);
    router.on_advert(&advert(0), ip(2), 20);
    assert_eq!(router.next_deadline(), 10 + INTERVAL * 100 / 256, "a repetition puts nothing off");
}

#[test]
fn a_clean_stop_keeps_the_addresses_until_the_successor_is_heard() {
    let (mut router, at) = master(settings(1, 150));
    assert_eq!(router.stop(at), [Output::SendAdvert(advert(0)), Output::Become(Role::Resigning)]);
    assert!(router.role().holds());
    let outputs = router.on_advert(&advert(100), ip(2), at + INTERVAL / 2);
    assert_eq!(outputs, [Output::DelAddress, Output::Become(Role::Stopped)]);
}

#[test]
fn a_clean_stop_without_successor_ends_by_itself() {
    let (mut router, at) = master(settings(1, 150));
    router.stop(at);
    let mut sent = 0;
    while router.role() == Role::Resigning {
        let now = router.next_deadline();
        assert!(now <= at + 5 * INTERVAL);
        sent += router.on_timer(now).contains(&Output::SendAdvert(advert(0))) as u32;
    }
    assert_eq!((router.role(), sent), (Role::Stopped, 3));
}

#[test]
fn a_failed_check_moves_the_addresses_although_nobody_preempts() {
    let (mut holder, at) = master(Settings { tracks: vec![60], ..settings(1, 150) });
    assert_eq!(holder.priority(), Some(90), "not passed yet");
    holder.on_track(0, true, at);
    let mut other = backup(settings(2, 100));
    other.on_advert(&advert(150), ip(1), at);

    let outputs = holder.on_track(0, false, at);
    assert_eq!(outputs, [Output::SendAdvert(advert(0)), Output::Become(Role::Resigning)]);
    other.on_advert(&advert(0), ip(1), at);
    assert!(other.next_deadline() < holder.next_deadline(), "the stronger is the faster");
    let taken = other.next_deadline();
    assert!(other.on_timer(taken).contains(&Output::AddAddress));
    assert_eq!(holder.on_advert(&advert(100), ip(2), taken)[0], Output::DelAddress);
    assert_eq!(holder.role(), Role::Backup);
}

/// A holder of this priority loses the check of weight 20; its peer has priority 100, and a packet takes a tenth of a millisecond.
/// Who holds the addresses then.
fn holder_after_a_failed_check(priority: u8) -> (Role, Role) {
    const WAY: Time = MILLISECOND / 10;
    let (mut holder, at) = master(Settings { tracks: vec![20], ..settings(1, priority) });
    holder.on_track(0, true, at);
    let mut peer = backup(settings(2, 100));
    peer.on_advert(&advert(priority), ip(1), at);
    let mut wire: Vec<(Time, bool, Advert)> = Vec::new();
    let send = |wire: &mut Vec<_>, from_holder: bool, now: Time, outputs: Vec<Output>| {
        for output in outputs {
            if let Output::SendAdvert(advert) = output {
                wire.push((now + WAY, from_holder, advert));
            }
        }
    };
    let outputs = holder.on_track(0, false, at);
    send(&mut wire, true, at, outputs);
    let end = at + 10 * INTERVAL;
    loop {
        wire.sort_by_key(|(due, ..)| *due);
        let packet = wire.first().map_or(Time::MAX, |(due, ..)| *due);
        let now = packet.min(holder.next_deadline()).min(peer.next_deadline());
        if now > end {
            return (holder.role(), peer.role());
        }
        if packet == now {
            let (_, from_holder, advert) = wire.remove(0);
            let (to, from) = if from_holder { (&mut peer, ip(1)) } else { (&mut holder, ip(2)) };
            let outputs = to.on_advert(&advert, from, now);
            send(&mut wire, !from_holder, now, outputs);
        } else if holder.next_deadline() == now {
            let outputs = holder.on_timer(now);
            send(&mut wire, true, now, outputs);
        } else {
            let outputs = peer.on_timer(now);
            send(&mut wire, false, now, outputs);
        }
    }
}

#[test]
fn a_failed_check_moves_the_addresses_to_a_stronger_peer_and_to_no_weaker_one() {
    for gap in 1..=100 {
        assert_eq!(holder_after_a_failed_check(120 + gap), (Role::Master, Role::Backup), "stronger by {gap}");
    }
    for gap in 1..=90 {
        assert_eq!(holder_after_a_failed_check(120 - gap), (Role::Backup, Role::Master), "weaker by {gap}");
    }
}

#[test]
fn unfit_it_takes_no_part_until_the_check_passes() {
    let mut router = Router::new(Settings { tracks: vec![0], ..settings(1, 150) }, 0);
    assert_eq!(router.on_timer(0), [Output::DelAddress, Output::Become(Role::Fault)]);
    assert_eq!(router.next_deadline(), Time::MAX);
    assert_eq!(router.on_track(0, true, SECOND), [Output::Become(Role::Backup)]);
    router.on_timer(router.next_deadline());
    assert_eq!(router.role(), Role::Master);
    router.on_track(0, false, 2 * SECOND);
    router.on_advert(&advert(50), ip(2), 2 * SECOND + 1);
    assert_eq!(router.role(), Role::Fault);
}

#[test]
fn a_holder_that_slept_steps_down_before_it_speaks() {
    let (mut router, at) = master(settings(1, 150));
    let outputs = router.on_timer(at + 10 * INTERVAL);
    assert_eq!(outputs, [Output::DelAddress, Output::Become(Role::Backup)]);
}

#[test]
fn a_backup_that_slept_looks_once_more_and_only_once() {
    let mut router = backup(settings(1, 150));
    router.on_advert(&advert(200), ip(2), 0);
    assert_eq!(router.on_timer(20 * INTERVAL), []);
    let due = router.next_deadline();
    assert!(due < 22 * INTERVAL);
    assert!(router.on_timer(due + 20 * INTERVAL).contains(&Output::Become(Role::Master)));
}

#[test]
fn when_the_holder_is_known_to_be_gone_nobody_waits_for_adverts() {
    let mut router = backup(settings(1, 100));
    router.on_advert(&advert(200), ip(2), 0);
    router.on_peer_down(ip(3), 1000);
    assert!(router.next_deadline() > 3 * INTERVAL, "that was not the holder");
    router.on_peer_down(ip(2), 1000);
    assert!(router.next_deadline() <= 1000 + 4 * MILLISECOND);
}

#[test]
fn a_peer_whose_clock_is_off_is_not_taken_for_silent_and_moves_nothing() {
    let mut router = backup(settings(1, 200));
    let mut now = 0;
    for _ in 0..20 {
        now += INTERVAL;
        router.on_doubtful_advert(true, now);
        assert_eq!(router.on_timer(now), []);
    }
    // When it is silent as well, it is gone.
    let due = router.next_deadline();
    assert!(due <= now + 4 * INTERVAL);
    assert!(router.on_timer(due).contains(&Output::Become(Role::Master)));
    router.on_doubtful_advert(true, due);
    assert_eq!(router.role(), Role::Master, "whoever holds is not moved by a recording");
}

/// Plays what may be a recording at every interval, and says when the router takes over.
fn taken_over_despite_recordings(mut router: Router, from: Time) -> Time {
    let mut now = from;
    while router.role() == Role::Backup {
        assert!(now < from + 200 * SECOND, "it is kept from it for good");
        now += INTERVAL;
        router.on_doubtful_advert(false, now);
        while router.role() == Role::Backup && router.next_deadline() <= now {
            router.on_timer(router.next_deadline());
        }
    }
    now
}

#[test]
fn recordings_do_not_keep_who_has_heard_the_holder_from_taking_over() {
    let mut router = backup(settings(1, 200));
    router.on_advert(&advert(250), ip(2), 0);
    let due = router.next_deadline();
    assert!(taken_over_despite_recordings(router, 0) <= due + INTERVAL);
}

#[test]
fn recordings_keep_who_has_heard_nobody_from_taking_over_for_a_minute() {
    let at = taken_over_despite_recordings(backup(settings(1, 200)), 0);
    assert!((60 * SECOND..60 * SECOND + 5 * INTERVAL).contains(&at), "{at}");
}

#[test]
fn adverts_that_are_not_for_us_say_why() {
    let mut router = backup(settings(1, 100));
    let other = Advert { router_id: 9, ..advert(100) };
    assert_eq!(router.on_advert(&other, ip(2), 0), [Output::Ignored(Ignored::RouterId)]);
    assert_eq!(router.on_advert(&advert(100), ip(1), 0), [Output::Ignored(Ignored::Own)]);
    let v2 = Advert { version: Version::V2, ..advert(100) };
    assert_eq!(router.on_advert(&v2, ip(2), 0), [Output::Ignored(Ignored::Version)]);
    let mut router = backup(Settings { version: Version::V2, interval: SECOND, ..settings(1, 100) });
    assert_eq!(router.on_advert(&v2, ip(2), 0), [Output::Ignored(Ignored::Interval)]);
}

#[test]
fn a_backup_waits_as_long_as_the_holder_says() {
    let mut router = backup(settings(1, 128));
    router.on_advert(&Advert { interval: SECOND, ..advert(200) }, ip(2), 0);
    assert_eq!(router.next_deadline(), 3 * SECOND + SECOND / 2);
}

#[test]
fn new_settings_change_no_role() {
    let (mut router, at) = master(settings(1, 150));
    assert_eq!(
        router.reconfigure(Settings { priority: 90, tracks: vec![0], ..settings(1, 90) }, &[], at),
        []
    );
    assert_eq!((router.role(), router.priority()), (Role::Master, Some(90)));
    let moved = Settings { addresses: vec![ip(101)], ..settings(1, 90) };
    assert_eq!(router.reconfigure(moved, &[], at), [Output::AddAddress, Output::Announce]);
}

#[test]
fn results_stay_with_their_checks_when_others_go() {
    let with = |tracks: Vec<u8>| Settings { tracks, ..settings(1, 150) };
    // Good, bad with a weight, good.
    let mut router = Router::new(with(vec![0, 20, 0]), 0);
    router.on_track(0, true, 0);
    router.on_track(2, true, 0);
    router.on_timer(0);
    let at = router.next_deadline();
    router.on_timer(at);
    assert_eq!((router.role(), router.priority()), (Role::Master, Some(130)));
    // The bad one is gone, the others have changed places, and one is new.
    assert_eq!(router.reconfigure(with(vec![0, 0, 0]), &[Some(2), None, Some(0)], at), []);
    assert_eq!(router.priority(), Some(150));
    assert_eq!(router.on_track(0, true, at), []);
    assert_eq!(router.role(), Role::Master);
    // A bad one stays bad wherever it is.
    router.reconfigure(with(vec![0, 20, 0]), &[Some(0), Some(1), Some(2)], at);
    router.on_track(1, false, at);
    router.reconfigure(with(vec![20, 0]), &[Some(1), Some(0)], at);
    assert_eq!(router.priority(), Some(130));
}

#[test]
fn who_is_wanted_again_while_it_hands_over_stands_again() {
    let (mut router, at) = master(settings(1, 100));
    router.stop(at + 1);
    assert_eq!(router.role(), Role::Resigning);
    assert_eq!(router.stay(at + 2), []);
    let due = router.next_deadline();
    assert!(router.on_timer(due).contains(&Output::Become(Role::Master)));
    assert!(due <= at + 2 + INTERVAL, "nobody came, so that it goes on within an interval");
}

#[test]
fn a_longer_interval_is_told_at_the_old_pace_before_it_is_kept() {
    let (mut router, at) = master(settings(1, 100));
    let slow = Settings { interval: 10 * INTERVAL, announcements: 1, ..settings(1, 100) };
    router.reconfigure(slow, &[], at);
    let mut said = Vec::new();
    while said.len() < 7 {
        let now = router.next_deadline();
        for output in router.on_timer(now) {
            if let Output::SendAdvert(advert) = output {
                assert_eq!(advert.interval, 10 * INTERVAL);
                said.push(now);
            }
        }
    }
    let gaps: Vec<Time> = said.windows(2).map(|two| (two[1] - two[0]) / INTERVAL).collect();
    assert_eq!(gaps, [1, 1, 1, 1, 10, 10]);
}
