//! State that cards would have to share.

use super::Reason;
use crate::compile::Front;
use crate::diagnostic::Diagnostics;
use crate::hir::Type;
use crate::instantiate::Objects;

/// Registers and meters of a program: packets of all ports change them, and find what others left.
pub(super) fn of(front: &Front) -> Vec<Reason> {
    let Some(program) = &front.program else { return Vec::new() };
    // Errors were found when the program was checked.
    let objects = Objects::of(program, &mut Diagnostics::default());
    let shared = objects.iter().filter_map(|(_, object)| {
        let Type::Extern(id, _) = &object.instance.ty else { return None };
        let kind = match program.externs.get(id.index())?.name.as_str() {
            kind @ ("register" | "meter") => kind,
            "direct_meter" => "meter",
            _ => return None,
        };
        Some(Reason { state: format!("{kind} `{}`", object.name), span: object.instance.span })
    });
    shared.collect()
}
