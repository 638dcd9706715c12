//! Settings of sFlow export: the values of `[sflow]` and of `mswitch sflow set`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::collector;

/// Default UDP port of collectors (IANA: sflow).
pub const DEFAULT_PORT: u16 = 6343;
/// Default sampling rate: one packet in this many.
pub const DEFAULT_SAMPLING: u32 = 1000;
/// Default number of seconds between counter samples.
pub const DEFAULT_POLLING: u32 = 20;
/// Default maximum number of bytes of a packet in its sample.
pub const DEFAULT_HEADER: u32 = 128;

const MAX_SAMPLING: u32 = 1_000_000_000;
const MAX_POLLING: u32 = 86_400;
const MIN_HEADER: u32 = 14;
/// Largest number of bytes of a packet in its sample.
pub(super) const MAX_HEADER: u32 = 512;
const MAX_COLLECTORS: usize = 16;

/// The settings of sFlow export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SflowConfig {
    /// The collectors; at least one.
    pub collectors: Vec<Collector>,
    /// The IP address that identifies this switch to collectors; `None` for the source address of the datagrams to the
    /// first collector.
    pub agent: Option<IpAddr>,
    /// Sampling rate: one packet in this many.
    pub sampling: u32,
    /// Seconds between counter samples; 0 for none.
    pub polling: u32,
    /// Maximum number of bytes of a packet in its sample.
    pub header: u32,
}

impl SflowConfig {
    /// Creates settings with these collectors and defaults.
    pub fn new(collectors: Vec<Collector>) -> Result<Self, SflowError> {
        check_collectors(&collectors)?;
        let (sampling, polling, header) = (DEFAULT_SAMPLING, DEFAULT_POLLING, DEFAULT_HEADER);
        Ok(Self { collectors, agent: None, sampling, polling, header })
    }
}

/// Fields that `sflow set` changes; `None` leaves a field unchanged, or at its default if sFlow was disabled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SflowChange {
    /// The new list of collectors.
    pub collectors: Option<Vec<Collector>>,
    /// The agent address, see [`SflowConfig::agent`].
    pub agent: Option<Option<IpAddr>>,
    /// The sampling rate.
    pub sampling: Option<u32>,
    /// Seconds between counter samples.
    pub polling: Option<u32>,
    /// Bytes of a packet in its sample.
    pub header: Option<u32>,
}

impl SflowChange {
    /// Applies the change to the settings; `None` if sFlow was disabled.
    pub fn apply(self, before: Option<&SflowConfig>) -> Result<SflowConfig, SflowError> {
        let mut config = match (before, self.collectors) {
            (Some(before), None) => before.clone(),
            (Some(before), Some(collectors)) => {
                check_collectors(&collectors)?;
                SflowConfig { collectors, ..before.clone() }
            }
            (None, collectors) => SflowConfig::new(collectors.unwrap_or_default())?,
        };
        config.agent = self.agent.unwrap_or(config.agent);
        config.sampling = self.sampling.unwrap_or(config.sampling);
        config.polling = self.polling.unwrap_or(config.polling);
        config.header = self.header.unwrap_or(config.header);
        Ok(config)
    }
}

/// Reasons for refusing a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SflowError {
    /// An invalid address of a collector.
    #[error(
        "`{0}` is not a collector; expected an IP address such as 192.0.2.9, 192.0.2.9:6343 or [2001:db8::9]:6343, not a \
         host name"
    )]
    Collector(String),
    /// An empty list of collectors.
    #[error(
        "sFlow needs a collector: name one with `collectors` in `[sflow]`, or with `--collectors 192.0.2.9`"
    )]
    NoCollector,
    /// A duplicate collector.
    #[error("collector {0} is listed twice; list it once")]
    Twice(Collector),
    /// Too many collectors.
    #[error("a list of {0} collectors is too long; expected at most {MAX_COLLECTORS}")]
    TooMany(usize),
    /// An invalid agent address.
    #[error(
        "`{0}` is not an agent address; expected the IP address of this switch for collectors, or `auto`"
    )]
    Agent(String),
    /// A sampling rate out of range.
    #[error("a sampling rate of 1 in {0} is out of range; expected 1 to {MAX_SAMPLING}")]
    Sampling(i64),
    /// A polling interval out of range.
    #[error("a polling interval of {0} s is out of range; expected 1 to {MAX_POLLING}, or 0 for no counters")]
    Polling(i64),
    /// A number of bytes out of range.
    #[error("a header of {0} bytes is out of range; expected {MIN_HEADER} to {MAX_HEADER}")]
    Header(i64),
}

/// The address of a collector: `192.0.2.9:6343`, `[2001:db8::9]:6343`, or an address alone for the default port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collector(pub(super) SocketAddr);

impl FromStr for Collector {
    type Err = SflowError;

    fn from_str(text: &str) -> Result<Self, SflowError> {
        collector::parse(text, Some(DEFAULT_PORT)).map(Self).ok_or_else(|| SflowError::Collector(text.into()))
    }
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Checks a list of collectors.
pub fn check_collectors(collectors: &[Collector]) -> Result<(), SflowError> {
    let twice =
        (1..).zip(collectors).find(|(next, one)| collectors.iter().skip(*next).any(|other| other == *one));
    match (collectors.len(), twice) {
        (0, _) => Err(SflowError::NoCollector),
        (n, _) if n > MAX_COLLECTORS => Err(SflowError::TooMany(n)),
        (_, Some((_, collector))) => Err(SflowError::Twice(*collector)),
        _ => Ok(()),
    }
}

/// Parses an agent address; `auto` means `None`.
pub fn parse_agent(text: &str) -> Result<Option<IpAddr>, SflowError> {
    match text {
        "auto" => Ok(None),
        text => text
            .parse()
            .ok()
            .filter(|address: &IpAddr| !address.is_unspecified())
            .map(Some)
            .ok_or_else(|| SflowError::Agent(text.into())),
    }
}

/// Checks a sampling rate.
pub fn check_sampling(rate: i64) -> Result<u32, SflowError> {
    within(rate, 1, MAX_SAMPLING).ok_or(SflowError::Sampling(rate))
}

/// Checks the seconds between counter samples.
pub fn check_polling(seconds: i64) -> Result<u32, SflowError> {
    within(seconds, 0, MAX_POLLING).ok_or(SflowError::Polling(seconds))
}

/// Checks the number of bytes of a packet in its sample.
pub fn check_header(bytes: i64) -> Result<u32, SflowError> {
    within(bytes, MIN_HEADER, MAX_HEADER).ok_or(SflowError::Header(bytes))
}

fn within(value: i64, min: u32, max: u32) -> Option<u32> {
    u32::try_from(value).ok().filter(|value| (min..=max).contains(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collector(text: &str) -> Result<String, String> {
        text.parse::<Collector>().map(|c| c.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn collectors_are_parsed() {
        for (text, full) in [
            ("192.0.2.9", "192.0.2.9:6343"),
            ("192.0.2.9:99", "192.0.2.9:99"),
            ("2001:db8::9", "[2001:db8::9]:6343"),
            ("[2001:db8::9]", "[2001:db8::9]:6343"),
            ("[2001:db8::9]:99", "[2001:db8::9]:99"),
        ] {
            assert_eq!(collector(text).as_deref(), Ok(full));
            assert_eq!(collector(full).as_deref(), Ok(full), "a formatted address parses back");
        }
        for bad in [
            "",
            "collector.example",
            "192.0.2.9:",
            "192.0.2.9:0",
            "[192.0.2.9]",
            "0.0.0.0",
            "[::]:1",
            ":6343",
        ] {
            let error = collector(bad).unwrap_err();
            assert!(
                error.starts_with(&format!("`{bad}` is not a collector; expected an IP address such as")),
                "{error}"
            );
        }
    }

    #[test]
    fn lists_of_collectors_are_checked() {
        let one: Collector = "192.0.2.9".parse().unwrap();
        let other: Collector = "192.0.2.9:1".parse().unwrap();
        assert_eq!(check_collectors(&[one, other]), Ok(()));
        assert!(
            check_collectors(&[]).unwrap_err().to_string().starts_with("sFlow needs a collector: name one")
        );
        let twice = check_collectors(&[one, other, one]).unwrap_err().to_string();
        assert_eq!(twice, "collector 192.0.2.9:6343 is listed twice; list it once");
        let many: Vec<Collector> = (1..=17).map(|n| format!("192.0.2.{n}").parse().unwrap()).collect();
        assert_eq!(check_collectors(&many[..16]), Ok(()));
        let many = check_collectors(&many).unwrap_err().to_string();
        assert_eq!(many, "a list of 17 collectors is too long; expected at most 16");
    }

    #[test]
    fn errors_have_the_ranges() {
        assert_eq!(parse_agent("auto"), Ok(None));
        assert_eq!(parse_agent("10.0.0.1"), Ok(Some([10, 0, 0, 1].into())));
        for bad in ["eth0", "10.0.0.1:1", "::", ""] {
            let error = parse_agent(bad).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("`{bad}` is not an agent address; expected the IP address")),
                "{error}"
            );
        }
        assert_eq!((check_sampling(1), check_sampling(1_000_000_000)), (Ok(1), Ok(1_000_000_000)));
        assert_eq!((check_polling(0), check_polling(86_400)), (Ok(0), Ok(86_400)));
        assert_eq!((check_header(14), check_header(512)), (Ok(14), Ok(512)));
        for (error, text) in [
            (
                check_sampling(0).unwrap_err(),
                "a sampling rate of 1 in 0 is out of range; expected 1 to 1000000000",
            ),
            (
                check_polling(-1).unwrap_err(),
                "a polling interval of -1 s is out of range; expected 1 to 86400, or 0 for no counters",
            ),
            (check_header(513).unwrap_err(), "a header of 513 bytes is out of range; expected 14 to 512"),
        ] {
            assert_eq!(error.to_string(), text);
        }
        assert!(
            check_sampling(1 << 40).is_err() && check_polling(86_401).is_err() && check_header(13).is_err()
        );
    }

    #[test]
    fn a_change_leaves_other_settings_unchanged() {
        let nothing = SflowChange::default().apply(None);
        assert_eq!(nothing, Err(SflowError::NoCollector));
        let collectors = vec!["192.0.2.9".parse().unwrap()];
        let on = SflowChange { collectors: Some(collectors.clone()), ..SflowChange::default() };
        let config = on.apply(None).unwrap();
        assert_eq!(config, SflowConfig { collectors, agent: None, sampling: 1000, polling: 20, header: 128 });
        let agent = Some([10, 0, 0, 1].into());
        let change = SflowChange { agent: Some(agent), header: Some(64), ..SflowChange::default() };
        let changed = change.apply(Some(&config)).unwrap();
        assert_eq!(changed, SflowConfig { agent, header: 64, ..config.clone() });
        let auto =
            SflowChange { agent: Some(None), sampling: Some(7), polling: Some(0), ..SflowChange::default() };
        let changed = auto.apply(Some(&changed)).unwrap();
        assert_eq!(changed, SflowConfig { sampling: 7, polling: 0, header: 64, ..config.clone() });
        let none = SflowChange { collectors: Some(Vec::new()), ..SflowChange::default() };
        assert_eq!(none.apply(Some(&config)), Err(SflowError::NoCollector));
    }
}
