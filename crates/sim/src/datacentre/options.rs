//! What a data centre is made from; also as a file.
//!
//! ```yaml
//! seed: 7
//! speed: 0.1            # of all delays: 1 is real time, 0 as fast as possible
//! proxy: 127.0.0.1:3128 # where the CONNECT proxy listens; port 0 takes a free one
//! site: {...}           # the Proxmox site, see proxmox/site.rs; without any site: the built-in example
//! gce: {...}            # a project of Google Cloud, see gce/site.rs
//! aws: {...}            # an AWS account, see aws/site.rs
//! faults: {...}         # a fault script, see gate/script.rs
//! ```

use crate::aws::AwsSite;
use crate::gate::{FaultScript, RawScript, ScriptProblem};
use crate::gce::GceSite;
use crate::proxmox::ProxmoxSite;
use serde::Deserialize;
use std::net::{Ipv4Addr, SocketAddr};

/// A data centre to be.
#[derive(Debug, Clone, PartialEq)]
pub struct DataCentreOptions {
    /// Ids and jitter come from it (0: no jitter). Keys never do.
    pub seed: u64,
    /// Scales every delay: 1 is real time, 0 is as fast as possible.
    pub speed: f64,
    /// Where the proxy listens on this computer.
    pub proxy_listen: SocketAddr,
    /// A Proxmox, if there is to be one.
    pub proxmox: Option<ProxmoxSite>,
    /// A project of Google Cloud, if there is to be one.
    pub gce: Option<GceSite>,
    /// An AWS account, if there is to be one.
    pub aws: Option<AwsSite>,
    pub faults: FaultScript,
}

/// What a branch does not take over from the data centre that it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct BranchOptions {
    pub proxy_listen: SocketAddr,
    pub faults: FaultScript,
}

/// A free port of this computer.
fn any_port() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

impl Default for DataCentreOptions {
    fn default() -> Self {
        Self::for_site(ProxmoxSite::example())
    }
}

impl Default for BranchOptions {
    fn default() -> Self {
        Self { proxy_listen: any_port(), faults: FaultScript::default() }
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct RawOptions {
    seed: Option<u64>,
    speed: Option<f64>,
    proxy: Option<SocketAddr>,
    site: Option<ProxmoxSite>,
    gce: Option<GceSite>,
    aws: Option<AwsSite>,
    faults: Option<RawScript>,
}

impl DataCentreOptions {
    /// As fast as possible, without faults.
    #[must_use]
    pub fn for_site(proxmox: ProxmoxSite) -> Self {
        Self { proxmox: Some(proxmox), ..Self::empty() }
    }

    /// A project of Google Cloud alone; as fast as possible, without faults.
    #[must_use]
    pub fn for_gce(gce: GceSite) -> Self {
        Self { gce: Some(gce), ..Self::empty() }
    }

    /// An AWS account alone; as fast as possible, without faults.
    #[must_use]
    pub fn for_aws(aws: AwsSite) -> Self {
        Self { aws: Some(aws), ..Self::empty() }
    }

    /// Machines can't be made in it.
    fn empty() -> Self {
        Self {
            seed: 1,
            speed: 0.0,
            proxy_listen: any_port(),
            proxmox: None,
            gce: None,
            aws: None,
            faults: FaultScript::default(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong, and on which lines.
    pub fn parse(text: &str) -> Result<Self, Vec<ScriptProblem>> {
        let empty = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        let raw = if empty { Ok(RawOptions::default()) } else { serde_saphyr::from_str(text) };
        let raw = raw.map_err(|error| vec![ScriptProblem::of(error)])?;
        let proxmox = match (raw.site, &raw.gce, &raw.aws) {
            (None, None, None) => Some(ProxmoxSite::example()),
            (site, _, _) => site,
        };
        let base = Self { proxmox, gce: raw.gce, aws: raw.aws, ..Self::empty() };
        Ok(Self {
            seed: raw.seed.unwrap_or(base.seed),
            speed: raw.speed.unwrap_or(base.speed),
            proxy_listen: raw.proxy.unwrap_or(base.proxy_listen),
            faults: raw.faults.map_or_else(|| Ok(FaultScript::default()), FaultScript::check)?,
            ..base
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Fault;

    #[test]
    fn a_file_is_read_and_its_problems_have_lines() {
        let text =
            "seed: 7\nspeed: 0.5\nproxy: 127.0.0.1:3128\nfaults:\n  calls:\n    - {call: 3, fault: reset}\n";
        let options = DataCentreOptions::parse(text).unwrap();
        assert_eq!((options.seed, options.speed, options.proxy_listen.port()), (7, 0.5, 3128));
        assert_eq!(options.faults.calls[0].fault, Fault::Reset);
        assert_eq!(options.proxmox, Some(ProxmoxSite::example()));
        assert_eq!(DataCentreOptions::parse("# empty\n"), Ok(DataCentreOptions::default()));
        let problems = DataCentreOptions::parse("faults:\n  calls:\n    - fault: explode\n").unwrap_err();
        assert_eq!(problems[0].line, 3);
        assert_eq!(DataCentreOptions::parse("sped: 1\n").unwrap_err()[0].line, 1);
    }
}
