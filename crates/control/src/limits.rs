//! How many files the daemon may have open: each client costs some, and the usual limit of 1,024 is soon reached.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that the daemon itself has open: sockets, epolls, eventfds, logs; generously.
const BASE: u64 = 64;

/// Files of a port with one client of one queue pair: listening socket (of vhost-user ports, twice), connection, two
/// regions and two eventfds (memif) or four eventfds (vhost-user), and room for a client that reconnects.
const PER_PORT: u64 = 8;

/// More ports than files.
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

/// Raises RLIMIT_NOFILE as far as allowed, further than the hard limit only when `ports` ports need it.
pub fn raise_for(ports: usize) -> Result<(), LimitError> {
    let ports = ports as u64;
    let needed = BASE + PER_PORT * ports;
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // Cannot fail: a soft limit may always be raised to the hard one. If it does, the check below says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    if limit.maximum.is_some_and(|maximum| maximum < needed) {
        // Only root may do this.
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
    fn the_soft_limit_becomes_the_hard_one() {
        raise_for(1).unwrap();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }

    #[test]
    fn a_limit_that_cannot_be_raised_is_named() {
        let error = raise_for(1 << 50).unwrap_err().to_string();
        assert!(error.contains("ports need about"), "{error}");
        assert!(error.contains("LimitNOFILE="), "{error}");
    }
}
