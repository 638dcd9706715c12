//! Lists of bits: inputs of hashes, data for the controller, inserted bytes.
//!
//! The runtime keeps one list, which code fills item by item. Fields that follow one another in a header are appended
//! at once, as they lie in its blob.

use cranelift_codegen::ir::Value;
use pipeline::ir::{Expr, HeaderId, HeaderRef, Item};

use super::Emit;
use crate::layout::{FIXED, FieldLayout};
use crate::runtime::calls;

/// Adjacent fixed fields of a header: first bit and bits.
struct Run {
    header: HeaderId,
    at: u32,
    bits: u32,
}

impl Emit<'_, '_> {
    /// Fills the runtime's list.
    pub(super) fn list(&mut self, items: &[Item]) {
        self.call(calls::list_begin as *const (), &[self.frame]);
        let mut run: Option<Run> = None;
        for item in items {
            let fixed = self.fixed_field(item);
            if let (Some(run), Some((header, at, width))) = (&mut run, fixed)
                && run.header == header
                && run.at + run.bits == at
            {
                run.bits += u32::from(width);
                continue;
            }
            self.end_run(&mut run);
            match (fixed, item) {
                (Some((header, at, width)), _) => run = Some(Run { header, at, bits: width.into() }),
                (None, Item::Payload) => {
                    self.call(calls::list_payload as *const (), &[self.frame]);
                }
                (None, Item::Value(Expr::Field(header, field))) => self.push_field(header, *field),
                (None, Item::Value(expr)) => {
                    let value = self.expr(expr);
                    self.push(&value.limbs, value.ty.width());
                }
            }
        }
        self.end_run(&mut run);
    }

    fn fixed_field(&self, item: &Item) -> Option<(HeaderId, u32, u16)> {
        let Item::Value(Expr::Field(HeaderRef::Header(id), field)) = item else { return None };
        match self.cx.layout.header_type(*id)?.fields.get(usize::from(*field))? {
            FieldLayout::Fixed(at, width) => Some((*id, *at, *width)),
            FieldLayout::Varbit => None,
        }
    }

    fn end_run(&mut self, run: &mut Option<Run>) {
        let Some(Run { header, at, bits }) = run.take() else { return };
        let start = self.add_const(self.frame, i64::from(self.cx.layout.header(header) + FIXED));
        let (at, bits) = (self.int(at.into()), self.int(bits.into()));
        self.call(calls::list_bits as *const (), &[self.frame, start, at, bits]);
    }

    fn push(&mut self, limbs: &[Value], width: u16) {
        let at = self.spill(limbs);
        let width = self.int(width.into());
        self.call(calls::list_value as *const (), &[self.frame, at, width]);
    }

    /// A field at its current width; nothing for an element outside of its stack.
    fn push_field(&mut self, header: &HeaderRef, field: u16) {
        let Some(blob) = self.resolve(header) else { return };
        let Some(ty) = self.type_of(blob) else { return };
        match (ty.fields.get(usize::from(field)), ty.varbit) {
            (Some(FieldLayout::Varbit), Some(varbit)) => self.if_inside(blob, |e| {
                let bits = e.load(blob.base, blob.offset + varbit.len);
                let start = e.add_const(blob.base, i64::from(blob.offset + varbit.len + 8));
                let zero = e.zero();
                e.call(calls::list_bits as *const (), &[e.frame, start, zero, bits]);
            }),
            (Some(FieldLayout::Fixed(at, width)), _) => self.if_inside(blob, |e| {
                let start = e.add_const(blob.base, i64::from(blob.offset + FIXED));
                let (at, bits) = (e.int((*at).into()), e.int((*width).into()));
                e.call(calls::list_bits as *const (), &[e.frame, start, at, bits]);
            }),
            _ => {}
        }
    }
}
