//! Jobs: pods that end.

use super::super::objects::{self, Action, condition, counts, is_true, list, number, with_status};
use super::template::{self, Named};
use super::{Sight, is_active, is_ready, tell_failed_create};
use serde_json::{Value, json};
use std::sync::Arc;

const KIND: (&str, &str) = ("batch/v1", "Job");

pub(super) fn plan(sight: &Sight<'_>, job: &Arc<Value>, actions: &mut Vec<Action>) {
    if is_true(job, "Complete") || is_true(job, "Failed") {
        return;
    }
    let parallel = usize::try_from(number(job, "/spec/parallelism").unwrap_or(1)).unwrap_or(1);
    let wanted =
        number(job, "/spec/completions").and_then(|n| usize::try_from(n).ok()).unwrap_or(parallel.max(1));
    let pods = sight.of(job);
    let active: Vec<&Arc<Value>> = pods.iter().filter(|pod| is_active(pod)).collect();
    let succeeded = pods.iter().filter(|pod| objects::text(pod, "/status/phase") == "Succeeded").count();
    let suspended = job["spec"]["suspend"] == true;
    let missing = wanted.saturating_sub(succeeded).min(parallel).saturating_sub(active.len());
    if missing > 0 && !suspended {
        let mut pod = template::pod(job, KIND, &Named::Like(template::prefix(job)), &[]);
        template::patient(&mut pod);
        let known = sight.refused.contains_key(objects::uid(job)) || job["status"]["startTime"].is_string();
        match sight.refusal(job, &pod) {
            Some(why) => tell_failed_create(job, known, &why, actions),
            None => actions.extend(
                (0..missing).map(|_| Action::Create { collection: objects::PODS, value: pod.clone() }),
            ),
        }
    }
    let mut status = json!({"startTime": sight.now, "uncountedTerminatedPods": {}});
    if let Some(started) = job["status"]["startTime"].as_str() {
        status["startTime"] = started.into();
    }
    let ready = active.iter().filter(|pod| is_ready(pod)).count();
    counts(&mut status, &[("active", active.len()), ("succeeded", succeeded)]);
    status["ready"] = ready.into();
    status["terminating"] = 0.into();
    if succeeded >= wanted {
        finish(sight, job, &mut status);
    }
    actions.extend(with_status(objects::JOBS, job, status));
}

fn finish(sight: &Sight<'_>, job: &Value, status: &mut Value) {
    let old = list(job, "/status/conditions");
    let made = |kind: &str| {
        let message = "Reached expected number of succeeded pods";
        let mut made = condition(old, kind, "True", "CompletionsReached", message, &sight.now);
        made["lastProbeTime"] = sight.now.as_str().into();
        made
    };
    status["completionTime"] = sight.now.as_str().into();
    status["conditions"] = json!([made("SuccessCriteriaMet"), made("Complete")]);
}
