//! A vhost-user front-end with a network device, driven like a guest's.

use std::os::fd::BorrowedFd;
use std::path::Path;

use vhost_user::features::device;
use vhost_user::frontend::{Connection, DeviceConfig, FrontendError, HEADER_LEN, NetDevice};

use super::{Error, PortSpec, Rings};
use crate::packet::MAX_LEN;

/// Packets in flight in each direction of a queue pair, where each buffer holds the longest packet.
const LONG_BUFFERS: u16 = 256;

/// Features that a device negotiates with its back-end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Device {
    /// Packed rings; otherwise split.
    pub packed: bool,
    /// A packet may take several receive buffers; otherwise each buffer holds the longest packet.
    pub mergeable: bool,
    /// Chains use indirect tables.
    pub indirect: bool,
    /// Signals are requested by index.
    pub event_idx: bool,
    /// Chains are used in order.
    pub in_order: bool,
}

impl Device {
    /// Enables the feature named by a word of a port's parameters.
    pub(super) fn set(&mut self, word: &str) -> Option<()> {
        let flag = match word {
            "packed" => &mut self.packed,
            "mergeable" => &mut self.mergeable,
            "indirect" => &mut self.indirect,
            "event-idx" => &mut self.event_idx,
            "in-order" => &mut self.in_order,
            _ => return None,
        };
        *flag = true;
        Some(())
    }

    fn config(self, rings: Rings) -> DeviceConfig {
        let size = 1 << rings.log2_size;
        let wanted = [
            (self.packed, device::RING_PACKED),
            (self.mergeable, device::MRG_RXBUF),
            (self.indirect, device::INDIRECT_DESC),
            (self.event_idx, device::EVENT_IDX),
            (self.in_order, device::IN_ORDER),
            (rings.queues > 1, device::MQ),
        ];
        let wanted = wanted.iter().filter(|(on, _)| *on).fold(0, |bits, (_, bit)| bits | bit);
        // Buffers in one piece, or in several where the ring has room for that.
        let pieces = match (self.indirect, self.mergeable) {
            (true, _) => 3,
            (false, false) => 2,
            (false, true) => 1,
        };
        let (receive_buffers, receive_buffer) = match self.mergeable {
            true => (size, rings.buffer_size),
            false => (LONG_BUFFERS.min(size / pieces), (MAX_LEN + HEADER_LEN) as u32),
        };
        DeviceConfig {
            features: device::VERSION_1 | device::PROTOCOL_FEATURES | wanted,
            pairs: rings.queues,
            size,
            send_buffers: LONG_BUFFERS.min(size),
            receive_buffers,
            receive_buffer,
            pieces,
        }
    }
}

/// A running device.
#[derive(Debug)]
pub(super) struct Client {
    device: NetDevice,
    config: DeviceConfig,
    mergeable: bool,
    /// Whether the last packet's header had a separate descriptor: every other one does.
    apart: bool,
    /// The back-end's protocol violation, which ends the use of the device.
    broken: Option<FrontendError>,
}

/// Connects to a listening back-end.
pub(super) fn connect(spec: &PortSpec, device: Device, rings: Rings) -> Result<Client, Error> {
    let config = device.config(rings);
    let failed = |source: FrontendError| Error::Connect { port: spec.to_string(), source: Box::new(source) };
    let connection = Connection::dial(Path::new(&spec.socket)).map_err(|error| failed(error.into()))?;
    let mut running = NetDevice::start(connection, config).map_err(failed)?;
    for ring in 0..2 * usize::from(config.pairs) {
        if let Some(queue) = running.queue(ring) {
            queue.set_calls(false);
        }
    }
    Ok(Client { device: running, config, mergeable: device.mergeable, apart: false, broken: None })
}

impl Client {
    /// Returns the result of `attempt`, or the default once the back-end has broken a rule.
    fn attempt<T: Default>(&mut self, attempt: impl FnOnce(&mut NetDevice) -> Result<T, FrontendError>) -> T {
        if self.broken.is_some() {
            return T::default();
        }
        attempt(&mut self.device).unwrap_or_else(|error| {
            self.broken = Some(error);
            T::default()
        })
    }
}

impl super::Client for Client {
    fn queues(&self) -> (usize, usize) {
        (self.config.pairs.into(), self.config.pairs.into())
    }

    fn push(&mut self, queue: usize, pieces: &[&[u8]]) -> bool {
        self.apart = !self.apart;
        let apart = self.apart;
        self.attempt(|device| device.push(queue, &[0; HEADER_LEN], apart, pieces))
    }

    fn flush(&mut self, queue: usize) {
        self.attempt(|device| device.flush(queue));
    }

    fn piece(&self) -> usize {
        MAX_LEN
    }

    fn unsent(&mut self) -> u64 {
        let pairs = 0..usize::from(self.config.pairs);
        pairs.map(|pair| self.attempt(|device| device.unsent(pair)) as u64).sum()
    }

    fn pop(&mut self, queue: usize, packet: &mut Vec<u8>) -> bool {
        let header = self.attempt(|device| device.pop(queue, packet));
        // With these features, a header can only state the number of buffers.
        if header.is_some_and(|header| header[..10] != [0; 10]) {
            self.broken = Some(FrontendError::Device("packet with metadata that was not negotiated"));
        }
        header.is_some()
    }

    fn refill(&mut self, queue: usize) {
        self.attempt(|device| device.refill(queue));
    }

    fn is_empty(&self, queue: usize) -> bool {
        !self.device.has_packets(queue)
    }

    fn room(&self) -> usize {
        self.config.receive_buffers.into()
    }

    fn buffers(&self, length: usize) -> usize {
        match self.mergeable {
            true => (length + HEADER_LEN).div_ceil(self.config.receive_buffer as usize),
            false => 1,
        }
    }

    fn set_interrupts(&mut self, queue: usize, on: bool) {
        if let Some(ring) = self.device.queue(2 * queue) {
            ring.set_calls(on);
        }
    }

    fn eventfd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.device.call(2 * queue)
    }

    fn malformed(&self) -> u64 {
        self.broken.is_some().into()
    }

    fn disconnected(&mut self) -> Option<String> {
        match &self.broken {
            Some(error) => Some(error.to_string()),
            None => {
                self.device.connection().is_closed().then(|| "the switch closed the connection".to_string())
            }
        }
    }
}
