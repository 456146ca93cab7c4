//! One pool step by step.

use super::*;
use crate::core::MILLISECOND;

fn listener(count: u16) -> config::Listener {
    let backends: Vec<_> = (1..=count)
        .map(|n| serde_json::json!({"name": format!("cp-{n}"), "address": format!("10.0.0.{n}:6443")}))
        .collect();
    let value = serde_json::json!({"name": "api", "bind": ["127.0.0.1:0"], "backends": backends});
    serde_json::from_value(value).unwrap()
}

fn client() -> IpAddr {
    IpAddr::from([192, 0, 2, 1])
}

/// A pool whose backends have all passed a check at time 0.
fn healthy(listener: &config::Listener) -> Pool {
    let mut pool = Pool::new(listener, 1, 0);
    for id in pool.due_checks(0) {
        assert_eq!(pool.check_result(id, true, 0), Some(Change::Up));
    }
    pool
}

fn open(pool: &mut Pool, now: Time) -> BackendId {
    let Pick::Backend(id) = pool.pick(now, client(), &[]) else { panic!("no backend") };
    pool.opened(id, now);
    id
}

fn counts(pool: &Pool) -> Vec<u32> {
    pool.backends().iter().map(|backend| backend.connections).collect()
}

/// Fails checks of a backend until it is down; returns when.
fn fail(pool: &mut Pool, id: BackendId, from: Time) -> Time {
    let mut now = from;
    loop {
        now += 10 * MILLISECOND;
        for due in pool.due_checks(now) {
            if pool.check_result(due, due != id, now) == Some(Change::Down) {
                return now;
            }
        }
    }
}

/// Passes all checks until a backend is up; returns when.
fn recover(pool: &mut Pool, id: BackendId, from: Time) -> Time {
    let mut now = from;
    loop {
        now += 10 * MILLISECOND;
        for due in pool.due_checks(now) {
            if pool.check_result(due, true, now) == Some(Change::Up) && due == id {
                return now;
            }
        }
    }
}

#[test]
fn a_new_backend_waits_for_its_first_good_check() {
    let mut pool = Pool::new(&config::Listener { all_down: AllDown::Refuse, ..listener(2) }, 1, 0);
    assert_eq!(pool.pick(0, client(), &[]), Pick::Refuse);
    assert_eq!(pool.summary(), "0 of 2 members healthy");
    let due = pool.due_checks(0);
    assert_eq!(due, [BackendId(0), BackendId(1)]);
    assert_eq!(pool.due_checks(0), [], "each only once");
    assert_eq!(pool.check_result(BackendId(1), true, 5), Some(Change::Up));
    assert_eq!(pool.pick(5, client(), &[]), Pick::Backend(BackendId(1)));
    assert_eq!(pool.summary(), "1 of 2 members healthy");
}

#[test]
fn with_nobody_healthy_all_are_tried_if_that_is_the_choice() {
    let mut pool = Pool::new(&listener(2), 1, 0);
    let Pick::Backend(first) = pool.pick(0, client(), &[]) else { panic!("refused") };
    let Pick::Backend(second) = pool.pick(0, client(), &[first]) else { panic!("refused") };
    assert_ne!(first, second);
    assert_eq!(pool.pick(0, client(), &[first, second]), Pick::Refuse);
}

#[test]
fn two_bad_checks_take_a_backend_out_within_two_intervals() {
    let mut pool = healthy(&listener(3));
    let down = fail(&mut pool, BackendId(1), 1);
    assert!(down <= 2 * SECOND, "{down}");
    for _ in 0..30 {
        assert_ne!(open(&mut pool, down), BackendId(1));
    }
}

#[test]
fn a_backend_that_does_not_answer_is_out_within_three_intervals() {
    let mut pool = healthy(&listener(2));
    let (mut now, mut ends) = (1, Vec::new());
    let down = loop {
        now += 10 * MILLISECOND;
        // Every check of it takes its whole timeout.
        for id in pool.due_checks(now) {
            ends.push((now + if id == BackendId(0) { SECOND } else { 0 }, id));
        }
        let (over, rest): (Vec<_>, Vec<_>) = ends.into_iter().partition(|(at, _)| *at <= now);
        ends = rest;
        let changes: Vec<_> =
            over.into_iter().map(|(_, id)| pool.check_result(id, id != BackendId(0), now)).collect();
        if changes.contains(&Some(Change::Down)) {
            break now;
        }
    };
    assert!(down <= 3 * SECOND + 30 * MILLISECOND, "{down}");
}

#[test]
fn a_check_that_never_ends_is_repeated() {
    let mut pool = healthy(&config::Listener { rebalance: no_shedding(), ..listener(1) });
    let due = pool.next_due();
    assert_eq!(pool.due_checks(due).len(), 1);
    assert_eq!(pool.next_due(), due + 2 * SECOND);
}

#[test]
fn failed_connections_eject_a_backend_until_a_good_check() {
    let mut pool = healthy(&listener(2));
    let mut failures = 0;
    for _ in 0..10 {
        let Pick::Backend(id) = pool.pick(1, client(), &[]) else { panic!("refused") };
        if id == BackendId(0) {
            failures += 1;
            let change = pool.failed(id, 1);
            assert_eq!(change, (failures == 2).then_some(Change::Ejected));
        } else {
            pool.opened(id, 1);
        }
    }
    assert_eq!(failures, 2);
    assert_eq!(pool.due_checks(1), [BackendId(0)], "it is looked at right away");
    assert_eq!(pool.check_result(BackendId(0), true, 2), Some(Change::Up));
}

#[test]
fn round_robin_follows_weights_and_does_not_bunch() {
    let mut listener = config::Listener { balance: Balance::RoundRobin, ..listener(3) };
    listener.backends[0].weight = 3;
    let mut pool = healthy(&listener);
    let order: Vec<u32> = (0..10).map(|_| open(&mut pool, 1).0).collect();
    assert_eq!(order, [0, 1, 0, 2, 0, 0, 1, 0, 2, 0]);
}

#[test]
fn least_connections_fills_up_by_weight() {
    let mut listener = listener(3);
    listener.backends[2].weight = 2;
    let mut pool = healthy(&listener);
    for _ in 0..40 {
        open(&mut pool, 1);
    }
    assert_eq!(counts(&pool), [10, 10, 20]);
    for _ in 0..5 {
        pool.closed(BackendId(0), 1);
    }
    for _ in 0..5 {
        assert_eq!(open(&mut pool, 1), BackendId(0));
    }
}

#[test]
fn power_of_two_keeps_loads_near_each_other() {
    let mut pool = healthy(&config::Listener { balance: Balance::PowerOfTwo, ..listener(5) });
    for _ in 0..500 {
        open(&mut pool, 1);
    }
    assert!(counts(&pool).iter().all(|count| (90..=110).contains(count)), "{:?}", counts(&pool));
}

#[test]
fn source_hash_keeps_a_client_where_it_was() {
    let mut pool = healthy(&config::Listener { balance: Balance::SourceHash, ..listener(5) });
    let first = open(&mut pool, 1);
    assert!((0..20).all(|_| open(&mut pool, 1) == first));
    let Pick::Backend(other) = pool.pick(1, client(), &[first]) else { panic!("refused") };
    assert_ne!(first, other);
}

#[test]
fn full_backends_and_a_full_listener_make_connections_wait() {
    let mut listener = config::Listener { max_connections: 3, ..listener(2) };
    listener.backends[0].max_connections = 1;
    listener.backends[1].max_connections = 1;
    let mut pool = healthy(&listener);
    let first = open(&mut pool, 1);
    open(&mut pool, 1);
    assert_eq!(pool.pick(1, client(), &[]), Pick::Queue);
    pool.closed(first, 2);
    assert_eq!(pool.pick(2, client(), &[]), Pick::Backend(first));

    let mut pool = healthy(&config::Listener { max_connections: 3, ..super::tests::listener(2) });
    for _ in 0..3 {
        open(&mut pool, 1);
    }
    assert_eq!(pool.pick(1, client(), &[]), Pick::Queue);
}

#[test]
fn slow_start_gives_a_growing_share_but_not_at_the_beginning() {
    let mut listener = config::Listener { balance: Balance::RoundRobin, ..listener(2) };
    listener.health.slow_start = 10;
    let mut pool = healthy(&listener);
    let share = |pool: &mut Pool, now| (0..100).filter(|_| open(pool, now) == BackendId(0)).count();
    assert_eq!(share(&mut pool, 1), 50);
    let down = fail(&mut pool, BackendId(0), 1);
    let now = recover(&mut pool, BackendId(0), down);
    assert!((8..=11).contains(&share(&mut pool, now)));
    assert!((34..=37).contains(&share(&mut pool, now + 5 * SECOND)));
    assert!((49..=51).contains(&share(&mut pool, now + 10 * SECOND)));
}

#[test]
fn a_drained_backend_gets_nothing_and_is_emptied_when_its_time_is_up() {
    let mut pool = healthy(&config::Listener { rebalance: no_shedding(), ..listener(2) });
    for _ in 0..4 {
        open(&mut pool, 0);
    }
    pool.drain(BackendId(0), SECOND);
    assert_eq!(pool.summary(), "1 of 2 members healthy");
    for _ in 0..4 {
        assert_eq!(open(&mut pool, SECOND), BackendId(1));
    }
    pool.closed(BackendId(0), 2 * SECOND);
    assert_eq!(pool.to_close(31 * SECOND - 1), []);
    assert_eq!(pool.to_close(31 * SECOND), [(BackendId(0), 1)]);
    assert_eq!(pool.to_close(31 * SECOND + 1), [], "asked once");
    assert_eq!(
        pool.to_close(pool.next_due().max(32 * SECOND)),
        [(BackendId(0), 1)],
        "and again when nothing happened"
    );
    pool.undrain(BackendId(0), 33 * SECOND);
    assert_eq!(open(&mut pool, 33 * SECOND), BackendId(0));
}

fn no_shedding() -> config::Rebalance {
    config::Rebalance { enabled: false, ..config::Rebalance::default() }
}

#[test]
fn connections_of_an_unready_backend_are_closed_bit_by_bit_within_the_set_time() {
    let mut pool = healthy(&config::Listener { rebalance: no_shedding(), ..listener(2) });
    for _ in 0..20 {
        open(&mut pool, 0);
    }
    let down = fail(&mut pool, BackendId(0), 1);
    let mut closed = Vec::new();
    for second in 0..=30 {
        let count: u32 = pool.to_close(down + second * SECOND).iter().map(|(_, count)| count).sum();
        (0..count).for_each(|_| pool.closed(BackendId(0), down));
        closed.push(count);
    }
    assert_eq!(closed[..16].iter().sum::<u32>(), 0, "it may come back");
    assert_eq!(closed.iter().sum::<u32>(), 10);
    assert!(closed.iter().all(|count| *count <= 2), "{closed:?}");
}

#[test]
fn who_is_in_use_at_an_unready_backend_is_asked_for_again_and_gives_way_to_a_drain() {
    let mut pool = healthy(&config::Listener { rebalance: no_shedding(), ..listener(2) });
    open(&mut pool, 0);
    open(&mut pool, 0);
    assert_eq!(pool.closing(BackendId(0), 0), Closing::Old);
    let down = fail(&mut pool, BackendId(0), 1);
    // Not closed, as it is not idle: once a second is often enough.
    for second in [30, 31, 32] {
        let now = down + second * SECOND;
        assert_eq!(pool.to_close(now), [(BackendId(0), 1)]);
        assert_eq!(pool.closing(BackendId(0), now), Closing::Idle);
        assert_eq!(pool.to_close(now + SECOND / 2), []);
    }
    let drained = down + 33 * SECOND;
    pool.drain(BackendId(0), drained);
    assert_eq!(pool.closing(BackendId(0), drained + 29 * SECOND), Closing::Idle);
    assert_eq!(pool.closing(BackendId(0), drained + 30 * SECOND), Closing::Any);
}

#[test]
fn connections_of_unready_backends_stay_when_there_is_nowhere_to_go() {
    let mut pool = healthy(&config::Listener { rebalance: no_shedding(), ..listener(1) });
    open(&mut pool, 0);
    let down = fail(&mut pool, BackendId(0), 1);
    assert_eq!(pool.to_close(down + 100 * SECOND), []);
    assert!(pool.next_due() > down && pool.next_due() < down + 2 * SECOND, "only the next check is due");
}

#[test]
fn a_backend_that_comes_back_gets_its_share_at_the_set_rate() {
    let mut pool = healthy(&listener(3));
    let down = fail(&mut pool, BackendId(2), 1);
    for _ in 0..300 {
        open(&mut pool, down);
    }
    let mut now = recover(&mut pool, BackendId(2), down);
    let begin = now;
    let mut shed = 0;
    while now < begin + 60 * SECOND {
        now += 50 * MILLISECOND;
        for (id, count) in pool.to_close(now) {
            for _ in 0..count {
                shed += 1;
                pool.closed(id, now);
                open(&mut pool, now);
            }
        }
        let rate = u128::from(now - begin) * 10 / u128::from(SECOND) + 1;
        assert!(u128::from(shed as u32) <= rate);
        for id in pool.due_checks(now) {
            pool.check_result(id, true, now);
        }
    }
    assert!((90..=100).contains(&shed), "{shed}");
    assert!(counts(&pool).iter().all(|count| (90..=110).contains(count)), "{:?}", counts(&pool));
}

#[test]
fn clients_that_do_not_come_back_are_not_waited_for_by_closing_more() {
    let mut pool = healthy(&listener(3));
    let down = fail(&mut pool, BackendId(2), 1);
    for _ in 0..30 {
        open(&mut pool, down);
    }
    let mut now = recover(&mut pool, BackendId(2), down);
    let begin = now;
    while now < begin + 9 * SECOND {
        now += 100 * MILLISECOND;
        for (id, count) in pool.to_close(now) {
            (0..count).for_each(|_| pool.closed(id, now));
        }
    }
    assert_eq!(counts(&pool), [10, 10, 0]);
}

#[test]
fn a_reload_with_shorter_times_does_not_wait_out_the_old_ones() {
    let mut slow = listener(2);
    slow.health.interval_ms = Some(3_600_000);
    let mut pool = healthy(&slow);
    assert!(pool.due_checks(60 * SECOND).is_empty());
    pool.reload(&listener(2), 60 * SECOND);
    assert_eq!(pool.due_checks(61 * SECOND).len(), 2);
    // And one with longer times does not bring the next check forward.
    let mut pool = healthy(&listener(2));
    pool.reload(&slow, 0);
    assert!(pool.due_checks(SECOND / 2).is_empty());
}

#[test]
fn a_reload_keeps_what_stays_and_drains_what_goes() {
    let mut pool = healthy(&listener(3));
    for _ in 0..6 {
        open(&mut pool, 0);
    }
    let mut changed = listener(3);
    changed.backends.remove(0);
    changed.backends[0].address = "10.0.9.9:6443".parse().unwrap();
    pool.reload(&changed, SECOND);
    let states: Vec<_> = pool.backends().iter().map(|b| (b.id.0, b.state, b.connections)).collect();
    let expected = [(0, State::Removed, 2), (1, State::Removed, 2), (2, State::Up, 2), (3, State::New, 0)];
    assert_eq!(states, expected);
    assert_eq!(pool.find("cp-1"), None);
    assert_eq!(pool.find("cp-2"), Some(BackendId(3)));
    assert!(!pool.due_checks(SECOND).contains(&BackendId(0)));
    pool.closed(BackendId(0), SECOND);
    pool.closed(BackendId(0), SECOND);
    assert_eq!(pool.address(BackendId(0)), None);
    assert_eq!(pool.connections(), 4);
}

#[test]
fn what_is_told_of_an_unknown_backend_changes_nothing() {
    let mut pool = healthy(&listener(1));
    pool.closed(BackendId(9), 0);
    pool.closed(BackendId(0), 0);
    assert_eq!(pool.failed(BackendId(9), 0), None);
    assert_eq!(pool.check_result(BackendId(9), true, 0), None);
    assert_eq!(pool.connections(), 0);
}

/// Outcomes of checks of a lone backend, each when it is due.
fn run(pool: &mut Pool, outcomes: &[bool]) -> Verdict {
    for ok in outcomes {
        let now = pool.next_due();
        for id in pool.due_checks(now) {
            pool.check_result(id, *ok, now);
        }
    }
    pool.known(BackendId(0)).unwrap().verdict
}

#[test]
fn in_the_plain_manner_a_new_backend_falls_and_intervals_are_exact() {
    let mut listener = config::Listener { rebalance: no_shedding(), ..listener(1) };
    (listener.health.healthy, listener.health.unhealthy) = (Some(3), Some(2));
    let plain = |first| Pool::with_manner(&listener, Manner::Plain { first }, 1, 0);
    assert_eq!(run(&mut plain(1), &[true]), Verdict::Up);
    assert_eq!(run(&mut plain(2), &[true]), Verdict::New);
    assert_eq!(run(&mut plain(2), &[true, false, true]), Verdict::New, "in a row");
    assert_eq!(run(&mut plain(2), &[true, true]), Verdict::Up);
    assert_eq!(run(&mut plain(2), &[true, true, false, true, false]), Verdict::Up, "never two in a row");
    assert_eq!(run(&mut plain(1), &[false, false]), Verdict::Down);
    assert_eq!(run(&mut plain(1), &[false, false, true, true]), Verdict::Down, "as any other that is down");
    assert_eq!(run(&mut plain(1), &[false, false, true, true, true]), Verdict::Up);
    let mut pool = plain(1);
    for second in 0..20 {
        assert_eq!(pool.next_due(), second * SECOND);
        run(&mut pool, &[second % 3 == 0]);
    }
}

#[test]
fn what_is_known_of_a_backend_goes_to_another_pool() {
    let mut listener = config::Listener { rebalance: no_shedding(), ..listener(1) };
    listener.health.unhealthy = Some(3);
    let mut pool = Pool::new(&listener, 1, 0);
    run(&mut pool, &[true, false, false]);
    let known = pool.known(BackendId(0)).unwrap();
    assert_eq!(known, Known { verdict: Verdict::Up, good: 0, bad: 2 });
    let mut other = Pool::new(&listener, 1, 0);
    other.restore(BackendId(0), known, 0);
    assert_eq!(run(&mut other, &[false]), Verdict::Down);
}

#[test]
fn candidates_are_those_that_a_connection_could_go_to() {
    let mut pool = Pool::new(&listener(3), 1, 0);
    let all = [BackendId(0), BackendId(1), BackendId(2)];
    assert_eq!(pool.candidates(&[]), all, "nobody is healthy: all");
    assert_eq!(pool.candidates(&all[..2]), all[2..]);
    for id in pool.due_checks(0) {
        pool.check_result(id, id != BackendId(0), 0);
    }
    assert_eq!(pool.candidates(&[]), all[1..]);
    pool.drain(BackendId(1), 0);
    assert_eq!(pool.candidates(&[]), all[2..]);
    assert_eq!(pool.candidates(&all[2..]), all[..1], "what drains gets nothing");
}
