//! Sockets with the options that they need. What a listener has set is inherited by what it accepts, so that an accepted
//! connection costs no further call.

use std::{
    net::{IpAddr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::{
    io::Errno,
    net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt},
};

use crate::sys;

/// Connections that the kernel keeps for us to accept; it takes less where `net.core.somaxconn` is lower.
const BACKLOG: i32 = 65_535;

/// When the kernel finds out that the other side is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Liveness {
    /// Silence after which it asks. Zero: it does not.
    pub(super) keepalive: Duration,
}

/// A listening socket of one thread. Every thread has its own for the same address, and the kernel spreads clients over them,
/// or over the first few, see [`steer`].
pub(super) fn listen(address: SocketAddr, liveness: Liveness) -> Result<OwnedFd, Errno> {
    let socket = stream(address)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` are two listeners, each with its own addresses.
        sockopt::set_ipv6_v6only(&socket, true)?;
        sockopt::set_ipv6_freebind(&socket, true)?;
    } else {
        sockopt::set_ip_freebind(&socket, true)?;
    }
    sockopt::set_tcp_nodelay(&socket, true)?;
    keep_alive(&socket, liveness)?;
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Has the kernel spread new clients of an address over the first so many of its sockets. One of them can be told for all.
pub(super) fn steer(socket: &OwnedFd, sockets: usize) -> Result<(), Errno> {
    let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM).cast_unsigned();
    let any_of = u32::try_from(sockets.max(1)).unwrap_or(u32::MAX);
    sys::attach_steering(
        socket,
        &[
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, random),
            step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, any_of),
            step(libc::BPF_RET | libc::BPF_A, 0),
        ],
    )
}

/// A socket that is on its way to a backend. `Ok` does not say that it has arrived. The last packet of the handshake waits
/// for the first bytes, which usually follow at once; `acknowledge` sends it when they do not.
pub(super) fn connect(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let socket = stream(address)?;
    sockopt::set_tcp_quickack(&socket, false)?;
    match net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// From now on small pieces leave at once. The first one of a connection does anyway, and most have no second.
pub(super) fn be_prompt(socket: impl AsFd) {
    // A socket that has no such option any more is gone already.
    let _ = sockopt::set_tcp_nodelay(socket, true);
}

/// Tells a backend to which nothing was said yet that we are there: it may be the one that speaks first.
pub(super) fn acknowledge(socket: &OwnedFd) {
    // Otherwise the kernel does it a moment later.
    let _ = sockopt::set_tcp_quickack(socket, true);
}

/// Whether a connecting socket has arrived. Writing nothing says so without a look at its state: it would block before.
pub(super) fn arrived(socket: impl AsFd) -> Result<bool, Errno> {
    match net::send(socket, &[], net::SendFlags::NOSIGNAL) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Has the next close tell the other side that the connection was cut, instead of that it ended well.
pub(super) fn cut_on_close(socket: &OwnedFd) {
    // A socket that has no such option any more is gone already.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// Our own address of a connection.
pub(super) fn local(socket: &OwnedFd) -> Option<SocketAddr> {
    net::getsockname(socket).ok().and_then(|address| SocketAddr::try_from(address).ok())
}

/// An IPv4 client of an IPv6 socket is an IPv4 client.
pub(super) fn plain(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

fn stream(address: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
}

/// Has the kernel find out when the other side is gone.
pub(super) fn keep_alive(socket: &OwnedFd, liveness: Liveness) -> Result<(), Errno> {
    if liveness.keepalive.is_zero() {
        return sockopt::set_socket_keepalive(socket, false);
    }
    let interval = (liveness.keepalive / 3).max(Duration::from_secs(1));
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, liveness.keepalive)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    // Bytes that nobody acknowledges end a connection as soon as silence does. This also counts the questions, so that
    // their number need not be set.
    let whole = liveness.keepalive + 3 * interval;
    sockopt::set_tcp_user_timeout(socket, u32::try_from(whole.as_millis()).unwrap_or(u32::MAX))
}
