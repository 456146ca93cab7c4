//! Every method that the simulated node has: who may call it, and whether it streams.

use butler_talos::Contract;
use tonic::Status;

/// The least role that a method asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Reader,
    Operator,
    Admin,
}

impl Role {
    pub(super) fn allows(self, roles: &[String]) -> bool {
        let has = |name: &str| roles.iter().any(|role| role == name);
        let admin = has("os:admin");
        let operator = admin || has("os:operator");
        match self {
            Self::Admin => admin,
            Self::Operator => operator,
            Self::Reader => operator || has("os:reader"),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Method {
    pub(super) path: &'static str,
    pub(super) role: Role,
    pub(super) streaming: bool,
}

impl Method {
    /// The role as of a version: Talos 1.9 lets only operators look at the state of etcd.
    pub(super) fn role_in(&self, version: &str) -> Role {
        let old = Contract::parse(version).is_ok_and(|contract| contract <= Contract::V1_9);
        if old && self.path.ends_with("/EtcdStatus") { Role::Operator } else { self.role }
    }
}

const fn unary(path: &'static str, role: Role) -> Method {
    Method { path, role, streaming: false }
}

const fn stream(path: &'static str, role: Role) -> Method {
    Method { path, role, streaming: true }
}

/// What is simulated. Everything else is refused by name.
const METHODS: &[Method] = &[
    unary("/machine.MachineService/ApplyConfiguration", Role::Admin),
    unary("/machine.MachineService/Bootstrap", Role::Admin),
    stream("/machine.MachineService/Dmesg", Role::Reader),
    unary("/machine.MachineService/EtcdMemberList", Role::Reader),
    unary("/machine.MachineService/EtcdRemoveMemberByID", Role::Admin),
    unary("/machine.MachineService/EtcdStatus", Role::Reader),
    stream("/machine.MachineService/Events", Role::Reader),
    unary("/machine.MachineService/Hostname", Role::Reader),
    stream("/machine.MachineService/Kubeconfig", Role::Admin),
    stream("/machine.MachineService/List", Role::Reader),
    stream("/machine.MachineService/Logs", Role::Reader),
    unary("/machine.MachineService/Memory", Role::Reader),
    stream("/machine.MachineService/Read", Role::Admin),
    unary("/machine.MachineService/Reboot", Role::Operator),
    unary("/machine.MachineService/Reset", Role::Admin),
    unary("/machine.MachineService/ServiceList", Role::Reader),
    unary("/machine.MachineService/Shutdown", Role::Operator),
    unary("/machine.MachineService/SystemStat", Role::Reader),
    unary("/machine.MachineService/Upgrade", Role::Admin),
    unary("/machine.MachineService/Version", Role::Reader),
    unary("/storage.StorageService/Disks", Role::Reader),
    unary("/time.TimeService/Time", Role::Reader),
    unary("/time.TimeService/TimeCheck", Role::Reader),
    unary("/cosi.resource.State/Get", Role::Reader),
    stream("/cosi.resource.State/List", Role::Reader),
    stream("/cosi.resource.State/Watch", Role::Reader),
    stream("/cluster.ClusterService/HealthCheck", Role::Reader),
];

pub(super) fn find(path: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.path == path)
}

pub(super) fn is_talos_service(service: &str) -> bool {
    const MORE: [&str; 3] = ["inspect.InspectService", "network.NetworkService", "resource.ResourceService"];
    MORE.contains(&service) || METHODS.iter().any(|method| method.path[1..].starts_with(service))
}

/// Whether the maintenance service has a method.
pub(super) fn in_maintenance(service: &str, method: &str) -> Result<(), Status> {
    match (service, method) {
        ("machine.MachineService", "ApplyConfiguration")
        | ("storage.StorageService", "Disks")
        | ("cosi.resource.State", "Get" | "List" | "Watch") => Ok(()),
        // The peer is nobody's administrator.
        ("machine.MachineService", "Version" | "Upgrade" | "Reset" | "MetaWrite" | "MetaDelete")
        | ("storage.StorageService", "BlockDeviceWipe") => {
            Err(Status::unimplemented("API is not implemented in maintenance mode"))
        }
        ("machine.MachineService", "GenerateClientConfiguration") => Err(Status::unimplemented(
            "client configuration (talosconfig) can't be generated in the maintenance mode",
        )),
        // Talos has it; we don't.
        ("machine.MachineService", "GenerateConfiguration") => {
            Err(Status::unimplemented("simulated node: GenerateConfiguration is not simulated"))
        }
        ("machine.MachineService", method) => {
            Err(Status::unimplemented(format!("method {method} not implemented")))
        }
        ("storage.StorageService" | "cosi.resource.State", method) => {
            Err(Status::unimplemented(format!("unknown method {method} for service {service}")))
        }
        _ => Err(Status::unimplemented(format!("unknown service {service}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    fn roles(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn roles_include_the_lower_ones() {
        assert!(Role::Reader.allows(&roles(&["os:admin"])));
        assert!(Role::Operator.allows(&roles(&["os:operator"])));
        assert!(!Role::Operator.allows(&roles(&["os:reader"])));
        assert!(!Role::Admin.allows(&roles(&["os:operator", "os:reader"])));
        assert!(!Role::Reader.allows(&roles(&["os:something"])));
        assert!(!Role::Reader.allows(&[]));
    }

    #[test]
    fn the_role_for_the_state_of_etcd_depends_on_the_version() {
        let status = find("/machine.MachineService/EtcdStatus").unwrap();
        assert_eq!(status.role_in("v1.9.5"), Role::Operator);
        assert_eq!(status.role_in("v1.10.1"), Role::Reader);
        let version = find("/machine.MachineService/Version").unwrap();
        assert_eq!(version.role_in("v1.9.5"), Role::Reader);
    }

    #[test]
    fn maintenance_mode_has_few_methods_and_a_word_for_the_others() {
        assert!(in_maintenance("machine.MachineService", "ApplyConfiguration").is_ok());
        assert!(in_maintenance("cosi.resource.State", "Watch").is_ok());
        let version = in_maintenance("machine.MachineService", "Version").unwrap_err();
        assert_eq!(version.message(), "API is not implemented in maintenance mode");
        let services = in_maintenance("machine.MachineService", "ServiceList").unwrap_err();
        assert_eq!(services.message(), "method ServiceList not implemented");
        let time = in_maintenance("time.TimeService", "Time").unwrap_err();
        assert_eq!((time.code(), time.message()), (Code::Unimplemented, "unknown service time.TimeService"));
    }
}
