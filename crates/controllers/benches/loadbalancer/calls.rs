//! Who asked the cloud for what. The cloud itself says which methods were called and which of them change something; whose
//! work a call was is known only to those who made it.

use butler_drivers::{Call, Recorder};
use butler_sim::LoggedCall;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Every call of ours to the outside, as the flight recorder sees it.
#[derive(Default)]
pub(crate) struct Calls(pub(crate) Mutex<Vec<Call>>);

impl Recorder for Calls {
    fn record(&self, call: Call) {
        self.0.lock().push(call);
    }
}

/// Systems of the gate that are clouds.
const CLOUDS: [&str; 2] = ["gce", "aws"];
/// Systems of the flight recorder that are none.
const OTHERS: [&str; 3] = ["talos", "kubernetes", "proxmox"];

/// Whether the recorder's call went to a cloud.
pub(crate) fn to_cloud(call: &Call) -> bool {
    !OTHERS.contains(&call.system)
}

/// Whose work a call was.
fn whose(call: &Call) -> &'static str {
    match call.object.split(' ').next().unwrap_or_default() {
        "login" => "login",
        "machine" | "machines" | "disk" => "machines",
        _ => "balancer",
    }
}

#[derive(Default, Clone, Copy)]
struct Count {
    reads: u64,
    writes: u64,
}

impl Count {
    fn add(&mut self, mutates: bool) {
        *(if mutates { &mut self.writes } else { &mut self.reads }) += 1;
    }

    fn told(self) -> Value {
        json!({"reads": self.reads, "writes": self.writes})
    }
}

/// The figures: all calls as the cloud saw them, and the same by who made them.
pub(crate) fn count(logged: &[LoggedCall], recorded: &[Call]) -> Value {
    let mut all = Count::default();
    let mut methods: BTreeMap<(bool, &str), u64> = BTreeMap::new();
    let to_clouds = logged.iter().map(|logged| &logged.call).filter(|call| CLOUDS.contains(&call.system));
    for call in to_clouds {
        all.add(call.mutates);
        *methods.entry((call.mutates, call.operation.as_str())).or_default() += 1;
    }
    let mut by: BTreeMap<&str, Count> = BTreeMap::new();
    for call in recorded.iter().filter(|call| to_cloud(call)) {
        by.entry(whose(call)).or_default().add(call.mutates);
    }
    check(all, by.values());
    let of = |name: &str| by.get(name).copied().unwrap_or_default().told();
    let methods: Vec<Value> = methods
        .into_iter()
        .map(|((writes, method), times)| json!({"method": method, "writes": writes, "times": times}))
        .collect();
    json!({
        "all": all.told(), "machines": of("machines"), "balancer": of("balancer"), "login": of("login"),
        "methods": methods,
    })
}

/// Both sides have to have seen the same, but for what was under way at the ends.
fn check<'a>(all: Count, by: impl Iterator<Item = &'a Count>) {
    let ours = by.fold(Count::default(), |sum, one| Count {
        reads: sum.reads + one.reads,
        writes: sum.writes + one.writes,
    });
    let apart = (ours.reads + ours.writes).abs_diff(all.reads + all.writes);
    assert!(
        apart <= 4,
        "the cloud saw {} reads and {} writes, we made {} and {}",
        all.reads,
        all.writes,
        ours.reads,
        ours.writes
    );
}
