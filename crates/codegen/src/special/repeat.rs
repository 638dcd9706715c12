//! Whether the statements in front of the first lookup may run twice on one packet's headers and variables: they do if
//! they assign to no header, and to no variable that one of them reads.

use pipeline::ir::{BlockId, LValue, Program, Stmt};

use super::uses::{Reads, base};

/// Whether the statements that these blocks begin with, up to lookups, may run twice.
pub(crate) fn may_repeat(program: &Program, blocks: &[BlockId]) -> bool {
    let (mut reads, mut places) = (Reads::none(program), Vec::new());
    for (_, body) in blocks.iter().filter_map(|id| program.blocks.get(id.index())) {
        front(program, body, &mut reads, &mut places);
    }
    places.into_iter().all(|place| match base(place) {
        LValue::Var(id) => !reads.var(*id),
        _ => false,
    })
}

/// Adds what statements read and assign to, up to one that does more than to assign and to branch; whether there is
/// none.
fn front<'p>(
    program: &'p Program,
    body: &'p [Stmt],
    reads: &mut Reads,
    places: &mut Vec<&'p LValue>,
) -> bool {
    body.iter().all(|stmt| match stmt {
        Stmt::Set(place, _) => {
            reads.stmt(program, stmt);
            places.push(place);
            true
        }
        Stmt::If(condition, yes, no) => {
            reads.expr(program, condition);
            let goes_on = [yes, no].map(|body| front(program, body, reads, places));
            goes_on.contains(&true)
        }
        _ => false,
    })
}
