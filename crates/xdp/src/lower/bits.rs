//! Parts of values, and of the packet.

use bpf::Reg;
use bpf::assembler::{Alu, Size};
use pipeline::ir::{BinOp, Constant, Expr, HeaderRef, Type};

use super::{A, B, BASE, C, Lowering, low_bits};
use crate::layout::words;

/// Where a part of a value comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source<'e> {
    /// An expression.
    Expr(&'e Expr),
    /// A value of this width in the layout.
    Stored(i16, u16),
}

impl Lowering<'_> {
    /// The width of a source, bits.
    pub(super) fn source_width(&self, source: Source<'_>) -> u16 {
        match source {
            Source::Expr(expr) => self.ty(expr).width(),
            Source::Stored(_, width) => width,
        }
    }

    /// `A = ` at most 64 bits of a source, from its bit `lo`; beyond its width they are 0.
    pub(super) fn bits(&mut self, source: Source<'_>, lo: u16, n: u16) {
        let width = self.source_width(source);
        if lo >= width {
            return self.asm.set(A, 0);
        }
        let n = n.min(width - lo);
        match source {
            Source::Stored(at, width) => self.stored_part(BASE, at, width, lo, n),
            Source::Expr(expr) => self.expr_part(expr, lo, n),
        }
    }

    fn expr_part(&mut self, expr: &Expr, lo: u16, n: u16) {
        match expr {
            Expr::Const(constant) => {
                let value = constant_part(constant, lo, n);
                self.asm.set(A, value);
            }
            Expr::Slice(of, _, from) => self.bits(Source::Expr(of), from + lo, n),
            Expr::Cast(_, of) if !matches!(self.ty(of), Type::Int(_)) => self.bits(Source::Expr(of), lo, n),
            Expr::Binary(BinOp::Concat, parts) => {
                self.list_part(&[Source::Expr(&parts.0), Source::Expr(&parts.1)], lo.into(), n);
            }
            Expr::Binary(op @ (BinOp::And | BinOp::Or | BinOp::Xor), operands) => self.with_temps(|this| {
                let temp = this.temp();
                this.bits(Source::Expr(&operands.0), lo, n);
                this.store_word(temp, A);
                this.bits(Source::Expr(&operands.1), lo, n);
                this.load_word(B, temp);
                let op = match op {
                    BinOp::And => Alu::And,
                    BinOp::Or => Alu::Or,
                    _ => Alu::Xor,
                };
                this.asm.alu(op, A, B);
            }),
            Expr::Field(HeaderRef::Header(header), field) => {
                let at = self.field_at(*header, *field);
                let width = self.ty(expr).width();
                self.stored_part(BASE, at, width, lo, n);
            }
            _ => self.with_temps(|this| {
                let width = this.ty(expr).width();
                let (word, shift) = (usize::from(lo / 64), lo % 64);
                this.word(expr, word);
                if shift > 0 {
                    this.asm.alu_imm(Alu::Rsh, A, shift.into());
                }
                let left = (width - lo / 64 * 64).min(64) - shift;
                if n > left && word + 1 < words(width) {
                    let temp = this.temp();
                    this.store_word(temp, A);
                    this.word(expr, word + 1);
                    this.asm.alu_imm(Alu::Lsh, A, left.into());
                    this.load_word(B, temp);
                    this.asm.alu(Alu::Or, A, B);
                    this.mask_to(n, 64);
                } else {
                    this.mask_to(n, left);
                }
            }),
        }
    }

    /// `A = ` bits of a value that is stored in words.
    pub(super) fn stored_part(&mut self, base: Reg, at: i16, width: u16, lo: u16, n: u16) {
        let (word, shift) = (lo / 64, lo % 64);
        let at = at + 8 * word as i16;
        let left = (width - 64 * word).min(64) - shift;
        // Whole bytes of a word are loaded as such.
        if let (8 | 16 | 32, true) = (n, shift.is_multiple_of(8) && n <= left) {
            return self.asm.load(Size::of(usize::from(n / 8)), A, base, at + (shift / 8) as i16);
        }
        self.asm.load(Size::D, A, base, at);
        if shift > 0 {
            self.asm.alu_imm(Alu::Rsh, A, shift.into());
        }
        if n > left {
            self.asm.load(Size::D, B, base, at + 8);
            self.asm.alu_imm(Alu::Lsh, B, left.into());
            self.asm.alu(Alu::Or, A, B);
            self.mask_to(n, 64);
        } else {
            self.mask_to(n, left);
        }
    }

    /// `A = ` at most 64 bits of a list, whose last element has the lowest bits, from bit `lo`.
    pub(super) fn list_part(&mut self, list: &[Source<'_>], lo: usize, n: u16) {
        let (lo, end) = (lo, lo + usize::from(n));
        let mut at = 0;
        // Each source that has bits of it: source, first bit, number, and their place in the result.
        let mut parts = Vec::new();
        for source in list.iter().rev() {
            let width = usize::from(self.source_width(*source));
            let (from, to) = (lo.max(at), end.min(at + width));
            if from < to {
                parts.push((*source, (from - at) as u16, (to - from) as u16, from - lo));
            }
            at += width;
        }
        let [first, more @ ..] = &parts[..] else { return self.asm.set(A, 0) };
        self.list_element(*first);
        self.with_temps(|this| {
            for part in more {
                let temp = this.temp();
                this.store_word(temp, A);
                this.list_element(*part);
                this.load_word(B, temp);
                this.asm.alu(Alu::Or, A, B);
            }
        });
    }

    fn list_element(&mut self, (source, lo, n, place): (Source<'_>, u16, u16, usize)) {
        self.bits(source, lo, n);
        if place > 0 {
            self.asm.alu_imm(Alu::Lsh, A, place as i32);
        }
    }

    /// `to = n` bits of the packet, at most 64, from bit `start` of the bytes at `base`, of which `available` may be read.
    pub(super) fn packet_part(&mut self, to: Reg, base: Reg, start: usize, n: usize, available: usize) {
        let (first, last) = (start / 8, (start + n - 1) / 8);
        let bytes = last - first + 1;
        let size = bytes.next_power_of_two().min(8);
        let behind = 8 * (last + 1) - (start + n);
        if bytes > 8 {
            self.asm.load(Size::D, to, base, first as i16);
            self.asm.to_big_endian(to, 8);
            self.asm.alu_imm(Alu::Lsh, to, (8 - behind) as i32);
            self.asm.load(Size::B, C, base, last as i16);
            self.asm.alu_imm(Alu::Rsh, C, behind as i32);
            self.asm.alu(Alu::Or, to, C);
            return self.mask_packet(to, n, 64);
        }
        // Bits to the right of the wanted ones, and all that were loaded.
        let (right, loaded) = if first + size <= available {
            self.load_big_endian(to, base, first, size);
            (8 * (first + size) - (start + n), 8 * size)
        } else if last + 1 >= size {
            self.load_big_endian(to, base, last + 1 - size, size);
            (behind, 8 * size)
        } else {
            self.asm.load(Size::B, to, base, first as i16);
            for byte in first + 1..=last {
                self.asm.alu_imm(Alu::Lsh, to, 8);
                self.asm.load(Size::B, C, base, byte as i16);
                self.asm.alu(Alu::Or, to, C);
            }
            (behind, 8 * bytes)
        };
        if right > 0 {
            self.asm.alu_imm(Alu::Rsh, to, right as i32);
        }
        self.mask_packet(to, n, loaded - right);
    }

    fn load_big_endian(&mut self, to: Reg, base: Reg, at: usize, size: usize) {
        self.asm.load(Size::of(size), to, base, at as i16);
        if size > 1 {
            self.asm.to_big_endian(to, size);
        }
    }

    fn mask_packet(&mut self, to: Reg, n: usize, bits: usize) {
        if n < bits {
            self.asm.mask(to, low_bits(n as u16), C);
        }
    }
}

fn constant_part(constant: &Constant, lo: u16, n: u16) -> u64 {
    let width = constant.value.width();
    let end = lo.saturating_add(n).min(width);
    if lo >= end { 0 } else { constant.value.slice(end - 1, lo).low_u64() }
}
