//! OXM and NXM: match fields as type, length and value.
//!
//! An [`Oxm`] is a TLV as it stands on the wire, whether its type is known or not; [`Oxm::field`] is its meaning. An
//! [`OxmHeader`] is a TLV's first part on its own, which names a field in actions and in lists of features.
//!
//! The wire's length byte includes an experimenter's id. A `length` here is that of the value alone, and of the mask if
//! there is one.

use crate::error::ErrorCode;
use crate::field::{Access, Field, FieldId, Masks};
use crate::version::Version;
use crate::wire::{Coder, Octets, Record, Step};

/// A TLV's type: who defines the field, and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct OxmId {
    /// The class: 0 and 1 are NXM, 0x8000 is the standard.
    pub class: u16,
    /// Who defines a field of class [`OxmId::EXPERIMENTER`]; else 0.
    pub experimenter: u32,
    /// The field's number, below 128.
    pub field: u8,
}

impl OxmId {
    /// The class of the standard's fields.
    pub const BASIC: u16 = 0x8000;
    /// The class of experimenters' fields, whose id follows the header.
    pub const EXPERIMENTER: u16 = 0xffff;

    fn is_experimenter(self) -> bool {
        self.class == OxmId::EXPERIMENTER
    }
}

/// A TLV's header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct OxmHeader {
    /// The type.
    pub id: OxmId,
    /// Whether a mask follows the value.
    pub masked: bool,
    /// Bytes of value and mask together.
    pub length: u8,
}

impl OxmHeader {
    /// The header of a field's values in `version`.
    pub fn of(field: FieldId, version: Version) -> Self {
        let field = field.field();
        OxmHeader { id: field.number_in(version), masked: false, length: field.bytes as u8 }
    }

    /// The field that the header names.
    pub fn field(&self) -> Option<&'static Field> {
        Field::with_number(self.id)
    }

    /// Refuses a header that does not name a field: an unknown one, with a mask or another length.
    pub fn check(&self) -> Result<&'static Field, ErrorCode> {
        let field = self.field().ok_or(ErrorCode::BmcBadField)?;
        if !field.has_length(self.width()) {
            return Err(ErrorCode::BmcBadField);
        }
        if self.masked {
            return Err(ErrorCode::BmcBadMask);
        }
        Ok(field)
    }

    /// Bytes of a value.
    pub fn width(&self) -> usize {
        usize::from(self.length) >> u32::from(self.masked)
    }

    /// Bytes of the header itself.
    pub fn wire_len(&self) -> usize {
        if self.id.is_experimenter() { 8 } else { 4 }
    }

    /// A header of exactly 32 bits, as some actions have it. An experimenter's id has no place there; such a header
    /// keeps its length byte as it is.
    pub(crate) fn walk32<C: Coder>(&mut self, c: &mut C) -> Step {
        c.u16(&mut self.id.class)?;
        let mut number = self.id.field << 1 | u8::from(self.masked);
        c.u8(&mut number)?;
        (self.id.field, self.masked) = (number >> 1, number & 1 == 1);
        c.u8(&mut self.length)
    }
}

impl Record for OxmHeader {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.reporting(ErrorCode::BmcBadLen, |c| {
            c.u16(&mut self.id.class)?;
            let mut number = self.id.field << 1 | u8::from(self.masked);
            c.u8(&mut number)?;
            (self.id.field, self.masked) = (number >> 1, number & 1 == 1);
            let extra = if self.id.is_experimenter() { 4 } else { 0 };
            let Some(mut length) = self.length.checked_add(if C::READS { 0 } else { extra }) else {
                return c.refuse(ErrorCode::BmcBadLen);
            };
            c.u8(&mut length)?;
            if extra > 0 {
                c.u32(&mut self.id.experimenter)?;
            }
            match length.checked_sub(extra) {
                Some(length) => self.length = length,
                None => return c.refuse(ErrorCode::BmcBadLen),
            }
            Ok(())
        })
    }
}

/// A TLV: a field's value, or a pattern of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Oxm {
    /// The type.
    pub id: OxmId,
    /// The value.
    pub value: Octets,
    /// The mask, as long as the value: bits that matter are set. `None`: all of them.
    pub mask: Option<Octets>,
}

impl Oxm {
    /// A value of a field, with its number in `version`.
    pub fn exact(field: FieldId, version: Version, value: &[u8]) -> Self {
        Oxm { id: field.field().number_in(version), value: value.into(), mask: None }
    }

    /// A pattern for a field, with its number in `version`.
    pub fn masked(field: FieldId, version: Version, value: &[u8], mask: &[u8]) -> Self {
        Oxm { id: field.field().number_in(version), value: value.into(), mask: Some(mask.into()) }
    }

    /// A number as a value of a field: as many low bytes of `value` as the field has.
    pub fn number(field: FieldId, version: Version, value: u128) -> Self {
        let bytes = value.to_be_bytes();
        let len = field.field().bytes.min(bytes.len());
        Oxm::exact(field, version, bytes.get(bytes.len() - len..).unwrap_or_default())
    }

    /// The field, if it is known.
    pub fn field(&self) -> Option<&'static Field> {
        Field::with_number(self.id)
    }

    /// The TLV's header.
    pub fn header(&self) -> OxmHeader {
        let length = self.value.len() + self.mask.as_ref().map_or(0, |mask| mask.len());
        OxmHeader {
            id: self.id,
            masked: self.mask.is_some(),
            length: u8::try_from(length).unwrap_or(u8::MAX),
        }
    }

    /// The value's low 128 bits.
    pub fn value_number(&self) -> u128 {
        number(&self.value)
    }

    /// The mask's low 128 bits; all ones without a mask.
    pub fn mask_number(&self) -> u128 {
        self.mask.as_deref().map_or(u128::MAX, number)
    }

    /// Whether all bits that the value has set matter, and the mask is as long as the value.
    pub(crate) fn is_within_mask(&self) -> bool {
        self.mask.as_ref().is_none_or(|mask| {
            mask.len() == self.value.len()
                && self.value.iter().zip(mask.iter()).all(|(value, mask)| value & !mask == 0)
        })
    }

    /// Refuses a pattern that no switch accepts: an unknown field, a wrong length, a mask that the field does not
    /// support, a value outside the mask or the field's range.
    pub fn check(&self) -> Result<&'static Field, ErrorCode> {
        if !self.is_within_mask() {
            return Err(ErrorCode::BmcBadWildcards);
        }
        let field = self.field().ok_or(ErrorCode::BmcBadField)?;
        if !field.has_length(self.value.len()) {
            return Err(ErrorCode::BmcBadField);
        }
        if let Some(mask) = &self.mask {
            let uniform = |byte: u8| mask.iter().all(|b| *b == byte);
            if field.masks == Masks::Exact && !uniform(0) && !uniform(0xff) {
                return Err(ErrorCode::BmcBadMask);
            }
        }
        if !field.accepts(&self.value) {
            return Err(ErrorCode::BmcBadValue);
        }
        Ok(field)
    }
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

impl Record for Oxm {
    fn walk<C: Coder>(&mut self, c: &mut C) -> Step {
        c.reporting(ErrorCode::BmcBadLen, |c| {
            let mut header = self.header();
            if !C::READS
                && usize::from(header.length) != self.value.len() + self.mask.as_ref().map_or(0, |m| m.len())
            {
                return c.refuse(ErrorCode::BmcBadLen);
            }
            c.record(&mut header)?;
            if C::READS {
                let width = header.width();
                c.refuse_if(c.left() < usize::from(header.length), ErrorCode::BmcBadLen)?;
                // A mask is as long as its value.
                c.refuse_if(header.masked && header.length % 2 == 1, ErrorCode::BmcBadField)?;
                self.id = header.id;
                self.value = Octets::filled(width, 0);
                self.mask = header.masked.then(|| Octets::filled(width, 0));
            }
            c.bytes(&mut self.value)?;
            match &mut self.mask {
                Some(mask) => c.bytes(mask),
                None => Ok(()),
            }
        })
    }
}

/// Part of a field: what actions read and write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Subfield {
    /// The field.
    pub header: OxmHeader,
    /// The lowest bit.
    pub offset: u16,
    /// Bits.
    pub bits: u16,
}

impl Subfield {
    /// A whole field.
    pub fn whole(field: FieldId, version: Version) -> Self {
        Subfield { header: OxmHeader::of(field, version), offset: 0, bits: field.field().bits }
    }

    /// Part of a field.
    pub fn part(field: FieldId, version: Version, offset: u16, bits: u16) -> Self {
        Subfield { header: OxmHeader::of(field, version), offset, bits }
    }

    /// Refuses a part of an unknown field, or one outside of its field.
    pub fn check(&self) -> Result<&'static Field, ErrorCode> {
        let field = self.header.check().map_err(|_| ErrorCode::BacBadSetType)?;
        let end = u32::from(self.offset) + u32::from(self.bits);
        if self.bits == 0 || end > u32::from(field.bits) {
            return Err(ErrorCode::BacBadSetLen);
        }
        Ok(field)
    }

    /// Refuses a part that no action may write.
    pub fn check_writable(&self) -> Result<&'static Field, ErrorCode> {
        let field = self.check()?;
        if field.access != Access::Settable {
            return Err(ErrorCode::BacBadSetArgument);
        }
        Ok(field)
    }

    /// Offset and number of bits in 16 bits.
    pub(crate) fn walk_range<C: Coder>(&mut self, c: &mut C) -> Step {
        if !C::READS && (self.offset > 1023 || self.bits == 0 || self.bits > 64) {
            return c.refuse(ErrorCode::BacBadArgument);
        }
        let mut packed = self.offset << 6 | self.bits.wrapping_sub(1) & 0x3f;
        c.u16(&mut packed)?;
        (self.offset, self.bits) = (packed >> 6, (packed & 0x3f) + 1);
        Ok(())
    }
}
