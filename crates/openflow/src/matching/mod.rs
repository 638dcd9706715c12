//! Matches: which packets a flow is for.
//!
//! Version 1.0 has a fixed structure, 1.1 another, Nicira's extensions and versions since 1.2 a list of fields. A
//! [`Match`] keeps what it came as; [`Match::to_fields`] gives any of them as a list of fields.

mod fixed10;
mod fixed11;
mod prerequisites;

pub use fixed10::{Match10, Wildcards10};
pub use fixed11::{Match11, Wildcards11};

use crate::error::{ErrorCode, Fault};
use crate::field::FieldId;
use crate::oxm::Oxm;
use crate::wire::{Coder, Length, Step};
pub(crate) use prerequisites::Seen;

/// A match.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Match {
    /// The structure of version 1.0.
    Fixed10(Match10),
    /// The structure of version 1.1.
    Fixed11(Match11),
    /// A list of fields, NXM or OXM.
    Fields(Vec<Oxm>),
}

impl Default for Match {
    fn default() -> Self {
        Match::Fields(Vec::new())
    }
}

impl Match {
    /// The match as fields, each with its prerequisites before it.
    ///
    /// Fields of a fixed structure whose prerequisites are absent are left out, as the standard has it.
    pub fn to_fields(&self) -> Result<Vec<Oxm>, ErrorCode> {
        self.clone().into_fields()
    }

    /// The same of a match that is not needed any more.
    pub fn into_fields(self) -> Result<Vec<Oxm>, ErrorCode> {
        match self {
            Match::Fixed10(fixed) => Ok(fixed.to_fields()),
            Match::Fixed11(fixed) => fixed.to_fields(),
            Match::Fields(fields) => Ok(fields),
        }
    }

    /// Refuses what no switch accepts: unknown fields, wrong values and masks, a field twice or without its
    /// prerequisites before it.
    pub fn check(&self) -> Result<(), ErrorCode> {
        match self {
            Match::Fixed10(_) => Ok(()),
            Match::Fixed11(fixed) => fixed.to_fields().map(drop),
            Match::Fields(fields) => check_fields(fields),
        }
    }

    /// The structure of version 1.1 or a list of fields, preceded by its type and length, and padding.
    pub(crate) fn walk_typed<C: Coder>(&mut self, c: &mut C) -> Step {
        let start = c.offset();
        self.walk_unpadded(c)?;
        let walked = c.offset() - start;
        c.reporting(ErrorCode::BmcBadLen, |c| c.pad(walked.next_multiple_of(8) - walked))
    }

    /// The same in ONF's extension: a length elsewhere repeats the match's own.
    pub(crate) fn walk_measured<C: Coder>(&mut self, c: &mut C, len: Length) -> Step {
        let start = c.offset();
        c.measured(len, ErrorCode::BmcBadLen, |c| self.walk_unpadded(c))?;
        let walked = c.offset() - start;
        c.reporting(ErrorCode::BmcBadLen, |c| c.pad(walked.next_multiple_of(8) - walked))
    }

    fn walk_unpadded<C: Coder>(&mut self, c: &mut C) -> Step {
        c.entry(2, ErrorCode::BmcBadLen, |c| {
            let mut kind: u16 = match self {
                Match::Fixed10(_) => return c.refuse(ErrorCode::BmcBadType),
                Match::Fixed11(_) => 0,
                Match::Fields(_) => 1,
            };
            c.u16(&mut kind)?;
            c.pad(2)?;
            if C::READS {
                *self = match kind {
                    0 => Match::Fixed11(Match11::default()),
                    1 => Match::default(),
                    _ => return c.refuse(ErrorCode::BmcBadType),
                };
            }
            match self {
                Match::Fixed10(_) => Ok(()),
                Match::Fixed11(fixed) => c.record(fixed),
                Match::Fields(fields) => walk_list(c, fields),
            }
        })
    }

    /// The structure of version 1.0.
    pub(crate) fn walk_fixed10<C: Coder>(&mut self, c: &mut C) -> Step {
        if C::READS {
            *self = Match::Fixed10(Match10::default());
        }
        match self {
            Match::Fixed10(fixed) => c.record(fixed),
            _ => Err(Fault::Inexpressible("a match by fields in a standard message")),
        }
    }

    /// A list of fields of the length that `len` says, and padding.
    pub(crate) fn walk_fields<C: Coder>(&mut self, c: &mut C, len: Length) -> Step {
        if C::READS {
            *self = Match::default();
        }
        match self {
            Match::Fields(fields) => walk_padded(fields, c, len),
            _ => Err(Fault::Inexpressible("a fixed match in an extension's message")),
        }
    }
}

/// A list of fields of the length that `len` says, and padding to a multiple of 8 bytes.
pub(crate) fn walk_padded<C: Coder>(fields: &mut Vec<Oxm>, c: &mut C, len: Length) -> Step {
    let start = c.offset();
    c.measured(len, ErrorCode::BmcBadLen, |c| walk_list(c, fields))?;
    let walked = c.offset() - start;
    c.reporting(ErrorCode::BmcBadLen, |c| c.pad(walked.next_multiple_of(8) - walked))
}

/// A list of fields up to the innermost entry's end. A wrong field goes before truncation behind it.
fn walk_list<C: Coder>(c: &mut C, fields: &mut Vec<Oxm>) -> Step {
    let result = c.list(fields);
    if let (Err(Fault::Malformed { code: ErrorCode::BmcBadLen, .. }), Some(first)) =
        (&result, fields.iter().find_map(|oxm| oxm.check().err()))
    {
        return c.refuse(first);
    }
    result
}

/// The first register of 32 bits that a field stands for, and their number.
fn registers(id: FieldId) -> Option<(usize, usize)> {
    let at = id as usize;
    let among = |first: FieldId, count: usize, words: usize| {
        let n = at.checked_sub(first as usize).filter(|n| *n < count)?;
        Some((n * words, words))
    };
    among(FieldId::Reg0, 16, 1)
        .or_else(|| among(FieldId::XReg0, 8, 2))
        .or_else(|| among(FieldId::XxReg0, 4, 4))
}

/// Whether an earlier field matches bits of registers that a later one stands for, too.
fn share_registers(earlier: FieldId, matched: &Oxm, later: FieldId) -> bool {
    let (Some((first, count)), Some((from, more))) = (registers(earlier), registers(later)) else {
        return false;
    };
    let is_matched = |register: usize| {
        let low = 32 * (first + count - 1 - register);
        matched.mask_number() >> low & 0xffff_ffff != 0
    };
    (first.max(from)..(first + count).min(from + more)).any(is_matched)
}

/// Refuses a list of fields that no switch accepts as a match.
pub fn check_fields(fields: &[Oxm]) -> Result<(), ErrorCode> {
    let mut seen = Seen::default();
    let mut ids: Vec<FieldId> = Vec::with_capacity(fields.len());
    for oxm in fields {
        let field = oxm.check()?;
        if !seen.fulfil(field.prerequisite) {
            return Err(ErrorCode::BmcBadPrereq);
        }
        let again =
            |(id, earlier): (&FieldId, &Oxm)| *id == field.id || share_registers(*id, earlier, field.id);
        if ids.iter().zip(fields).any(again) {
            return Err(ErrorCode::BmcDupField);
        }
        // Only Ethernet packets are supported, and they need not be asked for.
        if field.id == FieldId::PacketType && oxm.value_number() != 0 {
            return Err(ErrorCode::BmcBadValue);
        }
        seen.add(field.id, oxm);
        ids.push(field.id);
    }
    Ok(())
}
