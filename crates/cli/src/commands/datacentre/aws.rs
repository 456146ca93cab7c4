//! The AWS account that a bootstrap file describes.

use crate::config::Settings;
use butler_api::AwsConfig;
use butler_drivers::Credentials;
use butler_sim::aws::{AwsNames, AwsSite};

/// The key that a rehearsal uses when the user has given none. It opens nothing but the simulation.
const KEY: &str = "AKIAREHEARSALEXAMPLE";
const SECRET: &str = "rehearsal/secret+of+nobody/0123456789abc";

/// The account that Talos' makers publish images from.
const TALOS_MAKERS: &str = "540036508848";

/// The site, and its keys where the user has none.
pub(super) fn site(settings: &mut Settings, aws: &AwsConfig) -> AwsSite {
    credentials(&mut settings.credentials);
    let spec = &settings.bootstrap.spec;
    let balancer = spec.control_plane_load_balancer.as_ref();
    let options = balancer.and_then(|balancer| balancer.options.as_ref());
    let get = |key: &str| settings.credentials.get(key).map(ToOwned::to_owned);
    let (mut image_ids, mut image_names) = (Vec::new(), Vec::new());
    match aws.ami.as_deref().filter(|ami| !ami.is_empty()) {
        Some(id) if id.starts_with("ami-") => image_ids.push(id.to_owned()),
        Some(name) => image_names
            .push((aws.ami_owner.clone().unwrap_or_else(|| TALOS_MAKERS.to_owned()), name.to_owned())),
        None => {}
    }
    AwsSite::for_config(&AwsNames {
        region: aws.region.clone(),
        vpc: aws.vpc_id.clone(),
        subnets: aws.subnet_ids.clone(),
        balancer_subnets: aws.load_balancer_subnet_ids.clone(),
        arm: aws.instance_type.as_deref().is_some_and(is_arm),
        groups: aws.security_group_ids.clone(),
        image_ids,
        image_names,
        talos_version: Some(spec.talos.version.clone()),
        access_key: get("accessKeyID").unwrap_or_default(),
        secret_key: get("secretAccessKey").unwrap_or_default(),
        session_token: get("sessionToken"),
        role: get("roleARN"),
        external_id: get("externalID"),
        admin_cidrs: options.map(|options| options.allowed_cidrs.clone()).unwrap_or_default(),
    })
}

/// Whether an instance type is of ARM's kind: a `g` behind the generation says so.
fn is_arm(instance_type: &str) -> bool {
    let family = instance_type.split('.').next().unwrap_or_default();
    let behind = family.trim_start_matches(|c: char| c.is_ascii_lowercase());
    behind.contains('g') || family.starts_with("a1")
}

/// Keys of a profile stay where they are: a rehearsal has its own.
fn credentials(credentials: &mut Credentials) {
    if credentials.get("accessKeyID").is_some() && credentials.get("secretAccessKey").is_some() {
        return;
    }
    credentials.0.retain(|key, _| ["roleARN", "externalID", "roleSessionName"].contains(&key.as_str()));
    credentials.0.insert("accessKeyID".to_owned(), KEY.to_owned());
    credentials.0.insert("secretAccessKey".to_owned(), SECRET.to_owned());
}

/// What to export so that a command of its own uses the data centre's credentials.
pub(super) fn exports() -> String {
    format!("export AWS_ACCESS_KEY_ID={KEY} AWS_SECRET_ACCESS_KEY={SECRET}")
}
