//! Stillness: so that a snapshot finds the machines of a world between two steps, and not in the middle of one.
//!
//! Whoever is about to change a machine is *busy* until the change is through, with all that follows from it at once. A
//! world that is to be [`still`](Calm::still) lets nobody from outside begin, and waits for those who have begun.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::watch;

#[derive(Debug, Default)]
pub(crate) struct Calm {
    counts: Mutex<Counts>,
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Counts {
    stopped: u32,
    busy: u32,
}

/// Somebody is busy, as long as this lives.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Calm>);

/// Nobody is busy, as long as this lives.
#[derive(Debug)]
pub(crate) struct Still(Arc<Calm>);

impl Calm {
    /// For what follows from something that has begun.
    pub(crate) fn busy_now(self: &Arc<Self>) -> Busy {
        self.counts.lock().busy += 1;
        Busy(self.clone())
    }

    /// For what begins; waits as long as the world is kept still.
    pub(crate) async fn busy(self: &Arc<Self>) -> Busy {
        self.until(|counts| {
            let free = counts.stopped == 0;
            counts.busy += u32::from(free);
            free
        })
        .await;
        Busy(self.clone())
    }

    pub(crate) async fn still(self: &Arc<Self>) -> Still {
        self.counts.lock().stopped += 1;
        let still = Still(self.clone());
        self.until(|counts| counts.busy == 0).await;
        still
    }

    async fn until(&self, mut is_so: impl FnMut(&mut Counts) -> bool) {
        let mut changed = self.changed.subscribe();
        while !is_so(&mut self.counts.lock()) {
            // The sender is a part of this.
            let _ = changed.changed().await;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.counts.lock().busy -= 1;
        self.0.changed.send_replace(());
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        self.0.counts.lock().stopped -= 1;
        self.0.changed.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stillness_waits_for_the_busy_and_keeps_newcomers_waiting() {
        let calm = Arc::new(Calm::default());
        let busy = calm.busy().await;
        let stilling = tokio::spawn({
            let calm = calm.clone();
            async move { calm.still().await }
        });
        while calm.counts.lock().stopped == 0 {
            tokio::task::yield_now().await;
        }
        let follows = calm.busy_now();
        drop(busy);
        tokio::task::yield_now().await;
        assert!(!stilling.is_finished(), "what follows is not through");
        drop(follows);
        let still = stilling.await.unwrap();
        let newcomer = tokio::spawn({
            let calm = calm.clone();
            async move { calm.busy().await }
        });
        tokio::task::yield_now().await;
        assert!(!newcomer.is_finished());
        drop(still);
        drop(newcomer.await.unwrap());
        assert_eq!(calm.counts.lock().busy, 0);
    }
}
