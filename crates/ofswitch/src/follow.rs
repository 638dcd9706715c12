//! What keeps structures of its own in step with the switch: generated code, the fabric's view of ports.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use openflow::PortNo;
use openflow::message::PortConfig;
use openflow::multipart::IpfixStats;
use pipeline::ir::ActionId;
use pipeline::state::{Bundle, Installed, LookupCounts, State};

/// Counters of a port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortCounters {
    /// Packets received.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets that were dropped.
    pub rx_dropped: u64,
    /// Packets dropped on their way out.
    pub tx_dropped: u64,
    /// Packets and bytes that each queue received.
    pub rx_queues: Vec<(u64, u64)>,
    /// Packets and bytes that each queue sent.
    pub tx_queues: Vec<(u64, u64)>,
    /// Counters of the queues that actions choose, as far as they count.
    pub egress: Vec<QueueCounters>,
}

/// Counters of a queue that actions choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueCounters {
    /// Its number.
    pub queue: u32,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets that exceeded its limits.
    pub errors: u64,
    /// Time since it was made.
    pub age: Duration,
}

/// The one flow that every packet meets.
#[derive(Debug, Clone)]
pub struct OnlyFlow {
    /// The flow's entry, whose packets the follower counts.
    pub flow: Arc<Installed>,
    /// Lookups of its table, which the follower counts, too.
    pub lookups: Arc<LookupCounts>,
}

/// Follows the changes of a switch ([`crate::Switch::set_follower`]). Called while the switch is borrowed, after each
/// change and before anybody is told of it.
pub trait Follower: Debug + Send {
    /// A bundle was applied; `state` is what it led to. Bundles that only packet-outs meet are left out.
    fn applied(&mut self, state: &State, bundle: &Bundle);

    /// Every packet meets one flow from now on, which does nothing but `NORMAL`; `None`: no longer. Comes after
    /// [`Follower::applied`]. A follower need not make a difference.
    fn only_normal(&mut self, _flow: Option<OnlyFlow>) {}

    /// These actions are no longer in use.
    fn forgotten(&mut self, actions: &[ActionId]);

    /// Controllers have configured ports, or ports have come or gone: all ports with their configurations.
    fn configured(&mut self, ports: &[(PortNo, PortConfig)]);

    /// Flags that every received packet has from now on ([`pipeline::interp::Received::flags`]).
    fn flags(&mut self, flags: u64);

    /// Statistics of the IPFIX export of the bridge's packets; `None`: it has none.
    fn bridge_ipfix(&mut self) -> Option<IpfixStats> {
        None
    }

    /// Statistics of the IPFIX exports of sampled packets, by sets of collectors.
    fn set_ipfix(&mut self) -> Vec<IpfixStats> {
        Vec::new()
    }

    /// The counters of a port; `None`: the switch counts itself.
    fn counters(&mut self, port: PortNo) -> Option<PortCounters>;
}
