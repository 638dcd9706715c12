//! A network device as a guest has it: queue pairs, buffers in them, packets behind their headers.
//!
//! Invariant: a buffer is either free or in a chain that the device has, under the name of that chain.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use super::{Connection, FrontendError};
use crate::driver::{Buffer, DriverConfig, DriverMemory, DriverQueue};
use crate::features::{device, protocol};
use crate::message::{Answer, Region, Request, RingAddresses, RingDescriptor, RingNumber};
use crate::virtqueue::{Features, Format};

/// Bytes of the header in front of packets of a virtio 1 device.
pub const HEADER_LEN: usize = 12;
/// The header in front of a packet.
pub type PacketHeader = [u8; HEADER_LEN];

/// Where the guest's memory starts.
const START: u64 = 1 << 28;
/// Room for the longest packet that is sent, and its header.
const SEND_BUFFER: u32 = 66_048;
/// Room for a table of descriptors.
const TABLE: u64 = 1024;

/// What a device is to be like.
#[derive(Debug, Clone, Copy)]
pub struct DeviceConfig {
    /// Features to agree on, all of which must be offered.
    pub features: u64,
    /// Queue pairs.
    pub pairs: u16,
    /// Descriptors of each ring.
    pub size: u16,
    /// Buffers for packets that are sent, in each pair.
    pub send_buffers: u16,
    /// Buffers for packets that are received, in each pair.
    pub receive_buffers: u16,
    /// Bytes of each of the latter.
    pub receive_buffer: u32,
    /// Descriptors that each buffer is cut into.
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

/// A device that runs.
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
    /// Which buffer is in a chain.
    lent: HashMap<u16, usize>,
}

fn signal() -> Result<OwnedFd, FrontendError> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?)
}

impl NetDevice {
    /// Negotiates, shares memory, and starts all queues.
    pub fn start(mut connection: Connection, config: DeviceConfig) -> Result<NetDevice, FrontendError> {
        let offered = connection.number(&Request::GetFeatures, "GET_FEATURES")?;
        if config.features & !offered != 0 {
            return Err(FrontendError::NotOffered(config.features & !offered));
        }
        connection.number(&Request::GetProtocolFeatures, "GET_PROTOCOL_FEATURES")?;
        let wanted = Request::SetProtocolFeatures(protocol::MQ | protocol::REPLY_ACK);
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
        let memory = Arc::new(DriverMemory::create("guest", &[(START, size)])?);
        let region = Region { guest: START, size, user: DriverMemory::user_address(START), offset: 0 };
        connection.ask(&Request::SetMemTable(vec![region]), &[memory.fd()], true)?;
        let mut rings = Vec::new();
        for (queue, buffers) in plans {
            let queue = DriverQueue::new(memory.clone(), &queue)?;
            let free = (0..buffers.len()).collect();
            rings.push(Ring { queue, kick: signal()?, call: signal()?, buffers, free, lent: HashMap::new() });
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

    /// Tells the back-end of a ring, and starts it.
    fn start_ring(&mut self, index: usize) -> Result<(), FrontendError> {
        let Some(Ring { queue, kick, call, .. }) = self.rings.get(index) else { return Ok(()) };
        let (ring, config) = (index as u32, queue.config());
        let user = DriverMemory::user_addresses(&config.addresses);
        let addresses = RingAddresses {
            ring,
            flags: 0,
            descriptors: user.descriptors,
            used: user.device,
            available: user.driver,
            log: 0,
        };
        let number = |number| RingNumber { ring, number };
        let descriptor = RingDescriptor { ring: index as u8, present: true };
        let connection = &mut self.connection;
        connection.tell(&Request::SetVringNum(number(config.size.into())), &[])?;
        connection.tell(&Request::SetVringBase(number(config.base)), &[])?;
        connection.tell(&Request::SetVringAddr(addresses), &[])?;
        connection.tell(&Request::SetVringCall(descriptor), &[call.as_fd()])?;
        connection.tell(&Request::SetVringKick(descriptor), &[kick.as_fd()])?;
        if self.config.features & device::PROTOCOL_FEATURES != 0 {
            connection.ask(&Request::SetVringEnable(number(1)), &[], true)?;
        }
        Ok(())
    }

    /// The connection, for requests of one's own.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The memory, to be written over by hand.
    pub fn memory(&self) -> &Arc<DriverMemory> {
        &self.memory
    }

    /// A ring, to be used by hand.
    pub fn queue(&mut self, ring: usize) -> Option<&mut DriverQueue> {
        self.rings.get_mut(ring).map(|ring| &mut ring.queue)
    }

    /// What the device signals when it is done with chains of a ring.
    pub fn call(&self, ring: usize) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.rings.get(ring).map(|ring| ring.call.as_fd())
    }

    /// Stops a ring, and starts it again where it stood.
    pub fn restart(&mut self, ring: usize) -> Result<(), FrontendError> {
        let number = RingNumber { ring: ring as u32, number: 0 };
        let base = match self.connection.ask(&Request::GetVringBase(number), &[], false)? {
            Answer::Ring(at) => at,
            other => return Err(FrontendError::Answer("GET_VRING_BASE", other)),
        };
        let descriptor = RingDescriptor { ring: ring as u8, present: true };
        self.connection.tell(&Request::SetVringBase(base), &[])?;
        if let Some(ring) = self.rings.get(ring) {
            // Until it is done, what is sent to this device is lost.
            self.connection.ask(&Request::SetVringKick(descriptor), &[ring.kick.as_fd()], true)?;
        }
        Ok(())
    }

    /// Sends a packet behind its header. False when there is no room now.
    pub fn send(&mut self, pair: usize, header: &PacketHeader, packet: &[u8]) -> Result<bool, FrontendError> {
        let Some(ring) = self.rings.get_mut(2 * pair + 1) else { return Ok(false) };
        while let Some(used) = ring.queue.pop()? {
            ring.take_back(used.id)?;
        }
        let Some(&buffer) = ring.free.last() else { return Ok(false) };
        let Some(&at) = ring.buffers.get(buffer) else { return Ok(false) };
        let bytes = [&header[..], packet].concat();
        if bytes.len() > SEND_BUFFER as usize || !self.memory.write(at + TABLE, &bytes) {
            return Err(FrontendError::Device("packet longer than a buffer"));
        }
        let pieces = cut(at + TABLE, bytes.len() as u32, self.config.pieces);
        let table = (self.config.features & device::INDIRECT_DESC != 0).then_some(at);
        let Some(id) = ring.queue.add(&pieces, &[], table) else { return Ok(false) };
        ring.free.pop();
        ring.lent.insert(id, buffer);
        ring.publish()?;
        Ok(true)
    }

    /// Takes a packet that has come and the header in front of it.
    pub fn receive(&mut self, pair: usize) -> Result<Option<(PacketHeader, Vec<u8>)>, FrontendError> {
        let mergeable = self.config.features & device::MRG_RXBUF != 0;
        let (mut packet, mut left) = (Vec::new(), 1u16);
        while left > 0 {
            let Some(ring) = self.rings.get_mut(2 * pair) else { return Ok(None) };
            let Some(used) = ring.queue.pop()? else {
                if packet.is_empty() {
                    return Ok(None);
                }
                return Err(FrontendError::Device("fewer buffers than the header says"));
            };
            let buffer = ring.take_back(used.id)?;
            if used.len > self.config.receive_buffer {
                return Err(FrontendError::Device("more written than the buffer holds"));
            }
            let at = ring.buffers.get(buffer).map_or(0, |at| at + TABLE);
            let mut bytes = vec![0; used.len as usize];
            self.memory.read(at, &mut bytes);
            let first = packet.is_empty();
            packet.extend(bytes);
            if first && mergeable {
                let count = packet.get(10..12).and_then(|count| count.first_chunk::<2>());
                left = u16::from_le_bytes(*count.ok_or(FrontendError::Device("packet without header"))?);
                if left == 0 {
                    return Err(FrontendError::Device("packet of no buffers"));
                }
            }
            left -= 1;
        }
        self.post(2 * pair)?;
        let (header, packet) =
            packet.split_first_chunk().ok_or(FrontendError::Device("packet without header"))?;
        Ok(Some((*header, packet.to_vec())))
    }

    /// Gives the device all receive buffers that are free.
    fn post(&mut self, ring: usize) -> Result<(), FrontendError> {
        let Some(ring) = self.rings.get_mut(ring) else { return Ok(()) };
        while let Some(&buffer) = ring.free.last() {
            let Some(&at) = ring.buffers.get(buffer) else { break };
            let pieces = cut(at + TABLE, self.config.receive_buffer, self.config.pieces);
            let table = (self.config.features & device::INDIRECT_DESC != 0).then_some(at);
            let Some(id) = ring.queue.add(&[], &pieces, table) else { break };
            ring.free.pop();
            ring.lent.insert(id, buffer);
        }
        ring.publish()
    }
}

impl Ring {
    fn take_back(&mut self, id: u16) -> Result<usize, FrontendError> {
        let buffer = self.lent.remove(&id).ok_or(FrontendError::Device("chain that was not lent"))?;
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

/// Cuts a buffer into pieces; the first is short, so that headers are cut too.
fn cut(at: u64, len: u32, pieces: u16) -> Vec<Buffer> {
    let pieces = u32::from(pieces.max(1));
    let mut bounds: Vec<u32> =
        (0..pieces).map(|i| if i == 1 { 7.min(len) } else { len / pieces * i }).collect();
    bounds.push(len);
    bounds.sort_unstable();
    let pairs = bounds.windows(2).filter(|pair| pair[0] < pair[1]);
    pairs.map(|pair| Buffer { address: at + u64::from(pair[0]), len: pair[1] - pair[0] }).collect()
}
