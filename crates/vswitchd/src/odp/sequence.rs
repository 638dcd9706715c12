//! The datapath actions of a packet, as they come: edits, truncations and outputs, each with a comma behind it.

use std::fmt::Write;

use ofswitch::Dependency;

use super::actions::{between, rest_of};
use super::hexadecimal;

/// Actions so far, and the packet as they leave it.
pub(crate) struct Sequence {
    text: String,
    now: Vec<u8>,
    /// Its queue.
    queue: u32,
    /// What the packet's way depends on.
    depends: Vec<Dependency>,
}

impl Sequence {
    /// No actions yet.
    pub(crate) fn of(packet: &[u8]) -> Self {
        Self { text: String::new(), now: packet.to_vec(), queue: 0, depends: Vec::new() }
    }

    /// The packet as the actions leave it.
    pub(crate) fn now(&self) -> &[u8] {
        &self.now
    }

    /// Tells of what the packet's way depends on: of other parts, nothing is set.
    pub(crate) fn depend(&mut self, depends: &[Dependency]) {
        depends.clone_into(&mut self.depends);
    }

    /// The packet has become another, without an output.
    pub(crate) fn becomes(&mut self, packet: &[u8]) {
        packet.clone_into(&mut self.now);
    }

    /// The queue of the packet as the actions leave it.
    pub(crate) fn queue(&self) -> u32 {
        self.queue
    }

    /// Adds an output of `packet` in a queue to a port of the datapath; `limit`: bytes that it may have, if it is
    /// limited.
    pub(crate) fn output(&mut self, port: u32, packet: &[u8], queue: u32, limit: Option<u32>) {
        let part = |key: &str| self.depends.iter().find(|part| part.key == key);
        self.text += &between(&self.now, packet, &|key| part(key).map_or(0, |part| part.mask));
        if queue != self.queue {
            // Writing to a string does not fail.
            let _ = write!(self.text, "set(skb_priority({})),", hexadecimal(queue.into()));
            self.queue = queue;
        }
        // What is cut off is there again for the next output.
        let tail = match (rest_of(&self.now), rest_of(packet)) {
            (Some(before), Some(after)) => before.get(after.len()..).unwrap_or_default().to_vec(),
            _ => Vec::new(),
        };
        let length = u32::try_from(packet.len()).ok().filter(|_| !tail.is_empty());
        if let Some(length) = limit.or(length) {
            let _ = write!(self.text, "trunc({length}),");
        }
        let _ = write!(self.text, "{port},");
        packet.clone_into(&mut self.now);
        self.now.extend(tail);
    }

    /// The actions; `drop` if there are none.
    pub(crate) fn text(&self) -> &str {
        if self.text.is_empty() { "drop" } else { self.text.trim_end_matches(',') }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odp;

    #[test]
    fn truncations_last_for_one_output() {
        let text = "in_port(1),eth(),eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,ttl=9),udp(src=1,dst=2)";
        let packet = odp::packet(text, Some(100)).unwrap();
        let mut tagged = packet.clone();
        tagged.splice(12..12, [0x81, 0, 0, 9]);
        let mut sequence = Sequence::of(&packet);
        assert_eq!(sequence.text(), "drop");
        sequence.output(2, &packet[..64], 0, None);
        sequence.output(3, &tagged[..68], 0, None);
        sequence.output(4, &tagged, 0, None);
        sequence.output(5, &tagged, 0, Some(200));
        assert_eq!(sequence.text(), "trunc(64),2,push_vlan(vid=9,pcp=0),trunc(68),3,4,trunc(200),5");
        assert_eq!(sequence.now(), tagged);
    }

    #[test]
    fn a_queue_is_set_until_it_changes() {
        let packet = odp::packet("in_port(1),eth(),eth_type(0x0800),ipv4(tos=0),udp()", Some(100)).unwrap();
        let mut marked = packet.clone();
        marked[15] = 4;
        let mut sequence = Sequence::of(&packet);
        sequence.depend(&[Dependency { key: "nw_tos", mask: 0xfc }]);
        for (port, packet, queue) in
            [(1, &packet, 0), (2, &marked, 17), (3, &marked, 17), (4, &packet, 0), (5, &packet, 1)]
        {
            sequence.output(port, packet, queue, None);
        }
        let expected = "1,set(ipv4(tos=0x4/0xfc)),set(skb_priority(0x11)),2,3,\
                        set(ipv4(tos=0/0xfc)),set(skb_priority(0)),4,set(skb_priority(0x1)),5";
        assert_eq!(sequence.text(), expected);
    }
}
