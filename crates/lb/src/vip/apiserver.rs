//! Asks an API server on this machine whether it is ready.
//!
//! Its certificate is not checked: it is this machine's own server that is asked, and nothing is told to it.

use crate::trust::AnyCertificate;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Said once in a life: an API server that does not let everyone ask for its health.
static HIDDEN: AtomicBool = AtomicBool::new(false);

/// Where to ask.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) path: &'a str,
}

/// Whether it says that it is ready. One that answers but keeps its health to itself (401, 403) counts as ready: it
/// serves, and more can't be known without credentials.
pub(super) fn is_ready(url: &str, within: Duration) -> bool {
    let Some(place) = read_url(url) else { return false };
    match ask(&place, within) {
        Ok(200..=299) => true,
        Ok(status @ (401 | 403)) => {
            if !HIDDEN.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    url,
                    status,
                    "the API server answers, but not whether it is ready: taken as ready"
                );
            }
            true
        }
        Ok(_) | Err(_) => false,
    }
}

pub(super) fn read_url(url: &str) -> Option<Place<'_>> {
    let rest = url.strip_prefix("https://")?;
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/readyz"),
    };
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => {
            let (host, after) = inner.split_once(']')?;
            (host, after.strip_prefix(':'))
        }
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(443), str::parse).ok()?;
    (!host.is_empty()).then_some(Place { host, port, path })
}

/// The status of the answer.
fn ask(place: &Place<'_>, within: Duration) -> io::Result<u16> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from(place.host.to_owned()).map_err(io::Error::other)?;
    let stream = connect(place, within)?;
    stream.set_read_timeout(Some(within))?;
    stream.set_write_timeout(Some(within))?;
    let session = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(session, stream);
    // In one piece: each write is a record of its own.
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", place.path, place.host);
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let mut part = [0; 64];
    while !answer.contains(&b'\n') && answer.len() < 1024 {
        match stream.read(&mut part)? {
            0 => break,
            length => answer.extend(&part[..length]),
        }
    }
    read_status(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// By the first of its addresses that answers: a name such as localhost has one of each family, a server perhaps not.
fn connect(place: &Place<'_>, within: Duration) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for to in (place.host, place.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&to, within) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// `HTTP/1.1 200 OK`.
pub(super) fn read_status(answer: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(answer.split(|byte| *byte == b'\r').next()?).ok()?;
    line.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::PrivateKeyDer;
    use std::net::TcpListener;

    #[test]
    fn a_name_with_two_addresses_is_asked_at_the_one_that_answers() {
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(bind).unwrap();
            let address = listener.local_addr().unwrap();
            let place = Place { host: "localhost", port: address.port(), path: "/" };
            let known: Vec<_> = ("localhost", address.port()).to_socket_addrs().unwrap().collect();
            let connected = connect(&place, Duration::from_secs(1));
            // Not every machine knows both.
            assert_eq!(connected.is_ok(), known.contains(&address), "{known:?}");
        }
    }

    #[test]
    fn urls_are_read() {
        let place = |host, port, path| Some(Place { host, port, path });
        assert_eq!(read_url("https://127.0.0.1:6443/readyz"), place("127.0.0.1", 6443, "/readyz"));
        assert_eq!(read_url("https://[::1]:6443/livez?x"), place("::1", 6443, "/livez?x"));
        assert_eq!(read_url("https://localhost"), place("localhost", 443, "/readyz"));
        for bad in ["http://127.0.0.1", "https://", "https://[::1", "https://h:x/", "https://h:70000/"] {
            assert_eq!(read_url(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_server_is_ready_when_it_says_so_or_keeps_it_to_itself() {
        let statuses = [("200 OK", true), ("500 Internal Server Error", false), ("401 Unauthorized", true)];
        let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let private = PrivateKeyDer::try_from(key.signing_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![key.cert.der().clone()], private)
            .unwrap();
        let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
        let url = format!("https://{}/readyz", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            for (status, _) in statuses {
                let (stream, _) = listener.accept().unwrap();
                let session = rustls::ServerConnection::new(config.clone()).unwrap();
                let mut stream = StreamOwned::new(session, stream);
                let mut request = [0; 256];
                let length = stream.read(&mut request).unwrap();
                assert!(request[..length].starts_with(b"GET /readyz HTTP/1.1\r\n"));
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
                stream.conn.send_close_notify();
                stream.flush().unwrap();
            }
        });
        for (status, ready) in statuses {
            assert_eq!(is_ready(&url, Duration::from_secs(5)), ready, "{status}");
        }
        server.join().unwrap();
        assert!(!is_ready(&url, Duration::from_secs(5)), "nobody listens any more");
    }
}
