//! Traces of packets: parser states, tables with keys and entries, actions, and what they write to headers.

use fabric::{Batch, DropReason, PortIndex, Text, Value, VersionId, clock};
use pipeline::interp::{self, Event, Place, Received};

use crate::effect::EffectRef;
use crate::plane::{is_live, pull};
use crate::running::LIMITS;
use crate::shared::Core;
use crate::surroundings::Surroundings;

/// Pieces of a line in a remark.
const PIECES: usize = 4;

/// Decides for a batch and explains it. Packets that are only rehearsed meet the interpreter, which tells of each step;
/// received packets take the normal path, and only their fate is recorded.
pub(crate) fn explain(core: &Core, batch: &mut Batch<'_>) {
    match batch.is_rehearsal() {
        true => rehearse(core, batch),
        false => core.plane.forward(batch),
    }
}

fn rehearse(core: &Core, batch: &mut Batch<'_>) {
    let plane = &core.plane;
    let Some(local) = plane.locals.get(batch.worker()) else {
        return batch.packets().for_each(|v| batch.discard(v, DropReason::LogicFault));
    };
    let control = &mut *core.control();
    let Some(installed) = &control.installed else {
        return batch.packets().for_each(|v| {
            batch.remark(v, "the bridge has no P4 program", &[]);
            batch.discard(v, DropReason::Logic);
        });
    };
    let (ports, running) = (plane.ports.load(), &installed.running);
    let Some(mut executor) = plane.executor(batch, local, &ports, Some(running)) else { return };
    let number = executor.number;
    let security = batch.security();
    for v in batch.packets() {
        if security.is_some_and(|security| !logic::admits(security, batch, v)) {
            continue;
        }
        pull(batch, v, running);
        match batch.ingress() {
            PortIndex::NONE => {
                batch.remark(v, "it comes from controllers, at port {}", &[Value::Number(number.into())])
            }
            _ => batch.remark(v, "it comes from port {}", &[Value::Number(number.into())]),
        }
        let outcome = {
            let batch: &Batch<'_> = batch;
            let is_live = |number: u32| is_live(&ports, running, batch, number);
            // A trace is the same each time.
            let (now, mut random) = (clock::nanoseconds(), 0);
            let mut surroundings = Surroundings {
                now,
                random: &mut random,
                is_live: &is_live,
                functions: running.functions.as_deref(),
                queues: None,
            };
            let received =
                Received { len: batch.len(v), time: now, ..Received::whole(batch.header(v), number) };
            interp::rehearse(installed.switch.state(), &mut surroundings, &received, &LIMITS)
        };
        let mut before = None;
        for event in &outcome.trace {
            if tells(event) && !follows(event, before) {
                line(batch, v, &event.text(installed.switch.state()));
            }
            before = Some(event);
        }
        executor.execute(batch, v, outcome.effects.iter().map(EffectRef::of_interpreter));
    }
}

/// Whether a step is one of the program as it was written: the compiler's own blocks and variables are left out, and
/// effects are told when they are executed.
fn tells(event: &Event) -> bool {
    match event {
        Event::Stage(_)
        | Event::State(..)
        | Event::Extract(..)
        | Event::ParserError(_)
        | Event::Lookup(..)
        | Event::Action(..)
        | Event::Bucket(..)
        | Event::Valid(..)
        | Event::Shift(..)
        | Event::Set(Place::Field(..), _) => true,
        Event::Block(_) | Event::Set(Place::Var(_), _) | Event::Effect(_) => false,
    }
}

/// Whether a step follows from the one before: an extracted header is valid.
fn follows(event: &Event, before: Option<&Event>) -> bool {
    matches!((event, before), (Event::Valid(header, true), Some(Event::Extract(extracted, ..))) if header == extracted)
}

/// Remarks a line, or as much of it as a remark has room for.
fn line(batch: &mut Batch<'_>, v: VersionId, text: &str) {
    let mut pieces = text.as_bytes().chunks(Text::MAX).map(|piece| Value::Text(Text::new(piece)));
    let values: [Value; PIECES] = std::array::from_fn(|_| pieces.next().unwrap_or(Value::None));
    let is_cut = pieces.next().is_some();
    batch.remark(v, if is_cut { "{}{}{}{}..." } else { "{}{}{}{}" }, &values);
}
