//! Looks whether somebody has the virtual address that our control planes are going to claim, by knocking at a few ports.

use super::observe::Observed;
use crate::object::Key;
use crate::runtime::Shared;
use crate::{Class, Failure};
use butler_drivers::{Call, Outcome};
use butler_talos::client::{NodeAddress, knock as answers};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Ports that hosts commonly answer at: Kubernetes, Talos, SSH, the web, Windows, Proxmox.
const PORTS: [u16; 7] = [6443, 50000, 22, 80, 443, 445, 8006];
/// Nobody serves this one. Where it answers, something in between takes every connection, and nothing can be told.
const DECOY: u16 = 1;
/// A host of the same site answers well within this.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Knocks. An address that is free is remembered; one that is not is a conflict, looked at again from time to time.
pub(crate) async fn knock(shared: &Arc<Shared>, observed: &Observed) -> Result<(), Failure> {
    let Some(address) = observed.address_to_claim() else { return Ok(()) };
    let began = (shared.context.clock)();
    let knocks = PORTS.into_iter().chain([DECOY]).map(|port| async move {
        let target = NodeAddress::from(SocketAddr::new(address, port));
        answers(&target, PATIENCE, &shared.context.talos).await.then_some(port)
    });
    let open: Vec<u16> = futures::future::join_all(knocks).await.into_iter().flatten().collect();
    let judged = judge(address, &open);
    shared.context.recorder.record(Call {
        system: "network",
        operation: "knock".to_owned(),
        object: format!("virtual address {address}"),
        mutates: false,
        began,
        took: crate::runtime::until(began, (shared.context.clock)()),
        outcome: match &judged {
            Ok(()) => Outcome::Ok("nobody".to_owned()),
            Err(failure) => Outcome::Failed { class: failure.class, message: failure.message.clone() },
        },
    });
    judged?;
    let key = Key::of(&observed.object);
    shared.bootstraps.change(&key, |memory| memory.free_address = Some(address.to_string()));
    Ok(())
}

/// What open ports say about an address that nobody should have. Pure.
fn judge(address: IpAddr, open: &[u16]) -> Result<(), Failure> {
    let Some(port) = open.first().filter(|_| !open.contains(&DECOY)) else { return Ok(()) };
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
        assert_eq!(judge(address, &[]), Ok(()));
        assert_eq!(judge(address, &[22, 443, DECOY]), Ok(()), "something in between answers for everybody");
        let failure = judge(address, &[22, 443]).unwrap_err();
        assert_eq!((failure.class, failure.reason.as_str()), (Class::Conflict, "VipInUse"));
        assert!(failure.message.contains("10.40.0.200 (port 22)"), "{}", failure.message);
        assert!(failure.remedy.contains("network.vip"));
    }
}
