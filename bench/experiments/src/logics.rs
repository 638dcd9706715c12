//! Logics that take a packet's destination from its destination address, so that an experiment measures the fabric.

use fabric::{Batch, PortIndex, SwitchLogic, clock};
use logic::{Key, Learning};
use packet::MacAddr;

/// Packets of a batch, at most.
const MOST: usize = fabric::rx::MAX_BATCH;

/// Writes an Ethernet header for port `to`.
pub fn address(packet: &mut [u8], to: u16) {
    let [high, low] = to.to_be_bytes();
    if let Some(header) = packet.get_mut(..14) {
        header.copy_from_slice(&[2, 0, 0, 0, high, low, 2, 0, 0, 1, 0, 0, 0x88, 0xb5]);
    }
}

/// Tells a learning bridge the stations of its first ports, which never send.
pub fn teach(learning: &Learning, ports: usize) {
    for port in 0..ports as u16 {
        let [high, low] = port.to_be_bytes();
        let key = Key::new(0, MacAddr([2, 0, 0, 0, high, low]));
        learning.fdb().learn(key, PortIndex(port), clock::seconds());
    }
}

/// The port that a packet is addressed to.
#[inline(always)]
fn destination(header: &[u8]) -> PortIndex {
    match header.get(4..6) {
        Some([high, low]) => PortIndex(u16::from_be_bytes([*high, *low])),
        _ => PortIndex::NONE,
    }
}

/// Sends each packet to the port that it is addressed to: the paper's dummy module.
pub struct Addressed;

impl SwitchLogic for Addressed {
    fn forward(&self, batch: &mut Batch<'_>) {
        for v in batch.packets() {
            let to = destination(batch.header(v));
            batch.send(v, to);
        }
    }
}

/// The same, through the ring of the packet's receive queue: rings of a port are then independent of each other.
pub struct RingByRing;

impl SwitchLogic for RingByRing {
    fn forward(&self, batch: &mut Batch<'_>) {
        let queue = batch.ingress_queue();
        for v in batch.packets() {
            let to = destination(batch.header(v));
            batch.send_to_queue(v, to, queue);
        }
    }
}

/// Sends packets to a port if all of a batch are for one UDP or TCP port number, read where IPv4 without options has
/// it. A logic that looks at packets can hardly do less.
pub struct PortNumber {
    /// The port number.
    pub number: u16,
    /// The port.
    pub to: PortIndex,
}

impl SwitchLogic for PortNumber {
    fn forward(&self, batch: &mut Batch<'_>) {
        let number = Some(self.number.to_be_bytes());
        if batch.packets().all(|v| batch.header(v).get(36..38).and_then(|it| it.try_into().ok()) == number) {
            batch.send_all(self.to);
        }
    }
}

/// [`Addressed`] in the order of VALE's fabric: each port of the switch, idle or not, goes through the whole batch for its
/// packets (the mSwitch paper, section 3.3). Lists are formed as well, since the fabric delivers them; that costs a
/// packet what it costs with [`Addressed`].
pub struct Scanning {
    /// Decides by the header where a packet goes.
    pub decide: fn(&[u8]) -> PortIndex,
}

impl Scanning {
    /// Decides by address.
    pub const BY_ADDRESS: Self = Self { decide: destination };
}

impl SwitchLogic for Scanning {
    fn forward(&self, batch: &mut Batch<'_>) {
        let mut destinations = [PortIndex::NONE; MOST];
        for (v, to) in batch.packets().zip(&mut destinations) {
            *to = (self.decide)(batch.header(v));
        }
        for port in batch.live_ports() {
            for (v, to) in batch.packets().zip(&destinations) {
                if to == port {
                    batch.send(v, *port);
                }
            }
        }
    }
}
