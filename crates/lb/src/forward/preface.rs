//! PROXY headers: read from a client before a backend is chosen, and written to a backend before the client's first byte.

use std::net::SocketAddr;

use rustix::{
    io::Errno,
    net::{self, RecvFlags},
};

use super::{
    access::Ending,
    link::{CLIENT, Link, Named, Phase},
    slab::Key,
    sockets,
    worker::Worker,
};
use crate::{
    config::ProxyProtocol,
    core::proxy::{self, Header, Parsed},
};

/// What a look at the first bytes has shown.
enum Look {
    Incomplete,
    Whole(Header),
    Wrong,
}

impl Worker {
    pub(super) fn await_header(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        link.enter(Phase::Header, self.now);
        // If the header is there already, the next wait says so.
        if self.mover.watch(&mut link.ends[CLIENT], key, CLIENT, false).is_err() {
            self.close(key, Ending::BadHeader);
        }
    }

    pub(super) fn on_header(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        match look(link) {
            Look::Incomplete => {}
            Look::Wrong => self.close(key, Ending::BadHeader),
            Look::Whole(header) => {
                if let Header::Proxied { source, destination } = header {
                    link.named = Some(Box::new(Named { client: source, local: destination }));
                }
                let client = sockets::plain(link.client().ip());
                let Some(Some(local)) = self.listeners.get(link.listener as usize) else { return };
                // Whoever sent the header was allowed to; so must be the one that it speaks for.
                if !local.settings.allows(client) {
                    return self.close(key, Ending::NotAllowed);
                }
                self.dial(key);
            }
        }
    }

    /// Tells a backend who the client is, if it wants to know.
    pub(super) fn announce(&mut self, key: Key) {
        let Some(link) = self.links.get_mut(key) else { return };
        let Some(Some(local)) = self.listeners.get(link.listener as usize) else { return };
        let encode: fn(&Header) -> Vec<u8> = match local.settings.send_proxy {
            ProxyProtocol::None => return,
            ProxyProtocol::V1 => proxy::encode_v1,
            ProxyProtocol::V2 => proxy::encode_v2,
        };
        let bytes = encode(&header_of(link));
        link.preface = bytes.len() as u64;
        self.mover.put_first(&mut link.held[CLIENT], &bytes);
    }
}

/// Looks at the first bytes without taking them, and takes them when they are a whole header, so that nothing has to be
/// kept in between.
fn look(link: &Link) -> Look {
    let mut bytes = [0; proxy::LONGEST];
    let Some(socket) = link.ends[CLIENT].fd() else { return Look::Wrong };
    let count = match net::recv(socket, &mut bytes, RecvFlags::PEEK) {
        Ok((_, 0)) => return Look::Wrong,
        Ok((_, count)) => count,
        Err(Errno::AGAIN | Errno::INTR) => return Look::Incomplete,
        Err(_) => return Look::Wrong,
    };
    match proxy::parse(&bytes[..count]) {
        Ok(Parsed::Incomplete) => Look::Incomplete,
        Ok(Parsed::Complete(header, length)) => {
            match net::recv(socket, &mut bytes[..length], RecvFlags::empty()) {
                Ok((_, taken)) if taken == length => Look::Whole(header),
                _ => Look::Wrong,
            }
        }
        Err(_) => Look::Wrong,
    }
}

fn header_of(link: &Link) -> Header {
    if let Some(named) = &link.named {
        return Header::Proxied { source: named.client, destination: named.local };
    }
    let local: Option<SocketAddr> = link.ends[CLIENT].fd().and_then(sockets::local);
    local.map_or(Header::Local, |destination| Header::Proxied { source: link.peer, destination })
}
