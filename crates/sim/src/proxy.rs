//! The way into the simulated network from outside: an HTTP proxy that knows `CONNECT` and nothing else.
//!
//! It listens on this computer, and dials in the [`Fabric`], by address or by name. Clients use their ordinary proxy setting
//! (`proxy-url` in kubeconfig and talosconfig, `HTTPS_PROXY` elsewhere). What can't be reached is said at once, with 502 for a
//! closed port and 504 for an address that nobody has, and a body that says which.

use crate::fabric::{Fabric, Stream};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// The head of a request is a few lines.
const HEAD_LIMIT: usize = 16 * 1024;
/// How long a client may take to say what it wants.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);

/// A proxy that runs; it ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    task: JoinHandle<()>,
}

/// Why a client gets no tunnel.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    status: &'static str,
    why: String,
}

impl Proxy {
    /// Listens on this computer; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address can't be listened on.
    pub async fn open(listen: SocketAddr, fabric: Fabric) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, task: tokio::spawn(accept(listener, fabric)) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it and all of its tunnels.
    pub async fn close(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, fabric: Fabric) {
    // Tunnels end with this task, which owns them.
    let mut tunnels = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    tunnels.spawn(serve(stream, fabric.clone()));
                }
                Err(error) => {
                    tracing::debug!(%error, "the proxy cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            },
            Some(_) = tunnels.join_next(), if !tunnels.is_empty() => {}
        }
    }
}

async fn serve(mut client: TcpStream, fabric: Fabric) {
    let _ = client.set_nodelay(true);
    let Ok(Ok(head)) = tokio::time::timeout(HEAD_PATIENCE, read_head(&mut client)).await else { return };
    match target(&head).and_then(|(host, port)| dial(&fabric, &host, port)) {
        Ok(mut inside) => {
            if client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_ok() {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut inside).await;
            }
        }
        Err(refusal) => {
            let Refusal { status, why } = refusal;
            let length = why.len() + 1;
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{why}\n"
            );
            let _ = client.write_all(answer.as_bytes()).await;
            let _ = client.shutdown().await;
        }
    }
}

/// Reads up to the empty line and not a byte further: what follows is for the other side.
async fn read_head(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(256);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= HEAD_LIMIT {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        // A client waits for our answer before it goes on, so that a peek nearly always finds the whole head.
        let mut seen = [0; 1024];
        let count = client.peek(&mut seen).await?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(&seen[..count]);
        let end = head[from..].windows(4).position(|window| window == b"\r\n\r\n").map(|at| from + at + 4);
        let taken = end.map_or(count, |end| count - (head.len() - end));
        if let Some(end) = end {
            head.truncate(end);
        }
        client.read_exact(&mut seen[..taken]).await?;
    }
    Ok(head)
}

/// Host and port of `CONNECT host:port HTTP/1.1`.
fn target(head: &[u8]) -> Result<(String, u16), Refusal> {
    let bad = |why: &str| Refusal { status: "400 Bad Request", why: why.to_string() };
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| bad("the request is not readable"))?;
    let mut words = line.split(' ');
    let (method, authority) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if method != "CONNECT" {
        let why = format!(
            "this proxy leads into a simulated data centre, by CONNECT only; {method} is not possible"
        );
        return Err(Refusal { status: "405 Method Not Allowed", why });
    }
    let (host, port) = authority.rsplit_once(':').ok_or_else(|| bad("CONNECT needs host:port"))?;
    let port = port.parse().map_err(|_| bad("CONNECT needs a port number"))?;
    Ok((host.to_string(), port))
}

fn dial(fabric: &Fabric, host: &str, port: u16) -> Result<Stream, Refusal> {
    let Some(address) = fabric.resolve(host) else {
        let why = format!("the simulated network has no host named {host}");
        return Err(Refusal { status: "502 Host Not Found", why });
    };
    fabric.dial_from_outside(SocketAddr::new(address, port)).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => Refusal {
            status: "502 Connection Refused",
            why: format!("port {port} of {host} is closed in the simulated network"),
        },
        io::ErrorKind::TimedOut => Refusal {
            status: "504 Dropped By Firewall",
            why: format!("a firewall keeps port {port} of {host} from being reached from outside"),
        },
        _ => Refusal {
            status: "504 No Route To Host",
            why: format!("nobody has the address {host} in the simulated network"),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    async fn ask(proxy: &Proxy, request: &str) -> String {
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn tunnels_lead_to_names_and_addresses_and_refusals_say_why() {
        let fabric = Fabric::default();
        let proxy = Proxy::open("127.0.0.1:0".parse().unwrap(), fabric.clone()).await.unwrap();
        let host: IpAddr = "10.40.0.5".parse().unwrap();
        fabric.name("pve.example", host);
        let connect = |to: &str| format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
        let nobody = ask(&proxy, &connect("10.40.0.5:8006")).await;
        assert!(nobody.starts_with("HTTP/1.1 504 "), "{nobody}");
        assert!(nobody.ends_with("nobody has the address 10.40.0.5 in the simulated network\n"));
        fabric.host_up(host);
        let closed = ask(&proxy, &connect("pve.example:8006")).await;
        assert!(closed.starts_with("HTTP/1.1 502 Connection Refused"), "{closed}");
        assert!(ask(&proxy, &connect("other:1")).await.contains("no host named other"));
        assert!(ask(&proxy, "GET http://a/ HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 405"));
        assert!(ask(&proxy, &connect("nowhere")).await.starts_with("HTTP/1.1 400"));

        let mut listener = fabric.listen(SocketAddr::new(host, 8006)).unwrap();
        let server = tokio::spawn(async move {
            let mut stream = listener.accept().await.unwrap();
            let mut heard = [0; 5];
            stream.read_exact(&mut heard).await.unwrap();
            stream.write_all(&heard).await.unwrap();
        });
        // The first bytes for the other side may come right behind the head.
        let heard = ask(&proxy, &format!("{}hello", connect("pve.example:8006"))).await;
        assert_eq!(heard, "HTTP/1.1 200 Connection established\r\n\r\nhello");
        server.await.unwrap();
        let address = proxy.address();
        proxy.close().await;
        assert!(TcpStream::connect(address).await.is_err());
    }
}
