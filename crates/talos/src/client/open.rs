//! Opens one TLS connection to a node: resolve, through the proxy if there is one, shake hands, hear the first word.
//!
//! Hearing the first word matters: in TLS 1.3 a server refuses a client's certificate after the client believes that the
//! handshake is over. Nodes send their HTTP/2 settings unasked, so either those come, or the alert that says why not.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    address::{NodeAddress, Proxy, Settings},
    error::OpenError,
    tls::{Access, Fingerprint, Seen, client_config},
};

/// The head of a proxy's answer is a few lines.
const PROXY_HEAD_LIMIT: usize = 8 * 1024;

/// A server that waits for the client's word first is given this long before we speak.
const FIRST_WORD: Duration = Duration::from_secs(1);

/// A connection on which the node has accepted us.
pub(super) struct Opened {
    pub(super) stream: Rewound<TlsStream<TcpStream>>,
    pub(super) fingerprint: Option<Fingerprint>,
}

/// Gives back what was read ahead, then the rest of the stream.
pub(super) struct Rewound<S> {
    head: Bytes,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.head.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let part = self.head.len().min(buf.remaining());
        buf.put_slice(&self.head[..part]);
        self.head.advance(part);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

pub(super) async fn open(
    node: &NodeAddress,
    access: &Access,
    settings: &Settings,
) -> Result<Opened, OpenError> {
    let limit = settings.connect_timeout;
    let name = node.server_name()?;
    let tcp = within(limit, "reach the port", dial(node, settings)).await?;
    let seen = Arc::new(Seen::default());
    let config = client_config(access, seen.clone()).map_err(|error| OpenError::Tls { error, seen: None })?;
    let sorted = |error: io::Error| OpenError::from_io(&error, seen.fingerprint());
    let mut stream = within(limit, "shake hands", async {
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(sorted)
    })
    .await?;
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(OpenError::NotTalos);
    }
    let mut head = BytesMut::with_capacity(1024);
    match timeout(FIRST_WORD, stream.read_buf(&mut head)).await {
        Ok(Ok(0)) => return Err(OpenError::HungUp),
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return Err(sorted(error)),
        // Not an error: such a server speaks when spoken to.
        Err(_) => {}
    }
    Ok(Opened { stream: Rewound { head: head.freeze(), stream }, fingerprint: seen.fingerprint() })
}

async fn within<T>(
    limit: Duration,
    what: &str,
    work: impl Future<Output = Result<T, OpenError>>,
) -> Result<T, OpenError> {
    match timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(OpenError::Unreachable(format!("no answer within {limit:?} (to {what})"))),
    }
}

pub(super) async fn dial(node: &NodeAddress, settings: &Settings) -> Result<TcpStream, OpenError> {
    let moved = settings.overrides.get(node.host()).copied();
    let plain = |error: io::Error| OpenError::from_io(&error, None);
    let stream = match (&settings.proxy, moved) {
        (Some(proxy), moved) => {
            let target = moved.map_or_else(|| node.authority(), |address| address.to_string());
            through(proxy, &target).await?
        }
        (None, Some(address)) => TcpStream::connect(address).await.map_err(plain)?,
        (None, None) => TcpStream::connect((node.host(), node.port())).await.map_err(plain)?,
    };
    // Calls are small: waiting to fill a packet only costs time. A socket that can't is still a socket.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

/// Asks the proxy for a tunnel to `target`.
async fn through(proxy: &Proxy, target: &str) -> Result<TcpStream, OpenError> {
    let unreachable = |error: io::Error| OpenError::Unreachable(format!("proxy {proxy}: {error}"));
    let mut stream = TcpStream::connect((proxy.host(), proxy.port())).await.map_err(unreachable)?;
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(authorization) = proxy.authorization() {
        request.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.map_err(unreachable)?;
    let head = read_head(&mut stream).await.map_err(unreachable)?;
    match parse_head(&head) {
        Some((200..=299, _)) => Ok(stream),
        Some((code, reason)) => Err(OpenError::Proxy { code, reason }),
        None => Err(OpenError::NotAProxy),
    }
}

/// Reads up to the empty line and not a byte further: what follows belongs to the node.
async fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(256);
    while !head.ends_with(b"\r\n\r\n") && head.len() < PROXY_HEAD_LIMIT {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            // An answer cut short is judged by what is there.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !head.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(head)
}

/// Code and reason of `HTTP/1.1 200 Connection established`.
fn parse_head(head: &[u8]) -> Option<(u16, String)> {
    let line = std::str::from_utf8(head).ok()?.lines().next()?;
    let mut words = line.splitn(3, ' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    let code = words.next()?.parse().ok()?;
    Some((code, words.next().unwrap_or_default().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_proxy_is_read() {
        assert_eq!(
            parse_head(b"HTTP/1.1 200 Connection established\r\n\r\n"),
            Some((200, "Connection established".to_owned()))
        );
        assert_eq!(parse_head(b"HTTP/1.0 502\r\n\r\n"), Some((502, String::new())));
        assert_eq!(parse_head(b"SSH-2.0-OpenSSH\r\n"), None);
        assert_eq!(parse_head(b"HTTP/1.1 abc\r\n"), None);
    }
}
