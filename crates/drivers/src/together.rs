//! One answer for all who ask at the same time. A list of a large site is long, and every machine that is made needs one.

use crate::failure::Failure;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Whoever is about to ask the same comes within this time: things that were looked at together are due together.
const GATHER: Duration = Duration::from_millis(5);
/// No answer is older than this.
const TOLERANCE: Duration = Duration::from_secs(2);

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
        self.ask_after(Duration::ZERO, question).await
    }

    /// The same; the question waits so long for others.
    pub(crate) async fn ask_after<F: Future<Output = T>>(
        &self,
        gather: Duration,
        question: impl FnOnce() -> F,
    ) -> T {
        let own = self.arrived.fetch_add(1, Ordering::SeqCst) + 1;
        // One question at a time; whoever waits here has come before the next one.
        let mut last = self.last.lock().await;
        if let Some((covers, answer)) = &*last
            && *covers >= own
        {
            return answer.clone();
        }
        if !gather.is_zero() {
            tokio::time::sleep(gather).await;
        }
        let covers = self.arrived.load(Ordering::SeqCst);
        let answer = question().await;
        *last = Some((covers, answer.clone()));
        answer
    }
}

/// The same for several questions, by their words.
#[derive(Debug)]
pub(crate) struct Questions<T>(parking_lot::Mutex<BTreeMap<String, Question<T>>>);

#[derive(Debug)]
struct Question<T> {
    together: Arc<Together<Result<T, Failure>>>,
    /// The last answer, and when its question was put.
    last: Option<(Instant, T)>,
    /// When each asker asked last.
    asked: BTreeMap<String, Instant>,
}

impl<T> Default for Questions<T> {
    fn default() -> Self {
        Self(parking_lot::Mutex::default())
    }
}

impl<T> Default for Question<T> {
    fn default() -> Self {
        Self { together: Arc::default(), last: None, asked: BTreeMap::new() }
    }
}

impl<T: Clone> Questions<T> {
    /// The answer to one of them, for all who ask it at about the same time. An answer is good for somebody when its question was put
    /// far later than they asked last: whoever looks every minute does not mind a second.
    pub(crate) async fn ask<F: Future<Output = Result<T, Failure>>>(
        &self,
        words: &str,
        asker: &str,
        question: impl FnOnce() -> F,
    ) -> Result<T, Failure> {
        let now = Instant::now();
        let together = {
            let mut all = self.0.lock();
            let one = all.entry(words.to_owned()).or_default();
            let before = one.asked.insert(asker.to_owned(), now);
            let tolerance = before.map_or(Duration::ZERO, |before| now.duration_since(before) / 4);
            if let Some((put, answer)) = &one.last
                && now.duration_since(*put) < tolerance.min(TOLERANCE)
            {
                return Ok(answer.clone());
            }
            Arc::clone(&one.together)
        };
        let answer = together.ask_after(GATHER, question).await;
        if let (Ok(answer), Some(one)) = (&answer, self.0.lock().get_mut(words)) {
            one.last = Some((now, answer.clone()));
        }
        answer
    }

    /// Something was changed: what was answered before is not good any more.
    pub(crate) fn forget(&self, words: &str) {
        if let Some(one) = self.0.lock().get_mut(words) {
            one.last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
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
    async fn who_asks_at_about_the_same_time_shares_an_answer() {
        let (questions, asked) = (Questions::default(), AtomicU64::new(0));
        let ask = |words, asker| {
            let answer =
                questions.ask(words, asker, || async { Ok(asked.fetch_add(1, Ordering::SeqCst) + 1) });
            async { answer.await.unwrap() }
        };
        assert_eq!(tokio::join!(ask("a", "x"), ask("a", "y"), ask("a", "z")), (1, 1, 1));
        let (a, b) = tokio::join!(ask("a", "x"), ask("b", "x"));
        assert_eq!(a + b, 2 + 3, "other questions have other answers");
        tokio::time::sleep(Duration::from_millis(400)).await;
        let first = ask("a", "x").await;
        assert_eq!(ask("a", "y").await, first, "a moment is nothing to who asks seldom");
        assert!(ask("a", "y").await > first, "and much to who has just asked");
        assert!(ask("a", "new").await > first, "and to who has never asked");
        tokio::time::sleep(Duration::from_millis(400)).await;
        let before = ask("a", "x").await;
        questions.forget("a");
        assert!(ask("a", "y").await > before, "nothing of before a change is told");
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
