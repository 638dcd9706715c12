//! Notes: what a program in XDP puts in front of a packet, for those who read it from a socket.
//!
//! A note begins with a *mark*, a number that only its interface's programs know, and its own length: words in this
//! machine's order. So a sender cannot forge one, and packets without a note, those of the program that redirects all
//! packets among them, are told apart.

/// Bytes of the mark and the length.
pub const HEAD: usize = 16;
/// Bytes of the longest note: with a packet of 1,500 bytes behind it, it fits in a frame of 2,048.
pub const LARGEST: usize = 160;

/// The content of the note in front of a packet, and the note's length.
#[inline]
pub fn split(mark: u64, packet: &[u8]) -> Option<(&[u8], usize)> {
    let (head, _) = packet.split_first_chunk::<HEAD>()?;
    let word = |at: usize| Some(u64::from_ne_bytes(head.get(at..at + 8)?.try_into().ok()?));
    if word(0)? != mark {
        return None;
    }
    let length = usize::try_from(word(8)?).ok().filter(|length| *length <= LARGEST)?;
    Some((packet.get(HEAD..length)?, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(mark: u64, length: u64, rest: usize) -> Vec<u8> {
        [&mark.to_ne_bytes()[..], &length.to_ne_bytes(), &vec![7; rest]].concat()
    }

    #[test]
    fn only_marked_packets_have_notes() {
        assert_eq!(split(9, &packet(9, 18, 60)), Some((&[7, 7][..], 18)));
        assert_eq!(split(9, &packet(9, 16, 0)), Some((&[][..], 16)));
        assert_eq!(split(9, &packet(8, 18, 60)), None);
        // Longer than the packet, shorter than the head, and longer than any.
        assert_eq!(split(9, &packet(9, 18, 1)), None);
        assert_eq!(split(9, &packet(9, 15, 60)), None);
        assert_eq!(split(9, &packet(9, LARGEST as u64 + 1, 300)), None);
        assert_eq!(split(9, &packet(9, u64::MAX, 300)), None);
        assert_eq!(split(9, &packet(9, 18, 60)[..15]), None);
    }
}
