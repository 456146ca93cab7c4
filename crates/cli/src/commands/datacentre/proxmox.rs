//! The Proxmox of a bootstrap file: hosts, storages, template and addresses that it names, and room for its machines.

use crate::config::Settings;
use butler_api::{Endpoint, ProxmoxConfig};
use butler_drivers::Credentials;
use butler_sim::proxmox::{ProxmoxSite, SiteNames};
use std::net::{IpAddr, Ipv4Addr};

/// The token that a rehearsal uses when the user has given none.
const USER: &str = "root@pam!rehearsal";
const SECRET: &str = "00000000-5ee0-4c0f-9a1b-4e4ea45a1000";

/// What to export so that a command of its own uses the data centre's credentials.
pub(super) fn exports() -> String {
    format!("export PROXMOX_TOKEN_ID='{USER}' PROXMOX_TOKEN_SECRET={SECRET}")
}

pub(super) fn credentials(credentials: &mut Credentials) {
    let token = credentials.get("token").is_some() && credentials.get("tokenSecret").is_some();
    let password = credentials.get("username").is_some() && credentials.get("password").is_some();
    if !token && !password {
        credentials.0.insert("token".to_owned(), USER.to_owned());
        credentials.0.insert("tokenSecret".to_owned(), SECRET.to_owned());
    }
}

/// The site that a file describes.
pub(super) fn site(settings: &Settings, proxmox: &ProxmoxConfig) -> ProxmoxSite {
    let spec = &settings.bootstrap.spec;
    let credentials = &settings.credentials;
    let (user, secret) = match (credentials.get("token"), credentials.get("tokenSecret")) {
        (Some(token), Some(secret)) => (token, secret),
        _ => {
            (credentials.get("username").unwrap_or_default(), credentials.get("password").unwrap_or_default())
        }
    };
    let v4 = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    };
    let vip = spec.network.endpoint().and_then(Result::ok).as_ref().and_then(Endpoint::ip).and_then(v4);
    let pool = spec.network.load_balancer_pool.as_ref().and_then(|pool| pool.range().ok());
    let network = settings.provider_config.spec.network.as_ref();
    let fixed =
        network.and_then(|network| network.node_addresses.as_ref()).and_then(|fixed| fixed.range().ok());
    let ranges = [pool, fixed].into_iter().flatten();
    let taken =
        ranges.flat_map(|range| (0..range.count().min(1024)).filter_map(move |index| range.nth(index)));
    let reserved: Vec<Ipv4Addr> = vip.into_iter().chain(taken.filter_map(v4)).collect();
    let mut site = ProxmoxSite::for_config(&SiteNames {
        endpoint: proxmox.endpoint.clone(),
        nodes: proxmox.nodes.clone(),
        storage: proxmox.storage.clone(),
        template_id: proxmox.template_id.and_then(|id| u32::try_from(id).ok()),
        talos_version: Some(spec.talos.version.clone()),
        user: user.to_owned(),
        secret: secret.to_owned(),
        within: reserved.first().copied(),
        reserved,
        images: images(settings),
    });
    site.network.bridge = proxmox.bridge().to_owned();
    for storage in &mut site.storages {
        storage.total = storage.total.max(2 * disks(settings) * GIB);
    }
    site
}

const GIB: u64 = 1 << 30;

/// GiB of all disks of the cluster.
fn disks(settings: &Settings) -> u64 {
    let spec = &settings.bootstrap.spec;
    let workers = spec.effective_workers().map(|pool| (pool, pool.replicas));
    let pools = std::iter::once((&spec.cluster.control_plane, spec.control_plane_count())).chain(workers);
    let sum: i64 = pools
        .map(|(pool, count)| {
            let extra: i64 = pool.extra_disks.iter().map(|disk| i64::from(disk.size_gb)).sum();
            i64::from(count) * (i64::from(pool.disk_gb) + extra)
        })
        .sum();
    u64::try_from(sum).unwrap_or(0)
}

/// The image that the bootstrap is going to fetch.
fn images(settings: &Settings) -> Vec<(String, String)> {
    let factory = settings.butler_config.as_ref().and_then(|config| config.spec.image_factory.as_ref());
    let talos = &settings.bootstrap.spec.talos;
    let profile = butler_drivers::Profile::of(settings.provider);
    let url = |base: &str| {
        format!(
            "{}/image/{}/{}/{}-amd64.{}",
            base.trim_end_matches('/'),
            talos.schematic,
            talos.version,
            profile.image_platform,
            profile.image_format
        )
    };
    factory.map(|factory| (url(&factory.url), String::new())).into_iter().collect()
}
