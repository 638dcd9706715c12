//! Headers, wherever they are, and assignments.

use bpf::Label;
use bpf::assembler::{Alu, Cond, Size};
use pipeline::ir::{ErrorId, Expr, FieldType, HeaderId, HeaderPlace, HeaderRef, LValue, StackId};

use super::bits::Source;
use super::{A, B, BASE, Lowering, POINTER, low_bits};
use crate::layout::words;
use crate::types;

/// Where a header is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    /// At this offset in the layout.
    Fixed(i16),
    /// Where [`POINTER`] points to.
    Pointer,
    /// Beyond its stack, always.
    Beyond,
}

impl Lowering<'_> {
    /// Finds a header; jumps if it is an element beyond its stack, which for the parser's elements is an error.
    pub(super) fn locate(&mut self, header: &HeaderRef, beyond: Label) -> Location {
        let stack = match header {
            HeaderRef::Header(id) => return Location::Fixed(self.layout.header(*id)),
            HeaderRef::Element(stack, _) | HeaderRef::Next(stack) | HeaderRef::Last(stack) => *stack,
        };
        let program = self.program;
        let (Some(schema), Some(ty)) = (program.stacks.get(stack.index()), program.stack_type(stack)) else {
            return Location::Beyond;
        };
        let first = self.layout.header(schema.first);
        match header {
            HeaderRef::Element(_, index) => {
                if let Expr::Const(constant) = index.as_ref() {
                    let i = constant.value.saturating_u64();
                    if i < schema.size.into() {
                        return Location::Fixed(first + self.layout.stride(ty) * i as i16);
                    }
                    self.asm.jump(beyond);
                    return Location::Beyond;
                }
                self.number(index);
                self.asm.jump_if_imm(Cond::Ge, A, schema.size as i32, beyond);
            }
            _ => {
                self.next_of(stack);
                if let HeaderRef::Last(_) = header {
                    // None is a large number then.
                    self.asm.alu_imm(Alu::Sub, A, 1);
                }
                let inside = self.asm.label();
                self.asm.jump_if_imm(Cond::Lt, A, schema.size as i32, inside);
                self.fault(ErrorId::STACK_OUT_OF_BOUNDS);
                self.asm.jump(beyond);
                self.asm.bind(inside);
            }
        }
        self.asm.alu_imm(Alu::Mul, A, self.layout.stride(ty).into());
        self.asm.mov(POINTER, BASE);
        self.asm.alu(Alu::Add, POINTER, A);
        self.asm.alu_imm(Alu::Add, POINTER, first.into());
        Location::Pointer
    }

    pub(super) fn field_at(&self, header: HeaderId, field: u16) -> i16 {
        let at = self.layout.header(header);
        self.program.header_type(header).map_or(at, |ty| at + self.layout.field(ty, field.into()))
    }

    /// Assigns an expression to a place.
    pub(super) fn set(&mut self, place: &LValue, value: &Expr) {
        let width = types::place_width(self.program, place);
        if width <= 64 {
            self.value(value);
            return self.assign(place);
        }
        self.with_temps(|this| {
            // All words first: the value may depend on the place.
            let temps: Vec<i16> = (0..words(width)).map(|_| this.temp()).collect();
            for (i, temp) in temps.iter().enumerate() {
                this.word(value, i);
                this.store_word(*temp, A);
            }
            let first = temps.first().copied().unwrap_or(0);
            this.assign_stored(place, first, width);
        });
    }

    /// Assigns `A` to a place of at most 64 bits.
    pub(super) fn assign(&mut self, place: &LValue) {
        match place {
            LValue::Var(var) => {
                let at = self.layout.var(*var);
                self.store_word(at, A);
            }
            LValue::Field(HeaderRef::Header(header), field) => {
                let at = self.field_at(*header, *field);
                self.store_word(at, A);
            }
            _ => self.with_temps(|this| {
                let temp = this.temp();
                this.store_word(temp, A);
                let width = types::place_width(this.program, place);
                this.assign_stored(place, temp, width);
            }),
        }
    }

    /// Assigns a value of this width, stored in the layout.
    pub(super) fn assign_stored(&mut self, place: &LValue, from: i16, width: u16) {
        match place {
            LValue::Var(var) => {
                let at = self.layout.var(*var);
                for i in 0..words(width) as i16 {
                    self.load_word(A, from + 8 * i);
                    self.store_word(at + 8 * i, A);
                }
            }
            LValue::Field(header, field) => {
                let Some(ty) = types::header_type(self.program, header) else { return };
                let offset = self.layout.field(ty, (*field).into());
                let beyond = self.asm.label();
                let location = self.locate(header, beyond);
                for i in 0..words(width) as i16 {
                    match location {
                        Location::Fixed(at) => {
                            self.load_word(A, from + 8 * i);
                            self.store_word(at + offset + 8 * i, A);
                        }
                        Location::Pointer => {
                            self.load_word(A, from + 8 * i);
                            self.asm.store(Size::D, POINTER, offset + 8 * i, A);
                        }
                        Location::Beyond => {}
                    }
                }
                self.asm.bind(beyond);
            }
            LValue::Slice(of, _, lo) => self.assign_slice(of, *lo, from, width),
        }
    }

    /// Replaces `width` bits of a place from bit `lo`.
    fn assign_slice(&mut self, of: &LValue, lo: u16, from: i16, width: u16) {
        let whole = types::place_width(self.program, of);
        self.with_temps(|this| {
            let temps: Vec<i16> = (0..words(whole)).map(|_| this.temp()).collect();
            for (i, temp) in temps.iter().enumerate() {
                let begin = 64 * i as u16;
                let (first, end) = (lo.max(begin), (lo + width).min(begin.saturating_add(64)));
                this.place_word(of, i);
                if first < end {
                    let n = end - first;
                    let kept = !(low_bits(n) << (first - begin));
                    this.asm.mask(A, kept, super::C);
                    this.store_word(*temp, A);
                    this.bits(Source::Stored(from, width), first - lo, n);
                    if first > begin {
                        this.asm.alu_imm(Alu::Lsh, A, (first - begin).into());
                    }
                    this.load_word(B, *temp);
                    this.asm.alu(Alu::Or, A, B);
                }
                this.store_word(*temp, A);
            }
            let first = temps.first().copied().unwrap_or(0);
            this.assign_stored(of, first, whole);
        });
    }

    /// `A = ` a word of a place.
    pub(super) fn place_word(&mut self, place: &LValue, i: usize) {
        match place {
            LValue::Var(var) => self.word(&Expr::Var(*var), i),
            LValue::Field(header, field) => self.word(&Expr::Field(header.clone(), *field), i),
            LValue::Slice(of, hi, lo) => {
                let expr = Expr::Slice(Box::new(place_value(of)), *hi, *lo);
                self.word(&expr, i);
            }
        }
    }

    /// Makes a header at a location valid or not; of a union's member, the others are invalid then.
    pub(super) fn set_valid(&mut self, header: &HeaderRef, valid: bool) {
        let beyond = self.asm.label();
        match self.locate(header, beyond) {
            Location::Fixed(at) => {
                if let (HeaderRef::Header(id), true) = (header, valid) {
                    self.invalidate_union(*id);
                }
                self.store_number(at, valid.into());
            }
            Location::Pointer => self.asm.store_imm(Size::D, POINTER, 0, valid.into()),
            Location::Beyond => {}
        }
        self.asm.bind(beyond);
    }

    /// Makes all members of a header's union invalid, if it has one.
    pub(super) fn invalidate_union(&mut self, header: HeaderId) {
        let program = self.program;
        let Some(HeaderPlace::Member(union)) = program.headers.get(header.index()).map(|header| header.place)
        else {
            return;
        };
        let Some(union) = program.unions.get(union.index()) else { return };
        for i in 0..union.size {
            let at = self.layout.header(HeaderId(union.first.0 + i));
            self.store_number(at, 0);
        }
    }

    /// Copies a header over another one.
    pub(super) fn copy_header(&mut self, to: &HeaderRef, from: &HeaderRef) {
        let Some(ty) = types::header_type(self.program, to) else { return };
        if ty.has_varbit() {
            return self.refuse("a header with a variable field");
        }
        let size = self.layout.stride(ty);
        self.with_temps(|this| {
            // By way of intermediate words: either may be known at run time only.
            let temps: Vec<i16> = (0..size / 8).map(|_| this.temp()).collect();
            let (missing, copied) = (this.asm.label(), this.asm.label());
            let location = this.locate(from, missing);
            for (i, temp) in temps.iter().enumerate() {
                let offset = 8 * i as i16;
                match location {
                    Location::Fixed(at) => this.load_word(A, at + offset),
                    Location::Pointer => this.asm.load(Size::D, A, POINTER, offset),
                    Location::Beyond => {}
                }
                this.store_word(*temp, A);
            }
            this.asm.jump(copied);
            this.asm.bind(missing);
            temps.iter().for_each(|temp| this.store_number(*temp, 0));
            this.asm.bind(copied);
            let beyond = this.asm.label();
            let location = this.locate(to, beyond);
            if let HeaderRef::Header(id) = to {
                let first = temps.first().copied().unwrap_or(0);
                let invalid = this.asm.label();
                this.load_word(A, first);
                this.asm.jump_if_imm(Cond::Eq, A, 0, invalid);
                this.invalidate_union(*id);
                this.asm.bind(invalid);
            }
            for (i, temp) in temps.iter().enumerate() {
                let offset = 8 * i as i16;
                this.load_word(A, *temp);
                match location {
                    Location::Fixed(at) => this.store_word(at + offset, A),
                    Location::Pointer => this.asm.store(Size::D, POINTER, offset, A),
                    Location::Beyond => {}
                }
            }
            this.asm.bind(beyond);
        });
    }

    /// Moves the elements of a stack.
    pub(super) fn shift_stack(&mut self, id: StackId, n: u32, up: bool) {
        let program = self.program;
        let (Some(stack), Some(ty)) = (program.stacks.get(id.index()), program.stack_type(id)) else {
            return;
        };
        if ty.fields.iter().any(|field| matches!(field.ty, FieldType::Varbit(_))) {
            return self.refuse("a header with a variable field");
        }
        let (size, by) = (stack.size as i16, n.min(stack.size) as i16);
        let (first, stride) = (self.layout.header(stack.first), self.layout.stride(ty));
        let element = |i: i16| first + stride * i;
        for i in 0..size {
            // From the end that elements move to, so that none is overwritten before it has moved.
            let to = if up { size - 1 - i } else { i };
            let from = if up { to - by } else { to + by };
            for offset in (0..stride).step_by(8) {
                if (0..size).contains(&from) {
                    self.load_word(A, element(from) + offset);
                    self.store_word(element(to) + offset, A);
                } else {
                    self.store_number(element(to) + offset, 0);
                }
            }
        }
        let next = self.layout.next(id);
        let inside = self.asm.label();
        self.load_word(A, next);
        if up {
            self.asm.alu_imm(Alu::Add, A, n.min(i32::MAX as u32) as i32);
            self.asm.jump_if_imm(Cond::Le, A, size.into(), inside);
            self.asm.set(A, size as u64);
        } else {
            self.asm.alu_imm(Alu::Sub, A, n.min(i32::MAX as u32) as i32);
            self.asm.jump_if_imm(Cond::Sge, A, 0, inside);
            self.asm.set(A, 0);
        }
        self.asm.bind(inside);
        self.store_word(next, A);
    }
}

/// A place as an expression.
pub(super) fn place_value(place: &LValue) -> Expr {
    match place {
        LValue::Var(var) => Expr::Var(*var),
        LValue::Field(header, field) => Expr::Field(header.clone(), *field),
        LValue::Slice(of, hi, lo) => Expr::Slice(Box::new(place_value(of)), *hi, *lo),
    }
}
