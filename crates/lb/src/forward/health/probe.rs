//! One check of one backend: connects, shakes hands, asks, looks at the answer. Never waits; the keeper polls its socket.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use rustix::event::PollFlags;
use rustls::{
    ClientConnection,
    pki_types::{IpAddr as NamedIp, ServerName},
};

use super::{super::sockets, target::Target};
use crate::config::CheckKind;

/// So much of an answer is looked at; a status line is far shorter.
const LONGEST_ANSWER: usize = 4096;

#[derive(Debug)]
pub(super) struct Probe {
    socket: TcpStream,
    target: Arc<Target>,
    stage: Stage,
    answer: Vec<u8>,
}

#[derive(Debug)]
enum Stage {
    Connecting(SocketAddr),
    Talking { tls: Box<ClientConnection>, asked: bool },
}

/// How far a check is.
#[derive(Debug)]
pub(super) enum Progress {
    Waiting,
    Done(Result<(), String>),
}

// === impl Probe ===

impl Probe {
    pub(super) fn begin(target: &Arc<Target>, backend: SocketAddr) -> Result<Self, String> {
        // Everything else stays, also the interface of a link-local address.
        let mut address = backend;
        address.set_port(target.port.unwrap_or(backend.port()));
        let socket = sockets::connect(address).map_err(|errno| errno.to_string())?;
        Ok(Self {
            socket: socket.into(),
            target: Arc::clone(target),
            stage: Stage::Connecting(address),
            answer: Vec::new(),
        })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// What its socket is to be polled for.
    pub(super) fn wants(&self) -> PollFlags {
        match &self.stage {
            Stage::Connecting(_) => PollFlags::OUT,
            Stage::Talking { tls, .. } if tls.wants_write() => PollFlags::OUT | PollFlags::IN,
            Stage::Talking { .. } => PollFlags::IN,
        }
    }

    /// Goes on as far as it can.
    pub(super) fn advance(&mut self) -> Progress {
        if let Stage::Connecting(address) = self.stage {
            match sockets::arrived(&self.socket) {
                Ok(false) => return Progress::Waiting,
                Ok(true) => {}
                Err(errno) => return Progress::Done(Err(errno.to_string())),
            }
            // It is short, and the first thing in the socket: there is room for it.
            if let Err(error) = self.socket.write_all(&self.target.preface) {
                return Progress::Done(Err(error.to_string()));
            }
            if self.target.kind == CheckKind::Tcp {
                return Progress::Done(Ok(()));
            }
            match self.shake_hands(address) {
                Ok(tls) => self.stage = Stage::Talking { tls: Box::new(tls), asked: false },
                Err(reason) => return Progress::Done(Err(reason)),
            }
        }
        match self.talk() {
            Ok(None) => Progress::Waiting,
            Ok(Some(result)) => Progress::Done(result),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Progress::Waiting,
            Err(error) => Progress::Done(Err(error.to_string())),
        }
    }

    fn shake_hands(&self, address: SocketAddr) -> Result<ClientConnection, String> {
        let name = match &self.target.server_name {
            Some(name) => name.clone(),
            None => ServerName::IpAddress(NamedIp::from(address.ip())),
        };
        let config = self.target.tls.as_ref().ok_or("no TLS settings")?.config();
        ClientConnection::new(config, name).map_err(|error| error.to_string())
    }

    fn talk(&mut self) -> std::io::Result<Option<Result<(), String>>> {
        let Stage::Talking { tls, asked } = &mut self.stage else { return Ok(None) };
        loop {
            while tls.wants_write() {
                tls.write_tls(&mut self.socket)?;
            }
            if !tls.is_handshaking() {
                if self.target.kind == CheckKind::Tls {
                    tls.send_close_notify();
                    // A good check does not become a bad one because a farewell is not heard.
                    let _ = tls.write_tls(&mut self.socket);
                    return Ok(Some(Ok(())));
                }
                if !*asked {
                    *asked = true;
                    tls.writer().write_all(self.target.request().as_bytes())?;
                    continue;
                }
                if let Some(result) = hear(tls, &mut self.answer, &self.target)? {
                    return Ok(Some(result));
                }
            }
            if tls.read_tls(&mut self.socket)? == 0 {
                return Ok(Some(Err("the connection ended before the answer".to_owned())));
            }
            if let Err(error) = tls.process_new_packets() {
                // The other side learns why.
                let _ = tls.write_tls(&mut self.socket);
                return Ok(Some(Err(error.to_string())));
            }
        }
    }
}

/// Takes what was decrypted, and judges it when the status is there.
fn hear(
    tls: &mut ClientConnection,
    answer: &mut Vec<u8>,
    target: &Target,
) -> std::io::Result<Option<Result<(), String>>> {
    let mut buffer = [0; 1024];
    while answer.len() < LONGEST_ANSWER {
        match tls.reader().read(&mut buffer) {
            Ok(0) => return Ok(Some(judge(answer, target).unwrap_or_else(|| Err("no answer".to_owned())))),
            Ok(count) => answer.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    match judge(answer, target) {
        None if answer.len() >= LONGEST_ANSWER => Ok(Some(Err("the answer is not HTTP".to_owned()))),
        result => Ok(result),
    }
}

/// `None`: the status line is not whole yet.
fn judge(answer: &[u8], target: &Target) -> Option<Result<(), String>> {
    let end = answer.iter().position(|byte| *byte == b'\n')?;
    let line = String::from_utf8_lossy(&answer[..end]);
    let mut words = line.split_ascii_whitespace();
    let status = match (words.next(), words.next().and_then(|word| word.parse::<u16>().ok())) {
        (Some(version), Some(status)) if version.starts_with("HTTP/1.") => status,
        _ => return Some(Err("the answer is not HTTP".to_owned())),
    };
    Some(if target.is_good(status) { Ok(()) } else { Err(format!("status {status}")) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HealthCheck, ProxyProtocol};

    #[test]
    fn a_backend_that_expects_a_proxy_header_gets_one_from_checks_too() {
        use crate::core::proxy::{Header, Parsed, parse};
        for (kind, proxy, port) in [
            (CheckKind::Tls, ProxyProtocol::V1, false),
            (CheckKind::Https, ProxyProtocol::V2, false),
            (CheckKind::Tcp, ProxyProtocol::V2, false),
            (CheckKind::Tls, ProxyProtocol::V2, true),
        ] {
            let backend = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = backend.local_addr().unwrap();
            let check = HealthCheck {
                kind: Some(kind),
                port: port.then_some(address.port()),
                ..HealthCheck::default()
            };
            let mut probe = Probe::begin(&Arc::new(Target::new(&check, proxy).unwrap()), address).unwrap();
            let (mut stream, _) = backend.accept().unwrap();
            let result = probe.advance();
            assert_eq!(matches!(result, Progress::Done(Ok(()))), kind == CheckKind::Tcp, "{result:?}");
            drop(probe);
            let mut heard = Vec::new();
            // It may be cut: there is no answer.
            let _ = stream.read_to_end(&mut heard);
            let rest = match parse(&heard) {
                Ok(Parsed::Complete(Header::Local, end)) if !port => &heard[end..],
                _ if port => &heard[..],
                other => panic!("{other:?}: {heard:?}"),
            };
            // A handshake begins with this.
            assert_eq!(rest.first().copied(), (kind != CheckKind::Tcp).then_some(0x16), "{heard:?}");
        }
    }

    #[test]
    fn answers_are_judged_by_their_status() {
        let any = Target::new(&HealthCheck::default(), ProxyProtocol::None).unwrap();
        let some =
            Target::new(&HealthCheck { statuses: vec![401], ..HealthCheck::default() }, ProxyProtocol::None)
                .unwrap();
        for (answer, with_any, with_some) in [
            ("HTTP/1.1 200 OK\r\n", Some(true), Some(false)),
            ("HTTP/1.0 204 No Content\r\n", Some(true), Some(false)),
            ("HTTP/1.1 401 Unauthorized\r\n", Some(false), Some(true)),
            ("HTTP/1.1 500 Internal Server Error\r\nx: y\r\n", Some(false), Some(false)),
            ("HTTP/1.1 200", None, None),
            ("SSH-2.0-x 200\r\n", Some(false), Some(false)),
            ("\n", Some(false), Some(false)),
        ] {
            assert_eq!(judge(answer.as_bytes(), &any).map(|r| r.is_ok()), with_any, "{answer}");
            assert_eq!(judge(answer.as_bytes(), &some).map(|r| r.is_ok()), with_some, "{answer}");
        }
    }
}
