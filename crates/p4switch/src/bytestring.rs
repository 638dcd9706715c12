//! Bytestrings: numbers as P4Runtime sends them, big-endian and of any length.
//!
//! A number is accepted in any length if its value fits, and returned in the shortest one (P4Runtime 1.5, section 8.4).

use pipeline::bits::Bits;

use crate::Failure;

/// Reads an unsigned number of `width` bits.
pub(crate) fn unsigned(bytes: &[u8], width: u16) -> Result<Bits, Failure> {
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len().saturating_sub(1));
    let digits = bytes.get(first..).unwrap_or_default();
    let Some(top) = digits.first() else { return Err(empty()) };
    let bits = digits.len() * 8 - top.leading_zeros() as usize;
    if bits > usize::from(width) {
        return Err(too_large(bytes, width));
    }
    Ok(match digits.len() {
        0..=8 => Bits::from_u64(width, number(digits)),
        _ => Bits::from_bytes(width, digits),
    })
}

/// Reads a number of `width` bits in two's complement.
pub(crate) fn signed(bytes: &[u8], width: u16) -> Result<Bits, Failure> {
    let Some(top) = bytes.first() else { return Err(empty()) };
    let fill: u8 = if top & 0x80 != 0 { 0xff } else { 0 };
    let first = bytes.iter().position(|byte| *byte != fill).unwrap_or(bytes.len());
    let digits = bytes.get(first..).unwrap_or_default();
    // The sign and the bits that differ from it.
    let bits = match digits.first() {
        Some(top) => digits.len() * 8 - (top ^ fill).leading_zeros() as usize + 1,
        None => 1,
    };
    if bits > usize::from(width) {
        return Err(too_large(bytes, width));
    }
    let value = Bits::from_bytes(width, digits);
    let sign = match fill {
        0 => Bits::zero(width),
        _ => Bits::ones(width).shl(digits.len() as u64 * 8),
    };
    Ok(value.or(&sign))
}

/// Reads an unsigned number of at most 32 bits, such as a port's.
pub(crate) fn small(bytes: &[u8]) -> Result<u32, Failure> {
    unsigned(bytes, 32).map(|value| u32::try_from(value.low_u64()).unwrap_or(u32::MAX))
}

/// Writes an unsigned number.
pub(crate) fn of(value: &Bits) -> Vec<u8> {
    match value.limbs() {
        [] => vec![0],
        [limb] => of_number(*limb),
        _ => shortest(&value.to_bytes()),
    }
}

/// Writes an unsigned number of at most 64 bits.
pub(crate) fn of_number(value: u64) -> Vec<u8> {
    shortest(&value.to_be_bytes())
}

/// Writes a number in two's complement.
pub(crate) fn of_signed(value: &Bits) -> Vec<u8> {
    let width = value.width().next_multiple_of(8);
    let bytes = value.sign_extend(width).to_bytes();
    let redundant = bytes.windows(2).take_while(|pair| match pair {
        [0, next] => next & 0x80 == 0,
        [0xff, next] => next & 0x80 != 0,
        _ => false,
    });
    bytes.get(redundant.count()..).unwrap_or(&bytes).to_vec()
}

fn shortest(bytes: &[u8]) -> Vec<u8> {
    let first = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len().saturating_sub(1));
    bytes.get(first..).unwrap_or(&[0]).to_vec()
}

fn number(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn empty() -> Failure {
    Failure::out_of_range("the value has no bytes (zero is one byte, 00)")
}

fn too_large(bytes: &[u8], width: u16) -> Failure {
    let shown: String = bytes.iter().take(32).map(|byte| format!("{byte:02x}")).collect();
    let more = if bytes.len() > 32 { "…" } else { "" };
    Failure::out_of_range(format!("the value 0x{shown}{more} does not fit into {width} bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_is_read_and_the_shortest_is_written() {
        let read = |bytes: &[u8], width| unsigned(bytes, width).ok().map(|value| value.low_u64());
        assert_eq!(read(&[0x63], 8), Some(99));
        assert_eq!(read(&[0, 0, 0x63], 12), Some(99));
        assert_eq!(read(&[0x30, 0x64], 16), Some(12388));
        assert_eq!(read(&[0], 1), Some(0));
        for (bytes, width) in
            [(&[1, 0x63][..], 8), (&[], 8), (&[], 16), (&[1, 0, 0x63], 16), (&[0x10, 0x63], 12)]
        {
            assert_eq!(read(bytes, width), None, "{bytes:?} in {width}");
        }
        let wide = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17];
        let value = unsigned(&[&[0, 0][..], &wide].concat(), 130).unwrap();
        assert_eq!(of(&value), wide);
        assert_eq!(of(&Bits::from_u64(16, 99)), [99]);
        assert_eq!(of(&Bits::zero(300)), [0]);
    }

    #[test]
    fn signs_are_extended() {
        let read = |bytes: &[u8], width| signed(bytes, width).ok();
        let of_i = |width, value: i64| Some(Bits::from_u64(width, value as u64));
        assert_eq!(read(&[0x9d], 8), of_i(8, -99));
        assert_eq!(read(&[0xff, 0x9d], 8), of_i(8, -99));
        assert_eq!(read(&[0xfd, 0x1d], 12), of_i(12, -739));
        assert_eq!(read(&[0xff], 16), of_i(16, -1));
        assert_eq!(read(&[0, 0], 16), of_i(16, 0));
        for (bytes, width) in [(&[0, 0x9d][..], 8), (&[0x8d, 0x1d], 12), (&[], 16)] {
            assert_eq!(read(bytes, width), None, "{bytes:?} in {width}");
        }
        for value in [-99, 99, -1, 0, -739, 739, -128, 128, 127] {
            let bits = Bits::from_u64(12, value as u64);
            assert_eq!(signed(&of_signed(&bits), 12), Ok(bits));
        }
        assert_eq!(of_signed(&Bits::from_u64(12, -739_i64 as u64)), [0xfd, 0x1d]);
        assert_eq!(of_signed(&Bits::ones(16)), [0xff]);
    }
}
