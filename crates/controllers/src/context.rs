//! What all controllers are given: where objects are, how the outside is reached, what time it is.

use butler_api::ProviderConfigSpec;
use butler_drivers::{Connection, Credentials, Failure, Infrastructure, SharedRecorder};
use jiff::Timestamp;
use std::sync::Arc;

/// Everything that controllers are wired with. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    /// The API that holds our objects: embedded, or any cluster's.
    pub client: kube::Client,
    /// Gives infrastructures; the dry run gives recording ones.
    pub infrastructures: Arc<dyn Infrastructures>,
    /// How Talos nodes are reached.
    pub talos: Arc<butler_talos::client::Settings>,
    /// How the new cluster's API is reached: `http://host:port` of an HTTP CONNECT proxy.
    pub target_proxy: Option<String>,
    /// Told every call to the outside.
    pub recorder: SharedRecorder,
    /// What addons are made of, where that is not built in.
    pub sources: Arc<dyn crate::addons::Sources>,
    /// The time.
    pub clock: Clock,
    /// How long everything may take.
    pub deadlines: crate::Deadlines,
}

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Gives the infrastructure that a ProviderConfig describes.
pub trait Infrastructures: Send + Sync {
    /// Makes no call.
    ///
    /// # Errors
    /// When settings or credentials are missing.
    fn connect(
        &self,
        config: &ProviderConfigSpec,
        credentials: &Credentials,
    ) -> Result<Infrastructure, Failure>;
}

/// The real ones.
pub struct RealInfrastructures(pub Connection);

impl Infrastructures for RealInfrastructures {
    fn connect(
        &self,
        config: &ProviderConfigSpec,
        credentials: &Credentials,
    ) -> Result<Infrastructure, Failure> {
        butler_drivers::connect(config, credentials, &self.0)
    }
}
