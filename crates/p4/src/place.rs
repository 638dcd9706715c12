//! The declaration that an error of the pipeline is about.
//!
//! Lowered programs have no places, but their objects have the names of those that they come from.

use pipeline::validate::Invalid;

use crate::diagnostic::Diagnostics;
use crate::hir::Program;
use crate::instantiate::{Objects, full_name, own_name};
use crate::source::Span;

/// The place of an error: that of the object that it names, or else of `main`.
pub(crate) fn of(program: &Program, error: &Invalid) -> Span {
    let main = program.main.and_then(|id| program.instances.get(id.index()));
    named(program, &error.place).or(main.map(|main| main.span)).unwrap_or_default()
}

/// The place of `table c.t, key k`, or of another object.
fn named(program: &Program, place: &str) -> Option<Span> {
    let mut parts = place.split(", ");
    let first = parts.next()?;
    if let Some(name) = first.strip_prefix("parser ") {
        let parser = program.parsers.iter().find(|parser| name.rsplit('.').next() == Some(&parser.name))?;
        let state = parts.next().and_then(|part| part.strip_prefix("state ")?.rsplit('.').next());
        let state = state.and_then(|name| parser.states.iter().find(|state| state.name == name));
        return Some(state.map_or(parser.span, |state| state.span));
    }
    // What is wrong with the objects themselves has been said before.
    let objects = Objects::of(program, &mut Diagnostics::default());
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
