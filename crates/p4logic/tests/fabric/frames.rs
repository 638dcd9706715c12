//! Test frames.

/// A frame from station 1 to another with an operation of the program `ops`.
pub fn op(op: u8, arg: u8, mark: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 0x88, 0xb5, op, arg, mark];
    frame.extend((frame.len()..60).map(|i| i as u8));
    frame
}

/// A frame without an operation.
pub fn plain(dst: u8, number: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, 1, 0x88, 0xb6, number];
    frame.resize(60, 0);
    frame
}

/// UDP over IPv4 to an address, with right checksums.
pub fn udp(dst: [u8; 4], ttl: u8, payload: usize) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 0, 0, 1, 0, 0, ttl, 17, 0, 0, 192, 0, 2, 1]);
    frame.extend(dst);
    frame.extend([3, 0xe8, 7, 0xd0, 0, 0, 0, 0]);
    frame.extend((0..payload).map(|i| i as u8));
    let len = frame.len() as u16;
    frame[16..18].copy_from_slice(&(len - 14).to_be_bytes());
    frame[38..40].copy_from_slice(&(len - 34).to_be_bytes());
    fill_ip_checksum(&mut frame);
    let sum = !fold(sum(&frame[34..]) + u32::from(pseudo_header(&frame)));
    frame[40..42].copy_from_slice(&sum.to_be_bytes());
    frame
}

pub fn fill_ip_checksum(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum = !fold(sum(&frame[14..34]));
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum()
}

fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The pseudo-header's sum of an untagged IPv4 packet.
pub fn pseudo_header(packet: &[u8]) -> u16 {
    fold(sum(&packet[26..34]) + u32::from(packet[23]) + packet.len() as u32 - 34)
}

/// Whether the checksums of an untagged IPv4 packet with UDP or TCP hold.
pub fn checksums_hold(packet: &[u8]) -> bool {
    fold(sum(&packet[14..34])) == 0xffff
        && fold(sum(&packet[34..]) + u32::from(pseudo_header(packet))) == 0xffff
}
