//! What a switch can do, and its configuration.

use super::port::Port;
use crate::version::Version;
use crate::wire::{Coder, Record, Step, layout};

bitflags::bitflags! {
    /// What a switch can do.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Capabilities: u32 {
        /// Statistics of flows.
        const FLOW_STATS = 1;
        /// Statistics of tables.
        const TABLE_STATS = 1 << 1;
        /// Statistics of ports.
        const PORT_STATS = 1 << 2;
        /// Statistics of groups since version 1.1; spanning trees in 1.0.
        const GROUP_STATS = 1 << 3;
        /// Reassembly of fragments.
        const IP_REASM = 1 << 5;
        /// Statistics of queues.
        const QUEUE_STATS = 1 << 6;
        /// Addresses in ARP packets, in version 1.0.
        const ARP_MATCH_IP = 1 << 7;
        /// Blocking of looping ports, since version 1.2.
        const PORT_BLOCKED = 1 << 8;
        /// Bundles, since version 1.4.
        const BUNDLES = 1 << 9;
        /// Flow monitoring, since version 1.4.
        const FLOW_MONITORING = 1 << 10;
    }
}

/// A switch's features.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FeaturesReply {
    /// The switch's id: 16 bits and a MAC address.
    pub datapath_id: u64,
    /// Packets that it can hold for controllers.
    pub buffers: u32,
    /// Tables.
    pub tables: u8,
    /// The connection's auxiliary id, since version 1.3.
    pub auxiliary_id: u8,
    /// Capabilities.
    pub capabilities: Capabilities,
    /// Bitmap of actions in version 1.0; reserved later.
    pub actions: u32,
    /// Ports, up to version 1.2.
    pub ports: Vec<Port>,
}

impl Record for FeaturesReply {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u64(&mut self.datapath_id)?;
        c.u32(&mut self.buffers)?;
        c.u8(&mut self.tables)?;
        if c.version() >= Version::V1_3 {
            c.u8(&mut self.auxiliary_id)?;
            c.pad(2)?;
        } else {
            c.pad(3)?;
        }
        c.flags32(&mut self.capabilities)?;
        c.u32(&mut self.actions)?;
        if c.version() < Version::V1_3 { c.list(&mut self.ports) } else { Ok(()) }
    }
}

/// A switch's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct SwitchConfig {
    /// Fragments in the low two bits (0 normal, 1 drop, 2 reassemble, 3 match as Nicira has it); bit 2: expired packets
    /// go to controllers.
    pub flags: u16,
    /// Bytes of a packet that a controller gets.
    pub miss_send_len: u16,
}

layout!(SwitchConfig { flags: u16, miss_send_len: u16 });
