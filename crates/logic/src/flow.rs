//! Flows of a bridge: pairs of addresses with a VLAN.

/// Destination, source and VLAN of a frame, for comparing neighbouring frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flow(u64, u64);

/// Bytes 14 and 15 of a frame, after the type, in the second word;
const BEHIND_TYPE: u64 = 0xffff << 48;
/// the part of them that is priority and drop eligibility in a tag (IEEE 802.1Q §9.6),
const PRIORITY: u64 = 0xf0 << 48;
/// and the type of a tag, in the same word.
const TAG: u64 = 0x0081 << 32;

impl Flow {
    /// Flow that no frame has: its source is a group, without a tag.
    pub(crate) const NONE: Flow = Flow(u64::MAX, BEHIND_TYPE);

    /// Unknown flow, of a frame that may be too short for a tag.
    const UNKNOWN: Flow = Flow(u64::MAX, u64::MAX);

    /// Returns the flow to compare the next frame's with: an unknown one equals none, itself included.
    #[inline(always)]
    pub(crate) fn or_none(self) -> Flow {
        if self == Flow::UNKNOWN { Flow::NONE } else { self }
    }

    /// Returns the flow of a frame, or [`Flow::UNKNOWN`].
    #[inline(always)]
    pub(crate) fn of(frame: &[u8]) -> Flow {
        let Some(front) = frame.first_chunk::<18>() else { return Flow::UNKNOWN };
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = *front;
        let (one, two) =
            (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p]));
        let ignored = if two & (0xffff << 32) == TAG { PRIORITY } else { BEHIND_TYPE };
        Flow(one, two & !ignored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(addresses: u8, behind: [u8; 6]) -> Vec<u8> {
        [[addresses; 12].to_vec(), behind.to_vec()].concat()
    }

    #[test]
    fn addresses_and_vlan_tell_flows_apart() {
        let plain = Flow::of(&frame(2, [8, 0, 0x45, 0, 0, 0]));
        assert_eq!(plain, Flow::of(&frame(2, [8, 0, 0x45, 0xb8, 9, 9])));
        assert_ne!(plain, Flow::of(&frame(4, [8, 0, 0x45, 0, 0, 0])));
        let tagged = Flow::of(&frame(2, [0x81, 0, 0x00, 7, 8, 0]));
        assert_eq!(tagged, Flow::of(&frame(2, [0x81, 0, 0xf0, 7, 8, 0])));
        assert_ne!(tagged, Flow::of(&frame(2, [0x81, 0, 0x00, 8, 8, 0])));
        assert_ne!(tagged, Flow::of(&frame(2, [0x81, 0, 0x01, 7, 8, 0])));
        assert_ne!(tagged, plain);
    }

    #[test]
    fn none_is_no_frames_flow() {
        let short = Flow::of(&[2; 17]);
        assert_eq!(short, Flow::UNKNOWN);
        assert_eq!(short.or_none(), Flow::NONE);
        for behind in [[0xff; 6], [0x81, 0, 0xff, 0xff, 0xff, 0xff], [0; 6]] {
            assert_ne!(Flow::of(&frame(0xff, behind)), Flow::NONE);
        }
    }
}
