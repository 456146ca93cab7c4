//! `keepalived.conf`, for Keepalived 2.0 and later.
//!
//! Unlike most examples: the check asks through HAProxy and not for a process of that name, and its failure really moves the
//! address: it makes the machine unfit, or takes more from its priority than any peer lacks.

use super::{MONITOR, RenderError, head, is_asked_through, local, one_word};
use crate::config::{Config, Track, TrackCheck, Vip};
use std::fmt::Write as _;

/// The configuration of Keepalived.
pub fn keepalived(config: &Config) -> Result<String, RenderError> {
    if config.vips.is_empty() {
        return Err(RenderError::Nothing("there are no vips: Keepalived would have nothing to do"));
    }
    let mut missing = Vec::new();
    for vip in &config.vips {
        let name = &vip.name;
        if vip.sign.is_some() {
            return Err(RenderError::Impossible(format!(
                "vip {name}: the adverts of Keepalived are not signed as ours are; remove sign"
            )));
        }
        one_word(&format!("vip {name}: interface"), &vip.interface)?;
        for track in &vip.track {
            match &track.check {
                TrackCheck::LocalApiserver(text) => one_word(&format!("vip {name}: localApiserver"), text)?,
                TrackCheck::Interface(text) => one_word(&format!("vip {name}: track interface"), text)?,
                // The path of its check is in the script.
                TrackCheck::Listener(_) => {}
            }
        }
        if vip.bfd.is_some() {
            missing.push(format!("{name}: no BFD; a dead peer is found after three adverts."));
        }
    }
    if config
        .vips
        .iter()
        .flat_map(|vip| &vip.track)
        .any(|track| matches!(track.check, TrackCheck::LocalApiserver(_)))
    {
        missing.push(
            "An API server that answers with 401 or 403 counts as not ready: it has to answer /readyz without credentials."
                .to_owned(),
        );
    }
    for listener in &config.listeners {
        let path = listener.health.path.as_ref();
        path.map_or(Ok(()), |path| one_word(&format!("listener {}: path", listener.name), path))?;
    }
    missing.push(
        "Clients of a dead holder are not told: their idle connections hang until they try to write."
            .to_owned(),
    );
    let mut out = head("keepalived", &missing);
    out.push_str(&global(config));
    out.push_str(&scripts(config));
    let instances: Vec<String> = config.vips.iter().map(|vip| instance(vip, config)).collect();
    out.push_str(&instances.join("\n"));
    Ok(out)
}

/// Scripts run as root: `keepalived -t` of Debian 12 ends itself by a signal when they run as somebody else. Script security keeps
/// root from running what others could have changed.
fn global(config: &Config) -> String {
    let times = config.vips.iter().map(|vip| vip.announcements).max().unwrap_or(5);
    format!(
        "global_defs {{\n    enable_script_security\n    script_user root\n    vrrp_garp_master_repeat {times}\n    \
         vrrp_garp_master_refresh 60\n}}\n\n"
    )
}

/// The scripts that are tracked, each once.
fn scripts(config: &Config) -> String {
    let mut seen: Vec<String> = Vec::new();
    let mut out = String::new();
    for track in config.vips.iter().flat_map(|vip| &vip.track) {
        let (Some(name), Some(command)) = (script_name(track, config), command(&track.check, config)) else {
            continue;
        };
        if seen.contains(&name) {
            continue;
        }
        let _ = write!(
            out,
            "vrrp_script {name} {{\n    script \"{command}\"\n    interval 1\n    timeout 2\n    fall 2\n    rise 2\n}}\n\n"
        );
        seen.push(name);
    }
    out
}

fn script_name(track: &Track, config: &Config) -> Option<String> {
    match &track.check {
        TrackCheck::Listener(name) => Some(format!("listener_{}", name.replace('-', "_"))),
        TrackCheck::LocalApiserver(_) => {
            // By its place among those that are there, so that two URLs get two names.
            let urls: Vec<&TrackCheck> = config
                .vips
                .iter()
                .flat_map(|vip| &vip.track)
                .map(|track| &track.check)
                .filter(|check| matches!(check, TrackCheck::LocalApiserver(_)))
                .collect();
            let place = urls.iter().position(|check| **check == track.check)?;
            Some(format!("apiserver_{place}"))
        }
        TrackCheck::Interface(_) => None,
    }
}

/// What a script runs.
fn command(check: &TrackCheck, config: &Config) -> Option<String> {
    const CURL: &str = "/usr/bin/curl --silent --fail --max-time 2 --output /dev/null";
    match check {
        TrackCheck::LocalApiserver(url) => Some(format!("{CURL} --insecure {url}")),
        TrackCheck::Interface(_) => None,
        TrackCheck::Listener(name) => {
            let index = config.listeners.iter().position(|listener| listener.name == *name)?;
            let listener = &config.listeners[index];
            match local(listener, config).filter(|_| is_asked_through(listener)) {
                Some(at) => {
                    let path = listener.health.path.as_deref().unwrap_or("/readyz");
                    Some(format!("{CURL} --insecure https://{at}{path}"))
                }
                None => {
                    let port = MONITOR.port().saturating_add(u16::try_from(index).unwrap_or(u16::MAX));
                    Some(format!("{CURL} http://{}:{port}/healthz", MONITOR.ip()))
                }
            }
        }
    }
}

fn instance(vip: &Vip, config: &Config) -> String {
    let mut out =
        format!("vrrp_instance {} {{\n    state BACKUP\n    interface {}\n", vip.name, vip.interface);
    let seconds = f64::from(vip.advert_ms) / 1000.0;
    let _ = write!(
        out,
        "    version {}\n    virtual_router_id {}\n    priority {}\n    advert_int {seconds}\n",
        vip.version, vip.router_id, vip.priority
    );
    match (vip.preempt, vip.preempt_delay) {
        (false, _) => out.push_str("    nopreempt\n"),
        (true, 0) => {}
        (true, delay) => {
            let _ = writeln!(out, "    preempt_delay {delay}");
        }
    }
    if let Some(source) = vip.source {
        let word = if vip.peers.is_empty() { "mcast_src_ip" } else { "unicast_src_ip" };
        let _ = writeln!(out, "    {word} {source}");
    }
    block(&mut out, "unicast_peer", vip.peers.iter().map(ToString::to_string));
    block(&mut out, "virtual_ipaddress", vip.addresses.iter().cloned());
    let scripts =
        vip.track.iter().filter_map(|track| Some(weighed(script_name(track, config)?, track.weight)));
    block(&mut out, "track_script", scripts);
    let interfaces = vip.track.iter().filter_map(|track| match &track.check {
        TrackCheck::Interface(name) => Some(weighed(name.clone(), track.weight)),
        _ => None,
    });
    block(&mut out, "track_interface", interfaces);
    out.push_str("}\n");
    out
}

/// Without a weight a failure is a fault, which gives the address up whatever the priorities.
fn weighed(name: String, weight: u8) -> String {
    if weight == 0 { name } else { format!("{name} weight -{weight}") }
}

fn block(out: &mut String, name: &str, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.map(|line| format!("        {line}\n")).collect();
    if !lines.is_empty() {
        let _ = write!(out, "    {name} {{\n{}    }}\n", lines.concat());
    }
}
