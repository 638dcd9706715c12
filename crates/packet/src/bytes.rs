//! Reading and writing fixed-size fields at computed offsets.
//!
//! Invariant: an offset or a length outside the slice gives `None`, whatever its value.

/// Returns the `N` bytes that start at `at`.
#[inline]
pub(crate) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<&[u8; N]> {
    bytes.get(at..)?.first_chunk()
}

/// Returns the `N` bytes that start at `at`, mutably.
#[inline]
pub(crate) fn chunk_mut<const N: usize>(bytes: &mut [u8], at: usize) -> Option<&mut [u8; N]> {
    bytes.get_mut(at..)?.first_chunk_mut()
}

/// Returns the 16-bit number in network byte order at `at`.
#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    chunk(bytes, at).map(|field| u16::from_be_bytes(*field))
}

/// Replaces the 16-bit number in network byte order at `at`.
#[inline]
pub(crate) fn set_be16(bytes: &mut [u8], at: usize, value: u16) -> Option<()> {
    *chunk_mut(bytes, at)? = value.to_be_bytes();
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_outside_give_none() {
        let mut bytes = [1, 2, 3];
        assert_eq!(be16(&bytes, 1), Some(0x0203));
        assert_eq!(be16(&bytes, 2), None);
        assert_eq!(be16(&bytes, usize::MAX), None);
        assert_eq!(set_be16(&mut bytes, 2, 7), None);
        assert_eq!(set_be16(&mut bytes, 0, 0x0908), Some(()));
        assert_eq!(bytes, [9, 8, 3]);
    }
}
