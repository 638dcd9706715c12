//! Controllers for display: which are connected, in which role, since when, and what went wrong.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ofswitch::ConnectionId;
use openflow::Version;
use openflow::message::Role;

use crate::clock;
use crate::shared::SharedSwitch;
use crate::target::Target;

/// A controller's target and its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerState {
    /// Target.
    pub target: Target,
    /// Address on which a passive TCP target listens.
    pub address: Option<SocketAddr>,
    /// Connections: at most one of an active target.
    pub connections: Vec<PeerState>,
    /// Reason for the end of the last connection, or of the last attempt to connect or to listen; kept until the next.
    pub last_error: Option<String>,
    /// Time since connections last came or went.
    pub since: Duration,
    /// Connections refused because there were too many.
    pub refused: u64,
}

impl ControllerState {
    /// Whether a peer has said hello.
    pub fn is_connected(&self) -> bool {
        self.connections.iter().any(|peer| peer.version.is_some())
    }
}

/// A connection to a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerState {
    /// Address of the peer.
    pub peer: String,
    /// Version, once both sides have said hello.
    pub version: Option<Version>,
    /// Role.
    pub role: Role,
    /// Age of the connection.
    pub since: Duration,
    /// Asynchronous messages dropped because the peer reads too slowly.
    pub dropped: u64,
}

/// Time since a time on the clock.
fn since(time: u64) -> Duration {
    Duration::from_nanos(clock::now().saturating_sub(time))
}

/// What a target's tasks report.
#[derive(Debug)]
pub(crate) struct TargetState(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    address: Option<SocketAddr>,
    peers: BTreeMap<ConnectionId, (String, u64)>,
    last_error: Option<String>,
    /// Nanoseconds on the clock, as all times here.
    changed: u64,
    refused: u64,
}

impl TargetState {
    pub(crate) fn new() -> Self {
        TargetState(Mutex::new(Inner {
            address: None,
            peers: BTreeMap::new(),
            last_error: None,
            changed: clock::now(),
            refused: 0,
        }))
    }

    pub(crate) fn connected(&self, id: ConnectionId, peer: String) {
        let mut inner = self.lock();
        inner.changed = clock::now();
        inner.peers.insert(id, (peer, clock::now()));
    }

    pub(crate) fn disconnected(&self, id: ConnectionId) {
        let mut inner = self.lock();
        inner.changed = clock::now();
        inner.peers.remove(&id);
    }

    pub(crate) fn failed(&self, error: String) {
        self.lock().last_error = Some(error);
    }

    pub(crate) fn refused(&self) {
        self.lock().refused += 1;
    }

    pub(crate) fn listens(&self, address: Option<SocketAddr>) {
        self.lock().address = address;
    }

    pub(crate) fn show(&self, target: &Target, shared: &SharedSwitch) -> ControllerState {
        let inner = self.lock();
        let mut shown = ControllerState {
            target: target.clone(),
            address: inner.address,
            connections: vec![],
            last_error: inner.last_error.clone(),
            since: since(inner.changed),
            refused: inner.refused,
        };
        let peers = inner.peers.clone();
        drop(inner);
        shared.with(|switch, _| {
            shown.connections = peers
                .into_iter()
                .map(|(id, (peer, since))| PeerState {
                    peer,
                    version: switch.version(id),
                    role: switch.role(id).unwrap_or(Role::Equal),
                    since: self::since(since),
                    dropped: switch.dropped_messages(id),
                })
                .collect();
        });
        shown
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
