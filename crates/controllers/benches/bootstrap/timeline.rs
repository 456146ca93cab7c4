//! What happened when, for whoever looks for lost time.

use crate::site::{Site, name};
use butler_api::ClusterBootstrap;
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::{WatchStreamExt, watcher};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Follows the first cluster.
pub(crate) struct Timeline {
    began: Timestamp,
    seen: Arc<Mutex<Vec<(Timestamp, String)>>>,
}

pub(crate) fn wanted() -> bool {
    std::env::var_os("TIMELINE").is_some()
}

pub(crate) fn follow(site: &Site) -> Timeline {
    let seen: Arc<Mutex<Vec<(Timestamp, String)>>> = Arc::default();
    if wanted() {
        let api: Api<ClusterBootstrap> = site.home.api();
        let all = seen.clone();
        tokio::spawn(async move {
            let mut known: BTreeMap<String, String> = BTreeMap::new();
            let mut changes = watcher(api, watcher::Config::default()).applied_objects().boxed();
            while let Some(Ok(object)) = changes.next().await {
                for (what, now) in told(&object) {
                    if known.get(&what) != Some(&now) {
                        all.lock().push((Timestamp::now(), format!("{what}: {now}")));
                        known.insert(what, now);
                    }
                }
            }
        });
    }
    Timeline { began: Timestamp::now(), seen }
}

fn told(object: &ClusterBootstrap) -> Vec<(String, String)> {
    let Some(status) = &object.status else { return Vec::new() };
    let mut all = vec![("phase".to_owned(), format!("{:?}", status.phase))];
    for condition in &status.conditions {
        all.push((condition.type_.clone(), format!("{:?}", condition.status)));
        if condition.type_ == "Progressing" {
            all.push(("doing".to_owned(), condition.message.clone()));
        }
    }
    for machine in &status.machines {
        let text =
            format!("{:?} configured {} ready {}", machine.phase, machine.talos_configured, machine.ready);
        all.push((machine.name.clone(), text));
    }
    for (addon, ready) in &status.addons_installed {
        all.push((format!("addon {addon}"), ready.to_string()));
    }
    all
}

impl Timeline {
    pub(crate) fn tell(&self, site: &Site) {
        if !wanted() {
            return;
        }
        let mut all = self.seen.lock().clone();
        for call in site.calls.all.lock().iter() {
            let took = call.took.as_secs_f64() * 1e3;
            let outcome = format!("{:?}", call.outcome);
            let text = format!(
                "    {} {} {} ({took:.1} ms) {}",
                call.system,
                call.operation,
                call.object,
                outcome.chars().take(90).collect::<String>()
            );
            all.push((call.began, text));
        }
        all.sort();
        eprintln!("{}", name(0));
        for (at, text) in all {
            let ms = at.duration_since(self.began).as_secs_f64() * 1e3;
            eprintln!("{ms:9.1} {}", text.chars().take(260).collect::<String>());
        }
    }
}
