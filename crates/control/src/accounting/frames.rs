//! Packets for tests.

/// Returns an Ethernet frame without tags, of this type.
pub(super) fn frame(ethertype: u16, rest: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], &ethertype.to_be_bytes()[..], rest].concat()
}

/// Returns an IPv4 packet from 10.0.0.1 to 10.0.0.2.
pub(super) fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = ((20 + payload.len()) as u16).to_be_bytes();
    let header = [0x45, 0, high, low, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    [&header[..], payload].concat()
}
