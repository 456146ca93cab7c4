//! The other side of the runtime API, for the commands.

use super::http;
use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A reload waits for its file and its sockets, so that it may take a while.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error("no butler-lb answers at {socket:?}")]
    Unreachable {
        /// Where.
        socket: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The answer did not come, or made no sense.
    #[error("no answer from {socket:?}")]
    Broken {
        /// Where.
        socket: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Asks the process that serves a socket.
pub fn request(socket: &Path, method: &str, target: &str) -> Result<Answer, ClientError> {
    let broken = |source| ClientError::Broken { socket: socket.to_owned(), source };
    let mut stream = UnixStream::connect(socket)
        .map_err(|source| ClientError::Unreachable { socket: socket.to_owned(), source })?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(broken)?;
    let head = format!("{method} {target} HTTP/1.1\r\nHost: butler-lb\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).map_err(broken)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).map_err(broken)?;
    let (status, body) = http::parse_answer(&bytes)
        .ok_or_else(|| broken(io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP")))?;
    Ok(Answer { status, body })
}
