//! The Spanning Tree Protocol of IEEE 802.1D-1998, clause 8: procedures and variables have the standard's names.
//!
//! - `procedures`: §8.6, the elements; `events`: §8.7 and §8.8, messages, timers and management; `settings`: keys of
//!   the database; `show`: status as text.
//!
//! Where it goes beyond the standard, as Open vSwitch does: a port that stops forwarding because its link is lost
//! changes the topology, too; and instead of ageing stations fast while the topology changes (§8.3.5), they are
//! forgotten at once, and again each Forward Delay.

mod events;
mod procedures;
mod settings;
mod show;

use std::collections::BTreeMap;

use packet::MacAddr;

pub use self::settings::{PortSettings, Settings, cost_of_speed};
pub use self::show::{PortStatus, Role, Status};
use crate::bpdu::{Bpdu, Ticks};
use crate::timer::Timer;
use crate::{BridgeId, Counters, Flush, Millis, PortId, PortState};

/// Least time between two Configuration BPDUs of a port, seconds (§8.10.2).
const HOLD_TIME: u16 = 1;
/// What a bridge adds to the age of a message (§8.10.2), milliseconds.
const MESSAGE_AGE_INCREMENT: Millis = 1000;

/// Times that the root prescribes (§8.5.3.4 to 8.5.3.6), milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    max_age: Millis,
    hello_time: Millis,
    forward_delay: Millis,
}

/// A bridge. See the module.
#[derive(Debug)]
pub struct Bridge {
    settings: Settings,
    id: BridgeId,
    ports: BTreeMap<u8, Port>,
    designated_root: BridgeId,
    root_path_cost: u32,
    /// `None`: the bridge is the root.
    root_port: Option<u8>,
    times: Times,
    topology_change_detected: bool,
    topology_change: bool,
    hello_timer: Timer,
    tcn_timer: Timer,
    topology_change_timer: Timer,
    /// Runs while the topology changes: stations are forgotten when it expires.
    flush_timer: Timer,
    /// Whether stations are to be forgotten.
    flushes: bool,
    /// BPDUs to be sent.
    out: Vec<(u8, Bpdu)>,
    now: Millis,
}

/// A port (§8.5.5).
#[derive(Debug)]
struct Port {
    settings: PortSettings,
    address: MacAddr,
    id: PortId,
    state: PortState,
    designated_root: BridgeId,
    designated_cost: u32,
    designated_bridge: BridgeId,
    designated_port: PortId,
    topology_change_acknowledge: bool,
    configuration_pending: bool,
    /// The age that its information had when it was received, and the time of that; `None`: it has none that ages.
    message_age: Option<(Millis, Millis)>,
    forward_delay_timer: Timer,
    hold_timer: Timer,
    counters: Counters,
}

impl Bridge {
    /// Makes a bridge without ports.
    pub fn new(settings: Settings, now: Millis) -> Self {
        let id = BridgeId::new(settings.priority, settings.address);
        let times = settings.times();
        let mut bridge = Self {
            settings,
            id,
            ports: BTreeMap::new(),
            designated_root: id,
            root_path_cost: 0,
            root_port: None,
            times,
            topology_change_detected: false,
            topology_change: false,
            hello_timer: Timer::default(),
            tcn_timer: Timer::default(),
            topology_change_timer: Timer::default(),
            flush_timer: Timer::default(),
            flushes: false,
            out: Vec::new(),
            now,
        };
        bridge.start_hello_timer();
        bridge
    }

    /// The state of a port.
    pub fn state(&self, port: u8) -> PortState {
        self.ports.get(&port).map(|port| port.state).unwrap_or_default()
    }

    /// Counters of a port.
    pub fn counters(&self, port: u8) -> Counters {
        self.ports.get(&port).map(|port| port.counters).unwrap_or_default()
    }

    fn is_root(&self) -> bool {
        self.designated_root == self.id
    }

    /// Numbers of the ports that take part.
    fn enabled(&self) -> Vec<u8> {
        let enabled = self.ports.iter().filter(|(_, port)| port.state != PortState::Disabled);
        enabled.map(|(number, _)| *number).collect()
    }

    /// Whether a port is the designated one of its LAN.
    fn is_designated(&self, port: &Port) -> bool {
        port.designated_bridge == self.id && port.designated_port == port.id
    }

    fn set_state(&mut self, number: u8, state: PortState) {
        if let Some(port) = self.ports.get_mut(&number) {
            // Where stations are reached has changed.
            self.flushes |= port.state.learns() != state.learns();
            port.state = state;
        }
    }

    fn start_hello_timer(&mut self) {
        self.hello_timer.start(self.now, self.settings.hello_time);
    }

    /// The time of the next call of [`Bridge::run`].
    pub fn next_due(&self) -> Option<Millis> {
        let bridge = [&self.hello_timer, &self.tcn_timer, &self.topology_change_timer, &self.flush_timer];
        let ages = self.ports.values().filter_map(|port| {
            let (age, since) = port.message_age?;
            Some(since.saturating_add(self.times.max_age.saturating_sub(age)))
        });
        let ports = self.ports.values().flat_map(|port| {
            [port.forward_delay_timer.end(), port.hold_timer.end().filter(|_| port.configuration_pending)]
        });
        bridge.iter().filter_map(|timer| timer.end()).chain(ages).chain(ports.flatten()).min()
    }

    /// Takes the frames that are to be sent, and what is to be forgotten.
    fn outcome(&mut self) -> crate::Outcome {
        let mut frames = Vec::new();
        for (number, bpdu) in std::mem::take(&mut self.out) {
            if let Some(port) = self.ports.get_mut(&number) {
                port.counters.sent += 1;
                frames.push((number, bpdu.frame(port.address)));
            }
        }
        let flush = if std::mem::take(&mut self.flushes) { Flush::All } else { Flush::Nothing };
        crate::Outcome { frames, flush }
    }
}

impl Port {
    fn new(settings: PortSettings, number: u8) -> Self {
        Self {
            id: PortId::new(settings.priority, number),
            settings,
            address: MacAddr::ZERO,
            state: PortState::Disabled,
            designated_root: BridgeId::default(),
            designated_cost: 0,
            designated_bridge: BridgeId::default(),
            designated_port: PortId::default(),
            topology_change_acknowledge: false,
            configuration_pending: false,
            message_age: None,
            forward_delay_timer: Timer::default(),
            hold_timer: Timer::default(),
            counters: Counters::default(),
        }
    }

    /// The age of its information now; `None`: it does not age.
    fn age(&self, now: Millis) -> Option<Millis> {
        self.message_age.map(|(age, since)| age.saturating_add(now.saturating_sub(since)))
    }
}

impl Times {
    fn of(message: &crate::bpdu::Message) -> Self {
        let of = |ticks: Ticks| ticks.millis();
        Self {
            max_age: of(message.max_age),
            hello_time: of(message.hello_time),
            forward_delay: of(message.forward_delay),
        }
    }
}
