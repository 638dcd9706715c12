//! Names that the control plane sees. Tables have names of their own, so do actions; two of a kind must differ.
//!
//! A name is that of the declaration or of its `@name`, with the control's name in front unless it begins with a dot.

use std::collections::{HashMap, HashSet};

use super::Checker;
use crate::diagnostic::Diagnostic;
use crate::hir::{ActionId, Annotation, AnnotationBody, ControlId, Program};
use crate::source::Span;

impl Checker<'_, '_> {
    /// Reports equal names.
    pub(super) fn control_plane_names(&mut self) {
        let tables = self
            .out
            .tables
            .iter()
            .map(|t| named(&self.out, Some(t.control), &t.name, &t.annotations, t.span));
        let tables: Vec<_> = tables.collect();
        // Only what tables list has a name for the control plane; `NoAction` stands for itself wherever it is.
        let listed: HashSet<ActionId> =
            self.out.tables.iter().flat_map(|t| t.actions.iter().map(|a| a.call.action)).collect();
        let actions = self
            .out
            .actions
            .iter()
            .enumerate()
            .filter(|(at, _)| listed.contains(&ActionId(super::index(*at))));
        // Controls may share an action by a name that is absolute.
        let actions = actions.filter(|(_, a)| !is_absolute(&a.annotations));
        let actions = actions.map(|(_, a)| named(&self.out, a.control, &a.name, &a.annotations, a.span));
        let actions: Vec<_> = actions.collect();
        for names in [tables, actions] {
            let mut seen: HashMap<String, Span> = HashMap::new();
            for (name, span) in names {
                if name == "NoAction" {
                    continue;
                }
                if let Some(earlier) = seen.insert(name.clone(), span) {
                    let message = format!("the control plane sees the name `{name}` twice");
                    let found = Diagnostic::error(span, message).also(earlier, "first declared here");
                    self.report(found.help("give one of them another name: `@name(\"…\")`"));
                }
            }
        }
    }
}

fn named(
    program: &Program,
    control: Option<ControlId>,
    name: &str,
    annotations: &[Annotation],
    span: Span,
) -> (String, Span) {
    let own = annotations.iter().find(|a| a.name == "name").and_then(text).unwrap_or_else(|| name.to_owned());
    if let Some(absolute) = own.strip_prefix('.') {
        return (absolute.to_owned(), span);
    }
    let path = match control.and_then(|c| program.controls.get(c.index())) {
        Some(control) => format!("{}.{own}", control.name),
        None => own,
    };
    (path, span)
}

fn is_absolute(annotations: &[Annotation]) -> bool {
    annotations.iter().find(|a| a.name == "name").and_then(text).is_some_and(|name| name.starts_with('.'))
}

/// The text in `@name("…")`.
fn text(annotation: &Annotation) -> Option<String> {
    match &annotation.body {
        AnnotationBody::Tokens(tokens) => match tokens.as_slice() {
            [only] => Some(only.trim_matches('"').to_owned()),
            _ => None,
        },
        _ => None,
    }
}
