//! The reservations of a bridge: who holds which endpoints, and the sockets that keep the host off them.
//!
//! A ledger outlives a logic: when `three-tuple` replaces itself with other parameters, reservations, held sockets and
//! connections of clients stay ([`super::office`]).
//!
//! Invariants: two reservations never overlap; the [`Lookup`] has exactly the endpoints of the reservations; the state
//! is never locked during a system call.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use fabric::PortIndex;
use packet::MacAddr;

use super::hold::{HoldError, hold};
use super::lookup::{Lookup, Space, SpaceKey, number};
use super::policy::Policy;
use super::request::Endpoints;
use crate::fragments::Fragments;

/// Pairs of protocol and address with reservations, at most; each takes 128 KiB.
const MAX_SPACES: usize = 64;
/// Reservations of a bridge, at most.
pub(super) const MAX_RESERVATIONS: usize = 4096;

/// What a logic's parameters say about reservations.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Terms {
    /// Name of the port of the host's stack.
    pub(super) host: String,
    /// Name of the port to the outside.
    pub(super) uplink: String,
    /// Network namespace of the host; `None`: the daemon's.
    pub(super) netns: Option<PathBuf>,
    /// Reserved local ports, at most.
    pub(super) max_ports: usize,
    /// Clients of the socket and their rights.
    pub(super) policy: Policy,
}

/// The one who reserves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Client {
    /// Number of the connection; 0 for commands of operators.
    pub(super) id: u64,
    /// Description for people.
    pub(super) name: String,
}

impl Client {
    /// Operators, who use `mswitch logic call`.
    pub(super) fn operator() -> Self {
        Self { id: 0, name: "an operator".into() }
    }
}

/// A reservation. Dropping it lets the host use the endpoints again.
struct Reservation {
    port_name: String,
    port: PortIndex,
    endpoints: Endpoints,
    client: Client,
    /// Empty if the host's kernel does not have the protocol.
    sockets: Vec<OwnedFd>,
}

/// A reservation, for tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) port: String,
    pub(super) endpoints: Endpoints,
    pub(super) client: String,
    /// Whether sockets keep the host off.
    pub(super) is_held: bool,
}

/// Reasons for not reserving or releasing endpoints.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("the bridge has no port `{0}`")]
    NoPort(String),
    #[error("port `{0}` is the {1} port; a reservation needs a port of its own")]
    Role(String, &'static str),
    #[error("{taken} is reserved for port `{port}` by {client}")]
    Taken { taken: Endpoints, port: String, client: String },
    #[error("{0} is more than the {1} local ports that may still be reserved; `max-ports` is {2}")]
    Full(Endpoints, usize, usize),
    #[error("the bridge has {MAX_RESERVATIONS} reservations, as many as it may have")]
    TooMany,
    #[error("{MAX_SPACES} pairs of protocol and address have reservations, as many as may have")]
    TooManyAddresses,
    #[error("port `{0}` has no reservation of exactly {1}{2}")]
    NotReserved(String, Endpoints, &'static str),
    #[error("the bridge no longer uses the logic `three-tuple`")]
    Closed,
    #[error("the parameters of the logic have changed meanwhile; try again")]
    Changed,
    #[error(transparent)]
    Hold(#[from] HoldError),
}

#[derive(Default)]
struct State {
    terms: Arc<Terms>,
    ports: BTreeMap<String, PortIndex>,
    reservations: Vec<Reservation>,
    spaces: BTreeMap<SpaceKey, Arc<Space>>,
    is_closed: bool,
}

/// The reservations of a bridge. See the module.
pub(super) struct Ledger {
    state: Mutex<State>,
    /// Held while endpoints are being reserved, so that no two reservations race for the same ones.
    reserving: Mutex<()>,
    lookup: ArcSwap<Lookup>,
    /// The host's MAC address, as its packets have it; 0: not known yet.
    mac: AtomicU64,
    /// Fragments from the uplink and the host.
    pub(super) inbound: Fragments,
    /// Fragments from stacks.
    pub(super) outbound: Fragments,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            reserving: Mutex::default(),
            lookup: ArcSwap::default(),
            mac: AtomicU64::new(0),
            inbound: Fragments::default(),
            outbound: Fragments::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the reserved endpoints, for a batch.
    #[inline]
    pub(super) fn lookup(&self) -> arc_swap::Guard<Arc<Lookup>> {
        self.lookup.load()
    }

    /// Returns the host's MAC address; `None` until it is known.
    #[inline]
    pub(super) fn mac(&self) -> Option<MacAddr> {
        Some(self.mac.load(Relaxed)).filter(|mac| *mac != 0).map(MacAddr::from_u64)
    }

    /// Sets the host's MAC address.
    pub(super) fn set_mac(&self, mac: MacAddr) {
        self.mac.store(mac.to_u64(), Relaxed);
    }

    /// Returns the terms in effect.
    pub(super) fn terms(&self) -> Arc<Terms> {
        self.lock().terms.clone()
    }

    /// Puts other terms into effect, for reservations from now on; ends those of ports that are the host's or the
    /// uplink now, and those that are held in another namespace.
    pub(super) fn set_terms(&self, terms: Arc<Terms>) {
        // First the terms: what is being reserved meanwhile has to meet them.
        let before = std::mem::replace(&mut self.lock().terms, terms.clone());
        let has_moved = before.netns != terms.netns;
        self.remove_if(|it| has_moved || it.port_name == terms.host || it.port_name == terms.uplink);
    }

    /// Tells the ports of the bridge.
    pub(super) fn set_ports(&self, ports: impl Iterator<Item = (String, PortIndex)>) {
        self.lock().ports = ports.collect();
    }

    /// Reserves endpoints for a port.
    pub(super) fn reserve(&self, client: &Client, port: &str, endpoints: Endpoints) -> Result<(), Refusal> {
        let _alone = self.reserving.lock().unwrap_or_else(PoisonError::into_inner);
        let terms = {
            let state = self.lock();
            state.check(port, &endpoints)?;
            state.terms.clone()
        };
        let sockets = hold(terms.netns.as_deref(), &endpoints)?;
        let mut state = self.lock();
        // The port may have been removed since.
        let at = state.check(port, &endpoints)?;
        if state.terms.netns != terms.netns {
            return Err(Refusal::Changed);
        }
        let space = state.spaces.entry(key(&endpoints)).or_insert_with(|| Arc::new(Space::new()));
        space.set(endpoints.ports.iter(), at);
        let (port_name, client) = (port.to_owned(), client.clone());
        state.reservations.push(Reservation { port_name, port: at, endpoints, client, sockets });
        self.publish(&state);
        Ok(())
    }

    /// Releases endpoints that a client reserved; operators release anyone's.
    pub(super) fn release(&self, client: &Client, port: &str, endpoints: Endpoints) -> Result<(), Refusal> {
        let whose = if client.id == 0 { "" } else { " by this client" };
        let is_it = |it: &Reservation| {
            it.port_name == port && it.endpoints == endpoints && (client.id == 0 || it.client.id == client.id)
        };
        match self.remove_if(is_it) {
            0 => Err(Refusal::NotReserved(port.into(), endpoints, whose)),
            _ => Ok(()),
        }
    }

    /// Releases all that a client reserved.
    pub(super) fn release_client(&self, id: u64) {
        self.remove_if(|it| it.client.id == id);
    }

    /// Releases all of a port.
    pub(super) fn release_port(&self, port: PortIndex) {
        self.remove_if(|it| it.port == port);
        self.inbound.forget(port.0);
        self.outbound.forget(port.0);
    }

    /// Releases all, and refuses further reservations.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.remove_if(|_| true);
    }

    fn remove_if(&self, is_gone: impl Fn(&Reservation) -> bool) -> usize {
        let mut state = self.lock();
        let (gone, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.reservations).into_iter().partition(is_gone);
        state.reservations = kept;
        if gone.is_empty() {
            return 0;
        }
        for it in &gone {
            if let Some(space) = state.spaces.get(&key(&it.endpoints)) {
                space.set(it.endpoints.ports.iter(), PortIndex::NONE);
            }
        }
        let State { spaces, reservations, .. } = &mut *state;
        spaces.retain(|space, _| reservations.iter().any(|it| key(&it.endpoints) == *space));
        self.publish(&state);
        drop(state);
        // Sockets are closed without the lock.
        gone.len()
    }

    fn publish(&self, state: &State) {
        let spaces = state.spaces.iter().map(|(key, space)| (*key, space.clone()));
        let holders = state.reservations.iter().map(|it| (number(it.endpoints.address), it.port));
        self.lookup.store(Arc::new(Lookup::new(spaces, holders)));
    }

    /// Lists the reservations, oldest first.
    pub(super) fn entries(&self) -> Vec<Entry> {
        let entry = |it: &Reservation| Entry {
            port: it.port_name.clone(),
            endpoints: it.endpoints,
            client: it.client.name.clone(),
            is_held: !it.sockets.is_empty(),
        };
        self.lock().reservations.iter().map(entry).collect()
    }

    /// Returns the number of reservations of a client.
    pub(super) fn count_of(&self, id: u64) -> usize {
        self.lock().reservations.iter().filter(|it| it.client.id == id).count()
    }

    /// Returns the ports of the bridge.
    pub(super) fn ports(&self) -> BTreeMap<String, PortIndex> {
        self.lock().ports.clone()
    }

    /// Returns the number of reserved local ports of each port that has any.
    pub(super) fn ports_reserved(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for it in &self.lock().reservations {
            *counts.entry(it.port_name.clone()).or_default() += it.endpoints.ports.count();
        }
        counts
    }
}

impl State {
    /// Returns the port for which endpoints may be reserved.
    fn check(&self, port: &str, endpoints: &Endpoints) -> Result<PortIndex, Refusal> {
        if self.is_closed {
            return Err(Refusal::Closed);
        }
        let at = *self.ports.get(port).ok_or_else(|| Refusal::NoPort(port.into()))?;
        for (role, name) in [("host", &self.terms.host), ("uplink", &self.terms.uplink)] {
            if name == port {
                return Err(Refusal::Role(port.into(), role));
            }
        }
        if let Some(other) = self.reservations.iter().find(|it| it.endpoints.overlap(endpoints)) {
            let Reservation { endpoints: taken, port_name, client, .. } = other;
            return Err(Refusal::Taken {
                taken: *taken,
                port: port_name.clone(),
                client: client.name.clone(),
            });
        }
        let used: usize = self.reservations.iter().map(|it| it.endpoints.ports.count()).sum();
        let free = self.terms.max_ports.saturating_sub(used);
        if endpoints.ports.count() > free {
            return Err(Refusal::Full(*endpoints, free, self.terms.max_ports));
        }
        if self.reservations.len() >= MAX_RESERVATIONS {
            return Err(Refusal::TooMany);
        }
        if self.spaces.len() >= MAX_SPACES && !self.spaces.contains_key(&key(endpoints)) {
            return Err(Refusal::TooManyAddresses);
        }
        Ok(at)
    }
}

fn key(endpoints: &Endpoints) -> SpaceKey {
    (number(endpoints.address), endpoints.protocol.number())
}
