//! Where an addon's objects come from.

use butler_drivers::Failure;
use serde_json::Value;

/// What an addon asks its source for.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The addon: `cilium`.
    pub addon: String,
    /// Version of the chart or manifest.
    pub version: String,
    /// Namespace that it goes to.
    pub namespace: String,
    /// Values, as a chart takes them.
    pub values: Value,
}

/// Gives the objects of addons that are not built in: a chart engine, or a bundle file.
pub trait Sources: Send + Sync {
    /// The objects, in the order in which they are applied.
    ///
    /// # Errors
    /// `InvalidConfig` when the source does not have the addon.
    fn objects(&self, part: &Part) -> Result<Vec<Value>, Failure>;

    /// What the objects are, for people: `chart cilium 1.17.0`, `STAND-IN for cilium 1.17.0`.
    fn describe(&self, part: &Part) -> String;
}

/// Has nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSources;

impl Sources for NoSources {
    fn objects(&self, part: &Part) -> Result<Vec<Value>, Failure> {
        Err(Failure::new(
            butler_drivers::Class::InvalidConfig,
            "AddonSourceMissing",
            format!("there is no source for the addon {} {}", part.addon, part.version),
            "give a bundle that has it with --bundle, or leave the addon out",
        ))
    }

    fn describe(&self, part: &Part) -> String {
        format!("{} {}", part.addon, part.version)
    }
}
