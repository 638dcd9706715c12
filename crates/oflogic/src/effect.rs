//! Effects of a program on a packet, the same for generated code and the interpreter.

use codegen::Effects;
use match_action::Form;
use ofswitch::Failure;
use pipeline::interp::{self, Dropped, Exit};
use pipeline::ir::{Constant, DigestId};

/// An effect of a packet's pass through the tables.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EffectRef<'a> {
    Output { to: Exit, form: Form<'a>, queue: u16 },
    Controllers { reason: u8, limit: Option<u16>, data: &'a [u8], form: Form<'a> },
    Digest(DigestId, &'a [Constant]),
    Drop(Dropped),
}

impl<'a> EffectRef<'a> {
    /// The output of a packet of so many bytes, as it was received, to a port.
    pub(crate) fn leaves(port: u32, len: u32) -> Self {
        EffectRef::Output { to: Exit::Port(port), form: Form { head: &[], from: 0, to: len }, queue: 0 }
    }

    /// The limit that the packet exceeds with it.
    #[inline]
    pub(crate) fn failure(&self) -> Option<Failure> {
        match self {
            EffectRef::Drop(reason) => Failure::of(*reason),
            _ => None,
        }
    }

    /// An effect of generated code.
    #[inline]
    pub(crate) fn of_code(effect: &'a codegen::Effect, effects: &'a Effects) -> Self {
        let form = |packet: &'a codegen::Packet| Form {
            head: effects.bytes(&packet.head),
            from: packet.from,
            to: packet.to,
        };
        match effect {
            codegen::Effect::Output { to, packet, queue, .. } => {
                EffectRef::Output { to: *to, form: form(packet), queue: queue.unwrap_or(0) }
            }
            codegen::Effect::Controller { reason, packet, limit, data, .. } => EffectRef::Controllers {
                reason: *reason,
                limit: *limit,
                data: effects.bytes(data),
                form: form(packet),
            },
            codegen::Effect::Digest { digest, values } => EffectRef::Digest(*digest, values),
            codegen::Effect::Drop(reason) => EffectRef::Drop(*reason),
        }
    }

    /// An effect of the interpreter.
    pub(crate) fn of_interpreter(effect: &'a interp::Effect) -> Self {
        let form = |form: &'a interp::Form| Form { head: &form.head, from: form.from, to: form.to };
        match effect {
            interp::Effect::Output { to, packet, queue, .. } => {
                EffectRef::Output { to: *to, form: form(packet), queue: queue.unwrap_or(0) }
            }
            interp::Effect::Controller { reason, packet, limit, data, .. } => {
                EffectRef::Controllers { reason: *reason, limit: *limit, data, form: form(packet) }
            }
            interp::Effect::Digest { digest, values } => EffectRef::Digest(*digest, values),
            interp::Effect::Drop(reason) => EffectRef::Drop(*reason),
        }
    }
}
