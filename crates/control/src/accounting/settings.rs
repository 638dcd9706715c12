//! Settings of NetFlow and IPFIX.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::ipfix::MAX_VIRTUAL_ID;
pub use super::netflow::Engine;
use crate::collector;

/// UDP port of IPFIX collectors (IANA: ipfix).
pub const IPFIX_PORT: u16 = 4739;
/// Time after which NetFlow reports a flow that lasts on, unless told otherwise.
pub const DEFAULT_ACTIVE_TIMEOUT: Duration = Duration::from_secs(600);
/// Sampling rate of IPFIX, unless told otherwise: one packet in this many.
pub const DEFAULT_SAMPLING: u32 = 400;
/// Seconds between templates, and between statistics, unless told otherwise.
pub const DEFAULT_INTERVAL: u32 = 600;
/// Flows that an export keeps at most, whatever is asked for.
pub const MAX_FLOWS: u32 = 1 << 18;
/// Flows that NetFlow keeps.
pub(super) const NETFLOW_FLOWS: usize = 1 << 16;

const MAX_COLLECTORS: usize = 16;

/// Accounting of a bridge's packets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccountingConfig {
    /// NetFlow export; `None`: disabled.
    pub netflow: Option<NetflowConfig>,
    /// IPFIX export of the bridge's packets; `None`: disabled.
    pub ipfix: Option<IpfixConfig>,
    /// Exports of packets that `sample` actions choose, by the number that actions have.
    pub sets: Vec<(u32, CacheConfig)>,
}

/// NetFlow export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetflowConfig {
    /// The collectors; at least one.
    pub collectors: Vec<SocketAddr>,
    /// Identifies the exporter to collectors.
    pub engine: Engine,
    /// Time after which a flow that lasts on is reported; `None`: never.
    pub active_timeout: Option<Duration>,
}

/// IPFIX export of a bridge's packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpfixConfig {
    /// The collectors and the cache.
    pub cache: CacheConfig,
    /// Sampling rate: one packet in this many.
    pub sampling: u32,
    /// Observation domain and point of the records.
    pub domain: u32,
    /// The point.
    pub point: u32,
    /// Whether packets are accounted where they come in.
    pub input: bool,
    /// Whether packets are accounted where they leave.
    pub output: bool,
}

/// IPFIX export: collectors and cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// The collectors; at least one.
    pub collectors: Vec<SocketAddr>,
    /// Seconds after which a flow that lasts on is reported; 0: each packet is reported.
    pub active_timeout: u32,
    /// Flows at most, up to [`MAX_FLOWS`]; 0: each packet is reported.
    pub max_flows: u32,
    /// Seconds between templates.
    pub template_interval: u32,
    /// Seconds between statistics of the export.
    pub statistics_interval: u32,
    /// A string that records have.
    pub virtual_id: Option<String>,
}

impl CacheConfig {
    /// Makes settings with these collectors that report each packet.
    pub fn new(collectors: Vec<SocketAddr>) -> Self {
        Self {
            collectors,
            active_timeout: 0,
            max_flows: 0,
            template_interval: DEFAULT_INTERVAL,
            statistics_interval: DEFAULT_INTERVAL,
            virtual_id: None,
        }
    }
}

/// Reasons for refusing a setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountingError {
    /// An invalid address of a collector.
    #[error(
        "`{0}` is not a collector; expected an IP address with a port, such as 192.0.2.9:{1}, not a host name"
    )]
    Collector(String, u16),
    /// No collector.
    #[error("it has no collector in `targets`")]
    NoCollector,
    /// Too many collectors.
    #[error("{0} collectors are too many; expected at most {MAX_COLLECTORS}")]
    TooMany(usize),
    /// A virtual observation id that is too long.
    #[error("a virtual_obs_id of {0} bytes is too long; expected at most {MAX_VIRTUAL_ID}")]
    VirtualId(usize),
}

/// Reads the addresses of collectors. `default_port` is that of an address without one; 2055 is NetFlow's usual port,
/// which has to be given.
pub fn collectors<'a>(
    targets: impl IntoIterator<Item = &'a String>,
    default_port: Option<u16>,
) -> Result<Vec<SocketAddr>, AccountingError> {
    let address = |target: &String| {
        collector::parse(target, default_port)
            .ok_or_else(|| AccountingError::Collector(target.clone(), default_port.unwrap_or(2055)))
    };
    let all = targets.into_iter().map(address).collect::<Result<BTreeSet<_>, _>>()?;
    match all.len() {
        0 => Err(AccountingError::NoCollector),
        count if count > MAX_COLLECTORS => Err(AccountingError::TooMany(count)),
        _ => Ok(all.into_iter().collect()),
    }
}

/// Checks a virtual observation id.
pub fn check_virtual_id(id: &str) -> Result<String, AccountingError> {
    if id.len() > MAX_VIRTUAL_ID { Err(AccountingError::VirtualId(id.len())) } else { Ok(id.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(targets: &[&str], port: Option<u16>) -> Result<String, String> {
        let targets: Vec<_> = targets.iter().map(|it| (*it).to_owned()).collect();
        let all = collectors(&targets, port).map_err(|error| error.to_string())?;
        Ok(all.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn collectors_need_a_port_unless_there_is_a_default() {
        assert_eq!(
            read(&["[::1]:2055", "192.0.2.9:1", "192.0.2.9:1"], None).unwrap(),
            "192.0.2.9:1 [::1]:2055"
        );
        assert_eq!(read(&["192.0.2.9", "::1"], Some(IPFIX_PORT)).unwrap(), "192.0.2.9:4739 [::1]:4739");
        assert_eq!(
            read(&["192.0.2.9"], None).unwrap_err(),
            "`192.0.2.9` is not a collector; expected an IP address with a port, such as 192.0.2.9:2055, not a host \
             name"
        );
        assert!(read(&["xyzzy"], Some(IPFIX_PORT)).unwrap_err().contains("`xyzzy` is not a collector"));
        assert_eq!(read(&[], None).unwrap_err(), "it has no collector in `targets`");
        let many: Vec<_> = (1..=17).map(|n| format!("192.0.2.{n}:9")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert_eq!(read(&many, None).unwrap_err(), "17 collectors are too many; expected at most 16");
    }

    #[test]
    fn a_virtual_id_is_bounded() {
        assert_eq!(check_virtual_id("rack").unwrap(), "rack");
        assert_eq!(
            check_virtual_id(&"x".repeat(255)).unwrap_err().to_string(),
            "a virtual_obs_id of 255 bytes is too long; expected at most 254"
        );
    }
}
