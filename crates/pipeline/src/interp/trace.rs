//! Traces: what happened to a packet, step by step.

use std::fmt::Write;

use super::{Dropped, Effect, Exit, Limit};
use crate::bits::Bits;
use crate::ir::{
    ActionId, BlockId, Constant, ErrorId, GroupTableId, HeaderId, ParserId, StackId, StageId, TableId, VarId,
};
use crate::state::{EntryId, State};
use crate::text::print_value;

/// A place that a program changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A variable.
    Var(VarId),
    /// A field.
    Field(HeaderId, u16),
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A packet entered a stage.
    Stage(StageId),
    /// A parser entered a state.
    State(ParserId, u32),
    /// A parser extracted a header: at this byte, so many bytes.
    Extract(HeaderId, usize, usize),
    /// A parser ended with an error.
    ParserError(ErrorId),
    /// A block began.
    Block(BlockId),
    /// A table was looked up with these keys, and which entry was hit.
    Lookup(TableId, Vec<Constant>, Option<EntryId>),
    /// An action ran with these arguments.
    Action(ActionId, Vec<Constant>),
    /// A bucket of a group ran.
    Bucket(GroupTableId, u32, usize),
    /// A place was assigned this value.
    Set(Place, Bits),
    /// A header became valid or invalid.
    Valid(HeaderId, bool),
    /// A stack's elements moved by so many places, up or down.
    Shift(StackId, u32, bool),
    /// An effect.
    Effect(Effect),
}

impl Event {
    /// The step as a line of text.
    pub fn text(&self, state: &State) -> String {
        let p = state.program();
        match self {
            Event::Stage(id) => format!("stage {}", name(&p.stages, id.index(), |x| &x.name)),
            Event::State(parser, i) => {
                let states = p.parsers.get(parser.index()).map_or(&[][..], |parser| &parser.states);
                format!("parser state {}", name(states, *i as usize, |x| &x.name))
            }
            Event::Extract(header, at, len) => {
                format!("extract {}: {len} bytes at {at}", p.header_name(*header))
            }
            Event::ParserError(error) => format!("parser error {}", p.error_name(*error)),
            Event::Block(id) => format!("block {}", name(&p.blocks, id.index(), |x| &x.0)),
            Event::Lookup(id, keys, hit) => {
                let mut text = format!("table {}:", name(&p.tables, id.index(), |x| &x.name));
                let names = p.tables.get(id.index()).map_or(&[][..], |table| &table.keys);
                for (key, value) in names.iter().zip(keys) {
                    // Writing to a string succeeds.
                    let _ = write!(text, " {}={}", key.name, print_value(value));
                }
                text + &hit.map_or(", miss".into(), |entry| format!(", hit entry {}", entry.0))
            }
            Event::Action(id, args) => {
                let args: Vec<_> = args.iter().map(print_value).collect();
                let action = state.action(*id).map_or("?", |action| &action.name);
                format!("action {action}({})", args.join(", "))
            }
            Event::Bucket(table, id, i) => {
                format!("group {}[{id}], bucket {i}", name(&p.groups, table.index(), |x| &x.name))
            }
            Event::Set(Place::Var(id), value) => {
                format!("{} = {value}", name(&p.vars, id.index(), |x| &x.name))
            }
            Event::Set(Place::Field(id, field), value) => {
                let fields = p.header_type(*id).map_or(&[][..], |ty| &ty.fields);
                let field = name(fields, usize::from(*field), |x| &x.name);
                format!("{}.{field} = {value}", p.header_name(*id))
            }
            Event::Valid(id, valid) => {
                format!("{} {}", p.header_name(*id), if *valid { "is valid" } else { "is invalid" })
            }
            Event::Shift(id, n, up) => format!(
                "{} {n} {}",
                name(&p.stacks, id.index(), |x| &x.name),
                if *up { "pushed" } else { "popped" }
            ),
            Event::Effect(effect) => effect.text(state),
        }
    }
}

impl Effect {
    /// The effect as a line of text.
    pub fn text(&self, state: &State) -> String {
        match self {
            Effect::Output { to, packet, .. } => {
                let to = match to {
                    Exit::Port(port) => format!("port {port}"),
                    Exit::Flood => "flooded ports".into(),
                    Exit::All => "all ports".into(),
                    Exit::Fallback => "the fallback logic".into(),
                };
                format!("output to {to}, {} bytes", packet.len())
            }
            Effect::Controller { reason, packet, .. } => {
                format!("to the controller, reason {reason}, {} bytes", packet.len())
            }
            Effect::Digest { digest, values } => {
                let values: Vec<_> = values.iter().map(print_value).collect();
                let digests = &state.program().digests;
                format!("digest {}({})", name(digests, digest.index(), |x| &x.name), values.join(", "))
            }
            Effect::Drop(reason) => format!("drop: {}", reason.text(state)),
        }
    }
}

impl Dropped {
    /// The reason as text.
    pub fn text(&self, state: &State) -> String {
        match self {
            Dropped::Reason(id) => name(&state.program().reasons, id.index(), |x| x).to_owned(),
            Dropped::NoDestination => "no destination".into(),
            Dropped::Limit(limit) => format!("too many {}", limit.name()),
            Dropped::NoExtern(id) => {
                format!("no function {}", name(&state.program().externs, id.index(), |x| &x.name))
            }
        }
    }
}

impl Limit {
    fn name(self) -> &'static str {
        match self {
            Limit::Steps => "steps",
            Limit::Depth => "nested calls",
            Limit::Headers => "header bytes",
            Limit::Passes => "passes",
            Limit::Rounds => "rounds",
            Limit::Effects => "effects",
        }
    }
}

fn name<T>(list: &[T], index: usize, name: impl Fn(&T) -> &str) -> &str {
    list.get(index).map_or("?", name)
}
