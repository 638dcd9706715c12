//! The protections and the queueing of a port by name, for the configuration file, the command line and the gRPC
//! API.
//!
//! [`KEYS`] is the only list: a new protection is one entry. Values are texts; `off` removes any protection.

use std::collections::BTreeMap;
use std::net::IpAddr;

use fabric::PortSettings;
use fabric::protection::{Limit, Source};
use packet::MacAddr;
use toml::{Table, Value};

use crate::options::Shape;
use crate::{queueing, rate, suggest};

/// Reasons for refusing protections.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtectionError {
    /// An unknown protection.
    #[error("unknown protection `{0}`; {1}")]
    Unknown(String, String),
    /// An invalid value.
    #[error("`{key}`: {message}")]
    Value {
        /// The protection.
        key: &'static str,
        /// The value found and the value expected.
        message: String,
    },
}

/// A protection.
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// Its TOML type in a written file.
    shape: Shape,
    /// The values that it takes.
    pub expected: &'static str,
    read: fn(&mut PortSettings, &str) -> Result<(), String>,
    write: fn(&PortSettings) -> Option<String>,
}

const RATE: &str = "a rate such as `100Mbit burst 64KiB` or `1000pps`, or `off`";

/// All protections.
pub const KEYS: &[Key] = &[
    Key {
        name: "isolated",
        shape: Shape::Boolean,
        expected: "`true` or `false`",
        read: |settings, text| switch(text).map(|on| settings.isolated = on),
        write: |settings| settings.isolated.then(|| "on".into()),
    },
    Key {
        name: "police",
        shape: Shape::Text,
        expected: RATE,
        read: |settings, text| police(settings.police, text).map(|limit| settings.police = limit),
        write: |settings| settings.police.as_ref().map(rate::format),
    },
    Key {
        name: "storm-broadcast",
        shape: Shape::Text,
        expected: RATE,
        read: |settings, text| limit(text).map(|limit| settings.storm.broadcast = limit),
        write: |settings| settings.storm.broadcast.as_ref().map(rate::format),
    },
    Key {
        name: "storm-multicast",
        shape: Shape::Text,
        expected: RATE,
        read: |settings, text| limit(text).map(|limit| settings.storm.multicast = limit),
        write: |settings| settings.storm.multicast.as_ref().map(rate::format),
    },
    Key {
        name: "storm-unknown",
        shape: Shape::Text,
        expected: RATE,
        read: |settings, text| limit(text).map(|limit| settings.storm.unknown = limit),
        write: |settings| settings.storm.unknown.as_ref().map(rate::format),
    },
    Key {
        name: "max-stations",
        shape: Shape::Number,
        expected: "a number of stations, or `off`",
        read: |settings, text| max_stations(text).map(|max| settings.security.max_stations = max),
        write: |settings| settings.security.max_stations.map(|max| max.to_string()),
    },
    Key {
        name: "stations",
        shape: Shape::List,
        expected: "a list of MAC addresses such as `[\"52:54:00:12:34:56\"]`, or `off`",
        read: |settings, text| stations(text).map(|list| settings.security.stations = list),
        write: |settings| join(&settings.security.stations),
    },
    Key {
        name: "sticky",
        shape: Shape::Boolean,
        expected: "`true` or `false`",
        read: |settings, text| switch(text).map(|on| settings.security.sticky = on),
        write: |settings| settings.security.sticky.then(|| "on".into()),
    },
    Key {
        name: "sources",
        shape: Shape::List,
        expected: "a list of addresses such as `[\"10.0.0.5\", \"fe80::/64@52:54:00:12:34:56\"]`, or `off`",
        read: |settings, text| sources(text).map(|list| settings.security.sources = list),
        write: |settings| join(&settings.security.sources.iter().map(source_text).collect::<Vec<_>>()),
    },
    Key {
        name: "trust",
        shape: Shape::Text,
        expected: "`pcp`, `dscp`, `dscp-pcp` or `off`",
        read: queueing::read_trust,
        write: queueing::write_trust,
    },
    Key {
        name: "class",
        shape: Shape::Number,
        expected: "a class, 0 to 7",
        read: queueing::read_class,
        write: queueing::write_class,
    },
    Key {
        name: "pcp-classes",
        shape: Shape::Text,
        expected: "a class for each priority code point, such as `1,0,2,3,4,5,6,7`, or `off`",
        read: queueing::read_pcp,
        write: queueing::write_pcp,
    },
    Key {
        name: "dscp-classes",
        shape: Shape::Text,
        expected: "code points with classes, such as `46:7,8-15:0`, or `off`",
        read: queueing::read_dscp,
        write: queueing::write_dscp,
    },
    Key {
        name: "queueing",
        shape: Shape::Text,
        expected: "`strict`, `drr`, a weight or `strict` for each class, such as `1,1,2,2,4,4,strict,strict`, or `off`",
        read: queueing::read_order,
        write: queueing::write_order,
    },
    Key {
        name: "shape",
        shape: Shape::Text,
        expected: "a rate such as `100Mbit` or `100Mbit burst 64KiB`, or `off`",
        read: queueing::read_shape,
        write: queueing::write_shape,
    },
    Key {
        name: "class-max",
        shape: Shape::Text,
        expected: "rates by class, such as `0:50Mbit,5-7:1Gbit`, or `off`",
        read: queueing::read_max,
        write: queueing::write_max,
    },
    Key {
        name: "class-min",
        shape: Shape::Text,
        expected: "rates by class, such as `6:10Mbit,7:1Mbit`, or `off`",
        read: queueing::read_min,
        write: queueing::write_min,
    },
    Key {
        name: "queue-buffers",
        shape: Shape::Number,
        expected: "a number of buffers, 16 to 65536, or `off`",
        read: queueing::read_buffers,
        write: queueing::write_buffers,
    },
    Key {
        name: "early-drop",
        shape: Shape::Text,
        expected: "such as `100..300 10% ecn`, or by class `0:50..150 20%,1-7:100..300 10%`, or `off`",
        read: queueing::read_early,
        write: queueing::write_early,
    },
];

/// Maximum number of entries of a list: source guard searches all of them for each packet.
const MAX_ENTRIES: usize = 256;

/// Largest station limit.
const MAX_STATIONS: u32 = 8192;

/// Returns the names of all protections.
pub fn names() -> Vec<&'static str> {
    KEYS.iter().map(|key| key.name).collect()
}

/// Sets one protection.
pub fn set(settings: &mut PortSettings, key: &'static Key, text: &str) -> Result<(), ProtectionError> {
    (key.read)(settings, text).map_err(|message| ProtectionError::Value { key: key.name, message })
}

/// Checks that the protections of a port are consistent.
pub fn check(settings: &PortSettings) -> Result<(), ProtectionError> {
    let security = &settings.security;
    if security.sticky && security.max_stations.is_none() && security.stations.is_empty() {
        let message = "without a limit, one client could fill the MAC table permanently; add `max-stations` or `stations`";
        return Err(ProtectionError::Value { key: "sticky", message: message.into() });
    }
    if let Some((key, message)) = queueing::contradiction(settings) {
        return Err(ProtectionError::Value { key, message });
    }
    Ok(())
}

/// Sets the given protections and leaves the others unchanged.
pub fn apply(settings: &mut PortSettings, given: &BTreeMap<String, String>) -> Result<(), ProtectionError> {
    if let Some(name) = given.keys().find(|name| !KEYS.iter().any(|key| key.name == *name)) {
        return Err(ProtectionError::Unknown(name.clone(), suggest::instead(name, &names())));
    }
    // In the order of the list: turning queueing off comes before what turns it on.
    for key in KEYS {
        if let Some(text) = given.get(key.name) {
            set(settings, key, text)?;
        }
    }
    check(settings)
}

/// Returns the active protections, in the form that [`apply`] takes.
pub fn given(settings: &PortSettings) -> BTreeMap<String, String> {
    KEYS.iter().filter_map(|key| Some((key.name.to_owned(), (key.write)(settings)?))).collect()
}

/// Those that are on, as a file has them.
pub(crate) fn to_toml(settings: &PortSettings) -> Table {
    let value = |key: &Key| {
        let text = (key.write)(settings)?;
        Some(match key.shape {
            Shape::Boolean => true.into(),
            Shape::Number => text.parse::<i64>().map_or(text.into(), Value::from),
            Shape::List => text.split(',').map(Value::from).collect::<Vec<_>>().into(),
            Shape::Text => text.into(),
        })
    };
    KEYS.iter().filter_map(|key| Some((key.name.to_owned(), value(key)?))).collect()
}

fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(format!("`{text}` is neither `on` nor `off`")),
    }
}

fn limit(text: &str) -> Result<Option<Limit>, String> {
    rate::parse(text).map_err(|error| error.to_string())
}

/// A limit as [`limit`] reads it, or `burst SIZE`: the present rate with another burst.
fn police(present: Option<Limit>, text: &str) -> Result<Option<Limit>, String> {
    let Some(size) = text.trim().strip_prefix("burst ") else { return limit(text) };
    let present = present.ok_or(
        "the port has no rate that a burst could belong to; set both, such as `100Mbit burst 64KiB`",
    )?;
    rate::with_burst(present, size.trim()).map(Some).map_err(|error| error.to_string())
}

fn max_stations(text: &str) -> Result<Option<u32>, String> {
    if text == "off" {
        return Ok(None);
    }
    let max = text.parse().ok().filter(|max| (1..=MAX_STATIONS).contains(max));
    max.map(Some).ok_or_else(|| {
        format!("`{text}` is not a number of stations; expected 1 to {MAX_STATIONS}, or `off` for no limit")
    })
}

/// Parses a list whose entries are separated by commas; `off` is an empty list.
fn entries<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    if text == "off" {
        return Ok(Vec::new());
    }
    let list = text.split(',').map(|entry| read(entry.trim())).collect::<Result<Vec<_>, _>>()?;
    if list.len() > MAX_ENTRIES {
        return Err(format!("a list of {} entries is too long; expected at most {MAX_ENTRIES}", list.len()));
    }
    Ok(list)
}

fn join<T: ToString>(list: &[T]) -> Option<String> {
    let texts: Vec<_> = list.iter().map(T::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

fn station(text: &str) -> Result<MacAddr, String> {
    let mac: MacAddr = text.parse().map_err(|error: packet::ether::MacAddrError| error.to_string())?;
    if mac.is_multicast() {
        return Err(format!("`{text}` is a group address; expected the address of a station"));
    }
    Ok(mac)
}

fn stations(text: &str) -> Result<Vec<MacAddr>, String> {
    let mut list = entries(text, station)?;
    list.sort_unstable();
    list.dedup();
    Ok(list)
}

/// Parses a source, such as `10.0.0.5`, `10.0.0.0/24` or `fd00::5@52:54:00:12:34:56`.
fn source(text: &str) -> Result<Source, String> {
    let (network, mac) = match text.split_once('@') {
        Some((network, mac)) => (network, Some(station(mac)?)),
        None => (text, None),
    };
    let (address, prefix) = network.split_once('/').unwrap_or((network, ""));
    let wrong = || {
        format!(
            "`{text}` is not an address; expected an address such as `10.0.0.5`, `fe80::/64` or \
             `10.0.0.5@52:54:00:12:34:56`"
        )
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match network.contains('/') {
        true => prefix.parse().ok().filter(|prefix| *prefix <= width).ok_or_else(wrong)?,
        false => width,
    };
    let source = Source { address, prefix, mac };
    // Host bits are refused: 10.0.0.5/24 would allow the whole network, where probably one address is meant.
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let rest = u32::from(width - prefix);
    if rest > 0 && bits & (u128::MAX >> (128 - rest)) != 0 {
        return Err(format!(
            "`{network}` has host bits set; write the network address, or the address without a prefix"
        ));
    }
    Ok(source)
}

fn sources(text: &str) -> Result<Vec<Source>, String> {
    entries(text, source)
}

fn source_text(source: &Source) -> String {
    let mut text = source.address.to_string();
    if source.prefix != if source.address.is_ipv4() { 32 } else { 128 } {
        text += &format!("/{}", source.prefix);
    }
    if let Some(mac) = source.mac {
        text += &format!("@{mac}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect()
    }

    #[test]
    fn protections_are_set_and_formatted() {
        let mut settings = PortSettings::new("a");
        assert_eq!(given(&settings), map(&[]));
        let all = map(&[
            ("isolated", "on"),
            ("police", "100Mbit burst 64KiB"),
            ("storm-broadcast", "1kpps"),
            ("storm-multicast", "1Mbit"),
            ("storm-unknown", "10pps burst 5"),
            ("max-stations", "3"),
            ("stations", "52:54:00:00:00:01,52:54:00:00:00:02"),
            ("sticky", "on"),
            ("sources", "10.0.0.5,10.1.0.0/16,fd00::5@52:54:00:00:00:01,fe80::/64"),
            ("trust", "dscp"),
            ("class", "2"),
            ("pcp-classes", "0,0,2,3,4,5,6,7"),
            ("dscp-classes", "46:7"),
            ("queueing", "1,1,2,2,4,4,strict,strict"),
            ("shape", "1Gbit burst 64KiB"),
            ("class-max", "0:50Mbit"),
            ("class-min", "7:1Mbit"),
            ("queue-buffers", "1024"),
            ("early-drop", "100..300 10% ecn"),
        ]);
        assert_eq!(all.len(), KEYS.len(), "a protection is missing in this test");
        apply(&mut settings, &all).unwrap();
        assert_eq!(given(&settings), all);
        // Protections that are not given are unchanged; `off` removes each one.
        apply(&mut settings, &map(&[("police", "off")])).unwrap();
        assert_eq!(given(&settings).len(), all.len() - 1);
        apply(&mut settings, &map(&[("sticky", "off")])).unwrap();
        // Guarantees are parts of a rate.
        let guarantees_first = |key: &&str| *key != "class-min";
        let mut names = names();
        names.sort_by_key(guarantees_first);
        for key in names {
            apply(&mut settings, &map(&[(key, "off")])).unwrap();
        }
        apply(&mut settings, &map(&[("queueing", "off")])).unwrap();
        assert_eq!(settings, PortSettings::new("a"));
    }

    #[test]
    fn the_keys_of_queueing_are_known() {
        assert!(queueing::KEYS.iter().all(|key| names().contains(key)));
    }

    #[test]
    fn a_burst_alone_changes_that_of_the_present_rate() {
        let mut settings = PortSettings::new("a");
        let refused = apply(&mut settings, &map(&[("police", "burst 64KiB")])).unwrap_err().to_string();
        assert_eq!(
            refused,
            "`police`: the port has no rate that a burst could belong to; set both, such as `100Mbit burst 64KiB`"
        );
        for (set, police) in [
            ("20Mbit burst 1MiB", "20Mbit burst 1MiB"),
            ("burst 64KiB", "20Mbit burst 64KiB"),
            ("30Mbit", "30Mbit"),
            ("burst 10kB", "30Mbit burst 10kB"),
            ("1000pps", "1kpps"),
            ("burst 7", "1kpps burst 7"),
        ] {
            apply(&mut settings, &map(&[("police", set)])).unwrap();
            assert_eq!(given(&settings)["police"], police);
        }
        let refused = apply(&mut settings, &map(&[("police", "burst 1kB")])).unwrap_err().to_string();
        assert!(refused.contains("the burst `1kB` is not a number of packets"), "{refused}");
    }

    #[test]
    fn protections_are_in_the_configuration_reference() {
        let port = crate::keys::names(crate::keys::PORT);
        assert!(names().iter().all(|name| port.contains(name)));
    }

    #[test]
    fn errors_have_the_key_and_the_expected_value() {
        let refused = |key: &str, text: &str| {
            apply(&mut PortSettings::new("a"), &map(&[(key, text)])).unwrap_err().to_string()
        };
        assert_eq!(refused("isolated", "yes"), "`isolated`: `yes` is neither `on` nor `off`");
        assert!(refused("polcie", "1pps").starts_with("unknown protection `polcie`; did you mean `police`?"));
        assert_eq!(
            refused("max-stations", "0"),
            "`max-stations`: `0` is not a number of stations; expected 1 to 8192, or `off` for no limit"
        );
        assert!(
            refused("stations", "x").starts_with("`stations`: `x` is not a MAC address: expected six pairs")
        );
        assert!(refused("stations", "01:00:5e:00:00:01").contains("is a group address"));
        assert!(
            refused("stations", &["52:54:00:00:00:01"; 257].join(","))
                .contains("a list of 257 entries is too long")
        );
        for wrong in ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "fd00::/129", "10.0.0.5 x"] {
            let found = refused("sources", wrong);
            assert!(
                found.starts_with(&format!(
                    "`sources`: `{wrong}` is not an address; expected an address such as"
                )),
                "{found}"
            );
        }
        assert!(refused("sources", "10.0.0.5/24").contains("`10.0.0.5/24` has host bits set"));
        assert!(refused("sources", "10.0.0.5@1").contains("`1` is not a MAC address"));
        assert!(
            refused("sticky", "on")
                .starts_with("`sticky`: without a limit, one client could fill the MAC table")
        );
        let found = refused("storm-unknown", "fast");
        assert!(
            found.starts_with("`storm-unknown`: `fast` is not a rate; expected `off`, `100Mbit`"),
            "{found}"
        );
    }
}
