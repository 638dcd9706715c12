//! The pcapng file format, as far as recordings and captures write it (draft-ietf-opsawg-pcapng).
//!
//! A file is a sequence of blocks: a section header, one interface description for each port, then packets as they come
//! (enhanced packet blocks), at the end the interfaces' statistics. Every block is padded to 32 bits and has its length
//! at both ends. Numbers are written little-endian, times in nanoseconds.

pub(super) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const INTERFACE_STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Ethernet.
const LINKTYPE: u16 = 1;

// Options; the meaning of a number depends on the kind of block.
const END_OF_OPTIONS: u16 = 0;
const COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_ABOUT: u16 = 3;
const INTERFACE_RESOLUTION: u16 = 9;
const INTERFACE_FILTER: u16 = 11;
const PACKET_FLAGS: u16 = 2;
const STATISTICS_RECEIVED: u16 = 4;
const STATISTICS_DROPPED: u16 = 5;
const STATISTICS_ACCEPTED: u16 = 6;
const STATISTICS_DELIVERED: u16 = 8;

/// A packet to be written.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Number of the interface in its section.
    pub interface: u32,
    /// Nanoseconds since 1970-01-01 00:00:00 UTC.
    pub at: u64,
    /// Whether the switch sent it.
    pub outbound: bool,
    /// Original length, bytes.
    pub length: u32,
    /// Bytes captured.
    pub data: &'a [u8],
    /// Comment for the reader; empty for none.
    pub comment: &'a str,
}

/// Statistics of an interface.
#[derive(Debug, Clone, Copy, Default)]
pub struct Statistics {
    /// Packets at the interface.
    pub received: u64,
    /// Packets that the filter accepted.
    pub accepted: u64,
    /// Accepted packets that are missing.
    pub dropped: u64,
    /// Packets written.
    pub delivered: u64,
}

/// Appends a section header; interfaces that follow it are numbered from 0 again.
pub fn section(out: &mut Vec<u8>, application: &str) {
    block(out, SECTION_HEADER, |body| {
        body.extend(0x1a2b_3c4d_u32.to_le_bytes());
        body.extend([1, 0, 0, 0]); // version 1.0
        body.extend(u64::MAX.to_le_bytes()); // length unknown
        option(body, SECTION_APPLICATION, application.as_bytes());
        option(body, END_OF_OPTIONS, &[]);
    });
}

/// Appends the description of the next interface. A `snaplen` of 0 records whole packets.
pub fn interface(out: &mut Vec<u8>, name: &str, about: &str, snaplen: u32, filter: Option<&str>) {
    block(out, INTERFACE_DESCRIPTION, |body| {
        body.extend(LINKTYPE.to_le_bytes());
        body.extend([0, 0]);
        body.extend(snaplen.to_le_bytes());
        option(body, INTERFACE_NAME, name.as_bytes());
        option(body, INTERFACE_ABOUT, about.as_bytes());
        option(body, INTERFACE_RESOLUTION, &[9]);
        if let Some(filter) = filter {
            // 0: in libpcap's language.
            option(body, INTERFACE_FILTER, &[&[0], filter.as_bytes()].concat());
        }
        option(body, END_OF_OPTIONS, &[]);
    });
}

/// Appends a packet.
pub fn packet(out: &mut Vec<u8>, packet: &Packet<'_>) {
    block(out, ENHANCED_PACKET, |body| {
        body.extend(packet.interface.to_le_bytes());
        time(body, packet.at);
        body.extend((packet.data.len() as u32).to_le_bytes());
        body.extend(packet.length.to_le_bytes());
        body.extend(packet.data);
        pad(body, packet.data.len());
        let direction: u32 = if packet.outbound { 2 } else { 1 };
        option(body, PACKET_FLAGS, &direction.to_le_bytes());
        if !packet.comment.is_empty() {
            option(body, COMMENT, packet.comment.as_bytes());
        }
        option(body, END_OF_OPTIONS, &[]);
    });
}

/// Appends an interface's statistics.
pub fn statistics(out: &mut Vec<u8>, interface: u32, at: u64, statistics: &Statistics) {
    block(out, INTERFACE_STATISTICS, |body| {
        body.extend(interface.to_le_bytes());
        time(body, at);
        for (code, count) in [
            (STATISTICS_RECEIVED, statistics.received),
            (STATISTICS_DROPPED, statistics.dropped),
            (STATISTICS_ACCEPTED, statistics.accepted),
            (STATISTICS_DELIVERED, statistics.delivered),
        ] {
            option(body, code, &count.to_le_bytes());
        }
        option(body, END_OF_OPTIONS, &[]);
    });
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    let length = ((out.len() - start + 4) as u32).to_le_bytes();
    out.extend(length);
    if let Some(field) = out.get_mut(start + 4..start + 8) {
        field.copy_from_slice(&length);
    }
}

/// Appends a time, its upper half first whatever the byte order.
fn time(body: &mut Vec<u8>, at: u64) {
    body.extend(((at >> 32) as u32).to_le_bytes());
    body.extend((at as u32).to_le_bytes());
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = value.get(..value.len().min(usize::from(u16::MAX))).unwrap_or_default();
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body, value.len());
}

fn pad(body: &mut Vec<u8>, length: usize) {
    body.resize(body.len() + length.next_multiple_of(4) - length, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(*bytes[at..].first_chunk().unwrap())
    }

    /// Splits into kind and body of each block, and checks the lengths at both ends.
    fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut blocks = Vec::new();
        while !bytes.is_empty() {
            let len = word(bytes, 4) as usize;
            assert!(len.is_multiple_of(4));
            assert_eq!(word(bytes, len - 4) as usize, len);
            blocks.push((word(bytes, 0), bytes[8..len - 4].to_vec()));
            bytes = &bytes[len..];
        }
        blocks
    }

    #[test]
    fn blocks_are_whole_and_padded() {
        let mut out = Vec::new();
        section(&mut out, "x");
        interface(&mut out, "vm1", "about", 96, Some("tcp"));
        for length in 0..9u32 {
            let data = vec![7; length as usize];
            let (at, comment) = (0x1_2345_6789, "abc");
            let of = Packet { interface: 0, at, outbound: length % 2 == 0, length: 99, data: &data, comment };
            packet(&mut out, &of);
        }
        statistics(&mut out, 0, 5, &Statistics { received: 4, accepted: 3, dropped: 2, delivered: 1 });
        let blocks = blocks(&out);
        let kinds: Vec<_> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds[..2], [0x0a0d_0d0a, 1]);
        assert_eq!(kinds[2..], [6, 6, 6, 6, 6, 6, 6, 6, 6, 5]);
        let (_, five) = &blocks[2 + 5];
        assert_eq!((word(five, 4), word(five, 8), word(five, 12), word(five, 16)), (1, 0x2345_6789, 5, 99));
        assert_eq!(five[20..28], [7, 7, 7, 7, 7, 0, 0, 0]);
        assert_eq!(five[28..36], [2, 0, 4, 0, 1, 0, 0, 0], "inbound");
    }
}
