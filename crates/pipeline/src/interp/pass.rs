//! A pass: one packet in one stage.

use super::FIRST;
use super::packet::{Form, Received};
use crate::bits::Bits;
use crate::env::Queue;
use crate::ir::{ErrorId, FieldType, ParserId, Program, Slot, StageId, TableId, VarId};
use crate::state::EntryId;

/// A header's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeaderValue {
    pub(super) valid: bool,
    /// A value for each field. A variable field's has as many bits as it currently is long.
    pub(super) fields: Vec<Bits>,
}

/// What a program computes with: a copy of it is a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) headers: Vec<HeaderValue>,
    /// For each stack, the element that the next extraction fills.
    pub(super) next: Vec<u32>,
    pub(super) vars: Vec<Bits>,
    pub(super) payload: Form,
    pub(super) truncate: Option<u32>,
}

impl Data {
    /// All headers invalid, everything zero.
    pub(super) fn new(program: &Program, payload: Form) -> Self {
        let value = |ty: FieldType| match ty {
            FieldType::Scalar(ty) => Bits::zero(ty.width()),
            FieldType::Varbit(_) => Bits::zero(0),
        };
        let fields = |header: &crate::ir::Header| {
            let ty = program.header_types.get(header.ty.index());
            ty.map_or(vec![], |ty| ty.fields.iter().map(|field| value(field.ty)).collect())
        };
        Self {
            headers: program
                .headers
                .iter()
                .map(|h| HeaderValue { valid: false, fields: fields(h) })
                .collect(),
            next: vec![0; program.stacks.len()],
            vars: program.vars.iter().map(|var| Bits::zero(var.ty.width())).collect(),
            payload,
            truncate: None,
        }
    }
}

/// A packet that enters a stage.
#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) stage: StageId,
    pub(super) content: Content,
    pub(super) parser: Option<ParserId>,
    pub(super) egress: Option<u32>,
    pub(super) replica: u16,
    pub(super) instance: u8,
    pub(super) class: Option<u8>,
    pub(super) queue: Option<u16>,
    pub(super) limit: Option<u32>,
    pub(super) rounds: u32,
}

/// What enters.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// Bytes and carried variables. To be parsed, by the stage's parser or [`Arrival::parser`].
    Bytes(Form, Vec<(VarId, Bits)>),
    /// Headers and variables as they are, and the packet as its parser received it.
    Parsed(Box<Data>, Form),
}

impl Arrival {
    pub(super) fn received(received: &Received<'_>) -> Self {
        Self {
            stage: FIRST,
            content: Content::Bytes(Form::received(received), vec![]),
            parser: None,
            egress: None,
            replica: 0,
            instance: 0,
            class: None,
            queue: None,
            limit: None,
            rounds: 0,
        }
    }
}

/// A pass.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) stage: StageId,
    pub(super) data: Data,
    /// The packet as its parser received it.
    pub(super) original: Form,
    /// The parser that made the headers.
    pub(super) parser: Option<ParserId>,
    /// Whether the headers are still to be made.
    pub(super) must_parse: bool,
    pub(super) egress: Option<u32>,
    pub(super) replica: u16,
    pub(super) instance: u8,
    pub(super) class: Option<u8>,
    pub(super) queue: Option<u16>,
    pub(super) limit: Option<u32>,
    pub(super) rounds: u32,
    pub(super) error: ErrorId,
    pub(super) stage_time: u64,
    pub(super) queue_state: Queue,
    /// Length on entry.
    pub(super) len: u32,
    /// Whether the packet went anywhere.
    pub(super) sent: bool,
    /// The table that was looked up last, and the entry hit.
    pub(super) origin: Option<(TableId, Option<EntryId>)>,
    /// For each table with meters, the entry hit last.
    pub(super) hits: Vec<(TableId, Option<EntryId>)>,
    /// While parsing: what the parser sees, its position in bits, and the error that an expression met.
    pub(super) window: Vec<u8>,
    pub(super) at: usize,
    pub(super) fault: Option<ErrorId>,
    /// While deparsing: what was emitted.
    pub(super) emitted: Option<Vec<u8>>,
}

impl Pass {
    pub(super) fn new(program: &Program, arrival: Arrival) -> Self {
        let (data, original, must_parse) = match arrival.content {
            Content::Bytes(form, carried) => {
                let mut data = Data::new(program, form.clone());
                for (var, value) in carried {
                    data.vars.iter_mut().skip(var.index()).take(1).for_each(|slot| slot.clone_from(&value));
                }
                (data, form, true)
            }
            Content::Parsed(data, original) => (*data, original, false),
        };
        // Of headers that are already there, the payload is only a part.
        let header_bytes = if must_parse { 0 } else { header_bytes(program, &data) };
        let len = data.payload.len().saturating_add(header_bytes);
        Self {
            stage: arrival.stage,
            data,
            original,
            parser: arrival.parser,
            must_parse,
            egress: arrival.egress,
            replica: arrival.replica,
            instance: arrival.instance,
            class: arrival.class,
            queue: arrival.queue,
            limit: arrival.limit,
            rounds: arrival.rounds,
            error: ErrorId::NONE,
            stage_time: 0,
            queue_state: Queue::default(),
            len,
            sent: false,
            origin: None,
            hits: vec![],
            window: vec![],
            at: 0,
            fault: None,
            emitted: None,
        }
    }

    /// Sets the variables that are bound to intrinsic metadata.
    pub(super) fn fill_slots(&mut self, program: &Program, received: &Received<'_>) {
        for (var, value) in program.vars.iter().zip(&mut self.data.vars) {
            let number = match var.slot {
                None => continue,
                // A stage without a parser keeps the error of the stage that parsed.
                Some(Slot::ParserError) if !self.must_parse => continue,
                Some(Slot::ParserError) => self.error.0.into(),
                Some(Slot::IngressPort) => received.port.into(),
                Some(Slot::EgressPort) => self.egress.unwrap_or(0).into(),
                Some(Slot::PacketLength) => self.len.into(),
                Some(Slot::IngressTime) => received.time,
                Some(Slot::StageTime) => self.stage_time,
                Some(Slot::Instance) => self.instance.into(),
                Some(Slot::Replica) => self.replica.into(),
                Some(Slot::Class) => self.class.unwrap_or(received.class).into(),
                Some(Slot::EnqueueDepth) => self.queue_state.enqueue_depth.into(),
                Some(Slot::DequeueDepth) => self.queue_state.dequeue_depth.into(),
                Some(Slot::QueueDelay) => self.queue_state.delay,
                Some(Slot::FlowHash) => received.flow_hash.into(),
                Some(Slot::Flags) => received.flags,
            };
            *value = Bits::from_u64(var.ty.width(), number);
        }
    }

    /// Sets the variables that are bound to the parser's error.
    pub(super) fn fill_error(&mut self, program: &Program) {
        for (var, value) in program.vars.iter().zip(&mut self.data.vars) {
            if var.slot == Some(Slot::ParserError) {
                *value = Bits::from_u64(var.ty.width(), self.error.0.into());
            }
        }
    }
}

/// Bytes of the valid headers.
fn header_bytes(program: &Program, data: &Data) -> u32 {
    let bits = |header: &HeaderValue| header.fields.iter().map(|field| u32::from(field.width())).sum::<u32>();
    let valid = program.headers.iter().zip(&data.headers).filter(|(_, header)| header.valid);
    valid.map(|(_, header)| bits(header) / 8).sum()
}
