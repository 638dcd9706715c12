//! The octet of IP headers that holds the differentiated services code point and the bits for congestion notification:
//! IPv4's type of service (RFC 791), IPv6's traffic class (RFC 8200).

use crate::Sum;
use crate::headers::{IpVersion, Layers};

/// The octet's place in the first 16 bits of a header: version, header length and octet of IPv4; version, traffic class
/// and the start of the flow label of IPv6.
fn shift(version: IpVersion) -> u32 {
    match version {
        IpVersion::V4 => 0,
        IpVersion::V6 => 4,
    }
}

/// The octet; `None` if `frame` does not begin with an IP packet's headers.
pub(crate) fn of(frame: &[u8]) -> Option<u8> {
    let Layers { l3: Some(at), ip: Some(version), .. } = Layers::parse(frame) else { return None };
    let word = u16::from_be_bytes(*frame.get(usize::from(at)..)?.first_chunk()?);
    Some((word >> shift(version)) as u8)
}

/// Replaces the octet, and corrects the checksum of IPv4. What does not begin with an IP packet's headers is left
/// unchanged.
pub(crate) fn replace(frame: &mut [u8], by: impl FnOnce(u8) -> u8) {
    let Layers { l3: Some(at), ip: Some(version), .. } = Layers::parse(frame) else { return };
    let Some([first, second, rest @ ..]) = frame.get_mut(usize::from(at)..) else { return };
    let word = u16::from_be_bytes([*first, *second]);
    let shift = shift(version);
    let replaced = word & !(0xff << shift) | u16::from(by((word >> shift) as u8)) << shift;
    [*first, *second] = replaced.to_be_bytes();
    // By RFC 1624, equation 3.
    if version == IpVersion::V4
        && let [_, _, _, _, _, _, _, _, high, low, ..] = rest
    {
        let mut sum = Sum::default();
        sum.add_u16(!u16::from_be_bytes([*high, *low]));
        sum.add_u16(!word);
        sum.add_u16(replaced);
        [*high, *low] = sum.finish().to_be_bytes();
    }
}
