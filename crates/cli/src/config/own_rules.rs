//! Rules that only the file has: forms that the objects do not know, and fields that span two objects.

use super::check::Report;
use super::objects::old_pool;
use butler_api::{AddressRange, Provider};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Forms that are taken for another: a template's id in quotes.
pub(super) fn normalise(file: &mut Value) {
    if let Some(id) = file.pointer_mut("/providerConfig/proxmox/templateID")
        && let Some(number) = id.as_str().and_then(|text| text.trim().parse::<i64>().ok())
    {
        *id = number.into();
    }
}

/// Everything that the objects' own checks can't see.
pub(super) fn check(report: &mut Report<'_>, file: &Value, provider: Provider) {
    mtu(report, file);
    pool(report, file);
    node_addresses(report, file);
    unused(report, file);
    cloud(report, file, provider);
    cloud_names(report, file, provider);
    listeners(report, file, provider);
    proxy(report, file);
    transport(report, file, provider);
    factory_key(report, file);
}

/// Credentials and machine configs travel to the endpoint: whoever can read or pretend to be it has the cluster.
fn transport(report: &mut Report<'_>, file: &Value, provider: Provider) {
    let Some(block) = file.pointer(&format!("/providerConfig/{provider}")) else { return };
    let endpoint = block.get("endpoint").and_then(Value::as_str).unwrap_or_default().trim();
    let insecure = block.get("insecure").and_then(Value::as_bool).unwrap_or(false);
    let plain = endpoint.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"));
    let place = format!("providerConfig.{provider}");
    let path = format!("{place}.endpoint");
    if plain && insecure {
        let text = "credentials and machine secrets travel unencrypted, for everybody on the way to read";
        report.warn(&path, text, "use https outside of a laboratory");
    } else if plain {
        let text = "http would send credentials and machine secrets unencrypted";
        let help = match provider {
            Provider::Harvester => "use https".to_owned(),
            _ => format!(
                "use https, with caFile for a certificate of your own; or set {place}.insecure to true when that is meant"
            ),
        };
        report.error(&path, text, help);
    } else if insecure {
        let text = "the server's certificate is not checked, so whoever answers there gets the credentials";
        let help = format!("give the certificate authority with {place}.caFile, and remove insecure");
        report.warn(&format!("{place}.insecure"), text, help);
    }
}

/// The infrastructure fetches images itself and can't be told to send a key: a key that nobody uses would only promise too much.
fn factory_key(report: &mut Report<'_>, file: &Value) {
    if file.pointer("/imageFactory/apiKey").is_some_and(|key| !key.is_null()) {
        report.error(
            "imageFactory.apiKey",
            "a factory that asks for a key can't be used: the infrastructure fetches the image itself, without one",
            "use a factory (or a mirror) that gives images without a key, or bring the image yourself and leave \
             imageFactory out",
        );
    }
}

fn mtu(report: &mut Report<'_>, file: &Value) {
    let Some(mtu) = file.pointer("/network/mtu").and_then(Value::as_i64) else { return };
    let jumbo = file.pointer("/network/jumboFrames").and_then(Value::as_bool).unwrap_or(false);
    if mtu > 1500 && !jumbo {
        let text = format!("{mtu}: above 1500, which every switch on the way has to carry");
        report.error("network.mtu", text, "set network.jumboFrames to true when it does, or lower it");
    }
}

fn pool(report: &mut Report<'_>, file: &Value) {
    let path = "addons.loadBalancer.addressPool";
    let Some(text) = file.pointer("/addons/loadBalancer/addressPool").and_then(Value::as_str) else { return };
    match old_pool(file) {
        None => report.error(
            path,
            format!("{text:?}: not of the form first-last"),
            "use network.loadBalancerPool with start and end",
        ),
        Some(_) if file.pointer("/network/loadBalancerPool").is_some() => {
            report.warn(path, "not used, since network.loadBalancerPool is set", "remove it");
        }
        Some(_) => report.warn(path, "an old form", "use network.loadBalancerPool with start and end"),
    }
}

/// Fixed addresses: enough of them, and none that something else needs.
fn node_addresses(report: &mut Report<'_>, file: &Value) {
    let (path, addresses) = match file.pointer("/network/nodeAddresses") {
        Some(addresses) => ("network.nodeAddresses", addresses),
        None => match file.pointer("/providerNetwork/nodeAddresses") {
            Some(addresses) => ("providerNetwork.nodeAddresses", addresses),
            None => return,
        },
    };
    let Some(range) = range(addresses) else { return };
    let nodes = nodes(file);
    if range.count() < nodes {
        let text = format!("{range}: {} addresses for {nodes} nodes", range.count());
        report.error(path, text, "make the range longer");
    }
    let vip = file.pointer("/network/vip").and_then(Value::as_str).and_then(|vip| vip.parse::<IpAddr>().ok());
    if let Some(vip) = vip.filter(|vip| range.contains(*vip)) {
        let text = format!("{range}: holds network.vip {vip}");
        report.error(path, text, "leave the vip out, a node would take it");
    }
    let pool = file.pointer("/network/loadBalancerPool").and_then(self::range);
    if let Some(pool) = pool.filter(|pool| pool.overlaps(&range)) {
        let text = format!("{range}: overlaps network.loadBalancerPool {pool}");
        report.error(path, text, "use addresses that nothing else takes");
    }
}

fn range(value: &Value) -> Option<AddressRange> {
    let end = |field: &str| value.get(field)?.as_str()?.trim().parse().ok();
    AddressRange::new(end("start")?, end("end")?).ok()
}

/// How many nodes the cluster will have.
fn nodes(file: &Value) -> u128 {
    if file.pointer("/cluster/topology").and_then(Value::as_str) == Some("single-node") {
        return 1;
    }
    let count = |pool: &str| {
        let replicas = file.pointer(&format!("/cluster/{pool}/replicas")).and_then(Value::as_u64);
        u128::from(replicas.unwrap_or(0))
    };
    count("controlPlane") + count("workers")
}

/// What is taken for compatibility, and nobody reads.
fn unused(report: &mut Report<'_>, file: &Value) {
    let there = |path: &str| {
        file.pointer(&format!("/{}", path.replace('.', "/"))).is_some_and(|value| !value.is_null())
    };
    if there("networkPool") {
        report.warn(
            "networkPool",
            "not used: the bootstrap makes no address pools",
            "make it after the bootstrap",
        );
    }
    if there("addons.console.auth") {
        let text = "not used: the console makes its own password and key";
        report.warn("addons.console.auth", text, "remove the block");
    }
}

/// What a cloud needs to be told, since nothing there is looked for by guesses.
fn cloud(report: &mut Report<'_>, file: &Value, provider: Provider) {
    let Some(block) = file.pointer(&format!("/providerConfig/{provider}")) else { return };
    let is_set = |field: &str| match block.get(field) {
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        _ => false,
    };
    let place = format!("providerConfig.{provider}");
    match provider {
        Provider::Gcp if !is_set("image") && !is_set("imageFamily") => report.error(
            &format!("{place}.image"),
            "neither image nor imageFamily is set, and machines have to boot from something",
            "name an image of Talos that your project can use, or its family (docs/load-balancers.md, Images)",
        ),
        Provider::Aws if !is_set("ami") => report.error(
            &format!("{place}.ami"),
            "is not set, and machines have to boot from something",
            "name an AMI of Talos in this region by its id, or by a name such as talos-v1.12.1-us-east-1-amd64",
        ),
        _ => {}
    }
    if provider == Provider::Aws && !is_set("subnetIDs") && !is_set("subnetID") {
        report.error(
            &format!("{place}.subnetIDs"),
            "is not set, and machines and load balancer have to be somewhere",
            "name the subnets, best one in each zone",
        );
    }
    if matches!(provider, Provider::Gcp | Provider::Aws)
        && file.get("imageFactory").is_some_and(Value::is_object)
    {
        report.error(
            "imageFactory",
            format!("images are not brought to {provider}: they are named"),
            "remove it, and name the image in the block of providerConfig",
        );
    }
}

/// Names in a cloud's block that can't be: empty ones, zones of another region, an id of another kind of thing.
fn cloud_names(report: &mut Report<'_>, file: &Value, provider: Provider) {
    let Some(block) = file.pointer(&format!("/providerConfig/{provider}")) else { return };
    let place = format!("providerConfig.{provider}");
    // A single name, or a list of them.
    let names = |field: &str| -> Vec<(String, String)> {
        let path = format!("{place}.{field}");
        match block.get(field) {
            Some(Value::String(text)) => vec![(path, text.clone())],
            Some(Value::Array(list)) => list
                .iter()
                .enumerate()
                .filter_map(|(index, one)| Some((format!("{path}[{index}]"), one.as_str()?.to_owned())))
                .collect(),
            _ => Vec::new(),
        }
    };
    let (needed, prefixes): (&[&str], &[(&str, &str)]) = match provider {
        Provider::Gcp => (&["projectID", "region"], &[]),
        Provider::Aws => (
            &["region"],
            &[
                ("vpcID", "vpc-"),
                ("subnetID", "subnet-"),
                ("subnetIDs", "subnet-"),
                ("loadBalancerSubnetIDs", "subnet-"),
                ("securityGroupID", "sg-"),
                ("securityGroupIDs", "sg-"),
            ],
        ),
        _ => return,
    };
    for (path, _) in needed.iter().flat_map(|field| names(field)).filter(|(_, name)| name.trim().is_empty()) {
        report.error(&path, "is empty", "name it");
    }
    for (field, prefix) in prefixes {
        for (path, id) in names(field).iter().filter(|(_, id)| !id.is_empty() && !id.starts_with(prefix)) {
            report.error(path, format!("{id:?}: not an id of the form {prefix}..."), "look it up at AWS");
        }
    }
    let region = block.get("region").and_then(Value::as_str).filter(|region| !region.trim().is_empty());
    if let (Provider::Gcp, Some(region)) = (provider, region) {
        let elsewhere = |zone: &String| !zone.is_empty() && !zone.starts_with(&format!("{region}-"));
        let zones = ["zone", "zones"].iter().flat_map(|field| names(field));
        for (path, zone) in zones.filter(|(_, zone)| elsewhere(zone)) {
            report.error(
                &path,
                format!("{zone:?}: not in {region}"),
                format!("name zones of {region}, or another region"),
            );
        }
    }
}

/// Settings of the load balancer that a cloud does not have: they would be left out, and are better known before.
fn listeners(report: &mut Report<'_>, file: &Value, provider: Provider) {
    let Some(block) = file.get("controlPlaneLoadBalancer").filter(|_| provider == Provider::Gcp) else {
        return;
    };
    let further = block.get("listeners").and_then(Value::as_array);
    for (index, listener) in further.into_iter().flatten().enumerate() {
        let port = |field: &str| listener.get(field).and_then(Value::as_i64);
        if port("targetPort").is_some_and(|target| Some(target) != port("port")) {
            report.warn(
                &format!("controlPlaneLoadBalancer.listeners[{index}].targetPort"),
                "Google Cloud's load balancer does not change ports, so this listener is left out",
                "use the same port on both sides",
            );
        }
    }
    if block.pointer("/options/deletionProtection").and_then(Value::as_bool) == Some(true) {
        report.warn(
            "controlPlaneLoadBalancer.options.deletionProtection",
            "Google Cloud's load balancers have no protection against deletion, so this is left out",
            "remove it",
        );
    }
}

fn proxy(report: &mut Report<'_>, file: &Value) {
    let Some(proxy) = file.get("proxy").and_then(Value::as_str).filter(|proxy| !proxy.is_empty()) else {
        return;
    };
    // A proxy's URL may hold a password: the value is not repeated.
    if !proxy.starts_with("http://") {
        report.error(
            "proxy",
            "not of the form http://host:port",
            "only HTTP proxies with CONNECT are spoken to",
        );
    }
}

/// Names in place of look-ups: `address name...` each.
pub(super) fn host_aliases(
    report: &mut Report<'_>,
    file: &Value,
    provider: Provider,
) -> BTreeMap<String, IpAddr> {
    let mut aliases = BTreeMap::new();
    let path = format!("providerConfig.{provider}.hostAliases");
    let list = file.pointer(&format!("/{}", path.replace('.', "/"))).and_then(Value::as_array);
    for (index, entry) in list.into_iter().flatten().enumerate() {
        let mut words = entry.as_str().unwrap_or_default().split_whitespace();
        let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
        let names: Vec<&str> = words.collect();
        match address {
            Some(address) if !names.is_empty() => {
                aliases.extend(names.iter().map(|name| ((*name).to_owned(), address)));
            }
            _ => report.error(
                &format!("{path}[{index}]"),
                format!("{entry}: not of the form `address name...`"),
                "write it as 10.1.1.1 pve.example.com",
            ),
        }
    }
    aliases
}
