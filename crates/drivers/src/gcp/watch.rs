//! Follows operations by long polls: Google answers when the operation is over, so that one call stands for many looks. The polls go
//! on beside the verbs, which never wait: a verb asks here, which costs nothing, and is told what is known.

use super::client::Client;
use super::error::CallError;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// Between two polls at least, should the answer come at once and say nothing.
const BREATH: Duration = Duration::from_secs(1);

/// All operations that are followed, by their paths. Whoever is dropped asks no more.
#[derive(Default)]
pub(crate) struct Watches(Mutex<BTreeMap<String, Watch>>);

struct Watch {
    /// The end of the URL of what it changes.
    target: String,
    since: Instant,
    /// What it came to.
    over: Arc<Mutex<Option<Result<Value, CallError>>>>,
    task: AbortHandle,
}

/// What is known of an operation.
pub(crate) enum Known {
    /// Nobody follows it.
    Nothing,
    /// It changes this, and has been followed so long.
    UnderWay(String, Duration),
    /// It is over, or could not be looked at. It is not followed any more.
    Over(Result<Value, CallError>),
}

impl Watches {
    /// What is known. Asks nobody.
    pub(crate) fn ask(&self, path: &str) -> Known {
        let mut all = self.0.lock();
        let Some(watch) = all.get(path) else { return Known::Nothing };
        let over = watch.over.lock().take();
        match over {
            None => Known::UnderWay(watch.target.clone(), watch.since.elapsed()),
            Some(outcome) => {
                all.remove(path);
                Known::Over(outcome)
            }
        }
    }

    /// Follows an operation from now on.
    pub(crate) fn begin(&self, client: &Arc<Client>, path: &str, target: &str, object: &str) {
        let over: Arc<Mutex<Option<Result<Value, CallError>>>> = Arc::default();
        let task = tokio::spawn({
            let (client, over) = (Arc::clone(client), Arc::clone(&over));
            let (path, object) = (path.to_owned(), object.to_owned());
            async move {
                let outcome = until_over(&client, &path, &object).await;
                *over.lock() = Some(outcome);
            }
        });
        let task = task.abort_handle();
        let watch = Watch { target: target.to_owned(), since: Instant::now(), over, task };
        self.0.lock().insert(path.to_owned(), watch);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether an operation's state says that it is over. That is not success.
pub(crate) fn is_over(state: &Value) -> bool {
    state.get("status").and_then(Value::as_str) == Some("DONE")
}

async fn until_over(client: &Client, path: &str, object: &str) -> Result<Value, CallError> {
    loop {
        let began = Instant::now();
        let state = match client.wait(path, object).await? {
            Some(state) => state,
            // No answer in time may also mean that nobody is there.
            None => client.get(path, object).await?,
        };
        if is_over(&state) {
            return Ok(state);
        }
        tokio::time::sleep(BREATH.saturating_sub(began.elapsed())).await;
    }
}
