//! A home beside a simulated data centre, and the clusters that tests build in it.

use super::Home;
use butler_api::{ClusterBootstrap, ClusterBootstrapPhase as Phase, ProviderConfig};
use butler_controllers::addons::StandIns;
use butler_controllers::{Context, RealInfrastructures};
use butler_drivers::Connection;
use butler_sim::{DataCentre, DataCentreOptions};
use butler_talos::client::Settings;
use k8s_openapi::api::core::v1::Secret;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// A home, and a data centre to build in.
pub(crate) struct Site {
    pub(crate) home: Home,
    pub(crate) data_centre: DataCentre,
}

impl Site {
    pub(crate) async fn new() -> Site {
        Self::with(DataCentreOptions::default()).await
    }

    pub(crate) async fn with(options: DataCentreOptions) -> Site {
        let home = Home::new().await;
        let data_centre = DataCentre::start(options).await.unwrap();
        home.create::<Secret>(json!({
            "metadata": {"name": "creds"},
            "stringData": {"token": "root@pam!butler", "tokenSecret": "7f0c2a5e-3c43-4d5b-9c0f-2f6f0e0d9a11"}
        }))
        .await;
        home.create::<ProviderConfig>(json!({
            "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ProviderConfig",
            "metadata": {"name": "site"},
            "spec": {
                "provider": "proxmox",
                "credentialsRef": {"name": "creds"},
                "proxmox": {
                    "endpoint": "https://pve.example.internal:8006",
                    "nodes": ["pve1", "pve2", "pve3"], "storage": "ceph-vm", "templateID": 9000,
                },
                "network": {"subnet": "10.40.0.0/24", "gateway": "10.40.0.1"},
            }
        }))
        .await;
        Site { home, data_centre }
    }

    pub(crate) fn context(&self) -> Context {
        let proxy = self.data_centre.proxy_url();
        let connection = Connection {
            ca_pem: Some(self.data_centre.ca_pem()),
            proxy: Some(proxy.clone()),
            ..Connection::default()
        };
        let talos = Settings {
            proxy: Some(proxy.parse().unwrap()),
            retry: (Duration::from_millis(10), Duration::from_millis(100)),
            ..Settings::default()
        };
        Context {
            talos: Arc::new(talos),
            target_proxy: Some(proxy),
            sources: Arc::new(StandIns),
            ..self.home.context(Arc::new(RealInfrastructures(connection)))
        }
    }

    /// Machines of ours in the data centre, by their names.
    pub(crate) fn machines(&self) -> usize {
        self.data_centre.world().nodes().len()
    }
}

pub(crate) fn cluster(name: &str, workers: u32, extra: Value) -> Value {
    let mut object = json!({
        "apiVersion": "butler.butlerlabs.dev/v1alpha1", "kind": "ClusterBootstrap",
        "metadata": {"name": name},
        "spec": {
            "provider": "proxmox",
            "providerRef": {"name": "site"},
            "cluster": {
                "name": name, "topology": "ha",
                "controlPlane": {"replicas": 3, "cpu": 4, "memoryMB": 8192, "diskGB": 40},
                "workers": {"replicas": workers, "cpu": 4, "memoryMB": 8192, "diskGB": 60,
                            "extraDisks": [{"sizeGB": 100}], "labels": {"tier": "work"}},
            },
            "network": {
                "podCIDR": "10.244.0.0/16", "serviceCIDR": "10.96.0.0/12", "vip": "10.40.0.200",
                "loadBalancerPool": {"start": "10.40.0.210", "end": "10.40.0.250"},
            },
            "talos": {
                "version": "v1.9.2",
                "schematic": "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515",
            },
        }
    });
    merge(&mut object["spec"], extra);
    object
}

pub(crate) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

pub(crate) fn phase(cluster: &ClusterBootstrap) -> Option<Phase> {
    cluster.status.as_ref().and_then(|status| status.phase)
}

pub(crate) fn bootstraps(site: &Site) -> usize {
    let calls = site.data_centre.gate().calls();
    calls.iter().filter(|logged| logged.call.operation == "Bootstrap").count()
}
