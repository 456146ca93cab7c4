//! Puts a configuration into force: everything that can fail is done first, so that a configuration that does not work
//! changes nothing.

use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
};

use super::{
    balancer::{Handle, StartError},
    health::{Kept, Target},
    inbox::Command,
    settings::{self, Settings},
    shared::Shared,
    sockets,
};
use crate::{
    config,
    core::{Pool, SECOND},
};

#[derive(Default)]
pub(super) struct State {
    pub(super) serving: Vec<Serving>,
    /// Nothing is served any more, and the threads are about to go: who gave them an order would wait for ever.
    pub(super) stopping: bool,
    /// The id of the next listener.
    next: u32,
}

/// A listener that is served.
pub(super) struct Serving {
    pub(super) shared: Arc<Shared>,
    pub(super) settings: Arc<Settings>,
    /// As configured, and as bound.
    pub(super) binds: Vec<(SocketAddr, SocketAddr)>,
    /// How long the last connections may stay when it goes, in seconds.
    delay: u64,
}

/// A listener that is ready to be served.
struct Prepared<'a> {
    config: &'a config::Listener,
    settings: Arc<Settings>,
    target: Arc<Target>,
    /// Only for addresses that are new.
    bound: Vec<Bound>,
    /// Addresses of a listener that gives them up now, as configured and as bound.
    adopted: Vec<(SocketAddr, SocketAddr)>,
    /// Whether one of those was ready.
    takes_over_ready: bool,
}

/// Sockets of one address, one for each thread.
pub(super) struct Bound {
    configured: SocketAddr,
    actual: SocketAddr,
    sockets: Vec<OwnedFd>,
}

impl Handle {
    pub(super) fn apply(&self, config: &config::Config) -> Result<(), StartError> {
        let mut state = self.state.lock();
        if state.stopping {
            return Err(StartError::Stopping);
        }
        let prepared = config
            .listeners
            .iter()
            .map(|listener| self.prepare(listener, config, &state))
            .collect::<Result<Vec<_>, _>>()?;
        // From here on nothing fails. What changes hands is out of its old listener before that one closes what it does not keep.
        for serving in &state.serving {
            let given_up = |(configured, _): &&(SocketAddr, SocketAddr)| {
                prepared.iter().any(|new| new.adopted.iter().any(|(adopted, _)| adopted == configured))
            };
            let addresses: Vec<_> = serving.binds.iter().filter(given_up).map(|(is, _)| *is).collect();
            if !addresses.is_empty() {
                let listener = serving.shared.id;
                self.inboxes.tell_all(|_| Command::SetAside { listener, addresses: addresses.clone() });
            }
        }
        let mut old = std::mem::take(&mut state.serving);
        let mut kept = Vec::new();
        for prepared in prepared {
            let known = old.iter().position(|serving| serving.shared.name == prepared.config.name);
            let known = known.map(|place| old.swap_remove(place));
            let target = Arc::clone(&prepared.target);
            let serving = self.put_into_force(prepared, known, &mut state.next);
            kept.push(Kept { shared: Arc::clone(&serving.shared), target, leaves: None });
            state.serving.push(serving);
        }
        // Those that go now are still asked for by their names until who asks was told, too.
        let known = state.serving.iter().chain(&old).map(|serving| Arc::clone(&serving.shared)).collect();
        *self.known.write() = known;
        self.retire(old, kept);
        Ok(())
    }

    fn prepare<'a>(
        &self,
        listener: &'a config::Listener,
        config: &config::Config,
        state: &State,
    ) -> Result<Prepared<'a>, StartError> {
        let name = || listener.name.clone();
        let settings =
            Settings::new(listener).map_err(|text| StartError::Network { listener: name(), text })?;
        let target = Target::new(&listener.health, listener.send_proxy)
            .map_err(|source| StartError::Health { listener: name(), source })?;
        let known = state.serving.iter().find(|serving| serving.shared.name == listener.name);
        let is_bound =
            |address: &SocketAddr| known.is_some_and(|known| known.binds.iter().any(|(is, _)| is == address));
        let new: Vec<SocketAddr> =
            listener.bind.iter().filter(|address| !is_bound(address)).copied().collect();
        let mut bound = Vec::new();
        let mut adopted = Vec::new();
        let mut takes_over_ready = false;
        for address in new {
            match giver(address, config, state) {
                Some((serving, actual)) => {
                    takes_over_ready |= serving.shared.is_ready();
                    adopted.push((address, actual));
                }
                None => bound.push(self.bind(listener, address)?),
            }
        }
        let (settings, target) = (Arc::new(settings), Arc::new(target));
        Ok(Prepared { config: listener, settings, target, bound, adopted, takes_over_ready })
    }

    /// One socket for each thread. The first one says which port it is, if any will do.
    fn bind(&self, listener: &config::Listener, configured: SocketAddr) -> Result<Bound, StartError> {
        let failed =
            |source| StartError::Listen { listener: listener.name.clone(), address: configured, source };
        let liveness = settings::liveness(listener);
        let first = sockets::listen(configured, liveness).map_err(failed)?;
        let actual = sockets::local(&first).unwrap_or(configured);
        let mut sockets = vec![first];
        while sockets.len() < self.inboxes.each().len() {
            sockets.push(sockets::listen(actual, liveness).map_err(failed)?);
        }
        Ok(Bound { configured, actual, sockets })
    }

    fn put_into_force(&self, prepared: Prepared<'_>, known: Option<Serving>, next: &mut u32) -> Serving {
        let now = self.clock.now();
        let Prepared { config, settings, bound, adopted, takes_over_ready, .. } = prepared;
        let (shared, mut binds) = match known {
            Some(known) => {
                known.shared.reload(config, now);
                (known.shared, known.binds)
            }
            None => {
                let id = *next;
                *next += 1;
                // Listeners with the same backends are not to check them all in the same moment.
                let pool = Pool::new(config, self.seed.wrapping_add(u64::from(id)), now);
                let (inboxes, bell) = (Arc::clone(&self.inboxes), Arc::clone(&self.charge.bell));
                let shared = Shared::new(id, &config.name, pool, inboxes, bell);
                if takes_over_ready {
                    shared.inherit_readiness();
                }
                (Arc::new(shared), Vec::new())
            }
        };
        binds.retain(|(configured, _)| config.bind.contains(configured));
        let keep: Vec<_> = binds.iter().map(|(configured, _)| *configured).collect();
        binds.extend(bound.iter().map(|bound| (bound.configured, bound.actual)));
        let adopt: Vec<_> = adopted.iter().map(|(configured, _)| *configured).collect();
        binds.extend(adopted);
        self.serve(&shared, &settings, &keep, &adopt, bound);
        Serving { shared, settings, binds, delay: config.deregistration_delay }
    }

    /// Listeners that are gone take no more connections; those that they have may end in their own time.
    fn retire(&self, old: Vec<Serving>, mut kept: Vec<Kept>) {
        let now = self.clock.now();
        let mut charge = self.charge.kept.lock();
        for leaving in charge.drain(..) {
            if leaving.leaves.is_some() {
                kept.push(leaving);
            } else if let Some(serving) =
                old.iter().find(|serving| Arc::ptr_eq(&serving.shared, &leaving.shared))
            {
                let leaves = Some(now.saturating_add(serving.delay.saturating_mul(SECOND)));
                kept.push(Kept { leaves, ..leaving });
            }
        }
        *charge = kept;
        drop(charge);
        for serving in old {
            self.serve(&serving.shared, &serving.settings, &[], &[], Vec::new());
        }
        self.charge.bell.ring();
    }

    /// Has all threads serve a listener, and waits until they do.
    pub(super) fn serve(
        &self,
        shared: &Arc<Shared>,
        settings: &Arc<Settings>,
        keep: &[SocketAddr],
        adopt: &[SocketAddr],
        bound: Vec<Bound>,
    ) {
        let (done, all_done) = mpsc::channel();
        // The first thread has the first socket of every address, as steering takes it to be. They stay in this order as long as no
        // other process listens there too; with one, it is only other threads that are used first.
        let mut bound: Vec<_> =
            bound.into_iter().map(|bound| (bound.configured, bound.sockets.into_iter())).collect();
        self.inboxes.tell_all(|_| Command::Serve {
            shared: Arc::clone(shared),
            settings: Arc::clone(settings),
            keep: keep.to_vec(),
            adopt: adopt.to_vec(),
            sockets: bound.iter_mut().filter_map(|(at, sockets)| Some((*at, sockets.next()?))).collect(),
            done: done.clone(),
        });
        drop(done);
        all_done.iter().for_each(drop);
    }
}

/// The listener that has an address now and gives it up, and where it is really bound. Its sockets are handed on, so that the
/// clients that wait at them lose nothing.
fn giver<'a>(
    address: SocketAddr,
    config: &config::Config,
    state: &'a State,
) -> Option<(&'a Serving, SocketAddr)> {
    // Any port is another one each time.
    if address.port() == 0 {
        return None;
    }
    let keeps = |serving: &Serving| {
        let same = config.listeners.iter().find(|listener| listener.name == serving.shared.name);
        same.is_some_and(|listener| listener.bind.contains(&address))
    };
    let givers = state.serving.iter().filter(|serving| !keeps(serving));
    givers
        .flat_map(|serving| serving.binds.iter().map(move |(is, actual)| (serving, *is, *actual)))
        .find(|(_, configured, _)| *configured == address)
        .map(|(serving, _, actual)| (serving, actual))
}
