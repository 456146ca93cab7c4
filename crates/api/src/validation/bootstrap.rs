//! Rules of ClusterBootstrap.

use super::load_balancer::{check_listener_ports, check_options};
use super::{Findings, Problem, Validate};
use crate::{
    AddressRange, Cidr, ClusterBootstrap, ClusterBootstrapNetworkSpec, ClusterBootstrapSpec,
    ControlPlaneExposureSpec, ControlPlaneHaType, Endpoint, ExposureMode, IngressType, LoadBalancerAddonType,
    PatchOperation, Provider, StorageType, TalosConfigPatch, Topology, ValueError,
};

impl Validate for ClusterBootstrap {
    fn validate(&self) -> Vec<Problem> {
        let mut found = Findings::default();
        check_cluster(&self.spec, &mut found);
        check_network(&self.spec, &mut found);
        check_talos(&self.spec, &mut found);
        check_addons(&self.spec, &mut found);
        if let Some(balancer) = &self.spec.control_plane_load_balancer {
            let path = "spec.controlPlaneLoadBalancer";
            if self.spec.provider.is_on_prem() {
                found.warn(path, "set", "only clouds have a control-plane load balancer", "remove the block");
            }
            check_listener_ports(6443, &balancer.listeners, &format!("{path}.listeners"), &mut found);
            if let Some(options) = &balancer.options {
                check_options(options, &format!("{path}.options"), &mut found);
                if options.implementation.is_some() && self.spec.provider != Provider::Gcp {
                    found.warn(
                        format!("{path}.options.implementation"),
                        "set",
                        "only gcp has a choice of implementations",
                        "remove the field",
                    );
                }
            }
        }
        check_exposure(&self.spec.control_plane_exposure, "spec.controlPlaneExposure", &mut found);
        found.0
    }
}

fn check_cluster(spec: &ClusterBootstrapSpec, found: &mut Findings) {
    let cluster = &spec.cluster;
    found.parsed("spec.cluster.name", cluster.parsed_name());
    let replicas = cluster.control_plane.replicas;
    match cluster.topology {
        Topology::SingleNode => {
            if replicas != 1 {
                found.warn(
                    "spec.cluster.controlPlane.replicas",
                    replicas,
                    "a single-node cluster has one control-plane node; the number is taken as 1",
                    "set it to 1, or set topology to ha",
                );
            }
            if let Some(workers) = &cluster.workers {
                found.warn(
                    "spec.cluster.workers",
                    format!("{} replicas", workers.replicas),
                    "a single-node cluster has no workers; the pool is ignored",
                    "remove the pool, or set topology to ha",
                );
            }
        }
        Topology::Ha => {
            let path = "spec.cluster.controlPlane.replicas";
            if replicas < 3 {
                found.warn(
                    path,
                    replicas,
                    "etcd survives the loss of a node from three members on",
                    "set it to 3, or set topology to single-node",
                );
            } else if replicas % 2 == 0 {
                found.warn(
                    path,
                    replicas,
                    "an even number of etcd members survives no more losses than one member less",
                    "use 3, 5 or 7",
                );
            }
            if cluster.workers.is_none() {
                found.warn(
                    "spec.cluster.workers",
                    "not set",
                    "an ha cluster without workers has nowhere to run its addons",
                    "add a worker pool",
                );
            }
        }
    }
}

fn check_network(spec: &ClusterBootstrapSpec, found: &mut Findings) {
    let network = &spec.network;
    let pods = check_cidr("spec.network.podCIDR", network.pod_network(), found);
    let services = check_cidr("spec.network.serviceCIDR", network.service_network(), found);
    if let (Some(pods), Some(services)) = (pods, services)
        && pods.overlaps(&services)
    {
        found.error(
            "spec.network.serviceCIDR",
            services,
            format!("overlaps spec.network.podCIDR {pods}"),
            "choose two networks that share no address, such as 10.244.0.0/16 and 10.96.0.0/12",
        );
    }
    let vip = match network.endpoint() {
        Some(endpoint) => found.parsed("spec.network.vip", endpoint),
        None => {
            check_missing_vip(spec, found);
            None
        }
    };
    let pool = check_pool(spec, found);
    for (what, cidr) in [("podCIDR", pods), ("serviceCIDR", services)] {
        let Some(cidr) = cidr else { continue };
        if let Some(ip) = vip.as_ref().and_then(Endpoint::ip)
            && cidr.contains(ip)
        {
            found.error(
                "spec.network.vip",
                ip,
                format!("lies inside spec.network.{what} {cidr}"),
                "use a free address of the nodes' own network",
            );
        }
        if let Some(pool) = pool
            && cidr.range().overlaps(&pool)
        {
            found.error(
                "spec.network.loadBalancerPool",
                pool,
                format!("overlaps spec.network.{what} {cidr}"),
                "use free addresses of the nodes' own network",
            );
        }
    }
    if let (Some(Endpoint::Ip(ip)), Some(pool)) = (&vip, pool)
        && pool.contains(*ip)
    {
        found.error(
            "spec.network.vip",
            ip,
            format!("lies inside spec.network.loadBalancerPool {pool}, so a service could take it away"),
            "move the vip out of the pool, or make the pool smaller",
        );
    }
    check_vip_interface(spec, network, found);
}

fn check_cidr(path: &str, parsed: Result<Cidr, ValueError>, found: &mut Findings) -> Option<Cidr> {
    let cidr = found.parsed(path, parsed)?;
    if cidr.has_host_bits() {
        let meant = format!("{}/{}", cidr.network(), cidr.prefix());
        found.warn(
            path,
            cidr,
            format!("has bits beyond its prefix and is taken as {meant}"),
            &format!("write {meant}"),
        );
    }
    Some(cidr)
}

/// Without a vip a cloud makes a load balancer; on-prem somebody has to say where the control plane is.
fn check_missing_vip(spec: &ClusterBootstrapSpec, found: &mut Findings) {
    if !spec.provider.is_on_prem() {
        return;
    }
    let remedy =
        "set it to a free address of the nodes' network, or to the endpoint of your own load balancer";
    match spec.cluster.topology {
        Topology::Ha => {
            found.missing(
                "spec.network.vip",
                format!("an ha cluster on {} needs a control-plane endpoint", spec.provider),
                remedy,
            );
        }
        Topology::SingleNode => {
            found.warn(
                "spec.network.vip",
                "not set",
                "the node's own address becomes the endpoint, and the cluster breaks when that address changes",
                remedy,
            );
        }
    }
}

fn check_pool(spec: &ClusterBootstrapSpec, found: &mut Findings) -> Option<AddressRange> {
    let pool = spec.network.load_balancer_pool.as_ref()?;
    let path = "spec.network.loadBalancerPool";
    if !spec.provider.is_on_prem() {
        found.warn(
            path,
            format!("{}-{}", pool.start, pool.end),
            format!("{} has load balancers of its own; the pool is ignored", spec.provider),
            "remove the pool",
        );
    }
    let ends = [("start", &pool.start), ("end", &pool.end)];
    let bad: Vec<_> =
        ends.into_iter().filter(|(_, text)| text.parse::<std::net::IpAddr>().is_err()).collect();
    for (end, text) in &bad {
        let rule = format!("not an IP address: {}", crate::values::address_slip(text));
        found.error(format!("{path}.{end}"), text, rule, "write it as 10.40.0.210");
    }
    if !bad.is_empty() {
        return None;
    }
    found.parsed(&format!("{path}.start"), pool.range())
}

fn check_vip_interface(
    spec: &ClusterBootstrapSpec,
    network: &ClusterBootstrapNetworkSpec,
    found: &mut Findings,
) {
    let Some(interface) = &network.vip_interface else { return };
    let path = "spec.network.vipInterface";
    if interface.is_empty() || interface.len() > 15 || interface.contains(['/', ' ']) {
        found.error(
            path,
            interface,
            "not the name of a network interface: 1 to 15 characters without slash and space",
            "write it as eth0, or remove the field to have it found",
        );
    } else if !spec.provider.is_on_prem() {
        found.warn(
            path,
            interface,
            "only a virtual IP on-prem has an interface; it is ignored",
            "remove the field",
        );
    }
}

fn check_talos(spec: &ClusterBootstrapSpec, found: &mut Findings) {
    let talos = &spec.talos;
    found.parsed("spec.talos.version", talos.parsed_version());
    if talos.schematic.trim().is_empty() {
        found.error(
            "spec.talos.schematic",
            &talos.schematic,
            "is empty",
            "set it to the schematic id that the image factory shows",
        );
    }
    if !talos.install_disk.starts_with("/dev/") {
        found.error(
            "spec.talos.installDisk",
            &talos.install_disk,
            "not a disk device: it does not begin with /dev/",
            "write it as /dev/vda",
        );
    }
    for (index, patch) in talos.config_patches.iter().enumerate() {
        check_patch(patch, &format!("spec.talos.configPatches[{index}]"), found);
    }
}

fn check_patch(patch: &TalosConfigPatch, path: &str, found: &mut Findings) {
    // RFC 6901: a pointer is empty or begins with a slash, and ~ only comes as ~0 or ~1.
    let bad_escape = patch.path.split('~').skip(1).any(|rest| !rest.starts_with(['0', '1']));
    if !patch.path.starts_with('/') || bad_escape {
        let rule = "not a JSON Pointer: it begins with a slash, and a ~ is written ~0, a / inside a key ~1";
        found.error(format!("{path}.path"), &patch.path, rule, "write it as /machine/network/hostname");
    }
    match (patch.op, &patch.value) {
        (PatchOperation::Add | PatchOperation::Replace, None) => {
            found.missing(
                format!("{path}.value"),
                "value is required when op is add or replace",
                "add the value, as JSON or YAML text",
            );
        }
        (PatchOperation::Remove, Some(value)) => {
            found.warn(
                format!("{path}.value"),
                value,
                "op remove takes no value; it is ignored",
                "remove the value",
            );
        }
        _ => {}
    }
}

fn check_addons(spec: &ClusterBootstrapSpec, found: &mut Findings) {
    check_control_plane_ha(spec, found);
    check_services_and_storage(spec, found);
    let addons = &spec.addons;
    let console = &addons.console;
    if let Some(ingress) = console.ingress.as_ref().filter(|ingress| ingress.enabled && !console.enabled) {
        let host = ingress.host.as_deref().unwrap_or("enabled");
        found.warn(
            "spec.addons.console.ingress",
            host,
            "the console itself is not enabled, so nothing is exposed",
            "set addons.console.enabled to true",
        );
    }
    for (index, extra) in addons.capi.infrastructure_providers.iter().enumerate() {
        if extra.name != spec.provider && extra.credentials_secret_ref.is_none() {
            found.warn(
                format!("spec.addons.capi.infrastructureProviders[{index}].credentialsSecretRef"),
                "not set",
                format!(
                    "{} is not this cluster's own infrastructure, so its provider has no credentials",
                    extra.name
                ),
                "name the Secret that holds them",
            );
        }
    }
}

/// Only an address can float.
fn check_control_plane_ha(spec: &ClusterBootstrapSpec, found: &mut Findings) {
    let ha = &spec.addons.control_plane_ha;
    let on_prem = spec.provider.is_on_prem();
    if on_prem && spec.cluster.topology == Topology::Ha && spec.network.vip.is_some() {
        let host = spec.network.endpoint().and_then(Result::ok).filter(|endpoint| endpoint.ip().is_none());
        let floats =
            ha.enabled && matches!(ha.type_, ControlPlaneHaType::KubeVip | ControlPlaneHaType::TalosVip);
        if let Some(host) = host.filter(|_| floats) {
            found.error(
                "spec.network.vip",
                host,
                "a floating address has to be an IP address, and this is a host name",
                "write an address, or set addons.controlPlaneHA.type to external when the name is a load balancer",
            );
        }
    }
}

fn check_services_and_storage(spec: &ClusterBootstrapSpec, found: &mut Findings) {
    let addons = &spec.addons;
    let on_prem = spec.provider.is_on_prem();
    if on_prem && addons.load_balancer.enabled && addons.load_balancer.type_ == LoadBalancerAddonType::Metallb
    {
        let ingress = addons.ingress.enabled && addons.ingress.type_ != IngressType::None;
        // The documented single-node cluster has no pool, and a lone node's ports are reached without one.
        let ha = spec.cluster.topology == Topology::Ha;
        if ha && ingress && spec.network.load_balancer_pool.is_none() {
            found.warn(
                "spec.network.loadBalancerPool",
                "not set",
                "without a pool metallb is not installed, and the ingress controller gets no address",
                "add a pool of free addresses",
            );
        }
    }
    let nodes = spec.effective_workers().map_or(0, |pool| pool.replicas);
    let storage = &addons.storage;
    if spec.cluster.topology == Topology::Ha
        && storage.type_ == StorageType::Longhorn
        && nodes > 0
        && storage.replica_count > nodes
    {
        found.warn(
            "spec.addons.storage.replicaCount",
            storage.replica_count,
            format!("there are {nodes} workers, so volumes stay degraded"),
            "lower it, or add workers",
        );
    }
}

/// Rules of exposure, the same in ButlerConfig.
pub(super) fn check_exposure(exposure: &ControlPlaneExposureSpec, path: &str, found: &mut Findings) {
    let mode = exposure.mode.as_str();
    let empty = |text: &Option<String>| text.as_ref().is_none_or(String::is_empty);
    if exposure.mode != ExposureMode::LoadBalancer && empty(&exposure.hostname) {
        found.missing(
            format!("{path}.hostname"),
            format!("hostname is required when mode is {mode}"),
            "set it to a wildcard domain, such as *.k8s.platform.example.com",
        );
    }
    if exposure.mode == ExposureMode::Gateway && empty(&exposure.gateway_ref) {
        found.missing(
            format!("{path}.gatewayRef"),
            "gatewayRef is required when mode is Gateway",
            "set it to namespace/name of the Gateway",
        );
    }
    if let Some(host) = exposure.hostname.as_ref().filter(|host| !host.is_empty()) {
        let domain = host.strip_prefix("*.").unwrap_or(host);
        if !matches!(domain.parse::<Endpoint>(), Ok(Endpoint::Host(_))) {
            let remedy = "write it as *.k8s.platform.example.com";
            found.error(format!("{path}.hostname"), host, "not a domain or wildcard domain", remedy);
        }
    }
    if let Some(gateway) = exposure.gateway_ref.as_ref().filter(|gateway| !gateway.is_empty()) {
        let parts: Vec<_> = gateway.split('/').collect();
        if parts.len() != 2 || parts.iter().any(|part| part.is_empty()) {
            let remedy = "write it as butler-system/tenant-gateway";
            found.error(format!("{path}.gatewayRef"), gateway, "not of the form namespace/name", remedy);
        }
    }
}
