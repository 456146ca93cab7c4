//! The handle of the thread that holds virtual addresses.

use super::agent::{Agent, Command};
use super::apiserver;
use super::capabilities::missing_capabilities;
use super::machine::Machine;
use super::member::Prepared;
use super::resets::Resets;
use super::seal::SealKeys;
use super::status::{Failed, VipStatus};
use super::track::{Probe, Tracks};
use super::wake::Waker;
use crate::config::{Vip, parse_prefix};
use std::net::IpAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// Whether a listener of ours, by its name, accepts connections and has a healthy backend. It must answer at once.
pub type ListenerReady = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Is told of addresses that this machine had and another one is known to have now, while the process goes on: their clients are
/// that one's. An address that nobody has is not told of: it may be back here in a moment.
pub type Lost = Arc<dyn Fn(&[IpAddr]) + Send + Sync>;

/// What a reload changes, with everything done that could fail.
#[derive(Debug)]
pub struct Change(Vec<Prepared>);

/// The virtual addresses of this machine. When it is dropped they are handed over to a peer.
#[derive(Debug)]
pub struct Vips {
    commands: mpsc::Sender<Command>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Vips {
    /// Takes part in the election of these addresses. Nothing is refused because an interface is not there yet; what stands
    /// in the way is in the status.
    pub fn start(vips: &[Vip], listener_ready: ListenerReady) -> Result<Self, Failed> {
        Self::start_telling(vips, listener_ready, Arc::new(|_| ()))
    }

    /// The same, for one that wants to know which addresses are lost.
    pub fn start_telling(vips: &[Vip], listener_ready: ListenerReady, lost: Lost) -> Result<Self, Failed> {
        check_capabilities(vips)?;
        let waker = Waker::new().map_err(Failed::system("make an event"))?;
        let prepared = prepare_all(vips, &waker)?;
        let machine = Machine::look().map_err(Failed::system("ask for interfaces and addresses"))?;
        let thread_failed = |source| Failed::System { operation: "start a thread", source };
        let resets = Resets::start(lost).map_err(thread_failed)?;
        let (commands, receiver) = mpsc::channel();
        let agent = Agent::new(receiver, waker.clone(), machine, resets, listener_ready);
        let thread = std::thread::Builder::new()
            .name("vip".to_owned())
            .spawn(move || agent.run())
            .map_err(thread_failed)?;
        let handle = Self { commands, waker, thread: Some(thread) };
        handle.send_reload(prepared)?;
        Ok(handle)
    }

    /// Takes part in the election of exactly these. Those that stay keep their role; those that go are handed over. On an
    /// error everything is as it was.
    pub fn reload(&self, vips: &[Vip]) -> Result<(), Failed> {
        self.commit(self.prepare(vips)?)
    }

    /// The first half of a reload: everything that can be refused. Nothing has changed yet.
    pub fn prepare(&self, vips: &[Vip]) -> Result<Change, Failed> {
        check_capabilities(vips)?;
        prepare_all(vips, &self.waker).map(Change)
    }

    /// The second half. It fails only where the thread is gone.
    pub fn commit(&self, change: Change) -> Result<(), Failed> {
        self.send_reload(change.0)
    }

    fn send_reload(&self, prepared: Vec<Prepared>) -> Result<(), Failed> {
        let (done, is_done) = mpsc::channel();
        self.send(Command::Reload(prepared, done))?;
        is_done.recv().map_err(|_| Failed::Ended)
    }

    /// How it stands with every address.
    pub fn status(&self) -> Vec<VipStatus> {
        let (reply, status) = mpsc::channel();
        match self.send(Command::Status(reply)) {
            Ok(()) => status.recv().unwrap_or_default(),
            Err(_) => Vec::new(),
        }
    }

    /// Hands every address over to a peer and waits until it has been taken, or nobody takes it. What answers at the
    /// addresses is to run until then.
    pub fn stop(mut self) {
        self.end();
    }

    fn send(&self, command: Command) -> Result<(), Failed> {
        self.commands.send(command).map_err(|_| Failed::Ended)?;
        self.waker.wake();
        Ok(())
    }

    fn end(&mut self) {
        let _ = self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Vips {
    fn drop(&mut self) {
        self.end();
    }
}

fn check_capabilities(vips: &[Vip]) -> Result<(), Failed> {
    if vips.is_empty() {
        return Ok(());
    }
    // Low ports are the listeners' business.
    let names: Vec<_> =
        missing_capabilities()?.into_iter().filter(|name| *name != "NET_BIND_SERVICE").collect();
    if names.is_empty() { Ok(()) } else { Err(Failed::Capabilities { names }) }
}

fn prepare_all(vips: &[Vip], waker: &Waker) -> Result<Vec<Prepared>, Failed> {
    let probe: Probe = Arc::new(apiserver::is_ready);
    vips.iter().map(|vip| prepare(vip, &probe, waker)).collect()
}

fn prepare(vip: &Vip, probe: &Probe, waker: &Waker) -> Result<Prepared, Failed> {
    let (keys, connection_keys) = match &vip.sign {
        None => (None, None),
        Some(sign) => (Some(read_keys(vip, &sign.key_file)?), Some(read_keys(vip, &sign.key_file)?)),
    };
    let thread_failed = |source| Failed::System { operation: "start a thread", source };
    Ok(Prepared {
        addresses: read_addresses(vip)?,
        keys,
        connection_keys,
        tracks: Tracks::new(&vip.track, probe, waker).map_err(thread_failed)?,
        config: vip.clone(),
    })
}

fn read_keys(vip: &Vip, path: &str) -> Result<SealKeys, Failed> {
    let failed = |reason: String| Failed::Keys { vip: vip.name.clone(), path: path.to_owned(), reason };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    SealKeys::parse(&text).map_err(|error| failed(error.to_string()))
}

fn read_addresses(vip: &Vip) -> Result<Vec<(IpAddr, u8)>, Failed> {
    let parsed = vip.addresses.iter().map(|text| {
        parse_prefix(text).ok_or_else(|| Failed::Address { vip: vip.name.clone(), address: text.clone() })
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn vip(extra: &str) -> Vip {
        let text = format!(
            r#"{{"vips": [{{"name": "api", "addresses": ["10.0.0.9/32"], "interface": "lo", "routerId": 1{extra}}}]}}"#
        );
        serde_json::from_str::<Config>(&text).unwrap().vips.remove(0)
    }

    #[test]
    fn what_is_wrong_is_said_before_anything_starts() {
        let waker = Waker::new().unwrap();
        let refused = |vip: Vip| prepare_all(&[vip], &waker).unwrap_err().to_string();
        assert_eq!(
            refused(Vip { addresses: vec!["10.0.0.9/33".to_owned()], ..vip("") }),
            "vip api: \"10.0.0.9/33\" is not an address"
        );
        let missing = refused(vip(r#", "sign": {"keyFile": "/nonexistent/keys"}"#));
        assert!(missing.starts_with("vip api: the key file /nonexistent/keys: "), "{missing}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        std::fs::write(&path, "1 c2hvcnQ=\n").unwrap();
        let weak = refused(vip(&format!(r#", "sign": {{"keyFile": "{}"}}"#, path.display())));
        assert!(weak.contains("line 1") && !weak.contains("c2hvcnQ"), "{weak}");
    }

    #[test]
    fn nothing_to_hold_needs_nothing() {
        let vips = Vips::start(&[], Arc::new(|_| true)).unwrap();
        assert_eq!(vips.status(), []);
        vips.reload(&[]).unwrap();
        vips.stop();
    }
}
