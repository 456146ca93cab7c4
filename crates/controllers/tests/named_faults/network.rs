//! What can be wrong between here and the nodes: addresses, silence, clocks.

use crate::site::{NAME, Setting, Site, Size, VIP, soon};
use butler_api::{ClusterBootstrap, ClusterBootstrapPhase as Phase};
use butler_sim::Stage;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn the_virtual_address_is_somebody_elses() {
    let mut site = Site::of(Size::One).await;
    let vip: IpAddr = VIP.parse().unwrap();
    let fabric = site.data_centre.fabric().clone();
    fabric.host_up(vip);
    let ssh = fabric.listen(SocketAddr::new(vip, 22)).unwrap();
    site.begin(soon()).await;
    let (message, remedy) = site.fails("VipInUse").await;
    assert!(message.contains(VIP) && remedy.contains("network.vip"), "{message}: {remedy}");
    assert!(site.calls("ApplyConfiguration").is_empty(), "no machine was told to take the address");
    drop(ssh);
    fabric.host_down(vip);
    site.comes_up().await;
    site.leaves_nothing().await;
}

/// Whoever comes to an address first is led to a server.
async fn leads_to(fabric: butler_sim::Fabric, from: SocketAddr, to: SocketAddr) {
    let mut listener = fabric.listen(from).unwrap();
    let mut tunnels = tokio::task::JoinSet::new();
    while let Ok(mut near) = listener.accept().await {
        if let Ok(mut far) = fabric.dial(to) {
            tunnels.spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    }
}

/// A load balancer of the site that leads to somebody else's server: it answers, and its certificate says that it is not ours.
#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_answers_at_the_endpoint() {
    let mut site = Site::of(Size::One).await;
    let fabric = site.data_centre.fabric().clone();
    let endpoint: SocketAddr = format!("{VIP}:6443").parse().unwrap();
    fabric.host_up(endpoint.ip());
    let stranger = site.data_centre.proxmox().unwrap().address();
    let balancer = tokio::spawn(leads_to(fabric.clone(), endpoint, stranger));
    let external = json!({"addons": {"controlPlaneHA": {"type": "external"}}});
    site.begin_with(soon(), external).await;
    let (message, _) =
        site.fails_with(&["KubernetesSilent", "EndpointSilent"], &[VIP, "invalid peer certificate"]).await;
    assert!(!message.contains("404"), "not a word was exchanged: {message}");
    let cluster = site.home.until::<ClusterBootstrap>(NAME, |_| true).await;
    assert_ne!(crate::site::phase(&cluster), Some(Phase::Ready));
    // Led to the control plane, it is taken.
    balancer.abort();
    let _ = balancer.await;
    let plane = SocketAddr::new(site.machine("prod-cp-0").address(), 6443);
    let balancer = tokio::spawn(leads_to(fabric, endpoint, plane));
    site.comes_up().await;
    balancer.abort();
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_never_boots() {
    let faults = "machines: [{machine: prod-cp-0, fault: never-boots}]";
    let mut site = Site::new(Setting { faults, ..Setting::default() }).await;
    site.begin(soon()).await;
    site.fails_saying("MachineNotUp", &["guest agent", "prod-cp-0"]).await;
    site.set_faults("");
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_talos_can_not_be_reached() {
    let faults = "calls: [{system: talos, times: always, fault: reset}]";
    let mut site = Site::new(Setting { faults, ..Setting::default() }).await;
    site.begin(soon()).await;
    // Whether the look or the config was cut off last: both name the machine, its address and what to look at.
    let (_, remedy) = site.fails_saying("TalosSilent", &["10.40.0.", "prod-cp-0"]).await;
    assert!(remedy.contains("50000") || remedy.contains("look at the node's state"), "{remedy}");
    assert!(site.machine("prod-cp-0").reaches(Stage::Maintenance, Duration::from_secs(10)).await);
    site.set_faults("");
    site.comes_up().await;
    site.leaves_nothing().await;
}

/// So far behind that our certificate is not valid yet over there.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_days_behind() {
    let faults = "machines: [{machine: prod-cp-0, fault: clock-skew -864000}]";
    let mut site = Site::new(Setting { faults, ..Setting::default() }).await;
    site.begin(soon()).await;
    let (message, remedy) = site.fails("ClockSkew").await;
    assert!(message.contains("prod-cp-0") && remedy.contains("clocks"), "{message}: {remedy}");
    site.set_faults("");
    site.comes_up().await;
    site.leaves_nothing().await;
}

/// Certificates are still good, and the node waits for the right time before it starts anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_minutes_ahead() {
    let faults = "machines: [{machine: prod-cp-0, fault: clock-skew 600}]";
    let mut site = Site::new(Setting { faults, ..Setting::default() }).await;
    site.begin(soon()).await;
    let (message, remedy) = site.fails("ClockSkew").await;
    assert!(message.contains("prod-cp-0") && remedy.contains("time servers"), "{message}: {remedy}");
    site.set_faults("");
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clock_of_a_worker_is_wrong() {
    let faults = "machines: [{machine: prod-worker-0, fault: clock-skew 600}]";
    let mut site = Site::new(Setting { faults, size: Size::Four, ..Setting::default() }).await;
    site.begin(soon()).await;
    let (message, _) = site.fails_saying("ClockSkew", &["prod-worker-0"]).await;
    assert!(message.contains("ahead of this computer's"), "{message}");
    site.set_faults("");
    site.comes_up().await;
    site.leaves_nothing().await;
}
