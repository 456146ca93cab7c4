//! The gate, from outside.

use super::*;
use crate::machine::Stage;
use std::time::Duration;

fn call(operation: &str, object: &str) -> Call {
    Call { system: "proxmox", operation: operation.into(), object: object.into(), mutates: true }
}

fn gate(script: &str) -> Gate {
    Gate::new(FaultScript::parse(script).unwrap())
}

/// Makes a call; how it ended.
async fn pass(gate: &Gate, operation: &str) -> Result<Leaving, Fault> {
    match gate.enter(call(operation, "100")).await {
        Verdict::Proceed(ticket) => Ok(ticket.leave().await),
        Verdict::Refuse(fault) => Err(fault),
    }
}

#[tokio::test]
async fn calls_are_numbered_and_the_script_picks_among_them() {
    let gate = gate(
        "calls:\n- {operation: 'POST *', nth: 2, times: 2, fault: status 503}\n- {call: 5, fault: lose-answer}",
    );
    let mut came = Vec::new();
    for operation in ["POST a", "GET a", "POST b", "POST c", "POST d", "POST e"] {
        came.push(pass(&gate, operation).await);
    }
    let refused = Err(Fault::Status(503));
    let answered = Ok(Leaving::Answer);
    assert_eq!(came, [answered, answered, refused, refused, Ok(Leaving::Lose), answered]);
    let log = gate.calls();
    assert_eq!(log.iter().map(|call| call.number).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!((log[2].progress, log[2].fault), (Progress::Refused, Some(Fault::Status(503))));
    assert_eq!((log[4].progress, log[4].fault), (Progress::Lost, Some(Fault::LoseAnswer)));
    assert_eq!(gate.count(), 6);
    assert_eq!(gate.calls_from(5), log[4..]);
    assert_eq!((gate.calls_from(1), gate.calls_from(7)), (log, vec![]));
}

#[tokio::test]
async fn stale_reads_are_for_reads() {
    let gate = gate("calls:\n- {times: always, fault: stale-read}");
    let write = gate.enter(call("POST", "a")).await;
    let read = gate.enter(Call { mutates: false, ..call("GET", "a") }).await;
    let (Verdict::Proceed(write), Verdict::Proceed(read)) = (write, read) else { panic!("refused") };
    assert!(!write.is_stale() && read.is_stale());
}

#[tokio::test]
async fn a_call_can_be_held_on_both_sides_and_let_go_or_failed() {
    let gate = gate("");
    let mut before = gate.hold_at(1, Moment::Before);
    let mut after = gate.hold_at(1, Moment::After);
    let server = gate.clone();
    let made = tokio::spawn(async move { pass(&server, "POST a").await });
    assert_eq!(before.reached().await.unwrap().progress, Progress::Waiting);
    // A held call does not keep a snapshot waiting.
    drop(gate.freeze().await);
    before.go_on();
    assert_eq!(after.reached().await.unwrap().progress, Progress::UnderWay);
    drop(gate.freeze().await);
    after.fail(Fault::Reset);
    assert_eq!(made.await.unwrap(), Ok(Leaving::Lose));

    let before =
        gate.hold_when(Matcher { operation: Some("POST b*".into()), ..Matcher::default() }, Moment::Before);
    before.fail(Fault::Throttle);
    assert_eq!(pass(&gate, "POST a").await, Ok(Leaving::Answer));
    assert_eq!(pass(&gate, "POST bb").await, Err(Fault::Throttle));
    drop(gate.hold_at(4, Moment::Before));
    assert_eq!(pass(&gate, "POST c").await, Ok(Leaving::Answer), "nobody is there to decide");
}

#[tokio::test]
async fn a_frozen_gate_lets_nobody_in_and_waits_for_those_inside() {
    let gate = gate("");
    let Verdict::Proceed(inside) = gate.enter(call("POST", "a")).await else { panic!("refused") };
    let freezing = tokio::spawn({
        let gate = gate.clone();
        async move { gate.freeze().await }
    });
    gate.until(|state| state.frozen == 1).await;
    assert!(!freezing.is_finished());
    drop(inside);
    assert_eq!(gate.calls()[0].progress, Progress::Dropped);
    let frozen = freezing.await.unwrap();
    let entering = tokio::spawn({
        let gate = gate.clone();
        async move { pass(&gate, "POST b").await }
    });
    tokio::task::yield_now().await;
    assert_eq!(gate.count(), 1, "kept out, and not even numbered");
    drop(frozen);
    assert_eq!(entering.await.unwrap(), Ok(Leaving::Answer));
}

#[tokio::test]
async fn a_call_that_hangs_is_dropped_with_its_caller_or_ends_with_the_gate() {
    let gate = gate("calls:\n- {times: always, fault: timeout}");
    let patience = Duration::from_millis(20);
    let hangs = tokio::time::timeout(patience, pass(&gate, "POST a")).await;
    assert!(hangs.is_err());
    assert_eq!(gate.calls()[0].progress, Progress::Dropped);
    let server = gate.clone();
    let hanging = tokio::spawn(async move { pass(&server, "POST a").await });
    gate.until(|state| state.count == 2).await;
    gate.close();
    assert_eq!(hanging.await.unwrap(), Err(Fault::Timeout));
    assert_eq!(pass(&gate, "POST a").await, Ok(Leaving::Answer), "nothing goes wrong at the end");
}

#[tokio::test]
async fn a_hold_that_nobody_waits_for_hides_no_other() {
    let gate = gate("");
    drop(gate.hold_at(1, Moment::Before));
    let mut held = gate.hold_at(1, Moment::Before);
    let server = gate.clone();
    let calling = tokio::spawn(async move { pass(&server, "POST a").await });
    assert_eq!(held.reached().await.map(|call| call.number), Some(1));
    held.go_on();
    assert_eq!(calling.await.unwrap(), Ok(Leaving::Answer));
}

#[tokio::test]
async fn random_faults_depend_on_the_calls_and_not_on_their_order() {
    let script = "seed: 3\nrandom: {rate: 0.3, faults: [status 500, reset]}";
    let run = async |order: &[&str]| {
        let gate = gate(script);
        for operation in order {
            let _ = pass(&gate, operation).await;
        }
        let mut faults: Vec<_> =
            gate.calls().into_iter().map(|logged| (logged.call.operation, logged.fault)).collect();
        faults.sort_by(|a, b| a.0.cmp(&b.0));
        faults.into_iter().map(|(operation, fault)| format!("{operation} {fault:?}")).collect::<Vec<_>>()
    };
    let names: Vec<String> = (0..40).map(|n| format!("POST {n}")).collect();
    let order: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut reversed = order.clone();
    reversed.reverse();
    let forwards = run(&order).await;
    assert_eq!(forwards, run(&reversed).await);
    let met = forwards.iter().filter(|line| !line.ends_with("None")).count();
    assert!((4..=20).contains(&met), "{met} of 40 at a rate of 0.3");
}

#[tokio::test]
async fn a_gate_goes_on_where_another_one_was() {
    let first = gate("");
    assert_eq!(pass(&first, "POST a").await, Ok(Leaving::Answer));
    let script = FaultScript::parse("calls:\n- {call: 2, fault: reset}").unwrap();
    let second = Gate::resume(script, first.state());
    assert_eq!(pass(&second, "POST b").await, Err(Fault::Reset));
    assert_eq!((first.count(), second.count(), second.calls().len()), (1, 2, 2));
}

#[test]
fn machines_die_once_for_every_rule() {
    let gate = gate(
        "machines:\n- {machine: 'cp-*', stage: booting, fault: die}\n- {machine: cp-1, fault: die}\n\
         - {machine: 10.0.0.2, fault: never-boots}\n- {machine: w, fault: clock-skew -5}",
    );
    assert!(!gate.dies_in(&["cp-0", "10.0.0.1"], Stage::PoweringOn));
    assert!(gate.dies_in(&["cp-0", "10.0.0.1"], Stage::Booting));
    assert!(!gate.dies_in(&["cp-0", "10.0.0.1"], Stage::Booting), "only once");
    assert!(gate.dies_in(&["cp-1", "10.0.0.2"], Stage::PoweringOn));
    assert!(gate.dies_in(&["cp-1", "10.0.0.2"], Stage::Booting));
    assert!(gate.never_boots(&["x", "10.0.0.2"]) && !gate.never_boots(&["x"]));
    assert!(!gate.never_joins(&["x"]) && !gate.never_promoted(&["x"]));
    assert_eq!(gate.clock_skew(&["w"]), Some(-5));
}

#[tokio::test]
async fn faults_come_and_are_mended_while_it_runs() {
    let gate = gate("");
    assert_eq!(pass(&gate, "POST a").await, Ok(Leaving::Answer));
    let script =
        "calls:\n- {times: always, fault: status 503}\nmachines:\n- {machine: w, fault: never-boots}";
    gate.set_faults(FaultScript::parse(script).unwrap());
    assert_eq!(pass(&gate, "POST a").await, Err(Fault::Status(503)));
    let waiting = gate.clone();
    let mended = tokio::spawn(async move { waiting.until_mended(|gate| gate.never_boots(&["w"])).await });
    assert!(gate.never_boots(&["w"]) && !mended.is_finished());
    gate.set_faults(FaultScript::default());
    mended.await.unwrap();
    assert_eq!(pass(&gate, "POST a").await, Ok(Leaving::Answer));
}

#[tokio::test]
async fn machines_that_have_power_die_when_a_new_script_says_so() {
    let gate = gate("");
    let mut orders = gate.take_kills();
    let script = "machines:\n- {machine: cp-1, fault: die}\n- {machine: cp-2, stage: booting, fault: die}\n\
                  - {machine: cp-3, call: 7, fault: die}\n- {machine: cp-1, fault: never-boots}";
    let changing = gate.clone();
    let script = FaultScript::parse(script).unwrap();
    let changed = tokio::spawn(async move { changing.change_faults(script).await });
    let order = orders.recv().await.unwrap();
    assert!(order.machine.fits("cp-1") && !order.machine.fits("cp-2"));
    assert!(gate.never_boots(&["cp-1"]), "it does not come back");
    order.done.send(()).unwrap();
    changed.await.unwrap();
    assert!(orders.try_recv().is_err(), "the others wait for their moment");
}
