//! Whether an address is anybody's: by dialling it, directly or through an HTTP proxy.

use anyhow::{Context as _, Result};
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
}

pub(super) struct Dialler {
    proxy: Option<(String, u16)>,
}

/// A host of the same site answers well within this.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Dials that run side by side.
const AT_ONCE: usize = 128;

impl Dialler {
    pub(super) fn new(proxy: Option<&str>) -> Result<Dialler> {
        let proxy = proxy.map(|url| {
            let place = url.trim_start_matches("http://").trim_end_matches('/');
            let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
            let (host, port) = place.rsplit_once(':').context("the proxy has no port")?;
            anyhow::Ok((host.to_owned(), port.parse().context("the proxy's port is no number")?))
        });
        Ok(Dialler { proxy: proxy.transpose()? })
    }

    /// Addresses that are somebody's, each with the port that told.
    pub(super) async fn taken(&self, addresses: &[IpAddr], ports: &[u16]) -> Vec<(IpAddr, u16, Answer)> {
        let pairs = addresses.iter().flat_map(|address| ports.iter().map(move |port| (*address, *port)));
        let dials =
            pairs.map(|(address, port)| async move { (address, port, self.dial(address, port).await) });
        let mut answers: Vec<_> = futures::stream::iter(dials)
            .buffer_unordered(AT_ONCE)
            .filter(|(_, _, answer)| std::future::ready(*answer != Answer::Nobody))
            .collect()
            .await;
        answers.sort_by_key(|(address, port, answer)| (*address, *answer != Answer::Open, *port));
        answers.dedup_by_key(|(address, _, _)| *address);
        answers
    }

    /// A port of a host that is an address or a name.
    pub(super) async fn reach(&self, host: &str, port: u16) -> Answer {
        let target = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let dialled = match &self.proxy {
            None => timeout(PATIENCE, direct(&target)).await,
            Some((proxy, proxy_port)) => timeout(PATIENCE, through(proxy, *proxy_port, &target)).await,
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

/// A proxy says 200 for a tunnel, 502 for a port that refused, and something else for an address that nobody has.
async fn through(host: &str, port: u16, target: &str) -> Answer {
    let asked = async {
        let mut stream = TcpStream::connect((host, port)).await?;
        stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await?;
        let mut head = [0; 12];
        stream.read_exact(&mut head).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&head).into_owned())
    };
    match asked.await.as_deref().map(|head| head.get(9..12)) {
        Ok(Some("200")) => Answer::Open,
        Ok(Some("502")) => Answer::Refused,
        _ => Answer::Nobody,
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
        let taken = dialler.taken(&[open.ip()], &[closed.port(), open.port()]).await;
        assert_eq!(
            taken,
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
            for answer in ["200 OK", "502 Bad Gateway", "504 Gateway Timeout"] {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = [0; 64];
                let read = stream.read(&mut buffer).await.unwrap();
                asked.push(String::from_utf8_lossy(&buffer[..read]).lines().next().unwrap().to_owned());
                stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await.unwrap();
            }
            asked
        });
        let dialler = Dialler::new(Some(&proxy)).unwrap();
        let address: IpAddr = "10.40.0.200".parse().unwrap();
        assert_eq!(dialler.dial(address, 6443).await, Answer::Open);
        assert_eq!(dialler.dial(address, 6443).await, Answer::Refused);
        assert_eq!(dialler.dial(address, 6443).await, Answer::Nobody);
        assert_eq!(server.await.unwrap()[0], "CONNECT 10.40.0.200:6443 HTTP/1.1");
    }
}
