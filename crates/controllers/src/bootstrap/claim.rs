//! Looks whether somebody has the virtual address that our control planes are going to claim, by knocking at a few ports.

use super::observe::Observed;
use crate::object::Key;
use crate::runtime::Shared;
use crate::{Class, Failure};
use butler_drivers::{Call, Outcome};
use butler_talos::client::{Knocked, NodeAddress, knock as ask};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Ports that hosts commonly answer at: Kubernetes, Talos, SSH, the web, Windows, Proxmox.
const PORTS: [u16; 7] = [6443, 50000, 22, 80, 443, 445, 8006];
/// Nobody serves this one. Where it answers, something in between takes every connection, and nothing can be told.
const DECOY: u16 = 1;
/// A host of the same site answers well within this.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Knocks. An address that is free, or that nobody lets us look at, is remembered; one that is taken is a conflict, looked at
/// again from time to time.
pub(crate) async fn knock(shared: &Arc<Shared>, observed: &Observed) -> Result<(), Failure> {
    let Some(address) = observed.address_to_claim() else { return Ok(()) };
    let began = (shared.context.clock)();
    let knocks = PORTS.into_iter().chain([DECOY]).map(|port| async move {
        let target = NodeAddress::from(SocketAddr::new(address, port));
        (port, ask(&target, PATIENCE, &shared.context.talos).await)
    });
    let judged = judge(address, &futures::future::join_all(knocks).await);
    shared.context.recorder.record(Call {
        system: "network",
        operation: "knock".to_owned(),
        object: format!("virtual address {address}"),
        mutates: false,
        began,
        took: crate::runtime::until(began, (shared.context.clock)()),
        outcome: match &judged {
            Ok(told) => Outcome::Ok(told.clone()),
            Err(failure) => Outcome::Failed { class: failure.class, message: failure.message.clone() },
        },
    });
    judged?;
    let key = Key::of(&observed.object);
    shared.bootstraps.change(&key, |memory| memory.free_address = Some(address.to_string()));
    Ok(())
}

/// What the ports say about an address that nobody should have: whether it is free, as far as that can be told. Pure.
fn judge(address: IpAddr, heard: &[(u16, Knocked)]) -> Result<String, Failure> {
    let mut open = heard.iter().filter(|(_, knocked)| *knocked == Knocked::Open).map(|(port, _)| *port);
    let unseen = heard.iter().find_map(|(_, knocked)| match knocked {
        Knocked::Unseen(code) => Some(code),
        Knocked::Open | Knocked::Closed => None,
    });
    if heard.contains(&(DECOY, Knocked::Open)) {
        return Ok("not to be told: something on the way answers for every port".to_owned());
    }
    let Some(port) = open.next() else {
        return Ok(match unseen {
            Some(code) => format!("not to be told: the proxy did not look (status {code})"),
            None => "nobody".to_owned(),
        });
    };
    Err(Failure::new(
        Class::Conflict,
        "VipInUse",
        format!(
            "somebody answers at the virtual address {address} (port {port}) before the cluster has taken it"
        ),
        "give network.vip an address that nobody has, or free this one; nothing was applied",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_port_is_a_conflict_unless_everything_seems_open() {
        let address = IpAddr::from([10, 40, 0, 200]);
        let open = |ports: &[u16]| ports.iter().map(|port| (*port, Knocked::Open)).collect::<Vec<_>>();
        assert_eq!(judge(address, &[(22, Knocked::Closed)]).unwrap(), "nobody");
        let everything = judge(address, &open(&[22, 443, DECOY])).unwrap();
        assert!(everything.contains("answers for every port"), "{everything}");
        let failure = judge(address, &open(&[22, 443])).unwrap_err();
        assert_eq!((failure.class, failure.reason.as_str()), (Class::Conflict, "VipInUse"));
        assert!(failure.message.contains("10.40.0.200 (port 22)"), "{}", failure.message);
        assert!(failure.remedy.contains("network.vip"));
    }

    #[test]
    fn a_proxy_that_did_not_look_says_nothing_about_the_address() {
        let address = IpAddr::from([10, 40, 0, 200]);
        let told = judge(address, &[(6443, Knocked::Unseen(403)), (443, Knocked::Closed)]).unwrap();
        assert!(told.contains("status 403"), "{told}");
        assert!(judge(address, &[(6443, Knocked::Unseen(403)), (443, Knocked::Open)]).is_err());
    }
}
