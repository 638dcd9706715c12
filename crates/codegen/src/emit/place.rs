//! Headers, fields and variables in the frame.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use pipeline::ir::{
    Constant, ErrorId, Expr, FieldType, HeaderId, HeaderPlace, HeaderRef, LValue, StackId, Type,
};

use super::bytes::Beyond;
use super::{Emit, limbs_of};
use crate::layout::{FIXED, FieldLayout, TypeLayout, word};

/// A header's blob in the frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blob {
    pub(super) base: Value,
    pub(super) offset: i32,
    /// For an element that is chosen at run time: whether it is in its stack. If not, `base` is that of the first
    /// element, which must not be changed then.
    pub(super) inside: Option<Value>,
    /// A header of this type.
    pub(super) like: HeaderId,
}

impl<'a> Emit<'a, '_> {
    pub(super) fn type_of(&self, blob: Blob) -> Option<&'a TypeLayout> {
        let cx = self.cx;
        cx.layout.header_type(blob.like)
    }

    pub(super) fn blob(&self, id: HeaderId) -> Blob {
        Blob { base: self.frame, offset: self.cx.layout.header(id), inside: None, like: id }
    }

    /// The blob that a reference means; `None` for an element that is never in its stack.
    pub(super) fn resolve(&mut self, header: &HeaderRef) -> Option<Blob> {
        let (stack, index) = match header {
            HeaderRef::Header(id) => return Some(self.blob(*id)),
            HeaderRef::Element(id, index) => {
                let stack = self.cx.program.stacks.get(id.index())?;
                if let Expr::Const(Constant { value, .. }) = &**index {
                    let index = value.saturating_u64();
                    let element = || HeaderId(stack.first.0 + index as u32);
                    return (index < u64::from(stack.size)).then(|| self.blob(element()));
                }
                let index = self.expr(index);
                (*id, self.saturated(&index.limbs))
            }
            HeaderRef::Next(id) => (*id, self.next_element(*id)),
            HeaderRef::Last(id) => {
                // An empty stack's is far outside.
                let next = self.next_element(*id);
                (*id, self.add_const(next, -1))
            }
        };
        let schema = self.cx.program.stacks.get(stack.index())?;
        let size = self.cx.layout.header_type(schema.first)?.size;
        let inside = self.is(IntCC::UnsignedLessThan, index, schema.size.into());
        if !matches!(header, HeaderRef::Element(..)) {
            self.fault_unless(inside, ErrorId::STACK_OUT_OF_BOUNDS);
        }
        let zero = self.zero();
        let index = self.b.ins().select(inside, index, zero);
        let stride = self.int(size as u64);
        let offset = self.b.ins().imul(index, stride);
        let base = self.b.ins().iadd(self.frame, offset);
        Some(Blob {
            base,
            offset: self.cx.layout.header(schema.first),
            inside: Some(inside),
            like: schema.first,
        })
    }

    pub(super) fn next_element(&mut self, stack: StackId) -> Value {
        self.load(self.frame, self.cx.layout.next(stack))
    }

    /// Records a parser error unless the condition holds or there is one already.
    pub(super) fn fault_unless(&mut self, holds: Value, error: ErrorId) {
        let before = self.load_word(word::FAULT);
        let new = self.int(error.0.into());
        let is_first = self.is(IntCC::Equal, before, 0);
        let new = self.b.ins().select(is_first, new, before);
        let fault = self.b.ins().select(holds, before, new);
        self.store_word(fault, word::FAULT);
    }

    /// Runs `then` if the blob's element is in its stack.
    pub(super) fn if_inside(&mut self, blob: Blob, then: impl FnOnce(&mut Self)) {
        match blob.inside {
            None => then(self),
            Some(inside) => self.when(inside, then),
        }
    }

    /// Zero instead of a value of an element outside its stack.
    fn masked(&mut self, limbs: Vec<Value>, blob: Blob) -> Vec<Value> {
        let Some(inside) = blob.inside else { return limbs };
        let zero = self.zero();
        limbs.into_iter().map(|limb| self.b.ins().select(inside, limb, zero)).collect()
    }

    pub(super) fn field_type(&self, header: &HeaderRef, field: u16) -> Type {
        let program = self.cx.program;
        let ty = match header {
            HeaderRef::Header(id) => program.header_type(*id),
            HeaderRef::Element(stack, _) | HeaderRef::Next(stack) | HeaderRef::Last(stack) => {
                program.stack_type(*stack)
            }
        };
        match ty.and_then(|ty| ty.fields.get(usize::from(field))).map(|field| field.ty) {
            Some(FieldType::Scalar(ty)) => ty,
            _ => Type::Bool,
        }
    }

    pub(super) fn read_field(&mut self, header: &HeaderRef, field: u16) -> Vec<Value> {
        let width = self.field_type(header, field).width();
        let Some(blob) = self.resolve(header) else { return self.zeros(width) };
        let layout = self.type_of(blob).and_then(|ty| ty.fields.get(usize::from(field))).copied();
        let Some(FieldLayout::Fixed(at, width)) = layout else { return self.zeros(width) };
        let limbs = self.read_blob(blob, at, width);
        self.masked(limbs, blob)
    }

    fn read_blob(&mut self, blob: Blob, at: u32, width: u16) -> Vec<Value> {
        // The offset as bits: blobs begin at whole bytes.
        self.read_bits(blob.base, at + 8 * (blob.offset + FIXED) as u32, width, Beyond::Readable)
    }

    /// Current length of a field, bits.
    pub(super) fn field_length(&mut self, header: &HeaderRef, field: u16) -> Value {
        let Some(blob) = self.resolve(header) else { return self.zero() };
        let Some(ty) = self.type_of(blob) else { return self.zero() };
        let length = match (ty.fields.get(usize::from(field)), ty.varbit) {
            (Some(FieldLayout::Varbit), Some(varbit)) => self.load(blob.base, blob.offset + varbit.len),
            (Some(FieldLayout::Fixed(_, width)), _) => self.int((*width).into()),
            _ => self.zero(),
        };
        self.masked(vec![length], blob).first().copied().unwrap_or(length)
    }

    /// Whether a header is valid, a number.
    pub(super) fn valid(&mut self, header: &HeaderRef) -> Value {
        let Some(blob) = self.resolve(header) else { return self.zero() };
        let valid = self.load(blob.base, blob.offset);
        self.masked(vec![valid], blob).first().copied().unwrap_or(valid)
    }

    /// Makes a header valid or invalid; of a union, a valid member is the only one.
    pub(super) fn set_valid(&mut self, blob: Blob, valid: Value, known: Option<bool>) {
        let program = self.cx.program;
        let place = program.headers.get(blob.like.index()).map(|header| header.place);
        if let (Some(HeaderPlace::Member(union)), true) = (place, known != Some(false))
            && let Some(union) = program.unions.get(union.index())
        {
            for i in 0..union.size {
                let id = HeaderId(union.first.0 + i);
                if id == blob.like {
                    continue;
                }
                let member = self.blob(id);
                let other = match known {
                    Some(_) => self.zero(),
                    // What is copied may be invalid: then the others stay.
                    None => {
                        let before = self.load(member.base, member.offset);
                        let zero = self.zero();
                        self.b.ins().select(valid, zero, before)
                    }
                };
                self.store(other, member.base, member.offset);
            }
        }
        self.note_change();
        self.note_stack(blob.like);
        self.store(valid, blob.base, blob.offset);
    }

    pub(super) fn place_type(&self, place: &LValue) -> Type {
        match place {
            LValue::Var(var) => self.cx.program.vars.get(var.index()).map_or(Type::Bool, |var| var.ty),
            LValue::Field(header, field) => self.field_type(header, *field),
            LValue::Slice(_, hi, lo) => Type::Bit(hi - lo + 1),
        }
    }

    pub(super) fn read_var(&mut self, var: pipeline::ir::VarId, width: u16) -> Vec<Value> {
        let at = self.cx.layout.var(var);
        (0..limbs_of(width)).map(|i| self.load(self.frame, at + 8 * i as i32)).collect()
    }

    pub(super) fn read_place(&mut self, place: &LValue) -> Vec<Value> {
        match place {
            LValue::Var(var) => {
                let width = self.place_type(place).width();
                self.read_var(*var, width)
            }
            LValue::Field(header, field) => self.read_field(header, *field),
            LValue::Slice(of, hi, lo) => {
                let whole = self.read_place(of);
                self.shr_const(&whole, (*lo).into(), hi - lo + 1)
            }
        }
    }

    /// Assigns a value of the place's width; ignored outside of a stack.
    pub(super) fn assign(&mut self, place: &LValue, value: &[Value]) {
        match place {
            LValue::Var(var) => {
                let at = self.cx.layout.var(*var);
                for (i, limb) in value.iter().enumerate() {
                    self.store(*limb, self.frame, at + 8 * i as i32);
                }
            }
            LValue::Field(header, field) => {
                let Some(blob) = self.resolve(header) else { return };
                let layout = self.type_of(blob).and_then(|ty| ty.fields.get(usize::from(*field))).copied();
                let Some(FieldLayout::Fixed(at, width)) = layout else { return };
                let at = at + 8 * (blob.offset + FIXED) as u32;
                self.note_change();
                self.note_stack(blob.like);
                self.if_inside(blob, |e| e.write_bits(value, blob.base, at, width));
            }
            LValue::Slice(of, hi, lo) => {
                let whole = self.read_place(of);
                let width = self.place_type(of).width();
                let whole = self.with_slice(&whole, *hi, *lo, value, width);
                self.assign(of, &whole);
            }
        }
    }

    /// Assigns a value of any width.
    pub(super) fn assign_resized(&mut self, place: &LValue, value: &[Value]) {
        let width = self.place_type(place).width();
        let value = self.resize(value, width);
        self.assign(place, &value);
    }
}
