//! Clients of the tools: connection parameters, addresses, and the operations common to all kinds of clients.

mod memif;
mod vhost_user;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::str::FromStr;
use std::time::Duration;

use packet::MacAddr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

pub use self::vhost_user::Device;

use crate::shape::SpecError;

/// Parameters of a port: `SOCKET[,id=N][,secret=S][,mac=M]` for memif, and `vhost-user:SOCKET[,packed][,mergeable]
/// [,indirect][,event-idx][,in-order][,mac=M]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    /// A path; for memif, also an abstract name after `@`.
    pub socket: String,
    /// memif: the interface's number on the socket.
    pub id: u32,
    /// memif: the interface's secret.
    pub secret: Option<String>,
    /// The port's source address; by default derived from its number.
    pub mac: Option<MacAddr>,
    /// vhost-user: properties of the device. `None` for memif.
    pub device: Option<Device>,
}

impl PortSpec {
    /// Returns the port of interface `id` of the server at `socket`, without a secret.
    pub fn new(socket: &str, id: u32) -> PortSpec {
        PortSpec { socket: socket.to_string(), id, secret: None, mac: None, device: None }
    }

    /// Returns a vhost-user device whose back-end listens at `socket`.
    pub fn vhost_user(socket: &str, device: Device) -> PortSpec {
        PortSpec { device: Some(device), ..PortSpec::new(socket, 0) }
    }

    /// Returns the port's address if it is port number `index` of a tool.
    pub fn address(&self, index: usize) -> MacAddr {
        self.mac.unwrap_or(MacAddr::from_u64(0x0200_0000_0001 + index as u64))
    }
}

impl FromStr for PortSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<PortSpec, SpecError> {
        let wrong = || {
            SpecError::new(
                text,
                "a port, SOCKET[,id=NUMBER][,secret=TEXT][,mac=ADDRESS] or \
                 vhost-user:SOCKET[,packed][,mergeable][,indirect][,event-idx][,in-order][,mac=ADDRESS]",
            )
        };
        let mut parts = text.split(',');
        let socket = parts.next().ok_or_else(wrong)?;
        let (socket, device) = match socket.strip_prefix("vhost-user:") {
            Some(socket) => (socket, Some(Device::default())),
            None => (socket, None),
        };
        if socket.is_empty() {
            return Err(wrong());
        }
        let mut spec = PortSpec { device, ..PortSpec::new(socket, 0) };
        for part in parts {
            match (part.split_once('='), &mut spec.device) {
                (Some(("mac", mac)), _) => spec.mac = Some(mac.parse().map_err(|_| wrong())?),
                (Some(("id", id)), None) => spec.id = id.parse().map_err(|_| wrong())?,
                (Some(("secret", secret)), None) => spec.secret = Some(secret.to_string()),
                (None, Some(device)) => device.set(part).ok_or_else(wrong)?,
                _ => return Err(wrong()),
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device {
            None => write!(f, "interface {} of {}", self.id, self.socket),
            Some(_) => write!(f, "vhost-user device at {}", self.socket),
        }
    }
}

/// Rings that all ports of a tool request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// Number of rings in each direction.
    pub queues: u16,
    /// Number of descriptors of each ring, as a power of two.
    pub log2_size: u8,
    /// The size of each buffer.
    pub buffer_size: u32,
}

impl Default for Rings {
    fn default() -> Rings {
        Rings { queues: 1, log2_size: 10, buffer_size: 2048 }
    }
}

/// Reasons for a tool's failure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A port could not connect.
    #[error("{port}: {source}")]
    Connect {
        /// The port.
        port: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The secret is invalid.
    #[error("invalid secret, expected 1 to 23 bytes")]
    Secret,
    /// The switch ended a connection.
    #[error("{port}: disconnected: {reason}")]
    Disconnected {
        /// The port.
        port: String,
        /// The reason given by the switch, or observed.
        reason: String,
    },
    /// The ports or options contradict each other.
    #[error("{0}")]
    Options(String),
    /// Announcements did not arrive.
    #[error("port {to} received no announcement of port {from} within {seconds} s")]
    NotAnnounced {
        /// The announcing port.
        from: usize,
        /// The port that did not receive the announcement.
        to: usize,
        /// The time waited.
        seconds: u64,
    },
    /// A system call failed.
    #[error("{operation}: {source}")]
    System {
        /// The operation that failed.
        operation: &'static str,
        /// The cause.
        source: std::io::Error,
    },
}

/// A connected port. Queues of each direction count from 0; both directions have the same number, unless the switch
/// grants fewer.
pub trait Client: fmt::Debug + Send {
    /// Returns the numbers of queues to the switch, and from it.
    fn queues(&self) -> (usize, usize);

    /// Queues one packet; each piece starts a new descriptor. Returns `false` without room.
    fn push(&mut self, queue: usize, pieces: &[&[u8]]) -> bool;

    /// Publishes pushed packets to the switch, and wakes it if it asked for that.
    fn flush(&mut self, queue: usize);

    /// Returns the maximum number of bytes per descriptor.
    fn piece(&self) -> usize;

    /// Returns the number of packets that the switch has not taken yet, over all queues.
    fn unsent(&mut self) -> u64;

    /// Moves one packet into `packet`, which is cleared first. Returns `false` when no packet is waiting.
    fn pop(&mut self, queue: usize, packet: &mut Vec<u8>) -> bool;

    /// Returns the buffers of packets taken so far to the switch.
    fn refill(&mut self, queue: usize);

    /// Whether a refilled queue has received no packet since.
    fn is_empty(&self, queue: usize) -> bool;

    /// Returns the number of receive buffers of one queue.
    fn room(&self) -> usize;

    /// Returns the number of receive buffers that a packet takes.
    fn buffers(&self, length: usize) -> usize;

    /// Asks the switch to signal packets, or to stop signalling. Signals are off initially.
    fn set_interrupts(&mut self, queue: usize, on: bool);

    /// Returns the eventfd that the switch signals.
    fn eventfd(&self, queue: usize) -> Option<BorrowedFd<'_>>;

    /// Returns the number of the switch's protocol violations on the rings.
    fn malformed(&self) -> u64;

    /// Returns the reason for the end of the connection, if it has ended. Does not block.
    fn disconnected(&mut self) -> Option<String>;
}

/// Connects a port.
pub fn connect(spec: &PortSpec, rings: Rings) -> Result<Box<dyn Client>, Error> {
    Ok(match spec.device {
        None => Box::new(memif::connect(spec, rings)?),
        Some(device) => Box::new(vhost_user::connect(spec, device, rings)?),
    })
}

/// Fails if the switch has ended the connection.
pub fn check_connected(client: &mut dyn Client, spec: &PortSpec) -> Result<(), Error> {
    match client.disconnected() {
        Some(reason) => Err(Error::Disconnected { port: spec.to_string(), reason }),
        None => Ok(()),
    }
}

/// Sleeps until one of the ports has packets, at most for `timeout`. All queues must have been refilled. On return,
/// signals are cleared and interrupts are off.
pub fn sleep<'c>(
    clients: impl Iterator<Item = &'c mut Box<dyn Client>>,
    timeout: Duration,
) -> Result<(), Error> {
    let mut clients: Vec<&mut Box<dyn Client>> = clients.collect();
    let queues = |client: &dyn Client| 0..client.queues().1;
    for client in &mut clients {
        queues(&***client).for_each(|queue| client.set_interrupts(queue, true));
    }
    if clients.iter().all(|client| queues(&***client).all(|queue| client.is_empty(queue))) {
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let eventfds =
            clients.iter().flat_map(|client| queues(&***client).filter_map(|queue| client.eventfd(queue)));
        let mut fds: Vec<_> = eventfds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::System { operation: "cannot wait for packets", source: e.into() }),
        }
    }
    for client in clients {
        for queue in queues(&**client) {
            client.set_interrupts(queue, false);
            match client.eventfd(queue).map_or(Ok(0), |fd| rustix::io::read(fd, &mut [0u8; 8])) {
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(e) => {
                    return Err(Error::System { operation: "cannot read an eventfd", source: e.into() });
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_parsed() {
        let spec: PortSpec = "/run/a.sock,id=3,secret=hush,mac=02:00:00:00:00:09".parse().unwrap();
        assert_eq!((spec.socket.as_str(), spec.id), ("/run/a.sock", 3));
        assert_eq!(spec.secret.as_deref(), Some("hush"));
        assert_eq!(spec.address(0).to_string(), "02:00:00:00:00:09");
        assert_eq!(PortSpec::new("a", 0).address(1).to_string(), "02:00:00:00:00:02");
        let spec: PortSpec = "vhost-user:/run/a.sock,packed,indirect,mac=02:00:00:00:00:09".parse().unwrap();
        let device = Device { packed: true, indirect: true, ..Device::default() };
        assert_eq!((spec.socket.as_str(), spec.device), ("/run/a.sock", Some(device)));
        assert_eq!(spec.address(0).to_string(), "02:00:00:00:00:09");
        for wrong in ["", ",id=1", "a,id", "a,id=x", "a,mac=1", "a,colour=red", "vhost-user:", "a,packed"]
            .into_iter()
            .chain(["vhost-user:a,id=1", "vhost-user:a,packed=1"])
        {
            assert!(wrong.parse::<PortSpec>().is_err(), "{wrong}");
        }
    }
}
