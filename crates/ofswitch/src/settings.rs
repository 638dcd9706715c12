//! What a switch is told when it is made.

use std::collections::BTreeMap;
use std::time::Duration;

use openflow::Version;

/// Bounds of what controllers may make a switch keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Flows of one table.
    pub flows_per_table: u32,
    /// Flows of all tables.
    pub flows: u32,
    /// Groups.
    pub groups: u32,
    /// Buckets of one group.
    pub buckets: u32,
    /// Buckets of all groups.
    pub all_buckets: u32,
    /// Bytes of the messages that describe all flows and groups.
    pub bytes: usize,
    /// Meters.
    pub meters: u32,
    /// Bands of one meter.
    pub bands: u8,
    /// Bundles that one connection may have open.
    pub bundles: u32,
    /// Messages of one bundle.
    pub bundle_messages: u32,
    /// Bytes of the messages of one connection's bundles.
    pub bundle_bytes: usize,
    /// Bytes of the messages of all connections' bundles.
    pub all_bundle_bytes: usize,
    /// Flow monitors of one connection.
    pub monitors: u32,
    /// Bytes waiting for one connection above which asynchronous messages to it are dropped and counted, and its
    /// requests wait ([`crate::Switch::is_ready`]).
    pub backlog: usize,
    /// Bytes waiting for all connections above which requests for statistics and descriptions are refused.
    pub replies: usize,
    /// Connections.
    pub connections: u32,
    /// Packets kept for controllers.
    pub buffers: u32,
    /// Ports.
    pub ports: u32,
    /// Entries that conjunctive flows of one table may expand to.
    pub conjunctions: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            flows_per_table: 1_000_000,
            flows: 2_000_000,
            // Their buckets and bytes are bounded.
            groups: openflow::version::group::MAX,
            buckets: 4096,
            all_buckets: 1_000_000,
            bytes: 512 << 20,
            meters: 16_384,
            bands: 8,
            bundles: 16,
            bundle_messages: 1_000_000,
            bundle_bytes: 256 << 20,
            all_bundle_bytes: 1 << 30,
            monitors: 64,
            backlog: 4 << 20,
            replies: 1 << 30,
            connections: 256,
            buffers: 256,
            ports: 4096,
            conjunctions: 65_536,
        }
    }
}

/// What the configuration says of a table's size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableLimit {
    /// Flows at most; `None`: as many as [`Limits::flows_per_table`].
    pub flows: Option<u32>,
    /// Whether a full table loses a flow with a timeout to a new one; else the new one is refused.
    pub evicts: bool,
    /// Names of fields (`NXM_OF_IN_PORT[]`): flows that are equal there are a group, and the largest group loses a flow.
    pub groups: Vec<String>,
}

/// Settings of a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The switch's id: 16 bits and a MAC address.
    pub datapath_id: u64,
    /// Versions that connections may choose from.
    pub versions: Vec<Version>,
    /// Name of the switch, for descriptions.
    pub name: String,
    /// Names of tables, ahead of those that controllers give.
    pub tables: BTreeMap<u8, String>,
    /// What the configuration says of tables' sizes.
    pub table_limits: BTreeMap<u8, TableLimit>,
    /// Time after which a bundle that is not used is discarded.
    pub bundle_idle: Duration,
    /// Bounds.
    pub limits: Limits,
    /// Start of the random numbers that sampling uses.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            datapath_id: 1,
            versions: Version::ALL.to_vec(),
            name: "None".to_owned(),
            tables: BTreeMap::new(),
            table_limits: BTreeMap::new(),
            bundle_idle: Duration::from_secs(10),
            limits: Limits::default(),
            seed: 1,
        }
    }
}
