//! Fingerprints of programs: they tell builds of one version apart.

use std::path::Path;

use crate::error::{Error, Result};

/// Returns the fingerprint of a program's file: FNV-1a, folded to 32 bits.
pub(crate) fn fingerprint(program: &Path) -> Result<u32> {
    let bytes = std::fs::read(program).map_err(Error::while_doing(program.display()))?;
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    Ok((hash >> 32) as u32 ^ hash as u32)
}
