//! Machines that die, in every phase: the first control plane, another one, a worker. One that only lost its power is switched
//! on again; one that does not come back is told, and the bootstrap goes on when it does.

use crate::site::{NAME, Setting, Site, Size, soon};
use butler_api::{ClusterBootstrap, ClusterBootstrapPhase as Phase};
use butler_sim::{Matcher, Moment, Pattern};

/// A call, by system and operation.
fn call(system: &str, operation: &str) -> Matcher {
    let operation = Some(Pattern::from(operation));
    Matcher { system: Some(system.to_owned()), operation, ..Matcher::default() }
}

/// Loses its power when it gets to a stage, once; everything else has to happen by itself.
async fn loses_power(machine: &str, stage: &str) {
    let mut site = Site::of(Size::Four).await;
    site.set_faults(&format!("machines: [{{machine: {machine}, stage: {stage}, fault: die}}]"));
    site.begin(crate::support::quick()).await;
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_control_plane_loses_power_while_it_is_switched_on() {
    loses_power("prod-cp-0", "powering-on").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_control_plane_loses_power_in_maintenance() {
    loses_power("prod-cp-0", "maintenance").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_control_plane_loses_power_while_it_installs() {
    loses_power("prod-cp-0", "installing").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_control_plane_loses_power_while_it_boots() {
    loses_power("prod-cp-0", "booting").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_control_plane_loses_power_when_it_runs() {
    loses_power("prod-cp-0", "running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_loses_power_in_maintenance() {
    loses_power("prod-worker-0", "maintenance").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_loses_power_while_it_installs() {
    loses_power("prod-worker-0", "installing").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_loses_power_when_it_runs() {
    loses_power("prod-worker-0", "running").await;
}

/// Dies at a call and does not come back until it is mended; the failure has these words.
async fn stays_dead(
    machine: &str,
    at: Matcher,
    moment: Moment,
    reasons: &[&'static str],
    words: &'static [&'static str],
) {
    let mut site = Site::of(Size::Four).await;
    let mut checkpoint = site.data_centre.gate().hold_when(at, moment);
    site.begin(soon()).await;
    checkpoint.reached().await.unwrap();
    site.set_faults(&format!("machines: [{{machine: {machine}, fault: never-boots}}]"));
    site.machine(machine).power_off().await;
    checkpoint.go_on();
    site.fails_with(reasons, words).await;
    site.has_no_more_than_wanted();
    site.set_faults("");
    site.comes_up().await;
    site.leaves_nothing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_control_plane_dies_before_its_config() {
    let at = Matcher { object: Some(Pattern::from("prod-cp-0")), ..call("talos", "ApplyConfiguration") };
    stays_dead("prod-cp-0", at, Moment::Before, &["TalosSilent"], &["prod-cp-0"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_control_plane_dies_after_its_config() {
    let at = Matcher { object: Some(Pattern::from("prod-cp-0")), ..call("talos", "ApplyConfiguration") };
    stays_dead("prod-cp-0", at, Moment::After, &["TalosSilent"], &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_dies_before_its_config() {
    let at = Matcher { object: Some(Pattern::from("prod-worker-0")), ..call("talos", "ApplyConfiguration") };
    stays_dead("prod-worker-0", at, Moment::Before, &["TalosSilent"], &["prod-worker-0"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_control_plane_dies_before_etcd_is_made() {
    stays_dead("prod-cp-0", call("talos", "Bootstrap"), Moment::Before, &["TalosSilent"], &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_control_plane_dies_when_etcd_is_made_and_nobody_knows() {
    stays_dead("prod-cp-0", call("talos", "Bootstrap"), Moment::After, &["TalosSilent"], &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_dies_when_etcd_is_made() {
    stays_dead(
        "prod-worker-0",
        call("talos", "Bootstrap"),
        Moment::After,
        &["NodeNotJoined"],
        &["prod-worker-0"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_control_plane_dies_when_etcd_is_made() {
    stays_dead("prod-cp-2", call("talos", "Bootstrap"), Moment::After, &["NodeNotJoined"], &["prod-cp-2"])
        .await;
}

/// The first change that an addon makes on the new cluster.
fn addons() -> Matcher {
    call("kubernetes", "PATCH *")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_dies_while_addons_are_installed() {
    stays_dead(
        "prod-worker-0",
        addons(),
        Moment::Before,
        &["NodeNotReady", "NodeNotJoined"],
        &["prod-worker-0"],
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_control_plane_dies_while_addons_are_installed() {
    // With the others in etcd already, the API goes on without it.
    stays_dead("prod-cp-0", addons(), Moment::Before, &["KubernetesSilent", "NodeNotReady"], &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_never_joins() {
    let faults = "machines: [{machine: prod-cp-1, fault: never-joins}]";
    let mut site = Site::new(Setting { faults, size: Size::Four, ..Setting::default() }).await;
    site.begin(soon()).await;
    let (message, remedy) = site.fails_saying("NodeNotJoined", &["prod-cp-1"]).await;
    assert!(remedy.contains("talos health"), "{message}: {remedy}");
    site.set_faults("");
    site.comes_up().await;
    site.leaves_nothing().await;
}

/// Every node is ready and every addon there, and still nobody may rely on the cluster: the failure names the member.
#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_whose_etcd_never_votes() {
    let faults = "machines: [{machine: prod-cp-2, fault: never-promoted}]";
    let mut site = Site::new(Setting { faults, size: Size::Four, ..Setting::default() }).await;
    site.begin(soon()).await;
    // Also after a look came to nothing, the reason is what is missing, and not what that look was.
    let (message, remedy) = site.fails_saying("EtcdNotVoting", &["etcd on prod-cp-2 to vote (last: "]).await;
    assert!(remedy.contains("etcd services of all control planes"), "{message}: {remedy}");
    let learns = ("prod-cp-2".to_owned(), false);
    assert!(site.data_centre.world().etcd_members().contains(&learns));
    site.set_faults("");
    site.comes_up().await;
    site.leaves_nothing().await;
}

/// Somebody takes a machine of ours away.
async fn takes_away(site: &Site, name: &str) {
    let address = site.machine(name).address();
    let (vmid, _) = site.ours().into_iter().find(|(_, known)| known == name).unwrap();
    site.data_centre.proxmox().unwrap().change(|state| assert!(state.take_away(vmid)));
    site.data_centre.world().remove_node(address).await;
}

/// Nothing hangs on it yet, so that it is made anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_taken_away_before_etcd_is_made() {
    let mut site = Site::of(Size::Four).await;
    let mut checkpoint = site.data_centre.gate().hold_when(
        Matcher { object: Some(Pattern::from("prod-cp-2")), ..call("talos", "ApplyConfiguration") },
        Moment::Before,
    );
    site.begin(crate::support::quick()).await;
    checkpoint.reached().await.unwrap();
    takes_away(&site, "prod-cp-2").await;
    checkpoint.go_on();
    site.comes_up().await;
    site.leaves_nothing().await;
}

/// It is told, and not quietly made anew: what was on it is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_taken_away_after_all_is_ready() {
    let mut site = Site::of(Size::Four).await;
    site.begin(crate::support::quick()).await;
    site.comes_up().await;
    takes_away(&site, "prod-worker-0").await;
    let (message, remedy) = site.fails("VMDeleted").await;
    assert!(message.contains("prod-worker-0"), "{message}");
    assert!(remedy.contains("put the machine back") && remedy.contains("butleradm destroy"), "{remedy}");
    assert_eq!(site.ours().len(), 3, "it is not made behind anybody's back");
    site.leaves_nothing().await;
}

/// A cluster that was ready tells when a machine is gone, and when it is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_dies_after_all_is_ready() {
    let mut site = Site::of(Size::Four).await;
    site.begin(crate::support::quick()).await;
    site.comes_up().await;
    site.set_faults("machines: [{machine: prod-cp-0, fault: never-boots}]");
    site.machine("prod-cp-0").power_off().await;
    site.home
        .until::<ClusterBootstrap>(NAME, |cb| {
            let status = cb.status.clone().unwrap_or_default();
            status.phase == Some(Phase::InstallingAddons)
                && status.machines.iter().any(|machine| machine.name == "prod-cp-0" && !machine.ready)
        })
        .await;
    site.set_faults("");
    site.comes_up().await;
    site.leaves_nothing().await;
}
