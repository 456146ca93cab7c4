//! One answer for all who ask at the same time. A list of a large site is long, and every machine that is made needs one.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

/// Shares an answer among callers that came before its question was put: nobody is told what was so before they asked.
#[derive(Debug)]
pub(crate) struct Together<T> {
    /// How many have come.
    arrived: AtomicU64,
    /// The last answer, and how many had come when its question was put.
    last: Mutex<Option<(u64, T)>>,
}

impl<T> Default for Together<T> {
    fn default() -> Self {
        Self { arrived: AtomicU64::new(0), last: Mutex::new(None) }
    }
}

impl<T: Clone> Together<T> {
    /// The answer to a question that is put now or later, by this caller or another.
    pub(crate) async fn ask<F: Future<Output = T>>(&self, question: impl FnOnce() -> F) -> T {
        let own = self.arrived.fetch_add(1, Ordering::SeqCst) + 1;
        // One question at a time; whoever waits here has come before the next one.
        let mut last = self.last.lock().await;
        if let Some((covers, answer)) = &*last
            && *covers >= own
        {
            return answer.clone();
        }
        let covers = self.arrived.load(Ordering::SeqCst);
        let answer = question().await;
        *last = Some((covers, answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::sync::Arc;
    use tokio::sync::Notify;

    #[tokio::test]
    async fn who_comes_while_a_question_is_under_way_shares_the_next_one() {
        let (together, asked, go) = (Together::default(), AtomicU64::new(0), Arc::new(Notify::new()));
        let ask = || {
            together.ask(|| async {
                let number = asked.fetch_add(1, Ordering::SeqCst) + 1;
                go.notified().await;
                number
            })
        };
        let mut first = Box::pin(ask());
        assert!((&mut first).now_or_never().is_none(), "it is under way");
        let mut others = [Box::pin(ask()), Box::pin(ask()), Box::pin(ask())];
        others.iter_mut().for_each(|other| assert!(other.now_or_never().is_none()));
        go.notify_one();
        assert_eq!(first.await, 1);
        go.notify_one();
        let answers = futures::future::join_all(others).await;
        assert_eq!(answers, [2, 2, 2], "the first answer is older than their question");
        go.notify_one();
        assert_eq!(ask().await, 3, "an answer is never given twice to who comes later");
    }

    #[tokio::test]
    async fn who_gives_up_leaves_the_question_to_the_next() {
        let together = Together::<u32>::default();
        let mut given_up = Box::pin(together.ask(std::future::pending));
        assert!((&mut given_up).now_or_never().is_none());
        let mut next = Box::pin(together.ask(|| async { 7 }));
        assert!((&mut next).now_or_never().is_none());
        drop(given_up);
        assert_eq!(next.await, 7);
    }
}
