//! A vhost-user port. This process does what a virtual machine and its driver do: it shares memory with the switch and
//! has virtqueues there.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vhost_user::frontend::{Connection, DeviceConfig, FrontendError, HEADER_LEN, NetDevice};

use super::Rings;

/// Descriptors of each ring, and buffers.
const RING: u16 = 256;

/// The only queue pair, and the numbers of its rings.
const PAIR: usize = 0;
const RECEIVE: usize = 0;
const SEND: usize = 1;

/// Header in front of a packet without offloads (virtio 1.2 §5.1.6).
const NO_OFFLOADS: [u8; HEADER_LEN] = [0; HEADER_LEN];

/// The port, connected to the switch.
pub(super) struct VhostUser {
    device: NetDevice,
    /// Packets in the send ring at most.
    waiting: usize,
}

impl VhostUser {
    pub(super) fn connect(socket: &Path) -> io::Result<Self> {
        let config =
            DeviceConfig { size: RING, send_buffers: RING, receive_buffers: RING, ..DeviceConfig::default() };
        let connection = Connection::dial(socket).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot connect to {}: {error}", socket.display()))
        })?;
        let mut port = Self { device: NetDevice::start(connection, config).map_err(failed)?, waiting: 0 };
        port.interrupts(RECEIVE, false);
        // Sent packets are taken back when there is no room.
        port.interrupts(SEND, false);
        Ok(port)
    }

    fn interrupts(&mut self, ring: usize, on: bool) {
        if let Some(queue) = self.device.queue(ring) {
            queue.set_calls(on);
        }
    }
}

impl Rings for VhostUser {
    fn pop(&mut self, frame: &mut Vec<u8>) -> io::Result<bool> {
        let packet = self.device.pop(PAIR, frame).map_err(failed)?;
        Ok(packet.is_some())
    }

    fn has_room(&mut self) -> io::Result<bool> {
        if self.waiting == usize::from(RING) {
            self.device.flush(PAIR).map_err(failed)?;
            self.waiting = self.device.unsent(PAIR).map_err(failed)?;
        }
        Ok(self.waiting < usize::from(RING))
    }

    fn push(&mut self, frame: &[u8]) -> io::Result<()> {
        self.waiting += usize::from(self.device.push(PAIR, &NO_OFFLOADS, false, &[frame]).map_err(failed)?);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush(PAIR).map_err(failed)?;
        self.device.refill(PAIR).map_err(failed)
    }

    fn sleep(&mut self, limit: Duration) -> io::Result<()> {
        if self.device.connection().is_closed() {
            return Err(io::Error::other("the switch closed the port"));
        }
        // Interrupts come on before the last look at the ring, so that none is missed.
        self.interrupts(RECEIVE, true);
        if !self.device.has_packets(PAIR)
            && let Some(call) = self.device.call(RECEIVE)
        {
            wait(call, limit)?;
        }
        self.interrupts(RECEIVE, false);
        Ok(())
    }
}

/// Waits for a signal, and takes it.
fn wait(call: BorrowedFd<'_>, limit: Duration) -> io::Result<()> {
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    let mut fds = [PollFd::new(&call, PollFlags::IN)];
    match poll(&mut fds, Some(&limit)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(()),
        Ok(_) => rustix::io::read(call, &mut [0; 8]).map(|_| ()).map_err(io::Error::from),
        Err(error) => Err(error.into()),
    }
}

fn failed(error: FrontendError) -> io::Error {
    io::Error::other(error)
}
