//! `GET .../agent/network-get-interfaces`: what the guest agent says of a machine's addresses.

use super::auth::Caller;
use super::config::mac_of;
use super::request::{Call, Outcome, Refusal};
use super::schema;
use super::state::State;
use serde_json::json;
use std::net::IpAddr;

/// From the moment the system is up until its agent answers, at speed 1.
pub(super) const AGENT_SECONDS: f64 = crate::delays::AGENT;

impl State {
    pub(super) fn agent(
        &self,
        caller: &Caller,
        call: &Call,
        node: &str,
        vmid: u32,
        verb: &str,
        now: u64,
    ) -> Outcome {
        schema::check(call, &[], false)?;
        self.need(caller, &format!("/vms/{vmid}"), &["VM.Monitor"])?;
        let vm = self.vm(node, vmid)?;
        if !vm.running {
            return Err(Refusal::died(format!("VM {vmid} is not running")));
        }
        if !vm.agent_enabled() {
            return Err(Refusal::died("No QEMU guest agent configured"));
        }
        let inside = self.boot_system(vmid).is_some_and(|(system, _)| system.agent);
        if !inside || vm.agent_from.is_none_or(|from| now < from) {
            return Err(Refusal::died("QEMU guest agent is not running"));
        }
        match verb {
            "network-get-interfaces" => {}
            "ping" => return Ok(json!({ "result": {} })),
            _ => return Err(Refusal::not_implemented(&call.method, &call.path_text())),
        }
        let mac = vm.config.get("net0").and_then(|net| mac_of(net)).unwrap_or_default().to_ascii_lowercase();
        let mut addresses = vec![json!({
            "ip-address-type": "ipv6", "ip-address": link_local(&mac), "prefix": 64,
        })];
        if let Some(address) = vm.machine {
            let family = if matches!(address, IpAddr::V4(_)) { "ipv4" } else { "ipv6" };
            let entry =
                json!({ "ip-address-type": family, "ip-address": address, "prefix": self.network.prefix });
            addresses.insert(0, entry);
        }
        Ok(json!({ "result": [
            {
                "name": "lo",
                "hardware-address": "00:00:00:00:00:00",
                "ip-addresses": [
                    { "ip-address-type": "ipv4", "ip-address": "127.0.0.1", "prefix": 8 },
                    { "ip-address-type": "ipv6", "ip-address": "::1", "prefix": 128 },
                ],
            },
            { "name": "eth0", "hardware-address": mac, "ip-addresses": addresses },
        ] }))
    }
}

/// The IPv6 address that follows from a hardware address.
fn link_local(mac: &str) -> String {
    let mut bytes = mac.split(':').filter_map(|part| u8::from_str_radix(part, 16).ok());
    let mut next = || u16::from(bytes.next().unwrap_or_default());
    let (a, b, c, d, e, f) = (next() ^ 2, next(), next(), next(), next(), next());
    let address = std::net::Ipv6Addr::new(0xfe80, 0, 0, 0, a << 8 | b, c << 8 | 0xff, 0xfe00 | d, e << 8 | f);
    address.to_string()
}
