//! A client on the port `bad`, over either protocol, with rings and buffers apart: attacks on the buffers' memory leave
//! the rings intact, so the port continues.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use e2e::{Error, Hostile, HostileConfig, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use vhost_user::driver::{Buffer, DriverConfig, DriverMemory, DriverQueue};
use vhost_user::features::{device, protocol};
use vhost_user::frontend::{Connection, HEADER_LEN};
use vhost_user::message::{Answer, LogArea, Region, Request, RingAddresses, RingDescriptor, RingNumber};
use vhost_user::virtqueue::{Features, Format};

use crate::setup::{BAD, Kind, Setup};

/// Offset of the buffers in the memory file, behind all rings.
pub(crate) const BUFFERS: u64 = 4 << 20;
/// Bytes of rings and buffers; the rest of the file is used by the attack.
pub(crate) const NEEDED: u64 = 12 << 20;
/// Bytes of a buffer.
const BUFFER: u64 = 2048;
/// Descriptors of a front-end's ring.
const SIZE: u16 = 256;
/// Guest address of the start of the memory file.
const START: u64 = 1 << 28;

/// A connected client.
pub(crate) enum Client {
    Memif { client: Box<Hostile>, tail: u16 },
    VhostUser(Box<Front>),
}

impl Client {
    /// Connects with rings and buffers in this file.
    pub(crate) fn connect(setup: &Setup, file: OwnedFd, size: u64) -> Result<Client> {
        match setup.kind {
            Kind::Memif => {
                let mut config = HostileConfig::new(&setup.path("memif"), BAD);
                // Receive buffers are in the second half, from 4 MiB on.
                config.log2_ring_size = 11;
                config.file = Some(file);
                config.region_size = Some(size);
                let client = Box::new(config.connect()?);
                let tail = client.rx.tail();
                Ok(Client::Memif { client, tail })
            }
            Kind::VhostUser => Ok(Client::VhostUser(Box::new(Front::connect(
                Path::new(&setup.path("bad.sock")),
                file,
                size,
            )?))),
        }
    }

    /// The memory file.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        match self {
            Client::Memif { client, .. } => client.file.as_fd(),
            Client::VhostUser(front) => front.memory.fd(),
        }
    }

    /// Posts filled buffers again. Returns their number.
    pub(crate) fn serve(&mut self) -> Result<u16> {
        match self {
            Client::Memif { client, tail } => {
                let now = client.rx.tail();
                let filled = now.wrapping_sub(*tail);
                if filled > 0 {
                    client.post_all();
                    *tail = now;
                }
                Ok(filled)
            }
            Client::VhostUser(front) => front.serve(),
        }
    }

    /// Sends a frame; returns false if there is no room.
    pub(crate) fn send(&mut self, frame: &[u8]) -> Result<bool> {
        match self {
            Client::Memif { client, .. } => Ok(client.send(frame)),
            Client::VhostUser(front) => front.send(frame),
        }
    }

    /// Eventfd that the switch signals after a delivery.
    pub(crate) fn call(&self) -> BorrowedFd<'_> {
        match self {
            Client::Memif { client, .. } => client.rx_event.as_fd(),
            Client::VhostUser(front) => front.receive.call.as_fd(),
        }
    }

    /// Eventfd that the switch waits for.
    pub(crate) fn kick(&self) -> BorrowedFd<'_> {
        match self {
            Client::Memif { client, .. } => client.tx_event.as_fd(),
            Client::VhostUser(front) => front.send.kick.as_fd(),
        }
    }

    /// Whether the switch has disconnected the client.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Client::Memif { client, .. } => {
                let socket = client.peer.socket();
                let mut fds = [PollFd::new(&socket, PollFlags::IN)];
                // Once connected, the server sends nothing but DISCONNECT.
                poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
            }
            Client::VhostUser(front) => front.connection.is_closed(),
        }
    }
}

const FEATURES: u64 = device::VERSION_1 | device::PROTOCOL_FEATURES;

/// Description of a memory file for the back-end.
fn region(size: u64) -> Region {
    Region { guest: START, size, user: DriverMemory::user_address(START), offset: 0 }
}

/// A front-end with one queue pair.
pub(crate) struct Front {
    size: u64,
    pub(crate) connection: Connection,
    pub(crate) memory: Arc<DriverMemory>,
    pub(crate) receive: Queue,
    pub(crate) send: Queue,
}

/// A virtqueue and the buffer of each of its chains.
pub(crate) struct Queue {
    queue: DriverQueue,
    pub(crate) kick: OwnedFd,
    pub(crate) call: OwnedFd,
    /// Guest addresses of buffers that the driver owns.
    free: Vec<u64>,
    lent: Vec<u64>,
}

fn failed(operation: &'static str) -> impl Fn(vhost_user::frontend::FrontendError) -> Error {
    move |error| Error(format!("{operation}: {error}"))
}

impl Queue {
    fn new(memory: &Arc<DriverMemory>, number: u64) -> Result<Queue> {
        let features = Features { event_idx: false, indirect: false, in_order: false };
        let config = DriverConfig::at(START + number * (BUFFERS / 2), Format::Split, SIZE, features);
        let queue = DriverQueue::new(memory.clone(), &config).map_err(Error::while_doing("a virtqueue"))?;
        let buffers = START + BUFFERS + number * u64::from(SIZE) * BUFFER;
        let free = (0..u64::from(SIZE)).map(|buffer| buffers + buffer * BUFFER).collect();
        let event = || {
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Error::while_doing("eventfd"))
        };
        Ok(Queue { queue, kick: event()?, call: event()?, free, lent: vec![0; SIZE.into()] })
    }

    /// Takes back used buffers; returns their number.
    fn reclaim(&mut self) -> Result<u16> {
        let mut count = 0;
        while let Some(used) = self.queue.pop().map_err(|e| Error(e.to_string()))? {
            self.free.extend(self.lent.get(usize::from(used.id)));
            count += 1;
        }
        Ok(count)
    }

    fn lend(&mut self, readable: &[Buffer], writable: &[Buffer], address: u64) {
        if let Some(id) = self.queue.add(readable, writable, None)
            && let Some(lent) = self.lent.get_mut(usize::from(id))
        {
            *lent = address;
        }
    }

    fn publish(&mut self) {
        self.queue.publish();
        if self.queue.wants_kick() {
            // A full counter means that the switch has been woken.
            let _ = rustix::io::write(&self.kick, &1u64.to_ne_bytes());
        }
    }
}

impl Front {
    fn connect(socket: &Path, file: OwnedFd, size: u64) -> Result<Front> {
        let mut connection = Connection::dial(socket)?;
        connection.number(&Request::GetFeatures, "GET_FEATURES").map_err(failed("features"))?;
        let memory = DriverMemory::create_in(&[(START, size)], |_| Ok(file))?;
        let memory = Arc::new(memory);
        let queues = [Queue::new(&memory, 0)?, Queue::new(&memory, 1)?];
        let wanted = Request::SetProtocolFeatures(protocol::REPLY_ACK | protocol::LOG_SHMFD);
        connection.tell(&wanted, &[]).map_err(failed("protocol features"))?;
        let features = Request::SetFeatures(FEATURES);
        connection.tell(&features, &[]).map_err(failed("features"))?;
        connection
            .ask(&Request::SetMemTable(vec![region(size)]), &[memory.fd()], true)
            .map_err(failed("memory table"))?;
        for (ring, queue) in (0u32..).zip(&queues) {
            start(&mut connection, ring, queue).map_err(failed("a ring"))?;
        }
        let [receive, send] = queues;
        let mut front = Front { size, connection, memory, receive, send };
        front.serve()?;
        Ok(front)
    }

    fn serve(&mut self) -> Result<u16> {
        let filled = self.receive.reclaim()?;
        for address in std::mem::take(&mut self.receive.free) {
            self.receive.lend(&[], &[Buffer { address, len: BUFFER as u32 }], address);
        }
        self.receive.publish();
        Ok(filled)
    }

    /// Posts buffers again, each at the memory offset that `place` returns.
    pub(crate) fn serve_at(&mut self, mut place: impl FnMut() -> u64) -> Result<u16> {
        let filled = self.receive.reclaim()?;
        for address in &mut self.receive.free {
            *address = START + place();
        }
        self.serve().map(|more| filled + more)
    }

    /// Stops a ring and restarts it at the same position.
    pub(crate) fn restart(&mut self, ring: u32) -> Result<()> {
        let asked = self.connection.ask(&Request::GetVringBase(RingNumber { ring, number: 0 }), &[], false);
        let Answer::Ring(base) = asked.map_err(failed("GET_VRING_BASE"))? else {
            return Err(Error::new("the answer to GET_VRING_BASE is not a ring's position"));
        };
        let descriptor = RingDescriptor { ring: ring as u8, present: true };
        let kick = if ring == 0 { &self.receive.kick } else { &self.send.kick };
        self.connection.tell(&Request::SetVringBase(base), &[]).map_err(failed("SET_VRING_BASE"))?;
        let kick = self.connection.ask(&Request::SetVringKick(descriptor), &[kick.as_fd()], true);
        kick.map_err(failed("SET_VRING_KICK")).map(drop)
    }

    /// Disables and enables a ring.
    pub(crate) fn toggle(&mut self, ring: u32) -> Result<()> {
        for number in [0, 1] {
            let enable = Request::SetVringEnable(RingNumber { ring, number });
            self.connection.ask(&enable, &[], true).map_err(failed("SET_VRING_ENABLE"))?;
        }
        Ok(())
    }

    /// Starts and ends dirty logging.
    pub(crate) fn log(&mut self, file: BorrowedFd<'_>, size: u64) -> Result<()> {
        let area = LogArea { size, offset: 0 };
        self.connection.ask(&Request::SetLogBase(area), &[file], false).map_err(failed("SET_LOG_BASE"))?;
        for more in [device::LOG_ALL, 0] {
            let features = Request::SetFeatures(FEATURES | more);
            self.connection.ask(&features, &[], true).map_err(failed("SET_FEATURES"))?;
        }
        Ok(())
    }

    /// Announces the same memory again.
    pub(crate) fn announce(&mut self) -> Result<()> {
        let table = Request::SetMemTable(vec![region(self.size)]);
        self.connection.ask(&table, &[self.memory.fd()], true).map_err(failed("memory table")).map(drop)
    }

    fn send(&mut self, frame: &[u8]) -> Result<bool> {
        self.send.reclaim()?;
        let Some(address) = self.send.free.pop() else { return Ok(false) };
        let packet = [&[0; HEADER_LEN][..], frame].concat();
        if !self.memory.write(address, &packet) {
            return Err(Error::new("buffer outside the memory"));
        }
        self.send.lend(&[Buffer { address, len: packet.len() as u32 }], &[], address);
        self.send.publish();
        Ok(true)
    }
}

fn start(
    connection: &mut Connection,
    ring: u32,
    queue: &Queue,
) -> std::result::Result<(), vhost_user::frontend::FrontendError> {
    let config = queue.queue.config();
    let user = DriverMemory::user_addresses(&config.addresses);
    let addresses = RingAddresses {
        ring,
        flags: 0,
        descriptors: user.descriptors,
        used: user.device,
        available: user.driver,
        log: 0,
    };
    let descriptor = RingDescriptor { ring: ring as u8, present: true };
    connection.tell(&Request::SetVringNum(RingNumber { ring, number: SIZE.into() }), &[])?;
    connection.tell(&Request::SetVringBase(RingNumber { ring, number: config.base }), &[])?;
    connection.tell(&Request::SetVringAddr(addresses), &[])?;
    connection.tell(&Request::SetVringCall(descriptor), &[queue.call.as_fd()])?;
    connection.tell(&Request::SetVringKick(descriptor), &[queue.kick.as_fd()])?;
    connection.ask(&Request::SetVringEnable(RingNumber { ring, number: 1 }), &[], true)?;
    Ok(())
}
