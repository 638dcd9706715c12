//! A guest's network device: queue pairs, their buffers, and packets with virtio-net headers.
//!
//! Invariant: a buffer is either free or in a chain that the device has, recorded under that chain's id.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use super::{Connection, FrontendError};
use crate::driver::{Buffer, DriverConfig, DriverMemory, DriverQueue};
use crate::features::{device, protocol};
use crate::message::{Answer, LogArea, Region, Request, RingAddresses, RingDescriptor, RingNumber};
use crate::virtqueue::{Features, Format};

/// Length of the header in front of packets of a virtio 1 device.
pub const HEADER_LEN: usize = 12;
/// Length of a legacy device's header without mergeable buffers: the number of buffers at the end is missing.
const LEGACY_HEADER_LEN: usize = 10;
/// The header in front of a packet; a legacy device's is padded with zeros.
pub type PacketHeader = [u8; HEADER_LEN];

/// Start of the guest's memory.
const START: u64 = 1 << 28;
/// Room for the longest packet to send, its header, and the gaps between its pieces.
const SEND_BUFFER: u32 = 66_624;
/// Gap between the pieces of a sent packet, so that no device merges them.
const GAP: u64 = 16;
/// Room for a table of descriptors: a header and 64 pieces.
const TABLE: u64 = 1088;

/// Configuration of a device.
#[derive(Debug, Clone, Copy)]
pub struct DeviceConfig {
    /// Features to negotiate; the back-end must offer all of them.
    pub features: u64,
    /// Number of queue pairs.
    pub pairs: u16,
    /// Number of descriptors of each ring.
    pub size: u16,
    /// Number of send buffers in each pair.
    pub send_buffers: u16,
    /// Number of receive buffers in each pair.
    pub receive_buffers: u16,
    /// Size of a receive buffer in bytes.
    pub receive_buffer: u32,
    /// Number of descriptors for each buffer.
    pub pieces: u16,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        DeviceConfig {
            features: device::VERSION_1 | device::PROTOCOL_FEATURES,
            pairs: 1,
            size: 256,
            send_buffers: 64,
            receive_buffers: 64,
            receive_buffer: 2048,
            pieces: 1,
        }
    }
}

/// A running device.
#[derive(Debug)]
pub struct NetDevice {
    connection: Connection,
    memory: Arc<DriverMemory>,
    config: DeviceConfig,
    rings: Vec<Ring>,
}

#[derive(Debug)]
struct Ring {
    queue: DriverQueue,
    kick: OwnedFd,
    call: OwnedFd,
    buffers: Vec<u64>,
    free: Vec<usize>,
    /// Buffer index by chain id, for chains that the device has.
    lent: Vec<Option<usize>>,
    /// The descriptors of the chain under construction.
    pieces: Vec<Buffer>,
}

fn signal() -> Result<OwnedFd, FrontendError> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?)
}

impl NetDevice {
    /// Negotiates, shares memory, and starts all queues.
    pub fn start(connection: Connection, config: DeviceConfig) -> Result<NetDevice, FrontendError> {
        NetDevice::start_in(connection, config, |start, size| DriverMemory::create("guest", &[(start, size)]))
    }

    /// Does the same in memory that `make` makes: one region, given by guest address and size.
    pub fn start_in(
        mut connection: Connection,
        config: DeviceConfig,
        make: impl FnOnce(u64, u64) -> std::io::Result<DriverMemory>,
    ) -> Result<NetDevice, FrontendError> {
        let offered = connection.number(&Request::GetFeatures, "GET_FEATURES")?;
        if config.features & !offered != 0 {
            return Err(FrontendError::NotOffered(config.features & !offered));
        }
        connection.number(&Request::GetProtocolFeatures, "GET_PROTOCOL_FEATURES")?;
        let wanted = Request::SetProtocolFeatures(protocol::MQ | protocol::LOG_SHMFD | protocol::REPLY_ACK);
        connection.tell(&wanted, &[])?;
        connection.tell(&Request::SetOwner, &[])?;
        connection.tell(&Request::SetFeatures(config.features), &[])?;

        let packed = config.features & device::RING_PACKED != 0;
        let format = if packed { Format::Packed } else { Format::Split };
        let features = Features {
            event_idx: config.features & device::EVENT_IDX != 0,
            indirect: config.features & device::INDIRECT_DESC != 0,
            in_order: config.features & device::IN_ORDER != 0,
        };
        let mut end = START;
        let mut place = |bytes: u64| {
            let at = end;
            end += bytes.next_multiple_of(64);
            at
        };
        let mut plans = Vec::new();
        for ring in 0..2 * config.pairs {
            let queue = DriverConfig::at(
                place(DriverConfig::bytes(format, config.size)),
                format,
                config.size,
                features,
            );
            let (count, size) = match ring % 2 {
                0 => (config.receive_buffers, config.receive_buffer),
                _ => (config.send_buffers, SEND_BUFFER),
            };
            let buffers: Vec<_> = (0..count).map(|_| place(TABLE + u64::from(size))).collect();
            plans.push((queue, buffers));
        }
        let size = (end - START).next_multiple_of(4096);
        let memory = Arc::new(make(START, size)?);
        let region = Region { guest: START, size, user: DriverMemory::user_address(START), offset: 0 };
        connection.ask(&Request::SetMemTable(vec![region]), &[memory.fd()], true)?;
        let mut rings = Vec::new();
        for (queue, buffers) in plans {
            let queue = DriverQueue::new(memory.clone(), &queue)?;
            let (free, lent) = ((0..buffers.len()).collect(), vec![None; config.size.into()]);
            let (kick, call) = (signal()?, signal()?);
            rings.push(Ring { queue, kick, call, buffers, free, lent, pieces: Vec::new() });
        }
        let mut device = NetDevice { connection, memory, config, rings };
        for ring in 0..device.rings.len() {
            device.start_ring(ring)?;
        }
        for pair in 0..config.pairs {
            device.post(usize::from(pair) * 2)?;
        }
        Ok(device)
    }

    /// Announces a ring to the back-end, and starts it.
    fn start_ring(&mut self, index: usize) -> Result<(), FrontendError> {
        let Some(Ring { queue, kick, call, .. }) = self.rings.get(index) else { return Ok(()) };
        let (ring, config) = (index as u32, queue.config());
        let addresses = addresses(index, queue);
        let number = |number| RingNumber { ring, number };
        let descriptor = RingDescriptor { ring: index as u8, present: true };
        let connection = &mut self.connection;
        connection.tell(&Request::SetVringNum(number(config.size.into())), &[])?;
        connection.tell(&Request::SetVringBase(number(config.base)), &[])?;
        connection.tell(&Request::SetVringAddr(addresses), &[])?;
        connection.tell(&Request::SetVringCall(descriptor), &[call.as_fd()])?;
        // The last request of a ring is waited for: while a ring starts, packets sent to the device are lost.
        if self.config.features & device::PROTOCOL_FEATURES != 0 {
            connection.tell(&Request::SetVringKick(descriptor), &[kick.as_fd()])?;
            connection.ask(&Request::SetVringEnable(number(1)), &[], true)?;
        } else {
            connection.ask(&Request::SetVringKick(descriptor), &[kick.as_fd()], true)?;
        }
        Ok(())
    }

    /// Starts logging of the back-end's writes, as a front-end does when a migration begins. The log starts the file
    /// and has this many bytes.
    pub fn log(&mut self, file: BorrowedFd<'_>, size: u64) -> Result<(), FrontendError> {
        let area = LogArea { size, offset: 0 };
        self.connection.ask(&Request::SetLogBase(area), &[file], false)?;
        let features = self.config.features | device::LOG_ALL;
        self.connection.ask(&Request::SetFeatures(features), &[], true)?;
        for (index, ring) in self.rings.iter().enumerate() {
            let log = ring.queue.config().addresses.device;
            let addresses = RingAddresses { flags: 1, log, ..addresses(index, &ring.queue) };
            self.connection.ask(&Request::SetVringAddr(addresses), &[], true)?;
        }
        Ok(())
    }

    /// Returns the connection, for further requests.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Returns the memory, to be overwritten by hand.
    pub fn memory(&self) -> &Arc<DriverMemory> {
        &self.memory
    }

    /// Returns a ring, to be used by hand.
    pub fn queue(&mut self, ring: usize) -> Option<&mut DriverQueue> {
        self.rings.get_mut(ring).map(|ring| &mut ring.queue)
    }

    /// Returns the eventfd that the driver signals when it makes chains available.
    pub fn kick(&self, ring: usize) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.rings.get(ring).map(|ring| ring.kick.as_fd())
    }

    /// Returns the eventfd that the device signals when it has used chains of a ring.
    pub fn call(&self, ring: usize) -> Option<BorrowedFd<'_>> {
        self.rings.get(ring).map(|ring| ring.call.as_fd())
    }

    /// Stops a ring, and starts it again at its position.
    pub fn restart(&mut self, ring: usize) -> Result<(), FrontendError> {
        let number = RingNumber { ring: ring as u32, number: 0 };
        let base = match self.connection.ask(&Request::GetVringBase(number), &[], false)? {
            Answer::Ring(at) => at,
            other => return Err(FrontendError::Answer("GET_VRING_BASE", other)),
        };
        let descriptor = RingDescriptor { ring: ring as u8, present: true };
        self.connection.tell(&Request::SetVringBase(base), &[])?;
        if let Some(ring) = self.rings.get(ring) {
            // Packets sent to this device are lost until the ring runs again.
            self.connection.ask(&Request::SetVringKick(descriptor), &[ring.kick.as_fd()], true)?;
        }
        Ok(())
    }

    /// Returns the length of the header in front of each packet.
    fn header_len(&self) -> usize {
        match self.config.features & (device::VERSION_1 | device::MRG_RXBUF) {
            0 => LEGACY_HEADER_LEN,
            _ => HEADER_LEN,
        }
    }

    /// Sends a packet with its header. Returns `false` without room.
    pub fn send(&mut self, pair: usize, header: &PacketHeader, packet: &[u8]) -> Result<bool, FrontendError> {
        let indirect = self.indirect();
        let header = header.get(..self.header_len()).unwrap_or_default();
        let Some(ring) = self.rings.get_mut(2 * pair + 1) else { return Ok(false) };
        ring.reclaim()?;
        let Some(at) = ring.next_buffer() else { return Ok(false) };
        let len = header.len() + packet.len();
        let fits = len <= SEND_BUFFER as usize;
        if !fits || !self.memory.write(at, header) || !self.memory.write(at + header.len() as u64, packet) {
            return Err(FrontendError::Device("packet longer than a buffer"));
        }
        cut(at, len as u32, self.config.pieces, &mut ring.pieces);
        if !ring.lend(true, indirect) {
            return Ok(false);
        }
        ring.publish()?;
        Ok(true)
    }

    /// Stages a packet with a descriptor for each piece; its header precedes the first piece, or is `apart` from it.
    /// The device sees the packet after [`flush`](NetDevice::flush). Returns `false` without room.
    pub fn push(
        &mut self,
        pair: usize,
        header: &PacketHeader,
        apart: bool,
        pieces: &[&[u8]],
    ) -> Result<bool, FrontendError> {
        let indirect = self.indirect();
        let header = header.get(..self.header_len()).unwrap_or_default();
        let Some(ring) = self.rings.get_mut(2 * pair + 1) else { return Ok(false) };
        let needed = pieces.len() + usize::from(apart);
        if ring.free.is_empty() || !indirect && usize::from(ring.queue.free()) < needed {
            ring.reclaim()?;
        }
        let Some(at) = ring.next_buffer() else { return Ok(false) };
        let (mut to, end) = (at, at + u64::from(SEND_BUFFER));
        ring.pieces.clear();
        let mut put = |piece: &[u8], joined: bool| {
            let len = piece.len() as u64;
            match ring.pieces.last_mut().filter(|_| joined) {
                Some(last) => last.len += len as u32,
                None => {
                    to += if to == at { 0 } else { GAP };
                    ring.pieces.push(Buffer { address: to, len: len as u32 });
                }
            }
            let written = to + len <= end && self.memory.write(to, piece);
            to += len;
            written
        };
        let mut written = put(header, false);
        for (number, piece) in pieces.iter().enumerate() {
            written &= put(piece, number == 0 && !apart);
        }
        if !written || ring.pieces.len() as u64 > TABLE / 16 {
            return Err(FrontendError::Device("packet longer than a buffer"));
        }
        Ok(ring.lend(true, indirect))
    }

    /// Writes a packet with its header into all send buffers, for [`push_prepared`](NetDevice::push_prepared). All of
    /// them must be free.
    pub fn prepare(
        &mut self,
        pair: usize,
        header: &PacketHeader,
        packet: &[u8],
    ) -> Result<(), FrontendError> {
        let Some(ring) = self.rings.get(2 * pair + 1) else { return Ok(()) };
        let fits = HEADER_LEN + packet.len() <= SEND_BUFFER as usize;
        for at in ring.buffers.iter().map(|at| at + TABLE) {
            if !fits || !self.memory.write(at, header) || !self.memory.write(at + HEADER_LEN as u64, packet) {
                return Err(FrontendError::Device("packet longer than a buffer"));
            }
        }
        Ok(())
    }

    /// Stages a packet of `len` bytes that [`prepare`](NetDevice::prepare) wrote, in one descriptor. Returns `false`
    /// without room.
    pub fn push_prepared(&mut self, pair: usize, len: usize) -> Result<bool, FrontendError> {
        let Some(ring) = self.rings.get_mut(2 * pair + 1) else { return Ok(false) };
        if ring.free.is_empty() {
            ring.reclaim()?;
        }
        let Some(address) = ring.next_buffer() else { return Ok(false) };
        let len = (HEADER_LEN + len).min(SEND_BUFFER as usize) as u32;
        ring.pieces.clear();
        ring.pieces.push(Buffer { address, len });
        Ok(ring.lend(true, false))
    }

    /// Makes staged packets visible to the device, and signals it if it wants a signal.
    pub fn flush(&mut self, pair: usize) -> Result<(), FrontendError> {
        self.rings.get_mut(2 * pair + 1).map_or(Ok(()), Ring::publish)
    }

    /// Returns the number of sent packets that the device has not returned yet.
    pub fn unsent(&mut self, pair: usize) -> Result<usize, FrontendError> {
        let Some(ring) = self.rings.get_mut(2 * pair + 1) else { return Ok(0) };
        ring.reclaim()?;
        Ok(ring.buffers.len() - ring.free.len())
    }

    /// Takes a received packet and its header, and returns the packet's buffers to the device.
    pub fn receive(&mut self, pair: usize) -> Result<Option<(PacketHeader, Vec<u8>)>, FrontendError> {
        let mut packet = Vec::new();
        let Some(header) = self.pop(pair, &mut packet)? else { return Ok(None) };
        self.refill(pair)?;
        Ok(Some((header, packet)))
    }

    /// Takes a received packet into `packet`, and returns its header. The packet's buffers stay with the driver until
    /// [`refill`](NetDevice::refill).
    pub fn pop(&mut self, pair: usize, packet: &mut Vec<u8>) -> Result<Option<PacketHeader>, FrontendError> {
        packet.clear();
        self.take(pair, |memory, at, len| memory.append(at, len as usize, packet))
    }

    /// Takes a packet as [`pop`](NetDevice::pop) does, without reading it: returns only its header and its length.
    pub fn pop_length(&mut self, pair: usize) -> Result<Option<(PacketHeader, u32)>, FrontendError> {
        let mut length = 0;
        let header = self.take(pair, |_, _, len| length += len)?;
        Ok(header.map(|header| (header, length)))
    }

    /// Takes a packet; calls `each` with the guest address and length of each of its pieces.
    fn take(
        &mut self,
        pair: usize,
        mut each: impl FnMut(&DriverMemory, u64, u32),
    ) -> Result<Option<PacketHeader>, FrontendError> {
        let mergeable = self.config.features & device::MRG_RXBUF != 0;
        let header_len = self.header_len();
        let Some(ring) = self.rings.get_mut(2 * pair) else { return Ok(None) };
        let (mut header, mut left, mut first) = ([0; HEADER_LEN], 1u16, true);
        while left > 0 {
            let Some(used) = ring.queue.pop()? else {
                return if first {
                    Ok(None)
                } else {
                    Err(FrontendError::Device("fewer buffers than the header announces"))
                };
            };
            let buffer = ring.take_back(used.id)?;
            if used.len > self.config.receive_buffer {
                return Err(FrontendError::Device("more bytes written than the buffer holds"));
            }
            let at = ring.buffers.get(buffer).map_or(0, |at| at + TABLE);
            let skip = if first { header_len as u32 } else { 0 };
            let len = used.len.checked_sub(skip).ok_or(FrontendError::Device("packet without header"))?;
            if first {
                self.memory.read(at, header.get_mut(..header_len).unwrap_or_default());
                if mergeable {
                    left = u16::from_le_bytes([header[10], header[11]]);
                }
                if left == 0 {
                    return Err(FrontendError::Device("header announces 0 buffers"));
                }
            }
            each(&self.memory, at + u64::from(skip), len);
            first = false;
            left -= 1;
        }
        Ok(Some(header))
    }

    /// Whether a received packet is waiting.
    pub fn has_packets(&self, pair: usize) -> bool {
        self.rings.get(2 * pair).is_some_and(|ring| ring.queue.is_ready())
    }

    /// Returns the buffers of received packets to the device.
    pub fn refill(&mut self, pair: usize) -> Result<(), FrontendError> {
        self.post(2 * pair)
    }

    /// Posts all free receive buffers to the device.
    fn post(&mut self, ring: usize) -> Result<(), FrontendError> {
        let (size, pieces, indirect) = (self.config.receive_buffer, self.config.pieces, self.indirect());
        let Some(ring) = self.rings.get_mut(ring) else { return Ok(()) };
        while let Some(at) = ring.next_buffer() {
            cut(at, size, pieces, &mut ring.pieces);
            if !ring.lend(false, indirect) {
                break;
            }
        }
        ring.publish()
    }

    fn indirect(&self) -> bool {
        self.config.features & device::INDIRECT_DESC != 0
    }
}

impl Ring {
    /// Returns the address of the next free buffer.
    fn next_buffer(&self) -> Option<u64> {
        let &buffer = self.free.last()?;
        Some(self.buffers.get(buffer)? + TABLE)
    }

    /// Stages a chain of `pieces`, which lie in the next buffer. Returns `false` if the ring has no room for it.
    fn lend(&mut self, readable: bool, indirect: bool) -> bool {
        let Some(at) = self.next_buffer() else { return false };
        let (out, into): (&[Buffer], &[Buffer]) =
            if readable { (&self.pieces, &[]) } else { (&[], &self.pieces) };
        let Some(id) = self.queue.add(out, into, indirect.then_some(at - TABLE)) else { return false };
        if let Some(lent) = self.lent.get_mut(usize::from(id)) {
            *lent = self.free.pop();
        }
        true
    }

    /// Takes back all chains that the device has used.
    fn reclaim(&mut self) -> Result<(), FrontendError> {
        while let Some(used) = self.queue.pop()? {
            self.take_back(used.id)?;
        }
        Ok(())
    }

    fn take_back(&mut self, id: u16) -> Result<usize, FrontendError> {
        let lent = self.lent.get_mut(usize::from(id)).and_then(Option::take);
        let buffer = lent.ok_or(FrontendError::Device("used chain that the device does not have"))?;
        self.free.push(buffer);
        Ok(buffer)
    }

    fn publish(&mut self) -> Result<(), FrontendError> {
        self.queue.publish();
        if self.queue.wants_kick() {
            rustix::io::write(&self.kick, &1u64.to_ne_bytes()).map_err(std::io::Error::from)?;
        }
        Ok(())
    }
}

/// Returns the addresses of a ring whose writes are not logged.
fn addresses(index: usize, queue: &DriverQueue) -> RingAddresses {
    let user = DriverMemory::user_addresses(&queue.config().addresses);
    RingAddresses {
        ring: index as u32,
        flags: 0,
        descriptors: user.descriptors,
        used: user.device,
        available: user.driver,
        log: 0,
    }
}

/// Divides a buffer into pieces; the first is short, so that headers are divided too.
fn cut(at: u64, len: u32, pieces: u16, into: &mut Vec<Buffer>) {
    let pieces = u32::from(pieces.max(1));
    into.clear();
    let bound = |i| match i {
        _ if i == pieces => len,
        1 => (len / pieces).min(7),
        _ => len / pieces * i,
    };
    for i in 0..pieces {
        let (from, to) = (bound(i), bound(i + 1));
        if from < to {
            into.push(Buffer { address: at + u64::from(from), len: to - from });
        }
    }
}
