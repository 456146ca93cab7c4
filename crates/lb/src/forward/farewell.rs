//! Clients whose backend was cut off in the middle of something. What it has said is theirs, and then they are to learn that it
//! was not all. A cut takes along what is still on its way, and an end would make half an answer look whole: so their sockets
//! stay until everything has arrived, and are cut then.

use std::os::fd::OwnedFd;

use rustix::net::sockopt;

use super::sockets;
use crate::{
    core::{MILLISECOND, SECOND, Time},
    sys,
};

/// How long a client may take to receive what is left. One that reads nothing for so long has given up on it.
pub(super) const PATIENCE: Time = 10 * SECOND;
/// The kernel does not tell when everything has arrived, so it is asked: soon, then at an eighth of the time it took so far.
const SOONEST: Time = MILLISECOND;
const LATEST: Time = 100 * MILLISECOND;
/// Those that are asked for in one round: two calls each, while the connections of others wait.
const ROUND: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Farewells {
    leaving: Vec<Leaving>,
    /// When the first of them is looked at again.
    next: Option<Time>,
}

#[derive(Debug)]
struct Leaving {
    socket: OwnedFd,
    since: Time,
    /// When it is looked at again.
    due: Time,
}

// === impl Farewells ===

impl Farewells {
    pub(super) fn len(&self) -> usize {
        self.leaving.len()
    }

    pub(super) fn next(&self) -> Option<Time> {
        self.next
    }

    /// Cuts a connection as soon as everything that was written to it has arrived.
    pub(super) fn add(&mut self, socket: OwnedFd, now: Time) {
        if has_all(&socket) {
            return cut(socket);
        }
        let soon = now + SOONEST;
        self.leaving.push(Leaving { socket, since: now, due: soon });
        self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
    }

    /// Looks at those that are due, and cuts those that have everything or have had their time. Returns how many it has looked
    /// at; what is left of them is due at once.
    pub(super) fn look(&mut self, now: Time) -> usize {
        if self.next.is_none_or(|next| now < next) {
            return 0;
        }
        let mut looks = 0;
        let is_over = |leaving: &mut Leaving| {
            if now < leaving.due || looks == ROUND {
                return false;
            }
            looks += 1;
            let age = now.saturating_sub(leaving.since);
            leaving.due = now + (age / 8).clamp(SOONEST, LATEST);
            age >= PATIENCE || has_all(&leaving.socket)
        };
        self.leaving.extract_if(.., is_over).for_each(|leaving| cut(leaving.socket));
        self.next = self.leaving.iter().map(|leaving| leaving.due).min();
        looks
    }

    /// Cuts all of them.
    pub(super) fn end(&mut self) {
        self.leaving.drain(..).for_each(|leaving| cut(leaving.socket));
        self.next = None;
    }
}

fn cut(socket: OwnedFd) {
    sockets::cut_on_close(&socket);
}

/// Nothing is on its way any more, or nothing will ever arrive.
fn has_all(socket: &OwnedFd) -> bool {
    sys::unacknowledged(socket).is_ok_and(|bytes| bytes == 0)
        || !matches!(sockopt::socket_error(socket), Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    /// A connection over which more was sent than the other side's kernel takes.
    fn stuffed() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &near, &[0; 65_536]).is_ok() {}
        (near.into(), listener.accept().unwrap().0)
    }

    #[test]
    fn who_does_not_take_what_is_left_is_not_waited_for_without_end() {
        let (near, _far) = stuffed();
        let mut farewells = Farewells::default();
        farewells.add(near, 0);
        assert_eq!((farewells.len(), farewells.next()), (1, Some(SOONEST)));
        farewells.look(PATIENCE - 1);
        assert_eq!((farewells.len(), farewells.next()), (1, Some(PATIENCE - 1 + LATEST)));
        farewells.look(PATIENCE - 1 + LATEST);
        assert_eq!((farewells.len(), farewells.next()), (0, None));
    }

    #[test]
    fn those_who_take_long_are_not_looked_at_because_another_comes() {
        let ends: Vec<_> = (0..3).map(|_| stuffed()).collect();
        let (mut farewells, mut far) = (Farewells::default(), Vec::new());
        for (at, (near, other)) in [0, 0, SECOND].into_iter().zip(ends) {
            // The first two are old and known to be slow when the third comes.
            if at > 0 {
                assert_eq!(farewells.look(at), 2);
            }
            farewells.add(near, at);
            far.push(other);
        }
        assert_eq!(farewells.look(SECOND + SOONEST), 1);
        assert_eq!(farewells.look(SECOND + LATEST), 3);
        assert_eq!(farewells.len(), 3);
    }

    #[test]
    fn who_has_gone_is_not_waited_for() {
        let (near, far) = stuffed();
        let mut farewells = Farewells::default();
        farewells.add(near, 0);
        // What it has not read makes its end a cut.
        drop(far);
        farewells.look(SOONEST);
        assert_eq!((farewells.len(), farewells.next()), (0, None));
    }
}
