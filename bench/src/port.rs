//! One memif client of the tools here: where it connects and under which address it sends.

use std::str::FromStr;
use std::time::Duration;

use memif::Secret;
use memif::client::{Client, ClientConfig, ConnectError, RxQueue};
use memif::socket::Address;
use packet::MacAddr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::shape::SpecError;

/// Which interface of which server a port connects to: `SOCKET[,id=N][,secret=S][,mac=M]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    /// A path, or an abstract name after `@`.
    pub socket: String,
    /// The interface's number on the socket.
    pub id: u32,
    /// The interface's secret.
    pub secret: Option<String>,
    /// The address that the port sends from; one that follows from its number if not given.
    pub mac: Option<MacAddr>,
}

impl PortSpec {
    /// Interface `id` of the server at `socket`, without a secret.
    pub fn new(socket: &str, id: u32) -> PortSpec {
        PortSpec { socket: socket.to_string(), id, secret: None, mac: None }
    }

    /// The port's address if it is port number `index` of a tool.
    pub fn address(&self, index: usize) -> MacAddr {
        self.mac.unwrap_or(MacAddr::from_u64(0x0200_0000_0001 + index as u64))
    }
}

impl FromStr for PortSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<PortSpec, SpecError> {
        let wrong = || SpecError::new(text, "a port, SOCKET[,id=NUMBER][,secret=TEXT][,mac=ADDRESS]");
        let mut parts = text.split(',');
        let socket = parts.next().filter(|s| !s.is_empty()).ok_or_else(wrong)?;
        let mut spec = PortSpec::new(socket, 0);
        for part in parts {
            match part.split_once('=').ok_or_else(wrong)? {
                ("id", id) => spec.id = id.parse().map_err(|_| wrong())?,
                ("secret", secret) => spec.secret = Some(secret.to_string()),
                ("mac", mac) => spec.mac = Some(mac.parse().map_err(|_| wrong())?),
                _ => return Err(wrong()),
            }
        }
        Ok(spec)
    }
}

/// What all ports of a tool ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// How many in each direction.
    pub queues: u16,
    /// How many descriptors each has, as a power of two.
    pub log2_size: u8,
    /// The size of each buffer.
    pub buffer_size: u32,
}

impl Default for Rings {
    fn default() -> Rings {
        Rings { queues: 1, log2_size: 10, buffer_size: 2048 }
    }
}

/// Why a tool could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A port could not connect.
    #[error("interface {id} of {socket}: {source}")]
    Connect {
        /// The port's socket.
        socket: String,
        /// The port's number on it.
        id: u32,
        /// Why not.
        source: Box<ConnectError>,
    },
    /// A secret that cannot be one.
    #[error("a secret has 1 to 23 bytes")]
    Secret,
    /// The server ended a connection.
    #[error("interface {id} of {socket}: disconnected: {reason}")]
    Disconnected {
        /// The port's socket.
        socket: String,
        /// The port's number on it.
        id: u32,
        /// What the server said.
        reason: String,
    },
    /// The ports or options do not make sense together.
    #[error("{0}")]
    Options(String),
    /// Announcements did not arrive.
    #[error("port {to} does not hear port {from}: no announcement arrived within {seconds} s")]
    Deaf {
        /// Who announced itself.
        from: usize,
        /// Who should have heard it.
        to: usize,
        /// How long was waited.
        seconds: u64,
    },
    /// The system refused something.
    #[error("{what}: {source}")]
    System {
        /// What was being done.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// Connects a port.
pub fn connect(spec: &PortSpec, rings: Rings) -> Result<Client, Error> {
    let mut config = ClientConfig::new(Address::new(&spec.socket), spec.id);
    config.name = "memif-check".to_string();
    config.secret = match &spec.secret {
        Some(secret) => Some(Secret::new(secret).ok_or(Error::Secret)?),
        None => None,
    };
    config.tx_queues = rings.queues;
    config.rx_queues = rings.queues;
    config.log2_ring_size = rings.log2_size;
    config.buffer_size = rings.buffer_size;
    Client::connect(&config).map_err(|source| Error::Connect {
        socket: spec.socket.clone(),
        id: spec.id,
        source: Box::new(source),
    })
}

/// Fails if the server has ended the connection.
pub fn check_connected(client: &mut Client, spec: &PortSpec) -> Result<(), Error> {
    match client.poll_disconnect() {
        Some(reason) => Err(Error::Disconnected { socket: spec.socket.clone(), id: spec.id, reason }),
        None => Ok(()),
    }
}

/// Sleeps until one of the queues has packets, at most for `timeout`. All of them must have been refilled. Signals are
/// cleared, and interrupts are off again when it returns.
pub fn sleep<'q>(queues: impl Iterator<Item = &'q mut RxQueue>, timeout: Duration) -> Result<(), Error> {
    let mut queues: Vec<&mut RxQueue> = queues.collect();
    for queue in &mut queues {
        queue.set_interrupts(true);
    }
    if queues.iter().all(|queue| is_empty(queue)) {
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let eventfds: Vec<_> = queues.iter().map(|queue| queue.eventfd()).collect();
        let mut fds: Vec<_> = eventfds.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::System { what: "cannot wait for packets", source: e.into() }),
        }
    }
    for queue in queues {
        queue.set_interrupts(false);
        queue.clear_event().map_err(|source| Error::System { what: "cannot read an eventfd", source })?;
    }
    Ok(())
}

/// Whether a queue that was refilled has got nothing since.
fn is_empty(queue: &RxQueue) -> bool {
    let ring = queue.ring();
    ring.tail() == ring.head().wrapping_sub(ring.size())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read() {
        let spec: PortSpec = "/run/a.sock,id=3,secret=hush,mac=02:00:00:00:00:09".parse().unwrap();
        assert_eq!((spec.socket.as_str(), spec.id), ("/run/a.sock", 3));
        assert_eq!(spec.secret.as_deref(), Some("hush"));
        assert_eq!(spec.address(0).to_string(), "02:00:00:00:00:09");
        assert_eq!(PortSpec::new("a", 0).address(1).to_string(), "02:00:00:00:00:02");
        for wrong in ["", ",id=1", "a,id", "a,id=x", "a,mac=1", "a,colour=red"] {
            assert!(wrong.parse::<PortSpec>().is_err(), "{wrong}");
        }
    }
}
