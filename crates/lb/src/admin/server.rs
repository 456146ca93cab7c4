//! The sockets of the runtime API. A thread accepts, and each request gets a short-lived thread of its own, so that a client
//! that dawdles holds up nobody.

use super::http::{Request, Response};
use super::routes::{self, Control, Scope};
use rustix::event::{PollFd, PollFlags, poll};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Requests at once; more are closed.
const MOST: usize = 32;
/// How long a client may dawdle.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before a listener that has just failed is asked again.
const REST: Duration = Duration::from_millis(100);
/// The socket is its owner's alone.
const PRIVATE: u32 = 0o077;

/// Sockets that are served until the value is dropped.
#[derive(Debug)]
pub struct Server {
    /// Last of all: whoever finds no socket finds no balancer.
    socket: Option<SocketFile>,
    metrics: Option<SocketAddr>,
    /// Dropped to end the thread.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// Why a socket can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// A process answers there.
    #[error("admin.socket {0:?}: another process serves it")]
    Taken(PathBuf),
    /// The unix socket can't be made.
    #[error("admin.socket {path:?}: cannot listen on it")]
    Socket {
        /// Its path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The port can't be listened on.
    #[error("admin.metrics {address}: cannot listen on it")]
    Metrics {
        /// Its address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// No thread.
    #[error("cannot start the thread of the runtime API")]
    Thread(#[source] io::Error),
}

/// Sockets that are listened on and not served yet.
#[derive(Debug)]
pub struct Sockets {
    file: SocketFile,
    unix: UnixListener,
    tcp: Option<TcpListener>,
}

/// The socket's place in the file system, removed with the value.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Sockets {
    /// Listens, and serves nothing yet. What another process serves already is refused, so that a second balancer ends here.
    pub fn bind(socket: &Path, metrics: Option<SocketAddr>) -> Result<Sockets, ServerError> {
        let unix = listen(socket)?;
        let sockets = Sockets { file: SocketFile(socket.to_owned()), unix, tcp: None };
        let failed = |source| ServerError::Socket { path: socket.to_owned(), source };
        sockets.unix.set_nonblocking(true).map_err(failed)?;
        let Some(address) = metrics else { return Ok(sockets) };
        let failed = |source| ServerError::Metrics { address, source };
        let tcp = TcpListener::bind(address).map_err(failed)?;
        tcp.set_nonblocking(true).map_err(failed)?;
        Ok(Sockets { tcp: Some(tcp), ..sockets })
    }

    /// Serves.
    pub fn serve(self, control: Arc<dyn Control>) -> Result<Server, ServerError> {
        let Sockets { file, unix, tcp } = self;
        let metrics = tcp.as_ref().and_then(|tcp| tcp.local_addr().ok());
        let (stop, stopped) = UnixStream::pair().map_err(ServerError::Thread)?;
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || serve(&unix, tcp.as_ref(), &stopped, &control))
            .map_err(ServerError::Thread)?;
        Ok(Server { socket: Some(file), metrics, stop: Some(stop), thread: Some(thread) })
    }
}

impl Server {
    /// Where metrics are served.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.socket.take();
    }
}

/// A socket of our own at a path. One that a dead process left is replaced; one that answers is not.
fn listen(path: &Path) -> Result<UnixListener, ServerError> {
    if let Ok(about) = std::fs::symlink_metadata(path) {
        use std::os::unix::fs::FileTypeExt as _;
        let failed = |source| ServerError::Socket { path: path.to_owned(), source };
        if !about.file_type().is_socket() {
            return Err(failed(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is no socket is there",
            )));
        }
        if UnixStream::connect(path).is_ok() {
            return Err(ServerError::Taken(path.to_owned()));
        }
        std::fs::remove_file(path).map_err(failed)?;
    }
    // The mask holds for the moment in which the socket is made, so that there is none in which others could connect.
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(PRIVATE));
    let made = UnixListener::bind(path);
    rustix::process::umask(before);
    made.map_err(|source| ServerError::Socket { path: path.to_owned(), source })
}

fn serve(unix: &UnixListener, tcp: Option<&TcpListener>, stopped: &UnixStream, control: &Arc<dyn Control>) {
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        let mut waiting = vec![PollFd::new(stopped, PollFlags::IN), PollFd::new(unix, PollFlags::IN)];
        waiting.extend(tcp.map(|tcp| PollFd::new(tcp, PollFlags::IN)));
        match poll(&mut waiting, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => {
                tracing::error!(%error, "the runtime API has ended");
                return;
            }
        }
        if !waiting[0].revents().is_empty() {
            return;
        }
        while let Some(stream) = accepted(unix.accept()) {
            let patient =
                stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)));
            if patient.and(stream.set_nonblocking(false)).is_ok() {
                spawn(stream, Scope::Everything, control, &busy);
            }
        }
        while let Some(stream) = tcp.and_then(|tcp| accepted(tcp.accept())) {
            let patient =
                stream.set_read_timeout(Some(PATIENCE)).and(stream.set_write_timeout(Some(PATIENCE)));
            if patient.and(stream.set_nonblocking(false)).is_ok() {
                spawn(stream, Scope::Metrics, control, &busy);
            }
        }
    }
}

/// Who has connected, if anybody.
fn accepted<S, A>(accepted: io::Result<(S, A)>) -> Option<S> {
    match accepted {
        Ok((stream, _)) => Some(stream),
        Err(error) => {
            if error.kind() != io::ErrorKind::WouldBlock {
                // No descriptors or memory, most likely: asked again at once, the kernel would say the same.
                std::thread::sleep(REST);
            }
            None
        }
    }
}

fn spawn<S: Read + Write + Send + 'static>(
    stream: S,
    scope: Scope,
    control: &Arc<dyn Control>,
    busy: &Arc<AtomicUsize>,
) {
    let (control, busy) = (control.clone(), busy.clone());
    if busy.fetch_add(1, Ordering::Relaxed) >= MOST {
        busy.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let leave = busy.clone();
    let work = move || {
        converse(stream, scope, &*control);
        busy.fetch_sub(1, Ordering::Relaxed);
    };
    if std::thread::Builder::new().name("admin-request".to_owned()).spawn(work).is_err() {
        leave.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One request and its answer. A client that goes away is no error.
fn converse(mut stream: impl Read + Write, scope: Scope, control: &dyn Control) {
    let response = match Request::read(&mut stream) {
        Ok(Some(request)) => routes::answer(&request, scope, control),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Response::json(400, &serde_json::json!({"error": error.to_string()}))
        }
        _ => return,
    };
    let _ = response.write(&mut stream);
}
