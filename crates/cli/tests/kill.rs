//! `kill -9` under load, again and again on one data directory: what was acknowledged is there, what was deleted stays
//! deleted, and no revision is handed out twice.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ROUNDS: u64 = 50;
const WRITERS: u64 = 8;
/// Names each writer works on.
const NAMES: u64 = 6;

/// What a writer knows of one of its objects.
#[derive(Debug, Clone, PartialEq)]
enum Known {
    Absent,
    Holds(u64),
    /// A write was under way when the server died: either of the two.
    Either(Box<Known>, Box<Known>),
}

#[derive(Default)]
struct Model {
    objects: BTreeMap<String, Known>,
    highest_revision: u64,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL, which is the point.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(folder: &Path) -> Process {
    let mut child = Command::new(env!("CARGO_BIN_EXE_butleradm"))
        .args(["apiserver", "--listen", "127.0.0.1:0"])
        .arg("--data-dir")
        .arg(folder.join("data"))
        .arg("--write-kubeconfig")
        .arg(folder.join("kubeconfig"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("butleradm starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line).expect("a line comes");
    assert!(line.starts_with("ready https://127.0.0.1:"), "{line:?}");
    Process(child)
}

async fn client(folder: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(folder.join("kubeconfig")).expect("the kubeconfig is readable");
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("it describes a cluster");
    // A retry after the kill would wait for a server that is gone.
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

fn object(name: &str, n: u64) -> ConfigMap {
    let mut cm = ConfigMap { data: Some([("n".to_string(), n.to_string())].into()), ..ConfigMap::default() };
    cm.metadata.name = Some(name.into());
    cm
}

fn number(cm: &ConfigMap) -> u64 {
    cm.data.as_ref().and_then(|d| d.get("n")).and_then(|n| n.parse().ok()).expect("a number was stored")
}

fn revision(cm: &ConfigMap) -> u64 {
    cm.metadata.resource_version.as_deref().and_then(|rv| rv.parse().ok()).expect("a revision")
}

/// One write. `Ok` carries the revision it got; `Err` means that nobody knows.
async fn write(api: &Api<ConfigMap>, name: &str, known: &Known, next: &Known) -> Result<u64, kube::Error> {
    match (known, next) {
        (_, Known::Absent) => {
            api.delete(name, &DeleteParams::default()).await?;
            Ok(0)
        }
        (Known::Absent, Known::Holds(n)) => {
            Ok(revision(&api.create(&PostParams::default(), &object(name, *n)).await?))
        }
        (_, Known::Holds(n)) => {
            Ok(revision(&api.replace(name, &PostParams::default(), &object(name, *n)).await?))
        }
        (_, Known::Either(..)) => unreachable!("nobody wants to be unsure"),
    }
}

async fn writer(api: Api<ConfigMap>, id: u64, mut n: u64, model: Arc<Mutex<Model>>) {
    loop {
        n += 1;
        let name = format!("w{id}-{}", n % NAMES);
        let known = model.lock().expect("lock").objects.get(&name).cloned().unwrap_or(Known::Absent);
        let next =
            if n.is_multiple_of(5) && known != Known::Absent { Known::Absent } else { Known::Holds(n) };
        let unsure = Known::Either(Box::new(known.clone()), Box::new(next.clone()));
        model.lock().expect("lock").objects.insert(name.clone(), unsure);
        let Ok(got) = write(&api, &name, &known, &next).await else { return };
        let mut model = model.lock().expect("lock");
        model.objects.insert(name, next);
        model.highest_revision = model.highest_revision.max(got);
    }
}

/// Compares what there is with what was promised, and settles what was unsure.
async fn verify(api: &Api<ConfigMap>, model: &Mutex<Model>, round: u64) {
    let list = api.list(&ListParams::default()).await.expect("the list is answered");
    let there: BTreeMap<String, u64> = list
        .items
        .iter()
        .filter(|cm| cm.metadata.name.as_deref().is_some_and(|n| n.starts_with('w')))
        .map(|cm| (cm.metadata.name.clone().expect("a name"), number(cm)))
        .collect();
    let mut model = model.lock().expect("lock");
    for (name, known) in &mut model.objects {
        let now = there.get(name).map_or(Known::Absent, |n| Known::Holds(*n));
        match known {
            Known::Either(a, b) => {
                assert!(
                    now == **a || now == **b,
                    "round {round}: {name} is {now:?}, neither {a:?} nor {b:?}"
                );
                *known = now;
            }
            sure => assert_eq!(&now, sure, "round {round}: {name} was acknowledged otherwise"),
        }
    }
    for name in there.keys() {
        assert!(model.objects.contains_key(name), "round {round}: {name} came from nowhere");
    }
    let newest: u64 =
        list.metadata.resource_version.expect("lists have a revision").parse().expect("a number");
    assert!(
        newest >= model.highest_revision,
        "round {round}: revision {newest} is below the acknowledged {}",
        model.highest_revision
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_kills_under_load_lose_nothing_that_was_acknowledged() {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let folder = tempfile::tempdir().expect("a folder");
    let model = Arc::new(Mutex::new(Model::default()));
    let mut writes = 0;
    for round in 0..ROUNDS {
        let mut server = start(folder.path());
        let api: Api<ConfigMap> = Api::namespaced(client(folder.path()).await, "default");
        verify(&api, &model, round).await;
        // The first write of a round must get a revision that nobody has seen.
        let before = model.lock().expect("lock").highest_revision;
        let probe = format!("probe-{round}");
        let made =
            api.create(&PostParams::default(), &object(&probe, round)).await.expect("a write is accepted");
        assert!(revision(&made) > before, "round {round}: revision {} was used before", revision(&made));
        model.lock().expect("lock").highest_revision = revision(&made);
        let tasks: Vec<_> = (0..WRITERS)
            .map(|id| tokio::spawn(writer(api.clone(), id, round * 100_000, model.clone())))
            .collect();
        // Not a measure of anything: it only moves the kill to another moment of the load in each round.
        tokio::time::sleep(Duration::from_millis(5 + (round * 37) % 60)).await;
        server.0.kill().expect("the server is killed");
        server.0.wait().expect("and gone");
        for task in tasks {
            task.await.expect("writers end when the server is gone");
        }
        writes = model.lock().expect("lock").highest_revision;
    }
    let server = start(folder.path());
    let api: Api<ConfigMap> = Api::namespaced(client(folder.path()).await, "default");
    verify(&api, &model, ROUNDS).await;
    drop(server);
    assert!(writes > ROUNDS * WRITERS, "the load was no load: {writes} revisions in all");
}
