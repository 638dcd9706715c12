//! Digests, and packets that the CPU gets finished: with a note in front ([`crate::note`]).

use bpf::assembler::{Alu, Cond, Size};
use pipeline::ir::{DigestId, Expr};
use xsk::note::HEAD;

use super::{A, B, BASE, C, CTX, Lowering, RESULT, RX_QUEUE, VERDICTS, XDP_DROP, helper, later};
use crate::layout::{OtherDrop, word, words};
use crate::note::{FIXED, VALUES, at};

impl Lowering<'_> {
    /// Before a packet has a digest.
    pub(super) fn begin_note(&mut self) {
        self.store_number(word::NOTE, 0);
        let digest = self.layout.note + at::DIGEST;
        self.store_number(digest, 0);
    }

    /// Notes a digest. Without registers, the CPU makes it: it gets the packet as it came.
    pub(super) fn digest(&mut self, id: DigestId, values: &[Expr]) {
        if !self.is_stateful {
            return self.refuse("a digest");
        }
        if self.past.has_digest {
            return self.refuse("a further digest");
        }
        let sizes = values.iter().map(|value| words(self.ty(value).width()));
        if sizes.sum::<usize>() > VALUES {
            return self.refuse(format!("a digest whose values take more than {VALUES} words of 64 bits"));
        }
        let mut to = self.layout.note + FIXED as i16;
        for value in values {
            for i in 0..words(self.ty(value).width()) {
                self.word(value, i);
                self.store_word(to, A);
                to += 8;
            }
        }
        let digest = self.layout.note + at::DIGEST;
        self.store_number(digest, id.0 as i32 + 1);
        self.past.has_digest = true;
    }

    /// Jumps if the packet has a digest.
    pub(super) fn jump_if_digest(&mut self, to: bpf::Label) {
        let digest = self.layout.note + at::DIGEST;
        self.load_word(A, digest);
        self.asm.jump_if_imm(Cond::Ne, A, 0, to);
    }

    /// Sends the packet to the CPU as it leaves, or its digest.
    pub(super) fn hand_over_finished(&mut self) {
        let note = self.layout.note;
        let (write, short, too_long) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.begin_part(VERDICTS.into());
        self.asm.bind(self.finished);
        self.store_number(word::VERDICT, crate::Verdict::SENT);
        self.load_word(A, word::EGRESS);
        self.store_word(word::DETAIL, A);
        self.store_word(note + at::PORT, A);
        self.asm.jump(write);
        self.asm.bind(self.digested);
        self.store_number(note + at::PORT, -1);
        self.asm.bind(write);
        self.count_word(word::FINISHED);
        self.asm.later(A, later::MARK_LOW);
        self.mask_to(32, 64);
        self.asm.later(B, later::MARK_HIGH);
        self.asm.alu_imm(Alu::Lsh, B, 32);
        self.asm.alu(Alu::Or, A, B);
        self.store_word(note, A);
        self.asm.later(A, later::PROGRAM);
        self.store_word(note + at::PROGRAM, A);
        for (from, to) in [(word::CLASS, at::CLASS), (word::QUEUE, at::QUEUE)] {
            self.load_word(A, from);
            self.store_word(note + to, A);
        }
        self.load_word(A, note + at::DIGEST);
        self.asm.jump_if_imm(Cond::Eq, A, 0, short);
        let values = self.program.digests.iter().map(|digest| {
            let sizes = digest.types.iter().map(|ty| words(ty.width()));
            sizes.sum::<usize>()
        });
        let values = values.filter(|values| *values <= VALUES).max().unwrap_or(0);
        self.send_note(FIXED + 8 * values, too_long);
        self.asm.bind(short);
        self.send_note(FIXED, too_long);
        // No room in front of it.
        self.asm.bind(too_long);
        self.store_number(word::NOTE, 0);
        self.past.has_digest = false;
        self.drop_packet(self.program.reasons.len() + OtherDrop::Size as usize);
    }

    /// Sends the packet to the CPU with a note of so many bytes.
    fn send_note(&mut self, size: usize, too_long: bpf::Label) {
        let note = self.layout.note;
        self.store_number(note + HEAD as i16 - 8, size as i32);
        self.store_number(word::NOTE, size as i32);
        self.asm.mov(A, CTX);
        self.asm.set(B, (size as u64).wrapping_neg());
        self.asm.call(helper::ADJUST_HEAD);
        self.asm.jump_if_imm(Cond::Ne, RESULT, 0, too_long);
        self.asm.mov(A, CTX);
        self.asm.set(B, 0);
        self.asm.mov(C, BASE);
        self.asm.alu_imm(Alu::Add, C, note.into());
        self.asm.set(bpf::Reg(4), size as u64);
        self.asm.call(helper::STORE_BYTES);
        self.asm.jump_if_imm(Cond::Ne, RESULT, 0, too_long);
        self.asm.map(A, self.maps.sockets);
        self.asm.load(Size::W, B, CTX, RX_QUEUE);
        // The host's stack has no use for it.
        self.asm.set(C, XDP_DROP);
        self.asm.call(helper::REDIRECT_MAP);
        self.asm.exit();
    }
}
