//! Whether an address is anybody's: by dialling it, directly or through an HTTP proxy.

use anyhow::Result;
use butler_talos::client::Proxy;
use futures::StreamExt as _;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Open,
    /// A host is there, and the port is closed.
    Refused,
    Nobody,
    /// The proxy did not look, and said this: nothing is known.
    Unknown(u16),
}

pub(super) struct Dialler {
    proxy: Option<Proxy>,
}

/// What dialling a list of addresses showed.
pub(super) struct Dialled {
    /// Addresses that are somebody's, each with the port that told.
    pub(super) taken: Vec<(IpAddr, u16, Answer)>,
    /// The status by which the proxy refused to look, if it did.
    pub(super) unknown: Option<u16>,
}

/// A host of the same site answers well within this.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Dials that run side by side.
const AT_ONCE: usize = 128;

impl Dialler {
    pub(super) fn new(proxy: Option<&str>) -> Result<Dialler> {
        Ok(Dialler { proxy: proxy.map(str::parse).transpose()? })
    }

    /// Which addresses are somebody's.
    pub(super) async fn look(&self, addresses: &[IpAddr], ports: &[u16]) -> Dialled {
        let pairs = addresses.iter().flat_map(|address| ports.iter().map(move |port| (*address, *port)));
        let dials =
            pairs.map(|(address, port)| async move { (address, port, self.dial(address, port).await) });
        let mut taken: Vec<_> = futures::stream::iter(dials).buffer_unordered(AT_ONCE).collect().await;
        let unknown = taken.iter().find_map(|(_, _, answer)| match answer {
            Answer::Unknown(status) => Some(*status),
            _ => None,
        });
        taken.retain(|(_, _, answer)| matches!(answer, Answer::Open | Answer::Refused));
        taken.sort_by_key(|(address, port, answer)| (*address, *answer != Answer::Open, *port));
        taken.dedup_by_key(|(address, _, _)| *address);
        Dialled { taken, unknown }
    }

    /// A port of a host that is an address or a name.
    pub(super) async fn reach(&self, host: &str, port: u16) -> Answer {
        let target = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let dialled = match &self.proxy {
            None => timeout(PATIENCE, direct(&target)).await,
            Some(proxy) => timeout(PATIENCE, through(proxy, &target)).await,
        };
        dialled.unwrap_or(Answer::Nobody)
    }

    async fn dial(&self, address: IpAddr, port: u16) -> Answer {
        self.reach(&address.to_string(), port).await
    }
}

async fn direct(target: &str) -> Answer {
    match TcpStream::connect(target).await {
        Ok(_) => Answer::Open,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Answer::Refused,
        Err(_) => Answer::Nobody,
    }
}

/// A proxy says 200 for a tunnel, 502 for a port that refused, and 504 for an address that nobody has. Whatever else it says is
/// about itself: a login that is missing, a port that it does not go to.
async fn through(proxy: &Proxy, target: &str) -> Answer {
    let asked = async {
        let mut stream = TcpStream::connect((proxy.host(), proxy.port())).await?;
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
        if let Some(authorization) = proxy.authorization() {
            request.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&head).into_owned())
    };
    let status = asked.await.ok().and_then(|head| head.get(9..12)?.parse().ok());
    match status {
        Some(200) => Answer::Open,
        Some(502) => Answer::Refused,
        Some(504) => Answer::Nobody,
        other => Answer::Unknown(other.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn open_refused_and_nobody_are_told_apart() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let open = listener.local_addr().unwrap();
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let dialler = Dialler::new(None).unwrap();
        assert_eq!(dialler.dial(open.ip(), open.port()).await, Answer::Open);
        assert_eq!(dialler.dial(closed.ip(), closed.port()).await, Answer::Refused);
        let seen = dialler.look(&[open.ip()], &[closed.port(), open.port()]).await;
        assert_eq!(seen.unknown, None);
        assert_eq!(
            seen.taken,
            [(open.ip(), open.port(), Answer::Open)],
            "an open port tells more than a closed one"
        );
    }

    #[tokio::test]
    async fn a_proxy_is_asked() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = format!("http://u:p@{}/", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in [
                "200 OK",
                "502 Bad Gateway",
                "504 Gateway Timeout",
                "407 Proxy Authentication Required",
                "403 No",
            ] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = [0; 256];
                let read = stream.read(&mut buffer).await.unwrap();
                asked.push(String::from_utf8_lossy(&buffer[..read]).into_owned());
                stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await.unwrap();
            }
            asked
        });
        let dialler = Dialler::new(Some(&proxy)).unwrap();
        let address: IpAddr = "10.40.0.200".parse().unwrap();
        assert_eq!(dialler.dial(address, 6443).await, Answer::Open);
        assert_eq!(dialler.dial(address, 6443).await, Answer::Refused);
        assert_eq!(dialler.dial(address, 6443).await, Answer::Nobody);
        assert_eq!(dialler.dial(address, 6443).await, Answer::Unknown(407));
        let refused = dialler.look(&[address], &[6443]).await;
        assert_eq!((refused.taken.len(), refused.unknown), (0, Some(403)), "not looked is not free");
        let asked = server.await.unwrap().swap_remove(0);
        assert_eq!(asked.lines().next(), Some("CONNECT 10.40.0.200:6443 HTTP/1.1"));
        assert!(asked.contains("Proxy-Authorization: Basic dTpw\r\n"), "{asked}");
    }
}
