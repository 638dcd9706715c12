//! What a program says of a packet that it has finished, in the note in front of it ([`xsk::note`]).
//!
//! | bytes | word                                                   |
//! |-------|--------------------------------------------------------|
//! | 0     | mark of the interface, then the note's length          |
//! | 16    | the program's number                                   |
//! | 24    | port; all ones: none, the packet was dropped           |
//! | 32    | class, then queue; all ones: none                      |
//! | 48    | number of a digest, plus 1; 0: none                    |
//! | 56    | the digest's values                                    |

use pipeline::bits::Bits;
use pipeline::ir::{Constant, DigestId, Program};
use xsk::note::{HEAD, LARGEST};

use crate::layout::words;

/// Offsets of words.
pub(crate) mod at {
    pub(crate) const PROGRAM: i16 = 16;
    pub(crate) const PORT: i16 = 24;
    pub(crate) const CLASS: i16 = 32;
    pub(crate) const QUEUE: i16 = 40;
    pub(crate) const DIGEST: i16 = 48;
}

/// Bytes in front of the digest's values.
pub(crate) const FIXED: usize = 56;
/// Most words of a digest's values.
pub(crate) const VALUES: usize = (LARGEST - FIXED) / 8;

/// A packet that a program has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// Number of the program.
    pub program: u32,
    /// Port that it leaves through; `None`: it was dropped.
    pub port: Option<u32>,
    /// Traffic class that the program chose.
    pub class: Option<u8>,
    /// Egress queue that the program chose.
    pub queue: Option<u16>,
    digest: Option<(DigestId, [u64; VALUES])>,
}

impl Finished {
    /// Reads a note's content, without mark and length.
    pub fn of(content: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = content.get(at.checked_sub(HEAD)?..)?.first_chunk()?;
            Some(u64::from_ne_bytes(*bytes))
        };
        let chosen = |at: i16| Some(word(at as usize)?).map(|value| Some(value).filter(|v| *v != u64::MAX));
        let mut values = [0; VALUES];
        values.iter_mut().enumerate().for_each(|(i, value)| *value = word(FIXED + 8 * i).unwrap_or(0));
        let digest = u32::try_from(word(at::DIGEST as usize)?).ok()?;
        Some(Self {
            program: u32::try_from(word(at::PROGRAM as usize)?).ok()?,
            port: chosen(at::PORT)?.map(u32::try_from).transpose().ok()?,
            class: chosen(at::CLASS)?.map(|class| class as u8),
            queue: chosen(at::QUEUE)?.map(|queue| queue as u16),
            digest: digest.checked_sub(1).map(|id| (DigestId(id), values)),
        })
    }

    /// Its digest with the values, if it has one of the program's.
    pub fn digest(&self, program: &Program) -> Option<(DigestId, Vec<Constant>)> {
        let (id, words_of) = self.digest.as_ref()?;
        let mut rest = &words_of[..];
        let mut values = Vec::new();
        for ty in &program.digests.get(id.index())?.types {
            let (own, behind) = rest.split_at_checked(words(ty.width()))?;
            values.push(Constant { ty: *ty, value: Bits::from_limbs(ty.width(), own) });
            rest = behind;
        }
        Some((*id, values))
    }
}
