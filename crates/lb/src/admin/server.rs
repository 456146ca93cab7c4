//! The sockets of the runtime API. A thread accepts, and each request gets a short-lived thread of its own, so that a client
//! that dawdles holds up nobody.

use super::http::{Request, Response};
use super::routes::{self, Control, Scope};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
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
    /// A process of ours is there.
    #[error(
        "admin.socket {path:?}: another process serves it, and has locked {:?}{}: end that process, or give this one an \
         admin.socket of its own",
        lock_file(path),
        holder.map(|holder| format!(" (its number is {holder})")).unwrap_or_default()
    )]
    Locked {
        /// The socket's path.
        path: PathBuf,
        /// The other process, as far as it has said.
        holder: Option<u32>,
    },
    /// A process answers there that knows nothing of locks.
    #[error(
        "admin.socket {0:?}: another process serves it: end that process, or give this one an admin.socket of its own"
    )]
    Taken(PathBuf),
    /// The file that keeps others away can't be made.
    #[error("admin.socket {path:?}: cannot lock {:?} beside it", lock_file(path))]
    Lock {
        /// The socket's path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
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
struct SocketFile {
    path: PathBuf,
    /// Given up last of all, by its drop. The file stays: who removed it could remove one that another has just locked.
    _lock: File,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Sockets {
    /// Listens, and serves nothing yet. What another process serves already is refused, so that a second balancer ends here.
    pub fn bind(socket: &Path, metrics: Option<SocketAddr>) -> Result<Sockets, ServerError> {
        let lock = lock(socket)?;
        let unix = listen(socket)?;
        let file = SocketFile { path: socket.to_owned(), _lock: lock };
        let sockets = Sockets { file, unix, tcp: None };
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

/// The file beside a socket that is locked for as long as a process serves it.
fn lock_file(socket: &Path) -> PathBuf {
    let mut path = socket.to_owned().into_os_string();
    path.push(".lock");
    path.into()
}

/// Keeps others away from a socket. Of those that start at once one gets it, and the kernel gives it back for who was killed.
fn lock(socket: &Path) -> Result<File, ServerError> {
    let failed = |source: io::Error| ServerError::Lock { path: socket.to_owned(), source };
    let mut options = File::options();
    let options = options.read(true).write(true).create(true).truncate(false);
    let options = options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let mut file = options.open(lock_file(socket)).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let _ = file.take(20).read_to_string(&mut text);
            let holder = text.trim().parse().ok();
            return Err(ServerError::Locked { path: socket.to_owned(), holder });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    // Who is refused can say by whom. A full disk takes only that.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// A socket of our own at a path that is ours. One that a dead process left is replaced; one at which somebody listens who knows
/// nothing of locks is not.
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
        if is_listened_at(path).map_err(failed)? {
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

/// Whether somebody listens at a socket. Does not wait for who hangs: when its queue is full, it has one.
fn is_listened_at(path: &Path) -> io::Result<bool> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(matches!(net::connect(&socket, &SocketAddrUnix::new(path)?), Ok(()) | Err(Errno::AGAIN)))
}

fn serve(unix: &UnixListener, tcp: Option<&TcpListener>, stopped: &UnixStream, control: &Arc<dyn Control>) {
    let busy = Arc::new(AtomicUsize::new(0));
    loop {
        let mut waiting = vec![PollFd::new(stopped, PollFlags::IN), PollFd::new(unix, PollFlags::IN)];
        waiting.extend(tcp.map(|tcp| PollFd::new(tcp, PollFlags::IN)));
        match poll(&mut waiting, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
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
pub(super) fn converse(mut stream: impl Read + Write, scope: Scope, control: &dyn Control) {
    let response = match Request::read(&mut stream) {
        Ok(Some(request)) => routes::answer(&request, scope, control),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Response::json(400, &serde_json::json!({"error": error.to_string()}))
        }
        _ => return,
    };
    let _ = response.write(&mut stream);
}
