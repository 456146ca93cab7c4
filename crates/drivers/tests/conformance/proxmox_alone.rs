//! What only Proxmox has: its logins, its sites that lack something, addresses by the guest agent.

use crate::harness::{Harness, Setup};
use crate::proxmox::{ProxmoxWorld, SECRET, SLOW, config, token};
use crate::suite::{Life, machine as finish, make, remove, target};
use butler_drivers::{
    Class, Connection, Credentials, Failure, MachineTarget, MachineWanted, PreflightWanted, Progress,
    Verdict, connect,
};
use butler_sim::proxmox::{ProxmoxSite, SiteAcl, SiteUser, SiteVm};

async fn first_failure(world: &ProxmoxWorld, credentials: &Credentials, connection: &Connection) -> Failure {
    let hands = connect(&config(), credentials, connection).unwrap();
    let wanted = world.wanted("butler-cp-0", 0);
    finish(&hands, &wanted).await.unwrap_err()
}

fn password(text: &str) -> Credentials {
    let pairs = [("username", "root@pam"), ("password", text)];
    Credentials(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into())
}

#[tokio::test]
async fn a_password_works_and_a_wrong_one_is_named() {
    let world = ProxmoxWorld::with(ProxmoxSite::example()).await;
    let hands = connect(&config(), &password("rehearsal"), &world.connection()).unwrap();
    finish(&hands, &world.wanted("butler-cp-0", 0)).await.unwrap();
    let logins = world
        .ground
        .journal
        .0
        .lock()
        .unwrap()
        .iter()
        .filter(|c| c.operation.contains("/access/ticket"))
        .count();
    assert_eq!(logins, 1);
    let failure = first_failure(&world, &password("hunter2"), &world.connection()).await;
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Auth, "LoginFailed"));
    assert!(
        !world.ground.journal.failures().join("\n").contains("hunter2")
            && !world.journal().contains("hunter2")
    );
    let wrong =
        Credentials([("token".into(), "root@pam!butler".into()), ("tokenSecret".into(), "no".into())].into());
    assert_eq!(first_failure(&world, &wrong, &world.connection()).await.class, Class::Auth);
    let failure = connect(&config(), &Credentials::default(), &world.connection()).unwrap_err();
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Auth, "CredentialsMissing"));
    assert!(!world.journal().contains(SECRET));
    world.stop().await;
}

#[tokio::test]
async fn a_certificate_that_is_not_trusted_is_refused() {
    let world = ProxmoxWorld::with(ProxmoxSite::example()).await;
    let stranger = Connection { ca_pem: None, ..world.connection() };
    let failure = first_failure(&world, &token(), &stranger).await;
    assert_eq!(
        (failure.class, failure.reason.as_str()),
        (Class::Auth, "CertificateNotTrusted"),
        "{failure:?}"
    );
    // The authority can come with the credentials; and only `insecure` does without.
    let mut with_ca = token();
    with_ca.0.insert("ca.crt".to_owned(), world.ground.ca.pem().to_owned());
    let hands = connect(&config(), &with_ca, &stranger).unwrap();
    assert_eq!(hands.machines.owned(None).await.unwrap(), []);
    let mut insecure = config();
    insecure.proxmox.as_mut().unwrap().insecure = true;
    let hands = connect(&insecure, &token(), &stranger).unwrap();
    assert_eq!(hands.machines.owned(None).await.unwrap(), []);
    let door = world.door;
    let connection = world.connection();
    world.stop().await;
    let hands = connect(&config(), &token(), &connection).unwrap();
    let failure = hands.machines.owned(None).await.unwrap_err();
    assert_eq!(
        (failure.class, failure.reason.as_str()),
        (Class::Retryable, "Unreachable"),
        "{door}: {failure:?}"
    );
}

#[tokio::test]
async fn addresses_come_from_the_guest_agent_without_a_fixed_one() {
    let world = ProxmoxWorld::with(ProxmoxSite::example()).await;
    let wanted = MachineWanted { static_address: None, ..world.wanted("butler-cp-0", 0) };
    let facts = finish(&world.infrastructure(), &wanted).await.unwrap();
    assert_eq!(facts.addresses.len(), 1, "no loopback and no link-local: {facts:?}");
    assert!(facts.addresses[0].to_string().starts_with("10.40.0.") && facts.mac.is_some(), "{facts:?}");
    world.stop().await;
}

/// Takes something away from a site.
type Lack = fn(&mut ProxmoxSite);

#[tokio::test]
async fn sites_that_lack_something_are_named() {
    let cases: [(Lack, Class, &str); 4] = [
        (|site| site.templates.clear(), Class::InvalidConfig, "TemplateMissing"),
        (|site| site.storages.retain(|s| s.name != "ceph-vm"), Class::InvalidConfig, "StorageUnusable"),
        (|site| site.nodes.iter_mut().for_each(|node| node.online = false), Class::Retryable, "NoNodeOnline"),
        (
            |site| site.storages.iter_mut().filter(|s| s.name == "ceph-vm").for_each(|s| s.used = s.total),
            Class::Quota,
            "StorageFull",
        ),
    ];
    for (change, class, reason) in cases {
        let mut site = ProxmoxSite::example();
        change(&mut site);
        let world = ProxmoxWorld::with(site).await;
        let failure = first_failure(&world, &token(), &world.connection()).await;
        assert_eq!((failure.class, failure.reason.as_str()), (class, reason), "{failure:?}");
        let machines = vec![world.wanted("butler-cp-0", 0)];
        let wanted = PreflightWanted { machines, ..PreflightWanted::default() };
        let findings = world.infrastructure().preflight.check(&wanted).await;
        let failed = findings.iter().filter(|f| f.verdict == Verdict::Fail && !f.remedy.is_empty()).count();
        assert!(failed >= 1, "{reason}: {findings:#?}");
        world.stop().await;
    }
}

/// The preflight of a user with some roles, in words: `VERDICT check: detail`.
async fn preflight_with(
    roles: &[(&str, &str)],
    change: fn(&mut PreflightWanted, &mut butler_api::ProviderConfigSpec),
) -> Vec<String> {
    let mut site = ProxmoxSite::example();
    site.users.push(SiteUser { id: "butler@pve".to_owned(), tokens: Vec::new(), ..site.users[0].clone() });
    for (path, role) in roles {
        site.acls.push(SiteAcl {
            path: (*path).to_owned(),
            who: "butler@pve".to_owned(),
            role: (*role).to_owned(),
            propagate: true,
        });
    }
    let world = ProxmoxWorld::with(site).await;
    let mut wanted =
        PreflightWanted { machines: vec![world.wanted("butler-cp-0", 0)], ..PreflightWanted::default() };
    let mut config = config();
    change(&mut wanted, &mut config);
    let pairs = [("username", "butler@pve"), ("password", "rehearsal")];
    let credentials = Credentials(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let hands = connect(&config, &credentials, &world.connection()).unwrap();
    let findings = hands.preflight.check(&wanted).await;
    world.stop().await;
    findings.iter().map(|f| format!("{:?} {}: {}", f.verdict, f.check, f.detail)).collect()
}

const MACHINES: [(&str, &str); 3] =
    [("/", "PVEAuditor"), ("/vms", "PVEVMAdmin"), ("/storage", "PVEDatastoreUser")];

#[tokio::test]
async fn a_right_that_is_missing_fails_the_preflight() {
    let findings = preflight_with(&MACHINES, |_, _| {}).await;
    let expected = "Fail permissions: missing: SDN.Use on /sdn/zones/localnetwork/vmbr0";
    assert!(findings.iter().any(|f| f == expected), "{findings:#?}");
    let all = [&MACHINES[..], &[("/sdn/zones/localnetwork", "PVESDNUser")]].concat();
    let findings = preflight_with(&all, |_, _| {}).await;
    assert!(findings.iter().all(|f| f.starts_with("Pass ")), "{findings:#?}");
}

#[tokio::test]
async fn an_image_that_is_brought_needs_its_own_rights_and_no_template() {
    let all = [&MACHINES[..], &[("/sdn/zones/localnetwork", "PVESDNUser")]].concat();
    let bring = |wanted: &mut PreflightWanted, config: &mut butler_api::ProviderConfigSpec| {
        wanted.brings_image = true;
        config.proxmox.as_mut().unwrap().template_id = None;
    };
    let findings = preflight_with(&all, bring).await;
    let failed: Vec<_> = findings.iter().filter(|f| f.starts_with("Fail ")).collect();
    assert_eq!(failed.len(), 1, "{findings:#?}");
    assert!(failed[0].contains("Datastore.AllocateTemplate on /storage/local"), "{failed:?}");
    assert!(failed[0].contains("Sys.AccessNetwork or Sys.Modify on /nodes/pve1"), "{failed:?}");
    let findings = preflight_with(&[("/", "Administrator")], bring).await;
    assert!(findings.iter().all(|f| f.starts_with("Pass ")), "{findings:#?}");
    assert!(findings.iter().any(|f| f.starts_with("Pass image storage local: ")), "{findings:#?}");
}

#[tokio::test]
async fn room_that_ours_have_taken_is_not_needed_again() {
    let mut site = ProxmoxSite::example();
    let storages = site.storages.iter_mut().filter(|storage| storage.name == "ceph-vm");
    storages.for_each(|storage| storage.used = storage.total - (100 << 30));
    let world = ProxmoxWorld::with(site).await;
    let machine = world.wanted("butler-cp-0", 0);
    finish(&world.infrastructure(), &machine).await.unwrap();
    let uid = machine.owner.cluster_uid.clone();
    let mut wanted = PreflightWanted { machines: vec![machine], ..PreflightWanted::default() };
    let failed = async |wanted: &PreflightWanted| -> Vec<String> {
        let findings = world.infrastructure().preflight.check(wanted).await;
        findings.into_iter().filter(|f| f.verdict == Verdict::Fail).map(|f| f.check).collect()
    };
    assert_eq!(failed(&wanted).await, ["storage ceph-vm", "names"], "of an unknown cluster");
    wanted.cluster_uid = Some(uid);
    assert_eq!(failed(&wanted).await, [""; 0]);
    world.stop().await;
}

/// More clones at once than the storage can lock for: those that come too late are made after the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storage_that_is_locked_is_waited_for() {
    let world = ProxmoxWorld::at_speed(ProxmoxSite::example(), SLOW).await;
    world.proxmox.change(|state| assert!(state.limit_copies("ceph-vm", Some(1))));
    let hands = world.infrastructure();
    let all = ["b-cp-0", "b-cp-1", "b-cp-2"].map(|name| world.wanted(name, name.as_bytes()[5] - b'0'));
    let one = async |wanted: &MachineWanted| -> Vec<Failure> {
        let (mut failures, mut operation) = (Vec::new(), None);
        for _ in 0..1000 {
            match hands.machines.ensure(wanted, operation.as_ref()).await {
                Ok(Progress::Ready(_)) => return failures,
                Ok(Progress::InProgress { operation: next, .. }) => operation = next,
                Err(failure) => failures.push(failure),
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("{} never got ready: {failures:?}", wanted.name);
    };
    let met = futures::future::join_all(all.iter().map(one)).await.concat();
    assert!(!met.is_empty(), "no clone came too late");
    for failure in &met {
        assert_eq!((failure.class, failure.reason.as_str()), (Class::Retryable, "Locked"), "{failure:?}");
        assert!(failure.message.contains("cfs-lock 'storage-ceph-vm'"), "{failure:?}");
    }
    assert_eq!(world.machines().iter().filter(|name| name.starts_with("b-cp-")).count(), 3);
    world.stop().await;
}

/// The files of a host that is down are there still, and nobody says that they are not.
#[tokio::test]
async fn an_image_on_a_host_that_is_down_is_not_gone() {
    let world = ProxmoxWorld::start(Setup::default()).await;
    let empty = world.volumes();
    let images = world.infrastructure().images.unwrap();
    let wanted = world.image().unwrap();
    let mut operation = None;
    while let Progress::InProgress { operation: next, .. } =
        images.ensure(&wanted, operation.as_ref()).await.unwrap()
    {
        operation = next;
    }
    assert_eq!(world.volumes(), empty + 3, "one for each host");
    world.proxmox.change(|state| assert!(state.set_online("pve2", false)));
    let failure = loop {
        match images.delete(&wanted, None).await {
            Ok(Progress::InProgress { .. }) => {}
            Ok(Progress::Ready(())) => panic!("the file on pve2 is still there"),
            Err(failure) => break failure,
        }
    };
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Retryable, "NodeUnreachable"));
    assert!(failure.message.contains("pve2") && failure.remedy.contains("bring"), "{failure:?}");
    assert_eq!(world.volumes(), empty + 1, "what can be reached is gone");
    assert_eq!(images.owned(None).await.unwrap_err().reason, "NodeUnreachable");
    // Back again, and meanwhile taken out of the ProviderConfig: it is looked at all the same.
    world.proxmox.change(|state| assert!(state.set_online("pve2", true)));
    let mut fewer = config();
    fewer.proxmox.as_mut().unwrap().nodes.retain(|node| node != "pve2");
    let images = connect(&fewer, &token(), &world.connection()).unwrap().images.unwrap();
    assert_eq!(images.owned(None).await.unwrap().len(), 1);
    while let Progress::InProgress { .. } = images.delete(&wanted, None).await.unwrap() {}
    assert_eq!(world.volumes(), empty);
    world.stop().await;
}

/// Where a machine was last seen is a hint: one that was moved, by an administrator or by HA, is found and not made again.
#[tokio::test]
async fn a_machine_that_was_moved_is_found() {
    let world = ProxmoxWorld::with(ProxmoxSite::example()).await;
    let wanted = world.wanted("butler-cp-0", 0);
    let hands = world.infrastructure();
    let facts = finish(&hands, &wanted).await.unwrap();
    let vmid: u32 = facts.provider_id.rsplit('/').next().unwrap().parse().unwrap();
    assert_eq!(facts.provider_id, format!("proxmox://pve1/qemu/{vmid}"));
    let (machines, changes) = (world.machines().len(), world.changes());
    // To another host: by the driver that remembers the old one, and by what the caller has kept.
    world.proxmox.change(|state| assert!(state.move_to_host(vmid, "pve3")));
    let moved = finish(&hands, &wanted).await.unwrap();
    assert_eq!(moved.provider_id, format!("proxmox://pve3/qemu/{vmid}"));
    let kept = MachineTarget { provider_id: Some(facts.provider_id.clone()), ..target(&wanted) };
    assert_eq!(hands.machines.find(&kept).await.unwrap(), Some(moved));
    // Under another id, restored from a backup for one, with somebody else's machine in the old place.
    world.proxmox.change(|state| {
        assert!(state.move_to_id(vmid, 290));
        let other = SiteVm { vmid, name: "other".to_owned(), node: "pve3".to_owned(), ..foreign() };
        state.add_foreign(&other);
    });
    let again = finish(&hands, &wanted).await.unwrap();
    assert_eq!(again.provider_id, "proxmox://pve3/qemu/290");
    assert_eq!(hands.machines.find(&kept).await.unwrap(), Some(again));
    assert_eq!((world.machines().len(), world.changes()), (machines + 1, changes), "nothing was made");
    remove(&world, &kept, Life::Same).await;
    assert!(world.machines().contains(&"other".to_owned()) && world.machines().len() == machines);
    assert!(make(&world, &wanted, Life::Reborn).await.unwrap().running, "and a new one can be made");
    world.stop().await;
}

fn foreign() -> SiteVm {
    SiteVm { address: None, ..ProxmoxSite::example().foreign[1].clone() }
}
