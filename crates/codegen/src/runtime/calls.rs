//! Functions that generated code calls by address.
//!
//! SAFETY of all: the first argument is the frame of a running [`Machine`], whose address it has; code passes stack
//! slots of as many words as the width it names.

use std::sync::atomic::Ordering::Relaxed;

use pipeline::bits::Bits;
use pipeline::interp::{Dropped, Limit};
use pipeline::ir::{
    Constant, CounterId, DigestId, Direction, ExternId, HashKind, HeaderId, MeterId, MeterUnit, RegisterId,
    TableId, Type, ValueSetId,
};
use pipeline::state::{Color, Meter};

use super::wide::{bits, put};
use super::{Effect, Machine};
use crate::code::Operand;
use crate::flow;
use crate::layout::word;
use crate::view::{Call, Record, TableView};

pub(crate) use super::wide::{
    clear, copy, div, extract_varbit, mul, rem, sar, shift_stack, shl, shr, update_checksum,
};

/// Offsets in a [`Call`].
pub(crate) const CALL_SLOT: i32 = std::mem::offset_of!(Call, slot) as i32;
/// See above.
pub(crate) const CALL_CODE: i32 = std::mem::offset_of!(Call, code) as i32;
/// See above.
pub(crate) const CALL_ARGS: i32 = std::mem::offset_of!(Call, args) as i32;
/// See above.
pub(crate) const CALL_ACTION: i32 = std::mem::offset_of!(Call, action) as i32;

/// A type as a number.
pub(crate) fn type_code(ty: Type) -> u64 {
    match ty {
        Type::Bool => 1,
        Type::Bit(width) => 1 << 16 | u64::from(width),
        Type::Int(width) => 2 << 16 | u64::from(width),
    }
}

fn type_of(code: u64) -> Type {
    match code >> 16 {
        0 => Type::Bool,
        1 => Type::Bit(code as u16),
        _ => Type::Int(code as u16),
    }
}

/// The machine of a frame.
///
/// # Safety
/// The frame is that of a running machine, which outlives the call.
unsafe fn machine<'m>(frame: *mut u64) -> &'m Machine<'m> {
    // SAFETY: the caller's promise; machines are borrowed shared only while they run.
    unsafe { &*(frame.add(word::MACHINE).read() as *const Machine<'m>) }
}

fn end(result: Result<(), Dropped>) -> i64 {
    result.map_or_else(flow::drop_code, |()| flow::NEXT)
}

macro_rules! calls {
    ($($(#[$doc:meta])* fn $name:ident($m:ident $(, $arg:ident: $ty:ty)*) -> $ret:ty $body:block)*) => {$(
        $(#[$doc])*
        pub(crate) unsafe extern "C" fn $name(frame: *mut u64 $(, $arg: $ty)*) -> $ret {
            // SAFETY: see the module.
            let $m = unsafe { machine(frame) };
            $body
        }
    )*};
}

calls! {
    /// Bytes of the payload behind the parser's position.
    fn remaining(m, at: u64) -> u64 {
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        m.scratch.pass.borrow().payload.len().saturating_sub(at).into()
    }

    /// Takes the registers' lock.
    fn lock(m) -> u64 {
        *m.guard.borrow_mut() = Some(m.view.arrays.lock());
        0
    }

    /// Gives it back.
    fn unlock(m) -> u64 {
        *m.guard.borrow_mut() = None;
        0
    }

    /// Begins a list.
    fn list_begin(m) -> u64 {
        m.scratch.list.borrow_mut().clear();
        0
    }

    /// Appends a value.
    fn list_value(m, at: *const u64, width: u64) -> u64 {
        let mut list = m.scratch.list.borrow_mut();
        let count = width.div_ceil(64);
        for i in (0..count).rev() {
            // SAFETY: see the module.
            let limb = unsafe { at.add(i as usize).read() };
            let n = if i + 1 == count { (width - 1) % 64 + 1 } else { 64 };
            list.push(limb, n as u32);
        }
        0
    }

    /// Appends bits of a header.
    fn list_bits(m, start: *const u8, at: u64, n: u64) -> u64 {
        // SAFETY: the field's bytes are in the frame; the list is apart from it.
        let source = unsafe { std::slice::from_raw_parts(start, (at + n).div_ceil(8) as usize) };
        m.scratch.list.borrow_mut().push_bits(source, at as usize, n as usize);
        0
    }

    /// Appends the payload, as far as it is visible.
    fn list_payload(m) -> u64 {
        let (pass, mut list) = (m.scratch.pass.borrow(), m.scratch.list.borrow_mut());
        let head = &pass.payload.head;
        list.push_bits(head, 0, head.len() * 8);
        let tail = pass.payload.tail(m.received.get());
        list.push_bits(tail, 0, tail.len() * 8);
        0
    }

    /// The list's hash.
    fn list_hash(m, kind: u64) -> u64 {
        let kind = HashKind::ALL.get(kind as usize).copied().unwrap_or(HashKind::Identity);
        m.scratch.list.borrow().hash(kind)
    }

    /// The list's Internet checksum.
    fn list_sum(m) -> u64 {
        m.scratch.list.borrow().hash(HashKind::Csum16)
    }

    /// Draws a number between two bounds.
    fn random(m, result: *mut u64, low: *const u64, high: *const u64, width: u64) -> u64 {
        // SAFETY: see the module.
        let (low, high) = unsafe { (bits(low, width), bits(high, width)) };
        let value = draw(m, &low, &high);
        // SAFETY: see the module.
        unsafe { put(result, &value) };
        0
    }

    /// Reads a register; zero beyond the array.
    fn register_read(m, id: u64, index: u64, result: *mut u64, width: u64) -> u64 {
        let (id, arrays) = (RegisterId(id as u32), &m.view.arrays);
        let value = match &*m.guard.borrow() {
            Some(guard) => arrays.read(guard, id, index),
            None => arrays.read(&arrays.lock(), id, index),
        };
        let value = value.unwrap_or_else(|| Bits::zero(width as u16)).resize(width as u16);
        // SAFETY: see the module.
        unsafe { put(result, &value) };
        0
    }

    /// Writes a register; ignored beyond the array.
    fn register_write(m, id: u64, index: u64, at: *const u64, width: u64) -> u64 {
        let (id, arrays) = (RegisterId(id as u32), &m.view.arrays);
        // SAFETY: see the module.
        let value = unsafe { bits(at, width) };
        match &*m.guard.borrow() {
            Some(guard) => arrays.write(guard, id, index, &value),
            None => arrays.write(&arrays.lock(), id, index, &value),
        };
        0
    }

    /// Counts the packet.
    fn count(m, id: u64, index: u64) -> u64 {
        if let Some(counter) = m.view.arrays.counter(CounterId(id as u32), index) {
            counter.count(m.scratch.pass.borrow().len.into());
        }
        0
    }

    /// Meters the packet; returns its colour.
    fn meter(m, id: u64, index: u64, before: u64) -> u64 {
        let id = MeterId(id as u32);
        let unit = m.code.program.meters.get(id.index()).map(|meter| meter.unit);
        color(m, m.view.arrays.meter(id, index), unit, before)
    }

    /// Meters the packet with the meter of the entry that was hit last.
    fn meter_entry(m, table: u64, before: u64) -> u64 {
        let table = TableId(table as u32);
        let unit = m.code.program.tables.get(table.index()).and_then(|table| table.meter);
        let record = m.word(m.code.layout.hit(table) as usize / 8) as *const Record;
        // SAFETY: the word is 0 or the address of a record of the view, which outlives the packet (`lookup`).
        let record = unsafe { record.as_ref() };
        let meter = record.and_then(|record| record.stats.meter.as_deref());
        color(m, meter.map(Meter::Own), unit, before)
    }

    /// Sends the packet or a copy of it.
    fn send(m, operand: *const Operand, class: u64, queue: u64, limit: u64, to: u64, depth: u64) -> i64 {
        // SAFETY: code has the address from its own operands, which live as long as the code.
        let Operand::Send(send) = unsafe { &*operand };
        end(m.send(send, class, queue, limit, to, depth))
    }

    /// Lets the packet, as it is, go on in the second stage.
    fn enter_next(m, operand: *const Operand, class: u64, queue: u64, limit: u64, to: u64) -> i64 {
        // SAFETY: as for `send`.
        let Operand::Send(send) = unsafe { &*operand };
        m.enter_next(send, class, queue, limit, to)
    }

    /// Sends the packet, as it is, to a port.
    fn output(m, to: u64, has_queue: u64, queue: u64, depth: u64) -> i64 {
        let queue = (has_queue != 0).then_some(queue.min(65_535) as u16);
        end(m.output(u32::try_from(to).unwrap_or(u32::MAX), queue, depth))
    }

    /// Runs a group's buckets.
    fn group(m, table: u64, id: u64, depth: u64) -> i64 {
        end(m.group(table as usize, id, depth))
    }

    /// Deparses and parses again.
    fn reparse(m, depth: u64) -> i64 {
        end(m.reparse(depth))
    }

    /// Hands the packet to the controller, with the list as data.
    fn controller(m, reason: u64, has_limit: u64, limit: u64, depth: u64) -> i64 {
        let data = m.effects.borrow_mut().keep(m.scratch.list.borrow().bytes());
        if let Err(reason) = m.deparse(depth) {
            return flow::drop_code(reason);
        }
        m.set_word(word::SENT, 1);
        let packet = m.keep_form();
        let limit = (has_limit != 0).then_some(limit as u16);
        let origin = m.origin.get().map(|(table, record)| (table, record.map(|record| record.id)));
        let reason = reason as u8;
        if m.effect(|| Effect::Controller { reason, packet, limit, data, origin }) { flow::NEXT } else { flow::drop_code(Dropped::Limit(Limit::Effects)) }
    }

    /// Begins a list of typed values.
    fn values_begin(m) -> u64 {
        m.scratch.values.borrow_mut().clear();
        0
    }

    /// Appends one.
    fn values_push(m, at: *const u64, ty: u64) -> u64 {
        let ty = type_of(ty);
        // SAFETY: see the module.
        let value = unsafe { bits(at, ty.width().into()) };
        m.scratch.values.borrow_mut().push(Constant { ty, value });
        0
    }

    /// Sends the values to the control plane.
    fn digest(m, id: u64) -> i64 {
        let values = m.scratch.values.borrow().clone();
        let digest = DigestId(id as u32);
        if m.effect(|| Effect::Digest { digest, values }) { flow::NEXT } else { flow::drop_code(Dropped::Limit(Limit::Effects)) }
    }

    /// Calls a function of the environment with the values; 0 if there is none.
    fn call_extern(m, id: u64) -> u64 {
        let id = ExternId(id as u32);
        let Some(function) = m.code.program.externs.get(id.index()) else { return 1 };
        let mut results = m.scratch.results.borrow_mut();
        results.clear();
        let outs = function.params.iter().filter(|(direction, _)| *direction == Direction::Out);
        results.extend(outs.map(|(_, ty)| Constant::of(*ty, &Bits::zero(1))));
        let values = m.scratch.values.borrow();
        m.env.borrow_mut().call(function, &values, &mut results).into()
    }

    /// One of its results.
    fn result(m, i: u64, result: *mut u64, width: u64) -> u64 {
        let results = m.scratch.results.borrow();
        let value = results.get(i as usize).map_or_else(|| Bits::zero(width as u16), |c| c.value.resize(width as u16));
        // SAFETY: see the module.
        unsafe { put(result, &value) };
        0
    }

    /// Shortens the packet when it is deparsed.
    fn truncate(m, len: u64) -> u64 {
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        let mut pass = m.scratch.pass.borrow_mut();
        pass.truncate = Some(pass.truncate.map_or(len, |before| before.min(len)));
        0
    }

    /// Inserts the list in front of the payload.
    fn insert(m) -> i64 {
        let mut pass = m.scratch.pass.borrow_mut();
        pass.payload.prepend(m.scratch.list.borrow().bytes());
        let fits = pass.payload.head.len() <= m.code.limits.headers;
        if fits { flow::NEXT } else { flow::drop_code(Dropped::Limit(Limit::Headers)) }
    }

    /// Removes bytes from the front of the payload.
    fn remove(m, len: u64) -> u64 {
        m.scratch.pass.borrow_mut().payload.skip(u32::try_from(len).unwrap_or(u32::MAX));
        0
    }

    /// Appends valid headers to what is emitted.
    fn emit(m, first: u64, count: u64) -> u64 {
        (first..first + count).for_each(|id| m.emit(HeaderId(id as u32)));
        0
    }

    /// Whether a tuple is in a value set.
    fn in_set(m, id: u64, at: *const u64) -> u64 {
        let id = ValueSetId(id as u32);
        let Some(schema) = m.code.program.value_sets.get(id.index()) else { return 0 };
        let mut first = 0;
        let values: Vec<Bits> = schema.types.iter().map(|ty| {
            // SAFETY: the slot has the limbs of all values of the set's types, one after the other.
            let value = unsafe { bits(at.add(first), ty.width().into()) };
            first += usize::from(ty.width().div_ceil(64));
            value
        }).collect();
        let contains = |tuple: &Vec<Option<pipeline::ir::KeyMatch>>| {
            tuple.len() == values.len()
                && tuple.iter().zip(&values).all(|(is, value)| is.as_ref().is_none_or(|is| is.contains(value)))
        };
        m.view.values.get(id.index()).is_some_and(|set| set.iter().any(contains)).into()
    }

    /// Looks a table up; returns the address of the action call that is to run, or 0.
    fn lookup(m, table: u64, key: *const u64, depth: u64) -> *const Call {
        let id = TableId(table as u32);
        let Some(table) = m.view.tables.get(id.index()) else { return std::ptr::null() };
        // SAFETY: code has laid out a key of all of the table's keys, so many words.
        let key = unsafe { std::slice::from_raw_parts(key, table.words) };
        let record = m.scratch.versions.borrow_mut().look(id.index(), |held| table.find(held, key));
        found(m, id, table, record, depth)
    }

    /// The same, with the keys that entries have conditions on.
    fn lookup_narrow(m, table: u64, key: *const u64, depth: u64) -> *const Call {
        let id = TableId(table as u32);
        match m.first.take() {
            Some((first, record)) if first == id => first_found(m, id, record, depth),
            _ => look_up_narrow(m, id, key, depth),
        }
    }
}

/// What the first lookup, done with those of other packets, has found.
#[inline(always)]
fn first_found<'a>(m: &Machine<'a>, id: TableId, record: Option<&'a Record>, depth: u64) -> *const Call {
    let Some(table) = m.view.tables.get(id.index()) else { return std::ptr::null() };
    match table.counted || table.timed || !m.counts_together {
        true => first_noted(m, id, table, record, depth),
        false => outcome(m, id, table, record, depth),
    }
}

#[inline(never)]
fn first_noted<'a>(
    m: &Machine<'a>,
    id: TableId,
    table: &TableView,
    record: Option<&'a Record>,
    depth: u64,
) -> *const Call {
    if table.counted || !m.counts_together {
        count_lookup(m, id, table, record);
    }
    time_hit(m, table, record);
    outcome(m, id, table, record, depth)
}

/// Looks a table up with the keys that entries have conditions on.
#[inline(never)]
fn look_up_narrow(m: &Machine<'_>, id: TableId, key: *const u64, depth: u64) -> *const Call {
    let Some(table) = m.view.tables.get(id.index()) else { return std::ptr::null() };
    // SAFETY: the view has specialised code only as long as it lays out these keys, so many words.
    let key = unsafe { std::slice::from_raw_parts(key, table.reader.narrow.words) };
    if m.origin.get().is_some() {
        // The outcome follows from further entries.
        m.set_word(word::UNDECIDED, 1);
    }
    let record = m.scratch.versions.borrow_mut().look(id.index(), |held| table.reader.find(held, key));
    if m.walks {
        m.scratch.walk.borrow_mut().add(id, table, record.map(|record| &*record.stats));
    }
    found(m, id, table, record, depth)
}

/// Counts and times a lookup; returns the address of the action call that is to run, or 0.
#[inline(always)]
fn found<'a>(
    m: &Machine<'a>,
    id: TableId,
    table: &TableView,
    record: Option<&'a Record>,
    depth: u64,
) -> *const Call {
    count_lookup(m, id, table, record);
    time_hit(m, table, record);
    outcome(m, id, table, record, depth)
}

#[inline(always)]
fn count_lookup(m: &Machine<'_>, id: TableId, table: &TableView, record: Option<&Record>) {
    let bytes = if table.counted { m.scratch.pass.borrow().len.into() } else { 0 };
    let stats = record.map(|record| &*record.stats);
    m.scratch.tallies.borrow_mut().add(id.index(), stats, table.counted, 1, bytes);
}

#[inline(always)]
fn time_hit(m: &Machine<'_>, table: &TableView, record: Option<&Record>) {
    if let (Some(record), true) = (record, table.timed) {
        let now = m.env.borrow_mut().now();
        record.stats.last_hit.store(now, Relaxed);
    }
}

/// Keeps what a lookup has found for the statements behind it; returns the address of the action call that is to run,
/// or 0.
#[inline(always)]
fn outcome<'a>(
    m: &Machine<'a>,
    id: TableId,
    table: &TableView,
    record: Option<&'a Record>,
    depth: u64,
) -> *const Call {
    m.set_word(
        m.code.layout.hit(id) as usize / 8,
        record.map_or(0, |record| std::ptr::from_ref(record) as u64),
    );
    m.origin.set(Some((id, record)));
    let Some(record) = record else { return table.default_call() };
    m.resolve(table, record, depth).map_or(std::ptr::null(), std::ptr::from_ref)
}

fn draw(m: &Machine<'_>, low: &Bits, high: &Bits) -> Bits {
    if low > high {
        return low.clone();
    }
    let width = low.width();
    let mut env = m.env.borrow_mut();
    let drawn = (0..width.div_ceil(64))
        .fold(Bits::zero(width), |bits, _| bits.shl(64).or(&Bits::from_u64(width, env.random())));
    let size = high.sub(low).add(&Bits::from_u64(width, 1));
    // The whole range has a size of 2^width, which is zero here.
    if size.is_zero() { drawn } else { low.add(&drawn.div_rem(&size).1) }
}

fn color(m: &Machine<'_>, cell: Option<Meter<'_>>, unit: Option<MeterUnit>, before: u64) -> u64 {
    let units = match unit {
        Some(MeterUnit::Bytes) => m.scratch.pass.borrow().len.into(),
        _ => 1,
    };
    let now = m.env.borrow_mut().now();
    cell.map_or(Color::Green, |cell| cell.color(units, Color::from_number(before), now)) as u64
}
