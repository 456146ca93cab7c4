//! The suite: every function takes a harness and checks one part of the contract in `docs/contracts/`.

use crate::harness::{Fault, Harness, Setup};
use butler_drivers::{
    Class, Failure, ImageFacts, ImageWanted, Infrastructure, LoadBalancerFacts, LoadBalancerWanted,
    MachineFacts, MachineTarget, MachineWanted, Operation, PreflightWanted, Progress, Verdict,
};
use std::time::Duration;

/// No machine needs so many steps; one that does is stuck.
pub(crate) const STEPS: usize = 400;

/// What a caller does with what it knows when a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Goes on with the same driver and the same operation.
    Same,
    /// Dies and comes back with a new driver and nothing but what was kept.
    Reborn,
}

pub(crate) fn target(wanted: &MachineWanted) -> MachineTarget {
    MachineTarget { owner: wanted.owner.clone(), name: wanted.name.clone(), provider_id: None }
}

/// Waits as a caller does, without letting a simulated hour take one.
pub(crate) async fn pause(recheck: Duration) {
    tokio::time::sleep(recheck.min(Duration::from_millis(5))).await;
}

/// Calls a verb until it is ready. Failures that go away by themselves are called again.
pub(crate) async fn until_ready<H: Harness, T>(
    world: &H,
    life: Life,
    call: impl AsyncFn(&Infrastructure, Option<&Operation>) -> Result<Progress<T>, Failure>,
) -> Result<T, Failure> {
    let mut hands = world.infrastructure();
    let mut operation: Option<Operation> = None;
    for _ in 0..STEPS {
        let before = world.changes();
        let answer = call(&hands, operation.as_ref()).await;
        assert!(world.changes() <= before + 1, "more than one change in a call");
        match answer {
            Ok(Progress::Ready(facts)) => return Ok(facts),
            Ok(Progress::InProgress { operation: next, waiting_for, recheck, .. }) => {
                assert!(!waiting_for.is_empty());
                operation = next;
                pause(recheck).await;
            }
            Err(failure) => {
                check_failure(&failure);
                if failure.class.stops() {
                    return Err(failure);
                }
                if life == Life::Reborn {
                    hands = world.infrastructure();
                }
            }
        }
    }
    panic!("never ready: {operation:?}, {:?}", world.machines());
}

/// Makes a machine.
pub(crate) async fn make<H: Harness>(
    world: &H,
    wanted: &MachineWanted,
    life: Life,
) -> Result<MachineFacts, Failure> {
    until_ready(world, life, async |hands, operation| hands.machines.ensure(wanted, operation).await).await
}

/// Removes a machine.
pub(crate) async fn remove<H: Harness>(world: &H, target: &MachineTarget, life: Life) {
    let gone =
        until_ready(world, life, async |hands, operation| hands.machines.delete(target, operation).await);
    gone.await.unwrap();
}

/// Calls a verb until it is ready or something goes wrong.
pub(crate) async fn settled<T>(
    call: impl AsyncFn(Option<&Operation>) -> Result<Progress<T>, Failure>,
) -> Result<T, Failure> {
    let mut operation = None;
    for _ in 0..STEPS {
        match call(operation.as_ref()).await? {
            Progress::Ready(facts) => return Ok(facts),
            Progress::InProgress { operation: next, recheck, .. } => {
                operation = next;
                pause(recheck).await;
            }
        }
    }
    panic!("never ready: {operation:?}");
}

/// Makes a machine by these hands, unless something goes wrong.
pub(crate) async fn machine(hands: &Infrastructure, wanted: &MachineWanted) -> Result<MachineFacts, Failure> {
    settled(async |operation| hands.machines.ensure(wanted, operation).await).await
}

/// Makes a load balancer by these hands, unless something goes wrong.
pub(crate) async fn balancer(
    hands: &Infrastructure,
    wanted: &LoadBalancerWanted,
) -> Result<LoadBalancerFacts, Failure> {
    let balancers = hands.load_balancers.clone().unwrap();
    settled(async |operation| balancers.ensure(wanted, operation).await).await
}

/// Removes a load balancer by these hands, unless something goes wrong.
pub(crate) async fn removed(hands: &Infrastructure, wanted: &LoadBalancerWanted) -> Result<(), Failure> {
    let balancers = hands.load_balancers.clone().unwrap();
    settled(async |operation| balancers.delete(wanted, operation).await).await
}

pub(crate) fn check_failure(failure: &Failure) {
    assert!(!failure.reason.is_empty() && !failure.reason.contains(' '), "{failure:?}");
    assert!(!failure.message.is_empty() && !failure.remedy.is_empty(), "{failure:?}");
}

/// A machine's life: made, seen, repeated without a change, listed, removed, gone.
pub(crate) async fn a_life<H: Harness>() {
    let world = H::start(Setup::default()).await;
    let (machines, volumes) = (world.machines(), world.volumes());
    let wanted = world.wanted("butler-cp-0", 0);
    let hands = world.infrastructure();
    assert_eq!(hands.machines.find(&target(&wanted)).await.unwrap(), None);
    let planned = world.dry_run(&wanted).await;
    let facts = make(&world, &wanted, Life::Same).await.unwrap();
    let address = wanted.static_address.as_ref().unwrap().address;
    assert_eq!((facts.addresses.clone(), facts.reach, facts.running), (vec![address], Some(address), true));
    assert!(!facts.provider_id.is_empty());
    assert_eq!(world.recorded(), planned, "the dry run and the real run differ");
    let changes = world.changes();
    assert_eq!(make(&world, &wanted, Life::Same).await.unwrap(), facts);
    assert_eq!(world.changes(), changes, "a repeated call changed something");
    assert_eq!(hands.machines.find(&target(&wanted)).await.unwrap(), Some(facts.clone()));
    let owned = hands.machines.owned(Some(&wanted.owner.cluster_uid)).await.unwrap();
    assert_eq!(owned.len(), 1);
    assert_eq!(
        (&owned[0].name, &owned[0].id, &owned[0].owner),
        (&wanted.name, &facts.provider_id, &wanted.owner)
    );
    assert_eq!(hands.machines.owned(Some("somebody-else")).await.unwrap(), []);
    remove(&world, &target(&wanted), Life::Same).await;
    assert_eq!((world.machines(), world.volumes()), (machines, volumes), "something was left behind");
    assert_eq!(hands.machines.find(&target(&wanted)).await.unwrap(), None);
    let changes = world.changes();
    remove(&world, &target(&wanted), Life::Same).await;
    assert_eq!(world.changes(), changes);
    let journal = world.journal();
    assert!(journal.contains(&wanted.name) && !journal.contains(world.secret()), "a secret was written down");
    world.stop().await;
}

/// A machine of the same name that is not ours is never touched.
pub(crate) async fn a_foreigner_is_left_alone<H: Harness>() {
    let world = H::start(Setup { foreign: vec!["butler-cp-0".to_owned()], ..Setup::default() }).await;
    let (machines, volumes) = (world.machines(), world.volumes());
    let wanted = world.wanted("butler-cp-0", 0);
    let failure = make(&world, &wanted, Life::Same).await.unwrap_err();
    assert_eq!(failure.class, Class::Conflict);
    assert!(failure.message.contains("butler-cp-0"));
    let hands = world.infrastructure();
    assert_eq!(hands.machines.find(&target(&wanted)).await.unwrap(), None);
    assert_eq!(hands.machines.owned(None).await.unwrap(), []);
    remove(&world, &target(&wanted), Life::Same).await;
    assert_eq!((world.machines(), world.volumes(), world.changes()), (machines, volumes, 0));
    world.stop().await;
}

/// Many at once get a machine each.
pub(crate) async fn many_at_once<H: Harness>() {
    let world = H::start(Setup::default()).await;
    let names = ["b-cp-0", "b-cp-1", "b-cp-2", "b-worker-0", "b-worker-1", "b-worker-2"];
    let all: Vec<MachineWanted> =
        names.iter().enumerate().map(|(n, name)| world.wanted(name, u8::try_from(n).unwrap())).collect();
    let hands = world.infrastructure();
    let before = world.machines().len();
    let made = futures::future::try_join_all(all.iter().map(|wanted| machine(&hands, wanted))).await.unwrap();
    let mut ids: Vec<&String> = made.iter().map(|facts| &facts.provider_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!((ids.len(), world.machines().len()), (6, before + 6));
    let owned = hands.machines.owned(Some(&all[0].owner.cluster_uid)).await.unwrap();
    assert_eq!(owned.len(), 6);
    world.stop().await;
}

/// Every call of a machine's making and removal goes wrong once, in every way, in both lives.
pub(crate) async fn every_call_goes_wrong<H: Harness>(life: Life) {
    let world = H::start(Setup::default()).await;
    let wanted = world.wanted("butler-cp-0", 0);
    make(&world, &wanted, life).await.unwrap();
    let (made, machines, volumes) = (world.calls(), world.machines(), world.volumes());
    remove(&world, &target(&wanted), life).await;
    let (all, empty) = (world.calls(), (world.machines(), world.volumes()));
    world.stop().await;
    assert!(made > 4 && all > made + 2);
    let cases = Fault::ALL.into_iter().flat_map(|fault| (1..=all).map(move |call| (fault, call)));
    let check = |(fault, call)| {
        let (wanted, machines, empty) = (&wanted, &machines, &empty);
        async move {
            let world = H::start(Setup::default()).await;
            world.fail(call, fault);
            let facts =
                make(&world, wanted, life).await.unwrap_or_else(|f| panic!("{fault:?} at {call}: {f:?}"));
            assert!(facts.running, "{fault:?} at {call}");
            assert_eq!((&world.machines(), world.volumes()), (machines, volumes), "{fault:?} at {call}");
            remove(&world, &target(wanted), life).await;
            assert_eq!(&(world.machines(), world.volumes()), empty, "{fault:?} at {call}");
            world.stop().await;
        }
    };
    futures::StreamExt::for_each_concurrent(futures::stream::iter(cases), 16, check).await;
}

/// The answer to every call is lost in turn, and everything that is read next shows what was there before it.
pub(crate) async fn lost_answers_and_stale_looks<H: Harness>(life: Life) {
    let world = H::start(Setup::default()).await;
    let wanted = world.wanted("butler-cp-0", 0);
    make(&world, &wanted, life).await.unwrap();
    let (made, machines, volumes) = (world.calls(), world.machines(), world.volumes());
    world.stop().await;
    // The longer the looks lag, the more of them a driver has to see through.
    let cases = (1..=made).flat_map(|call| [1, 3, 9].map(move |lag| (call, lag)));
    let check = |(call, lag)| {
        let (wanted, machines) = (&wanted, &machines);
        async move {
            let world = H::start(Setup::default()).await;
            world.fail(call, Fault::Lose);
            (1..=lag).for_each(|behind| world.fail(call + behind, Fault::Stale));
            let made = make(&world, wanted, life).await;
            made.unwrap_or_else(|failure| panic!("{lag} stale looks after {call}: {failure:?}"));
            let now = (&world.machines(), world.volumes());
            assert_eq!(now, (machines, volumes), "{lag} stale looks after {call}");
            world.stop().await;
        }
    };
    futures::StreamExt::for_each_concurrent(futures::stream::iter(cases), 16, check).await;
}

/// A caller that dies after every single step, and remembers nothing at all, gets the same machine; and so does its removal.
pub(crate) async fn no_memory_is_needed<H: Harness>() {
    let world = H::start(Setup::default()).await;
    let wanted = world.wanted("butler-cp-0", 0);
    let empty = (world.machines(), world.volumes());
    settled(async |_| world.infrastructure().machines.ensure(&wanted, None).await).await.unwrap();
    assert_eq!(world.machines().iter().filter(|name| **name == wanted.name).count(), 1);
    settled(async |_| world.infrastructure().machines.delete(&target(&wanted), None).await).await.unwrap();
    assert_eq!((world.machines(), world.volumes()), empty);
    world.stop().await;
}

/// An unfinished machine, of which the caller knows nothing, is found and removed; at every step of its making.
pub(crate) async fn half_made_is_removed<H: Harness>() {
    for steps in 1..=6 {
        let world = H::start(Setup::default()).await;
        let wanted = world.wanted("butler-cp-0", 0);
        let empty = (world.machines(), world.volumes());
        let hands = world.infrastructure();
        let mut operation = None;
        for _ in 0..steps {
            if let Progress::InProgress { operation: next, .. } =
                hands.machines.ensure(&wanted, operation.as_ref()).await.unwrap()
            {
                operation = next;
            }
        }
        remove(&world, &target(&wanted), Life::Reborn).await;
        assert_eq!((world.machines(), world.volumes()), empty, "after {steps} steps");
        world.stop().await;
    }
}

/// An image's life.
pub(crate) async fn an_image<H: Harness>() {
    let world = H::start(Setup::default()).await;
    let Some(wanted) = world.image() else { return world.stop().await };
    let volumes = world.volumes();
    let hands = world.infrastructure();
    let images = hands.images.clone().expect("images");
    let facts = image_ready(&hands, &wanted).await;
    assert!(!facts.image_ref.is_empty());
    let changes = world.changes();
    assert_eq!(image_ready(&hands, &wanted).await, facts);
    assert_eq!(world.changes(), changes);
    let owned = images.owned(Some(&wanted.owner.cluster_uid)).await.unwrap();
    assert_eq!((owned.len(), &owned[0].owner), (1, &wanted.owner));
    // A machine can be made from it.
    let machine = MachineWanted { image: Some(facts.image_ref.clone()), ..world.wanted("butler-cp-0", 0) };
    make(&world, &machine, Life::Same).await.unwrap();
    remove(&world, &target(&machine), Life::Same).await;
    // As somebody does who has nothing but the list of what is ours.
    let listed = ImageWanted {
        owner: owned[0].owner.clone(),
        name: owned[0].name.clone(),
        url: String::new(),
        sha256: None,
        format: String::new(),
    };
    settled(async |operation| images.delete(&listed, operation).await).await.unwrap();
    assert_eq!(world.volumes(), volumes);
    assert_eq!(images.owned(None).await.unwrap(), []);
    world.stop().await;
}

async fn image_ready(hands: &Infrastructure, wanted: &ImageWanted) -> ImageFacts {
    let images = hands.images.clone().expect("images");
    settled(async |operation| images.ensure(wanted, operation).await).await.unwrap()
}

/// The preflight passes in a world that is fine, sees a taken name, and changes nothing.
pub(crate) async fn a_preflight<H: Harness>() {
    let world = H::start(Setup::default()).await;
    let wanted = PreflightWanted {
        cluster_uid: Some(world.wanted("x-cp-0", 0).owner.cluster_uid),
        machines: vec![world.wanted("butler-cp-0", 0), world.wanted("butler-worker-0", 1)],
        ..PreflightWanted::default()
    };
    let findings = world.infrastructure().preflight.check(&wanted).await;
    assert!(findings.len() > 3 && findings.iter().all(|f| f.verdict == Verdict::Pass), "{findings:#?}");
    // What is the cluster's already is no obstacle.
    make(&world, &wanted.machines[0], Life::Same).await.unwrap();
    let changes = world.changes();
    let findings = world.infrastructure().preflight.check(&wanted).await;
    assert!(findings.iter().all(|f| f.verdict == Verdict::Pass), "{findings:#?}");
    assert_eq!(world.changes(), changes);
    world.stop().await;
    let world = H::start(Setup { foreign: vec!["butler-worker-0".to_owned()], ..Setup::default() }).await;
    let findings = world.infrastructure().preflight.check(&wanted).await;
    let failed: Vec<_> = findings.iter().filter(|f| f.verdict == Verdict::Fail).collect();
    assert!(failed.len() == 1 && failed[0].detail.contains("butler-worker-0"), "{findings:#?}");
    assert!(!failed[0].remedy.is_empty());
    world.stop().await;
}
