//! Settings and limits of a server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use socket_file::SocketAccess;

use crate::limited_role::LimitedRole;
use crate::listen::Listen;
use crate::tls::TlsFiles;

/// Settings of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Addresses to listen on.
    pub listen: Vec<Listen>,
    /// Access to the files of Unix sockets.
    pub access: SocketAccess,
    /// Keys and certificates of TCP connections; `None` means TCP without TLS.
    pub tls: Option<TlsFiles>,
    /// Numbers by which controllers may call the device.
    pub devices: BTreeSet<u64>,
    /// Roles with limits, by name; others have full access.
    pub roles: BTreeMap<String, LimitedRole>,
    /// Whether controllers may claim only these.
    pub only_listed_roles: bool,
    /// Limits.
    pub limits: Limits,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            listen: vec![],
            access: SocketAccess::default(),
            tls: None,
            devices: BTreeSet::from([0, 1]),
            roles: BTreeMap::new(),
            only_listed_roles: false,
            limits: Limits::default(),
        }
    }
}

/// Bounds on memory, connections and time that controllers can take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections per address.
    pub connections: usize,
    /// Connections per address whose handshake is not complete. One more displaces the oldest of them.
    pub handshakes: usize,
    /// Time for the handshake of a connection, and for the first message of a stream.
    pub handshake: Duration,
    /// Silence after which a connection is probed; without an answer within as much time, it is closed.
    pub probe: Duration,
    /// Concurrent calls per connection.
    pub calls: u32,
    /// Concurrent streams.
    pub streams: usize,
    /// Concurrent streams per connection.
    pub connection_streams: usize,
    /// Roles besides the default role.
    pub roles: usize,
    /// Bytes of a `Write` or `SetForwardingPipelineConfig`.
    pub large_message: usize,
    /// Bytes of other messages.
    pub message: usize,
    /// Bytes of all changes together, and of all reads, that are longer than 64 KiB each.
    pub requests: usize,
    /// Time for a request to arrive.
    pub receive: Duration,
    /// Messages that wait for a stream's reader, besides notifications of arbitration.
    pub queued_messages: usize,
    /// Bytes of these messages.
    pub queued_bytes: usize,
    /// Updates of a `Write` that is longer than 64 KiB.
    pub updates: usize,
    /// Writes that run or wait.
    pub writes: usize,
    /// Concurrent reads.
    pub reads: usize,
    /// Entities that a `Read` names.
    pub read_entities: usize,
    /// Concurrent reads per connection.
    pub connection_reads: usize,
    /// Bytes that wait for the reader of a `Read`. More makes the device wait for it.
    pub read_bytes: usize,
    /// Time after which a `Read` ends whose reader has taken nothing.
    pub stall: Duration,
    /// Bytes of the details of a failed write.
    pub error_details: usize,
}

const MIB: usize = 1 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            handshakes: 32,
            handshake: Duration::from_secs(10),
            probe: Duration::from_secs(30),
            calls: 64,
            streams: 64,
            connection_streams: 16,
            roles: 64,
            large_message: 64 * MIB,
            // The specification's minimum.
            message: 4 * MIB,
            requests: 128 * MIB,
            receive: Duration::from_secs(60),
            queued_messages: 1024,
            queued_bytes: 4 * MIB,
            updates: 1 << 18,
            writes: 64,
            reads: 32,
            read_entities: 16 << 10,
            connection_reads: 8,
            read_bytes: 8 * MIB,
            stall: Duration::from_secs(10),
            error_details: MIB,
        }
    }
}
