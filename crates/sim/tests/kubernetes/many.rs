//! Many clusters in one process.

use crate::site::{PATIENCE, SECRETS, Site};
use butler_sim::Stage;
use butler_sim::cluster::Clusters;
use butler_talos::pki::{Ca, KeyAlgorithm, PrivateKey};
use butler_talos::{ClusterIntent, Endpoint, NodeIntent, Role, Secret, SecretsBundle, TalosVersion, render};
use jiff::Timestamp;
use std::time::Duration;

/// Secrets of another cluster, with Talos' own CA: keys of its kind take long to make.
fn secrets(number: usize) -> SecretsBundle {
    let ca = |name| {
        Ca::generate(KeyAlgorithm::P256, Some(name), Timestamp::now(), Duration::from_secs(3600)).unwrap()
    };
    SecretsBundle {
        cluster_id: Secret::new(format!("id-{number}")),
        cluster_secret: Secret::new(format!("secret-{number}")),
        bootstrap_token: Secret::new(SECRETS.bootstrap_token.expose()),
        encryption: SECRETS.encryption.clone(),
        trustd_token: Secret::new(SECRETS.trustd_token.expose()),
        etcd: ca("etcd"),
        kubernetes: ca("kubernetes"),
        aggregator: ca("front-proxy"),
        os: Ca::from_pem(SECRETS.os.cert_pem(), SECRETS.os.key_pem().expose()).unwrap(),
        service_account: PrivateKey::generate(KeyAlgorithm::P256).unwrap(),
    }
}

/// A machine that is a cluster by itself.
async fn add(site: &mut Site, number: usize) {
    let name = format!("n{number}");
    let address = format!("10.50.{}.{}", number / 200, 1 + number % 200);
    let endpoint = Endpoint::parse(&format!("https://{address}:6443")).unwrap();
    let mut cluster =
        ClusterIntent::new(format!("c{number}"), endpoint, TalosVersion::parse("v1.9.2").unwrap());
    cluster.schedule_on_control_planes = true;
    let node = NodeIntent::new(Role::ControlPlane, &name);
    let text = render(&cluster, &node, &secrets(number)).unwrap().to_yaml();
    site.add(&address, &name, text).await;
}

/// Waits until the objects of a cluster are as they should be, looking whenever one changes.
async fn settled(clusters: &Clusters, name: &str, is_so: impl Fn(&[serde_json::Value]) -> bool) {
    let look = async {
        let store = loop {
            match clusters.store(name) {
                Some(store) => break store,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        let mut changes = store.observe();
        loop {
            let nodes = store.list("nodes", butler_apiserver::store::Scope::All).objects;
            let nodes: Vec<serde_json::Value> = nodes.iter().map(|node| node.value()).collect();
            if is_so(&nodes) {
                return;
            }
            changes.recv().await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("{name} never settles"));
}

const COUNT: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn clusters_side_by_side_stay_apart() {
    let mut site = Site::new();
    for number in 0..COUNT {
        add(&mut site, number).await;
    }
    for number in 0..COUNT {
        site.bootstrap(&format!("n{number}")).await;
    }
    for number in 0..COUNT {
        let node = &site.nodes[&format!("n{number}")];
        assert!(node.reaches(Stage::Running, PATIENCE).await);
        let name = format!("n{number}");
        let own = move |nodes: &[serde_json::Value]| {
            nodes.len() == 1 && nodes[0]["metadata"]["name"] == name.as_str()
        };
        settled(&site.clusters, &format!("c{number}"), own).await;
    }
    let mut names = site.clusters.names();
    names.sort();
    let mut wanted: Vec<String> = (0..COUNT).map(|number| format!("c{number}")).collect();
    wanted.sort();
    assert_eq!(names, wanted);
    site.stop().await;
}
