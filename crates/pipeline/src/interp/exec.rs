//! Statements that compute: they neither branch nor send the packet.

use super::pass::{HeaderValue, Pass};
use super::{Dropped, Effect, Event, Flow, Limit, Machine};
use crate::bits::Bits;
use crate::hash::{BitString, hash};
use crate::ir::{
    Constant, Direction, ExternArg, ExternId, FieldType, HashKind, HeaderId, HeaderPlace, HeaderRef, Item,
    LValue, StackId, Stmt, TableId,
};
use crate::state::{Color, Meter};

impl Machine<'_> {
    pub(super) fn compute(&mut self, stmt: &Stmt, pass: &mut Pass, params: &[Constant]) -> Flow {
        match stmt {
            Stmt::Set(place, value) => {
                let value = self.eval(value, pass, params).value;
                self.assign(place, &value, pass, params);
            }
            Stmt::CopyHeader(to, from) => self.copy_header(to, from, pass, params),
            Stmt::SetValid(header) => {
                if let Some(header) = self.resolve(header, pass, params) {
                    self.set_valid(header, true, pass);
                }
            }
            Stmt::SetInvalid(header) => {
                if let Some(header) = self.resolve(header, pass, params) {
                    self.set_valid(header, false, pass);
                }
            }
            Stmt::Push(stack, n) => self.shift(*stack, *n, true, pass),
            Stmt::Pop(stack, n) => self.shift(*stack, *n, false, pass),
            Stmt::Hash(place, kind, items) => {
                let input = self.list(items, pass, params);
                let value = Bits::from_u64(64, hash(*kind, &input)).resize(self.place_type(place).width());
                self.assign(place, &value, pass, params);
            }
            Stmt::UpdateChecksum(place, old, new) => {
                let checksum = self.read_place(place, pass, params);
                let (old, new) = (self.list(old, pass, params), self.list(new, pass, params));
                let updated = update_checksum(checksum.low_u64() as u16, &old, &new);
                self.assign(place, &Bits::from_u64(16, updated.into()), pass, params);
            }
            Stmt::Random(place, low, high) => {
                let (low, high) = (self.eval(low, pass, params).value, self.eval(high, pass, params).value);
                let value = self.random(&low, &high);
                self.assign(place, &value, pass, params);
            }
            Stmt::RegisterRead(place, register, index) => {
                let index = self.number(index, pass, params);
                let arrays = self.state.arrays();
                let value = match &self.guard {
                    Some(guard) => arrays.read(guard, *register, index),
                    None => arrays.read(&arrays.lock(), *register, index),
                };
                let value = value.unwrap_or_else(|| Bits::zero(self.place_type(place).width()));
                self.assign(place, &value, pass, params);
            }
            Stmt::RegisterWrite(register, index, value) => {
                let (index, value) = (self.number(index, pass, params), self.eval(value, pass, params).value);
                if self.mode.rehearsal {
                    return Flow::Next;
                }
                let arrays = self.state.arrays();
                match &self.guard {
                    Some(guard) => arrays.write(guard, *register, index, &value),
                    None => arrays.write(&arrays.lock(), *register, index, &value),
                };
            }
            Stmt::Count(counter, index) => {
                let index = self.number(index, pass, params);
                if self.mode.rehearsal {
                    return Flow::Next;
                }
                if let Some(counter) = self.state.arrays().counter(*counter, index) {
                    counter.count(pass.len.into());
                }
            }
            Stmt::Meter(place, meter, index, color) => {
                let (index, before) = (self.number(index, pass, params), self.color(color, pass, params));
                let unit = self.program.meters.get(meter.index()).map(|meter| meter.unit);
                let cell = self.state.arrays().meter(*meter, index);
                self.metered(place, cell, unit, before, pass, params);
            }
            Stmt::MeterEntry(place, table, color) => {
                let before = self.color(color, pass, params);
                let unit = self.program.tables.get(table.index()).and_then(|table| table.meter);
                let state = self.state;
                let cell = hit(pass, *table).and_then(|entry| state.table(*table)?.get(entry));
                self.metered(
                    place,
                    cell.and_then(|entry| entry.stats.meter.as_deref()).map(Meter::Own),
                    unit,
                    before,
                    pass,
                    params,
                );
            }
            Stmt::Digest(digest, values) => {
                let values = values.iter().map(|value| self.eval(value, pass, params)).collect();
                if !self.effect(Effect::Digest { digest: *digest, values }) {
                    return Flow::Drop(Dropped::Limit(Limit::Effects));
                }
            }
            Stmt::Truncate(len) => {
                let len = u32::try_from(self.number(len, pass, params)).unwrap_or(u32::MAX);
                pass.data.truncate = Some(pass.data.truncate.map_or(len, |before| before.min(len)));
            }
            Stmt::Insert(items) => {
                let bytes = self.list(items, pass, params);
                pass.data.payload.prepend(bytes.bytes());
                if pass.data.payload.head.len() > self.limits.headers {
                    return Flow::Drop(Dropped::Limit(Limit::Headers));
                }
            }
            Stmt::Remove(len) => {
                let len = u32::try_from(self.number(len, pass, params)).unwrap_or(u32::MAX);
                pass.data.payload.skip(len);
            }
            Stmt::Extern(function, args) => return self.call_extern(*function, args, pass, params),
            Stmt::Emit(emit) => self.emit(emit, pass, params),
            _ => {}
        }
        Flow::Next
    }

    /// Makes a header valid or invalid; a valid member of a union is the only one.
    pub(super) fn set_valid(&mut self, id: HeaderId, valid: bool, pass: &mut Pass) {
        let place = self.program.headers.get(id.index()).map(|header| header.place);
        if let (true, Some(HeaderPlace::Member(union))) = (valid, place)
            && let Some(union) = self.program.unions.get(union.index())
        {
            let members = pass.data.headers.iter_mut().skip(union.first.index()).take(union.size as usize);
            members.for_each(|member| member.valid = false);
        }
        pass.data.headers.iter_mut().skip(id.index()).take(1).for_each(|header| header.valid = valid);
        self.event(|| Event::Valid(id, valid));
    }

    fn copy_header(&mut self, to: &HeaderRef, from: &HeaderRef, pass: &mut Pass, params: &[Constant]) {
        let from = self.resolve(from, pass, params);
        let Some(to) = self.resolve(to, pass, params) else { return };
        let source = match from.and_then(|from| pass.data.headers.get(from.index())) {
            Some(source) => source.clone(),
            None => HeaderValue { valid: false, fields: self.empty_fields(to) },
        };
        let valid = source.valid;
        pass.data.headers.iter_mut().skip(to.index()).take(1).for_each(|header| header.clone_from(&source));
        self.set_valid(to, valid, pass);
    }

    fn empty_fields(&self, header: HeaderId) -> Vec<Bits> {
        let ty = self.program.header_type(header);
        let empty = |ty: FieldType| match ty {
            FieldType::Scalar(ty) => Bits::zero(ty.width()),
            FieldType::Varbit(_) => Bits::zero(0),
        };
        ty.map_or(vec![], |ty| ty.fields.iter().map(|field| empty(field.ty)).collect())
    }

    /// Moves the elements of a stack up or down.
    fn shift(&mut self, id: StackId, n: u32, up: bool, pass: &mut Pass) {
        let Some(stack) = self.program.stacks.get(id.index()) else { return };
        let (first, size) = (stack.first.index(), stack.size as usize);
        let by = (n as usize).min(size);
        let fields = self.empty_fields(stack.first);
        let Some(elements) = pass.data.headers.get_mut(first..first + size) else { return };
        let freed = if up {
            elements.rotate_right(by);
            elements.get_mut(..by)
        } else {
            elements.rotate_left(by);
            elements.get_mut(size - by..)
        };
        for element in freed.unwrap_or_default() {
            *element = HeaderValue { valid: false, fields: fields.clone() };
        }
        if let Some(next) = pass.data.next.get_mut(id.index()) {
            *next = if up { next.saturating_add(n).min(stack.size) } else { next.saturating_sub(n) };
        }
        self.event(|| Event::Shift(id, n, up));
    }

    fn color(&self, color: &Option<crate::ir::Expr>, pass: &mut Pass, params: &[Constant]) -> Color {
        color.as_ref().map_or(Color::Green, |color| Color::from_number(self.number(color, pass, params)))
    }

    fn metered(
        &mut self,
        place: &LValue,
        cell: Option<Meter<'_>>,
        unit: Option<crate::ir::MeterUnit>,
        before: Color,
        pass: &mut Pass,
        params: &[Constant],
    ) {
        let units = match unit {
            Some(crate::ir::MeterUnit::Bytes) => pass.len.into(),
            _ => 1,
        };
        let now = self.env.now();
        let color = match (cell, self.mode.rehearsal) {
            (None, _) => Color::Green,
            (Some(cell), false) => cell.color(units, before, now),
            (Some(cell), true) => cell.foresee(units, before, now),
        };
        let value = Bits::from_u64(self.place_type(place).width(), color as u64);
        self.assign(place, &value, pass, params);
    }

    /// A number between two bounds: random bits modulo the range's size, offset by the lower bound.
    fn random(&mut self, low: &Bits, high: &Bits) -> Bits {
        if low > high {
            return low.clone();
        }
        let width = low.width();
        let drawn = (0..width.div_ceil(64))
            .fold(Bits::zero(width), |bits, _| bits.shl(64).or(&Bits::from_u64(width, self.env.random())));
        let size = high.sub(low).add(&Bits::from_u64(width, 1));
        // The whole range has a size of 2^width, which is zero here.
        if size.is_zero() { drawn } else { low.add(&drawn.div_rem(&size).1) }
    }

    fn call_extern(
        &mut self,
        id: ExternId,
        args: &[ExternArg],
        pass: &mut Pass,
        params: &[Constant],
    ) -> Flow {
        let Some(function) = self.program.externs.get(id.index()) else { return Flow::Next };
        let mut values = Vec::new();
        for arg in args {
            if let ExternArg::In(value) = arg {
                values.push(self.eval(value, pass, params));
            }
        }
        let outs = function.params.iter().filter(|(direction, _)| *direction == Direction::Out);
        let mut results: Vec<Constant> = outs.map(|(_, ty)| Constant::of(*ty, &Bits::zero(1))).collect();
        if !self.env.call(function, &values, &mut results) {
            return Flow::Drop(Dropped::NoExtern(id));
        }
        let places = args.iter().filter_map(|arg| match arg {
            ExternArg::Out(place) => Some(place),
            ExternArg::In(_) => None,
        });
        for (place, result) in places.zip(results) {
            let value = result.value.resize(self.place_type(place).width());
            self.assign(place, &value, pass, params);
        }
        Flow::Next
    }

    /// The bytes that a list stands for.
    pub(super) fn bytes(&self, items: &[Item], pass: &mut Pass, params: &[Constant]) -> Vec<u8> {
        self.list(items, pass, params).bytes().to_vec()
    }
}

/// The entry that a table hit last in this pass.
fn hit(pass: &Pass, table: TableId) -> Option<crate::state::EntryId> {
    pass.hits.iter().find(|(id, _)| *id == table)?.1
}

/// RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
fn update_checksum(checksum: u16, old: &BitString, new: &BitString) -> u16 {
    let sum = |string: &BitString| u32::from(!(hash(HashKind::Csum16, string) as u16));
    let total = u32::from(!checksum) + (0xffff - sum(old)) + sum(new);
    let folded = (total & 0xffff) + (total >> 16);
    !(((folded & 0xffff) + (folded >> 16)) as u16)
}
