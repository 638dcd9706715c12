//! From headers to bytes: all headers into the layout, then at once into the packet, whose front moves.

use bpf::Label;
use bpf::assembler::{Alu, Cond, Size};
use pipeline::ir::{BlockId, EmitRef, Expr, FieldType, HeaderId, HeaderRef};

use super::bits::Source;
use super::{A, B, BASE, C, CTX, Lowering, POINTER, RESULT, Setting, helper};
use crate::layout::{HEADERS, OtherDrop, largest, word};

impl Lowering<'_> {
    /// Writes the headers in front of the payload; drops the packet if it does not fit then.
    pub(super) fn leave(&mut self, deparser: Option<BlockId>) {
        let end = self.asm.label();
        match deparser {
            Some(block) => self.block(block, end),
            None => {
                for i in 0..self.program.headers.len() {
                    self.emit_header(HeaderId::at(i));
                }
            }
        }
        self.asm.bind(end);
        self.begin_part("packet".into());
        let (same, bad, written) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.load_word(B, word::POSITION);
        self.load_word(A, word::EMITTED);
        self.asm.jump_if_imm(Cond::Gt, A, HEADERS as i32, bad);
        self.asm.alu(Alu::Sub, B, A);
        self.asm.jump_if_imm(Cond::Eq, B, 0, same);
        self.asm.mov(A, CTX);
        self.asm.call(helper::ADJUST_HEAD);
        // Too little room in front of it, or too little left: the packet is still as it came.
        let may_go = self.setting == Setting::Live && self.past.written.is_none();
        let to = if may_go { self.cpu } else { bad };
        self.asm.jump_if_imm(Cond::Ne, RESULT, 0, to);
        self.asm.bind(same);
        let length = bpf::Reg(4);
        self.load_word(length, word::EMITTED);
        self.asm.jump_if_imm(Cond::Eq, length, 0, written);
        self.asm.jump_if_imm(Cond::Gt, length, HEADERS as i32, bad);
        self.asm.mov(A, CTX);
        self.asm.set(B, 0);
        self.asm.mov(C, BASE);
        self.asm.alu_imm(Alu::Add, C, self.layout.out.into());
        self.asm.call(helper::STORE_BYTES);
        self.asm.jump_if_imm(Cond::Eq, RESULT, 0, written);
        self.asm.bind(bad);
        self.drop_packet(self.program.reasons.len() + OtherDrop::Size as usize);
        self.asm.bind(written);
    }

    pub(super) fn emit(&mut self, emit: &EmitRef) {
        let (first, size) = match emit {
            EmitRef::Header(HeaderRef::Header(id)) => (id.0, 1),
            EmitRef::Header(HeaderRef::Element(stack, index)) => {
                let (Some(stack), Expr::Const(index)) =
                    (self.program.stacks.get(stack.index()), index.as_ref())
                else {
                    return self.refuse("an element of a stack that is emitted by a computed number");
                };
                match index.value.saturating_u64() {
                    i if i < stack.size.into() => (stack.first.0 + i as u32, 1),
                    _ => return,
                }
            }
            EmitRef::Header(_) => return,
            EmitRef::Stack(stack) => match self.program.stacks.get(stack.index()) {
                Some(stack) => (stack.first.0, stack.size),
                None => return,
            },
            EmitRef::Union(union) => match self.program.unions.get(union.index()) {
                Some(union) => (union.first.0, union.size),
                None => return,
            },
        };
        for i in 0..size {
            self.emit_header(HeaderId(first.saturating_add(i)));
        }
    }

    /// Appends a header, if it is valid.
    fn emit_header(&mut self, id: HeaderId) {
        let Some(ty) = self.program.header_type(id) else { return };
        if ty.has_varbit() {
            return self.refuse("a header with a variable field");
        }
        let bytes = ty.fixed_bits() / 8;
        let (at, invalid, long) = (self.layout.header(id), self.asm.label(), self.asm.label());
        self.load_word(A, at);
        self.asm.jump_if_imm(Cond::Eq, A, 0, invalid);
        self.room(bytes, long);
        let mut fields = Vec::new();
        // Where fields begin, in bits.
        let mut starts = Vec::new();
        let mut bit = 0;
        for (i, field) in ty.fields.iter().enumerate() {
            let FieldType::Scalar(field_type) = field.ty else { continue };
            fields.push(Source::Stored(self.field_at(id, i as u16), field_type.width()));
            starts.push(bit);
            bit += usize::from(field_type.width());
        }
        starts.push(bit);
        let mut byte = 0;
        while byte < bytes {
            // A field of its own where one goes into one access, else as much as possible.
            let next = starts.iter().copied().find(|start| *start > 8 * byte).unwrap_or(bit);
            let whole = starts.contains(&(8 * byte)) && matches!(next - 8 * byte, 8 | 16 | 32 | 64);
            let n = if whole { (next - 8 * byte) / 8 } else { bytes - byte };
            let (size, n) = largest(n);
            self.list_part(&fields, bit - 8 * (byte + n), 8 * n as u16);
            if n > 1 {
                self.asm.to_big_endian(A, n);
            }
            self.asm.store(size, POINTER, self.layout.out + byte as i16, A);
            byte += n;
        }
        self.load_word(A, word::EMITTED);
        self.asm.alu_imm(Alu::Add, A, bytes as i32);
        self.store_word(word::EMITTED, A);
        self.asm.jump(invalid);
        self.asm.bind(long);
        // The length says so in the end.
        self.store_number(word::EMITTED, HEADERS as i32 + 1);
        self.asm.bind(invalid);
    }

    /// `POINTER` + the layout's `out` = where so many bytes go; jumps if they are too many.
    fn room(&mut self, bytes: usize, long: Label) {
        let Some(most) = HEADERS.checked_sub(bytes) else { return self.asm.jump(long) };
        self.asm.load(Size::D, A, BASE, word::EMITTED);
        self.asm.jump_if_imm(Cond::Gt, A, most as i32, long);
        self.asm.mov(POINTER, BASE);
        self.asm.alu(Alu::Add, POINTER, A);
    }
}
