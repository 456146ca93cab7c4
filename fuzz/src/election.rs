//! What moves an election: adverts and everything else that a virtual router is told.

use crate::feed::Feed;
use crate::vrrp::mend_checksum;
use butler_lb::core::vrrp::{Advert, MULTICAST_V4, Output, Role, Router, Settings, Version};
use butler_lb::core::{MILLISECOND, NEVER, SECOND, Time};
use std::net::{IpAddr, Ipv4Addr};

const ROUTER_ID: u8 = 51;
/// Calls at one moment after which a timer must have moved on.
const PATIENCE: usize = 8;
/// Time stands still there: no machine runs for so long.
const END_OF_TIME: Time = 1 << 60;

/// What a machine does by what its router says.
struct Machine {
    router: Router,
    settings: Settings,
    now: Time,
    /// Whether the addresses are on it.
    has: bool,
    /// Whether it can speak: the last of the checks, as the agent has it.
    able: bool,
}

/// Settings, and events for one virtual router: time, adverts, checks, reloads, the end.
pub fn election(data: &[u8]) {
    let feed = &mut Feed::new(data);
    let settings = settings(feed);
    let now = feed.number(4);
    let router = Router::new(settings.clone(), now);
    let mut machine = Machine { router, settings, now, has: false, able: true };
    machine.tell_able();
    while !feed.is_empty() && machine.now < END_OF_TIME {
        machine.event(feed);
    }
}

fn settings(feed: &mut Feed<'_>) -> Settings {
    let kinds = feed.byte();
    let version = if kinds & 1 == 1 { Version::V2 } else { Version::V3 };
    let interval = match version {
        Version::V2 => feed.within(1, 255) * SECOND,
        Version::V3 => feed.within(1, 4095) * 10 * MILLISECOND,
    };
    Settings {
        version,
        router_id: ROUTER_ID,
        priority: feed.within(1, 254) as u8,
        interval,
        preempt: kinds & 2 == 2,
        preempt_delay: if kinds & 4 == 4 { feed.number(8) } else { feed.number(3) },
        source: peer(2),
        addresses: vec![Ipv4Addr::new(10, 0, 0, 100 + (kinds >> 6)).into()],
        tracks: (0..kinds >> 3 & 3).map(|_| feed.byte()).chain([0]).collect(),
        announcements: feed.within(1, 100) as u32,
    }
}

/// Two below, two above our own, which is the second.
fn peer(index: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 1 + index % 5).into()
}

impl Machine {
    fn event(&mut self, feed: &mut Feed<'_>) {
        let before = self.router.role();
        let kind = feed.byte();
        let outputs = match kind % 11 {
            0 => self.wait(feed.number(2) * 10, true),
            1 | 2 => self.wait(
                self.router.next_deadline().min(self.now + 100 * SECOND).saturating_sub(self.now),
                true,
            ),
            3 => self.wait(feed.number(4) * MILLISECOND, feed.flag()),
            4 | 5 => self.hear(feed),
            6 => {
                let (index, passes) = (usize::from(feed.byte() & 3), kind >= 128);
                if index + 1 == self.settings.tracks.len() {
                    self.able = passes;
                }
                self.router.on_track(index, passes, self.now)
            }
            7 => self.router.on_peer_down(peer(feed.byte()), self.now),
            8 => {
                self.router.on_doubtful_advert(kind >= 128, self.now);
                Vec::new()
            }
            9 => self.reconfigure(feed),
            _ if kind >= 200 => self.router.stop(self.now),
            _ => self.hear_bytes(feed),
        };
        self.obey(before, &outputs);
        self.moves_on();
    }

    fn wait(&mut self, span: Time, timer: bool) -> Vec<Output> {
        self.now += span;
        if timer { self.router.on_timer(self.now) } else { Vec::new() }
    }

    fn hear(&mut self, feed: &mut Feed<'_>) -> Vec<Output> {
        let from = peer(feed.byte());
        let mut advert = Advert {
            version: self.settings.version,
            router_id: ROUTER_ID,
            priority: feed.byte(),
            interval: self.settings.interval,
            addresses: self.settings.addresses.clone(),
        };
        match feed.byte() {
            0 => advert.router_id = feed.byte(),
            1 => advert.interval = feed.within(1, 4095) * 10 * MILLISECOND,
            _ => {}
        }
        self.router.on_advert(&advert, from, self.now)
    }

    fn hear_bytes(&mut self, feed: &mut Feed<'_>) -> Vec<Output> {
        let from = peer(feed.byte());
        let mut bytes = feed.take(16).to_vec();
        mend_checksum(&mut bytes, from, MULTICAST_V4.into(), false);
        match Advert::decode(&bytes, from, MULTICAST_V4.into()) {
            Ok(advert) => self.router.on_advert(&advert, from, self.now),
            Err(_) => Vec::new(),
        }
    }

    /// Which of the old checks each of the new ones is comes from the input too. The role may be one that no longer fits, until a
    /// check is told of: the agent does that within the same reload.
    fn reconfigure(&mut self, feed: &mut Feed<'_>) -> Vec<Output> {
        let settings = settings(feed);
        let old = self.settings.tracks.len() - 1;
        let mut same: Vec<Option<usize>> = Vec::new();
        same.extend(
            settings.tracks[1..].iter().map(|_| Some(usize::from(feed.byte())).filter(|index| *index < old)),
        );
        same.push(Some(old));
        self.settings = settings.clone();
        let mut outputs = self.router.reconfigure(settings, &same, self.now);
        outputs.extend(self.tell_able());
        outputs
    }

    fn tell_able(&mut self) -> Vec<Output> {
        self.router.on_track(self.settings.tracks.len() - 1, self.able, self.now)
    }

    /// Does what is said, in the order given, and sees that it makes sense.
    fn obey(&mut self, before: Role, outputs: &[Output]) {
        let mut role = before;
        for output in outputs {
            match output {
                Output::AddAddress => self.has = true,
                Output::DelAddress => self.has = false,
                Output::Announce => assert!(self.has, "announces what it has not: {outputs:?}"),
                Output::Become(new) => {
                    assert_ne!(*new, Role::Init);
                    role = *new;
                }
                Output::SendAdvert(advert) => {
                    assert!(self.has, "speaks for what it has not: {outputs:?}");
                    let (from, to) = (self.settings.source, MULTICAST_V4.into());
                    assert_eq!(Advert::decode(&advert.encode(from, to), from, to).as_ref(), Ok(advert));
                    let resigns = self.router.role() == Role::Resigning;
                    assert_eq!(
                        advert.priority == 0,
                        resigns,
                        "{:?} says {}",
                        self.router.role(),
                        advert.priority
                    );
                }
                Output::Ignored(_) => assert_eq!(outputs.len(), 1),
            }
        }
        assert_eq!(role, self.router.role(), "a change that was not told, or none that was: {outputs:?}");
        assert!(
            before != Role::Stopped
                || (role == before && outputs.iter().all(|o| matches!(o, Output::Ignored(_))))
        );
        assert_eq!(self.has, role.holds(), "{before:?} to {role:?}: {outputs:?}");
        let fit = self.router.priority().is_some();
        assert!(fit || !matches!(role, Role::Backup | Role::Master), "unfit, and {role:?}");
        assert!(!fit || role != Role::Fault, "fit, and at fault");
        if role.holds() {
            assert_eq!(self.router.holder().map(|(holder, _)| holder), Some(self.settings.source));
        }
    }

    /// A timer that is served comes to rest: no machine is kept busy at one moment.
    fn moves_on(&mut self) {
        for _ in 0..PATIENCE {
            if self.router.next_deadline() > self.now {
                return;
            }
            let before = self.router.role();
            let outputs = self.router.on_timer(self.now);
            self.obey(before, &outputs);
        }
        panic!("{:?} asks to be woken at {} for ever", self.router.role(), self.now);
    }
}

const _: () = assert!(END_OF_TIME < NEVER / 2);
