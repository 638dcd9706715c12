//! The protections of a port by the names that the file, the command line and the gRPC API have for them.
//!
//! [`KEYS`] is the only list: a new protection is one entry. Values travel as text, and each protection has a text that
//! takes it away (`off`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use fabric::PortSettings;
use fabric::protection::{Limit, Source};
use packet::MacAddr;

use crate::{rate, suggest};

/// Why protections are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtectionError {
    /// No such protection.
    #[error("unknown protection `{0}`; {1}")]
    Unknown(String, String),
    /// A value that it cannot have.
    #[error("`{key}`: {message}")]
    Value {
        /// The protection.
        key: &'static str,
        /// What is wrong, and what would be right.
        message: String,
    },
}

/// A protection.
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What a value looks like.
    pub expected: &'static str,
    read: fn(&mut PortSettings, &str) -> Result<(), String>,
    write: fn(&PortSettings) -> Option<String>,
}

const RATE: &str = "a rate such as `100Mbit burst 64KiB` or `1000pps`, or `off`";

/// All of them.
pub const KEYS: &[Key] = &[
    Key {
        name: "isolated",
        expected: "`true` or `false`",
        read: |settings, text| switch(text).map(|on| settings.isolated = on),
        write: |settings| settings.isolated.then(|| "on".into()),
    },
    Key {
        name: "police",
        expected: RATE,
        read: |settings, text| limit(text).map(|limit| settings.police = limit),
        write: |settings| settings.police.as_ref().map(rate::format),
    },
    Key {
        name: "storm-broadcast",
        expected: RATE,
        read: |settings, text| limit(text).map(|limit| settings.storm.broadcast = limit),
        write: |settings| settings.storm.broadcast.as_ref().map(rate::format),
    },
    Key {
        name: "storm-multicast",
        expected: RATE,
        read: |settings, text| limit(text).map(|limit| settings.storm.multicast = limit),
        write: |settings| settings.storm.multicast.as_ref().map(rate::format),
    },
    Key {
        name: "storm-unknown",
        expected: RATE,
        read: |settings, text| limit(text).map(|limit| settings.storm.unknown = limit),
        write: |settings| settings.storm.unknown.as_ref().map(rate::format),
    },
    Key {
        name: "max-stations",
        expected: "a number of stations, or `off`",
        read: |settings, text| max_stations(text).map(|most| settings.security.max_stations = most),
        write: |settings| settings.security.max_stations.map(|most| most.to_string()),
    },
    Key {
        name: "stations",
        expected: "a list of MAC addresses such as `[\"52:54:00:12:34:56\"]`, or `off`",
        read: |settings, text| stations(text).map(|list| settings.security.stations = list),
        write: |settings| join(&settings.security.stations),
    },
    Key {
        name: "sticky",
        expected: "`true` or `false`",
        read: |settings, text| switch(text).map(|on| settings.security.sticky = on),
        write: |settings| settings.security.sticky.then(|| "on".into()),
    },
    Key {
        name: "sources",
        expected: "a list of addresses such as `[\"10.0.0.5\", \"fe80::/64@52:54:00:12:34:56\"]`, or `off`",
        read: |settings, text| sources(text).map(|list| settings.security.sources = list),
        write: |settings| join(&settings.security.sources.iter().map(source_text).collect::<Vec<_>>()),
    },
];

/// Most entries of a list: source guard looks through all of it for each packet.
const MOST_ENTRIES: usize = 256;

/// Most stations that a limit can name: more is no limit.
const MOST_STATIONS: u32 = 8192;

/// The names of all.
pub fn names() -> Vec<&'static str> {
    KEYS.iter().map(|key| key.name).collect()
}

/// Sets one.
pub fn set(settings: &mut PortSettings, key: &'static Key, text: &str) -> Result<(), ProtectionError> {
    (key.read)(settings, text).map_err(|message| ProtectionError::Value { key: key.name, message })
}

/// Whether they make sense together.
pub fn check(settings: &PortSettings) -> Result<(), ProtectionError> {
    let security = &settings.security;
    if security.sticky && security.max_stations.is_none() && security.stations.is_empty() {
        let message =
            "without a limit one client could fill the MAC table for good; add `max-stations` or `stations`";
        return Err(ProtectionError::Value { key: "sticky", message: message.into() });
    }
    Ok(())
}

/// Sets those given; the others stay.
pub fn apply(settings: &mut PortSettings, given: &BTreeMap<String, String>) -> Result<(), ProtectionError> {
    for (name, text) in given {
        let key = KEYS.iter().find(|key| key.name == name);
        let unknown = || ProtectionError::Unknown(name.clone(), suggest::instead(name, &names()));
        set(settings, key.ok_or_else(unknown)?, text)?;
    }
    check(settings)
}

/// Those that are on, as [`apply`] takes them.
pub fn given(settings: &PortSettings) -> BTreeMap<String, String> {
    KEYS.iter().filter_map(|key| Some((key.name.to_owned(), (key.write)(settings)?))).collect()
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

fn max_stations(text: &str) -> Result<Option<u32>, String> {
    if text == "off" {
        return Ok(None);
    }
    let most = text.parse().ok().filter(|most| (1..=MOST_STATIONS).contains(most));
    most.map(Some).ok_or_else(|| {
        format!(
            "`{text}` is not a number of stations; expected 1 to {MOST_STATIONS}, or `off` for any number"
        )
    })
}

/// The entries of a list with commas; `off` has none.
fn entries<T>(text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    if text == "off" {
        return Ok(Vec::new());
    }
    let list = text.split(',').map(|entry| read(entry.trim())).collect::<Result<Vec<_>, _>>()?;
    if list.len() > MOST_ENTRIES {
        return Err(format!("{} entries are too many; expected {MOST_ENTRIES} at most", list.len()));
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
        return Err(format!("`{text}` is a group of stations; expected the address of one"));
    }
    Ok(mac)
}

fn stations(text: &str) -> Result<Vec<MacAddr>, String> {
    let mut list = entries(text, station)?;
    list.sort_unstable();
    list.dedup();
    Ok(list)
}

/// `10.0.0.5`, `10.0.0.0/24`, `fd00::5@52:54:00:12:34:56`.
fn source(text: &str) -> Result<Source, String> {
    let (network, mac) = match text.split_once('@') {
        Some((network, mac)) => (network, Some(station(mac)?)),
        None => (text, None),
    };
    let (address, prefix) = network.split_once('/').unwrap_or((network, ""));
    let wrong = || {
        format!(
            "`{text}` is not an address; expected such as `10.0.0.5`, `fe80::/64` or `10.0.0.5@52:54:00:12:34:56`"
        )
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match network.contains('/') {
        true => prefix.parse().ok().filter(|prefix| *prefix <= width).ok_or_else(wrong)?,
        false => width,
    };
    let first = Source { address, prefix, mac };
    // An address beside its network would be read as the whole network: more than was meant.
    let inside = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let rest = u32::from(width - prefix);
    if rest > 0 && inside & (u128::MAX >> (128 - rest)) != 0 {
        return Err(format!(
            "`{network}` has bits beyond its prefix; write the network, or the address alone"
        ));
    }
    Ok(first)
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
    fn what_is_given_is_set_and_reads_back() {
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
        ]);
        assert_eq!(all.len(), KEYS.len(), "a protection that is not tested");
        apply(&mut settings, &all).unwrap();
        assert_eq!(given(&settings), all);
        // What is not given stays; each can be taken away.
        apply(&mut settings, &map(&[("police", "off")])).unwrap();
        assert_eq!(given(&settings).len(), all.len() - 1);
        apply(&mut settings, &map(&[("sticky", "off")])).unwrap();
        for key in names() {
            apply(&mut settings, &map(&[(key, "off")])).unwrap();
        }
        assert_eq!(settings, PortSettings::new("a"));
    }

    #[test]
    fn all_are_in_the_reference() {
        let port = crate::keys::names(crate::keys::PORT);
        assert!(names().iter().all(|name| port.contains(name)));
    }

    #[test]
    fn mistakes_are_named() {
        let refused = |key: &str, text: &str| {
            apply(&mut PortSettings::new("a"), &map(&[(key, text)])).unwrap_err().to_string()
        };
        assert_eq!(refused("isolated", "yes"), "`isolated`: `yes` is neither `on` nor `off`");
        assert!(refused("polcie", "1pps").starts_with("unknown protection `polcie`; did you mean `police`?"));
        assert_eq!(
            refused("max-stations", "0"),
            "`max-stations`: `0` is not a number of stations; expected 1 to 8192, or `off` for any number"
        );
        assert!(
            refused("stations", "x").starts_with("`stations`: `x` is not a MAC address: expected six pairs")
        );
        assert!(refused("stations", "01:00:5e:00:00:01").contains("is a group of stations"));
        assert!(
            refused("stations", &["52:54:00:00:00:01"; 257].join(",")).contains("257 entries are too many")
        );
        for wrong in ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "fd00::/129", "10.0.0.5 x"] {
            let found = refused("sources", wrong);
            assert!(
                found.starts_with(&format!("`sources`: `{wrong}` is not an address; expected such")),
                "{found}"
            );
        }
        assert!(refused("sources", "10.0.0.5/24").contains("`10.0.0.5/24` has bits beyond its prefix"));
        assert!(refused("sources", "10.0.0.5@1").contains("`1` is not a MAC address"));
        assert!(
            refused("sticky", "on")
                .starts_with("`sticky`: without a limit one client could fill the MAC table")
        );
        let found = refused("storm-unknown", "fast");
        assert!(
            found.starts_with("`storm-unknown`: `fast` is not a rate; expected `off`, `100Mbit`"),
            "{found}"
        );
    }
}
