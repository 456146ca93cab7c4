//! Bootstrap files of clouds: what they become, what is said about bad ones, and where their credentials come from.

use super::*;
use crate::validate::report;
use std::fs;

const GCP: &str = "\
provider: gcp
cluster:
  name: m1
  controlPlane: {replicas: 3, cpu: 4, memoryMB: 16384, diskGB: 50}
  workers: {replicas: 3, cpu: 4, memoryMB: 16384, diskGB: 50}
providerConfig:
  gcp:
    projectID: p
    region: us-central1
    image: talos-v1-9-2
";

const AWS: &str = "\
provider: aws
cluster:
  name: m1
  controlPlane: {replicas: 3, cpu: 4, memoryMB: 16384, diskGB: 50}
  workers: {replicas: 3, cpu: 4, memoryMB: 16384, diskGB: 50}
providerConfig:
  aws:
    region: us-east-1
    subnetID: subnet-1
    securityGroupID: sg-1
    ami: ami-1
";

const USER: &str = r#"{"type": "authorized_user", "client_id": "i", "client_secret": "s3cret-of-user", "refresh_token": "r"}"#;

fn checked(home: &Path, text: &str, variables: &[(&str, &str)], need: Need) -> Checked {
    let around = Surroundings {
        variables: variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        home: home.to_owned(),
        folder: home.to_owned(),
    };
    check(&Schemas::new().unwrap(), text, None, need, &around)
}

/// What is said without credentials in the way.
fn said(text: &str) -> Vec<String> {
    let home = tempfile::tempdir().unwrap();
    report("f", &checked(home.path(), text, &[], Need::AnyCredentials).findings)
}

fn settings(text: &str) -> Settings {
    let home = tempfile::tempdir().unwrap();
    let checked = checked(home.path(), text, &[], Need::AnyCredentials);
    let found = report("f", &checked.findings);
    checked.settings.unwrap_or_else(|| panic!("{}", found.join("\n")))
}

fn assert_said(found: &[String], begins: &str) {
    assert!(found.iter().any(|line| line.starts_with(begins)), "no {begins:?} in\n{}", found.join("\n"));
}

#[test]
fn files_of_clouds_become_objects() {
    assert_eq!(said(GCP), Vec::<String>::new());
    let gcp = settings(
        &GCP.replace("    image: talos-v1-9-2\n", "    imageFamily: talos\n    zones: [us-central1-b]\n"),
    );
    let block = gcp.provider_config.spec.gcp.clone().unwrap();
    assert_eq!((block.image_family.as_deref(), block.zones.len()), (Some("talos"), 1));
    assert!(block.external_address && block.firewall_rules, "defaults are there");
    assert_eq!(said(AWS), Vec::<String>::new());
    let aws = settings(&format!("{AWS}    roleARN: arn:r\n    instanceType: m6i.xlarge\n"));
    let block = aws.provider_config.spec.aws.clone().unwrap();
    assert_eq!(
        (block.subnet_ids, block.security_group_ids),
        (vec!["subnet-1".to_owned()], vec!["sg-1".to_owned()])
    );
    assert_eq!((block.ami.as_deref(), block.instance_type.as_deref()), (Some("ami-1"), Some("m6i.xlarge")));
    assert_eq!(aws.credentials.get("roleARN"), Some("arn:r"), "a role goes with the credentials");
}

#[test]
fn the_load_balancer_is_set_up_in_the_file() {
    let text = "\
controlPlaneLoadBalancer:
  listeners: [{port: 50000}, {port: 50001, targetPort: 50000, role: worker}]
  options:
    internal: true
    allowedCIDRs: [10.0.0.0/8]
    deregistrationDelaySeconds: 60
    healthCheck: {protocol: https, interval: 20, timeout: 10, healthy: 3, unhealthy: 3}
";
    let spec = settings(&format!("{AWS}{text}")).bootstrap.spec.control_plane_load_balancer.unwrap();
    let options = spec.options.unwrap();
    assert_eq!((spec.listeners.len(), options.internal, options.deregistration_delay_seconds), (2, true, 60));
    assert_eq!((options.health_check.interval, options.health_check.unhealthy), (20, 3));
    let wrong = text
        .replace("port: 50000}, ", "port: 6443}, ")
        .replace("10.0.0.0/8", "10.0.0.0/88")
        .replace("timeout: 10", "timeout: 30")
        .replace("internal: true", "internall: true");
    let found = said(&format!("{AWS}{wrong}"));
    for begins in [
        "f:13:22: error: controlPlaneLoadBalancer.listeners[0].port: ",
        "f:15:5: error: controlPlaneLoadBalancer.options.internall: unknown field",
        "f:16:20: error: controlPlaneLoadBalancer.options.allowedCIDRs[0]: ",
        "f:18:",
    ] {
        assert_said(&found, begins);
    }
}

#[test]
fn what_a_cloud_has_to_be_told_is_asked_for_at_once() {
    let found = said(
        &(GCP.replace("    image: talos-v1-9-2\n", "    imagee: x\n")
            + "imageFactory: {url: https://f}\nnetwork: {loadBalancerPool: {start: 10.0.0.1, end: 10.0.0.9}}\n"),
    );
    assert_said(&found, "f:10:5: error: providerConfig.gcp.imagee: unknown field");
    assert_said(&found, "f:7:3: error: providerConfig.gcp.image: neither image nor imageFamily is set");
    assert_said(&found, "f:11:15: error: imageFactory: images are not brought to gcp");
    let found = said(&AWS.replace("    subnetID: subnet-1\n", "").replace("    ami: ami-1\n", ""));
    assert_said(&found, "f:7:3: error: providerConfig.aws.ami: is not set");
    assert_said(&found, "f:7:3: error: providerConfig.aws.subnetIDs: is not set");
    let found = said(&format!("{AWS}controlPlaneLoadBalancer: {{options: {{preserveClientIP: true}}}}\n"));
    assert_said(&found, "f:12:56: warning: controlPlaneLoadBalancer.options.preserveClientIP: ");
}

#[test]
fn names_that_can_not_be_are_told_before_anybody_is_asked() {
    let zones =
        GCP.replace("region: us-central1", "region: us-central1\n    zones: [us-central1-a, europe-west1-b]");
    let found = said(&zones.replace("projectID: p", "projectID: ''"));
    assert_said(&found, "f:8:16: error: providerConfig.gcp.projectID: is empty");
    assert_said(
        &found,
        "f:10:28: error: providerConfig.gcp.zones[1]: \"europe-west1-b\": not in us-central1",
    );
    let block = "controlPlaneLoadBalancer: {listeners: [{port: 50001, targetPort: 50000}], options: {deletionProtection: true}}\n";
    let found = said(&format!("{GCP}{block}"));
    assert_said(&found, "f:11:66: warning: controlPlaneLoadBalancer.listeners[0].targetPort: ");
    assert_said(&found, "f:11:105: warning: controlPlaneLoadBalancer.options.deletionProtection: ");
    assert!(!said(&format!("{AWS}{block}")).join(" ").contains("left out"));
    let found = said(&AWS.replace("subnetID: subnet-1", "subnetID: vpc-1"));
    assert_said(
        &found,
        "f:9:15: error: providerConfig.aws.subnetID: \"vpc-1\": not an id of the form subnet-...",
    );
}

#[test]
fn credentials_of_clouds_come_from_the_environment_and_the_tools_own_files() {
    let home = tempfile::tempdir().unwrap();
    let look = |text: &str, variables: &[(&str, &str)]| {
        let checked = checked(home.path(), text, variables, Need::Credentials);
        let said = report("f", &checked.findings).join("\n");
        assert!(!said.contains("s3cret"), "{said}");
        (checked.settings.map(|settings| settings.credentials), said)
    };
    let (none, said) = look(GCP, &[]);
    assert!(
        none.is_none() && said.contains("serviceAccountKey is missing from the credentials of gcp"),
        "{said}"
    );
    assert!(said.contains("GOOGLE_APPLICATION_CREDENTIALS"), "{said}");
    let (none, said) = look(AWS, &[]);
    assert!(none.is_none() && said.contains("AWS_PROFILE"), "{said}");

    fs::write(home.path().join("key.json"), USER).unwrap();
    fs::set_permissions(home.path().join("key.json"), fs::Permissions::from_mode(0o600)).unwrap();
    let (found, said) = look(GCP, &[("GOOGLE_APPLICATION_CREDENTIALS", "key.json")]);
    assert_eq!(found.unwrap().get("serviceAccountKey"), Some(USER), "{said}");
    fs::write(home.path().join("bad.json"), "s3cret but no JSON").unwrap();
    let (none, said) = look(GCP, &[("GOOGLE_APPLICATION_CREDENTIALS", "bad.json")]);
    assert!(none.is_none() && said.contains("the key file is not JSON"), "{said}");

    let keys = [
        ("AWS_ACCESS_KEY_ID", "AKIA"),
        ("AWS_SECRET_ACCESS_KEY", "s3cret"),
        ("AWS_SESSION_TOKEN", "s3cret-t"),
    ];
    let found = look(AWS, &keys).0.unwrap();
    assert_eq!((found.get("accessKeyID"), found.get("sessionToken")), (Some("AKIA"), Some("s3cret-t")));
    let (none, said) = look(AWS, &keys[..1]);
    assert!(none.is_none() && said.contains("secretAccessKey is missing"), "{said}");
    fs::create_dir(home.path().join(".aws")).unwrap();
    fs::write(
        home.path().join(".aws/credentials"),
        "[default]\naws_access_key_id=A\naws_secret_access_key=s3cret\n",
    )
    .unwrap();
    let found = look(AWS, &[]).0.unwrap();
    assert_eq!((found.get("profile"), found.get("accessKeyID")), (Some("default"), None));
    let rehearsal = checked(home.path(), AWS, &[], Need::AnyCredentials).settings.unwrap();
    assert!(rehearsal.credentials.0.is_empty(), "a rehearsal does not look for real keys");
}
