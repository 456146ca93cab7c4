//! The suite's part for images: every function takes a harness whose infrastructure fetches images, and checks one part of the
//! contract in `docs/contracts/images.md`.

use crate::harness::{Fault, Harness, Setup};
use crate::suite::{Life, STEPS, check_failure, pause};
use butler_drivers::{ImageFacts, ImageWanted, Images, Operation, Progress};
use std::sync::Arc;
use std::time::Duration;

fn images<H: Harness>(world: &H) -> Arc<dyn Images> {
    world.infrastructure().images.expect("images")
}

/// Calls `ensure` until the image is there. Failures that go away by themselves are called again.
async fn fetch<H: Harness>(world: &H, wanted: &ImageWanted, life: Life) -> ImageFacts {
    let mut hands = images(world);
    let mut operation: Option<Operation> = None;
    for _ in 0..STEPS {
        let before = world.changes();
        let answer = hands.ensure(wanted, operation.as_ref()).await;
        assert!(world.changes() <= before + 1, "more than one change in a call");
        match answer {
            Ok(Progress::Ready(facts)) => return facts,
            Ok(Progress::InProgress { operation: next, recheck, .. }) => {
                operation = next;
                pause(recheck).await;
            }
            Err(failure) => {
                check_failure(&failure);
                assert!(!failure.class.stops(), "{failure:?}");
                if life == Life::Reborn {
                    (hands, operation) = (images(world), None);
                }
            }
        }
    }
    panic!("the image never came: {operation:?}");
}

/// Calls `delete` until the image is gone.
async fn remove<H: Harness>(world: &H, wanted: &ImageWanted, life: Life) {
    let mut hands = images(world);
    let mut operation: Option<Operation> = None;
    for _ in 0..STEPS {
        let before = world.changes();
        let answer = hands.delete(wanted, operation.as_ref()).await;
        assert!(world.changes() <= before + 1, "more than one change in a call");
        match answer {
            Ok(Progress::Ready(())) => return,
            Ok(Progress::InProgress { operation: next, recheck, .. }) => {
                operation = next;
                pause(recheck).await;
            }
            Err(failure) => {
                check_failure(&failure);
                assert!(!failure.class.stops(), "{failure:?}");
                if life == Life::Reborn {
                    (hands, operation) = (images(world), None);
                }
            }
        }
    }
    panic!("the image never went: {operation:?}");
}

/// Every call of an image's fetching and removal goes wrong once, in every way. A caller that dies forgets its operation too.
pub(crate) async fn every_call_goes_wrong<H: Harness>(life: Life) {
    let world = H::start(Setup::default()).await;
    let wanted = world.image().expect("an image");
    let empty = world.volumes();
    fetch(&world, &wanted, life).await;
    let (made, volumes) = (world.calls(), world.volumes());
    remove(&world, &wanted, life).await;
    let all = world.calls();
    assert_eq!(world.volumes(), empty);
    world.stop().await;
    assert!(made > 4 && all > made + 4);
    let cases = Fault::ALL.into_iter().flat_map(|fault| (1..=all).map(move |call| (fault, call)));
    let check = |(fault, call)| {
        let wanted = &wanted;
        async move {
            let world = H::start(Setup::default()).await;
            world.fail(call, fault);
            fetch(&world, wanted, life).await;
            assert_eq!(world.volumes(), volumes, "{fault:?} at {call}");
            remove(&world, wanted, life).await;
            assert_eq!(world.volumes(), empty, "{fault:?} at {call}");
            world.stop().await;
        }
    };
    futures::StreamExt::for_each_concurrent(futures::stream::iter(cases), 16, check).await;
}

/// An image that is still being fetched, of which the caller knows nothing, is removed; and nothing comes after that.
pub(crate) async fn half_fetched_is_removed<H: Harness>() {
    for steps in 1..=3 {
        let world = H::start(Setup { slow: true, ..Setup::default() }).await;
        let wanted = world.image().expect("an image");
        let empty = world.volumes();
        let hands = images(&world);
        let mut operation = None;
        for _ in 0..steps {
            if let Progress::InProgress { operation: next, recheck, .. } =
                hands.ensure(&wanted, operation.as_ref()).await.unwrap()
            {
                operation = next;
                pause(recheck).await;
            }
        }
        assert!(world.busy(), "it is being fetched");
        remove(&world, &wanted, Life::Reborn).await;
        while world.busy() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(world.volumes(), empty, "after {steps} steps");
        world.stop().await;
    }
}

/// A caller that forgets everything waits for what is being fetched, rather than have it fetched again.
pub(crate) async fn nothing_is_fetched_twice<H: Harness>() {
    let world = H::start(Setup { slow: true, ..Setup::default() }).await;
    let wanted = world.image().expect("an image");
    let mut found = None;
    for _ in 0..STEPS {
        match images(&world).ensure(&wanted, None).await.unwrap() {
            Progress::Ready(facts) => {
                found = Some(facts);
                break;
            }
            Progress::InProgress { .. } => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    let facts = found.expect("the image never came");
    let changes = world.changes();
    world.stop().await;
    let world = H::start(Setup::default()).await;
    assert_eq!(fetch(&world, &wanted, Life::Same).await, facts);
    assert_eq!(changes, world.changes(), "as often as by one that remembers");
    world.stop().await;
}
