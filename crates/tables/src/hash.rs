//! Keyed hash of fixed-width keys.
//!
//! A multilinear hash modulo 2^128 with 128-bit secret factors, of which the upper half counts: it is strongly
//! universal (Lemire and Kaser, "Strongly universal string hashing is fast"), so without the secret no set of keys
//! collides more often than a random one: two keys have the same 64 bits with a chance of 2^-64. A bijective finalizer
//! then spreads keys in arithmetic progression, which a linear hash alone would leave in clusters. The products are
//! independent of one another, so the latency hardly grows with the width.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Secret of one table.
#[derive(Clone)]
pub(crate) struct Secret<const N: usize> {
    factors: [u128; N],
    offset: u128,
}

impl<const N: usize> Secret<N> {
    /// Draws a secret from the operating system's randomness.
    pub(crate) fn random() -> Self {
        let state = RandomState::new();
        let mut drawn = 0u64;
        let mut word = || {
            drawn += 1;
            let mut hasher = state.build_hasher();
            hasher.write_u64(drawn);
            u128::from(hasher.finish())
        };
        let mut wide = || word() << 64 | word();
        Self { factors: std::array::from_fn(|_| wide()), offset: wide() }
    }

    /// Returns the hash of a key.
    #[inline(always)]
    pub(crate) fn hash(&self, key: &[u64; N]) -> u64 {
        let mut sum = self.offset;
        for (factor, &word) in self.factors.iter().zip(key) {
            sum = sum.wrapping_add(factor.wrapping_mul(u128::from(word)));
        }
        let mut mixed = (sum >> 64) as u64;
        mixed = (mixed ^ mixed >> 32).wrapping_mul(0x9fb2_1c65_1e98_df25);
        mixed ^ mixed >> 29
    }
}
