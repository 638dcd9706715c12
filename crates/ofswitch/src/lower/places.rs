//! Parts of fields: reading and writing them.

use openflow::error::ErrorCode;
use openflow::field::{Field, FieldId};
use openflow::oxm::{OxmHeader, Subfield};
use pipeline::bits::Bits;
use pipeline::ir::{BinOp, Constant, Expr, LValue, Stmt, Type};

use super::{Lowering, Step};
use crate::program::outputs;
use crate::program::terms::{bit, complement, resize, var, when};
use crate::program::{field_values, is_hidden_by_labels, unlabelled};

impl Lowering<'_> {
    /// The value of part of a field.
    pub(super) fn read(&self, part: &Subfield) -> Result<Expr, ErrorCode> {
        self.read_at(&part.header, part.offset, part.bits)
    }

    /// The value of `bits` bits of a field, from bit `offset` on.
    pub(super) fn read_at(&self, header: &OxmHeader, offset: u16, bits: u16) -> Result<Expr, ErrorCode> {
        let field = header.field().ok_or(ErrorCode::BacBadSetType)?;
        let (value, low, width) = match field.id {
            // Lookups may match another port than the packet's.
            FieldId::InPort | FieldId::InPortOxm => (var(self.layout.vars.in_port), 0, 32),
            // The ECN bits are another field's.
            FieldId::NwTos => {
                let tos = field_values(&self.layout.keys, [FieldId::NwTos]).pop();
                (tos.ok_or(ErrorCode::BacBadSetType)?.op(BinOp::And, bit(8, 0xfc)), 0, 8)
            }
            id if field.is_variable() => {
                let (low, bits) = self.tunnel_option(id)?;
                (var(self.layout.vars.tunnel_metadata), low, bits)
            }
            id => {
                let spot = self.layout.keys.spot(id).ok_or(ErrorCode::BacBadSetType)?;
                let key = self.layout.keys.list.get(spot.key as usize).ok_or(ErrorCode::BacBadSetType)?;
                (key.value.clone(), spot.low, spot.bits)
            }
        };
        let end = offset.checked_add(bits).filter(|end| *end <= width && bits > 0);
        let end = end.ok_or(ErrorCode::BacBadSetLen)?;
        Ok(value.slice(low + end - 1, low + offset))
    }

    /// Writes part of a field: a value of as many bits.
    pub(super) fn write(&mut self, part: &Subfield, value: Expr) -> Step {
        let field = part.header.field().ok_or(ErrorCode::BacBadSetType)?;
        let width = self.width(field)?;
        if u32::from(part.offset) + u32::from(part.bits) > u32::from(width) || part.bits == 0 {
            return Err(ErrorCode::BacBadSetLen);
        }
        let shifted = resize(value, width).op(BinOp::Shl, Expr::bit(16, part.offset.into()));
        let mask = Bits::ones(part.bits).resize(width).shl(part.offset.into());
        self.store(field, shifted, Expr::Const(Constant { ty: Type::Bit(width), value: mask }))
    }

    /// Writes a field under a mask, both of the field's width.
    pub(super) fn store(&mut self, field: &Field, value: Expr, mask: Expr) -> Step {
        let stmt = match field.id {
            // The ECN bits are another field's.
            FieldId::NwTos => {
                let action = self.layout.stores.get(&FieldId::IpDscp).ok_or(ErrorCode::BacBadSetType)?;
                Stmt::Do(*action, vec![value.slice(7, 2), mask.slice(7, 2)])
            }
            id if field.is_variable() => {
                let (low, bits) = self.tunnel_option(id)?;
                let options = self.layout.vars.tunnel_metadata;
                let high = low + bits.saturating_sub(1);
                let kept = var(options).slice(high, low).op(BinOp::And, complement(mask.clone()));
                let merged = kept.op(BinOp::Or, value.op(BinOp::And, mask));
                Stmt::Set(LValue::Slice(Box::new(LValue::Var(options)), high, low), merged)
            }
            id => match self.layout.stores.get(&id) {
                Some(action) => Stmt::Do(*action, vec![value, mask]),
                None => Stmt::Drop(self.absent(id)?),
            },
        };
        // No match says that the packet has the field.
        let unchecked = matches!(self.owner.reason, outputs::GROUP | outputs::PACKET_OUT);
        self.push(match unchecked && is_hidden_by_labels(field) {
            true => when(unlabelled(&self.layout.headers), vec![stmt]),
            false => stmt,
        });
        Ok(())
    }

    /// Why packets whose field is set are dropped, for fields that are stored only.
    fn absent(&self, id: FieldId) -> Result<pipeline::ir::ReasonId, ErrorCode> {
        match id {
            FieldId::CtMark | FieldId::CtLabel => Ok(self.layout.reasons.tracking),
            _ => Err(ErrorCode::BacBadSetType),
        }
    }

    /// Whether actions may write a field.
    pub(super) fn is_writable(&self, field: &Field) -> bool {
        field.id == FieldId::NwTos || field.is_variable() || self.layout.stores.contains_key(&field.id)
    }

    /// Bits of a field as actions write it.
    pub(super) fn width(&self, field: &Field) -> Result<u16, ErrorCode> {
        match field.is_variable() {
            true => self.tunnel_option(field.id).map(|(_, bits)| bits),
            false => Ok(width_of(field)),
        }
    }

    /// Where the option of a tunnel field is among all options: its lowest bit, and bits.
    fn tunnel_option(&self, id: FieldId) -> Result<(u16, u16), ErrorCode> {
        self.world.tunnel_option(id).ok_or(ErrorCode::NxFmfcInvalidTlvField)
    }
}

/// Bits of a field of fixed length, as actions write it.
pub(super) fn width_of(field: &Field) -> u16 {
    match field.id {
        // With the bit that says that there is a tag.
        FieldId::VlanVid => 13,
        _ => field.bits,
    }
}

/// A value of a field from its bytes on the wire.
pub(super) fn constant(width: u16, bytes: &[u8]) -> Constant {
    Constant { ty: Type::Bit(width), value: Bits::from_bytes(width.max(1), bytes) }
}
