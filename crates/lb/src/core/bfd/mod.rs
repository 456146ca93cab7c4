//! Whether a peer is there, within milliseconds: Bidirectional Forwarding Detection (RFC 5880, RFC 5881), asynchronous
//! mode without echo and authentication, as bytes (`packet`) and as a state machine (`session`).

mod packet;
mod session;
#[cfg(test)]
mod session_tests;

pub use packet::{Control, Diagnostic, Malformed, PORT, State, TTL};
pub use session::{Output, Session, Settings};
