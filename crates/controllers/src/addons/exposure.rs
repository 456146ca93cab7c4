//! How tenant control planes are exposed, written into the platform's ButlerConfig.

use super::site::Site;
use butler_api::{ExposureMode, names};
use butler_drivers::Failure;
use serde_json::{Value, json};

/// Writes its own fields only, as a field manager of its own: the rest of the ButlerConfig is the platform's.
pub(crate) fn objects(site: &Site<'_>) -> Result<Vec<Value>, Failure> {
    let exposure = &site.spec.control_plane_exposure;
    Ok(vec![json!({
        "apiVersion": format!("{}/{}", names::GROUP, names::VERSION),
        "kind": "ButlerConfig",
        "metadata": { "name": names::BUTLER_CONFIG_NAME },
        "spec": { "controlPlaneExposure": exposure },
        "status": {
            "controlPlaneExposureMode": exposure.mode.as_str(),
            "tcpProxyRequired": exposure.mode != ExposureMode::LoadBalancer,
        },
    })])
}
