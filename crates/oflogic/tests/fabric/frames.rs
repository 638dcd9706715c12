//! Test frames.

/// Type of frames that mark the end of a test's traffic.
pub const MARKER: [u8; 2] = [0x99, 0x99];

pub fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// UDP from 10.0.0.1:1000 to 10.0.0.2:2000 with right checksums.
pub fn udp() -> Vec<u8> {
    unhex(
        "020000000002 020000000001 0800 45000020 00000000 40 11 66cb 0a000001 0a000002 03e8 07d0 000c 5b95 41424344",
    )
}

/// A frame between two stations with a type and a payload that begins with a number.
pub fn frame(dst: u8, src: u8, kind: [u8; 2], number: u8, len: usize) -> Vec<u8> {
    let station = |n: u8| if n == 0xff { [0xff; 6] } else { [2, 0, 0, 0, 0, n] };
    let mut frame = [&station(dst)[..], &station(src), &kind, &[number]].concat();
    frame.extend((frame.len()..len).map(|i| i as u8));
    frame
}

/// A short frame of a type that no protocol has.
pub fn plain(dst: u8, src: u8, number: u8) -> Vec<u8> {
    frame(dst, src, [0x88, 0xb5], number, 60)
}

/// A frame with a tag of this identifier and priority 0.
pub fn tagged(untagged: &[u8], vid: u16) -> Vec<u8> {
    [&untagged[..12], &[0x81, 0], &vid.to_be_bytes(), &untagged[12..]].concat()
}

fn sum(bytes: &[u8], start: u32) -> u32 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let mut sum = start + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// The pseudo-header's sum of an untagged IPv4 packet.
pub fn pseudo_header(packet: &[u8]) -> u16 {
    sum(&packet[26..34], u32::from(packet[23]) + packet.len() as u32 - 34) as u16
}

/// Whether the checksums of an untagged IPv4 packet with UDP or TCP hold.
pub fn checksums_hold(packet: &[u8]) -> bool {
    sum(&packet[14..34], 0) == 0xffff && sum(&packet[34..], pseudo_header(packet).into()) == 0xffff
}
