//! Headers of packets: the number of bytes that the parser needs.

/// Where the type is in a frame without tags.
const TYPE: usize = 12;
/// Largest offset of the type with which everything that follows fits into the bytes that the fabric copies.
const LAST_TYPE: usize = 40;

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

/// Whether the parser may need more than these first bytes of a longer packet: behind extension headers, stacks of
/// labels and long stacks of tags.
pub(crate) fn needs_more(front: &[u8]) -> bool {
    let mut at = TYPE;
    loop {
        match be16(front, at) {
            Some(0x8100 | 0x88a8) if at < LAST_TYPE => at += 4,
            // IPv6: hop by hop, routing, fragment, authentication, destination.
            Some(0x86dd) => return matches!(front.get(at + 8), None | Some(0 | 43 | 44 | 51 | 60)),
            None | Some(0x8100 | 0x88a8 | 0x8847 | 0x8848 | 0..0x600) => return true,
            // With all its options an IPv4 header and that behind it fit.
            Some(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(tags: usize, kind: u16, rest: &[u8]) -> Vec<u8> {
        let mut front = vec![0; 12];
        (0..tags).for_each(|_| front.extend([0x81, 0, 0, 1]));
        front.extend(kind.to_be_bytes());
        front.extend(rest);
        front.resize(128, 0);
        front
    }

    #[test]
    fn plain_headers_need_no_more() {
        let ipv6 = |next: u8| [[0x60, 0, 0, 0, 0, 0, next]; 1].concat();
        for (tags, kind, rest, more) in [
            (0, 0x0800, vec![], false),
            (2, 0x0800, vec![], false),
            (0, 0x0806, vec![], false),
            (1, 0x86dd, ipv6(6), false),
            (1, 0x86dd, ipv6(58), false),
            (0, 0x86dd, ipv6(44), true),
            (3, 0x86dd, ipv6(0), true),
            (0, 0x8847, vec![], true),
            (9, 0x0800, vec![], true),
            (0, 100, vec![], true),
            (0, 0x88b5, vec![], false),
        ] {
            assert_eq!(needs_more(&front(tags, kind, &rest)), more, "{tags} tags, {kind:#x}");
        }
        assert!(needs_more(&[0; 13]));
    }
}
