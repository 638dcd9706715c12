//! Frames: almost valid ones, whose headers and offload metadata agree until the fuzzer changes them.

use std::os::fd::BorrowedFd;
use std::sync::LazyLock;

use fabric::{Fault, RxBatch, RxQueue, Tools};
use packet::{Gso, Offload, virtio_net};

use crate::Bytes;

static PAYLOAD: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..=u16::MAX).map(|i| (i as u8).wrapping_mul(31)).collect());

/// A frame and the offloads that its sender claims.
pub struct Frame {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// The claimed offloads, not validated.
    pub claim: Offload,
}

/// Reads a frame, with a grammar chosen by the first byte.
pub fn read(from: &mut Bytes<'_>) -> Frame {
    match from.below(4) {
        0 => raw(from),
        1 => plain(from),
        _ => built(from),
    }
}

/// Arbitrary bytes with arbitrary metadata.
fn raw(from: &mut Bytes<'_>) -> Frame {
    let claim = virtio_net::decode(&from.array()).unwrap_or(Offload { gso: Gso::Udp, ..Offload::NONE });
    let len = usize::from(from.u16()) % 2048;
    Frame { bytes: from.slice(len).to_vec(), claim }
}

/// An Ethernet header between few stations, and a payload of any length up to slightly above the limit.
fn plain(from: &mut Bytes<'_>) -> Frame {
    let mut bytes = addresses(from);
    tags(from, &mut bytes);
    bytes.extend(from.array::<2>());
    let len = length(from);
    bytes.extend(from.slice(len % 64));
    bytes.resize(bytes.len().max(len + 4), 0x5a);
    Frame { bytes, claim: Offload::NONE }
}

/// Twelve bytes: destination and source, stations 0 to 7 and group addresses.
fn addresses(from: &mut Bytes<'_>) -> Vec<u8> {
    let [dst, src] = from.array();
    let station = |n: u8| match n % 16 {
        14 => [1, 0x80, 0xc2, 0, 0, n >> 4],
        15 => [0xff; 6],
        n => [2, 0, 0, 0, 0, n],
    };
    [station(dst), station(src)].concat()
}

fn tags(from: &mut Bytes<'_>, bytes: &mut Vec<u8>) {
    let [tags, vid] = from.array();
    for i in 0..tags & 3 {
        bytes.extend(if tags & 0x10 != 0 && i == 0 { [0x88, 0xa8] } else { [0x81, 0] });
        bytes.extend([tags & 0xe0, vid % 8]);
    }
}

/// TCP or UDP over IP with matching metadata, of which a few bytes and fields are then changed.
fn built(from: &mut Bytes<'_>) -> Frame {
    let [shape, options, tcp_options, flags] = from.array();
    let (v6, tcp) = (shape & 1 != 0, shape & 2 != 0);
    let (ip_options, tcp_options) = (usize::from(options % 11), usize::from(tcp_options % 11));
    let (sequence, identification) = (from.u32(), from.u16());
    let (gso_size, payload_len) = (from.u16(), length(from));

    let mut bytes = addresses(from);
    tags(from, &mut bytes);
    bytes.extend(if v6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    let l3 = bytes.len();
    let protocol = if tcp { 6 } else { 17 };
    let l4_len = if tcp { 20 + 4 * tcp_options } else { 8 } + payload_len;
    if v6 {
        bytes.extend([0x60, 0x0a, 0xbc, 0xde]);
        bytes.extend(((8 * ip_options + l4_len) as u16).to_be_bytes());
        bytes.extend([if ip_options > 0 { 60 } else { protocol }, 64]);
        bytes.extend((0..32u8).map(|i| i.wrapping_mul(37)));
        for i in 0..ip_options {
            bytes.extend([if i + 1 < ip_options { 60 } else { protocol }, 0, 1, 4, 0, 0, 0, 0]);
        }
    } else {
        bytes.extend([0x45 + ip_options as u8, 0x02]);
        bytes.extend(((20 + 4 * ip_options + l4_len) as u16).to_be_bytes());
        bytes.extend(identification.to_be_bytes());
        bytes.extend([0x40, 0, 64, protocol, 0xde, 0xad, 192, 168, 0, 1, 10, 1, 2, 3]);
        bytes.extend(vec![1; 4 * ip_options]);
    }
    let l4 = bytes.len();
    bytes.extend([0x30, 0x39, 0x01, 0xbb]);
    if tcp {
        bytes.extend(sequence.to_be_bytes());
        bytes.extend([1, 2, 3, 4, (5 + tcp_options as u8) << 4, flags, 0xff, 0, 0, 0, 0, 0]);
        bytes.extend(vec![1; 4 * tcp_options]);
    } else {
        bytes.extend((l4_len as u16).to_be_bytes());
        bytes.extend([0, 0]);
    }
    bytes.extend(&PAYLOAD[..payload_len]);
    let csum_offset = if tcp { 16 } else { 6 };
    if let Some(field) = bytes.get(l4..).map(|segment| pseudo_header(&bytes, l3, segment.len(), protocol)) {
        bytes[l4 + csum_offset..][..2].copy_from_slice(&field.to_be_bytes());
    }
    let mut claim = Offload {
        gso: match (shape >> 2 & 3, tcp, v6) {
            (0, ..) => Gso::None,
            (_, true, false) => Gso::Tcp4,
            (_, true, true) => Gso::Tcp6,
            (_, false, _) => Gso::Udp,
        },
        ecn: shape & 0x10 != 0,
        needs_csum: shape & 0x20 == 0,
        csum_valid: shape & 0x40 != 0,
        gso_size,
        csum_start: l4 as u16,
        csum_offset: csum_offset as u16,
        ..Offload::NONE
    };
    disagree(from, &mut bytes, &mut claim);
    Frame { bytes, claim }
}

/// Makes up to seven changes; none at the end of the input.
fn disagree(from: &mut Bytes<'_>, bytes: &mut Vec<u8>, claim: &mut Offload) {
    for _ in 0..from.below(8) {
        let [choice, at, value] = from.array();
        match choice % 6 {
            0 | 1 => {
                if let Some(byte) = bytes.get_mut(usize::from(at)) {
                    *byte ^= value;
                }
            }
            2 => bytes.truncate(bytes.len().saturating_sub(usize::from(value))),
            3 => bytes.resize(bytes.len() + usize::from(value), at),
            4 => claim.csum_start = claim.csum_start.wrapping_add_signed(i16::from(value as i8)),
            _ => claim.csum_offset = u16::from(value),
        }
    }
}

/// Sum of the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1), word by word.
fn pseudo_header(packet: &[u8], l3: usize, len: usize, protocol: u8) -> u16 {
    let addresses = if packet[l3] >> 4 == 6 { &packet[l3 + 8..l3 + 40] } else { &packet[l3 + 12..l3 + 20] };
    sum_of_words(&[addresses, &[0, protocol], &(len as u16).to_be_bytes()].concat())
}

/// Internet checksum (RFC 1071) in 32-bit words; shares no code with the implementation under test.
pub fn sum_of_words(data: &[u8]) -> u16 {
    let (long, rest) = data.as_chunks::<8>();
    let mut sum = 0u64;
    for word in long {
        let word = u64::from_be_bytes(*word);
        sum += (word >> 32) + (word & 0xffff_ffff);
    }
    for pair in rest.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A length, mostly of an ordinary frame: large frames are slow and add little coverage.
fn length(from: &mut Bytes<'_>) -> usize {
    let n = usize::from(from.u16());
    if n >= 0xf000 { n } else { n % 4096 }
}

/// A receive queue of frames in memory.
pub struct Frames(pub Vec<Frame>);

impl RxQueue for Frames {
    fn receive(&mut self, batch: &mut RxBatch) -> Result<(), Fault> {
        for frame in self.0.drain(..) {
            if !batch.has_room() {
                break;
            }
            let Some(room) = batch.landing() else { break };
            let len = frame.bytes.len().min(room.len());
            room[..len].copy_from_slice(&frame.bytes[..len]);
            batch.landed(0, len, frame.claim)?;
        }
        Ok(())
    }

    fn complete(&mut self, _: &mut Tools) -> Result<(), Fault> {
        Ok(())
    }

    fn set_signalled(&mut self, _: bool) {}

    fn signal(&self) -> BorrowedFd<'_> {
        unreachable!("fuzz targets do not sleep")
    }

    fn cheap_to_poll(&self) -> bool {
        true
    }
}
