//! Who gets in: certificates, names, endpoints, tokens.

use crate::site::{OTHER_SECRETS, PATIENCE, SECRETS, Site, Wish, config, node_ready};
use butler_sim::{Fault, Stage};
use butler_talos::Role;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams};

#[tokio::test(flavor = "multi_thread")]
async fn names_and_certificates_are_checked() {
    let mut site = Site::new();
    site.cluster(1, 0, &Wish::default()).await;
    let nodes = |client| Api::<Node>::all(client);
    let good = site.admin("10.40.0.11").await;
    node_ready(&good, "cp1", "False").await;
    // The endpoint's name is in the certificate, and those that pods use.
    for name in ["10.40.0.200", "kubernetes.default.svc", "10.96.0.1", "cp1", "127.0.0.1"] {
        let client = site.client("10.40.0.11", name, &SECRETS).await;
        nodes(client).list(&ListParams::default()).await.unwrap_or_else(|e| panic!("{name}: {e}"));
    }
    let unnamed = site.client("10.40.0.11", "10.40.0.99", &SECRETS).await;
    let error = nodes(unnamed).list(&ListParams::default()).await.unwrap_err();
    assert!(format!("{error:?}").contains("NotValidForName"), "{error:?}");
    let foreign = site.client("10.40.0.11", "10.40.0.11", &OTHER_SECRETS).await;
    assert!(nodes(foreign).list(&ListParams::default()).await.is_err());
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_pass_the_gate_once() {
    let mut site = Site::new();
    site.cluster(1, 0, &Wish::default()).await;
    let client = site.admin("10.40.0.11").await;
    node_ready(&client, "cp1", "False").await;
    let before = site.gate.count();
    let nodes: Api<Node> = Api::all(client);
    nodes.get("cp1").await.unwrap();
    let calls = site.gate.calls();
    assert_eq!(calls.len() as u64, before + 1, "the cluster's own controllers are not outside");
    let last = calls.last().unwrap();
    assert_eq!((last.call.system, last.call.operation.as_str()), ("kubernetes", "GET /api/v1/nodes/cp1"));
    assert_eq!((last.call.object.as_str(), last.call.mutates), ("cp1", false));
    site.gate.on_call(before + 2, Fault::Status(500));
    let refused = nodes.get("cp1").await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 500), "{refused:?}");
    site.gate.on_call(before + 3, Fault::Reset);
    assert!(!matches!(nodes.get("cp1").await.unwrap_err(), kube::Error::Api(_)));
    nodes.get("cp1").await.unwrap();
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_a_wrong_token_or_no_way_to_the_api_never_joins() {
    let mut site = Site::new();
    site.cluster(1, 0, &Wish::default()).await;
    let wish = Wish::default();
    let token = |text: &str| {
        let at = text.find("\n    token: ").unwrap() + "\n    token: ".len();
        let cluster = text[at..].find("\n    token: ").map_or(at, |next| at + next + "\n    token: ".len());
        let end = cluster + text[cluster..].find('\n').unwrap();
        (cluster, end)
    };
    let good = config(Role::Worker, "w1", &wish);
    let other = config(Role::Worker, "w2", &wish);
    let (start, end) = token(&other);
    let bad_token = format!("{}abcdef.0123456789abcdef{}", &other[..start], &other[end..]);
    // Without discovery and with nobody at the endpoint, KubePrism has nowhere to go.
    let lonely = Wish { change: |cluster, _| cluster.discovery = false, ..Wish::default() };
    site.add("10.40.0.21", "w1", good).await;
    site.add("10.40.0.22", "w2", bad_token).await;
    site.add("10.40.0.23", "w3", config(Role::Worker, "w3", &lonely)).await;
    for name in ["w1", "w2"] {
        assert!(site.nodes[name].reaches(Stage::Running, PATIENCE).await, "{name}");
    }
    let client = site.admin("10.40.0.11").await;
    node_ready(&client, "w1", "False").await;
    let nodes: Api<Node> = Api::all(client.clone());
    assert!(nodes.get_opt("w2").await.unwrap().is_none());
    assert!(nodes.get_opt("w3").await.unwrap().is_none());
    site.stop().await;
}
