//! The same addons against a real kube-apiserver, where there is one: `BUTLER_REAL_KUBECONFIG` names it.

use super::Cluster;
use crate::addons::{AddonState, StandIns, Target, plan};
use butler_api::Provider;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

#[tokio::test]
#[ignore = "needs a real kube-apiserver in BUTLER_REAL_KUBECONFIG"]
async fn a_real_cluster_takes_everything_once() {
    let Some(path) = std::env::var_os("BUTLER_REAL_KUBECONFIG") else {
        panic!("BUTLER_REAL_KUBECONFIG is not set")
    };
    let config = Kubeconfig::read_from(path).expect("a kubeconfig");
    let config =
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.expect("settings");
    let client = kube::Client::try_from(config).expect("a client");
    let target = Target::new(client.clone());
    let change = json!({
        "addons": { "console": { "enabled": true, "ingress": { "enabled": true, "tls": true } } },
        "controlPlaneExposure": { "mode": "Gateway", "hostname": "*.k8s.example.com", "gatewayRef": "infra/tenants" },
    });
    let cluster = Cluster::new(Provider::Proxmox, change);
    let mut rounds = Vec::new();
    for _ in 0..2 {
        for addon in plan(&cluster.site()).iter().filter(|addon| addon.skipped.is_none()) {
            let done = target.install(addon.name, &cluster.site(), &StandIns).await;
            done.unwrap_or_else(|failure| panic!("{}: {failure}", addon.name));
        }
        let states = target.observe(&cluster.site(), &StandIns).await.expect("looked");
        assert!(states.values().all(|state| *state != AddonState::Absent), "{states:#?}");
        for applied in ["gateway-api", "butler-crds", "provider-config", "butler", "butler-config-exposure"] {
            assert_eq!(states[applied], AddonState::Ready, "{applied}");
        }
        rounds.push(super::live::generations(&client, &cluster).await);
    }
    // Without a generation, the version is compared: such objects have no controller that writes to them.
    assert_eq!(rounds[0], rounds[1], "the second time changes nothing");
}
