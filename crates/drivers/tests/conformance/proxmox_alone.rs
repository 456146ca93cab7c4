//! What only Proxmox has: its logins, its sites that lack something, addresses by the guest agent.

use crate::harness::Harness;
use crate::proxmox::{ProxmoxWorld, SECRET, config, failures, token};
use butler_drivers::{
    Class, Connection, Credentials, Failure, MachineFacts, MachineWanted, PreflightWanted, Progress, Verdict,
    connect,
};
use butler_sim::proxmox::{ProxmoxSite, SiteAcl, SiteUser};

async fn first_failure(world: &ProxmoxWorld, credentials: &Credentials, connection: &Connection) -> Failure {
    let hands = connect(&config(), credentials, connection).unwrap();
    let wanted = world.wanted("butler-cp-0", 0);
    finish(&hands, &wanted).await.unwrap_err()
}

/// Calls until it is ready or something goes wrong.
async fn finish(
    hands: &butler_drivers::Infrastructure,
    wanted: &MachineWanted,
) -> Result<MachineFacts, Failure> {
    let mut operation = None;
    for _ in 0..400 {
        match hands.machines.ensure(wanted, operation.as_ref()).await? {
            Progress::Ready(facts) => return Ok(facts),
            Progress::InProgress { operation: next, recheck, .. } => {
                operation = next;
                tokio::time::sleep(recheck.min(std::time::Duration::from_millis(5))).await;
            }
        }
    }
    panic!("never ready");
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
    let logins =
        world.journal.0.lock().unwrap().iter().filter(|c| c.operation.contains("/access/ticket")).count();
    assert_eq!(logins, 1);
    let failure = first_failure(&world, &password("hunter2"), &world.connection()).await;
    assert_eq!((failure.class, failure.reason.as_str()), (Class::Auth, "LoginFailed"));
    assert!(!failures(&world.journal).join("\n").contains("hunter2") && !world.journal().contains("hunter2"));
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
    with_ca.0.insert("ca.crt".to_owned(), world.ca.clone());
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
