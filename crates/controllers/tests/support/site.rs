//! A home beside a simulated data centre, and the clusters that tests build in it.

use super::{Home, ask};
use butler_api::{ClusterBootstrap, ClusterBootstrapPhase as Phase, ProviderConfig};
use butler_controllers::Context;
use butler_sim::{DataCentre, DataCentreOptions};
use k8s_openapi::api::core::v1::Secret;
use serde_json::json;

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
        home.create::<ProviderConfig>(ask::provider()).await;
        Site { home, data_centre }
    }

    pub(crate) fn context(&self) -> Context {
        self.home.context_in(&self.data_centre)
    }

    /// Machines of ours in the data centre, by their names.
    pub(crate) fn machines(&self) -> usize {
        self.data_centre.world().nodes().len()
    }
}

pub(crate) fn phase(cluster: &ClusterBootstrap) -> Option<Phase> {
    cluster.status.as_ref().and_then(|status| status.phase)
}

pub(crate) fn bootstraps(site: &Site) -> usize {
    let calls = site.data_centre.gate().calls();
    calls.iter().filter(|logged| logged.call.operation == "Bootstrap").count()
}
