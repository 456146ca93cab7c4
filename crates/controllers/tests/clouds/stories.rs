//! What has to be so in every cloud.

use crate::site::{BALANCER, CLUSTER, Site};
use crate::support::{cluster_conditions, has, names};
use butler_api::{ClusterBootstrap, LoadBalancerPhase, LoadBalancerRequest, MachineRequest};
use butler_sim::FaultScript;
use k8s_openapi::api::core::v1::{Node, Service};
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};

/// How many targets each port has, and how many of them are healthy.
fn ports(request: &LoadBalancerRequest) -> Vec<(i32, i32, i32)> {
    let status = request.status.clone().unwrap_or_default();
    status.listeners.iter().map(|one| (one.port, one.registered, one.healthy)).collect()
}

/// Three control planes and a worker behind a load balancer. `known` says whether a providerID has the cloud's form.
pub(crate) async fn ha(site: Site, extra: Value, known: impl Fn(&str, &str) -> bool) {
    let life = site.home.start(site.context());
    site.ask(1, extra).await;
    let ready = site.ready().await;
    let status = ready.status.clone().unwrap();
    assert!(has(cluster_conditions(&ready), "LoadBalancerReady", true, "TargetsRegistered"));
    for skipped in ["kube-vip", "metallb", "traefik"] {
        assert!(!status.addons_installed.contains_key(skipped), "{:?}", status.addons_installed);
    }
    for installed in ["cloud-controller-manager", "node-provider-ids", "cilium"] {
        assert_eq!(status.addons_installed.get(installed), Some(&true), "{:?}", status.addons_installed);
    }
    let balancer = site.home.api::<LoadBalancerRequest>().get(BALANCER).await.unwrap();
    assert!(
        ports(&balancer).iter().any(|(port, registered, _)| (*port, *registered) == (6443, 3)),
        "{:?}",
        ports(&balancer)
    );
    let told = balancer.status.unwrap();
    assert_eq!(told.phase, Some(LoadBalancerPhase::Ready));
    assert_eq!(told.endpoint, status.control_plane_endpoint);

    // Through the load balancer: every node has its providerID and waits for nobody.
    let nodes = Api::<Node>::all(site.kubectl().await).list(&ListParams::default()).await.unwrap().items;
    assert_eq!(nodes.len(), 4);
    for node in &nodes {
        let (name, spec) = (node.metadata.name.clone().unwrap(), node.spec.clone().unwrap());
        let id = spec.provider_id.unwrap_or_default();
        assert!(known(&id, &name), "{name}: {id}");
        let taints = spec.taints.unwrap_or_default();
        assert!(taints.iter().all(|taint| !taint.key.contains("uninitialized")), "{name}: {taints:?}");
    }
    site.leaves_nothing().await;
    life.end().await;
    site.data_centre.stop().await;
}

/// One machine that is everything, and a console with a load balancer of its own, which goes with the cluster.
pub(crate) async fn single(site: Site) {
    let life = site.home.start(site.context());
    let single = json!({"cluster": {"topology": "single-node", "controlPlane": {"replicas": 1}},
                        "addons": {"console": {"enabled": true}}});
    site.ask(1, single).await;
    let ready = site.ready().await;
    assert_eq!(names::<LoadBalancerRequest>(&site.home).await, Vec::<String>::new());
    assert_eq!(ready.status.unwrap().machines.len(), 1);
    let services: Api<Service> = Api::namespaced(site.kubectl().await, "butler-system");
    let console = services.get("butler-console-frontend").await.unwrap();
    let given = console.status.and_then(|status| status.load_balancer?.ingress).unwrap_or_default();
    assert_eq!(given.len(), 1, "the console has a load balancer of its own");
    site.leaves_nothing().await;
    life.end().await;
    site.data_centre.stop().await;
}

/// A control plane loses its power for good.
pub(crate) async fn lost(site: Site) {
    let life = site.home.start(site.context());
    site.ask(1, json!({})).await;
    site.ready().await;
    let machine = site.home.api::<MachineRequest>().get("prod-cp-1").await.unwrap();
    let address = machine.status.unwrap().ip_addresses[0].parse().unwrap();
    let faults = FaultScript::parse("machines: [{machine: prod-cp-1, fault: never-boots}]").unwrap();
    site.data_centre.gate().set_faults(faults);
    site.data_centre.world().node(address).unwrap().power_off().await;
    let told = site
        .home
        .until::<LoadBalancerRequest>(BALANCER, |request| ports(request).contains(&(6443, 3, 2)))
        .await;
    assert_eq!(told.status.unwrap().phase, Some(LoadBalancerPhase::Ready));
    for _ in 0..6 {
        let nodes: Api<Node> = Api::all(site.kubectl().await);
        let all = nodes.list(&ListParams::default()).await.unwrap().items;
        assert_eq!(all.len(), 4, "by a connection of its own");
    }
    life.end().await;
    site.data_centre.stop().await;
}

/// A control plane is replaced by another one, which may well get its address.
pub(crate) async fn replaced(site: Site) {
    let life = site.home.start(site.context());
    site.ask(1, json!({})).await;
    site.ready().await;
    let balancers = site.home.api::<LoadBalancerRequest>();
    let before = balancers.get(BALANCER).await.unwrap().metadata.generation.unwrap();
    let machines = site.home.api::<MachineRequest>();
    let uid = machines.get("prod-cp-1").await.unwrap().metadata.uid;
    machines.delete("prod-cp-1", &DeleteParams::default()).await.unwrap();
    site.home
        .until::<MachineRequest>("prod-cp-1", move |machine| {
            machine.metadata.uid != uid && machine.is_ready()
        })
        .await;
    // Out of the load balancer, and in again.
    site.home
        .until::<LoadBalancerRequest>(BALANCER, move |request| {
            let observed = request.status.as_ref().and_then(|status| status.observed_generation);
            let generation = request.metadata.generation.unwrap();
            observed == Some(generation)
                && generation >= before + 2
                && request.spec.targets.len() == 3
                && ports(request).contains(&(6443, 3, 3))
        })
        .await;
    site.home
        .until::<ClusterBootstrap>(CLUSTER, |cb| {
            let machines = cb.status.as_ref().map(|status| status.machines.as_slice()).unwrap_or_default();
            machines.iter().all(|machine| machine.talos_configured && machine.ready)
        })
        .await;
    assert_eq!(site.data_centre.world().etcd_clusters(), 1, "it has joined the one that there was");
    site.ready().await;
    life.end().await;
    site.data_centre.stop().await;
}
