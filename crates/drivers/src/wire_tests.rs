//! For tests of drivers over the wire: a server's side of HTTP in a few lines, and a journal of calls.

use crate::recorder::{Call, Recorder};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Keeps what it is told.
#[derive(Default)]
pub(crate) struct Journal(pub(crate) Mutex<Vec<Call>>);

impl Recorder for Journal {
    fn record(&self, call: Call) {
        self.0.lock().push(call);
    }
}

/// A request: its first line with its head below, in small letters, and its body.
pub(crate) async fn read_request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        let mut some = [0; 4096];
        let count = stream.read(&mut some).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&some[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase().replace("bearer ", "Bearer ");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.and_then(|length| length.trim().parse().ok()).unwrap_or(0) {
                let first = text.lines().next().unwrap_or_default().to_owned();
                return Some((format!("{first}\n{head}"), body.to_owned()));
            }
        }
    }
}

/// Answers, and is done with the connection.
pub(crate) async fn answer(stream: &mut TcpStream, status: u16, body: &str) {
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
}
