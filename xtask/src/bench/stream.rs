//! An answer that does not end, read straight off the connection. With a hundred watchers on two cores the way of an event
//! through a general HTTP client would cost about as much as the server's whole work for it, and hide the difference
//! between servers.

use anyhow::{Context, Result, bail, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

/// The open answer to a watch.
pub(super) struct Lines {
    connection: TlsStream<TcpStream>,
    received: Box<[u8]>,
    chunks: Chunks,
    /// What was received of the body and not handed out yet.
    body: Vec<u8>,
    /// Bytes at the front of `body` that have been handed out.
    taken: usize,
}

/// Where in the chunked body (RFC 9112, section 7.1) the next byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunks {
    /// In the size, of which this much is known.
    Size(usize),
    /// In a chunk with so many bytes to come.
    Data(usize),
    /// So many bytes before the next size.
    LineEnd(u8),
    Ended,
}

// === impl Lines ===

impl Lines {
    /// Sends a request, whole and ready for the wire, and reads the head of the answer.
    pub(super) async fn open(mut connection: TlsStream<TcpStream>, request: &[u8]) -> Result<Self> {
        connection.write_all(request).await.context("send a watch")?;
        connection.flush().await.context("send a watch")?;
        let mut received = vec![0; 16 * 1024].into_boxed_slice();
        let mut head = Vec::new();
        let end = loop {
            let read = connection.read(&mut received).await.context("read the head of a watch")?;
            ensure!(read > 0, "the server closed the connection of a watch");
            head.extend_from_slice(&received[..read]);
            if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = String::from_utf8_lossy(&head[..end]).to_ascii_lowercase();
        ensure!(
            text.starts_with("http/1.1 200 ") && text.contains("\r\ntransfer-encoding: chunked\r\n"),
            "a watch is answered by {text}"
        );
        let mut lines = Self { connection, received, chunks: Chunks::Size(0), body: Vec::new(), taken: 0 };
        lines.chunks.feed(&head[end..], &mut lines.body)?;
        Ok(lines)
    }

    /// The next line, without its end.
    pub(super) async fn next(&mut self) -> Result<&[u8]> {
        loop {
            if let Some(length) = self.body[self.taken..].iter().position(|byte| *byte == b'\n') {
                let start = self.taken;
                self.taken += length + 1;
                return Ok(&self.body[start..start + length]);
            }
            self.body.drain(..self.taken);
            self.taken = 0;
            ensure!(self.chunks != Chunks::Ended, "a watch ended too early");
            let read = self.connection.read(&mut self.received).await.context("read a watch")?;
            ensure!(read > 0, "the server closed the connection of a watch");
            self.chunks.feed(&self.received[..read], &mut self.body)?;
        }
    }
}

// === impl Chunks ===

impl Chunks {
    /// Takes what came over the wire, in whatever pieces, and puts the body's bytes into `body`.
    fn feed(&mut self, mut wire: &[u8], body: &mut Vec<u8>) -> Result<()> {
        while let Some(&byte) = wire.first() {
            let mut used = 1;
            *self = match *self {
                Self::Size(size) => match (byte as char).to_digit(16) {
                    Some(digit) => Self::Size(size.saturating_mul(16).saturating_add(digit as usize)),
                    None if byte == b'\r' => Self::Size(size),
                    None if byte == b'\n' && size == 0 => Self::Ended,
                    None if byte == b'\n' => Self::Data(size),
                    None => bail!("byte {byte:#x} in the size of a chunk"),
                },
                Self::Data(left) => {
                    used = left.min(wire.len());
                    body.extend_from_slice(&wire[..used]);
                    if used == left { Self::LineEnd(2) } else { Self::Data(left - used) }
                }
                Self::LineEnd(2) => Self::LineEnd(1),
                Self::LineEnd(_) => Self::Size(0),
                // Trailers and the last empty line.
                Self::Ended => Self::Ended,
            };
            wire = &wire[used..];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_comes_out_whole_however_it_is_cut() {
        let wire = b"5\r\nhello\r\n1A\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\n\r\n";
        for piece in 1..wire.len() {
            let (mut chunks, mut body) = (Chunks::Size(0), Vec::new());
            wire.chunks(piece).for_each(|part| chunks.feed(part, &mut body).unwrap());
            assert_eq!(body, b"helloabcdefghijklmnopqrstuvwxyz", "in pieces of {piece}");
            assert_eq!(chunks, Chunks::Ended);
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        assert!(Chunks::Size(0).feed(b"x5\r\n", &mut Vec::new()).is_err());
    }
}
