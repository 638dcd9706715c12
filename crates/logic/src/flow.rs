//! Flows of a bridge, each a pair of addresses with a VLAN.

/// First 16 bytes of a frame that is long enough for a tag, for comparing neighbouring frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Front(u64, u64);

/// Bytes 14 and 15 of a frame, after the type, in the second word;
const BEHIND_TYPE: u64 = 0xffff << 48;
/// the part of them that is priority and drop eligibility in a tag (IEEE 802.1Q §9.6),
const PRIORITY: u64 = 0xf0 << 48;
/// and the type of a tag, in the same word.
const TAG: u64 = 0x0081 << 32;

impl Front {
    /// Returns the front of a frame; `None` if the frame may be too short for a tag.
    #[inline(always)]
    pub(crate) fn of(frame: &[u8]) -> Option<Front> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = *frame.first_chunk::<18>()?;
        let word = u64::from_le_bytes;
        Some(Front(word([a, b, c, d, e, f, g, h]), word([i, j, k, l, m, n, o, p])))
    }

    /// Returns whether the frames are of one flow: destination, source and VLAN are equal.
    #[inline(always)]
    pub(crate) fn is_of_flow(self, other: Front) -> bool {
        self.0 == other.0 && (self.1 == other.1 || equal_but_for_rest(self.1, other.1))
    }
}

/// Compares second words without the part that is neither source nor VLAN. Never inlined: the compiler would compute it
/// for every packet.
#[cold]
#[inline(never)]
fn equal_but_for_rest(one: u64, other: u64) -> bool {
    let rest = |word| if word & (0xffff << 32) == TAG { PRIORITY } else { BEHIND_TYPE };
    one & !rest(one) == other & !rest(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(addresses: u8, behind: [u8; 6]) -> Vec<u8> {
        [[addresses; 12].to_vec(), behind.to_vec()].concat()
    }

    fn of_one_flow(one: [u8; 6], other: [u8; 6]) -> bool {
        let front = |behind| Front::of(&frame(2, behind)).unwrap();
        front(one).is_of_flow(front(other))
    }

    #[test]
    fn addresses_and_vlan_tell_flows_apart() {
        let plain = [8, 0, 0x45, 0, 0, 0];
        assert!(of_one_flow(plain, plain) && of_one_flow(plain, [8, 0, 0x45, 0xb8, 9, 9]));
        assert!(!of_one_flow(plain, [0x81, 0, 0x00, 7, 8, 0]));
        let tagged = [0x81, 0, 0x00, 7, 8, 0];
        assert!(of_one_flow(tagged, [0x81, 0, 0xf0, 7, 8, 0]));
        assert!(!of_one_flow(tagged, [0x81, 0, 0x00, 8, 8, 0]));
        assert!(!of_one_flow(tagged, [0x81, 0, 0x01, 7, 8, 0]));
        let front = |at: usize| {
            let mut frame = frame(2, plain);
            frame[at] = 4;
            Front::of(&frame).unwrap()
        };
        for at in 0..12 {
            assert!(!front(at).is_of_flow(Front::of(&frame(2, plain)).unwrap()), "byte {at}");
        }
    }

    #[test]
    fn short_frames_have_no_front() {
        assert_eq!(Front::of(&[2; 17]), None);
        assert!(Front::of(&[2; 18]).is_some());
    }
}
