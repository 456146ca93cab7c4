//! Who holds an address: the Virtual Router Redundancy Protocol, version 3 (RFC 9568) and 2 (RFC 3768), as bytes
//! (`packet`) and as a state machine (`router`, which speaks in `words`).

mod packet;
mod router;
#[cfg(test)]
mod router_tests;
mod words;

pub use packet::{Advert, MULTICAST_V4, MULTICAST_V6, Malformed, PROTOCOL, TTL, Version, ipv4_payload};
pub use router::Router;
pub use words::{Ignored, Output, Role, Settings};
