//! Ports: those that can be dialled from here are, the rest is listed with why not.

use super::dial::{Answer, Dialler};
use super::found;
use super::stored::Stored;
use crate::config::Settings;
use crate::engine::Made;
use butler_drivers::{Finding, Verdict};

const TALOS: u16 = 50000;
const KUBERNETES: u16 = 6443;

/// All findings about ports.
pub(super) async fn ports(settings: &Settings, stored: &Stored, dialler: &Dialler) -> Vec<Finding> {
    let nodes = &stored.nodes;
    let mut findings: Vec<Finding> = Vec::new();
    for (host, port) in butler_drivers::doors(&settings.provider_config.spec) {
        let host = settings.host_aliases.get(&host).map_or(host, ToString::to_string);
        findings.push(judge(&format!("port {port} of {host}"), dialler.reach(&host, port).await));
    }
    if let Some((name, host, port)) = &stored.balancer {
        findings.push(judge(&format!("port {port} of {name}"), dialler.reach(host, *port).await));
    }
    for node in nodes {
        let mut doors = vec![TALOS];
        doors.extend(node.control_plane.then_some(KUBERNETES));
        for port in doors {
            let answer = dialler.reach(&node.address.to_string(), port).await;
            let check = format!("port {port} of {}", node.name);
            findings.push(match (port, stored.made, answer) {
                (KUBERNETES, made, Answer::Refused) if made < Made::Cluster => {
                    found(check, Verdict::Skip, "refused, as it is until etcd is made", "")
                }
                _ => judge(&check, answer),
            });
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

fn judge(check: &str, answer: Answer) -> Finding {
    match answer {
        Answer::Open => found(check, Verdict::Pass, "open", ""),
        Answer::Refused => {
            found(check, Verdict::Fail, "refused", "start what listens there, or let it through the firewall")
        }
        Answer::Unknown(status) => not_looked(check, status),
        Answer::Nobody => {
            let remedy = "check the address, that the host is on, the firewall and the proxy between";
            found(check, Verdict::Fail, "nobody answers", remedy)
        }
    }
}

/// The proxy did not look.
pub(super) fn not_looked(check: &str, status: u16) -> Finding {
    let detail = match status {
        0 => "not known: the proxy does not answer as one".to_owned(),
        407 => "not known: the proxy wants a login (407)".to_owned(),
        status => format!("not known: the proxy answers {status}"),
    };
    let remedy = "let the proxy go to this address and port (CONNECT), with user and password in its URL if it wants them";
    found(check, Verdict::Warn, detail, remedy)
}
