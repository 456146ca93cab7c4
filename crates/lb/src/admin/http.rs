//! As much of HTTP/1.1 as the runtime API needs: one request per connection, no bodies in, small bodies out.

use std::fmt::Write as _;
use std::io::{self, Read, Write};

/// A request line and headers are no longer than this.
const MAX_HEAD: usize = 8 << 10;

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    /// In the order of the query.
    pub(super) query: Vec<(String, String)>,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

impl Request {
    /// Reads a request. `None`: the other side closed without a word.
    pub(super) fn read(stream: &mut impl Read) -> io::Result<Option<Request>> {
        let Some(head) = read_head(stream)? else { return Ok(None) };
        parse(&head).map(Some).ok_or_else(|| bad("not an HTTP request"))
    }

    /// A value of the query.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }
}

impl Response {
    pub(super) fn json(status: u16, body: &impl serde::Serialize) -> Response {
        let body = serde_json::to_string(body).unwrap_or_default() + "\n";
        Response { status, content_type: "application/json", body }
    }

    pub(super) fn text(status: u16, body: &str) -> Response {
        Response { status, content_type: "text/plain; version=0.0.4; charset=utf-8", body: body.to_owned() }
    }

    pub(super) fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            409 => "Conflict",
            422 => "Unprocessable Content",
            503 => "Service Unavailable",
            _ => "Internal Server Error",
        };
        let mut text = format!("HTTP/1.1 {} {reason}\r\n", self.status);
        let _ =
            write!(text, "Content-Type: {}\r\nContent-Length: {}\r\n", self.content_type, self.body.len());
        text.push_str("Cache-Control: no-store\r\nConnection: close\r\n\r\n");
        text.push_str(&self.body);
        stream.write_all(text.as_bytes())?;
        stream.flush()
    }
}

/// Reads up to the empty line. Bytes behind it are left unread or thrown away: no request of ours has a body.
fn read_head(stream: &mut impl Read) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    let mut part = [0u8; 1024];
    // What was looked at is not looked at again, or a client that sends single bytes would keep us busy.
    let mut seen = 0;
    loop {
        if let Some(end) = head[seen..].windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            head.truncate(seen + end);
            let text = String::from_utf8(head).map_err(|_| bad("a head that is not UTF-8"))?;
            return Ok(Some(text));
        }
        if head.len() > MAX_HEAD {
            return Err(bad("a head that is too long"));
        }
        seen = head.len().saturating_sub(3);
        match stream.read(&mut part)? {
            0 if head.is_empty() => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => head.extend_from_slice(&part[..count]),
        }
    }
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn parse(head: &str) -> Option<Request> {
    let mut words = head.lines().next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() || !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return None;
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    // Names of ours need no percent signs, so that none are decoded.
    let query = query.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    Some(Request { method: method.to_owned(), path: path.to_owned(), query })
}

/// Status and body of an answer that was read to its end.
pub(super) fn parse_answer(bytes: &[u8]) -> Option<(u16, String)> {
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.lines().next()?.split(' ').nth(1)?.parse().ok()?;
    Some((status, String::from_utf8_lossy(&bytes[end + 4..]).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_read() {
        let text = "POST /v1/drain?listener=a&backend=b&undo HTTP/1.1\r\nHost: x\r\n\r\n";
        let request = Request::read(&mut text.as_bytes()).unwrap().unwrap();
        assert_eq!((&*request.method, &*request.path), ("POST", "/v1/drain"));
        assert_eq!((request.value("backend"), request.value("undo")), (Some("b"), Some("")));
        assert_eq!(request.value("x"), None);
        assert!(Request::read(&mut "".as_bytes()).unwrap().is_none());
    }

    #[test]
    fn a_request_may_come_in_single_bytes() {
        struct Slow<'a>(&'a [u8]);
        impl Read for Slow<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let count = buffer.len().min(1);
                self.0.read(&mut buffer[..count])
            }
        }
        let text = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
        let request = Request::read(&mut Slow(text.as_bytes())).unwrap().unwrap();
        assert_eq!(&*request.path, "/healthz");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for text in [
            "GET /\r\n\r\n",
            "GET x HTTP/1.1\r\n\r\n",
            "GET / HTTP/2\r\n\r\n",
            "GET / HTTP/1.1 x\r\n\r\n",
            "GET",
        ] {
            assert!(Request::read(&mut text.as_bytes()).is_err(), "{text:?}");
        }
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(20_000));
        assert!(Request::read(&mut long.as_bytes()).is_err());
    }

    #[test]
    fn an_answer_is_written_and_read() {
        let mut bytes = Vec::new();
        Response::json(422, &serde_json::json!({"error": "x"})).write(&mut bytes).unwrap();
        assert_eq!(parse_answer(&bytes), Some((422, "{\"error\":\"x\"}\n".to_owned())));
        assert_eq!(parse_answer(b"HTTP/1.1"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Request::read(&mut &bytes[..]);
            let _ = parse_answer(&bytes);
        }
    }
}
