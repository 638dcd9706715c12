//! The switch: connections and ports around the control side.
//!
//! - `requests.rs`: what controllers ask; `statistics.rs`: multipart replies; `bundles.rs`, `monitors.rs`: these;
//! - `packets.rs`: packets through the program, packet-in and packet-out; `notices.rs`: what controllers are told;
//! - `features.rs`: what tables can do; `translate.rs`: matches and actions in a connection's version;
//! - `plane.rs`: for those that run the program themselves; `rehearsal.rs`: what would happen to a packet;
//! - `saved.rs`: what outlives the switch; `usage.rs`: limits and their use.

mod bundles;
mod classify;
mod dependencies;
mod features;
mod monitors;
mod notices;
mod packets;
mod pauses;
mod plane;
mod rehearsal;
mod requests;
mod saved;
mod statistics;
mod translate;
mod usage;

use std::collections::BTreeMap;

use openflow::error::{ErrorCode, reply};
use openflow::message::{Body, Header, Hello, Role, Versions};
use openflow::{Message, PortNo, Version};

use crate::buffers::Buffers;
use crate::connection::{Connection, ConnectionId, ConnectionKind, FlowModCounts};
use crate::datapath::Datapath;
use crate::ports::{PortEntry, PortInfo};
use crate::settings::Settings;
use crate::tables::Miss;

pub use dependencies::Dependency;
pub use packets::{Effect, Sample};
pub use plane::TableSummary;
pub use rehearsal::{Rehearsal, Step};
pub(crate) use saved::group_mods;
pub use saved::{RestoreError, Saved, Snapshot};
pub use usage::{Limit, PerWhat};

/// A port that cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The number is reserved, 0, or beyond 0xfeff.
    #[error("port numbers are 1 to 65279, or that of the local port")]
    Number,
    /// There are as many as [`crate::Limits::ports`].
    #[error("there are too many ports")]
    TooMany,
}

/// An OpenFlow switch.
#[derive(Debug)]
pub struct Switch {
    settings: Settings,
    datapath: Datapath,
    ports: BTreeMap<u32, PortEntry>,
    connections: BTreeMap<ConnectionId, Connection>,
    next_connection: u64,
    buffers: Buffers,
    pauses: pauses::Pauses,
    /// Treatment of fragments, in the low two bits.
    config: u16,
    /// The largest generation id of roles so far.
    generation: Option<u64>,
    random: u64,
    effects: Vec<Effect>,
}

impl Switch {
    /// A switch without ports, connections and flows.
    pub fn new(settings: Settings) -> Self {
        Switch {
            datapath: Datapath::configured(&settings),
            ports: BTreeMap::new(),
            connections: BTreeMap::new(),
            next_connection: 0,
            buffers: Buffers::new(settings.limits.buffers),
            pauses: pauses::Pauses::default(),
            config: 0,
            generation: None,
            random: settings.seed,
            effects: Vec::new(),
            settings,
        }
    }

    /// Changes the settings. Flows, groups and meters stay, also those beyond new limits. Connections know the former
    /// id and versions: the caller ends them.
    pub fn configure(&mut self, settings: Settings, now: u64) {
        self.datapath.limits = settings.limits;
        self.datapath.configure_tables(&settings.table_limits);
        self.settings = settings;
        let tables = self.datapath.model.settings.len();
        let shrunk = self.datapath.change_many(now, |datapath, transaction| {
            (0..tables).for_each(|table| datapath.shrink(table, now, transaction));
            Ok(())
        });
        // A table whose conjunctions would not fit without a flow stays too large.
        if let Ok(((), events)) = shrunk {
            self.tell(&events, None, now);
        }
    }

    /// Returns the bridge's name.
    pub fn name(&self) -> &str {
        &self.settings.name
    }

    /// Adds a connection and says hello; `None`: there are too many.
    pub fn connect(&mut self, kind: ConnectionKind) -> Option<ConnectionId> {
        if self.connections.len() >= self.settings.limits.connections as usize {
            return None;
        }
        self.next_connection += 1;
        let id = ConnectionId(self.next_connection);
        let mut connection = Connection::new(kind);
        let newest = self.settings.versions.iter().copied().max().unwrap_or_default();
        let hello = Hello::new(self.versions());
        connection.send(Message::new(newest, 0, Body::Hello(hello)));
        self.connections.insert(id, connection);
        Some(id)
    }

    /// Removes a connection and what it left unfinished.
    pub fn disconnect(&mut self, id: ConnectionId) {
        self.connections.remove(&id);
        self.versions_changed();
    }

    /// Whether the switch has ended a connection: what waits for it may still be sent.
    pub fn is_closed(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_none_or(|connection| connection.is_closed)
    }

    /// The next message for a connection.
    pub fn next_message(&mut self, id: ConnectionId) -> Option<Vec<u8>> {
        let connection = self.connections.get_mut(&id)?;
        let message = connection.waiting.pop_front()?;
        connection.waiting_bytes = connection.waiting_bytes.saturating_sub(message.len());
        Some(message)
    }

    /// Whether a connection's next request should be read: its replies are not piling up.
    pub fn is_ready(&self, id: ConnectionId) -> bool {
        let limit = self.settings.limits.backlog;
        self.connections.get(&id).is_some_and(|connection| connection.waiting_bytes <= limit)
    }

    /// Whether messages wait for a connection.
    pub fn has_messages(&self, id: ConnectionId) -> bool {
        self.connections.get(&id).is_some_and(|connection| !connection.waiting.is_empty())
    }

    /// The version of a connection, once both sides have said hello.
    pub fn version(&self, id: ConnectionId) -> Option<Version> {
        self.connections.get(&id).and_then(|connection| connection.version)
    }

    /// The role of the controller at the other end of a connection.
    pub fn role(&self, id: ConnectionId) -> Option<Role> {
        self.connections.get(&id).map(|connection| connection.role)
    }

    /// Asynchronous messages that a connection has lost because it reads too slowly.
    pub fn dropped_messages(&self, id: ConnectionId) -> u64 {
        self.connections.get(&id).map_or(0, |connection| connection.dropped)
    }

    /// Takes what packets of controllers have caused.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether the pipeline has exactly the entries that the flows need: for tests and fuzzing.
    pub fn is_consistent(&self) -> bool {
        self.datapath.is_consistent()
    }

    /// Number of flows.
    pub fn flow_count(&self) -> usize {
        self.datapath.model.sums.flows
    }

    /// Whether [`Switch::tick`] has flows or bundles to look after.
    pub fn needs_ticks(&self) -> bool {
        self.datapath.model.sums.timed > 0
            || self.connections.values().any(|connection| !connection.bundles.is_empty())
    }

    /// Processes a complete message of a connection at a time, nanoseconds.
    pub fn receive(&mut self, id: ConnectionId, message: &[u8], now: u64) {
        let Some(connection) = self.connections.get(&id).filter(|connection| !connection.is_closed) else {
            return;
        };
        let Some(version) = connection.version else { return self.hello(id, message) };
        if let Err(code) = self.request(id, message, version, now) {
            self.refuse(id, code, message, version);
        }
        self.after_changes();
    }

    /// Advances the time, nanoseconds: removes flows and bundles whose time is over. To be called about once a
    /// second while [`Switch::needs_ticks`].
    pub fn tick(&mut self, now: u64) {
        let events = self.datapath.expire(now);
        self.tell(&events, None, now);
        self.expire_bundles(now);
        self.after_changes();
    }

    /// Adds a port, or changes it.
    ///
    /// # Errors
    /// The number is not a port's, or there are too many ports.
    pub fn set_port(&mut self, info: PortInfo, now: u64) -> Result<(), PortError> {
        let number = info.number.0;
        if !(1..=0xfeff).contains(&number) && info.number != PortNo::LOCAL {
            return Err(PortError::Number);
        }
        let count = self.ports.len();
        let reason = match self.ports.get_mut(&number) {
            Some(entry) => {
                // Controllers are not told of queues.
                let is_same = entry.info == PortInfo { queues: entry.info.queues.clone(), ..info.clone() };
                entry.info = info;
                if is_same {
                    return Ok(());
                }
                openflow::message::PortReason::Modify
            }
            None if count >= self.settings.limits.ports as usize => return Err(PortError::TooMany),
            None => {
                let entry = PortEntry {
                    info,
                    config: Default::default(),
                    counters: Default::default(),
                    is_cut: false,
                    created: now,
                };
                self.ports.insert(number, entry);
                openflow::message::PortReason::Add
            }
        };
        self.tell_port(number, reason);
        if reason == openflow::message::PortReason::Add {
            self.tell_live(number);
        }
        self.ports_configured();
        Ok(())
    }

    /// Removes a port.
    pub fn remove_port(&mut self, number: PortNo) {
        if self.ports.contains_key(&number.0) {
            self.tell_port(number.0, openflow::message::PortReason::Delete);
            self.ports.remove(&number.0);
            self.ports_configured();
        }
    }

    /// Takes the number of changes of flows that a connection has made since the last call.
    pub fn take_flow_mods(&mut self, id: ConnectionId) -> FlowModCounts {
        self.connections
            .get_mut(&id)
            .map(|connection| std::mem::take(&mut connection.flow_mods))
            .unwrap_or_default()
    }

    /// The versions that the switch speaks.
    pub fn versions(&self) -> Versions {
        self.settings.versions.iter().copied().collect()
    }

    fn refuse(&mut self, id: ConnectionId, code: ErrorCode, message: &[u8], version: Version) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.send(reply(code, message, version));
        }
    }

    /// The first message: the newest version that both sides have.
    fn hello(&mut self, id: ConnectionId, message: &[u8]) {
        let ours = self.versions();
        let newest = self.settings.versions.iter().copied().max().unwrap_or_default();
        let agreed = Hello::decode_any(message)
            .ok()
            .and_then(|(header, hello): (Header, Hello)| ours.newest_common(hello.versions(header.version)));
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match agreed {
            Some(version) => connection.version = Some(version),
            None => {
                connection.send(reply(ErrorCode::HfcIncompatible, message, newest));
                connection.is_closed = true;
            }
        }
        self.versions_changed();
    }

    /// Brings tables' misses in line with the versions of the controllers.
    fn versions_changed(&mut self) {
        let old = self.connections.values().any(|connection| {
            connection.version.is_some_and(|version| version < Version::V1_3)
                && connection.kind == ConnectionKind::Controller
                && connection.role != Role::Secondary
        });
        let listens = self.connections.values().any(|connection| {
            connection.version.is_some_and(|version| version < Version::V1_3) && connection.miss_send_len > 0
        });
        let old = old || listens;
        if old == self.datapath.old_controllers {
            return;
        }
        self.datapath.old_controllers = old;
        // Defaults that the program has are never refused.
        let _ = self.datapath.change(0, |datapath, transaction| {
            let misses: Vec<Miss> = datapath.model.settings.iter().map(|settings| settings.miss).collect();
            misses.into_iter().enumerate().try_for_each(|(n, miss)| datapath.set_miss(n, miss, transaction))
        });
    }
}
