//! What a LoadBalancerRequest tells while it lives, written down as it changes.

use super::NAME;
use super::support::Home;
use butler_api::LoadBalancerRequest;
use futures::StreamExt;
use kube::runtime::{WatchStreamExt, watcher};
use std::fmt::Write;
use std::pin::pin;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Only ends a test that would never end.
const PATIENCE: Duration = Duration::from_secs(120);
/// Conditions that journals tell of.
const CONDITIONS: [&str; 4] = ["Provisioned", "TargetsSynced", "Degraded", "ForeignTargets"];

/// Follows the request from its first moment on.
pub(crate) struct Journal {
    lines: watch::Sender<Vec<String>>,
    task: JoinHandle<()>,
}

impl Journal {
    /// Needs to be there before the request is.
    pub(crate) fn follow(home: &Home) -> Journal {
        let lines = watch::Sender::new(Vec::new());
        let (told, api) = (lines.clone(), home.api::<LoadBalancerRequest>());
        let task = tokio::spawn(async move {
            let mut last = Vec::new();
            let mut changes = pin!(watcher(api, watcher::Config::default()).touched_objects());
            while let Some(Ok(request)) = changes.next().await {
                let now = words(&request);
                let news: Vec<String> = now.iter().filter(|word| !last.contains(*word)).cloned().collect();
                if !news.is_empty() {
                    told.send_modify(|lines| lines.push(news.join(", ")));
                }
                last = now;
            }
        });
        Journal { lines, task }
    }

    /// Waits until something was told. A watch that begins now would miss what is over already.
    pub(crate) async fn tells(&self, what: &str) {
        self.until(what, |lines| lines.iter().any(|line| line.contains(what))).await;
    }

    async fn until(&self, what: &str, there: impl Fn(&Vec<String>) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, async {
            self.lines.subscribe().wait_for(|lines| there(lines)).await.map(drop)
        });
        assert!(waited.await.is_ok(), "{what:?} never came: {:#?}", self.lines.borrow());
    }

    /// What was told so far, with what the cloud changed; begins anew. Waits for a last line, since a watch may lag.
    pub(crate) async fn text(&self, title: &str, last: &str, changes: &[String]) -> String {
        self.until(last, |lines| lines.last().is_some_and(|line| line.contains(last))).await;
        let mut text = format!("{title}\n\nin the cloud\n");
        changes.iter().for_each(|line| writeln!(text, "  {line}").unwrap());
        text.push_str("\ntold\n");
        for line in self.lines.send_replace(Vec::new()) {
            writeln!(text, "  {line}").unwrap();
        }
        text
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Everything that is told of a request, in words.
fn words(request: &LoadBalancerRequest) -> Vec<String> {
    let Some(status) = &request.status else { return vec![format!("{NAME} is there")] };
    let mut words: Vec<String> = Vec::new();
    words.extend(status.phase.map(|phase| format!("phase {phase:?}")));
    words.extend(status.endpoint.as_ref().map(|host| format!("endpoint {host}")));
    words.extend(status.registered_targets.map(|number| format!("targets {number}")));
    for type_ in CONDITIONS {
        if let Some(told) = super::told(request, type_) {
            words.push(format!("{type_}={}({})", told.is_true(), told.reason));
        }
    }
    words
}
