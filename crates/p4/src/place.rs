//! The declarations that parts of a lowered program come from.
//!
//! Lowered programs have no places, but their objects have the names of those that they come from.

use std::collections::BTreeMap;
use std::path::Path;

use pipeline::ir;
use pipeline::validate::Invalid;

use crate::diagnostic::Diagnostics;
use crate::hir::Program;
use crate::instantiate::{Objects, full_name, own_name};
use crate::source::{Sources, Span};

/// Places of a program's tables, actions, parser states and registers, as `FILE:LINE`.
#[derive(Debug, Clone, Default)]
pub struct Places(BTreeMap<String, String>);

impl Places {
    /// The places in the source of what a program was lowered to.
    pub(crate) fn new(program: &Program, lowered: &ir::Program, sources: &Sources) -> Self {
        let objects = Objects::of(program, &mut Diagnostics::default());
        let tables = lowered.tables.iter().map(|table| format!("table {}", table.name));
        let actions = lowered.actions.iter().map(|action| format!("action {}", action.name));
        let registers = lowered.registers.iter().map(|register| format!("register {}", register.name));
        let states = lowered.parsers.iter().flat_map(|parser| {
            parser.states.iter().map(|state| format!("parser {}, state {}", parser.name, state.name))
        });
        let place = |part: String| {
            let span = named(program, &objects, &part)?;
            let file = Path::new(&sources.get(span.file)?.name).file_name()?.to_string_lossy();
            Some((part, format!("{file}:{}", sources.line(span).0)))
        };
        Self(tables.chain(actions).chain(registers).chain(states).filter_map(place).collect())
    }

    /// The place of a part, such as `table c.t` or `parser p, state s`.
    pub fn of(&self, part: &str) -> Option<&str> {
        self.0.get(part).map(String::as_str)
    }

    /// A message that begins with a part, `table c.t: …`, behind the part's place if that is known.
    pub fn before(&self, message: &str) -> String {
        let part = message.split(": ").next().unwrap_or_default();
        self.of(part).map_or_else(|| message.to_owned(), |place| format!("{place}: {message}"))
    }
}

/// The place of an error: that of the object that it names, or else of `main`.
pub(crate) fn of(program: &Program, error: &Invalid) -> Span {
    let main = program.main.and_then(|id| program.instances.get(id.index()));
    // What is wrong with the objects themselves has been said before.
    let objects = Objects::of(program, &mut Diagnostics::default());
    named(program, &objects, &error.place).or(main.map(|main| main.span)).unwrap_or_default()
}

/// The place of `table c.t, key k`, or of another object.
fn named(program: &Program, objects: &Objects<'_>, place: &str) -> Option<Span> {
    let mut parts = place.split(", ");
    let first = parts.next()?;
    if let Some(name) = first.strip_prefix("parser ") {
        let parser = program.parsers.iter().find(|parser| name.rsplit('.').next() == Some(&parser.name))?;
        let state = parts.next().and_then(|part| part.strip_prefix("state ")?.rsplit('.').next());
        let state = state.and_then(|name| parser.states.iter().find(|state| state.name == name));
        return Some(state.map_or(parser.span, |state| state.span));
    }
    let (kind, name) = ["table ", "action ", "register ", "counter ", "meter ", "profile "]
        .iter()
        .find_map(|kind| Some((*kind, first.strip_prefix(kind)?)))?;
    // An action that is listed with different arguments has a number behind its name.
    let name = if kind == "action " { name.split('#').next()? } else { name };
    let scopes = || objects.iter().filter_map(|(_, object)| Some((object.name.as_str(), object.control()?)));
    match kind {
        "table " => scopes().find_map(|(scope, control)| {
            let is_it = |table: &&crate::hir::Table| {
                table.control == control
                    && full_name(Some(scope), own_name(&table.annotations, &table.name)) == name
            };
            program.tables.iter().find(is_it).map(|table| table.span)
        }),
        "action " => program.actions.iter().find_map(|action| {
            let own = own_name(&action.annotations, &action.name);
            let is_it = match action.control {
                None => full_name(None, own) == name,
                Some(control) => {
                    scopes().any(|(scope, id)| id == control && full_name(Some(scope), own) == name)
                }
            };
            is_it.then_some(action.span)
        }),
        _ => {
            let found = objects.iter().find(|(_, object)| object.name == name);
            found.map(|(_, object)| object.property.map_or(object.instance.span, |property| property.span))
        }
    }
}
