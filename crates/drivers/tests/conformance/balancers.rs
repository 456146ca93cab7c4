//! The suite for load balancers: every function takes a harness and checks one part of `docs/contracts/load-balancers.md`.

use crate::harness::{Balancing, Fault, Setup};
use crate::suite::{Life, make, pause, settled, target, until_ready};
use butler_api::{LoadBalancerOptions, LoadBalancerTarget};
use butler_drivers::{
    Class, Failure, Infrastructure, LoadBalancerFacts, LoadBalancerWanted, LoadBalancers, MachineFacts,
    MachineWanted, Progress,
};

fn hands(all: &Infrastructure) -> &dyn LoadBalancers {
    all.load_balancers.as_deref().expect("load balancers")
}

/// Makes a load balancer.
async fn raise<H: Balancing>(
    world: &H,
    wanted: &LoadBalancerWanted,
    life: Life,
) -> Result<LoadBalancerFacts, Failure> {
    until_ready(world, life, async |all, operation| hands(all).ensure(wanted, operation).await).await
}

/// Removes a load balancer.
async fn raze<H: Balancing>(world: &H, wanted: &LoadBalancerWanted, life: Life) {
    let gone = until_ready(world, life, async |all, operation| hands(all).delete(wanted, operation).await);
    gone.await.unwrap();
}

/// A machine as a target: every field is given, and each infrastructure uses its own.
fn as_target(wanted: &MachineWanted, facts: &MachineFacts) -> LoadBalancerTarget {
    LoadBalancerTarget {
        ip: facts.addresses[0].to_string(),
        instance_id: facts.provider_id.rsplit('/').next().map(str::to_owned),
        instance_name: Some(wanted.name.clone()),
        role: Some(wanted.role),
    }
}

fn with(wanted: &LoadBalancerWanted, targets: &[LoadBalancerTarget]) -> LoadBalancerWanted {
    let mut wanted = wanted.clone();
    wanted.spec.targets = targets.to_vec();
    wanted
}

/// Addresses behind the first port.
fn registered(facts: &LoadBalancerFacts) -> Vec<String> {
    let mut addresses = facts.listeners[0].registered.clone();
    addresses.sort();
    addresses
}

fn addresses(targets: &[LoadBalancerTarget]) -> Vec<String> {
    let mut addresses: Vec<String> = targets.iter().map(|target| target.ip.clone()).collect();
    addresses.sort();
    addresses
}

/// Made without targets, filled one by one, swapped, repeated without a change, listed, removed, gone.
pub(crate) async fn a_life<H: Balancing>() {
    let world = H::start(Setup::default()).await;
    let empty = world.parts();
    let machines: Vec<MachineWanted> =
        (0..3).map(|number| world.wanted(&format!("butler-cp-{number}"), number)).collect();
    let wanted = world.balancer();
    let bare = raise(&world, &wanted, Life::Same).await.unwrap();
    assert!(!bare.endpoint.is_empty() && !bare.resource_id.is_empty(), "{bare:?}");
    assert!(
        bare.listeners.len() > 1 && bare.listeners.iter().all(|one| one.registered.is_empty()),
        "{bare:?}"
    );
    let mut targets = Vec::new();
    for machine in &machines {
        let made = make(&world, machine, Life::Same).await.unwrap();
        targets.push(as_target(machine, &made));
        let facts = raise(&world, &with(&wanted, &targets), Life::Same).await.unwrap();
        assert_eq!((&facts.endpoint, registered(&facts)), (&bare.endpoint, addresses(&targets)));
        assert_eq!(facts.foreign_targets, Vec::<String>::new());
    }
    let full = with(&wanted, &targets);
    let changes = world.changes();
    raise(&world, &full, Life::Same).await.unwrap();
    raise(&world, &full, Life::Reborn).await.unwrap();
    assert_eq!(world.changes(), changes, "a repeated call changed something");
    let hands = world.infrastructure().load_balancers.unwrap();
    let owned = hands.owned(Some(&wanted.owner.cluster_uid)).await.unwrap();
    assert!(!owned.is_empty() && owned.iter().all(|part| part.owner == wanted.owner), "{owned:?}");
    assert_eq!(hands.owned(Some("somebody-else")).await.unwrap(), []);
    // One leaves.
    let facts = raise(&world, &with(&wanted, &targets[1..]), Life::Same).await.unwrap();
    assert_eq!((&facts.endpoint, registered(&facts)), (&bare.endpoint, addresses(&targets[1..])));
    let mut swapped = targets[1..].to_vec();
    swapped[0] = targets[0].clone();
    let facts = raise(&world, &with(&wanted, &swapped), Life::Same).await.unwrap();
    assert_eq!(registered(&facts), addresses(&swapped));
    // As somebody does who has nothing but the list of what is ours.
    let mut listed = with(&wanted, &[]);
    listed.owner = owned[0].owner.clone();
    listed.name.clone_from(&owned[0].name);
    listed.spec.listeners.clear();
    listed.spec.options = None;
    raze(&world, &listed, Life::Same).await;
    assert_eq!(world.parts(), empty, "something was left behind");
    assert_eq!(hands.owned(None).await.unwrap(), []);
    let changes = world.changes();
    raze(&world, &full, Life::Same).await;
    assert_eq!(world.changes(), changes);
    let journal = world.journal();
    assert!(journal.contains(&wanted.name) && !journal.contains(world.secret()), "a secret was written down");
    world.stop().await;
    dry_run_is_the_run::<H>(&machines).await;
}

/// The dry run lists what the real run does, in its order unless parts are made side by side.
async fn dry_run_is_the_run<H: Balancing>(machines: &[MachineWanted]) {
    let world = H::start(Setup::default()).await;
    let wanted = world.balancer();
    let mut targets = Vec::new();
    for machine in machines {
        targets.push(as_target(machine, &make(&world, machine, Life::Same).await.unwrap()));
    }
    let full = with(&wanted, &targets);
    raise(&world, &full, Life::Same).await.unwrap();
    let (mut real, mut dry) = (world.recorded(), world.dry_run_of(machines, &full).await);
    if H::SIDE_BY_SIDE {
        for changes in [&mut real, &mut dry] {
            changes
                .sort_by_key(|change| (change.kind.to_string(), change.name.clone(), change.detail.clone()));
        }
    }
    assert_eq!(real, dry, "the dry run and the real run differ");
    world.stop().await;
}

/// What has the name and is not ours is never touched.
pub(crate) async fn a_foreigner_is_left_alone<H: Balancing>() {
    let world = H::start(Setup { foreign_balancer: true, ..Setup::default() }).await;
    let wanted = world.balancer();
    let before = world.parts();
    let failure = raise(&world, &wanted, Life::Same).await.unwrap_err();
    assert_eq!(failure.class, Class::Conflict, "{failure:?}");
    raze(&world, &wanted, Life::Same).await;
    assert_eq!(world.parts(), before);
    assert_eq!(world.infrastructure().load_balancers.unwrap().owned(None).await.unwrap(), []);
    world.stop().await;
}

/// A port that was taken away comes back; somebody else's target stays and is reported.
pub(crate) async fn drift_is_repaired<H: Balancing>() {
    let world = H::start(Setup::default()).await;
    let machine = world.wanted("butler-cp-0", 0);
    let made = make(&world, &machine, Life::Same).await.unwrap();
    let wanted = with(&world.balancer(), &[as_target(&machine, &made)]);
    let facts = raise(&world, &wanted, Life::Same).await.unwrap();
    let whole = world.parts();
    world.remove_listener();
    assert_ne!(world.parts(), whole);
    let again = raise(&world, &wanted, Life::Same).await.unwrap();
    assert_eq!((again.endpoint, world.parts()), (facts.endpoint.clone(), whole));
    let stranger = world.add_stranger();
    let changes = world.changes();
    let reported = raise(&world, &wanted, Life::Same).await.unwrap();
    assert_eq!(reported.foreign_targets, [stranger]);
    assert_eq!(world.changes(), changes, "a stranger was touched");
    // Another setting of the check arrives there.
    let mut tuned = wanted.clone();
    let options = tuned.spec.options.get_or_insert_with(LoadBalancerOptions::default);
    options.health_check.interval = 30;
    raise(&world, &tuned, Life::Same).await.unwrap();
    assert!(world.changes() > changes, "the check was not changed");
    let changes = world.changes();
    raise(&world, &tuned, Life::Reborn).await.unwrap();
    assert_eq!(world.changes(), changes);
    world.stop().await;
}

/// A caller that dies after every step and remembers nothing gets the same load balancer; and so does its removal.
pub(crate) async fn no_memory_is_needed<H: Balancing>() {
    let world = H::start(Setup::default()).await;
    let empty = world.parts();
    let wanted = world.balancer();
    settled(async |_| hands(&world.infrastructure()).ensure(&wanted, None).await).await.unwrap();
    settled(async |_| hands(&world.infrastructure()).delete(&wanted, None).await).await.unwrap();
    assert_eq!(world.parts(), empty);
    world.stop().await;
}

/// A load balancer of which the caller knows nothing is found and removed, at every step of its making.
pub(crate) async fn half_made_is_removed<H: Balancing>() {
    for steps in 1..=24 {
        let world = H::start(Setup::default()).await;
        let empty = world.parts();
        let wanted = world.balancer();
        let hands = world.infrastructure().load_balancers.unwrap();
        let mut operation = None;
        for _ in 0..steps {
            if let Progress::InProgress { operation: next, recheck, .. } =
                hands.ensure(&wanted, operation.as_ref()).await.unwrap()
            {
                operation = next;
                pause(recheck).await;
            }
        }
        raze(&world, &wanted, Life::Reborn).await;
        assert_eq!(world.parts(), empty, "after {steps} steps");
        world.stop().await;
    }
}

/// A world with a machine and everything that was counted in it.
struct Counted {
    machine: MachineWanted,
    wanted: LoadBalancerWanted,
    /// The calls of its making and of its removal that change something, and those that don't.
    making: Vec<u64>,
    changes: Vec<u64>,
    looks: Vec<u64>,
    whole: Vec<String>,
    empty: Vec<String>,
}

async fn count<H: Balancing>(life: Life) -> Counted {
    let world = H::start(Setup::default()).await;
    let machine = world.wanted("butler-cp-0", 0);
    let made = make(&world, &machine, Life::Same).await.unwrap();
    let wanted = with(&world.balancer(), &[as_target(&machine, &made)]);
    let (empty, first) = (world.parts(), world.calls());
    raise(&world, &wanted, life).await.unwrap();
    let (whole, middle) = (world.parts(), world.calls());
    raze(&world, &wanted, life).await;
    assert_eq!(world.parts(), empty);
    let (changes, looks): (Vec<u64>, Vec<u64>) =
        (first + 1..=world.calls()).partition(|call| world.is_change(*call));
    let making: Vec<u64> = changes.iter().copied().filter(|call| *call <= middle).collect();
    assert!(making.len() > 3 && looks.len() > changes.len(), "{changes:?} {looks:?}");
    world.stop().await;
    Counted { machine, wanted, making, changes, looks, whole, empty }
}

/// Every call of a load balancer's making and removal goes wrong once.
///
/// Every change meets every fault. A look meets one, the next look another: neighbours are alike, so that every fault meets every
/// kind of look. A caller that stays alive has it easier than one that dies: there only changes go wrong, and only in the ways that
/// leave it in doubt about what there is.
pub(crate) async fn every_call_goes_wrong<H: Balancing>(life: Life) {
    let counted = count::<H>(life).await;
    let doubtful = |fault: &Fault| matches!(fault, Fault::Cut | Fault::Lose | Fault::Stale);
    let faults: Vec<Fault> =
        Fault::ALL.into_iter().filter(|fault| life == Life::Reborn || doubtful(fault)).collect();
    let changes = counted.changes.iter().flat_map(|call| faults.iter().map(|fault| (*fault, *call)));
    let looks = counted.looks.iter().enumerate().map(|(turn, call)| (faults[turn % faults.len()], *call));
    let looks = looks.filter(|_| life == Life::Reborn);
    let cases: Vec<(Fault, u64)> = changes.chain(looks).collect();
    let counted = &counted;
    let check = |(fault, call)| async move {
        let world = H::start(Setup::default()).await;
        make(&world, &counted.machine, Life::Same).await.unwrap();
        world.fail(call, fault);
        let facts = raise(&world, &counted.wanted, life).await;
        let facts = facts.unwrap_or_else(|failure| panic!("{fault:?} at {call}: {failure:?}"));
        assert_eq!(registered(&facts), addresses(&counted.wanted.spec.targets), "{fault:?} at {call}");
        assert_eq!(world.parts(), counted.whole, "{fault:?} at {call}");
        raze(&world, &counted.wanted, life).await;
        assert_eq!(world.parts(), counted.empty, "{fault:?} at {call}");
        world.stop().await;
    };
    futures::StreamExt::for_each_concurrent(futures::stream::iter(cases), 16, check).await;
}

/// The answer to every change is lost in turn, and everything that is read next shows what was there before it.
pub(crate) async fn lost_answers_and_stale_looks<H: Balancing>(life: Life) {
    let counted = count::<H>(life).await;
    let cases: Vec<(u64, u64)> =
        counted.making.iter().flat_map(|call| [2, 8].map(|lag| (*call, lag))).collect();
    let counted = &counted;
    let check = |(call, lag)| async move {
        let world = H::start(Setup::default()).await;
        make(&world, &counted.machine, Life::Same).await.unwrap();
        world.fail(call, Fault::Lose);
        (1..=lag).for_each(|behind| world.fail(call + behind, Fault::Stale));
        let made = raise(&world, &counted.wanted, life).await;
        made.unwrap_or_else(|failure| panic!("{lag} stale looks after {call}: {failure:?}"));
        assert_eq!(world.parts(), counted.whole, "{lag} stale looks after {call}");
        world.stop().await;
    };
    futures::StreamExt::for_each_concurrent(futures::stream::iter(cases), 16, check).await;
}

/// A machine that is gone is no obstacle for the load balancer that it was behind.
pub(crate) async fn a_member_vanishes<H: Balancing>() {
    let world = H::start(Setup::default()).await;
    let machine = world.wanted("butler-cp-0", 0);
    let made = make(&world, &machine, Life::Same).await.unwrap();
    let wanted = with(&world.balancer(), &[as_target(&machine, &made)]);
    raise(&world, &wanted, Life::Same).await.unwrap();
    crate::suite::remove(&world, &target(&machine), Life::Same).await;
    let facts = raise(&world, &with(&wanted, &[]), Life::Same).await.unwrap();
    assert_eq!(registered(&facts), Vec::<String>::new());
    raze(&world, &wanted, Life::Same).await;
    world.stop().await;
}
