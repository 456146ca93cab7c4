//! The runtime API: what whoever reaches its socket may write there.

use crate::feed::Feed;
use butler_lb::admin::fuzzing::{converse, parse_answer};
use butler_lb::admin::{Control, Drain, Refusal, Status};
use std::io::{self, Read, Write};
use std::sync::Mutex;

/// A connection on which bytes come in pieces.
struct Connection<'a> {
    coming: &'a [u8],
    piece: usize,
    answer: Vec<u8>,
}

impl Read for Connection<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.piece).min(self.coming.len());
        let (now, later) = self.coming.split_at(count);
        buffer[..count].copy_from_slice(now);
        self.coming = later;
        Ok(count)
    }
}

impl Write for Connection<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.answer.extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Remembers what it was asked for.
#[derive(Default)]
struct Asked {
    changes: Mutex<Vec<String>>,
}

impl Asked {
    fn note(&self, change: String) {
        self.changes.lock().expect("nobody panics with it").push(change);
    }
}

impl Control for Asked {
    fn status(&self) -> Status {
        let version = String::new();
        Status {
            version,
            uptime: 1,
            config_age: 1,
            failed_reloads: 0,
            threads: Default::default(),
            listeners: Vec::new(),
            vips: Vec::new(),
        }
    }
    fn reload(&self) -> Result<Vec<String>, Refusal> {
        self.note("reload".to_owned());
        Err(Refusal::Wrong(vec!["line 1".to_owned()]))
    }
    fn drain(&self, drain: &Drain) -> Result<String, Refusal> {
        assert!(!drain.backend.is_empty());
        self.note(format!("{drain:?}"));
        Err(Refusal::NotFound(drain.backend.clone()))
    }
}

/// A request; the first two bytes say how it comes.
pub fn http(data: &[u8]) {
    let mut feed = Feed::new(data);
    let (metrics_only, piece) = (feed.flag(), 1 + usize::from(feed.byte()));
    let bytes = feed.rest();
    let _ = parse_answer(bytes);
    let (answer, changes) = ask(bytes, metrics_only, piece);
    // The piece that ends a head may bring more; what is too long by then depends on it, and on nothing else.
    if bytes.len() <= 8 << 10 {
        assert_eq!(ask(bytes, metrics_only, usize::MAX), (answer.clone(), changes.clone()), "pieces matter");
    }
    if !changes.is_empty() {
        assert!(!metrics_only && bytes.starts_with(b"POST /v1/") && changes.len() == 1, "{changes:?}");
    }
    if answer.is_empty() {
        assert!(
            !bytes.windows(4).any(|four| four == b"\r\n\r\n") || bytes.len() > 8 << 10,
            "a request without answer"
        );
        return;
    }
    let (status, _) = parse_answer(&answer).expect("an answer is one");
    assert!([200, 400, 404, 405, 422, 503].contains(&status), "{status}");
    let head_end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head has an end");
    let head = String::from_utf8_lossy(&answer[..head_end]);
    let length = format!("Content-Length: {}", answer.len() - head_end - 4);
    assert!(head.lines().any(|line| line == length), "{head}");
    assert_eq!(head.lines().count(), 5, "a line of the request got into the head: {head}");
}

fn ask(bytes: &[u8], metrics_only: bool, piece: usize) -> (Vec<u8>, Vec<String>) {
    let asked = Asked::default();
    let mut connection = Connection { coming: bytes, piece, answer: Vec::new() };
    converse(&mut connection, metrics_only, &asked);
    (connection.answer, asked.changes.into_inner().expect("nobody panics with it"))
}
