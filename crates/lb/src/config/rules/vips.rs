//! Shared addresses.

use super::super::formats::parse_prefix;
use super::super::model::{Config, TrackCheck, Vip};
use super::{Report, same_family};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// VRRPv3 counts in hundredths of a second, in 12 bits.
const V3_MOST_MS: u32 = 40_950;
/// A gap between priorities is seldom smaller.
const SMALL_WEIGHT: u8 = 10;

pub(super) fn check(config: &Config, report: &mut Report<'_>) {
    let names = config.vips.iter().enumerate();
    report.unique("vips", names.map(|(i, vip)| (format!("vips[{i}].name"), &*vip.name)));
    shared(config, report);
    for (index, vip) in config.vips.iter().enumerate() {
        let path = format!("vips[{index}]");
        addresses(&path, vip, report);
        adverts(&path, vip, report);
        peers(&path, vip, report);
        source(&path, vip, config, report);
        tracks(&path, vip, config, report);
    }
}

/// What two virtual routers must not share.
fn shared(config: &Config, report: &mut Report<'_>) {
    for (i, vip) in config.vips.iter().enumerate() {
        for (k, other) in config.vips[..i].iter().enumerate() {
            let families = family(vip).zip(family(other)).is_some_and(|(a, b)| a == b);
            if vip.router_id == other.router_id && vip.interface == other.interface && families {
                let text = format!("{}: vips[{k}] has it already on {}", vip.router_id, vip.interface);
                report.error(&format!("vips[{i}].routerId"), text, "a number belongs to one virtual router");
            }
            for (n, address) in vip.addresses.iter().enumerate() {
                let taken = other.addresses.iter().any(|theirs| host(theirs) == host(address));
                if taken {
                    report.error(
                        &format!("vips[{i}].addresses[{n}]"),
                        format!("{address:?}: vips[{k}] has it already"),
                        "",
                    );
                }
            }
        }
    }
}

fn addresses(path: &str, vip: &Vip, report: &mut Report<'_>) {
    for (k, address) in vip.addresses.iter().enumerate() {
        let here = format!("{path}.addresses[{k}]");
        let Some((host_part, _)) = parse_prefix(address) else { continue };
        if host_part.is_unspecified() || host_part.is_multicast() || host_part.is_loopback() {
            report.error(&here, format!("{address:?}: not an address that machines can share"), "");
        }
        if family(vip).is_some_and(|v4| v4 != host_part.is_ipv4()) {
            report.error(
                &here,
                format!("{address:?}: the addresses of a vip are of one family"),
                "make a vip of its own for the other family",
            );
        }
        if vip.addresses[..k].iter().any(|other| host(other) == Some(host_part)) {
            report.error(&here, format!("{address:?}: is there already"), "");
        }
    }
    if vip.version == 2 && family(vip) == Some(false) {
        report.error(&format!("{path}.version"), "2: VRRPv2 knows IPv4 only", "3");
    }
}

fn adverts(path: &str, vip: &Vip, report: &mut Report<'_>) {
    let here = format!("{path}.advertMs");
    let ms = vip.advert_ms;
    if vip.version == 2 && !ms.is_multiple_of(1000) {
        report.error(&here, format!("{ms}: VRRPv2 counts in whole seconds"), "1000, or version: 3");
    }
    if vip.version == 3 && (!ms.is_multiple_of(10) || ms > V3_MOST_MS) {
        report.error(
            &here,
            format!("{ms}: VRRPv3 counts in hundredths of a second, up to {V3_MOST_MS} ms"),
            "100",
        );
    }
    if vip.preempt_delay > 0 && !vip.preempt {
        report.error(
            &format!("{path}.preemptDelay"),
            "has no effect without preempt",
            "preempt: true, or remove it",
        );
    }
    if vip.sign.is_some() && vip.version == 2 {
        report.error(&format!("{path}.sign"), "adverts of VRRPv2 are not signed", "version: 3");
    }
}

fn peers(path: &str, vip: &Vip, report: &mut Report<'_>) {
    let Some(first) = vip.addresses.first().and_then(|address| host(address)) else { return };
    for (k, peer) in vip.peers.iter().enumerate() {
        let here = format!("{path}.peers[{k}]");
        if !same_family(*peer, first) {
            report.error(&here, format!("\"{peer}\": peers and addresses are of one family"), "");
        }
        if vip.addresses.iter().any(|address| host(address) == Some(*peer)) {
            report.error(&here, format!("\"{peer}\": is a shared address, not a peer's own"), "");
        }
        if vip.peers[..k].contains(peer) {
            report.error(&here, format!("\"{peer}\": is there already"), "");
        }
    }
    if vip.bfd.is_some() && vip.peers.is_empty() {
        report.error(
            &format!("{path}.bfd"),
            "needs to know whom to watch",
            "list the peers' addresses in peers",
        );
    }
}

/// Where adverts come from.
fn source(path: &str, vip: &Vip, config: &Config, report: &mut Report<'_>) {
    let (Some(source), Some(first)) = (vip.source, vip.addresses.first().and_then(|address| host(address)))
    else {
        return;
    };
    let here = format!("{path}.source");
    let mut wrong = |text: &str, help: &str| report.error(&here, format!("\"{source}\": {text}"), help);
    let all = config.vips.iter().flat_map(|vip| &vip.addresses);
    if source.is_unspecified() || source.is_multicast() || source.is_loopback() {
        wrong("no machine speaks from it", "an address of this machine on the interface");
    } else if !same_family(source, first) {
        wrong("source and addresses are of one family", "");
    } else if all.into_iter().any(|address| host(address) == Some(source)) {
        wrong("is a shared address, which another machine may hold", "this machine's own");
    } else if vip.peers.contains(&source) {
        wrong("is a peer's address too", "peers lists the other machines, source is this one");
    } else if vip.peers.is_empty() && matches!(source, IpAddr::V6(v6) if !v6.is_unicast_link_local()) {
        wrong("adverts to all come from a link-local address (RFC 9568)", "a fe80:: address, or list peers");
    }
}

fn tracks(path: &str, vip: &Vip, config: &Config, report: &mut Report<'_>) {
    for (k, track) in vip.track.iter().enumerate() {
        let here = format!("{path}.track[{k}]");
        match &track.check {
            TrackCheck::Listener(name) if !config.listeners.iter().any(|listener| listener.name == *name) => {
                let names: Vec<&str> = config.listeners.iter().map(|listener| &*listener.name).collect();
                let help = if names.is_empty() {
                    "there are no listeners".to_owned()
                } else {
                    format!("there are {}", names.join(", "))
                };
                report.error(&format!("{here}.check.listener"), format!("{name:?}: no such listener"), help);
            }
            TrackCheck::LocalApiserver(url) if !is_url(url) => {
                let text =
                    format!("{url:?}: an https URL with an address is expected; names are not looked up");
                report.error(&format!("{here}.check.localApiserver"), text, "https://127.0.0.1:6443/readyz");
            }
            _ => {}
        }
        if track.weight >= vip.priority {
            let text = format!(
                "{}: is not less than the priority {}: it makes unfit, as 0 does",
                track.weight, vip.priority
            );
            report.warn(&format!("{here}.weight"), text, "leave it out");
        } else if (1..=SMALL_WEIGHT).contains(&track.weight) {
            let left = vip.priority - track.weight;
            let text =
                format!("{}: the address moves only to a peer whose priority is above {left}", track.weight);
            report.warn(
                &format!("{here}.weight"),
                text,
                "a weight has to be larger than the gap between priorities; 0 always moves it",
            );
        }
    }
    serves(path, vip, config, report);
    let tracked = vip.track.iter().any(|track| matches!(track.check, TrackCheck::Listener(_)));
    if !config.listeners.is_empty() && !tracked {
        let text = "no listener is tracked: the address would stay on a machine that reaches no backend";
        let help = format!("track: [{{check: {{listener: {}}}}}]", config.listeners[0].name);
        report.warn(path, text, help);
    }
}

/// A listener that is tracked should also answer at the addresses.
fn serves(path: &str, vip: &Vip, config: &Config, report: &mut Report<'_>) {
    for (k, track) in vip.track.iter().enumerate() {
        let TrackCheck::Listener(name) = &track.check else { continue };
        let Some(listener) = config.listeners.iter().find(|listener| listener.name == *name) else {
            continue;
        };
        let answers = |ip: IpAddr| {
            let covers = |bind: IpAddr| bind == ip || (bind.is_unspecified() && same_family(bind, ip));
            listener.bind.iter().any(|bind| covers(bind.ip()))
        };
        if !vip.addresses.iter().filter_map(|address| host(address)).any(answers) {
            let text =
                format!("{name:?}: the listener is bound to none of the addresses: nobody answers there");
            report.warn(
                &format!("{path}.track[{k}].check.listener"),
                text,
                "bind it to them, or to 0.0.0.0 or [::]",
            );
        }
    }
}

/// `https://127.0.0.1:6443/readyz`, `https://[::1]/readyz`.
fn is_url(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("https://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    let bracketed = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = authority.parse::<SocketAddr>().is_ok_and(|at| at.port() > 0)
        || authority.parse::<Ipv4Addr>().is_ok()
        || bracketed.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
    // A zone is no part of a name that can be asked for, and the rest goes into the line of a request as it is.
    address && !authority.contains('%') && !url.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Whether the addresses are IPv4, by the first of them.
fn family(vip: &Vip) -> Option<bool> {
    vip.addresses.first().and_then(|address| host(address)).map(|address| address.is_ipv4())
}

fn host(address: &str) -> Option<IpAddr> {
    parse_prefix(address).map(|(host, _)| host)
}
