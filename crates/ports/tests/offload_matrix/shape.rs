//! Packets to send and their expected forms on arrival, built field by field, with checksums computed here.
//!
//! They use no code of the switch: a segment is not cut out of a packet but built anew, as a sender that cuts by itself
//! would build it.

use std::ops::Range;

/// Payload bytes of a segment.
pub(crate) const SEGMENT: usize = 1400;

pub(crate) const DESTINATION: [u8; 6] = [2, 0, 0, 0, 0, 2];
const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const TAG: [u8; 4] = [0x81, 0, 0x60, 42];

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
const CWR: u8 = 0x80;

/// Work that a sender leaves to the switch or the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    /// Nothing.
    None,
    /// The checksum.
    Checksum,
    /// The checksum and cutting, of a packet short enough already.
    Short,
    /// The checksum and cutting.
    Cut,
    /// The checksum and cutting, of a packet with CWR set, as its metadata says.
    CutEcn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp4,
    Tcp6,
    Udp4,
    Udp6,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    pub(crate) tagged: bool,
    /// With an IPv6 extension header.
    pub(crate) extended: bool,
    pub(crate) job: Job,
    pub(crate) payload: usize,
}

/// A `virtio_net_hdr` without the number of buffers (virtio 1.2 §5.1.6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Metadata {
    pub(crate) flags: u8,
    pub(crate) gso_type: u8,
    pub(crate) hdr_len: u16,
    pub(crate) gso_size: u16,
    pub(crate) csum_start: u16,
    pub(crate) csum_offset: u16,
}

pub(crate) const NEEDS_CSUM: u8 = 1;
pub(crate) const DATA_VALID: u8 = 2;
pub(crate) const GSO_ECN: u8 = 0x80;

impl Metadata {
    pub(crate) fn encode(&self) -> [u8; 10] {
        let [h0, h1] = self.hdr_len.to_le_bytes();
        let [g0, g1] = self.gso_size.to_le_bytes();
        let [s0, s1] = self.csum_start.to_le_bytes();
        let [o0, o1] = self.csum_offset.to_le_bytes();
        [self.flags, self.gso_type, h0, h1, g0, g1, s0, s1, o0, o1]
    }

    pub(crate) fn decode(bytes: &[u8]) -> Metadata {
        let field = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Metadata {
            flags: bytes[0],
            gso_type: bytes[1],
            hdr_len: field(2),
            gso_size: field(4),
            csum_start: field(6),
            csum_offset: field(8),
        }
    }
}

/// A packet and its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) metadata: Metadata,
    pub(crate) bytes: Vec<u8>,
}

impl Packet {
    /// Does the work that a receiver has with a partial checksum.
    pub(crate) fn sum_up(&mut self) {
        if self.metadata.flags & NEEDS_CSUM == 0 {
            return;
        }
        let start = usize::from(self.metadata.csum_start);
        let at = start + usize::from(self.metadata.csum_offset);
        // Zero would mean that there is none (RFC 768).
        let sum = match !add_up(&self.bytes[start..]) {
            0 => 0xffff,
            sum => sum,
        };
        self.bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        self.metadata = Metadata::default();
    }
}

/// A built shape: the packet as sent, and its possible forms on arrival.
pub(crate) struct Built {
    pub(crate) shape: Shape,
    pub(crate) sent: Packet,
    /// With a partial checksum, uncut, whether it is to be cut or not.
    pub(crate) partial: Packet,
    /// As segments, or whole if it is not to be cut; with all checksums.
    pub(crate) plain: Vec<Packet>,
}

impl Shape {
    /// Returns all shapes that senders can send.
    pub(crate) fn all() -> Vec<Shape> {
        let mut shapes = Vec::new();
        let kinds = [
            (Kind::Tcp4, false),
            (Kind::Tcp6, false),
            (Kind::Tcp6, true),
            (Kind::Udp4, false),
            (Kind::Udp6, false),
            (Kind::Udp6, true),
        ];
        for (kind, extended) in kinds {
            for tagged in [false, true] {
                let shape = |job, payload| Shape { kind, tagged, extended, job, payload };
                let longest = 65_535 - shape(Job::None, 0).header_len();
                let jobs = [
                    (Job::None, 101),
                    (Job::None, longest),
                    (Job::Checksum, 333),
                    (Job::Checksum, 9001),
                    (Job::Short, SEGMENT),
                    (Job::Cut, SEGMENT + 1),
                    (Job::Cut, longest - 1),
                    (Job::Cut, longest),
                    (Job::CutEcn, 5 * SEGMENT),
                ];
                let fits = |job: &Job| *job != Job::CutEcn || kind.is_tcp();
                let jobs = jobs.into_iter().filter(|(job, _)| fits(job));
                shapes.extend(jobs.map(|(job, payload)| shape(job, payload)));
            }
        }
        shapes
    }

    pub(crate) fn is_cut(&self) -> bool {
        matches!(self.job, Job::Cut | Job::CutEcn)
    }

    fn l3(&self) -> usize {
        if self.tagged { 18 } else { 14 }
    }

    fn l4(&self) -> usize {
        self.l3() + if self.kind.is_v6() { 40 } else { 20 } + self.extension().len()
    }

    /// Returns the bytes between the IP header and the transport header: destination options (RFC 8200 §4.6), none but
    /// padding.
    fn extension(&self) -> Vec<u8> {
        match self.extended {
            true => vec![self.kind.protocol(), 0, 1, 4, 0, 0, 0, 0],
            false => Vec::new(),
        }
    }

    fn header_len(&self) -> usize {
        // TCP with timestamps.
        self.l4() + if self.kind.is_tcp() { 32 } else { 8 }
    }

    pub(crate) fn build(self) -> Built {
        let whole = 0..self.payload;
        let checksum = Metadata {
            flags: NEEDS_CSUM,
            csum_start: self.l4() as u16,
            csum_offset: if self.kind.is_tcp() { 16 } else { 6 },
            ..Metadata::default()
        };
        let cut = Metadata {
            gso_type: self.kind.gso() | if self.job == Job::CutEcn { GSO_ECN } else { 0 },
            hdr_len: self.header_len() as u16,
            gso_size: SEGMENT as u16,
            ..checksum
        };
        let partial = self.frame(whole.clone(), true);
        let complete =
            |range: Range<usize>| Packet { metadata: Metadata::default(), bytes: self.frame(range, false) };
        let segments = || {
            let starts = (0..self.payload).step_by(SEGMENT);
            starts.map(|at| complete(at..self.payload.min(at + SEGMENT))).collect()
        };
        let sent = match self.job {
            Job::None => complete(whole.clone()),
            Job::Checksum => Packet { metadata: checksum, bytes: partial.clone() },
            Job::Short | Job::Cut | Job::CutEcn => Packet { metadata: cut, bytes: partial.clone() },
        };
        let metadata = if self.is_cut() { cut } else { checksum };
        let plain = if self.is_cut() { segments() } else { vec![complete(whole)] };
        Built { shape: self, sent, partial: Packet { metadata, bytes: partial }, plain }
    }

    /// Returns the packet with these bytes of the payload; with `partial`, with the checksum of the pseudo-header only.
    fn frame(&self, range: Range<usize>, partial: bool) -> Vec<u8> {
        let number = (range.start / SEGMENT) as u16;
        let (first, last) = (range.start == 0, range.end == self.payload);
        let len = range.len();
        let (l3, l4) = (self.l3(), self.l4());
        let protocol = self.kind.protocol();
        let behind_ip = (self.header_len() - l4 + len) as u16;

        let mut bytes = [DESTINATION, SOURCE].concat();
        if self.tagged {
            bytes.extend(TAG);
        }
        if self.kind.is_v6() {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 7]);
            bytes.extend((behind_ip + self.extension().len() as u16).to_be_bytes());
            bytes.extend([if self.extended { 60 } else { protocol }, 64]);
            bytes.extend([0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
            bytes.extend([0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
            bytes.extend(self.extension());
        } else {
            bytes.extend([8, 0, 0x45, 0]);
            bytes.extend((20 + behind_ip).to_be_bytes());
            // The identification wraps on its way.
            bytes.extend(0xfffd_u16.wrapping_add(number).to_be_bytes());
            bytes.extend([0x40, 0, 64, protocol, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
            let sum = !add_up(&bytes[l3..l4]);
            bytes[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        bytes.extend([0x30, 0x39, 0x01, 0xbb]);
        let checksum = if self.kind.is_tcp() {
            // The sequence number wraps too.
            let sequence = 0xffff_f000_u32.wrapping_add(range.start as u32);
            bytes.extend(sequence.to_be_bytes());
            let mut flags = ACK;
            flags |= if last { FIN | PSH } else { 0 };
            flags |= if first && self.job == Job::CutEcn { CWR } else { 0 };
            bytes.extend([1, 2, 3, 4, 8 << 4, flags, 0xff, 0, 0, 0, 0, 0]);
            bytes.extend([1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 6]);
            l4 + 16
        } else {
            bytes.extend(behind_ip.to_be_bytes());
            bytes.extend([0, 0]);
            l4 + 6
        };
        bytes.extend(range.map(|at| (at.wrapping_mul(2_654_435_761) >> 7) as u8));
        let addresses = if self.kind.is_v6() { &bytes[l3 + 8..l3 + 40] } else { &bytes[l3 + 12..l3 + 20] };
        let pseudo = add_up(&[addresses, &[0, protocol], &behind_ip.to_be_bytes()].concat());
        let sum = if partial {
            pseudo
        } else {
            // Zero would mean that there is none (RFC 768).
            match !add_up(&[&pseudo.to_be_bytes(), &bytes[l4..]].concat()) {
                0 => 0xffff,
                sum => sum,
            }
        };
        bytes[checksum..checksum + 2].copy_from_slice(&sum.to_be_bytes());
        bytes
    }
}

impl Kind {
    pub(crate) fn is_tcp(self) -> bool {
        matches!(self, Kind::Tcp4 | Kind::Tcp6)
    }

    pub(crate) fn is_v6(self) -> bool {
        matches!(self, Kind::Tcp6 | Kind::Udp6)
    }

    fn protocol(self) -> u8 {
        if self.is_tcp() { 6 } else { 17 }
    }

    fn gso(self) -> u8 {
        match self {
            Kind::Tcp4 => 1,
            Kind::Tcp6 => 4,
            Kind::Udp4 | Kind::Udp6 => 5,
        }
    }
}

/// Returns the one's complement sum of 16-bit words (RFC 1071).
fn add_up(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u64 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[test]
fn reference_packets_have_the_checksums_that_were_added_up_by_hand() {
    let shape = Shape { kind: Kind::Udp4, tagged: false, extended: false, job: Job::None, payload: 0 };
    let built = shape.build();
    // 4500 + 001c + fffd + 4000 + 4011 + 0a4d + 0001 + 0a4d + 0002 = 1_d9c7 -> d9c8 -> complement 2637.
    assert_eq!(built.sent.bytes[24..26], [0x26, 0x37]);
    // 0a4d + 0001 + 0a4d + 0002 + 0011 + 0008 = 14b6; + 3039 + 01bb + 0008 = 46b2 -> complement b94d.
    assert_eq!(built.partial.bytes[40..42], [0x14, 0xb6]);
    assert_eq!(built.sent.bytes[40..42], [0xb9, 0x4d]);
}
