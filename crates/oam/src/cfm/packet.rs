//! Continuity check messages (IEEE 802.1Q §21.6), with Open vSwitch's extensions in the part that ITU-T Y.1731 keeps
//! for performance counters.

use packet::MacAddr;

/// Ethernet type of CFM (IEEE 802.1Q §21.1).
pub const ETHERTYPE: u16 = 0x8902;
/// Destination of continuity checks of maintenance domain level 0 (IEEE 802.1Q §8.13.9).
pub const GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x30]);
/// Destination of extended continuity checks, those of Open vSwitch only.
pub const EXTENDED_GROUP: MacAddr = MacAddr([0x01, 0x23, 0x20, 0x00, 0x00, 0x30]);

const OPCODE: u8 = 1;
const REMOTE_DEFECT: u8 = 0x80;
const FIRST_TLV: u8 = 70;
/// Length of a message, and of those that older versions of Open vSwitch send, without the TLV at the end.
const LENGTH: usize = 75;
const SHORT: usize = 74;
const ETHERNET: usize = 12;

/// Identifier of the maintenance association: domain "ovs" and association "ovs", both as character strings
/// (IEEE 802.1Q §21.6.5).
const ASSOCIATION: [u8; 48] = {
    let mut id = [0; 48];
    let text = *b"\x04\x03ovs\x02\x03ovs";
    let mut at = 0;
    while at < text.len() {
        id[at] = text[at];
        at += 1;
    }
    id
};

/// A continuity check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) remote_defect: bool,
    /// Code of the interval; 0 with `interval_ms`.
    pub(super) interval: u8,
    pub(super) sequence: u32,
    /// The sender's maintenance point.
    pub(super) point: u64,
    /// Extended: the interval in milliseconds, and whether the sender is operationally down.
    pub(super) interval_ms: u16,
    pub(super) is_down: bool,
}

/// Reasons for not counting a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It ends too early.
    TooShort(usize),
    /// It is another message of CFM.
    Opcode(u8),
    /// It is of another maintenance association.
    Association,
    /// There is no room for another remote maintenance point.
    Room(u64),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooShort(length) => write!(f, "{length} bytes, expected {SHORT} or more"),
            Self::Opcode(opcode) => write!(f, "opcode {opcode}, expected {OPCODE}"),
            Self::Association => write!(f, "another maintenance association"),
            Self::Room(point) => write!(f, "no room for maintenance point {point}"),
        }
    }
}

impl Check {
    /// Reads the message in a frame.
    pub(super) fn of_frame(frame: &[u8], extended: bool) -> Result<Self, Fault> {
        let mut rest = frame.get(ETHERNET..).unwrap_or_default();
        for _ in 0..2 {
            if let [0x81, 0x00, _, _, behind @ ..] | [0x88, 0xa8, _, _, behind @ ..] = rest {
                rest = behind;
            }
        }
        let message = rest.get(2..).unwrap_or_default();
        let Some(bytes) = message.first_chunk::<SHORT>() else { return Err(Fault::TooShort(message.len())) };
        // Level and version, opcode, flags, first TLV; sequence, point; association; interval, extended point, state.
        let [_, opcode, flags, _, s0, s1, s2, s3, p0, p1, rest @ ..] = bytes;
        if *opcode != OPCODE {
            return Err(Fault::Opcode(*opcode));
        }
        let Some((association, [i0, i1, more @ ..])) = rest.split_first_chunk::<48>() else {
            return Err(Fault::TooShort(message.len()));
        };
        if *association != ASSOCIATION {
            return Err(Fault::Association);
        }
        let wide = more.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let is_down = more.get(8).is_some_and(|down| *down != 0);
        Ok(Self {
            remote_defect: flags & REMOTE_DEFECT != 0,
            interval: flags & 7,
            sequence: u32::from_be_bytes([*s0, *s1, *s2, *s3]),
            point: if extended { wide } else { u16::from_be_bytes([*p0, *p1]).into() },
            interval_ms: u16::from_be_bytes([*i0, *i1]),
            is_down: extended && is_down,
        })
    }

    /// Writes a frame; `tag`: the control information of a VLAN tag.
    pub(super) fn frame(&self, source: MacAddr, tag: Option<u16>, extended: bool) -> Vec<u8> {
        let group = if extended { EXTENDED_GROUP } else { GROUP };
        let mut frame = Vec::with_capacity(ETHERNET + 6 + LENGTH);
        frame.extend([group.0, source.0].concat());
        if let Some(tag) = tag {
            frame.extend([0x81, 0x00]);
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(ETHERTYPE.to_be_bytes());
        let defect = if self.remote_defect { REMOTE_DEFECT } else { 0 };
        frame.extend([0, OPCODE, defect | self.interval & 7, FIRST_TLV]);
        frame.extend(self.sequence.to_be_bytes());
        // What 16 bits hold of an extended point, which receivers do not read.
        frame.extend((self.point as u16).to_be_bytes());
        frame.extend(ASSOCIATION);
        frame.extend(self.interval_ms.to_be_bytes());
        frame.extend(if extended { self.point } else { 0 }.to_be_bytes());
        frame.push(u8::from(extended && self.is_down));
        // Reserved bytes, and the TLV at the end.
        frame.extend([0; 6]);
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: Check = Check {
        remote_defect: true,
        interval: 4,
        sequence: 0x0102_0304,
        point: 0x1234,
        interval_ms: 0,
        is_down: false,
    };
    const SOURCE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    #[test]
    fn frames_are_as_the_standard_has_them() {
        let frame = CHECK.frame(SOURCE, None, false);
        assert_eq!(frame.len(), 14 + LENGTH);
        let start =
            [
                &[
                    1, 0x80, 0xc2, 0, 0, 0x30, 2, 0, 0, 0, 0, 1, 0x89, 2, 0, 1, 0x84, 70, 1, 2, 3, 4, 0x12,
                    0x34,
                ][..],
                b"\x04\x03ovs\x02\x03ovs\0",
            ]
            .concat();
        assert!(frame.starts_with(&start), "{frame:x?}");
        assert_eq!(Check::of_frame(&frame, false), Ok(CHECK));
        let extended = Check { point: u64::MAX - 1, interval: 0, interval_ms: 300, is_down: true, ..CHECK };
        let frame = extended.frame(SOURCE, Some(0xa007), true);
        assert_eq!(frame.len(), 18 + LENGTH);
        assert_eq!(Check::of_frame(&frame, true), Ok(extended));
    }

    #[test]
    fn other_messages_are_told_apart() {
        let frame = CHECK.frame(SOURCE, None, false);
        for end in 0..14 + SHORT {
            assert!(matches!(Check::of_frame(&frame[..end], false), Err(Fault::TooShort(_))), "{end}");
        }
        assert!(Check::of_frame(&frame[..14 + SHORT], false).is_ok());
        let mut other = frame.clone();
        other[15] = 3;
        assert_eq!(Check::of_frame(&other, false), Err(Fault::Opcode(3)));
        let mut other = frame;
        other[30] ^= 1;
        assert_eq!(Check::of_frame(&other, false), Err(Fault::Association));
    }
}
