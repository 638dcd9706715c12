//! Hashes and checksums ([`pipeline::hash`]): over the values of a list, 64 bits at a time from the left.

use bpf::Reg;
use bpf::assembler::{Alu, Cond, Size};
use pipeline::ir::{Expr, FieldType, HashKind, HeaderRef, Item, LValue};

use super::bits::Source;
use super::place::place_value;
use super::{A, B, BASE, C, Lowering};
use crate::layout::words;
use crate::types;

/// The remainder so far, within a word.
const CRC: Reg = Reg(4);

/// Bytes of a table of remainders.
const REMAINDERS: usize = 256 * 8;

impl Lowering<'_> {
    pub(super) fn hash(&mut self, place: &LValue, kind: HashKind, items: &[Item]) {
        let Some(list) = self.list(items) else { return };
        match kind {
            HashKind::Csum16 => {
                self.sum(&list);
                self.asm.alu_imm(Alu::Xor, A, 0xffff);
            }
            HashKind::Xor16 => self.xor(&list),
            HashKind::Identity => self.list_part(&list, 0, 64),
            HashKind::Crc16 => self.crc(&list, 0, 0, 0),
            HashKind::Crc32 => self.crc(&list, 1, 0xffff_ffff, 0xffff_ffff),
            HashKind::Crc32c => self.crc(&list, 2, 0xffff_ffff, 0xffff_ffff),
            HashKind::Toeplitz => return self.refuse("a Toeplitz hash"),
        }
        let width = types::place_width(self.program, place);
        self.mask_to(width, 64);
        if width <= 64 {
            return self.assign(place);
        }
        let temps: Vec<i16> = (0..words(width)).map(|_| self.temp()).collect();
        for (i, temp) in temps.iter().enumerate() {
            match i {
                0 => self.store_word(*temp, A),
                _ => self.store_number(*temp, 0),
            }
        }
        let first = temps.first().copied().unwrap_or(0);
        self.assign_stored(place, first, width);
    }

    /// RFC 1624, equation 3.
    pub(super) fn update_checksum(&mut self, place: &LValue, before: &[Item], after: &[Item]) {
        let (Some(before), Some(after)) = (self.list(before), self.list(after)) else { return };
        let total = self.temp();
        self.value(&place_value(place));
        self.asm.alu_imm(Alu::Xor, A, 0xffff);
        self.store_word(total, A);
        self.sum(&before);
        self.asm.alu_imm(Alu::Xor, A, 0xffff);
        self.load_word(B, total);
        self.asm.alu(Alu::Add, A, B);
        self.store_word(total, A);
        self.sum(&after);
        self.load_word(B, total);
        self.asm.alu(Alu::Add, A, B);
        self.fold(16);
        self.fold(16);
        self.asm.alu_imm(Alu::Xor, A, 0xffff);
        self.assign(place);
    }

    /// The values of a list; none if it has parts of other kinds.
    fn list<'e>(&mut self, items: &'e [Item]) -> Option<Vec<Source<'e>>> {
        let mut list = Vec::new();
        for item in items {
            let Item::Value(expr) = item else {
                self.refuse("a hash of the payload");
                return None;
            };
            if let Expr::Field(HeaderRef::Element(..) | HeaderRef::Next(_) | HeaderRef::Last(_), _) = expr {
                // Beyond its stack, it is no part of the list.
                self.refuse("a hash of a stack's element");
                return None;
            }
            if let Expr::Field(header, field) = expr {
                let ty = types::header_type(self.program, header);
                let field = ty.and_then(|ty| ty.fields.get(usize::from(*field)));
                if field.is_some_and(|field| matches!(field.ty, FieldType::Varbit(_))) {
                    self.refuse("a hash of a variable field");
                    return None;
                }
            }
            list.push(Source::Expr(expr));
        }
        Some(list)
    }

    /// Runs `each` for every 64 bits of a list from the left, which are in `A`; what is missing to a multiple of
    /// `unit` bits at the end is 0. Its argument is the number of bits.
    fn each_word(&mut self, list: &[Source<'_>], unit: usize, mut each: impl FnMut(&mut Self, usize)) {
        let total: usize = list.iter().map(|source| usize::from(self.source_width(*source))).sum();
        let mut done = 0;
        while done < total {
            let n = (total - done).min(64);
            self.list_part(list, total - done - n, n as u16);
            let padded = n.next_multiple_of(unit);
            if padded > n {
                self.asm.alu_imm(Alu::Lsh, A, (padded - n) as i32);
            }
            each(self, padded);
            done += n;
        }
    }

    /// `A = ` the one's complement sum of a list's 16-bit words.
    fn sum(&mut self, list: &[Source<'_>]) {
        self.with_temps(|this| {
            let sum = this.temp();
            this.store_number(sum, 0);
            this.each_word(list, 16, |this, _| {
                let fits = this.asm.label();
                this.load_word(B, sum);
                this.asm.alu(Alu::Add, A, B);
                this.asm.jump_if(Cond::Ge, A, B, fits);
                this.asm.alu_imm(Alu::Add, A, 1);
                this.asm.bind(fits);
                this.store_word(sum, A);
            });
            this.load_word(A, sum);
            this.fold(32);
            this.fold(32);
            this.fold(16);
            this.fold(16);
        });
    }

    /// Adds what is above the low bits to them.
    fn fold(&mut self, bits: u16) {
        self.asm.mov(B, A);
        self.asm.alu_imm(Alu::Rsh, B, bits.into());
        self.mask_to(bits, 64);
        self.asm.alu(Alu::Add, A, B);
    }

    fn xor(&mut self, list: &[Source<'_>]) {
        self.with_temps(|this| {
            let sum = this.temp();
            this.store_number(sum, 0);
            this.each_word(list, 16, |this, _| {
                this.load_word(B, sum);
                this.asm.alu(Alu::Xor, A, B);
                this.store_word(sum, A);
            });
            this.load_word(A, sum);
            for shift in [32, 16] {
                this.asm.mov(B, A);
                this.asm.alu_imm(Alu::Rsh, B, shift);
                this.asm.alu(Alu::Xor, A, B);
            }
            this.mask_to(16, 64);
        });
    }

    /// A reflected cyclic redundancy check by the table of this number.
    fn crc(&mut self, list: &[Source<'_>], table: usize, start: u64, end: u64) {
        let remainders = self.layout.remainders + (REMAINDERS * table) as i16;
        self.with_temps(|this| {
            let crc = this.temp();
            this.asm.set(A, start);
            this.store_word(crc, A);
            this.each_word(list, 8, |this, bits| {
                this.load_word(CRC, crc);
                for byte in (0..bits / 8).rev() {
                    this.asm.mov(B, A);
                    if byte > 0 {
                        this.asm.alu_imm(Alu::Rsh, B, 8 * byte as i32);
                    }
                    this.asm.alu(Alu::Xor, B, CRC);
                    this.asm.alu_imm(Alu::And, B, 0xff);
                    this.asm.alu_imm(Alu::Lsh, B, 3);
                    this.asm.mov(C, BASE);
                    this.asm.alu(Alu::Add, C, B);
                    this.asm.load(Size::D, B, C, remainders);
                    this.asm.alu_imm(Alu::Rsh, CRC, 8);
                    this.asm.alu(Alu::Xor, CRC, B);
                }
                this.store_word(crc, CRC);
            });
            this.load_word(A, crc);
            this.asm.set(B, end);
            this.asm.alu(Alu::Xor, A, B);
        });
    }
}
