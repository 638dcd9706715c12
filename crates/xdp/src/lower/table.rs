//! Tables: a lookup, the action found, and the branch for it.

use bpf::Label;
use bpf::assembler::{Alu, Cond, Size};
use pipeline::ir::{ActionId, Applied, Table, TableId};

use super::{A, B, BASE, ENTRY, Lowering, POINTER, RESULT};
use crate::layout::{largest, words};
use crate::tables::{Form, TableForm};

/// What the first word of a mask's place in the array of masks says.
pub(crate) mod mask {
    /// There has never been a mask here, nor behind.
    pub(crate) const END: u64 = 0;
    /// A mask, or one whose entries are gone.
    pub(crate) const USED: u64 = 1;
}

impl Lowering<'_> {
    pub(super) fn apply(&mut self, id: TableId, applied: &Applied, last: bool) {
        let program = self.program;
        let (Some(table), Some(form)) =
            (program.tables.get(id.index()), self.maps.tables.get(id.index()).cloned())
        else {
            return;
        };
        let before = self.part.clone();
        self.begin_part(format!("table {}", table.name));
        if let Some(refused) = form.refused {
            self.refuse(refused);
            return self.begin_part(before);
        }
        let (hit, action) = (self.temp(), self.temp());
        let (miss, found, none) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.key(table, &form);
        let lookups = self.layout.table_lookups(id.index());
        self.count(lookups);
        match form.form {
            Form::Default => self.asm.jump(miss),
            Form::Hash | Form::Trie => {
                self.look_up(form.map.unwrap_or(0), self.layout.key);
                self.asm.jump_if_imm(Cond::Eq, RESULT, 0, miss);
                self.asm.mov(ENTRY, RESULT);
            }
            Form::Masks => self.search(&form, miss),
        }
        self.count(lookups + 8);
        self.store_number(hit, 1);
        if let Some(counts) = form.counts {
            self.asm.load(Size::W, A, ENTRY, 4);
            self.count_in(counts);
        }
        self.asm.jump(found);

        self.asm.bind(miss);
        self.store_number(hit, 0);
        self.store_number(action, -1);
        self.asm.store_imm(Size::W, BASE, self.layout.key, id.0 as i32);
        self.look_up(self.maps.defaults, self.layout.key);
        self.asm.jump_if_imm(Cond::Eq, RESULT, 0, none);
        self.asm.mov(ENTRY, RESULT);

        self.asm.bind(found);
        self.asm.load(Size::W, A, ENTRY, 0);
        self.store_word(action, A);
        let is_last = last && *applied == Applied::default();
        self.dispatch(table, is_last, none);
        self.asm.bind(none);
        self.begin_part(before);
        self.branches(applied, hit, action, last);
    }

    /// Runs the action of the entry that [`ENTRY`] points to, whose number is in `A`.
    fn dispatch(&mut self, table: &Table, last: bool, end: Label) {
        let profile = table.profile.and_then(|profile| self.program.profiles.get(profile.index()));
        let actions = profile.map_or(&table.actions, |profile| &profile.actions);
        let mut actions: Vec<ActionId> = actions.iter().chain(&table.default_only).copied().collect();
        actions.sort();
        actions.dedup();
        self.alternatives(actions, |this, action| {
            let other = this.asm.label();
            this.asm.load(Size::W, A, ENTRY, 0);
            this.asm.jump_if_imm(Cond::Ne, A, action.0 as i32, other);
            let params = this.program.actions.get(action.index()).map_or(&[][..], |action| &action.params);
            let mut from = 8;
            for (i, param) in params.iter().enumerate() {
                let to = this.layout.param(action.index(), i);
                for w in 0..words(param.ty.width()) as i16 {
                    this.asm.load(Size::D, A, ENTRY, from);
                    this.store_word(to + 8 * w, A);
                    from += 8;
                }
            }
            this.action(action, last);
            this.asm.jump(end);
            this.asm.bind(other);
        });
    }

    /// The statements for a hit or a miss, then those for the action that ran.
    fn branches(&mut self, applied: &Applied, hit: i16, action: i16, last: bool) {
        let by_action = !(applied.actions.is_empty() && applied.other.is_empty());
        if !(applied.hit.is_empty() && applied.miss.is_empty()) {
            let (missed, end) = (self.asm.label(), self.asm.label());
            self.load_word(A, hit);
            self.asm.jump_if_imm(Cond::Eq, A, 0, missed);
            self.alternatives([(&applied.hit, end), (&applied.miss, missed)], |this, (body, label)| {
                if label == missed {
                    this.asm.jump(end);
                    this.asm.bind(missed);
                }
                this.body(body, last && !by_action);
            });
            self.asm.bind(end);
        }
        if by_action {
            let end = self.asm.label();
            let bodies = applied.actions.iter().map(|(id, body)| (Some(id), body));
            self.alternatives(bodies.chain([(None, &applied.other)]), |this, (id, body)| {
                let Some(id) = id else { return this.body(body, last) };
                let other = this.asm.label();
                this.load_word(A, action);
                this.asm.jump_if_imm(Cond::Ne, A, id.0 as i32, other);
                this.body(body, last);
                this.asm.jump(end);
                this.asm.bind(other);
            });
            self.asm.bind(end);
        }
    }

    /// Writes a table's key into the layout.
    fn key(&mut self, table: &Table, form: &TableForm) {
        let key = self.layout.key;
        // A trie's length is in front, a mask's number in front of the masked key.
        let start = if form.form == Form::Trie { key + 4 } else { key };
        if form.form == Form::Masks && form.key_bytes > 0 {
            self.store_number(key + form.key_bytes as i16 - 8, 0);
        }
        let mut bits = 0;
        for part in &form.keys {
            let Some(schema) = table.keys.get(part.key) else { continue };
            if part.prefix {
                self.prefix(&schema.value, part.width, start + part.at as i16);
                bits += usize::from(part.width);
                continue;
            }
            for w in 0..words(part.width) {
                self.word(&schema.value, w);
                let (size, _) = largest(part.bytes);
                self.asm.store(size, BASE, start + (part.at + 8 * w) as i16, A);
            }
            bits += 8 * part.bytes;
        }
        if form.form == Form::Trie {
            self.asm.store_imm(Size::W, BASE, key, bits as i32);
        }
    }

    /// Writes a prefix key in network order, at the left of its bytes.
    fn prefix(&mut self, value: &pipeline::ir::Expr, width: u16, at: i16) {
        let bytes = usize::from(width).div_ceil(8);
        let behind = 8 * bytes - usize::from(width);
        let source = super::bits::Source::Expr(value);
        let mut byte = 0;
        while byte < bytes {
            let (size, n) = largest(bytes - byte);
            // The value as if it went on with zeros to whole bytes.
            let lo = 8 * (bytes - byte - n);
            if lo >= behind {
                self.bits(source, (lo - behind) as u16, 8 * n as u16);
            } else {
                self.bits(source, 0, (8 * n - (behind - lo)) as u16);
                self.asm.alu_imm(Alu::Lsh, A, (behind - lo) as i32);
            }
            if n > 1 {
                self.asm.to_big_endian(A, n);
            }
            self.asm.store(size, BASE, at + byte as i16, A);
            byte += n;
        }
    }

    /// Looks the key up under each mask; [`ENTRY`] points to a copy of the entry with the highest rank.
    fn search(&mut self, form: &TableForm, miss: Label) {
        self.searches += 1;
        let (entries, masks) = (form.map.unwrap_or(0), form.masks.unwrap_or(0));
        let (key, masked, copy) = (self.layout.key, self.layout.masked, self.layout.found);
        let (rank, order, number) = (self.temp(), self.temp(), self.temp());
        self.store_number(rank, 0);
        self.store_number(order, 0);
        let (each, next, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.set(POINTER, 0);
        self.asm.bind(each);
        self.asm.jump_if_imm(Cond::Ge, POINTER, self.maps.masks as i32, done);
        self.store_word(number, POINTER);
        self.look_up(masks, number);
        self.asm.jump_if_imm(Cond::Eq, RESULT, 0, done);
        self.asm.load(Size::D, A, RESULT, 0);
        self.asm.jump_if_imm(Cond::Eq, A, mask::END as i32, done);
        for offset in (0..form.key_bytes as i16).step_by(8) {
            self.load_word(A, key + offset);
            self.asm.load(Size::D, B, RESULT, 8 + offset);
            self.asm.alu(Alu::And, A, B);
            self.store_word(masked + 8 + offset, A);
        }
        self.store_word(masked, POINTER);
        self.look_up(entries, masked);
        self.asm.jump_if_imm(Cond::Eq, RESULT, 0, next);
        // A higher rank, or the same and older.
        let better = self.asm.label();
        self.asm.load(Size::D, A, RESULT, 8);
        self.load_word(B, rank);
        self.asm.jump_if(Cond::Gt, A, B, better);
        self.asm.jump_if(Cond::Lt, A, B, next);
        self.asm.load(Size::D, A, RESULT, 16);
        self.load_word(B, order);
        self.asm.jump_if(Cond::Le, A, B, next);
        self.asm.bind(better);
        for (from, to) in [(0, copy), (8, rank), (16, order)] {
            self.asm.load(Size::D, A, RESULT, from);
            self.store_word(to, A);
        }
        for i in 0..form.arguments as i16 {
            self.asm.load(Size::D, A, RESULT, 24 + 8 * i);
            self.store_word(copy + 8 + 8 * i, A);
        }
        self.asm.bind(next);
        self.asm.alu_imm(Alu::Add, POINTER, 1);
        self.asm.jump(each);
        self.asm.bind(done);
        // No entry's order is 0.
        self.load_word(A, order);
        self.asm.jump_if_imm(Cond::Eq, A, 0, miss);
        self.asm.mov(ENTRY, BASE);
        self.asm.alu_imm(Alu::Add, ENTRY, copy.into());
    }
}
