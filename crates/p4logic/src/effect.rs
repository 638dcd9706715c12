//! Effects of a program on a packet, the same for machine code and the interpreter.

use codegen::{Effects, Leaves};
use match_action::Form;
use pipeline::interp::{self, Dropped, Exit};
use pipeline::ir::{Constant, DigestId};

/// An effect.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EffectRef<'a> {
    Output { to: u32, form: Form<'a>, class: u8 },
    Digest(DigestId, &'a [Constant]),
    Drop(Dropped),
}

/// The number of the port that a packet leaves to. P4 programs have no other destinations.
fn port(to: Exit) -> Option<u32> {
    match to {
        Exit::Port(port) => Some(port),
        Exit::Flood | Exit::All | Exit::Fallback => None,
    }
}

impl<'a> EffectRef<'a> {
    /// The output of a packet of so many bytes as it was received.
    #[inline]
    pub(crate) fn leaves(leaves: Leaves, len: u32) -> Self {
        EffectRef::Output { to: leaves.port, form: Form { head: &[], from: 0, to: len }, class: 0 }
    }

    /// An effect of machine code.
    #[inline]
    pub(crate) fn of_code(effect: &'a codegen::Effect, effects: &'a Effects) -> Self {
        match effect {
            codegen::Effect::Output { to, packet, class, .. } => match port(*to) {
                Some(to) => {
                    let form = Form { head: effects.bytes(&packet.head), from: packet.from, to: packet.to };
                    EffectRef::Output { to, form, class: class.unwrap_or(0) }
                }
                None => EffectRef::Drop(Dropped::NoDestination),
            },
            codegen::Effect::Digest { digest, values } => EffectRef::Digest(*digest, values),
            codegen::Effect::Drop(reason) => EffectRef::Drop(*reason),
            codegen::Effect::Controller { .. } => EffectRef::Drop(Dropped::NoDestination),
        }
    }

    /// An effect of the interpreter.
    pub(crate) fn of_interpreter(effect: &'a interp::Effect) -> Self {
        match effect {
            interp::Effect::Output { to, packet, class, .. } => match port(*to) {
                Some(to) => {
                    let form = Form { head: &packet.head, from: packet.from, to: packet.to };
                    EffectRef::Output { to, form, class: class.unwrap_or(0) }
                }
                None => EffectRef::Drop(Dropped::NoDestination),
            },
            interp::Effect::Digest { digest, values } => EffectRef::Digest(*digest, values),
            interp::Effect::Drop(reason) => EffectRef::Drop(*reason),
            interp::Effect::Controller { .. } => EffectRef::Drop(Dropped::NoDestination),
        }
    }
}
