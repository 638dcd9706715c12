//! Packets that a module keeps beyond their batch, in memory of the switch.
//!
//! Memory is taken when an instance is made, and used as packets are kept; nothing is allocated then. What an instance keeps goes
//! with it.

use fabric::Batch;
use fabric::rx::MAX_PACKET;
use logic::vlan::Frame;
use packet::offload::Offload;

/// Bytes for each packet.
const ROOM: usize = MAX_PACKET as usize + 1;

#[derive(Clone, Copy)]
struct Packet {
    len: usize,
    offload: Offload,
    frame: Frame,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    packets: Vec<Option<Packet>>,
}

impl Kept {
    /// Room for so many.
    pub(crate) fn new(count: usize) -> Self {
        // Zeroes from the system are not touched until they are used.
        Self { bytes: vec![0; count * ROOM], packets: vec![None; count] }
    }

    /// Copies a packet; returns its number here. `None` if there is no room.
    pub(crate) fn keep(&mut self, batch: &Batch<'_>, frame: Frame) -> Option<usize> {
        let number = self.packets.iter().position(Option::is_none)?;
        let room = self.bytes.get_mut(number * ROOM..(number + 1) * ROOM)?;
        let v = frame.version();
        let len = batch.read(v, 0, room);
        *self.packets.get_mut(number)? = Some(Packet { len, offload: batch.offload(v), frame });
        Some(number)
    }

    /// The bytes of a packet, what remains to be done on it, and its VLAN.
    pub(crate) fn get(&self, number: usize) -> Option<(&[u8], Offload, Frame)> {
        let Packet { len, offload, frame } = (*self.packets.get(number)?)?;
        Some((self.bytes.get(number * ROOM..number * ROOM + len)?, offload, frame))
    }

    /// Keeps it no longer.
    pub(crate) fn forget(&mut self, number: usize) {
        if let Some(packet) = self.packets.get_mut(number) {
            *packet = None;
        }
    }
}
