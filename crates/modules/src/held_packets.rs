//! Packets that a module holds beyond their batch, in memory of the switch.
//!
//! All memory is allocated with the instance, none when a packet is held. An instance's packets are dropped with it.

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

/// The packets that an instance holds.
#[derive(Default)]
pub(crate) struct HeldPackets {
    bytes: Vec<u8>,
    packets: Vec<Option<Packet>>,
}

impl HeldPackets {
    /// Allocates room for `count` packets.
    pub(crate) fn new(count: usize) -> Self {
        // Zeroes from the system are not touched until they are used.
        Self { bytes: vec![0; count * ROOM], packets: vec![None; count] }
    }

    /// Copies a packet and returns its number, or `None` if there is no room.
    pub(crate) fn hold(&mut self, batch: &Batch<'_>, frame: Frame) -> Option<usize> {
        let number = self.packets.iter().position(Option::is_none)?;
        let room = self.bytes.get_mut(number * ROOM..(number + 1) * ROOM)?;
        let v = frame.version();
        let len = batch.read(v, 0, room);
        *self.packets.get_mut(number)? = Some(Packet { len, offload: batch.offload(v), frame });
        Some(number)
    }

    /// Returns the bytes of a packet, its offloads and its VLAN.
    pub(crate) fn get(&self, number: usize) -> Option<(&[u8], Offload, Frame)> {
        let Packet { len, offload, frame } = (*self.packets.get(number)?)?;
        Some((self.bytes.get(number * ROOM..number * ROOM + len)?, offload, frame))
    }

    /// Drops a packet.
    pub(crate) fn release(&mut self, number: usize) {
        if let Some(packet) = self.packets.get_mut(number) {
            *packet = None;
        }
    }
}
