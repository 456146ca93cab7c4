//! Fills a new state with what a site has: networks, firewall rules and images.

use super::site::GceSite;
use super::state::{Doc, State, link};
use serde_json::{Value, json};

pub(super) fn furnish(state: &mut State, site: &GceSite) {
    let project = state.project.clone();
    for network in &site.networks {
        let path = format!("projects/{project}/global/networks/{}", network.name);
        let mut subnetworks = Vec::new();
        for (name, region, range) in &network.subnetworks {
            let subnetwork = format!("projects/{project}/regions/{region}/subnetworks/{name}");
            subnetworks.push(link(&subnetwork));
            let fields = json!({
                "network": link(&path), "ipCidrRange": range, "gatewayAddress": State::gateway_of(range),
                "privateIpGoogleAccess": false, "purpose": "PRIVATE", "stackType": "IPV4_ONLY",
            });
            put(state, &subnetwork, fields, None);
        }
        let fields = json!({
            "autoCreateSubnetworks": network.name == "default", "subnetworks": subnetworks,
            "routingConfig": { "routingMode": "REGIONAL" }, "mtu": 1460,
        });
        put(state, &path, fields, None);
        for rule in &network.firewalls {
            let name = rule["name"].as_str().unwrap_or_default();
            let mut rule = rule.clone();
            rule["network"] = link(&path).into();
            put(state, &format!("projects/{project}/global/firewalls/{name}"), rule, None);
        }
    }
    for image in &site.images {
        let path = format!("projects/{}/global/images/{}", image.project, image.name);
        let mut fields = json!({
            "status": "READY", "sourceType": "RAW", "diskSizeGb": image.disk_gb.to_string(), "architecture": "X86_64",
        });
        if let Some(family) = &image.family {
            fields["family"] = family.clone().into();
        }
        if image.deprecated {
            fields["deprecated"] = json!({ "state": "DEPRECATED" });
        }
        put(state, &path, fields, image.talos_version.clone());
    }
}

fn put(state: &mut State, path: &str, fields: Value, system: Option<String>) {
    let fields = fields.as_object().cloned().unwrap_or_default();
    state.put(path, Doc { fields, system, ..Doc::default() }, 0);
}
