//! Settings of a bridge and its ports, from the columns of Open vSwitch's tables `Bridge` and `Port`.

use std::collections::BTreeMap;

use packet::MacAddr;

use super::Times;
use crate::settings::{Keys, fitting};

/// Settings of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Priority among bridges; the lowest becomes the root.
    pub priority: u16,
    /// The bridge's address.
    pub address: MacAddr,
    /// Time between messages of the root, seconds.
    pub hello_time: u16,
    /// Age at which messages are no longer valid, seconds.
    pub max_age: u16,
    /// Time in each of the states Listening and Learning, seconds.
    pub forward_delay: u16,
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
    /// Whether it changes the topology when it begins or ends to forward.
    pub detects_change: bool,
}

/// Cost of a path through a port of this speed, in Mbit/s (IEEE 802.1D-1998 table 8-5); 0: unknown.
pub fn cost_of_speed(megabits: u64) -> u32 {
    match megabits {
        10_000.. | 0 => 2,
        1000.. => 4,
        100.. => 19,
        16.. => 62,
        10.. => 100,
        _ => 250,
    }
}

impl Settings {
    /// Reads the keys `stp-*` of a bridge's `other_config`; `address`: the bridge's. The list has what is wrong.
    pub fn read(
        name: &str,
        other_config: &BTreeMap<String, String>,
        address: MacAddr,
    ) -> (Self, Vec<String>) {
        let mut keys = Keys::new(other_config, format!("bridge {name}"));
        let hello_time = keys.within("stp-hello-time", 2, 1..=10);
        let max_age = keys.within("stp-max-age", 20, 6..=40);
        let forward_delay = keys.within("stp-forward-delay", 15, 4..=30);
        let (max_age, forward_delay) = fitting(hello_time, max_age, forward_delay);
        let settings = Self {
            priority: keys.within("stp-priority", 0x8000, 0..=u16::MAX),
            address: keys.address("stp-system-id", address),
            hello_time,
            max_age,
            forward_delay,
        };
        (settings, keys.wrong)
    }

    pub(super) fn times(&self) -> Times {
        let millis = |seconds: u16| u64::from(seconds) * 1000;
        Times {
            max_age: millis(self.max_age),
            hello_time: millis(self.hello_time),
            forward_delay: millis(self.forward_delay),
        }
    }
}

impl PortSettings {
    /// Reads the keys `stp-*` of a port's `other_config`; `speed`: in Mbit/s, 0 if it is unknown. The list has what is
    /// wrong.
    pub fn read(name: &str, other_config: &BTreeMap<String, String>, speed: u64) -> (Self, Vec<String>) {
        let mut keys = Keys::new(other_config, format!("port {name}"));
        let priority = keys.within("stp-port-priority", 128, 0..=255);
        let settings = Self {
            name: name.to_owned(),
            priority: u8::try_from(priority).unwrap_or(u8::MAX),
            cost: keys.cost("stp-path-cost", cost_of_speed(speed), u16::MAX.into()),
            detects_change: true,
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
        let expected =
            Settings { priority: 0x8000, address: own, hello_time: 2, max_age: 20, forward_delay: 15 };
        assert_eq!((settings, wrong), (expected, vec![]));
        let given =
            [("stp-priority", "0x7800"), ("stp-system-id", "00:00:00:00:00:07"), ("stp-max-age", "99")];
        let (settings, _) = Settings::read("br0", &map(&given), own);
        assert_eq!((settings.priority, settings.address.0[5]), (0x7800, 7));
        assert_eq!((settings.max_age, settings.forward_delay), (40, 21), "the delay follows the age");
        let given = [("stp-path-cost", "70000"), ("stp-port-priority", "16")];
        let (port, wrong) = PortSettings::read("p1", &map(&given), 1000);
        assert_eq!((port.cost, port.priority, wrong.len()), (65535, 16, 0));
        assert_eq!(PortSettings::read("p1", &map(&[]), 1000).0.cost, 4);
    }
}
