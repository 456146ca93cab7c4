//! Tells systemd how far we are (`sd_notify`), when it asked to be told.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state, such as `READY=1`. Without systemd nothing happens; when it does not listen there is nobody to tell.
pub(super) fn notify(state: &str) {
    let Ok(name) = std::env::var("NOTIFY_SOCKET") else { return };
    let address = match name.strip_prefix('@') {
        Some(rest) => SocketAddr::from_abstract_name(rest),
        None => SocketAddr::from_pathname(&name),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
