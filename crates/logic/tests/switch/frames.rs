//! Test frames.

use packet::{MacAddr, VlanTag};

/// Returns station `n`'s address; 0 is the broadcast address.
pub fn mac(n: u64) -> MacAddr {
    if n == 0 { MacAddr::BROADCAST } else { MacAddr::from_u64(0x5254_0000_0000 + n) }
}

/// Makes a frame with a payload of `len` bytes, at least four, that begins with `number`.
pub fn build(dst: MacAddr, src: MacAddr, tag: Option<VlanTag>, number: u32, len: usize) -> Vec<u8> {
    let mut frame = [dst.0, src.0].concat();
    if let Some(tag) = tag {
        frame.extend([0x81, 0]);
        frame.extend(tag.to_tci().to_be_bytes());
    }
    frame.extend([0x88, 0xb5]);
    frame.extend(number.to_be_bytes());
    frame.extend((4..len).map(|i| i as u8));
    frame
}

/// Makes an untagged frame from station `src` to station `dst`.
pub fn plain(dst: u64, src: u64, number: u32) -> Vec<u8> {
    build(mac(dst), mac(src), None, number, 46)
}

/// Makes a tagged frame from station `src` to station `dst`.
pub fn tagged(dst: u64, src: u64, tag: VlanTag, number: u32) -> Vec<u8> {
    build(mac(dst), mac(src), Some(tag), number, 46)
}

/// Returns the number of an untagged frame.
pub fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}
