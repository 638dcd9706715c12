//! Settings of a bridge and its ports, from the columns of Open vSwitch's tables `Bridge` and `Port`.

use std::collections::BTreeMap;

use packet::MacAddr;

use super::{HELLO_TIME, Times};
use crate::settings::{Keys, fitting};

/// Steps of priorities: the other bits are for other purposes (§9.2.5, §9.2.7).
const BRIDGE_STEP: u16 = 0x1000;
const PORT_STEP: u16 = 0x10;
/// Greatest cost of a path (table 17-3).
const MOST_COST: u32 = 200_000_000;

/// Settings of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Priority among bridges; the lowest becomes the root.
    pub priority: u16,
    /// The bridge's address.
    pub address: MacAddr,
    /// Whether it speaks RSTP; if not, it behaves like one with STP (Force Protocol Version 0).
    pub is_rapid: bool,
    /// Age at which messages are no longer valid, seconds.
    pub max_age: u16,
    /// Time until ports forward whose neighbours speak STP, twice, seconds.
    pub forward_delay: u16,
    /// Messages that a port sends at once at most; afterwards one each second.
    pub transmit_hold_count: u64,
}

/// Settings of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSettings {
    /// Its name.
    pub name: String,
    /// Priority among the bridge's ports; the lowest is the best.
    pub priority: u8,
    /// Cost of a path through it.
    pub cost: u32,
    /// It is at the network's edge, and forwards at once, until a bridge is heard.
    pub admin_edge: bool,
    /// It is taken for an edge when no bridge was heard for a while.
    pub auto_edge: bool,
    /// The operator asks whether the neighbour speaks RSTP by now.
    pub mcheck: bool,
    /// Whether there is at most one bridge at the other end.
    pub is_point_to_point: bool,
    /// Whether it is switched on (Administrative Bridge Port State).
    pub is_on: bool,
}

/// Cost of a path through a port of this speed, in Mbit/s (table 17-3); 0: unknown, taken for 10 Gbit/s.
pub fn cost_of_speed(megabits: u64) -> u32 {
    let megabits = if megabits == 0 { 10_000 } else { megabits };
    u32::try_from(20_000_000 / megabits).unwrap_or(MOST_COST).clamp(1, MOST_COST)
}

impl Settings {
    /// Reads the keys `rstp-*` of a bridge's `other_config`; `address`: the bridge's. The list has what is wrong.
    pub fn read(
        name: &str,
        other_config: &BTreeMap<String, String>,
        address: MacAddr,
    ) -> (Self, Vec<String>) {
        let mut keys = Keys::new(other_config, format!("bridge {name}"));
        let max_age = keys.within("rstp-max-age", 20, 6..=40);
        let forward_delay = keys.within("rstp-forward-delay", 15, 4..=30);
        let (max_age, forward_delay) = fitting(HELLO_TIME, max_age, forward_delay);
        let priority = keys.within("rstp-priority", 0x8000, 0..=u16::MAX);
        let settings = Self {
            priority: priority - priority % BRIDGE_STEP,
            address: keys.address("rstp-address", address),
            is_rapid: keys.number("rstp-force-protocol-version").is_none_or(|version| version >= 2),
            max_age,
            forward_delay,
            transmit_hold_count: keys.within("rstp-transmit-hold-count", 6, 1..=10).into(),
        };
        (settings, keys.wrong)
    }

    pub(super) fn times(&self) -> Times {
        let Self { max_age, forward_delay, .. } = *self;
        Times { message_age: 0, max_age, hello_time: HELLO_TIME, forward_delay }
    }
}

impl PortSettings {
    /// Reads the keys `rstp-*` of a port's `other_config`; `speed`: in Mbit/s, 0 if it is unknown. The list has what is
    /// wrong.
    pub fn read(name: &str, other_config: &BTreeMap<String, String>, speed: u64) -> (Self, Vec<String>) {
        let mut keys = Keys::new(other_config, format!("port {name}"));
        let priority = keys.within("rstp-port-priority", 128, 0..=240);
        let settings = Self {
            name: name.to_owned(),
            priority: u8::try_from(priority - priority % PORT_STEP).unwrap_or(u8::MAX),
            cost: keys.cost("rstp-path-cost", cost_of_speed(speed), MOST_COST),
            admin_edge: keys.is("rstp-port-admin-edge", false),
            auto_edge: keys.is("rstp-port-auto-edge", true),
            mcheck: keys.is("rstp-port-mcheck", false),
            // 0: shared, 1: point to point, 2: found out, which full-duplex links are.
            is_point_to_point: keys.number("rstp-admin-p2p-mac") != Some(0),
            is_on: keys.is("rstp-admin-port-state", true),
        };
        (settings, keys.wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_bounded() {
        let map = |all: &[(&str, &str)]| {
            all.iter().map(|(key, text)| (key.to_string(), text.to_string())).collect()
        };
        let own = MacAddr([2; 6]);
        let (settings, wrong) = Settings::read("br0", &map(&[]), own);
        let expected = Settings {
            priority: 0x8000,
            address: own,
            is_rapid: true,
            max_age: 20,
            forward_delay: 15,
            transmit_hold_count: 6,
        };
        assert_eq!((settings, wrong), (expected, vec![]));
        let given = [("rstp-priority", "28673"), ("rstp-force-protocol-version", "0")];
        let (settings, _) = Settings::read("br0", &map(&given), own);
        assert_eq!((settings.priority, settings.is_rapid), (28672, false));
        let given =
            [("rstp-port-priority", "255"), ("rstp-admin-p2p-mac", "0"), ("rstp-admin-port-state", "false")];
        let (port, wrong) = PortSettings::read("p1", &map(&given), 10);
        assert_eq!((port.priority, port.cost, wrong.len()), (240, 2_000_000, 0));
        assert!(!port.is_point_to_point && !port.is_on && port.auto_edge && !port.admin_edge);
        assert_eq!([0, 1000, 100_000, 1_000_000].map(cost_of_speed), [2000, 20_000, 200, 20]);
    }
}
