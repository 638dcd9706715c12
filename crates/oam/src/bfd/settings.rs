//! Settings of a session, from the keys of Open vSwitch's column `Interface.bfd`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use packet::MacAddr;

use crate::Millis;

/// Detection multiplier unless another is configured.
const MULTIPLIER: u8 = 3;
/// Largest interval that a control packet can announce: 2³² − 1 microseconds.
const LONGEST: Millis = u32::MAX as Millis / 1000;

const SOURCE: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
const TARGET: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 0);

/// Settings of a session. Intervals are in milliseconds, from 1 to 4,294,967 (2³² − 1 microseconds).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The shortest interval between sent packets.
    pub min_tx: Millis,
    /// The shortest interval between received packets.
    pub min_rx: Millis,
    /// The same for an idle port; 0: no decay.
    pub decay_min_rx: Millis,
    /// Detection multiplier, from 1.
    pub multiplier: u8,
    /// Whether the operator says that the path behind the port is down (`cpath_down`).
    pub path_is_down: bool,
    /// Whether received data is enough for a port to count as good.
    pub forwards_if_rx: bool,
    /// Source address of frames; `None`: the port's.
    pub local_source: Option<MacAddr>,
    /// Destination address of frames; `None`: the default.
    pub local_destination: Option<MacAddr>,
    /// Destination address that received frames must have; `None`: any.
    pub remote_destination: Option<MacAddr>,
    /// Source address of packets, and the destination that received ones must have; `None`: the default, and any.
    pub source: Option<Ipv4Addr>,
    /// Destination address of packets; `None`: the default.
    pub target: Option<Ipv4Addr>,
}

impl Settings {
    /// Reads the settings of a row; `None` if BFD is not enabled. Values that cannot be used count as not given, and
    /// are in the list.
    pub fn read(row: &BTreeMap<String, String>) -> (Option<Self>, Vec<String>) {
        let is_true = |key: &str| row.get(key).is_some_and(|text| text.eq_ignore_ascii_case("true"));
        if !is_true("enable") {
            return (None, Vec::new());
        }
        let mut wrong = Vec::new();
        let mut interval = |key: &str, default: Millis, least: Millis| match row.get(key).map(|it| it.parse())
        {
            None => default,
            Some(Ok(value)) => Ord::clamp(value, least, LONGEST),
            Some(Err(_)) => {
                wrong.push(format!("bfd:{key} is not a number of milliseconds"));
                default
            }
        };
        let min_tx = interval("min_tx", 100, 1);
        let min_rx = interval("min_rx", 1000, 1);
        let mut decay_min_rx = interval("decay_min_rx", 0, 0);
        if (1..min_rx).contains(&decay_min_rx) {
            wrong.push(format!("bfd:decay_min_rx is {decay_min_rx}; expected at least min_rx, {min_rx}"));
            decay_min_rx = 0;
        }
        let multiplier = row.get("mult").and_then(|text| text.parse().ok()).filter(|number| *number > 0);
        let mac = |key: &str| row.get(key)?.parse().ok().filter(|mac| *mac != MacAddr::ZERO);
        let mut address = |key: &str| match row.get(key).map(|text| text.parse()) {
            None => None,
            Some(Ok(address)) => Some(address),
            Some(Err(_)) => {
                wrong.push(format!("bfd:{key} is not an IPv4 address"));
                None
            }
        };
        let settings = Self {
            min_tx,
            min_rx,
            decay_min_rx,
            multiplier: multiplier.unwrap_or(MULTIPLIER),
            path_is_down: is_true("cpath_down"),
            forwards_if_rx: is_true("forwarding_if_rx"),
            local_source: mac("bfd_local_src_mac"),
            local_destination: mac("bfd_local_dst_mac"),
            remote_destination: mac("bfd_remote_dst_mac"),
            source: address("bfd_src_ip"),
            target: address("bfd_dst_ip"),
        };
        (Some(settings), wrong)
    }

    pub(super) fn source_address(&self) -> Ipv4Addr {
        self.source.unwrap_or(SOURCE)
    }

    pub(super) fn destination_address(&self) -> Ipv4Addr {
        self.target.unwrap_or(TARGET)
    }

    /// The destination that received packets must have; `None`: any.
    pub fn expected_address(&self) -> Option<Ipv4Addr> {
        self.source.filter(|source| *source != SOURCE)
    }
}

/// Returns the UDP source port of a system's `number`th session (RFC 5881 §4: 49152 to 65535).
pub fn source_port(number: u32) -> u16 {
    49152 + (number % 16384) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[(&str, &str)]) -> (Option<Settings>, Vec<String>) {
        Settings::read(&text.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
    }

    #[test]
    fn rows_have_defaults_and_bounds() {
        assert_eq!(read(&[]), (None, vec![]));
        assert_eq!(read(&[("enable", "false"), ("min_tx", "x")]), (None, vec![]));
        let (defaults, wrong) = read(&[("enable", "true")]);
        let defaults = defaults.unwrap();
        assert!(wrong.is_empty());
        assert_eq!((defaults.min_tx, defaults.min_rx, defaults.decay_min_rx), (100, 1000, 0));
        assert_eq!((defaults.multiplier, defaults.expected_address()), (3, None));
        for (mult, expected) in [("0", 3), ("1", 1), ("255", 255), ("256", 3), ("-1", 3)] {
            assert_eq!(read(&[("enable", "true"), ("mult", mult)]).0.unwrap().multiplier, expected);
        }
        let all = [("enable", "TRUE"), ("min_tx", "0"), ("min_rx", "99999999999"), ("bfd_src_ip", "x")];
        let (settings, wrong) = read(&all);
        let settings = settings.unwrap();
        assert_eq!((settings.min_tx, settings.min_rx), (1, LONGEST));
        assert_eq!(wrong, ["bfd:bfd_src_ip is not an IPv4 address"]);
        let (settings, wrong) = read(&[("enable", "true"), ("decay_min_rx", "999")]);
        assert_eq!(settings.unwrap().decay_min_rx, 0);
        assert_eq!(wrong, ["bfd:decay_min_rx is 999; expected at least min_rx, 1000"]);
    }

    #[test]
    fn source_ports_stay_in_range() {
        assert_eq!([0, 16383, 16384, u32::MAX].map(source_port), [49152, 65535, 49152, 65535]);
    }
}
