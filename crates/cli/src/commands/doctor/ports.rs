//! Ports: those that can be dialled from here are, the rest is listed with why not.

use super::dial::{Answer, Dialler};
use super::found;
use super::stored::Node;
use crate::config::Settings;
use butler_drivers::{Finding, Verdict};

const TALOS: u16 = 50000;
const KUBERNETES: u16 = 6443;

/// All findings about ports.
pub(super) async fn ports(settings: &Settings, nodes: &[Node], dialler: &Dialler) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    if let Some((host, port)) = endpoint(settings) {
        let host = settings.host_aliases.get(&host).map_or(host, ToString::to_string);
        findings.push(judge(&format!("port {port} of {host}"), dialler.reach(&host, port).await));
    }
    for node in nodes {
        let mut doors = vec![TALOS];
        doors.extend(node.control_plane.then_some(KUBERNETES));
        for port in doors {
            let answer = dialler.reach(&node.address.to_string(), port).await;
            findings.push(judge(&format!("port {port} of {}", node.name), answer));
        }
    }
    if nodes.is_empty() {
        let detail = "there are no nodes yet to dial: TCP 50000 of every node and TCP 6443 of control planes have to be open \
                      from here";
        findings.push(found("ports of nodes", Verdict::Skip, detail, ""));
    }
    let detail = "can't be dialled from here: TCP 6443, 50000-50001, 2379-2380, 10250, 4240 and UDP 8472 have to be open \
                  between the nodes";
    findings.push(found("ports between nodes", Verdict::Skip, detail, ""));
    findings
}

/// Host and port of the infrastructure's API.
fn endpoint(settings: &Settings) -> Option<(String, u16)> {
    let endpoint = &settings.provider_config.spec.proxmox.as_ref()?.endpoint;
    let (scheme, rest) = endpoint.split_once("://")?;
    let place = rest.split('/').next()?;
    let usual = if scheme == "http" { 80 } else { 443 };
    // A colon inside brackets belongs to the address.
    let (host, port) = match place.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (place, usual),
    };
    Some((host.trim_matches(['[', ']']).to_owned(), port))
}

fn judge(check: &str, answer: Answer) -> Finding {
    match answer {
        Answer::Open => found(check, Verdict::Pass, "open", ""),
        Answer::Refused => {
            found(check, Verdict::Fail, "refused", "start what listens there, or let it through the firewall")
        }
        Answer::Nobody => {
            let remedy = "check the address, that the host is on, the firewall and the proxy between";
            found(check, Verdict::Fail, "nobody answers", remedy)
        }
    }
}
