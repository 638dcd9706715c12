//! Whether a card does what the interpreter does, for tests.

use std::ops::RangeInclusive;

use pipeline::interp::{Dropped, Effect, Exit, Received};
use pipeline::ir::{CounterId, Program, RegisterId, TableId};
use pipeline::state::State;

use crate::{Card, CardError, Finished, Passed, Verdict};

/// Lengths of packets that the kernel runs a program on, and that programs may make: an Ethernet header at least.
pub const LENGTHS: RangeInclusive<usize> = 14..=3_400;

/// Whether a card has done what the interpreter has: sent the same bytes to the same port, in the same class and queue,
/// or dropped the packet for the same reason, and made the same digest. Packets that would become shorter than an Ethernet
/// header are dropped.
pub fn is_right(program: &Program, effects: &[Effect], received: &Received<'_>, found: &Passed) -> bool {
    let own = program.reasons.len();
    let digest = found.finished.and_then(|finished| finished.digest(program));
    let (wanted, effects) = match effects {
        [Effect::Digest { digest, values }, rest @ ..] => (Some((*digest, values)), rest),
        effects => (None, effects),
    };
    if wanted != digest.as_ref().map(|(id, values)| (*id, values)) {
        return false;
    }
    if let Some(Finished { port, class, queue, .. }) = found.finished {
        let is_told = match found.verdict {
            Verdict::Sent(to) => port == Some(to) && (class, queue) == (found.class, found.queue),
            _ => port.is_none(),
        };
        if !is_told {
            return false;
        }
    }
    match (effects, found.verdict) {
        ([Effect::Output { to: Exit::Port(port), packet, class, queue }], Verdict::Sent(to)) => {
            *port == to
                && packet.bytes(received) == found.packet
                && (*class, *queue) == (found.class, found.queue)
        }
        ([Effect::Output { packet, .. }], Verdict::Dropped(reason)) => {
            reason == own + 1 && !LENGTHS.contains(&packet.bytes(received).len())
        }
        ([Effect::Drop(reason)], Verdict::Dropped(found)) => match reason {
            Dropped::Reason(reason) => reason.index() == found,
            Dropped::NoDestination => own == found,
            Dropped::Limit(_) => own + 1 == found,
            Dropped::NoExtern(_) => false,
        },
        _ => false,
    }
}

/// The first difference between what packets have counted, and between the first `cells` of arrays.
///
/// # Errors
/// The kernel's.
pub fn counts(card: &Card, state: &State, cells: u32) -> Result<Option<String>, CardError> {
    let program = state.program();
    let differs = |name: String, wanted: (u64, u64), found: (u64, u64)| {
        (wanted != found).then(|| format!("{name}: the card has {found:?}, the interpreter {wanted:?}"))
    };
    for (i, counter) in program.counters.iter().enumerate() {
        let id = CounterId::at(i);
        for cell in 0..counter.size.min(cells) {
            let wanted = state.arrays().counter(id, cell.into()).map_or((0, 0), |stats| stats.get());
            let name = format!("counter {}[{cell}]", counter.name);
            if let Some(difference) = differs(name, wanted, card.counter(id, cell)?) {
                return Ok(Some(difference));
            }
        }
    }
    for (i, schema) in program.tables.iter().enumerate() {
        let id = TableId::at(i);
        let Some(table) = state.table(id) else { continue };
        let name = format!("lookups and hits of table {}", schema.name);
        if let Some(difference) = differs(name, table.lookups(), card.lookups(id)?) {
            return Ok(Some(difference));
        }
        for entry in table.entries() {
            let name = format!("entry {} of table {}", entry.id.0, schema.name);
            if let Some(difference) = differs(name, entry.stats.hits(), card.hits(id, entry.id)?) {
                return Ok(Some(difference));
            }
        }
    }
    let guard = state.arrays().lock();
    for (i, register) in program.registers.iter().enumerate().filter(|(_, r)| r.ty.width() <= 64) {
        let id = RegisterId::at(i);
        for cell in 0..register.size.min(cells) {
            let wanted = state.arrays().read(&guard, id, cell.into()).map_or(0, |value| value.low_u64());
            let name = format!("register {}[{cell}]", register.name);
            if let Some(difference) = differs(name, (wanted, 0), (card.register(id, cell)?, 0)) {
                return Ok(Some(difference));
            }
        }
    }
    Ok(None)
}
