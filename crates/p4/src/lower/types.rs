//! Widths and layouts: how values of the language lie in variables and headers of the pipeline.

use std::sync::Arc;

use num_traits::ToPrimitive;
use pipeline::bits::{Bits, MAX_WIDTH};
use pipeline::ir;

use super::Lower;
use crate::hir::{Composite, Type, Value};
use crate::source::Span;

/// Width of `error`, and of enumerations without a representation.
pub(super) const ERROR_WIDTH: u16 = 16;
const ENUM_WIDTH: u16 = 32;

/// A header's layout.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// Header type.
    pub(super) ty: ir::HeaderTypeId,
    /// For each field of the language, its first field in the header type: structs in headers take several.
    pub(super) starts: Vec<u16>,
}

/// Returns the pipeline's type of a value that is one number; `None` for composite ones, and those without bits.
pub(super) fn scalar(ty: &Type) -> Option<ir::Type> {
    let width = |n: &u32| u16::try_from(*n).ok().filter(|n| (1..=MAX_WIDTH).contains(n));
    Some(match ty {
        Type::Bool => ir::Type::Bool,
        Type::Bit(n) => ir::Type::Bit(width(n)?),
        Type::Int(n) => ir::Type::Int(width(n)?),
        Type::Error => ir::Type::Bit(ERROR_WIDTH),
        Type::Enum(e) => match &e.representation {
            Some(ty) => scalar(ty)?,
            None => ir::Type::Bit(ENUM_WIDTH),
        },
        Type::New(new) => scalar(&new.base)?,
        _ => return None,
    })
}

/// Resolves new types.
pub(super) fn base(ty: &Type) -> &Type {
    match ty {
        Type::New(new) => base(&new.base),
        _ => ty,
    }
}

/// Types of the parts of a struct, header, union, tuple or stack.
pub(super) fn parts(ty: &Type) -> Vec<Type> {
    match base(ty) {
        Type::Struct(c) | Type::Header(c) | Type::Union(c) => c.fields.iter().map(|f| f.ty.clone()).collect(),
        Type::Tuple(types) => types.to_vec(),
        Type::Stack(element, size) => vec![(**element).clone(); *size as usize],
        _ => Vec::new(),
    }
}

impl Lower<'_> {
    /// Returns the layout of a header type.
    pub(super) fn layout(&mut self, header: &Arc<Composite>, span: Span) -> Layout {
        if let Some(layout) = self.layouts.get(&header.name) {
            return layout.clone();
        }
        let (mut fields, mut starts) = (Vec::new(), Vec::new());
        for field in &header.fields {
            starts.push(u16::try_from(fields.len()).unwrap_or(u16::MAX));
            self.header_fields(&field.name, &field.ty, span, &mut fields);
        }
        let mut ty = ir::HeaderType { name: header.name.clone(), fields };
        let odd = ty.fixed_bits() % 8;
        if odd != 0 || ty.fields.is_empty() {
            // Such a header is never on the wire; as a variable it needs whole bytes.
            let bits = u16::try_from(8 - odd).unwrap_or(8);
            let ty_bits = ir::FieldType::Scalar(ir::Type::Bit(bits));
            ty.fields.push(ir::Field { name: "(padding)".into(), ty: ty_bits });
        }
        self.out.header_types.push(ty);
        let ty = ir::HeaderTypeId::at(self.out.header_types.len() - 1);
        let layout = Layout { ty, starts };
        self.layouts.insert(header.name.clone(), layout.clone());
        layout
    }

    fn header_fields(&mut self, name: &str, ty: &Type, span: Span, fields: &mut Vec<ir::Field>) {
        match base(ty) {
            Type::Struct(inner) => {
                for field in &inner.fields {
                    self.header_fields(&format!("{name}.{}", field.name), &field.ty, span, fields);
                }
            }
            Type::Varbit(max) => match u16::try_from(*max) {
                Ok(max) if max <= MAX_WIDTH && max > 0 => {
                    let ty = ir::FieldType::Varbit(max.next_multiple_of(8));
                    fields.push(ir::Field { name: name.into(), ty });
                }
                _ => self.unsupported(span, format!("`varbit<{max}>` (more than {MAX_WIDTH} bits) is")),
            },
            Type::Bit(0) => {}
            other => match scalar(other) {
                Some(ty) => {
                    fields.push(ir::Field { name: name.into(), ty: ir::FieldType::Scalar(ty) });
                }
                None => self.unsupported(span, format!("field `{name}` of this type in a header is")),
            },
        }
    }

    /// Returns the pipeline's constant for a constant of one number.
    pub(super) fn constant(&mut self, value: &Value, ty: &Type, span: Span) -> Option<ir::Constant> {
        let target = match ty {
            // Only as the right operand of a shift or an index.
            Type::Integer => ir::Type::Bit(32),
            _ => scalar(ty)?,
        };
        let value = match value {
            Value::Bool(value) => Bits::from_bool(*value),
            Value::Integer(value) => integer(value, target.width(), matches!(ty, Type::Integer)),
            Value::Error(name) => {
                let error = self.error_id(name);
                Bits::from_u64(ERROR_WIDTH, error.0.into())
            }
            _ => {
                self.unsupported(span, "this constant is");
                return None;
            }
        };
        Some(ir::Constant { ty: target, value })
    }

    /// Returns the pipeline's number of an error.
    pub(super) fn error_id(&self, name: &str) -> ir::ErrorId {
        let standard = ir::ErrorId::STANDARD.iter().position(|s| *s == name);
        let own = || self.out.errors.iter().position(|e| e == name).map(|i| i + ir::ErrorId::STANDARD.len());
        ir::ErrorId::at(standard.or_else(own).unwrap_or(0))
    }

    /// Bits of a value in a packet: the fixed ones.
    pub(super) fn packet_bits(&self, ty: &Type) -> usize {
        match base(ty) {
            Type::Varbit(_) => 0,
            other => match scalar(other) {
                Some(ty) => ty.width().into(),
                None => parts(other).iter().map(|ty| self.packet_bits(ty)).sum(),
            },
        }
    }
}

/// Returns the low bits of an integer in two's complement; clamped if it is too large and `clamp` is set.
pub(super) fn integer(value: &num_bigint::BigInt, width: u16, clamp: bool) -> Bits {
    if clamp && value.to_u32().is_none() {
        return Bits::ones(width);
    }
    let mut bytes = value.to_signed_bytes_be();
    let len = usize::from(width).div_ceil(8);
    let fill = if value.sign() == num_bigint::Sign::Minus { 0xff } else { 0 };
    while bytes.len() < len {
        bytes.insert(0, fill);
    }
    let low = bytes.get(bytes.len() - len..).unwrap_or(&bytes);
    Bits::from_bytes(u16::try_from(len * 8).unwrap_or(width), low).resize(width)
}
