//! The network of the simulated data centre: addresses that exist only in this process.
//!
//! A user's own addresses (10.40.0.200, ...) live here, whatever the network of this computer is. Ports are listened on and
//! dialled like real ones; a stream is a pipe in memory. An address can move from one host to another (a virtual IP), and
//! names can be given to addresses. [`proxy`](crate::proxy) lets programs outside reach it by HTTP CONNECT.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

/// Bytes that a stream holds between its two ends.
const WINDOW: usize = 64 * 1024;

/// A network in this process. Clones are the same network.
#[derive(Debug, Clone, Default)]
pub struct Fabric {
    inner: Arc<Mutex<Inner>>,
    /// Counts the times that somebody else got behind a balanced port.
    moves: Arc<watch::Sender<u64>>,
}

/// Whether a connection from outside gets to an address and port at all.
pub(crate) type Border = Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>;

/// All of them have to let a connection through.
#[derive(Clone, Default)]
struct Borders(Vec<Border>);

impl std::fmt::Debug for Borders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Borders({})", self.0.len())
    }
}

#[derive(Debug, Default)]
struct Inner {
    listeners: HashMap<SocketAddr, (u64, mpsc::UnboundedSender<Stream>)>,
    /// Addresses that answer at all, with the number of hosts' claims to them.
    hosts: BTreeMap<IpAddr, u32>,
    /// Virtual addresses and who holds them.
    holders: BTreeMap<IpAddr, IpAddr>,
    names: BTreeMap<String, IpAddr>,
    borders: Borders,
    /// Ports whose connections are handed on, and to whom.
    behind: BTreeMap<SocketAddr, BTreeSet<SocketAddr>>,
    next: u64,
}

/// What a network remembers when all of its hosts are off: plain data.
#[derive(Debug, Clone, Default)]
pub(crate) struct FabricState {
    names: BTreeMap<String, IpAddr>,
    holders: BTreeMap<IpAddr, IpAddr>,
}

/// Where a machine's ports are: on this computer, or in a network of their own.
#[derive(Debug, Clone, Default)]
pub enum Network {
    /// This computer's; all of 127.0.0.0/8 is there without being set up.
    #[default]
    Host,
    /// A simulated one.
    Fabric(Fabric),
}

/// A port that is listened on.
#[derive(Debug)]
pub enum Listener {
    /// On this computer.
    Host(TcpListener),
    /// In a simulated network.
    Fabric(FabricListener),
}

/// A port of a simulated network; closed when dropped.
#[derive(Debug)]
pub struct FabricListener {
    fabric: Fabric,
    address: SocketAddr,
    number: u64,
    incoming: mpsc::UnboundedReceiver<Stream>,
}

/// One end of a connection.
#[derive(Debug)]
pub enum Stream {
    /// Over this computer's network.
    Host(TcpStream),
    /// Within a simulated network.
    Fabric(DuplexStream),
}

impl Fabric {
    /// A host takes an address: ports without a listener are refused from now on, rather than unreachable.
    pub fn host_up(&self, address: IpAddr) {
        *self.inner.lock().hosts.entry(address).or_default() += 1;
    }

    /// A host leaves its address.
    pub fn host_down(&self, address: IpAddr) {
        let mut inner = self.inner.lock();
        if let Some(count) = inner.hosts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                inner.hosts.remove(&address);
            }
        }
    }

    /// Whether any host answers at an address, itself or as holder of a virtual one.
    pub fn is_up(&self, address: IpAddr) -> bool {
        let inner = self.inner.lock();
        let real = inner.holders.get(&address).copied().unwrap_or(address);
        inner.hosts.contains_key(&real)
    }

    /// `holder` answers for a virtual address from now on; `None`: nobody does.
    pub fn hold(&self, address: IpAddr, holder: Option<IpAddr>) {
        let mut inner = self.inner.lock();
        match holder {
            Some(holder) => inner.holders.insert(address, holder),
            None => inner.holders.remove(&address),
        };
    }

    /// Who answers for a virtual address.
    pub fn holder(&self, address: IpAddr) -> Option<IpAddr> {
        self.inner.lock().holders.get(&address).copied()
    }

    /// Virtual and outer addresses that somebody answers for.
    pub(crate) fn leading_to(&self, holder: IpAddr) -> Vec<IpAddr> {
        let inner = self.inner.lock();
        inner.holders.iter().filter(|(_, held_by)| **held_by == holder).map(|(address, _)| *address).collect()
    }

    /// Gives a name to an address.
    pub fn name(&self, name: &str, address: IpAddr) {
        self.inner.lock().names.insert(name.to_ascii_lowercase(), address);
    }

    /// Takes a name away.
    pub fn unname(&self, name: &str) {
        self.inner.lock().names.remove(&name.to_ascii_lowercase());
    }

    /// Connections to `port` are handed on to these; `None`: it is no port of a load balancer any more.
    pub(crate) fn set_behind(&self, port: SocketAddr, targets: Option<BTreeSet<SocketAddr>>) {
        let mut inner = self.inner.lock();
        let changed = inner.behind.get(&port) != targets.as_ref();
        match targets {
            Some(targets) => inner.behind.insert(port, targets),
            None => inner.behind.remove(&port),
        };
        drop(inner);
        if changed {
            self.moves.send_modify(|count| *count += 1);
        }
    }

    /// Whether connections to `port` may be handed on to `target`.
    pub(crate) fn is_behind(&self, port: SocketAddr, target: SocketAddr) -> bool {
        self.inner.lock().behind.get(&port).is_some_and(|targets| targets.contains(&target))
    }

    /// Changes whenever somebody else gets behind a balanced port.
    pub(crate) fn moves(&self) -> watch::Receiver<u64> {
        self.moves.subscribe()
    }

    /// All names, and all virtual addresses with their holders.
    pub(crate) fn export(&self) -> FabricState {
        let inner = self.inner.lock();
        FabricState { names: inner.names.clone(), holders: inner.holders.clone() }
    }

    /// A network with the names and virtual addresses of another one. Hosts have to come up by themselves.
    pub(crate) fn import(state: &FabricState) -> Self {
        let fabric = Self::default();
        let mut inner = fabric.inner.lock();
        inner.names = state.names.clone();
        inner.holders = state.holders.clone();
        drop(inner);
        fabric
    }

    /// The address of a name, or of an address in writing.
    pub fn resolve(&self, host: &str) -> Option<IpAddr> {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        bare.parse().ok().or_else(|| self.inner.lock().names.get(&bare.to_ascii_lowercase()).copied())
    }

    /// Opens a port.
    ///
    /// # Errors
    /// `AddrInUse` when it is open already.
    pub fn listen(&self, address: SocketAddr) -> io::Result<FabricListener> {
        let mut inner = self.inner.lock();
        if inner.listeners.contains_key(&address) {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("{address} is listened on already"),
            ));
        }
        inner.next += 1;
        let number = inner.next;
        let (sender, incoming) = mpsc::unbounded_channel();
        inner.listeners.insert(address, (number, sender));
        Ok(FabricListener { fabric: self.clone(), address, number, incoming })
    }

    /// Closes a port at once, whoever listens; the listener finds out by itself.
    pub(crate) fn close(&self, address: SocketAddr) {
        self.inner.lock().listeners.remove(&address);
    }

    /// Connections from outside have to pass this from now on, beside what they had to pass before.
    pub(crate) fn guard(&self, border: Border) {
        self.inner.lock().borders.0.push(border);
    }

    /// Connects from outside of the network.
    ///
    /// # Errors
    /// As [`Fabric::dial`]; `TimedOut` when a firewall drops the connection.
    pub fn dial_from_outside(&self, address: SocketAddr) -> io::Result<Stream> {
        // Whoever guards the border has locks of its own.
        let borders = self.inner.lock().borders.clone();
        if borders.0.iter().all(|border| border(address)) {
            self.dial(address)
        } else {
            Err(io::Error::from(io::ErrorKind::TimedOut))
        }
    }

    /// Connects.
    ///
    /// # Errors
    /// `HostUnreachable` when nobody has the address, `ConnectionRefused` when the port is closed.
    pub fn dial(&self, address: SocketAddr) -> io::Result<Stream> {
        let inner = self.inner.lock();
        let real = inner.holders.get(&address.ip()).copied().unwrap_or(address.ip());
        let refused = if inner.hosts.contains_key(&real) {
            io::ErrorKind::ConnectionRefused
        } else {
            io::ErrorKind::HostUnreachable
        };
        let listener = inner.listeners.get(&SocketAddr::new(real, address.port())).map(|(_, l)| l.clone());
        drop(inner);
        let (near, far) = tokio::io::duplex(WINDOW);
        match listener {
            Some(listener) if listener.send(Stream::Fabric(far)).is_ok() => Ok(Stream::Fabric(near)),
            _ => Err(io::Error::from(refused)),
        }
    }
}

impl Network {
    /// Opens a port.
    ///
    /// # Errors
    /// As binding does.
    pub async fn listen(&self, address: SocketAddr) -> io::Result<Listener> {
        Ok(match self {
            Network::Host => Listener::Host(TcpListener::bind(address).await?),
            Network::Fabric(fabric) => Listener::Fabric(fabric.listen(address)?),
        })
    }

    /// Connects.
    ///
    /// # Errors
    /// As connecting does.
    pub async fn dial(&self, address: SocketAddr) -> io::Result<Stream> {
        match self {
            Network::Host => Ok(Stream::Host(TcpStream::connect(address).await?)),
            Network::Fabric(fabric) => fabric.dial(address),
        }
    }
}

impl Listener {
    /// The next connection.
    ///
    /// # Errors
    /// As accepting does.
    pub async fn accept(&mut self) -> io::Result<Stream> {
        match self {
            Listener::Host(listener) => {
                let (stream, _) = listener.accept().await?;
                let _ = stream.set_nodelay(true);
                Ok(Stream::Host(stream))
            }
            Listener::Fabric(listener) => listener.accept().await,
        }
    }

    /// Where it listens.
    ///
    /// # Errors
    /// As asking the system does.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Listener::Host(listener) => listener.local_addr(),
            Listener::Fabric(listener) => Ok(listener.address),
        }
    }
}

impl FabricListener {
    /// The next connection.
    ///
    /// # Errors
    /// Never, as long as the listener is there.
    pub async fn accept(&mut self) -> io::Result<Stream> {
        self.incoming.recv().await.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

impl Drop for FabricListener {
    fn drop(&mut self) {
        let mut inner = self.fabric.inner.lock();
        if inner.listeners.get(&self.address).is_some_and(|(number, _)| *number == self.number) {
            inner.listeners.remove(&self.address);
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Host(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Fabric(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Host(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Fabric(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Host(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Fabric(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Host(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Fabric(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn at(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn ports_are_refused_or_unreachable_and_a_virtual_address_moves() {
        let fabric = Fabric::default();
        let dial = |to: &str| fabric.dial(at(to)).map(|_| ()).map_err(|e| e.kind());
        assert_eq!(dial("10.40.0.11:6443"), Err(io::ErrorKind::HostUnreachable));
        fabric.host_up("10.40.0.11".parse().unwrap());
        assert_eq!(dial("10.40.0.11:6443"), Err(io::ErrorKind::ConnectionRefused));
        let mut listener = fabric.listen(at("10.40.0.11:6443")).unwrap();
        assert_eq!(fabric.listen(at("10.40.0.11:6443")).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(dial("10.40.0.200:6443"), Err(io::ErrorKind::HostUnreachable));
        fabric.hold("10.40.0.200".parse().unwrap(), Some("10.40.0.11".parse().unwrap()));
        let mut near = fabric.dial(at("10.40.0.200:6443")).unwrap();
        let mut far = listener.accept().await.unwrap();
        near.write_all(b"hello").await.unwrap();
        drop(near);
        let mut heard = String::new();
        far.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "hello");
        drop(listener);
        assert_eq!(dial("10.40.0.200:6443"), Err(io::ErrorKind::ConnectionRefused));
    }
}
