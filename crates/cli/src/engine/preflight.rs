//! A look at the infrastructure before anything is made on it: what can't work is said at once, with everything else that can't.

use super::changes::Made;
use crate::config::Settings;
use butler_api::{ClusterBootstrapNodePool, MachineRole, names};
use butler_controllers::planned_load_balancer;
use butler_drivers::{
    Connection, Finding, LoadBalancerWanted, MachineWanted, Owner, PreflightWanted, Profile, Verdict,
};
use kube::ResourceExt as _;

/// The check that nothing works without, however much there is already.
const CREDENTIALS: &str = "credentials";

/// Everything that is worth a word, the worst first.
pub(super) async fn look(settings: &Settings, uid: Option<String>, connection: &Connection) -> Vec<Finding> {
    let mut findings =
        match butler_drivers::connect(&settings.provider_config.spec, &settings.credentials, connection) {
            Ok(infrastructure) => infrastructure.preflight.check(&wanted(settings, uid)).await,
            Err(failure) => vec![Finding {
                check: CREDENTIALS.to_owned(),
                verdict: Verdict::Fail,
                detail: failure.message,
                remedy: failure.remedy,
            }],
        };
    findings.retain(|finding| matches!(finding.verdict, Verdict::Fail | Verdict::Warn));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    findings
}

/// Whether a finding ends the run. What was short of room before the machines were made is no obstacle to a cluster that is there.
pub(super) fn stops(finding: &Finding, made: Made) -> bool {
    finding.verdict == Verdict::Fail && (made == Made::Nothing || finding.check == CREDENTIALS)
}

/// All machines of the bootstrap and its load balancer, as the infrastructure will be asked for them.
pub(crate) fn wanted(settings: &Settings, cluster_uid: Option<String>) -> PreflightWanted {
    let spec = &settings.bootstrap.spec;
    let workers = spec.effective_workers();
    let mut machines = Vec::new();
    let mut add = |role: MachineRole, pool: &ClusterBootstrapNodePool, count: i32| {
        for index in 0..positive(count) {
            machines.push(machine(settings.cluster(), role, pool, index, cluster_uid.as_deref()));
        }
    };
    add(MachineRole::ControlPlane, &spec.cluster.control_plane, spec.control_plane_count());
    if let Some(pool) = workers {
        add(MachineRole::Worker, pool, pool.replicas);
    }
    let profile = Profile::of(settings.provider);
    let load_balancer =
        planned_load_balancer(&settings.bootstrap, &profile).map(|request| LoadBalancerWanted {
            owner: owner(settings.cluster(), cluster_uid.as_deref()),
            name: request.name_any(),
            spec: request.spec,
        });
    let endpoint = spec.network.vip.clone().filter(|vip| !profile.on_prem && !vip.is_empty());
    PreflightWanted { cluster_uid, machines, brings_image: settings.brings_image(), load_balancer, endpoint }
}

fn owner(cluster: &str, uid: Option<&str>) -> Owner {
    Owner {
        cluster: cluster.to_owned(),
        cluster_uid: uid.unwrap_or_default().to_owned(),
        object_uid: String::new(),
    }
}

fn machine(
    cluster: &str,
    role: MachineRole,
    pool: &ClusterBootstrapNodePool,
    index: u32,
    uid: Option<&str>,
) -> MachineWanted {
    MachineWanted {
        owner: owner(cluster, uid),
        name: names::machine_name(cluster, role, index),
        role,
        cpu: positive(pool.cpu),
        memory_mb: positive(pool.memory_mb),
        disk_gb: positive(pool.disk_gb),
        extra_disks: pool.extra_disks.clone(),
        image: None,
        user_data: None,
        static_address: None,
        labels: pool.labels.clone(),
    }
}

fn positive(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_credentials_stop_what_has_machines_already() {
        let finding = |check: &str, verdict| Finding {
            check: check.to_owned(),
            verdict,
            detail: String::new(),
            remedy: String::new(),
        };
        let (storage, login) = (finding("storage x", Verdict::Fail), finding("credentials", Verdict::Fail));
        assert!(
            stops(&storage, Made::Nothing) && stops(&login, Made::Nothing) && stops(&login, Made::Cluster)
        );
        assert!(!stops(&storage, Made::Machines));
        assert!(!stops(&finding("credentials", Verdict::Warn), Made::Nothing));
    }
}
