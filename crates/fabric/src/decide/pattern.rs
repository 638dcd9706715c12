//! Comparison of many headers with one: 32 bytes at once.

/// Bits of 32 bytes, and their values.
#[derive(Debug, Clone, Copy)]
pub struct Pattern {
    value: [u8; Self::LEN],
    bits: [u8; Self::LEN],
}

impl Pattern {
    /// Number of bytes that are compared.
    pub const LEN: usize = 32;

    /// These bits of these bytes.
    #[inline(always)]
    pub fn new(value: [u8; Self::LEN], bits: [u8; Self::LEN]) -> Self {
        Self { value, bits }
    }

    /// Whether these bytes have the same bits.
    #[inline(always)]
    pub fn fits(&self, bytes: &[u8; Self::LEN]) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.fits_at_once(bytes);
        #[cfg(not(target_arch = "x86_64"))]
        return bytes.iter().zip(&self.value).zip(&self.bits).all(|((a, b), bits)| (a ^ b) & bits == 0);
    }

    // The compiler makes sixteen-byte instructions of no form of it in plain Rust.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn fits_at_once(&self, bytes: &[u8; Self::LEN]) -> bool {
        use core::arch::x86_64::{
            __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_movemask_epi8, _mm_or_si128, _mm_setzero_si128,
            _mm_xor_si128,
        };
        let halves = |bytes: &[u8; Self::LEN]| {
            // SAFETY: two halves of 16 bytes are as long as the array, of which each pattern of bits is valid.
            unsafe { core::mem::transmute::<[u8; Self::LEN], [__m128i; 2]>(*bytes) }
        };
        let ([a, b], [value_a, value_b], [bits_a, bits_b]) =
            (halves(bytes), halves(&self.value), halves(&self.bits));
        // SAFETY: x86-64 has SSE2.
        unsafe {
            let differs_a = _mm_and_si128(_mm_xor_si128(a, value_a), bits_a);
            let differs_b = _mm_and_si128(_mm_xor_si128(b, value_b), bits_b);
            let equal = _mm_cmpeq_epi8(_mm_or_si128(differs_a, differs_b), _mm_setzero_si128());
            _mm_movemask_epi8(equal) == 0xffff
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_that_counts_matters() {
        let value: [u8; 32] = std::array::from_fn(|i| (i as u8).wrapping_mul(37));
        let bits: [u8; 32] = std::array::from_fn(|i| (i as u8).wrapping_mul(29) | 1);
        let pattern = Pattern::new(value, bits);
        assert!(pattern.fits(&value));
        for byte in 0..32 {
            for bit in 0..8 {
                let mut other = value;
                other[byte] ^= 1 << bit;
                assert_eq!(pattern.fits(&other), bits[byte] & 1 << bit == 0, "bit {bit} of byte {byte}");
            }
        }
    }
}
