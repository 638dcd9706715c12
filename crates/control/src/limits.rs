//! The limit of open files (`RLIMIT_NOFILE`): each client needs several, and the usual limit of 1,024 is low.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::model::{BridgeConfig, Config};
use crate::openflow::LOGIC;
use crate::p4::is_p4;

/// Files that the daemon itself has open: sockets, epolls, eventfds, logs. A generous estimate.
const BASE: u64 = 64;

/// Files of a bridge with OpenFlow or P4Runtime: two sockets, with a reserve for connections.
const PER_SERVER: u64 = 4;

/// The limit of open files is too low for the number of ports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{ports} ports need about {needed} open files and the limit is {limit}; raise it: `LimitNOFILE={needed}` in the \
     systemd unit, or `ulimit -n {needed}` as root before starting the daemon"
)]
pub struct LimitError {
    ports: u64,
    needed: u64,
    limit: u64,
}

/// Raises `RLIMIT_NOFILE` to the hard limit, and the hard limit itself only if a configuration needs it.
pub fn raise_for(config: &Config) -> Result<(), LimitError> {
    let of_bridge = |bridge: &BridgeConfig| {
        let is_served = bridge.logic.name == LOGIC || is_p4(&bridge.logic.name);
        let served = if is_served { PER_SERVER } else { 0 };
        served + bridge.ports.iter().map(|port| port.spec.files()).sum::<u64>()
    };
    raise(config.ports() as u64, BASE + config.bridges.iter().map(of_bridge).sum::<u64>())
}

fn raise(ports: u64, needed: u64) -> Result<(), LimitError> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // A soft limit may always be raised to the hard one. The check below would report a failure.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        // This needs CAP_SYS_RESOURCE. The check below reports a failure.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum: Some(needed) });
    }
    match getrlimit(Resource::Nofile).current {
        Some(limit) if limit < needed => Err(LimitError { ports, needed, limit }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limit_is_raised_to_the_hard_limit() {
        raise(1, BASE).unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }

    #[test]
    fn limit_that_cannot_be_raised_is_reported() {
        let error = raise(1, 1 << 50).unwrap_err().to_string();
        assert!(error.contains("ports need about"), "{error}");
        assert!(error.contains("LimitNOFILE="), "{error}");
    }
}
