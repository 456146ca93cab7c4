use super::*;
use serde_json::json;

fn draft(name: &str, n: u64) -> Change {
    let mut value = json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": name}, "n": n});
    Change::Put(Draft::new(&mut value).unwrap())
}

fn names(objects: &[Arc<Object>]) -> Vec<&str> {
    objects.iter().map(|o| &*o.key.name).collect()
}

async fn put(
    store: &Store,
    c: &CollectionName,
    name: &str,
    expect: Expect,
    n: u64,
) -> Result<u64, WriteError> {
    store.write(c, Key::new("ns", name), expect, draft(name, n)).await.map(|o| o.revision)
}

#[tokio::test]
async fn writes_are_checked_against_the_newest_state() {
    let store = Store::in_memory();
    let c: CollectionName = "xs".into();
    let r = put(&store, &c, "a", Expect::Absent, 1).await.unwrap();
    assert!(matches!(put(&store, &c, "a", Expect::Absent, 2).await, Err(WriteError::Exists)));
    assert!(matches!(put(&store, &c, "a", Expect::Revision(r + 7), 2).await, Err(WriteError::Stale)));
    assert!(matches!(put(&store, &c, "b", Expect::Revision(r), 2).await, Err(WriteError::Missing)));
    let r2 = put(&store, &c, "a", Expect::Revision(r), 2).await.unwrap();
    assert!(r2 > r);
    store.write(&c, Key::new("ns", "a"), Expect::Revision(r2), Change::Delete).await.unwrap();
    assert!(store.get("xs", &Key::new("ns", "a")).is_none());
}

#[tokio::test]
async fn a_list_can_look_back_until_the_past_is_forgotten() {
    let store = Store::in_memory();
    let c: CollectionName = "xs".into();
    let ra = put(&store, &c, "a", Expect::Absent, 1).await.unwrap();
    let rb = put(&store, &c, "b", Expect::Absent, 1).await.unwrap();
    store.write(&c, Key::new("ns", "a"), Expect::Revision(ra), Change::Delete).await.unwrap();
    put(&store, &c, "c", Expect::Absent, 1).await.unwrap();
    let then = store.list_at("xs", Scope::All, None, rb).unwrap();
    assert_eq!(names(&then.objects), ["a", "b"]);
    let page = store.list_at("xs", Scope::Namespace("ns"), Some(&Key::new("ns", "a")), rb).unwrap();
    assert_eq!(names(&page.objects), ["b"]);
    store.compact(rb + 1);
    assert!(matches!(store.list_at("xs", Scope::All, None, rb), Err(ListError::TooOld { .. })));
    assert_eq!(names(&store.list("xs", Scope::All).objects), ["b", "c"]);
}

#[tokio::test]
async fn a_watch_resumes_where_it_left_and_learns_that_it_is_too_late() {
    let store = Store::in_memory();
    let c: CollectionName = "xs".into();
    let r = put(&store, &c, "a", Expect::Absent, 1).await.unwrap();
    let mut watcher = store.watch(&c, r).unwrap();
    assert!(watcher.pending().unwrap().is_empty());
    let r2 = put(&store, &c, "a", Expect::Revision(r), 2).await.unwrap();
    let events = watcher.next().await.unwrap();
    assert_eq!((events.len(), events[0].kind, events[0].object.revision), (1, EventKind::Modified, r2));
    put(&store, &c, "b", Expect::Absent, 1).await.unwrap();
    store.compact(store.revision());
    assert!(watcher.pending().is_err());
    assert!(store.watch(&c, r).is_err());
}

/// Refuses every second batch as a full disk would.
struct Flaky(bool);
impl Journal for Flaky {
    fn append(&mut self, _: &[(CollectionName, Arc<Event>)]) -> Result<(), JournalError> {
        self.0 = !self.0;
        if self.0 { Ok(()) } else { Err(JournalError::Full("test".into())) }
    }
}

#[tokio::test]
async fn a_failed_batch_leaves_no_trace_and_reuses_no_revision() {
    let store = Store::open(Box::new(Flaky(false)), Restored::default(), HistoryLimits::default());
    let c: CollectionName = "xs".into();
    let r = put(&store, &c, "a", Expect::Absent, 1).await.unwrap();
    assert!(matches!(put(&store, &c, "b", Expect::Absent, 1).await, Err(WriteError::Journal(_))));
    assert!(store.get("xs", &Key::new("ns", "b")).is_none());
    let r3 = put(&store, &c, "b", Expect::Absent, 1).await.unwrap();
    assert!(r3 > r + 1, "revision {} was handed out before", r3);
    store.close();
    assert!(matches!(put(&store, &c, "z", Expect::Absent, 1).await, Err(WriteError::Closed)));
}

/// Takes its time, and writes down what it was given.
struct Slow(Arc<Mutex<Vec<Vec<u64>>>>);
impl Journal for Slow {
    fn append(&mut self, batch: &[(CollectionName, Arc<Event>)]) -> Result<(), JournalError> {
        std::thread::sleep(std::time::Duration::from_millis(1));
        self.0.lock().push(batch.iter().map(|(_, e)| e.object.revision).collect());
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_writers_share_batches_and_every_write_is_in_exactly_one() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let store = Store::open(Box::new(Slow(seen.clone())), Restored::default(), HistoryLimits::default());
    let c: CollectionName = "xs".into();
    let writers: Vec<_> = (0..40)
        .map(|w| {
            let (store, c) = (store.clone(), c.clone());
            tokio::spawn(async move {
                let mut last = put(&store, &c, &format!("w{w}"), Expect::Absent, 0).await.unwrap();
                for n in 1..20 {
                    last = put(&store, &c, &format!("w{w}"), Expect::Revision(last), n).await.unwrap();
                }
                last
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    store.close();
    let batches = seen.lock().clone();
    let all: Vec<u64> = batches.iter().flatten().copied().collect();
    assert_eq!(all.len(), 800);
    assert!(all.is_sorted_by(|a, b| a < b), "revisions reach the journal in order, each once");
    assert!(batches.len() < 800, "nothing was shared");
    assert_eq!(store.list("xs", Scope::All).objects.len(), 40);
}

/// What is stored, by name.
fn numbers(store: &Store) -> std::collections::BTreeMap<String, u64> {
    let objects = store.list("xs", Scope::All).objects;
    objects.iter().map(|o| (o.key.name.to_string(), o.value()["n"].as_u64().unwrap())).collect()
}

/// The whole way down, writers and journal thread included, on a disk that dies at any operation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_survives_power_cuts_with_all_that_it_acknowledged() {
    use super::disk::{Restart, SimDisk};
    for seed in 0..150u64 {
        let mut disk = SimDisk::new(seed);
        let mut known: std::collections::BTreeMap<String, u64> = Default::default();
        let mut highest = 0;
        for life in 0..4u64 {
            let (journal, restored) = Durable::on(disk.clone()).unwrap();
            let store = Store::open(Box::new(journal), restored, HistoryLimits::default());
            assert_eq!(numbers(&store), known, "seed {seed} life {life}: something was lost or came back");
            assert!(store.revision() >= highest, "seed {seed} life {life}: revisions went back");
            disk.go_down_after(3 + (seed * 7 + life * 13) % 40);
            let c: CollectionName = "xs".into();
            // One writer after the other, so that at most the last write is unsure; it is settled by looking.
            let mut unsure = None;
            for n in 0..40 {
                let name = format!("o{}", (n + seed) % 5);
                let key = Key::new("ns", &name);
                let expect = store.get("xs", &key).map_or(Expect::Absent, |o| Expect::Revision(o.revision));
                let delete = n % 4 == 3 && expect != Expect::Absent;
                let change = if delete { Change::Delete } else { draft(&name, n) };
                match store.write(&c, key, expect, change).await {
                    Ok(object) => {
                        assert!(object.revision > highest, "seed {seed}: revision {} again", object.revision);
                        highest = object.revision;
                        if delete {
                            known.remove(&name)
                        } else {
                            known.insert(name, n)
                        };
                    }
                    Err(_) => {
                        unsure = Some((name, delete, n));
                        break;
                    }
                }
            }
            store.close();
            drop(store);
            disk = disk.restart(Restart::PowerCut);
            if let Some((name, delete, n)) = unsure {
                let (_, restored) = Durable::on(disk.clone()).unwrap();
                let there = restored.objects.iter().find(|(_, o)| *o.key.name == *name);
                let there = there.map(|(_, o)| o.value()["n"].as_u64().unwrap());
                let wanted = if delete { None } else { Some(n) };
                let before = known.get(&name).copied();
                assert!(there == before || there == wanted, "seed {seed}: {name} is {there:?}");
                highest = highest.max(restored.revision);
                match there {
                    Some(n) => known.insert(name, n),
                    None => known.remove(&name),
                };
                disk = disk.restart(Restart::PowerCut);
            }
        }
    }
}
